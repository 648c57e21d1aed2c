//! An OpenID Connect issuer: discovery and keys over https, and nothing else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::Pki;

/// An issuer that serves until it is dropped.
pub(crate) struct OidcIssuer {
    /// Its address, as in `iss`.
    pub(crate) url: String,
    shown: Arc<Shown>,
    task: tokio::task::JoinHandle<()>,
}

struct Shown {
    metadata: Value,
    keys: Mutex<Vec<Value>>,
    fetches: AtomicUsize,
}

impl OidcIssuer {
    /// Starts an issuer with the server certificate of `pki`.
    pub(crate) async fn start(pki: &Pki) -> OidcIssuer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let url = format!("https://localhost:{port}");
        let shown = Arc::new(Shown {
            metadata: json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
            keys: Mutex::default(),
            fetches: AtomicUsize::new(0),
        });
        let task = tokio::spawn(serve(listener, acceptor(pki), Arc::clone(&shown)));
        OidcIssuer { url, shown, task }
    }

    /// Shows these keys from now on.
    pub(crate) fn show_keys(&self, keys: &[Value]) {
        *self.shown.keys.lock().expect("no panic under the lock") = keys.to_vec();
    }

    /// How often the keys were fetched.
    pub(crate) fn fetches(&self) -> usize {
        self.shown.fetches.load(Ordering::SeqCst)
    }
}

impl Drop for OidcIssuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(pki: &Pki) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(pki.path("server.crt"))
        .expect("the file is there")
        .collect::<Result<Vec<_>, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_file(pki.path("server.key")).expect("a private key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("aws-lc knows TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key fits the certificate");
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shown: Arc<Shown>) {
    while let Ok((stream, _)) = listener.accept().await {
        // One after the other; a client that breaks off is its own business.
        let _ = answer(stream, &acceptor, &shown).await;
    }
}

async fn answer(stream: TcpStream, acceptor: &TlsAcceptor, shown: &Shown) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let body = match path {
        "/.well-known/openid-configuration" => shown.metadata.clone(),
        "/keys" => {
            shown.fetches.fetch_add(1, Ordering::SeqCst);
            let keys = shown.keys.lock().expect("no panic under the lock");
            json!({"keys": *keys})
        }
        _ => Value::Null,
    };
    let code = if body.is_null() {
        "404 Not Found"
    } else {
        "200 OK"
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
