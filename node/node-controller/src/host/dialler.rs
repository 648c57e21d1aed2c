//! Names, TCP and HTTP for the real host. Each call has its own small runtime: steps are plain threads.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::network::{NetworkError, Request, Response, Trust, without_query};
use crate::engine::Stop;

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

/// One request, with its redirects; looks at the brake between the pieces of the body.
pub(super) fn http(request: &Request, body: &mut dyn io::Write, stop: &Stop) -> Result<Response> {
    within(without_query(&request.url), request.timeout, async {
        let mut url = request.url.clone();
        for _ in 0..=REDIRECTS {
            let answer = exchange(request, &url).await?;
            match redirect(&answer, &url) {
                Some(next) => url = next,
                None => return receive(answer, &url, body, stop).await,
            }
        }
        Err(protocol(without_query(&request.url), "too many redirects"))
    })
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
    let bare = name.trim_start_matches('[').trim_end_matches(']');
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
async fn tunnel(proxy: &str, host: &str, port: u16) -> Result<TcpStream> {
    let uri: Uri = proxy
        .parse()
        .map_err(|_| protocol(proxy, "is not the URL of a proxy"))?;
    let proxy_host = uri
        .host()
        .ok_or_else(|| protocol(proxy, "names no proxy host"))?;
    let mut stream = dial(proxy_host, uri.port_u16().unwrap_or(80)).await?;
    let broken = |e: io::Error| protocol(proxy, &e.to_string());
    let ask = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    stream.write_all(ask.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 8192 {
            return Err(protocol(proxy, "answers CONNECT with an endless head"));
        }
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(stream),
        _ => Err(protocol(
            proxy,
            &format!("refuses CONNECT to {host}:{port}: {line}"),
        )),
    }
}

async fn secure(
    stream: TcpStream,
    host: &str,
    trust: &Trust,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned())
        .map_err(|_| protocol(host, "is no name for a certificate"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| protocol(host, &e.to_string()))?
        .with_root_certificates(roots(host, trust)?)
        .with_no_client_auth();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|e| untrusted(host, &e))
}

fn roots(host: &str, trust: &Trust) -> Result<rustls::RootCertStore> {
    let mut store = rustls::RootCertStore::empty();
    let certificates = match trust {
        Trust::System => rustls_native_certs::load_native_certs().certs,
        Trust::Only(pem) => CertificateDer::pem_slice_iter(pem)
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| NetworkError::Certificate {
                server: host.to_owned(),
                cause: format!("the CA of the configuration is no PEM: {e}"),
            })?,
    };
    store.add_parsable_certificates(certificates);
    Ok(store)
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
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| broken(&e))?;
    // Ends with the sender, at the latest with the runtime of this call.
    tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let host = uri.authority().map_or("", |a| a.as_str());
    let mut builder = http::Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, "aks-node-controller");
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let message = builder
        .body(Empty::<Bytes>::new())
        .map_err(|e| broken(&e))?;
    sender.send_request(message).await.map_err(|e| broken(&e))
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
    sink: &mut dyn io::Write,
    stop: &Stop,
) -> Result<Response> {
    let url = without_query(url);
    let status = answer.status().as_u16();
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| protocol(url, &format!("the answer broke off: {e}")))?;
        if stop.cancelled() {
            return Err(protocol(url, "the run was cancelled"));
        }
        if let Some(data) = frame.data_ref() {
            sink.write_all(data)
                .map_err(|e| protocol(url, &format!("its answer cannot be kept: {e}")))?;
        }
    }
    Ok(Response { status })
}
