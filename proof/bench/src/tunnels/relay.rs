//! The naive way over the same hops: Unix socket, process, a TLS connection per tunnel, process, TCP.
//!
//! It multiplexes nothing and limits nothing. It shows what the hops themselves cost.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const BUFFER: usize = 64 * 1024;

/// One of the two processes.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Relay {
    /// From a Unix socket to the other process
    #[command(hide = true)]
    RelayNear {
        /// The socket
        socket: PathBuf,
        /// The other process
        far: SocketAddr,
        /// Where the keys are
        keys: PathBuf,
    },
    /// From the first process to the destination
    #[command(hide = true)]
    RelayFar {
        /// Where to listen
        listen: SocketAddr,
        /// The destination
        to: SocketAddr,
        /// Where the keys are
        keys: PathBuf,
    },
}

/// Runs until it is killed.
pub(crate) async fn run(relay: Relay) -> Result<()> {
    match relay {
        Relay::RelayNear { socket, far, keys } => near(&socket, far, &keys).await,
        Relay::RelayFar { listen, to, keys } => self::far(listen, to, &keys).await,
    }
}

async fn near(socket: &Path, far: SocketAddr, keys: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket)?;
    let connector = TlsConnector::from(Arc::new(client(keys)?));
    let name = ServerName::IpAddress(far.ip().into());
    loop {
        let (stream, _) = listener.accept().await?;
        let (connector, name) = (connector.clone(), name.clone());
        tokio::spawn(async move {
            let far = TcpStream::connect(far).await?;
            far.set_nodelay(true)?;
            pass(stream, connector.connect(name, far).await?).await
        });
    }
}

async fn far(listen: SocketAddr, to: SocketAddr, keys: &Path) -> Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let acceptor = TlsAcceptor::from(Arc::new(server(keys)?));
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            stream.set_nodelay(true)?;
            let stream = acceptor.accept(stream).await?;
            let to = TcpStream::connect(to).await?;
            to.set_nodelay(true)?;
            pass(stream, to).await
        });
    }
}

async fn pass(
    mut one: impl AsyncRead + AsyncWrite + Unpin,
    mut other: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<()> {
    tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER, BUFFER).await?;
    Ok(())
}

fn roots(keys: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(keys.join("ca.crt"))?)?;
    Ok(roots)
}

fn pair(keys: &Path, name: &str) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let certificate = CertificateDer::from_pem_file(keys.join(format!("{name}.crt")));
    let key = PrivateKeyDer::from_pem_file(keys.join(format!("{name}.key")));
    Ok((
        vec![certificate.context("no certificate")?],
        key.context("no key")?,
    ))
}

fn client(keys: &Path) -> Result<ClientConfig> {
    let (chain, key) = pair(keys, "client")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(keys)?)
        .with_client_auth_cert(chain, key)?)
}

fn server(keys: &Path) -> Result<ServerConfig> {
    let (chain, key) = pair(keys, "server")?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = Arc::new(roots(keys)?);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(clients, Arc::clone(&provider)).build()?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?)
}
