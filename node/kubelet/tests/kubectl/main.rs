//! The real kubectl on one side of the kubelet's server and the real containerd on the other. Needs root; skipped,
//! loudly, without.
#![allow(clippy::unwrap_used, reason = "tests")]

mod containerd;
mod front;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use containerd::Containerd;
use front::Front;
use harness::skip;
use kubelet::cri::ContainerState;
use kubelet::pods::{ContainerRef, KnownPod, Pods};
use kubelet::server::{
    Access, Certificate, Reviews, Rules, Server, Settings, Silent, Sources, self_signed,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(120);

/// The API server may do everything.
struct OnlyApiServer;

#[async_trait]
impl Reviews for OnlyApiServer {
    async fn token(&self, token: &str) -> Result<Option<access::User>, String> {
        Ok((token == "api-server").then(access::User::default))
    }

    async fn access(&self, _: &Access) -> Result<bool, String> {
        Ok(true)
    }
}

fn pod() -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "default", "uid": "uid"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": containerd::IMAGE, "stdin": true}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true,
            "restartCount": 0, "containerID": "containerd://x", "state": {"running": {}}}]}})
}

struct Bench {
    server: SocketAddr,
    pods: Arc<Pods>,
    known: KnownPod,
    containerd: Containerd,
    home: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

impl Bench {
    async fn start(command: &[&str]) -> Option<Bench> {
        let home = tempfile::tempdir().unwrap();
        let mut containerd = Containerd::start(home.path()).await?;
        let (sandbox, id, log) = containerd.run(command, vec![]).await;
        let known = known(sandbox, id, &log, ContainerState::Running);
        let pods = Arc::new(Pods::default());
        pods.put("uid", known.clone());
        let (pem, key) = self_signed(&["localhost".to_owned()]).unwrap();
        let certificate = Arc::new(Certificate::default());
        certificate.set(pem.as_bytes(), key.as_bytes()).unwrap();
        let settings = Settings {
            node: "n".into(),
            root: home.path().into(),
            system_logs: home.path().into(),
            client_ca: None,
            rules: Rules {
                tokens: true,
                ..Rules::default()
            },
            debugging: true,
        };
        let sources = Sources {
            pods: Arc::clone(&pods),
            runtime: Arc::new(containerd.client.clone()),
            reports: Arc::new(Silent),
            reviews: Arc::new(OnlyApiServer),
            certificate,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubelet = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(Server::new(settings, sources).serve(listener, stopped));
        let front = Front {
            kubelet,
            certificate: CertificateDer::from_pem_slice(pem.as_bytes()).unwrap(),
            pod: pod().to_string(),
        };
        Some(Bench {
            server: front.start().await,
            pods,
            known,
            containerd,
            home,
            _stop: stop,
        })
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(program);
        command
            .arg(format!("--server=http://{}", self.server))
            .args(arguments)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn run(
        &self,
        arguments: &[&str],
        websockets: bool,
        input: Option<&str>,
    ) -> (i32, String, String) {
        let mut command = self.kubectl(arguments);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets.to_string());
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let Some(input) = input {
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(input.as_bytes()).await.unwrap();
            drop(stdin);
        }
        let done = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let done = done
            .unwrap_or_else(|_| panic!("kubectl {arguments:?} does not end"))
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            done.status.code().unwrap_or(-1),
            text(&done.stdout),
            text(&done.stderr),
        )
    }
}

fn known(sandbox: String, id: String, log: &Path, state: ContainerState) -> KnownPod {
    let container = ContainerRef {
        id,
        state,
        attempt: 0,
        log_path: log.into(),
        created_at: 0,
    };
    KnownPod {
        pod: Arc::new(serde_json::from_value(pod()).unwrap()),
        sandbox_id: Some(sandbox),
        containers: [("c".to_owned(), vec![container])].into(),
    }
}

fn has_kubectl() -> bool {
    let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
    let found = std::process::Command::new(program)
        .args(["version", "--client"])
        .output()
        .is_ok_and(|done| done.status.success());
    if !found {
        skip("no kubectl");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_looks_into_a_container_by_every_protocol() {
    if !has_kubectl() {
        return;
    }
    let script = "i=0; while [ $i -lt 5 ]; do echo line $i; i=$((i+1)); done; exec cat";
    let Some(bench) = Bench::start(&["/bin/sh", "-c", script]).await else {
        return;
    };
    for websockets in [true, false] {
        commands(&bench, websockets).await;
        copies(&bench, websockets).await;
        forwards(&bench, websockets).await;
    }
    logs(&bench).await;
    attaches(&bench).await;
    bench.containerd.stop().await;
}

async fn commands(bench: &Bench, websockets: bool) {
    let (code, out, err) = bench
        .run(&["exec", "p", "--", "echo", "hi"], websockets, None)
        .await;
    assert_eq!((code, out.as_str()), (0, "hi\n"), "{websockets} {err}");
    let (code, out, err) = bench
        .run(
            &["exec", "p", "--", "sh", "-c", "echo no >&2; exit 7"],
            websockets,
            None,
        )
        .await;
    assert_eq!((code, out.as_str()), (7, ""), "{err}");
    assert!(err.starts_with("no\n"), "{err}");
    // Input that ends, and is long enough for many frames.
    let input = "0123456789\n".repeat(50_000);
    let (code, out, err) = bench
        .run(&["exec", "-i", "p", "--", "cat"], websockets, Some(&input))
        .await;
    assert_eq!(code, 0, "{err}");
    assert!(out == input, "{} of {} bytes", out.len(), input.len());
}

async fn copies(bench: &Bench, websockets: bool) {
    let from = bench.home.path().join("from");
    let to = bench.home.path().join(format!("to-{websockets}"));
    let content = "kubectl cp\n".repeat(10_000);
    std::fs::write(&from, &content).unwrap();
    let there = format!("p:/tmp/file-{websockets}");
    let (code, _, err) = bench
        .run(&["cp", from.to_str().unwrap(), &there], websockets, None)
        .await;
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = bench
        .run(&["cp", &there, to.to_str().unwrap()], websockets, None)
        .await;
    assert_eq!(code, 0, "{err}");
    assert!(std::fs::read_to_string(&to).unwrap() == content);
}

// The pod has this machine's network, so what it forwards to may as well be here.
async fn forwards(bench: &Bench, websockets: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).await.unwrap();
            heard.make_ascii_uppercase();
            stream.write_all(&heard).await.unwrap();
        }
    });
    let mut command = bench.kubectl(&["port-forward", "pod/p", &format!(":{port}")]);
    command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets.to_string());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .unwrap()
        .unwrap();
    let Some(line) = line else {
        panic!("kubectl port-forward: {}", told(child).await);
    };
    let own = line
        .split("127.0.0.1:")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{own}"))
            .await
            .unwrap();
        stream.write_all(b"shout").await.unwrap();
        let mut heard = [0; 5];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut heard))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&heard, b"SHOUT", "{websockets}");
    }
    answering.await.unwrap();
    child.kill().await.unwrap();
}

async fn told(child: Child) -> String {
    let done = child.wait_with_output().await.unwrap();
    String::from_utf8_lossy(&done.stderr).into_owned()
}

async fn logs(bench: &Bench) {
    let (code, out, err) = bench.run(&["logs", "p"], true, None).await;
    assert_eq!(
        (code, out.as_str()),
        (0, "line 0\nline 1\nline 2\nline 3\nline 4\n"),
        "{err}"
    );
    let (_, out, _) = bench.run(&["logs", "p", "--tail=2"], true, None).await;
    assert_eq!(out, "line 3\nline 4\n");
    let (_, out, _) = bench
        .run(&["logs", "p", "--limit-bytes=1"], true, None)
        .await;
    assert_eq!(out, "l");
    let (_, out, _) = bench
        .run(&["logs", "p", "--tail=1", "--timestamps"], true, None)
        .await;
    let (time, text) = out.split_once(' ').unwrap();
    assert_eq!(text, "line 4\n");
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
}

// What is typed comes back from cat, and to those who follow the log.
async fn attaches(bench: &Bench) {
    let mut follower = bench.kubectl(&["logs", "p", "-f"]).spawn().unwrap();
    let mut followed = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut command = bench.kubectl(&["attach", "-i", "p"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    stdin.write_all(b"typed\n").await.unwrap();
    let line = tokio::time::timeout(PATIENCE, lines.next_line())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(line.as_deref(), Some("typed"));
    let followed_to = async {
        while let Some(line) = followed.next_line().await.unwrap() {
            if line == "typed" {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(PATIENCE, followed_to).await.unwrap());
    child.kill().await.unwrap();
    let mut ended = bench.known.clone();
    if let Some(container) = ended
        .containers
        .get_mut("c")
        .and_then(|all| all.first_mut())
    {
        container.state = ContainerState::Exited;
    }
    bench.pods.put("uid", ended);
    let line = tokio::time::timeout(PATIENCE, followed.next_line())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(line, None, "a log ends with its container");
    follower.wait().await.unwrap();
}
