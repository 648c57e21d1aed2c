//! Clients of the API server: one with our credentials, one without any for those who bring a token.

use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use http::uri::Scheme;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as ClientConfig};

use crate::connections::Connections;
use crate::{Connection, Error, inside};

/// When a silent connection is asked whether it still is one, and how long the answer may take: as
/// upstream's clients do it.
const PING_AFTER: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The client with our credentials, then the one without. `agent` is what we call ourselves; the field manager of
/// what we write is taken from it.
pub async fn clients(
    connection: &Connection,
    agent: &'static str,
) -> Result<(Client, Client), Error> {
    if let Connection::Inside { server, cert } = connection {
        let own = inside::client(server.as_ref(), Some(cert), agent)?;
        return Ok((own, inside::client(server.as_ref(), None, agent)?));
    }
    let config = client_config(connection, agent).await?;
    let mut bare = config.clone();
    bare.auth_info = kube::config::AuthInfo::default();
    let made = |config| made(config).map_err(|e| unusable(connection, &e));
    Ok((made(config)?, made(bare)?))
}

/// The client with our credentials alone.
pub async fn client(connection: &Connection, agent: &'static str) -> Result<Client, Error> {
    if let Connection::Inside { server, cert } = connection {
        return inside::client(server.as_ref(), Some(cert), agent);
    }
    let config = client_config(connection, agent).await?;
    made(config).map_err(|e| unusable(connection, &e))
}

async fn client_config(
    connection: &Connection,
    agent: &'static str,
) -> Result<ClientConfig, Error> {
    let mut config = described(connection).await?;
    let agent = HeaderValue::from_static(agent);
    config.headers.push((USER_AGENT, agent));
    Ok(config)
}

// Over HTTP/1, which is all that the library does by itself, each watch would have a connection of its own, with a handshake
// and buffers at both ends. Tokens, other names and proxies of a kubeconfig are left to the library.
fn made(config: ClientConfig) -> kube::Result<Client> {
    let is_plain = config.proxy_url.is_none()
        && config.tls_server_name.is_none()
        && config.cluster_url.scheme() == Some(&Scheme::HTTPS)
        && config.auth_layer()?.is_none();
    if !is_plain {
        return Client::try_from(config);
    }
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let connector = as_another(&config.rustls_https_connector()?, (tcp, tls));
    let service = Connections::new(Box::new(move || {
        legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector.clone())
    }));
    let builder = ClientBuilder::new(service, config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&config.base_uri_layer());
    Ok(builder.build())
}

// The library says what a connector is made of, and not how its type is called.
fn as_another<C: From<P>, P>(_: &C, parts: P) -> C {
    parts.into()
}

async fn described(connection: &Connection) -> Result<ClientConfig, Error> {
    match connection {
        Connection::Inside { .. } => Err(unusable(connection, &"it has no address")),
        Connection::InCluster => ClientConfig::incluster().map_err(|e| unusable(connection, &e)),
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
            let authorities = inside::certificates(ca)?;
            config.root_cert = Some(authorities.iter().map(|der| der.to_vec()).collect());
            config.auth_info.client_certificate = Some(client.cert.display().to_string());
            config.auth_info.client_key = Some(client.key.display().to_string());
            Ok(config)
        }
    }
}

fn unusable(connection: &Connection, cause: &dyn std::fmt::Display) -> Error {
    let place = match connection {
        Connection::Inside { .. } => "this process".into(),
        Connection::InCluster => "the pod's service account".into(),
        Connection::Kubeconfig(path) => path.display().to_string(),
        Connection::Certificate { server, .. } => server.clone(),
    };
    Error::Connection {
        place,
        cause: cause.to_string(),
    }
}
