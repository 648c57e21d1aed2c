//! Small documents from https servers: an issuer's metadata and keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The most a document may have, and the most time it may take.
const MAX_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// TLS towards servers that these authorities (PEM) vouch for; the host's own without any.
pub(crate) fn tls(authorities: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
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

/// Gets a document; says why when it cannot.
pub(crate) async fn get(address: &str, tls: &Arc<ClientConfig>) -> Result<Bytes, String> {
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
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await;
    let stream = stream.map_err(|e| e.to_string())?;
    let name = ServerName::try_from(bare.to_owned()).map_err(|e| e.to_string())?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, stream)
        .await;
    let stream = TokioIo::new(stream.map_err(|e| e.to_string())?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(|e| e.to_string())?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let authority = uri.authority().map_or(host.as_str(), |a| a.as_str());
    let request = Request::get(path)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let answer = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|e| e.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("the server answers {}", response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES)
            .collect()
            .await;
        Ok(body.map_err(|e| e.to_string())?.to_bytes())
    };
    let mut answer = std::pin::pin!(answer);
    // The connection is driven beside the answer. A server that closes it after answering has answered.
    tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}
