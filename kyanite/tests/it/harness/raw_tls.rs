//! A TLS connection to the server without an HTTP client, for what no client would send.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Server;

const PATIENCE: Duration = Duration::from_secs(30);

/// A handshaken connection with the kubeconfig's client certificate.
pub(crate) struct RawConnection {
    stream: TlsStream<TcpStream>,
}

impl RawConnection {
    pub(crate) async fn open(server: &Server) -> Self {
        let connector = TlsConnector::from(Arc::new(tls_of(server)));
        let tcp = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .expect("the server listens");
        let name = ServerName::try_from("localhost").expect("a legal name");
        let stream = connector
            .connect(name, tcp)
            .await
            .expect("the handshake succeeds");
        Self { stream }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Sends nothing more.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.expect("the server is there");
    }

    /// Sends all of it, and gives as much of what comes back.
    pub(crate) async fn echoed(self, bytes: &[u8]) -> Vec<u8> {
        let (mut reader, mut writer) = tokio::io::split(self.stream);
        let mut back = vec![0; bytes.len()];
        let send = async {
            writer.write_all(bytes).await?;
            writer.flush().await
        };
        let both = async { tokio::try_join!(send, reader.read_exact(&mut back)) };
        let ended = tokio::time::timeout(PATIENCE, both).await;
        ended
            .expect("an echo in time")
            .expect("the stream stays open");
        back
    }

    /// Reads until the text is there or the server closes; gives everything read.
    pub(crate) async fn read_until(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        let read = async {
            while !String::from_utf8_lossy(&seen).contains(text) {
                match self.stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => seen.extend_from_slice(&buffer[..count]),
                }
            }
        };
        let ended = tokio::time::timeout(PATIENCE, read).await;
        let seen = String::from_utf8_lossy(&seen).into_owned();
        assert!(
            ended.is_ok(),
            "no {text:?} within {PATIENCE:?}; read {seen:?}"
        );
        seen
    }
}

fn tls_of(server: &Server) -> ClientConfig {
    let text = std::fs::read_to_string(server.kubeconfig()).expect("the kubeconfig is there");
    let kubeconfig: Value = serde_saphyr::from_str(&text).expect("the kubeconfig is YAML");
    let authority = decoded(
        &kubeconfig,
        "/clusters/0/cluster/certificate-authority-data",
    );
    let certificate = decoded(&kubeconfig, "/users/0/user/client-certificate-data");
    let key = decoded(&kubeconfig, "/users/0/user/client-key-data");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&authority).expect("a certificate"))
        .expect("an authority");
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<Vec<_>, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(&key).expect("a private key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("aws-lc knows TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .expect("the key fits the certificate")
}

fn decoded(kubeconfig: &Value, pointer: &str) -> Vec<u8> {
    let text = kubeconfig.pointer(pointer).and_then(Value::as_str);
    let text = text.unwrap_or_else(|| panic!("the kubeconfig has no {pointer}"));
    STANDARD
        .decode(text)
        .expect("data in a kubeconfig is base64")
}
