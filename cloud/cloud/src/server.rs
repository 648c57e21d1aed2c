//! The front door: TLS connections, and an end for each of them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::exchange::{Asked, Body, Reply};
use crate::settings::KeyPairFiles;

/// A peer that does not finish its handshake or its headers in this time is let go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open requests may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// ARM takes templates of four megabytes; nothing larger is read.
const BODY_LIMIT: usize = 4 << 20;

/// Whoever answers requests.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Answers a request that came from this address.
    fn answer(&self, asked: Asked, peer: SocketAddr) -> impl Future<Output = Reply> + Send;
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file without what it should hold.
    #[error("`{file}` holds nothing TLS can use: {cause}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        cause: String,
    },
    /// A certificate and a key that do not fit.
    #[error("the certificate and its key cannot be used: {0}")]
    Pair(#[from] rustls::Error),
}

/// What connections are accepted with.
pub(crate) fn acceptor(files: &KeyPairFiles) -> Result<TlsAcceptor, TlsError> {
    let unusable = |path: &std::path::Path, cause: String| TlsError::File {
        file: path.display().to_string(),
        cause,
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(|all| all.collect())
        .map_err(|e| unusable(&files.certificate, e.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|e| unusable(&files.key, e.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until told to stop, then lets open requests finish. Without TLS it is a metadata service.
pub(crate) async fn serve<A: Answers>(
    app: Arc<A>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(peer) => {
                    let (app, tls, stop) = (Arc::clone(&app), tls.clone(), stop.clone());
                    connections.spawn(connection(app, peer, tls, stop));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: others must get the chance to close some.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    let drained = tokio::time::timeout(DRAIN, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::info!(
            left = connections.len(),
            "closing connections that did not finish in time"
        );
    }
}

// The guard that `wait_for` gives back may not live across an await.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await.is_ok();
}

async fn connection<A: Answers>(
    app: Arc<A>,
    (stream, address): (TcpStream, SocketAddr),
    tls: Option<TlsAcceptor>,
    stop: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps Nagle's delay");
    }
    let Some(tls) = tls else {
        return requests(app, stream, address, stop).await;
    };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => requests(app, stream, address, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

async fn requests<A: Answers>(
    app: Arc<A>,
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    address: SocketAddr,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(answer(&*app, request, address).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer<A: Answers>(
    app: &A,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Response<Full<Bytes>> {
    let (mut parts, body) = request.into_parts();
    // HTTP/2 says in its target which host is meant; a vault is known by its host.
    if let Some(host) = parts.uri.authority()
        && let Ok(host) = http::HeaderValue::from_str(host.as_str())
    {
        parts.headers.insert(http::header::HOST, host);
    }
    let body = match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return response(Reply::empty(413)),
    };
    let target = parts.uri.path_and_query().map_or("/", |t| t.as_str());
    let asked = Asked::new(parts.method, target, parts.headers, body);
    response(app.answer(asked, peer).await)
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let (content_type, bytes) = match reply.body {
        Body::Nothing => (None, Bytes::new()),
        Body::Json(value) => (
            Some("application/json; charset=utf-8"),
            Bytes::from(value.to_string()),
        ),
        Body::Text(kind, text) => (Some(kind), Bytes::from(text)),
    };
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    if let Some(kind) = content_type {
        let kind = http::HeaderValue::from_static(kind);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, kind);
    }
    response
}
