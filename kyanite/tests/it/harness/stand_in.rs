//! A server that plays a kubelet or a pod: it tells what it was asked, and echoes streams.

use std::net::TcpListener;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::Pki;

/// What a log has.
pub(crate) const LOG: &str = "first line\nsecond line\n";
/// What a page has.
pub(crate) const PAGE: &str = "<a href=\"/other\">x</a>";

/// A server that serves until it is dropped.
pub(crate) struct StandIn {
    pub(crate) port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl StandIn {
    /// Plays a kubelet with a certificate of `pki`, for clients of this CA (PEM).
    pub(crate) fn kubelet(listener: TcpListener, pki: &Pki, own: &str, clients: &[u8]) -> StandIn {
        let tls = TlsAcceptor::from(Arc::new(tls(pki, own, clients)));
        StandIn::serve(listener, Some(tls))
    }

    /// Plays a pod.
    pub(crate) fn pod(listener: TcpListener) -> StandIn {
        StandIn::serve(listener, None)
    }

    // On the runtime that asks for it.
    fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) -> StandIn {
        let port = listener.local_addr().expect("it is bound").port();
        listener.set_nonblocking(true).expect("a socket of ours");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => answer(stream).await,
                            Err(error) => Err(error),
                        },
                        None => answer(stream).await,
                    }
                });
            }
        });
        StandIn { port, task }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn tls(pki: &Pki, own: &str, clients: &[u8]) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(clients).expect("a certificate");
    roots.add(authority).expect("a CA");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
    let file = |ending: &str| pki.path(&format!("{own}.{ending}"));
    let chain = CertificateDer::pem_file_iter(file("crt")).expect("the file is there");
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(file("key")).expect("a private key");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("aws-lc knows TLS 1.2 and 1.3")
        .with_client_cert_verifier(verifier.build().expect("a CA"))
        .with_single_cert(chain, key)
        .expect("the key fits the certificate")
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = target.split('?').next().unwrap_or_default();
    if let Some(protocol) = header(&head, "upgrade") {
        let agreed = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nX-Target: {target}\r\n\r\n"
        );
        stream.write_all(agreed.as_bytes()).await?;
        return echo(stream).await;
    }
    let length = header(&head, "content-length").and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    let told = json!({"head": head, "body": String::from_utf8_lossy(&body)}).to_string();
    let (code, more, body) = match path {
        "/page" => (
            "200 OK",
            "Content-Type: text/html; charset=utf-8",
            PAGE.to_owned(),
        ),
        "/moved" => ("302 Found", "Location: /elsewhere?a=1", String::new()),
        path if path.starts_with("/containerLogs/") => {
            ("200 OK", "Content-Type: text/plain", LOG.to_owned())
        }
        _ => (
            "200 OK",
            "Access-Control-Allow-Origin: *\r\nContent-Type: application/json",
            told,
        ),
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {code}\r\n{more}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

async fn echo(stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    tokio::io::copy(&mut from, &mut to).await?;
    to.write_all(b"that was all").await?;
    to.shutdown().await
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
}
