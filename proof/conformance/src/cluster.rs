//! The cluster under examination: `kyanite up`, upstream's controller manager for the controllers that
//! Kyanite has not, and two stand-in nodes. All of it lives in a temporary directory and ends with us.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use client_runtime::Connection;
use kube::Client;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::nodes;

const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(100);

/// A running cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    dir: TempDir,
    // In the order of their start.
    children: Vec<(&'static str, Child)>,
    renewal: JoinHandle<()>,
}

impl Cluster {
    /// Starts one; `kyanite` is the program, `upstream` the directory of upstream's.
    pub(crate) async fn start(kyanite: &Path, upstream: &Path) -> Result<Cluster> {
        let dir = TempDir::with_prefix("kyanite-conformance-")?;
        let started = start(kyanite, upstream, dir.path()).await;
        let (children, client) = started.with_context(|| last_words(dir.path()))?;
        Ok(Cluster {
            dir,
            children,
            renewal: tokio::spawn(nodes::renew(client)),
        })
    }

    /// How to reach it as its administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig(self.dir.path())
    }

    /// Which process has ended although it should not have, and what it said last.
    pub(crate) fn ended(&mut self) -> Result<Option<String>> {
        for (name, child) in &mut self.children {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(format!(
                    "{name} ended with {status}; {}",
                    last_words(self.dir.path())
                )));
            }
        }
        Ok(None)
    }

    /// Ends it. Its logs go to `logs`, everything else is removed.
    pub(crate) async fn stop(mut self, logs: &Path) -> Result<()> {
        self.renewal.abort();
        for (_, child) in self.children.iter_mut().rev() {
            end(child).await?;
        }
        for (name, _) in &self.children {
            let file = format!("{name}.log");
            fs::copy(self.dir.path().join(&file), logs.join(&file))?;
        }
        Ok(self.dir.close()?)
    }
}

async fn start(
    kyanite: &Path,
    upstream: &Path,
    dir: &Path,
) -> Result<(Vec<(&'static str, Child)>, Client)> {
    let mut server = spawn(ours(kyanite, dir), dir, "kyanite")?;
    let client = ready(&mut server, &kubeconfig(dir)).await?;
    let manager = spawn(
        controller_manager(upstream, dir),
        dir,
        "kube-controller-manager",
    )?;
    nodes::make(&client).await?;
    let children = vec![("kyanite", server), ("kube-controller-manager", manager)];
    Ok((children, client))
}

fn kubeconfig(dir: &Path) -> PathBuf {
    dir.join("data/kubeconfig")
}

fn ours(kyanite: &Path, dir: &Path) -> Command {
    let mut command = Command::new(kyanite);
    command.args([
        "up",
        "--foreground",
        "--port",
        "0",
        "--nodes=0",
        "--scheduler=false",
        "--data-dir",
    ]);
    command.arg(dir.join("data"));
    // The user's own kubeconfig is not ours to touch here.
    command
        .arg("--kubeconfig")
        .arg(dir.join("users-kubeconfig"));
    // One spec waits for a compaction.
    command.args(["--etcd-compaction-interval", "60s"]);
    command
}

fn controller_manager(upstream: &Path, dir: &Path) -> Command {
    let kubeconfig = dir.join("data/controller-manager.conf");
    let mut command = Command::new(upstream.join("kube-controller-manager"));
    command.arg("--kubeconfig").arg(kubeconfig);
    command.arg(format!("--controllers={}", theirs()));
    // Our manager holds the Lease; the two share the work by name instead.
    command.args(["--leader-elect=false", "--use-service-account-credentials"]);
    command.args(["--secure-port=0", "--profiling=false"]);
    // It makes this directory, by default outside of ours.
    command
        .arg("--flex-volume-plugin-dir")
        .arg(dir.join("volume-plugins"));
    command
}

/// Upstream's controllers without those that Kyanite has.
fn theirs() -> String {
    let ours = controllers::names().filter(|name| !controllers::OWN.contains(name));
    let ours = ours.map(|name| format!(",-{name}"));
    std::iter::once("*".to_owned()).chain(ours).collect()
}

/// For the scoreboard: who helped.
pub(crate) fn helpers() -> String {
    let ours: Vec<&str> = controllers::names().collect();
    format!(
        "Two Node objects with renewed Leases stand in for nodes, and upstream's kube-controller-manager runs the \
         controllers that Kyanite has not; Kyanite's own are {}.",
        ours.join(", ")
    )
}

fn spawn(mut command: Command, dir: &Path, name: &str) -> Result<Child> {
    let log = File::create(dir.join(format!("{name}.log")))?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    // Not in our process group: an interrupt is for us, we end the rest in order.
    command.process_group(0).kill_on_drop(true);
    let program = command.as_std().get_program().to_owned();
    command
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))
}

async fn ready(server: &mut Child, kubeconfig: &Path) -> Result<Client> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match connect(kubeconfig).await {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => {}
        }
        if let Some(status) = server.try_wait()? {
            bail!("kyanite ended while starting: {status}");
        }
        sleep(POLL).await;
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client> {
    let connection = Connection::Kubeconfig(kubeconfig.to_owned());
    let client = client_runtime::client(&connection, "kyanite-conformance").await?;
    let question = http::Request::get("/readyz").body(Vec::new())?;
    client.request_text(question).await?;
    Ok(client)
}

async fn end(child: &mut Child) -> Result<()> {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let Some(pid) = pid else { return Ok(()) };
    kill_process(pid, Signal::TERM)?;
    if timeout(STOP_LIMIT, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

fn last_words(dir: &Path) -> String {
    let mut said = String::from("the last lines of the logs:");
    for name in ["kyanite", "kube-controller-manager"] {
        let text = fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        for line in lines.iter().rev() {
            said.push_str(&format!("\n  {name}: {line}"));
        }
    }
    said
}
