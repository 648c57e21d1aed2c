//! The cluster under examination: `kyanite up` with two nodes, as anybody starts it, and the suite's images on them.
//! All of it lives in a temporary directory and ends with us.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

/// For the scoreboard: what was examined.
pub(crate) const ABOUT: &str = "The cluster is `kyanite up --nodes 2`: our API server, controllers, scheduler, kubelets, pod \
     network, service proxy and DNS, on two machines of namespaces with containerd. The suite's images are made on the spot.";

/// A running cluster; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    kyanite: PathBuf,
    dir: TempDir,
}

impl Cluster {
    /// Starts one with the program `kyanite`, and loads an archive of images into its nodes.
    pub(crate) fn start(kyanite: &Path, images: &Path) -> Result<Cluster> {
        let cluster = Cluster {
            kyanite: kyanite.to_owned(),
            dir: TempDir::with_prefix("kyanite-conformance-")?,
        };
        cluster.up().with_context(|| cluster.last_words())?;
        let mut load = cluster.command(&["image", "load"]);
        said(load.arg(images))?;
        Ok(cluster)
    }

    fn up(&self) -> Result<()> {
        let mut command = self.command(&["up", "--nodes=2", "--port=0", "--cloud=false"]);
        // One spec waits for a compaction.
        command.args(["--etcd-compaction-interval", "60s"]);
        // The user's own kubeconfig is not ours to touch here.
        let users = self.dir.path().join("users-kubeconfig");
        command.arg("--kubeconfig").arg(users);
        said(&mut command).map(drop)
    }

    /// How to reach it as its administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data().join("kubeconfig")
    }

    /// Why it has ended although it should not have.
    pub(crate) fn ended(&self) -> Option<String> {
        let told = said(&mut self.command(&["status", "--output=json"]));
        let state = told.and_then(|text| Ok(serde_json::from_str::<Value>(&text)?));
        match state {
            Ok(state) if state["running"] == true => None,
            Ok(_) => Some(format!("kyanite has ended; {}", self.last_words())),
            Err(error) => Some(format!("{error:#}; {}", self.last_words())),
        }
    }

    /// Ends it. Its log goes to `logs`, everything else is removed.
    pub(crate) fn stop(self, logs: &Path) -> Result<()> {
        fs::copy(self.log(), logs.join("kyanite.log"))?;
        self.down()
    }

    fn down(&self) -> Result<()> {
        match self.data().exists() {
            true => said(&mut self.command(&["down", "--purge"])).map(drop),
            false => Ok(()),
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.data().join("log")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.kyanite);
        command.args(words).env("KYANITE_DATA_DIR", self.data());
        command.env_remove("KYANITE_NODES");
        command
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.reverse();
        format!("the last lines of its log:\n{}", lines.join("\n"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            crate::say(&format!("the cluster could not be ended: {error:#}"));
        }
    }
}

// What a command answers; an error has what it complained of.
fn said(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`kyanite {}`: {}", words.join(" "), complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
