//! A containerd of the scenario's own, with one small image, that leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::kubectl::run;
use crate::outcome::Missing;
use crate::process::Process;
use crate::wait::eventually;

/// The name of the image; its one program is busybox.
pub(crate) const IMAGE: &str = "interop.test/busybox:1";

/// What must be on this machine.
const PROGRAMS: [&str; 5] = [
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "busybox",
];

/// What a kubelet sets for the whole machine, to be set back.
const SETTINGS: [&str; 5] = [
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// What containerd and runc make outside of the directories they are given, innermost first.
const LEFT_BEHIND: [&str; 4] = [
    "/run/containerd/runc/k8s.io",
    "/run/containerd/runc",
    "/run/containerd/s",
    "/run/containerd",
];

/// A running containerd.
pub(crate) struct Runtime {
    programs: PathBuf,
    dir: PathBuf,
    _settings: Settings,
    containerd: Option<Process>,
}

impl Runtime {
    /// Starts containerd below `dir` with the programs of this directory, and gives it the image.
    pub(crate) fn start(programs: &Path, dir: PathBuf) -> Result<Runtime> {
        available(programs)?;
        fs::write(dir.join("config.toml"), configuration(&dir))?;
        fs::create_dir_all(dir.join("cni"))?;
        // The node is ready once there is a network; pods that use the host's never ask it for anything.
        let network = json!({"cniVersion": "0.4.0", "name": "none", "type": "loopback"});
        fs::write(dir.join("cni/10-none.conf"), network.to_string())?;
        let mut command = Command::new(programs.join("containerd"));
        command
            .arg("--config")
            .arg(dir.join("config.toml"))
            .env("PATH", path(programs));
        let runtime = Runtime {
            programs: programs.to_owned(),
            _settings: Settings::read(),
            containerd: Some(Process::start("containerd", &dir, &mut command)?),
            dir,
        };
        eventually("containerd answers", || runtime.ctr(&["version"]))?;
        let archive = image(&runtime.dir, &programs.join("busybox"))?;
        runtime.ctr(&["images", "import", &archive.display().to_string()])?;
        Ok(runtime)
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    fn ctr(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.programs.join("ctr"));
        command
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io"]);
        run(command.args(args), "")
    }
}

impl Drop for Runtime {
    // Containers outlive containerd, so they are ended first.
    fn drop(&mut self) {
        let tasks = self.ctr(&["tasks", "list", "--quiet"]).unwrap_or_default();
        for task in tasks.lines() {
            let _ = self.ctr(&["tasks", "delete", "--force", task]);
        }
        self.containerd = None;
        // Of a pod that was on its way.
        unmount_below(&self.dir);
        remove_empty(&LEFT_BEHIND.map(PathBuf::from));
        remove_empty(&cgroups());
    }
}

/// Takes away what is mounted below a directory, so that it can be removed.
pub(crate) fn unmount_below(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The kernel knows no symbolic links.
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    for path in mounts_below(&mounts, &dir) {
        let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
    }
}

// Last mounted first. The kernel writes a space in a path as an octal number.
fn mounts_below(mounts: &str, dir: &Path) -> Vec<PathBuf> {
    let paths = mounts.lines().rev().filter_map(|l| l.split(' ').nth(1));
    let paths = paths.map(|path| PathBuf::from(path.replace("\\040", " ")));
    paths.filter(|path| path.starts_with(dir)).collect()
}

// The directories that containerd's namespace got in every hierarchy of cgroups.
fn cgroups() -> Vec<PathBuf> {
    let hierarchies = fs::read_dir("/sys/fs/cgroup")
        .into_iter()
        .flatten()
        .flatten();
    let ours = hierarchies.map(|hierarchy| hierarchy.path().join("k8s.io"));
    ours.filter(|path| path.is_dir()).collect()
}

// One that another containerd uses is not empty and stays.
fn remove_empty(directories: &[PathBuf]) {
    for directory in directories {
        let _ = fs::remove_dir(directory);
    }
}

fn available(programs: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Missing("a kubelet needs root".into()).into());
    }
    match PROGRAMS.iter().find(|name| !programs.join(name).is_file()) {
        Some(name) => Err(Missing(format!(
            "no {name} in the cache (scripts/setup --for interop)"
        ))
        .into()),
        None => Ok(()),
    }
}

fn path(programs: &Path) -> String {
    let inherited = std::env::var("PATH").unwrap_or_default();
    format!("{}:{inherited}", programs.display())
}

// Snapshots are plain copies: an overlay cannot always lie on the file system of a temporary directory. Not
// every root may make a process safer from the kernel's memory killer than itself.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{dir}/cni"
    conf_dir = "{dir}/cni"
"#
    )
}

/// Makes an archive as `docker save` makes them, with busybox in its only layer.
fn image(dir: &Path, busybox: &Path) -> Result<PathBuf> {
    let tree = dir.join("image");
    fs::create_dir_all(tree.join("root"))?;
    fs::copy(busybox, tree.join("root/busybox"))?;
    tar(&tree.join("root"), &tree.join("layer.tar"), &["busybox"])?;
    let digest: String = Sha256::digest(fs::read(tree.join("layer.tar"))?)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": ["/busybox", "sleep", "100000"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    fs::write(tree.join("config.json"), config.to_string())?;
    fs::write(tree.join("manifest.json"), manifest.to_string())?;
    let archive = dir.join("image.tar");
    tar(
        &tree,
        &archive,
        &["manifest.json", "config.json", "layer.tar"],
    )?;
    Ok(archive)
}

fn tar(from: &Path, to: &Path, files: &[&str]) -> Result<()> {
    let mut command = Command::new("tar");
    command
        .arg("--create")
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(from)
        .args(files);
    run(&mut command, "").map(drop)
}

// Go's names of processors.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Settings of the machine as they were.
struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    fn read() -> Settings {
        let path = |name: &&str| Path::new("/proc/sys").join(name);
        let found = SETTINGS
            .iter()
            .map(path)
            .filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)));
        Settings(found.collect())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            // A setting nobody changed needs no right to change it.
            if fs::read_to_string(path).ok().as_ref() != Some(value) {
                let _ = fs::write(path, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_last_is_taken_away_first() {
        let mounts = "ext4 / ext4 rw 0 0\ntmpfs /tmp/a\\040b/x tmpfs rw 0 0\n\
                      tmpfs /tmp/a\\040b/x/y tmpfs rw 0 0\ntmpfs /tmp/a\\040bc tmpfs rw 0 0\n";
        let found = mounts_below(mounts, Path::new("/tmp/a b"));
        assert_eq!(found, ["/tmp/a b/x/y", "/tmp/a b/x"].map(PathBuf::from));
    }
}
