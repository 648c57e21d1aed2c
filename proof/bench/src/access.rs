//! How to reach an API server: what a kubeconfig says, and nothing about whose server it is.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

/// An address and the credentials for it.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
    ca: Vec<u8>,
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: String,
    client_key_data: String,
}

impl Access {
    /// Reads a kubeconfig with one cluster and one user who has a client certificate.
    pub(crate) fn from_kubeconfig(path: &Path) -> Result<Access> {
        let text = std::fs::read_to_string(path)?;
        let config: Kubeconfig = serde_saphyr::from_str(&text).context("not a kubeconfig")?;
        let cluster = &config.clusters.first().context("no cluster")?.cluster;
        let user = &config.users.first().context("no user")?.user;
        let address = cluster.server.trim_start_matches("https://").parse()?;
        Access::new(
            address,
            &STANDARD.decode(&cluster.certificate_authority_data)?,
            &STANDARD.decode(&user.client_certificate_data)?,
            &STANDARD.decode(&user.client_key_data)?,
        )
    }

    /// Takes the CA as PEM, for a server that asks for no certificate.
    pub(crate) fn trusting(address: SocketAddr, ca: &[u8]) -> Result<Access> {
        let mut tls = ClientConfig::builder()
            .with_root_certificates(roots(ca)?)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Access {
            address,
            tls: Arc::new(tls),
            ca: ca.to_vec(),
        })
    }

    /// Takes the CA, client certificate and key as PEM.
    pub(crate) fn new(address: SocketAddr, ca: &[u8], cert: &[u8], key: &[u8]) -> Result<Access> {
        let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>()?;
        let mut tls = ClientConfig::builder()
            .with_root_certificates(roots(ca)?)
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Access {
            address,
            tls: Arc::new(tls),
            ca: ca.to_vec(),
        })
    }

    /// The same server with other credentials, as PEM.
    pub(crate) fn of_other(&self, (cert, key): &(Vec<u8>, Vec<u8>)) -> Result<Access> {
        Access::new(self.address, &self.ca, cert, key)
    }
}

fn roots(ca: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(ca) {
        roots.add(authority?)?;
    }
    Ok(roots)
}
