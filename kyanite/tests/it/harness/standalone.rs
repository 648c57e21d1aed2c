//! `kyanite apiserver` with upstream's flags, with certificates the test makes itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::harness::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use rcgen::{CertificateParams, Issuer, KeyPair};
use tokio::net::TcpStream;

use super::server::{KYANITE, client_of, exchange};
use super::{Process, eventually_async, find_program, free_port, skip};

/// One etcd that can be stopped and started again on its data.
pub(crate) struct Etcd {
    program: PathBuf,
    port: u16,
    peer_port: u16,
    process: Option<Process>,
    dir: tempfile::TempDir,
}

impl Etcd {
    /// Starts etcd; says so and gives nothing when this machine has none.
    pub(crate) async fn start() -> Option<Self> {
        let Some(program) = find_program("ETCD_BIN", "etcd") else {
            skip("etcd not found on PATH or in ETCD_BIN");
            return None;
        };
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let mut etcd = Self {
            program,
            port: free_port(),
            peer_port: free_port(),
            process: None,
            dir,
        };
        etcd.start_again().await;
        Some(etcd)
    }

    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    pub(crate) async fn start_again(&mut self) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut command = Command::new(&self.program);
        command
            .args([
                "--listen-client-urls",
                &url(self.port),
                "--advertise-client-urls",
                &url(self.port),
            ])
            .args(["--listen-peer-urls", &url(self.peer_port), "--data-dir"])
            .arg(self.dir.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.process = Some(Process::spawn(&mut command));
        wait_for_port(self.port).await;
    }
}

/// An authority with one server and one administrator certificate, as files.
pub(crate) struct Pki {
    dir: tempfile::TempDir,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let pki = Self {
            dir: tempfile::tempdir().expect("a temporary directory can be made"),
        };
        let authority = Authority::new("test authority");
        pki.write("ca.crt", &authority.pem());
        for (name, groups) in [("server", &[][..]), ("admin", &["system:masters"])] {
            let identity = authority.issue(name, groups, &[]);
            identity.write(pki.dir.path(), name);
        }
        pki
    }

    /// Adds `kubelet.crt` and its key: for this address, and of the cluster whose keys are in a directory.
    pub(crate) fn add_kubelet(&self, cluster: &Path, address: &str) {
        let read = |name: &str| std::fs::read_to_string(cluster.join(name)).expect("a PEM file");
        let key = KeyPair::from_pem(&read("ca.key")).expect("the key of the CA");
        let authority = Issuer::from_ca_cert_pem(&read("ca.crt"), key).expect("a CA");
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = CertificateParams::new([address.to_owned()]).expect("an address");
        let certificate = certificate.signed_by(&key, &authority).expect("it signs");
        self.write("kubelet.crt", &certificate.pem());
        self.write("kubelet.key", &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the directory is ours");
    }

    /// A file of this authority: `ca.crt`, `server.key` and so on.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn encoded(&self, name: &str) -> String {
        STANDARD.encode(std::fs::read(self.path(name)).expect("written before"))
    }

    /// A kubeconfig for the administrator.
    fn kubeconfig(&self, port: u16) -> Kubeconfig {
        let (certificate, key) = (self.encoded("admin.crt"), self.encoded("admin.key"));
        self.kubeconfig_of(
            port,
            &format!("{{client-certificate-data: {certificate}, client-key-data: {key}}}"),
        )
    }

    /// A kubeconfig for a user, in YAML.
    fn kubeconfig_of(&self, port: u16, user: &str) -> Kubeconfig {
        let authority = self.encoded("ca.crt");
        let text = format!(
            "{{current-context: t, contexts: [{{name: t, context: {{cluster: t, user: t}}}}], \
             clusters: [{{name: t, cluster: {{server: 'https://127.0.0.1:{port}', certificate-authority-data: {authority}}}}}], \
             users: [{{name: t, user: {user}}}]}}"
        );
        Kubeconfig::from_yaml(&text).expect("a whole kubeconfig")
    }
}

/// A `kyanite apiserver` and a client for it.
pub(crate) struct Replica {
    _process: Process,
    port: u16,
    pub(crate) client: kube::Client,
}

impl Replica {
    /// Starts a server on the etcd and waits until it is ready.
    pub(crate) async fn start(etcd: &Etcd, pki: &Pki) -> Self {
        let store = format!("--etcd-servers=http://127.0.0.1:{}", etcd.port);
        Self::start_with(pki, &[store]).await
    }

    /// Starts a server with a store of its own, beside its certificates.
    pub(crate) async fn alone(pki: &Pki, flags: &[String]) -> Self {
        let store = flag("data-dir", &pki.path("data"));
        let flags: Vec<String> = flags.iter().cloned().chain([store]).collect();
        Self::start_with(pki, &flags).await
    }

    /// Starts a server with flags that name its store.
    pub(crate) async fn start_with(pki: &Pki, flags: &[String]) -> Self {
        let port = free_port();
        let process = launch(pki, port, flags);
        let client = client_of(&pki.kubeconfig(port)).await;
        eventually_async("the replica is ready", async || {
            let request = http::Request::get("/readyz")
                .body(Vec::new())
                .expect("a legal request");
            client
                .request_text(request)
                .await
                .map_err(|error| error.to_string())
        })
        .await;
        Self {
            _process: process,
            port,
            client,
        }
    }

    /// Where it is.
    pub(crate) fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// `GET path`: status code and body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(Vec::new());
        let answer = exchange(&self.client, request.expect("a legal request")).await;
        answer.expect("the server answers")
    }

    /// `POST path`: status code and body.
    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> (u16, String) {
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes());
        let answer = exchange(&self.client, request.expect("a legal request")).await;
        answer.expect("the server answers")
    }

    /// A client with a bearer token.
    pub(crate) async fn bearer(&self, pki: &Pki, token: &str) -> kube::Client {
        let user = format!("{{token: {token}}}");
        client_of(&pki.kubeconfig_of(self.port, &user)).await
    }
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn launch(pki: &Pki, port: u16, flags: &[String]) -> Process {
    let mut command = Command::new(KYANITE);
    command
        .arg("apiserver")
        .arg(format!("--secure-port={port}"))
        .args([
            "--bind-address=127.0.0.1",
            "--service-cluster-ip-range=10.96.0.0/16",
        ])
        .arg(flag("tls-cert-file", &pki.path("server.crt")))
        .arg(flag("tls-private-key-file", &pki.path("server.key")))
        .arg(flag("client-ca-file", &pki.path("ca.crt")))
        .args(flags)
        .env("HOME", pki.dir.path())
        .stdin(Stdio::null());
    Process::spawn(&mut command)
}

async fn wait_for_port(port: u16) {
    eventually_async("the port answers", async || {
        TcpStream::connect(("127.0.0.1", port))
            .await
            .map_err(|error| error.to_string())
    })
    .await;
}
