//! Connections to etcd that somebody else opens: through a tunnel, for one.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

/// A byte stream in both directions.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Opens connections to members.
pub trait Dialer: Debug + Send + Sync {
    /// A connection to a host and a port.
    fn dial(
        self: Arc<Self>,
        host: String,
        port: u16,
    ) -> BoxFuture<'static, io::Result<Box<dyn Socket>>>;
}

/// A dialer as the channel wants it.
pub(super) struct Connector(pub(super) Arc<dyn Dialer>);

impl Service<Uri> for Connector {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        let host = host.trim_matches(['[', ']']).to_owned();
        // What a port that is not named means without a dialer.
        let usual = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let dial = Arc::clone(&self.0).dial(host, uri.port_u16().unwrap_or(usual));
        Box::pin(async move { dial.await.map(TokioIo::new) })
    }
}
