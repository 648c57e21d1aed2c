//! What a program tells about itself over plain HTTP: health, metrics, and the like. GET requests by path, no more.

pub mod process;
pub mod secure;
pub mod zpages;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// An answer's status and JSON.
pub type Answer = (StatusCode, Value);

/// The type of metrics as Prometheus reads them.
pub const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// Answers a path.
pub type Handler = Arc<dyn Fn(&str) -> Response<Full<Bytes>> + Send + Sync>;

/// Serves GET requests by path, until the handle is aborted.
pub fn serve(listener: TcpListener, handler: Handler) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let handler = Arc::clone(&handler);
            let answer = service_fn(move |request: http::Request<Incoming>| {
                let response = handler(request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(hyper_util::rt::TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), answer);
            connections.spawn(async move {
                // A client that goes away is none of our business.
                let _ = connection.await;
            });
        }
    })
}

/// A JSON answer as upstream's proxy gives it.
pub fn json_response((code, body): Answer) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .header("x-content-type-options", "nosniff");
    response
        .body(Full::from(body.to_string()))
        .expect("these headers are valid")
}

/// A plain answer.
pub fn text_response(code: StatusCode, kind: &str, body: String) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(code)
        .header("content-type", kind);
    response.body(Full::from(body)).unwrap_or_default()
}
