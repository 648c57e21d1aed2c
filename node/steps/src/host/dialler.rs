//! Names, TCP and HTTP for the real host. Each call has its own small runtime: steps are plain threads.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::{Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wire::https;
use wire::proxy::{ConnectError, Proxy};

use super::network::{Body, NetworkError, Request, Response, Trust, without_query};
use crate::engine::Stop;

/// Who we say we are.
const AGENT: &str = "aks-node-controller";
/// How many redirects are followed.
const REDIRECTS: usize = 5;

type Result<T> = std::result::Result<T, NetworkError>;

/// The addresses of a name.
pub(super) fn resolve(name: &str, timeout: Duration) -> Result<Vec<IpAddr>> {
    let addresses = within(name, timeout, lookup(name, 0))?;
    Ok(addresses.iter().map(SocketAddr::ip).collect())
}

/// Opens a connection and closes it.
pub(super) fn connect(name: &str, port: u16, timeout: Duration) -> Result<()> {
    within(name, timeout, dial(name, port)).map(drop)
}

/// How often a request that waits looks at the brake.
const LOOK: Duration = Duration::from_millis(50);

/// One request, with its redirects. It is waiting, and so it ends when the run does: nobody would read its answer.
pub(super) fn http(request: &Request, body: &mut dyn Body, stop: &Stop) -> Result<Response> {
    let server = without_query(&request.url);
    within(server, request.timeout, async {
        tokio::select! {
            answer = follow(request, body) => answer,
            () = pulled(stop) => Err(protocol(server, "the run has ended meanwhile")),
        }
    })
}

async fn follow(request: &Request, body: &mut dyn Body) -> Result<Response> {
    let mut url = request.url.clone();
    for _ in 0..=REDIRECTS {
        let answer = exchange(request, &url).await?;
        match redirect(&answer, &url) {
            Some(next) => url = next,
            None => return receive(answer, &url, body).await,
        }
    }
    Err(protocol(without_query(&request.url), "too many redirects"))
}

async fn pulled(stop: &Stop) {
    while stop.reason().is_none() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs to the end or the limit. What still waits in the system's resolver is left behind, not waited for.
fn within<T>(server: &str, limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| protocol(server, &e.to_string()))?;
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, work).await });
    runtime.shutdown_background();
    outcome.unwrap_or_else(|_| {
        Err(NetworkError::TimedOut {
            server: server.to_owned(),
            limit,
        })
    })
}

async fn lookup(name: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let bare = https::bare(name);
    match tokio::net::lookup_host((bare, port)).await {
        Ok(addresses) => Ok(addresses.collect()),
        Err(e) => Err(unresolved(bare, &e)),
    }
}

/// getaddrinfo's answer comes as text only.
fn unresolved(name: &str, error: &io::Error) -> NetworkError {
    let text = error.to_string();
    let name = name.to_owned();
    let cause = text
        .rsplit_once(": ")
        .map_or(text.clone(), |(_, c)| c.to_owned());
    match text.contains("not known") || text.contains("No address associated") {
        true => NetworkError::UnknownName { name },
        false => NetworkError::NoResolver { name, cause },
    }
}

/// Tries each address in turn.
async fn dial(name: &str, port: u16) -> Result<TcpStream> {
    let mut cause = "it has no address".to_owned();
    for address in lookup(name, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(e) => cause = format!("{address}: {e}"),
        }
    }
    Err(NetworkError::Unreachable {
        server: format!("{name}:{port}"),
        cause,
    })
}

fn protocol(server: &str, cause: &str) -> NetworkError {
    NetworkError::Protocol {
        server: server.to_owned(),
        cause: cause.to_owned(),
    }
}

/// Sends one request and waits for the head of its answer.
async fn exchange(request: &Request, url: &str) -> Result<http::Response<Incoming>> {
    let shown = without_query(url);
    let uri: Uri = url.parse().map_err(|_| protocol(shown, "is not a URL"))?;
    let host = uri.host().ok_or_else(|| protocol(shown, "names no host"))?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(protocol(shown, "is neither http nor https")),
    };
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let stream = match &request.proxy {
        Some(proxy) => tunnel(proxy, host, port).await?,
        None => dial(host, port).await?,
    };
    if tls {
        let stream = secure(stream, host, &request.trust).await?;
        send(stream, request, &uri).await
    } else {
        send(stream, request, &uri).await
    }
}

/// A way through an HTTP proxy by CONNECT, for both schemes.
async fn tunnel(url: &str, host: &str, port: u16) -> Result<TcpStream> {
    let proxy = Proxy::parse(url, 80).ok_or_else(|| {
        protocol(
            "the proxy of the configuration",
            "is not the URL of a proxy",
        )
    })?;
    let mut stream = dial(&proxy.host, proxy.port).await?;
    let target = format!("{host}:{port}");
    let led = proxy.connect(&mut stream, &target, AGENT).await;
    led.map_err(|error| match error {
        ConnectError::Broken(error) => protocol(&proxy.to_string(), &error.to_string()),
        ConnectError::Refused(line) => protocol(
            &proxy.to_string(),
            &format!("refuses CONNECT to {target}: {line}"),
        ),
    })?;
    Ok(stream)
}

async fn secure(stream: TcpStream, host: &str, trust: &Trust) -> Result<TlsStream<TcpStream>> {
    let tls = match trust {
        Trust::System => https::tls(None),
        Trust::Only(pem) => https::tls(Some(pem)),
    };
    let tls = tls.map_err(|cause| NetworkError::Certificate {
        server: host.to_owned(),
        cause: format!("the CA of the configuration is no PEM: {cause}"),
    })?;
    let secured = https::secure(stream, host, tls).await;
    secured.map_err(|e| untrusted(host, &e))
}

/// A failed handshake: a certificate of the wrong time is another matter than one of the wrong CA.
fn untrusted(host: &str, error: &io::Error) -> NetworkError {
    use rustls::CertificateError as Bad;
    let server = host.to_owned();
    let inner = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(bad)) => {
            let cause = bad.to_string();
            match bad {
                Bad::Expired
                | Bad::ExpiredContext { .. }
                | Bad::NotValidYet
                | Bad::NotValidYetContext { .. } => NetworkError::CertificateTime { server, cause },
                _ => NetworkError::Certificate { server, cause },
            }
        }
        _ => protocol(host, &format!("TLS handshake failed: {error}")),
    }
}

async fn send<S>(stream: S, request: &Request, uri: &Uri) -> Result<http::Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let server = without_query(&uri.to_string()).to_owned();
    let broken = |e: &dyn std::fmt::Display| protocol(&server, &e.to_string());
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let host = uri.authority().map_or("", |a| a.as_str());
    let mut builder = http::Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, AGENT);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let message = builder
        .body(Empty::<Bytes>::new())
        .map_err(|e| broken(&e))?;
    let answer = https::exchange(stream, message).await;
    answer.map_err(|e| broken(&e))
}

/// Where a redirect leads: absolute, or a path on the same server.
fn redirect(answer: &http::Response<Incoming>, url: &str) -> Option<String> {
    if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let target = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    if target.contains("://") {
        return Some(target.to_owned());
    }
    let uri: Uri = url.parse().ok()?;
    let slash = if target.starts_with('/') { "" } else { "/" };
    Some(format!(
        "{}://{}{slash}{target}",
        uri.scheme_str()?,
        uri.authority()?
    ))
}

async fn receive(
    answer: http::Response<Incoming>,
    url: &str,
    sink: &mut dyn Body,
) -> Result<Response> {
    let url = without_query(url);
    let status = answer.status().as_u16();
    let length = answer.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let wanted = sink.begin(status, length);
    if !wanted.map_err(|e| protocol(url, &format!("its answer cannot be kept: {e}")))? {
        return Ok(Response { status });
    }
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| protocol(url, &format!("the answer broke off: {e}")))?;
        if let Some(data) = frame.data_ref() {
            sink.write_all(data)
                .map_err(|e| protocol(url, &format!("its answer cannot be kept: {e}")))?;
        }
    }
    Ok(Response { status })
}
