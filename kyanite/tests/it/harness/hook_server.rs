//! A small HTTPS server that answers JSON with JSON, for whoever calls out.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use rustls::ServerConfig;
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What the server says to a body that came to a path.
type Respond = fn(&str, &Value) -> Value;

/// A server that serves until it is dropped; paths that begin with `/hang` never get an answer.
pub(crate) struct HookServer {
    pub(crate) url: String,
    /// Its own certificate as a caBundle.
    pub(crate) authority: String,
    pub(crate) seen: Arc<Seen>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    pub(crate) bodies: Mutex<Vec<Value>>,
    /// Request lines and headers, in lower case.
    pub(crate) heads: Mutex<Vec<String>>,
}

impl HookServer {
    pub(crate) fn start(respond: Respond) -> HookServer {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![
            "localhost".to_owned(),
            "backend.default.svc".to_owned(),
        ])
        .unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        runtime.spawn(serve(listener, acceptor, Arc::clone(&seen), respond));
        HookServer {
            url: format!("https://localhost:{port}"),
            authority: base64::engine::general_purpose::STANDARD.encode(certificate.pem()),
            seen,
            _runtime: runtime,
        }
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<Seen>, respond: Respond) {
    while let Ok((stream, _)) = listener.accept().await {
        seen.connections.fetch_add(1, Ordering::SeqCst);
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            // A client that breaks off is its own business.
            let _ = converse(stream, &acceptor, &seen, respond).await;
        });
    }
}

async fn converse(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    seen: &Seen,
    respond: Respond,
) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap_or("0\r\n");
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        seen.heads.lock().unwrap().push(head.clone());
        let path = head.split(' ').nth(1).unwrap().to_owned();
        if path.starts_with("/hang") {
            std::future::pending::<()>().await;
        }
        let answer = respond(&path, &asked).to_string();
        seen.bodies.lock().unwrap().push(asked);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(answer.as_bytes()).await?;
    }
}
