#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, CONNECTION, UPGRADE};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::cri::ContainerState;
use crate::pods::ContainerRef;

/// Knows two tokens; one may do everything.
struct Fake;

#[async_trait]
impl Reviews for Fake {
    async fn token(&self, token: &str) -> Result<Option<access::User>, String> {
        let known = ["admin", "reader"].contains(&token);
        Ok(known.then(|| access::User {
            name: token.into(),
            ..access::User::default()
        }))
    }

    async fn access(&self, access: &Access) -> Result<bool, String> {
        Ok(access.user == "admin" || access.user == "jane" || access.subresource == "metrics")
    }
}

/// A runtime whose streams are echoed in capital letters.
struct Echo {
    streams: SocketAddr,
}

impl Runtime for Echo {
    fn exec(&self, request: cri::ExecRequest) -> cri::Answer<'_, cri::ExecResponse> {
        let url = format!("http://{}/exec/{}", self.streams, request.cmd.join("-"));
        Box::pin(async move { Ok(cri::ExecResponse { url }) })
    }

    fn exec_sync(&self, request: cri::ExecSyncRequest) -> cri::Answer<'_, cri::ExecSyncResponse> {
        Box::pin(async move {
            Ok(cri::ExecSyncResponse {
                stdout: format!("{:?}", request.cmd).into(),
                ..cri::ExecSyncResponse::default()
            })
        })
    }
}

async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                assert!(head.starts_with("POST /exec/echo-hi HTTP/1.1"), "{head}");
                let agreed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";
                stream.write_all(agreed.as_bytes()).await.unwrap();
                let mut buffer = [0; 100];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    buffer[..count].make_ascii_uppercase();
                    stream.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    address
}

struct Bench {
    address: SocketAddr,
    server: Arc<Server>,
    dir: tempfile::TempDir,
    authority: rcgen::Issuer<'static, rcgen::KeyPair>,
    _stop: watch::Sender<bool>,
}

impl Bench {
    async fn new(debugging: bool) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap();
        let client_ca = dir.path().join("ca.pem");
        std::fs::write(&client_ca, ca.pem()).unwrap();
        std::fs::write(
            dir.path().join("0.log"),
            "2026-11-18T00:00:00Z stdout F hello\n",
        )
        .unwrap();
        std::fs::write(dir.path().join("syslog"), "booted\n").unwrap();
        let settings = Settings {
            node: "node".into(),
            root: dir.path().into(),
            system_logs: dir.path().into(),
            client_ca: Some(client_ca),
            rules: Rules {
                tokens: true,
                ..Rules::default()
            },
            debugging,
        };
        let certificate = Arc::new(Certificate::default());
        let (pem, own_key) = self_signed(&["localhost".to_owned()]).unwrap();
        certificate.set(pem.as_bytes(), own_key.as_bytes()).unwrap();
        let pods = Arc::new(Pods::default());
        pods.put("uid", known(&dir.path().join("0.log")));
        let sources = Sources {
            pods,
            runtime: Arc::new(Echo {
                streams: echo().await,
            }),
            reports: Arc::new(Silent),
            reviews: Arc::new(Fake),
            certificate,
        };
        let server = Server::new(settings, sources);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Arc::clone(&server).serve(listener, stopped));
        Bench {
            address,
            server,
            dir,
            authority: rcgen::Issuer::new(params, key),
            _stop: stop,
        }
    }

    async fn connect(
        &self,
        own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
        let config = match own {
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .unwrap()
    }

    async fn send(
        &self,
        stream: TlsStream<TcpStream>,
        request: Request<Empty<Bytes>>,
    ) -> http::Response<Incoming> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    async fn ask(&self, method: &str, path: &str, token: &str) -> (u16, String) {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "x");
        if !token.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let stream = self.connect(None).await;
        let response = self.send(stream, request.body(Empty::new()).unwrap()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    fn client(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        (certificate.der().clone(), key)
    }
}

#[derive(Debug)]
struct AnyServer(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn known(log: &std::path::Path) -> KnownPod {
    let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "uid"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": "containerd://id", "state": {"running": {}}}]}});
    let container = ContainerRef {
        id: "id".into(),
        state: ContainerState::Running,
        attempt: 0,
        log_path: log.into(),
        created_at: 0,
    };
    KnownPod {
        pod: Arc::new(serde_json::from_value(pod).unwrap()),
        sandbox_id: Some("sandbox".into()),
        containers: [("c".to_owned(), vec![container])].into(),
    }
}

#[tokio::test]
async fn requests_are_answered_to_those_who_may_ask() {
    let bench = Bench::new(true).await;
    for (method, path, token, code, part) in [
        ("GET", "/healthz", "", 401, "Unauthorized"),
        ("GET", "/healthz", "admin", 200, "ok"),
        ("GET", "/healthz/ping", "admin", 200, "ok"),
        ("GET", "/healthz/nothing", "admin", 404, "404"),
        (
            "GET",
            "/pods",
            "reader",
            403,
            "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[pods proxy])",
        ),
        ("GET", "/pods", "admin", 200, "\"kind\":\"PodList\""),
        ("GET", "/runningpods/", "admin", 200, "\"name\":\"p\""),
        ("GET", "/metrics", "reader", 200, "kubelet_running_pods 1\n"),
        (
            "GET",
            "/metrics/resource",
            "reader",
            200,
            "node_memory_working_set_bytes ",
        ),
        (
            "GET",
            "/metrics/cadvisor",
            "reader",
            200,
            "machine_cpu_cores ",
        ),
        ("GET", "/metrics/probes", "reader", 200, ""),
        (
            "GET",
            "/stats/summary",
            "admin",
            200,
            "\"nodeName\":\"node\"",
        ),
        ("GET", "/configz", "admin", 200, "{\"kubeletconfig\":{}}"),
        ("GET", "/logs/syslog", "admin", 200, "booted"),
        ("GET", "/logs/", "admin", 200, "<a href=\"syslog\">"),
        ("GET", "/containerLogs/n/p/c", "admin", 200, "hello\n"),
        (
            "GET",
            "/containerLogs/n/p/c?limitBytes=1",
            "admin",
            200,
            "h",
        ),
        (
            "GET",
            "/containerLogs/n/p/c?limitBytes=0",
            "admin",
            422,
            "Invalid request.",
        ),
        (
            "GET",
            "/containerLogs/n/p/c?tailLines=x",
            "admin",
            400,
            "Unable to decode query.",
        ),
        (
            "GET",
            "/containerLogs/n/p/x",
            "admin",
            404,
            "container \"x\" not found in pod \"p\"",
        ),
        (
            "GET",
            "/containerLogs/n/x/c",
            "admin",
            404,
            "pod \"x\" does not exist",
        ),
        (
            "GET",
            "/containerLogs/n/p/c?previous=true",
            "admin",
            400,
            "previous terminated container \"c\" in pod \"p\" not found",
        ),
        ("POST", "/run/n/p/c?cmd=a+b", "admin", 200, "[\"a\", \"b\"]"),
        (
            "POST",
            "/exec/n/p/c?command=x",
            "admin",
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        (
            "POST",
            "/exec/n/p/x?command=x&output=1",
            "admin",
            500,
            "container not found (\"x\")",
        ),
        (
            "POST",
            "/exec/n/x/c?command=x&output=1",
            "admin",
            404,
            "pod does not exist",
        ),
        ("POST", "/checkpoint/n/p/c", "admin", 404, ""),
        ("GET", "/nothing", "admin", 404, "404"),
        ("PUT", "/pods", "admin", 405, ""),
    ] {
        let (found, body) = bench.ask(method, path, token).await;
        assert_eq!(found, code, "{method} {path} {token}: {body}");
        assert!(body.contains(part), "{method} {path}: {body}");
    }
}

#[tokio::test]
async fn client_certificates_of_the_cluster_are_believed_and_others_are_not() {
    let bench = Bench::new(true).await;
    let ask = async |own| {
        let request = Request::builder().uri("/pods").header("host", "x");
        let stream = bench.connect(Some(own)).await;
        bench
            .send(stream, request.body(Empty::new()).unwrap())
            .await
            .status()
    };
    // The CAs are read when the server begins.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while ask(bench.client("jane")).await != StatusCode::OK {
        assert!(
            tokio::time::Instant::now() < deadline,
            "jane is not believed"
        );
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(bench.client("joe")).await, StatusCode::FORBIDDEN);
    let stranger = Bench::new(true).await;
    assert_eq!(ask(stranger.client("jane")).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn streams_are_passed_through_as_they_come() {
    let bench = Bench::new(true).await;
    let request = Request::builder()
        .method("POST")
        .uri("/exec/n/p/c?command=echo&command=hi&input=1&output=1")
        .header("host", "x")
        .header(AUTHORIZATION, "Bearer admin")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io");
    let stream = bench.connect(None).await;
    let response = bench
        .send(stream, request.body(Empty::new()).unwrap())
        .await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(
        response.headers()["x-stream-protocol-version"],
        "v4.channel.k8s.io"
    );
    let mut both = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    both.write_all(b"shout").await.unwrap();
    let mut heard = [0; 5];
    both.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"SHOUT");
}

#[tokio::test]
async fn containers_stay_closed_where_debugging_is_off() {
    let bench = Bench::new(false).await;
    for path in [
        "/containerLogs/n/p/c",
        "/exec/n/p/c?output=1",
        "/runningpods/",
        "/logs/",
    ] {
        let (code, body) = bench.ask("GET", path, "admin").await;
        assert_eq!(
            (code, body.as_str()),
            (405, "Debug endpoints are disabled.\n"),
            "{path}"
        );
    }
    assert_eq!(bench.ask("GET", "/pods", "admin").await.0, 200);
}

#[tokio::test]
async fn health_is_told_on_a_plain_port() {
    let bench = Bench::new(true).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(Arc::clone(&bench.server).serve_health(listener, stopped));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    assert!(
        heard.starts_with("HTTP/1.1 200 OK") && heard.ends_with("ok"),
        "{heard}"
    );
    assert!(bench.dir.path().exists());
}
