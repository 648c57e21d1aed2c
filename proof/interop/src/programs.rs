//! Where the programs of both sides are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::outcome::Missing;

/// Upstream's programs that rows use, with the words that make them say their version.
const UPSTREAM: [(&str, &[&str]); 8] = [
    ("kube-apiserver", &["--version"]),
    ("kube-controller-manager", &["--version"]),
    ("kube-scheduler", &["--version"]),
    ("kubelet", &["--version"]),
    ("kubectl", &["version", "--client"]),
    ("etcd", &["--version"]),
    ("helm", &["version", "--short"]),
    ("cloud-controller-manager", &["--version"]),
];

/// Ours and theirs.
pub(crate) struct Programs {
    kyanite: PathBuf,
    upstream: PathBuf,
    containerd: PathBuf,
    chart: PathBuf,
    clients: PathBuf,
}

impl Programs {
    pub(crate) fn new(
        kyanite: PathBuf,
        upstream: PathBuf,
        containerd: PathBuf,
        chart: PathBuf,
        clients: PathBuf,
    ) -> Result<Programs> {
        let kyanite = kyanite
            .canonicalize()
            .with_context(|| format!("no program at {}", kyanite.display()))?;
        Ok(Programs {
            kyanite,
            upstream,
            containerd,
            chart,
            clients,
        })
    }

    /// Our one program.
    pub(crate) fn kyanite(&self) -> &Path {
        &self.kyanite
    }

    /// The directory with containerd and what it needs.
    pub(crate) fn containerd(&self) -> &Path {
        &self.containerd
    }

    /// The directory with the clients in other languages, as set-up makes them.
    pub(crate) fn clients(&self) -> &Path {
        &self.clients
    }

    /// The directory of the chart that helm installs.
    pub(crate) fn chart(&self) -> &Path {
        &self.chart
    }

    /// kubectl: the one that was built, the one that set-up found, or the one of this machine.
    pub(crate) fn kubectl(&self) -> PathBuf {
        let built = self.upstream("kubectl").ok();
        let named = || std::env::var_os("KUBECTL").map(PathBuf::from);
        built.or_else(named).unwrap_or_else(|| "kubectl".into())
    }

    /// One of upstream's, when it has been built.
    pub(crate) fn upstream(&self, name: &str) -> Result<PathBuf> {
        let path = self.upstream.join(name);
        if path.is_file() {
            return Ok(path);
        }
        let missing = format!("upstream's {name} has not been built (make upstream)");
        Err(Missing(missing).into())
    }

    /// What each program calls itself.
    pub(crate) fn versions(&self) -> Vec<(String, String)> {
        let ours = std::iter::once((
            "kyanite".to_owned(),
            self.kyanite.clone(),
            ["--version"].as_slice(),
        ));
        let theirs =
            UPSTREAM.map(|(name, words)| (name.to_owned(), self.upstream.join(name), words));
        ours.chain(theirs)
            .map(|(name, path, words)| (name, version(&path, words)))
            .collect()
    }
}

fn version(program: &Path, words: &[&str]) -> String {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output();
    let said = output
        .ok()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = said.as_deref().and_then(|text| text.lines().next());
    line.unwrap_or("not available here").to_owned()
}
