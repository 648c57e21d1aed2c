//! HTTPS, a request at a time: small documents, and one exchange on a stream of the caller's.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The most a document may have, and the most time it may take.
const MAX_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// TLS towards servers that these authorities (PEM) vouch for; the host's own without any.
pub fn tls(authorities: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|e| e.to_string())?;
                roots.add(certificate).map_err(|e| e.to_string())?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A handshake with whoever must be `host`; brackets of an address may stand around it.
pub async fn secure(
    stream: TcpStream,
    host: &str,
    tls: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let bare = bare(host).to_owned();
    let name = ServerName::try_from(bare)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no name for a certificate"))?;
    TlsConnector::from(tls).connect(name, stream).await
}

/// A host without the brackets of an address.
pub fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// One request without a body over HTTP/1.1, to the head of its answer. The connection ends with the answer.
pub async fn exchange<S>(
    stream: S,
    request: Request<Empty<Bytes>>,
) -> hyper::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends when the answer has been read or dropped, as nobody has its sender then.
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// Gets a document; says why when it cannot.
pub async fn get(address: &str, tls: &Arc<ClientConfig>) -> Result<Bytes, String> {
    match tokio::time::timeout(PATIENCE, fetch(address, tls)).await {
        Ok(outcome) => outcome.map_err(|cause| format!("cannot get {address}: {cause}")),
        Err(_) => Err(format!("cannot get {address}: no answer in {PATIENCE:?}")),
    }
}

async fn fetch(address: &str, tls: &Arc<ClientConfig>) -> Result<Bytes, String> {
    let uri: Uri = address
        .parse()
        .map_err(|e| format!("not an address: {e}"))?;
    let host = uri.host().ok_or("the address has no host")?.to_owned();
    if uri.scheme_str() != Some("https") {
        return Err("the address is not https".into());
    }
    let port = uri.port_u16().unwrap_or(443);
    let stream = TcpStream::connect((bare(&host), port)).await;
    let stream = stream.map_err(|e| e.to_string())?;
    let stream = secure(stream, &host, Arc::clone(tls)).await;
    let stream = stream.map_err(|e| e.to_string())?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let authority = uri.authority().map_or(host.as_str(), |a| a.as_str());
    let request = Request::get(path)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let response = exchange(stream, request).await;
    let response = response.map_err(|e| e.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("the server answers {}", response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_BYTES);
    let body = body.collect().await.map_err(|e| e.to_string())?;
    Ok(body.to_bytes())
}
