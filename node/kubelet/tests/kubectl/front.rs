//! As much of an API server as kubectl needs to come to one pod's streams: it serves the pod and passes the rest on to
//! the kubelet under the kubelet's paths.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// What kubectl asks before anything else.
const DISCOVERY: [(&str, &str); 3] = [
    ("/api", r#"{"kind": "APIVersions", "versions": ["v1"]}"#),
    (
        "/apis",
        r#"{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}"#,
    ),
    (
        "/api/v1",
        r#"{"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "verbs": ["get"]},
            {"name": "pods/exec", "singularName": "", "namespaced": true, "kind": "PodExecOptions", "verbs": ["create", "get"]}]}"#,
    ),
];

type Body = BoxBody<Bytes, hyper::Error>;

pub(crate) struct Front {
    pub(crate) kubelet: SocketAddr,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pod: String,
}

impl Front {
    /// Listens; it ends with the test.
    pub(crate) async fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let front = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let front = Arc::clone(&front);
                let service = service_fn(move |request| {
                    let front = Arc::clone(&front);
                    async move { Ok::<_, hyper::Error>(front.answer(request).await) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                tokio::spawn(connection);
            }
        });
        address
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let path = request.uri().path().to_owned();
        if let Some((_, known)) = DISCOVERY.iter().find(|(known, _)| *known == path) {
            return json((*known).to_owned());
        }
        match path.strip_prefix("/api/v1/namespaces/default/pods/p") {
            Some("") => json(self.pod.clone()),
            Some("/exec") => {
                self.pass("/exec/default/p/c", &renamed(&query), request)
                    .await
            }
            Some("/attach") => {
                self.pass("/attach/default/p/c", &renamed(&query), request)
                    .await
            }
            Some("/portforward") => self.pass("/portForward/default/p", &query, request).await,
            Some("/log") => {
                self.pass("/containerLogs/default/p/c", &query, request)
                    .await
            }
            _ => {
                let mut response = json("{}".into());
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        }
    }

    async fn pass(
        &self,
        path: &str,
        query: &str,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let mut headers: HeaderMap = request.headers().clone();
        headers.insert("authorization", "Bearer api-server".parse().unwrap());
        let mut inner = Request::new(Empty::<Bytes>::new());
        *inner.method_mut() = request.method().clone();
        *inner.uri_mut() = format!("{path}?{query}").parse::<Uri>().unwrap();
        *inner.headers_mut() = headers;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.dial().await))
                .await
                .unwrap();
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(inner).await.unwrap();
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return response.map(|body| body.boxed());
        }
        let mut agreed = Response::new(Empty::new().map_err(|never| match never {}).boxed());
        *agreed.status_mut() = response.status();
        *agreed.headers_mut() = response.headers().clone();
        tokio::spawn(async move {
            let client = hyper::upgrade::on(&mut request).await.unwrap();
            let kubelet = hyper::upgrade::on(response).await.unwrap();
            let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut kubelet).await;
        });
        agreed
    }

    async fn dial(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.kubelet).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap()
    }
}

// The kubelet's names for the streams.
fn renamed(query: &str) -> String {
    let pairs = query.split('&').map(|pair| match pair {
        "stdin=true" => "input=1",
        "stdout=true" => "output=1",
        "stderr=true" => "error=1",
        "tty=true" => "tty=1",
        other => other,
    });
    pairs.collect::<Vec<_>>().join("&")
}

fn json(text: String) -> Response<Body> {
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed());
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}
