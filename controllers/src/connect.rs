//! Clients of the API server: one with our credentials, one without any for those who bring a token.

use std::path::Path;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::{Connection, Error};

/// The client with our credentials, then the one without.
pub(crate) async fn clients(connection: &Connection) -> Result<(Client, Client), Error> {
    let mut config = client_config(connection).await?;
    // The field manager of what we write is taken from here.
    let agent = HeaderValue::from_static("kube-controller-manager/kyanite");
    config.headers.push((USER_AGENT, agent));
    let mut bare = config.clone();
    bare.auth_info = kube::config::AuthInfo::default();
    let client = |config| Client::try_from(config).map_err(|e| unusable(connection, &e));
    Ok((client(config)?, client(bare)?))
}

async fn client_config(connection: &Connection) -> Result<ClientConfig, Error> {
    match connection {
        Connection::Kubeconfig(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).map_err(|e| Error::file("read", path, &e))?;
            ClientConfig::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|e| Error::file("use", path, &e))
        }
        Connection::Certificate { server, ca, client } => {
            let url = server.parse().map_err(|e| unusable(connection, &e))?;
            let mut config = ClientConfig::new(url);
            config.root_cert = Some(certificates(ca)?);
            config.auth_info.client_certificate = Some(client.cert.display().to_string());
            config.auth_info.client_key = Some(client.key.display().to_string());
            Ok(config)
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    CertificateDer::pem_file_iter(path)
        .and_then(|all| all.map(|one| one.map(|der| der.to_vec())).collect())
        .map_err(|e| Error::file("read", path, &e))
}

fn unusable(connection: &Connection, cause: &dyn std::fmt::Display) -> Error {
    let place = match connection {
        Connection::Kubeconfig(path) => path.display().to_string(),
        Connection::Certificate { server, .. } => server.clone(),
    };
    Error::Connection {
        place,
        cause: cause.to_string(),
    }
}
