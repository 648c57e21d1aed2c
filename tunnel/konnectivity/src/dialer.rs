//! The client's side: how an API server reaches a node or a service through a konnectivity server.
//!
//! [`dial`] gives a byte stream. Shutting it down ends the writing direction only, where the server
//! and the agent can carry that; dropping it ends the connection.

mod connect;
mod grpc;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// How long the way to the proxy and the dial behind it may take together; upstream's backstop.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the konnectivity server is and which of its two front ends it offers.
#[derive(Debug, Clone)]
pub enum Via {
    /// gRPC over a Unix socket.
    GrpcUds(PathBuf),
    /// gRPC over TLS.
    GrpcTcp(TcpProxy),
    /// HTTP CONNECT over a Unix socket.
    ConnectUds(PathBuf),
    /// HTTP CONNECT over TLS.
    ConnectTcp(TcpProxy),
}

/// A konnectivity server behind TLS.
#[derive(Debug, Clone)]
pub struct TcpProxy {
    /// `host:port` to connect to.
    pub address: String,
    /// The name its certificate must carry.
    pub server_name: ServerName<'static>,
    /// Whom to trust and the certificate to show; the protocol names (ALPN) are chosen here.
    pub tls: Arc<rustls::ClientConfig>,
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The proxy itself cannot be reached.
    #[error("cannot connect to the proxy {proxy}: {source}")]
    Proxy {
        /// The proxy, as configured.
        proxy: String,
        /// What the system or TLS said.
        source: io::Error,
    },
    /// The proxy answered a CONNECT with something other than 200.
    #[error("proxy from {proxy} while dialing {address}, code {code}: {text}")]
    Refused {
        /// The proxy, as configured.
        proxy: String,
        /// What was to be reached.
        address: String,
        /// The status code.
        code: u16,
        /// The status line's reason and the body's beginning.
        text: String,
    },
    /// The agent could not reach the address; its own words.
    #[error("{0}")]
    Endpoint(String),
    /// The proxy gave the dial up.
    #[error("dial closed")]
    Closed,
    /// The proxy went away before it answered.
    #[error("tunnel closed")]
    TunnelClosed,
    /// Nothing came back in time.
    #[error("dial timeout, backstop")]
    Timeout,
    /// The proxy does not follow the protocol.
    #[error("the proxy {proxy} answered what it may not: {text}")]
    Protocol {
        /// The proxy, as configured.
        proxy: String,
        /// What was wrong.
        text: String,
    },
}

/// Opens a tunnel to `address` (`host:port`).
pub async fn dial(via: &Via, address: &str) -> Result<Tunnel, DialError> {
    match tokio::time::timeout(DIAL_TIMEOUT, open(via, address)).await {
        Ok(result) => result,
        Err(_) => Err(DialError::Timeout),
    }
}

async fn open(via: &Via, address: &str) -> Result<Tunnel, DialError> {
    let proxy = via.to_string();
    let socket = via.connect().await.map_err(|source| DialError::Proxy {
        proxy: proxy.clone(),
        source,
    })?;
    match via {
        Via::ConnectUds(_) | Via::ConnectTcp(_) => connect::open(socket, &proxy, address).await,
        Via::GrpcUds(_) | Via::GrpcTcp(_) => grpc::open(socket, &proxy, address).await,
    }
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Via::GrpcUds(path) | Via::ConnectUds(path) => write!(f, "{}", path.display()),
            Via::GrpcTcp(proxy) | Via::ConnectTcp(proxy) => f.write_str(&proxy.address),
        }
    }
}

impl Via {
    async fn connect(&self) -> io::Result<Tunnel> {
        match self {
            Via::GrpcUds(path) | Via::ConnectUds(path) => {
                Ok(Tunnel::over(UnixStream::connect(path).await?))
            }
            Via::GrpcTcp(proxy) => proxy.connect(b"h2").await,
            Via::ConnectTcp(proxy) => proxy.connect(b"http/1.1").await,
        }
    }
}

impl TcpProxy {
    async fn connect(&self, protocol: &[u8]) -> io::Result<Tunnel> {
        let mut config = (*self.tls).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let socket = TcpStream::connect(&self.address).await?;
        socket.set_nodelay(true)?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(self.server_name.clone(), socket).await?;
        Ok(Tunnel::over(stream))
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A byte stream to what was dialled.
pub struct Tunnel {
    stream: Pin<Box<dyn Duplex>>,
    /// What was read together with the proxy's answer, and belongs behind it.
    early: Bytes,
}

impl Tunnel {
    fn over(stream: impl Duplex + 'static) -> Tunnel {
        Tunnel {
            stream: Box::pin(stream),
            early: Bytes::new(),
        }
    }
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tunnel")
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return self.stream.as_mut().poll_read(cx, buffer);
        }
        let count = buffer.remaining().min(self.early.len());
        buffer.put_slice(&self.early.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}
