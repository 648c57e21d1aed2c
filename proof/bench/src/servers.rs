//! The servers under load: each starts in an empty directory and is stopped by process id.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::client::Client;
use crate::measure::Processes;
use crate::pki::{self, Pki};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(20);
// The grain of the start time.
const POLL: Duration = Duration::from_millis(2);

/// Which server, and where its programs are.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// The `kyanite` program.
    Ours(PathBuf),
    /// A directory with `kube-apiserver` and `etcd`.
    Upstream(PathBuf),
}

/// How much of a control plane is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The API server and its store; ours has its controllers inside all the same.
    ApiServer,
    /// With controllers and scheduler. Nodes of the load are objects only, so nobody is to miss them.
    Whole,
}

/// A server that has said it is ready.
pub(crate) struct Server {
    /// An administrator's.
    pub(crate) access: Access,
    /// That of a user who may do what roles say.
    pub(crate) reader: Access,
    /// From exec to the first 200 of /readyz.
    pub(crate) ready_after: Duration,
    children: Vec<Child>,
    dir: TempDir,
}

impl Kind {
    /// Starts it on an empty directory below `dir`.
    pub(crate) async fn start(&self, dir: &Path, extent: Extent) -> Result<Server> {
        let dir = TempDir::with_prefix_in("bench-", dir)?;
        let started = match self {
            Kind::Ours(program) => start_ours(program, dir.path(), extent).await,
            Kind::Upstream(programs) => start_upstream(programs, dir.path(), extent).await,
        };
        let started = started.with_context(|| last_words(dir.path()))?;
        let Started {
            access,
            reader,
            ready_after,
            children,
        } = started;
        Ok(Server {
            reader: access.of_other(&reader)?,
            access,
            ready_after,
            children,
            dir,
        })
    }
}

/// A server that runs, and what there is to know of it.
struct Started {
    access: Access,
    reader: (Vec<u8>, Vec<u8>),
    ready_after: Duration,
    children: Vec<Child>,
}

impl Server {
    /// What to measure.
    pub(crate) fn processes(&self) -> Processes {
        Processes(self.children.iter().filter_map(Child::id).collect())
    }

    /// Ends it; what it wrote is removed.
    pub(crate) async fn stop(mut self) -> Result<()> {
        // The API server before its store.
        for child in self.children.iter_mut().rev() {
            end(child).await?;
        }
        Ok(self.dir.close()?)
    }
}

/// Asks a process to end, and makes it if it does not.
pub(crate) async fn end(child: &mut Child) -> Result<()> {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let pid = pid.context("the server ended under load")?;
    kill_process(pid, Signal::TERM)?;
    if timeout(STOP_LIMIT, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

async fn start_ours(program: &Path, dir: &Path, extent: Extent) -> Result<Started> {
    let mut command = Command::new(program);
    command.args([
        "up",
        "--foreground",
        "--port=0",
        "--nodes=0",
        "--cloud=false",
    ]);
    match extent {
        Extent::ApiServer => command.arg("--scheduler=false"),
        Extent::Whole => command.args(NOBODY_IS_MISSED),
    };
    command
        .arg("--data-dir")
        .arg(dir.join("data"))
        // The user's own kubeconfig is not ours to touch here.
        .arg("--kubeconfig")
        .arg(dir.join("users-kubeconfig"));
    let start = Instant::now();
    let mut child = spawn(command, &dir.join("server.log"))?;
    let access = until(&mut child, async || {
        Access::from_kubeconfig(&dir.join("data/kubeconfig"))
    })
    .await?;
    ready(&mut child, &access).await?;
    let ready_after = start.elapsed();
    let pki = dir.join("data/pki");
    Ok(Started {
        access,
        reader: pki::reader(&pki.join("ca.crt"), &pki.join("ca.key"))?,
        ready_after,
        children: vec![child],
    })
}

// Upstream's names, which are ours too.
const NOBODY_IS_MISSED: [&str; 2] = [
    "--node-monitor-grace-period=2h",
    "--node-startup-grace-period=2h",
];

// etcd serves before the clock starts, which favours upstream; its certificates are ready too.
async fn start_upstream(programs: &Path, dir: &Path, extent: Extent) -> Result<Started> {
    let [client, peer, port] = free_ports()?;
    let etcd_url = format!("http://127.0.0.1:{client}");
    let mut etcd = spawn(
        etcd_command(programs, dir, &etcd_url, peer),
        &dir.join("etcd.log"),
    )?;
    let store = SocketAddr::from((Ipv4Addr::LOCALHOST, client));
    until(&mut etcd, async || {
        Ok(tokio::net::TcpStream::connect(store).await?)
    })
    .await?;
    let pki = Pki::make(dir)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let access = Access::new(address, &pki.ca, &pki.client_cert, &pki.client_key)?;
    let start = Instant::now();
    let command = apiserver_command(programs, dir, &etcd_url, port);
    let mut server = spawn(command, &dir.join("server.log"))?;
    ready(&mut server, &access).await?;
    let ready_after = start.elapsed();
    let mut children = vec![etcd, server];
    if extent == Extent::Whole {
        let kubeconfig = dir.join("roles.conf");
        fs::write(&kubeconfig, roles_kubeconfig(dir, port))?;
        for role in [
            manager_command(programs, dir, &kubeconfig),
            scheduler_command(programs, dir, &kubeconfig),
        ] {
            let name = role.as_std().get_program().to_owned();
            let name = Path::new(&name).file_name().unwrap_or_default();
            children.push(spawn(role, &dir.join(name).with_extension("log"))?);
        }
    }
    Ok(Started {
        access,
        reader: pki.reader,
        ready_after,
        children,
    })
}

fn roles_kubeconfig(dir: &Path, port: u16) -> String {
    let file = |name: &str| dir.join(name);
    serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": file("ca.crt")}}],
        "users": [{"name": "bench", "user": {
            "client-certificate": file("client.crt"), "client-key": file("client.key")}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}]})
    .to_string()
}

// Their own limits on requests would be most of what is measured: they are lifted.
const UNLIMITED: [&str; 3] = [
    "--kube-api-qps=10000",
    "--kube-api-burst=10000",
    "--leader-elect=false",
];

fn manager_command(programs: &Path, dir: &Path, kubeconfig: &Path) -> Command {
    let file = |name: &str| dir.join(name).display().to_string();
    let flags = [
        ("kubeconfig", kubeconfig.display().to_string()),
        ("root-ca-file", file("ca.crt")),
        ("service-account-private-key-file", file("accounts.key")),
        ("service-cluster-ip-range", "10.0.0.0/16".into()),
        ("cert-dir", file("manager-certs")),
        ("secure-port", "0".into()),
    ];
    let mut command = Command::new(programs.join("kube-controller-manager"));
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command.args(UNLIMITED).args(NOBODY_IS_MISSED);
    command
}

fn scheduler_command(programs: &Path, dir: &Path, kubeconfig: &Path) -> Command {
    let mut command = Command::new(programs.join("kube-scheduler"));
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!(
            "--cert-dir={}",
            dir.join("scheduler-certs").display()
        ))
        .arg("--secure-port=0")
        .args(UNLIMITED);
    command
}

fn etcd_command(programs: &Path, dir: &Path, url: &str, peer: u16) -> Command {
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = Command::new(programs.join("etcd"));
    command.arg("--data-dir").arg(dir.join("etcd"));
    command.args(["--listen-client-urls", url, "--advertise-client-urls", url]);
    command.args(["--listen-peer-urls", &peer]);
    command.args(["--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    command
}

// Everything upstream does by default, with the authorization that every cluster has; the address of
// the `kubernetes` service may not be loopback.
fn apiserver_command(programs: &Path, dir: &Path, etcd_url: &str, port: u16) -> Command {
    let file = |name: &str| dir.join(name).display().to_string();
    let flags = [
        ("etcd-servers", etcd_url.to_owned()),
        ("bind-address", "127.0.0.1".into()),
        ("advertise-address", "192.0.2.1".into()),
        ("secure-port", port.to_string()),
        ("cert-dir", file("certs")),
        ("tls-cert-file", file("server.crt")),
        ("tls-private-key-file", file("server.key")),
        ("client-ca-file", file("ca.crt")),
        (
            "service-account-issuer",
            "https://kubernetes.default.svc".into(),
        ),
        ("service-account-key-file", file("accounts.pub")),
        ("service-account-signing-key-file", file("accounts.key")),
        ("service-cluster-ip-range", "10.0.0.0/16".into()),
        ("authorization-mode", "Node,RBAC".into()),
    ];
    let mut command = Command::new(programs.join("kube-apiserver"));
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command
}

/// Starts a program that ends with us, with its output in a file.
pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Child> {
    let program = command.as_std().get_program().to_owned();
    let log = File::create(log)?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true);
    command
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))
}

async fn ready(child: &mut Child, access: &Access) -> Result<()> {
    until(child, async || {
        Client::connect(access).await?.get("/readyz").await
    })
    .await?;
    Ok(())
}

/// Tries again until it works, while the program runs.
pub(crate) async fn until<T>(
    child: &mut Child,
    mut attempt: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => {}
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended while starting: {status}");
        }
        sleep(POLL).await;
    }
}

// Held together so that they differ; free again when this returns.
pub(crate) fn free_ports() -> Result<[u16; 3]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [listen()?, listen()?, listen()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn last_words(dir: &Path) -> String {
    let mut said = String::from("the server did not start; its last lines:");
    for log in ["etcd.log", "server.log"] {
        let text = fs::read_to_string(dir.join(log)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        for line in lines.iter().rev() {
            said.push_str(&format!("\n  {log}: {line}"));
        }
    }
    said
}

/// What the etcd of this directory calls itself, such as `etcd 3.6.8`.
pub(crate) async fn etcd_version(programs: &Path) -> Result<String> {
    let output = Command::new(programs.join("etcd"))
        .arg("--version")
        .output()
        .await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().find_map(|l| l.strip_prefix("etcd Version: "));
    Ok(format!("etcd {}", version.unwrap_or("of unknown version")))
}
