//! The same over TLS, for those who may see it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Response;
use http::request::Parts;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use wire::tls::Reloading;

/// How long a handshake and a request's head may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many connections there may be at once.
const AT_ONCE: usize = 64;

/// An answer.
pub type Page = Response<Full<Bytes>>;

/// What a client's certificate says, its own first; nothing where it shows none. Part of a request's extensions.
#[derive(Debug, Clone)]
pub struct Shown(pub Arc<[CertificateDer<'static>]>);

/// Answers the head of a request.
pub type Handler = Arc<dyn Fn(Parts) -> BoxFuture<'static, Page> + Send + Sync>;

/// Serves requests without a body, until it is dropped.
pub async fn serve(listener: TcpListener, tls: Arc<Reloading>, handler: Handler) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= AT_ONCE {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let acceptor = TlsAcceptor::from(tls.current());
                connections.spawn(connection(stream, acceptor, Arc::clone(&handler)));
            }
            // Files have run out, most likely: there will be some again.
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

// A client that goes away is none of our business.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, handler: Handler) {
    let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await else {
        return;
    };
    let shown = Shown(
        stream
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .into(),
    );
    let answer = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(shown.clone());
        let answer = handler(request.into_parts().0);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}
