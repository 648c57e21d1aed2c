//! Requests of probes and hooks: plain HTTP/1.1, without verification over TLS, as upstream makes them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use wire::https;
use wire::proxy::authority;

mod tls;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) code: u16,
}

/// How much of a body is read.
const BODY: usize = 10 * 1024;

/// A port by number or by its name in the container.
pub(crate) fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let ports = container.ports.as_deref().unwrap_or_default();
            let named = ports.iter().find(|p| p.name.as_deref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => name
                    .parse()
                    .map_err(|_| format!("couldn't find port: {name}"))?,
            }
        }
    };
    u16::try_from(number).map_err(|_| format!("invalid port number: {number}"))
}

/// Makes the request; `agent` is who we say we are.
pub(crate) async fn get(
    action: &HTTPGetAction,
    container: &Container,
    pod_ip: &str,
    agent: &str,
    limit: Option<Duration>,
) -> Result<Answer, String> {
    let host = action
        .host
        .as_deref()
        .filter(|h| !h.is_empty())
        .unwrap_or(pod_ip);
    let port = port(&action.port, container)?;
    let path = action.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let mut headers = BTreeMap::from([
        ("user-agent".to_owned(), agent.to_owned()),
        ("accept".to_owned(), "*/*".to_owned()),
        ("host".to_owned(), authority(host, port)),
    ]);
    for header in action.http_headers.as_deref().unwrap_or_default() {
        headers.insert(header.name.to_lowercase(), header.value.clone());
    }
    headers.retain(|name, value| name != "accept" || !value.is_empty());
    let tls = action.scheme.as_deref() == Some("HTTPS");
    let exchange = request(host, port, &path, headers, tls);
    match limit {
        None => exchange.await,
        Some(limit) => tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
            let scheme = if tls { "https" } else { "http" };
            Err(format!(
                "Get \"{scheme}://{}{path}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                authority(host, port)
            ))
        }),
    }
}

async fn request(
    host: &str,
    port: u16,
    path: &str,
    headers: BTreeMap<String, String>,
    tls: bool,
) -> Result<Answer, String> {
    let url = format!(
        "{}://{}{path}",
        if tls { "https" } else { "http" },
        authority(host, port)
    );
    let failed = |cause: String| format!("Get \"{url}\": {cause}");
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|e| {
        failed(format!(
            "dial tcp {}: connect: {}",
            authority(host, port),
            words(&e)
        ))
    })?;
    let mut request = http::Request::get(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|e| failed(e.to_string()))?;
    let answer = match tls {
        false => exchange(stream, request).await,
        true => {
            let stream = tls::connect(stream, host)
                .await
                .map_err(|e| failed(e.to_string()))?;
            exchange(stream, request).await
        }
    };
    answer.map_err(failed)
}

/// The kernel's word as Go prints it.
pub(crate) fn words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        std::io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        std::io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

async fn exchange<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let answer = https::exchange(stream, request).await;
    let answer = answer.map_err(|e| e.to_string())?;
    let code = answer.status().as_u16();
    // Read to its end, so that the other side is not cut off; more than this nobody waits for.
    let _ = Limited::new(answer.into_body(), BODY).collect().await;
    Ok(Answer { code })
}
