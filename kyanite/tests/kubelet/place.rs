//! A control plane, a containerd with one image, and a kubelet, all below one temporary directory.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::{
    Image, containerd_configuration, directory, eventually, find_program, free_port, is_root, said,
    skip,
};
use serde_json::{Value, json};

const KYANITE: &str = env!("CARGO_BIN_EXE_kyanite");
/// The image that containerd has.
pub(crate) const IMAGE: &str = "kubelet.test/busybox:1";

/// Gives each pod an address and nothing else: addresses are what is tested, not packets.
const NETWORK: &str = r#"#!/bin/sh
case "$CNI_COMMAND" in
ADD) n=$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')
     echo "{\"cniVersion\":\"0.4.0\",\"interfaces\":[{\"name\":\"eth0\",\"sandbox\":\"$CNI_NETNS\"}],\"ips\":[{\"version\":\"4\",\"interface\":0,\"address\":\"10.99.0.$n/16\"}]}" ;;
VERSION) echo '{"cniVersion":"0.4.0","supportedVersions":["0.3.0","0.3.1","0.4.0"]}' ;;
*) ;;
esac
"#;

/// Everything that runs.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    programs: PathBuf,
    kubectl: PathBuf,
    /// Where the kubelet serves.
    port: u16,
    containerd: Option<Child>,
    server: Option<Child>,
    kubelet: Option<Child>,
    /// Fields of the kubelet's configuration that are not the usual.
    extra: Value,
    /// Where the kubelet looks for programs first.
    first: Option<PathBuf>,
}

impl Place {
    /// Nothing where this host lacks something.
    pub(crate) fn open() -> Option<Place> {
        is_root("a kubelet").then_some(())?;
        let programs = directory("CONTAINERD_BIN", &["containerd", "busybox"])?;
        let Some(kubectl) = find_program("KUBECTL", "kubectl") else {
            skip("there is no kubectl");
            return None;
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut place = Place {
            dir,
            programs,
            kubectl,
            port: free_port(),
            containerd: None,
            server: None,
            kubelet: None,
            extra: json!({}),
            first: None,
        };
        place.start_containerd();
        place.start_server();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn spawn(&self, command: &mut Command, log: &str) -> Child {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(log))
            .expect("a log");
        let copy = log.try_clone().expect("a file can be shared");
        command
            .stdin(Stdio::null())
            .stdout(copy)
            .stderr(log)
            .spawn()
            .expect("it can be started")
    }

    fn start_containerd(&mut self) {
        let dir = self.path("containerd");
        fs::create_dir_all(dir.join("cni")).expect("a directory");
        for name in ["fake", "loopback"] {
            let path = dir.join("cni").join(name);
            fs::write(&path, NETWORK).expect("a plugin");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        let network = json!({"cniVersion": "0.4.0", "name": "fake", "type": "fake"});
        fs::write(dir.join("cni/10-fake.conf"), network.to_string()).expect("a network");
        fs::write(
            dir.join("config.toml"),
            containerd_configuration(&dir, IMAGE),
        )
        .expect("a configuration");
        let path = format!(
            "{}:{}",
            self.programs.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut command = Command::new(self.programs.join("containerd"));
        command
            .arg("--config")
            .arg(dir.join("config.toml"))
            .env("PATH", path);
        self.containerd = Some(self.spawn(&mut command, "containerd.log"));
        eventually("containerd answers", || self.ctr(&["version"]));
        let image = Image {
            name: IMAGE,
            links: &[],
        };
        let archive = image.archive(self.dir.path(), &self.programs.join("busybox"));
        self.ctr(&["images", "import", &archive.display().to_string()])
            .expect("the image is taken");
    }

    fn start_server(&mut self) {
        let mut command = self.kyanite(&["up", "--nodes=0", "--foreground", "--port=0"]);
        self.server = Some(self.spawn(&mut command, "server.log"));
        eventually("the API server is ready", || {
            self.kubectl(&["get", "--raw", "/readyz"])
        });
        eventually("the default account is there", || {
            self.kubectl(&["get", "serviceaccount", "default"])
        });
        let text =
            said(&mut self.kyanite(&["token", "create", "--print-kubeconfig"])).expect("a token");
        fs::write(self.path("bootstrap"), text).expect("a file");
    }

    fn kyanite(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KYANITE);
        command
            .args(arguments)
            .env("KYANITE_DATA_DIR", self.path("data"))
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.path("merged"));
        command
    }

    /// Adds to the kubelet's configuration.
    pub(crate) fn configure(&mut self, fields: Value) {
        self.extra = fields;
    }

    /// Has the kubelet find these programs before the host's.
    pub(crate) fn put_first(&mut self, programs: &Path) {
        self.first = Some(programs.to_owned());
    }

    /// Starts the kubelet, by the name that systemd units call it.
    pub(crate) fn start_kubelet(&mut self) {
        let mut command = self.kubelet();
        self.kubelet = Some(self.spawn(&mut command, "kubelet.log"));
    }

    /// What a kubelet says that does not even start.
    pub(crate) fn kubelet_refuses(&mut self, fields: Value) -> String {
        let before = std::mem::replace(&mut self.extra, fields);
        let refusal = said(&mut self.kubelet()).expect_err("a refusal");
        self.extra = before;
        refusal
    }

    fn kubelet(&self) -> Command {
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{}", self.path("containerd/containerd.sock").display()),
            "podLogsDir": self.path("logs"), "cgroupRoot": format!("/{}", self.cgroups()), "failSwapOn": false,
            "failCgroupV1": false, "rotateCertificates": true, "serverTLSBootstrap": true,
            // A full disk of this host is no concern of the test's.
            "evictionHard": {"memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
            "port": self.port, "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": true}}, "authorization": {"mode": "AlwaysAllow"},
        });
        for (key, value) in self.extra.as_object().expect("an object") {
            config[key] = value.clone();
        }
        fs::write(self.path("kubelet.json"), config.to_string()).expect("a file");
        let link = self.path("kubelet");
        if !link.exists() {
            std::os::unix::fs::symlink(KYANITE, &link).expect("a link");
        }
        let mut command = Command::new(link);
        let flag = |name: &str, file: &str| format!("--{name}={}", self.path(file).display());
        command
            .args([
                flag("config", "kubelet.json"),
                flag("kubeconfig", "node-kubeconfig"),
                flag("bootstrap-kubeconfig", "bootstrap"),
                flag("root-dir", "kubelet-root"),
                "--hostname-override=node1".to_owned(),
                "--node-labels=pool=a".to_owned(),
                "--pod-infra-container-image=removed/long:ago".to_owned(),
                "--v=2".to_owned(),
            ])
            .env("KYANITE_LOG", "info,kubelet=debug");
        if let Some(first) = &self.first {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", first.display()));
        }
        command
    }

    /// Ends the kubelet without a word.
    pub(crate) fn kill_kubelet(&mut self) {
        end(&mut self.kubelet);
    }

    /// What runs in containerd.
    pub(crate) fn tasks(&self) -> String {
        self.ctr(&["tasks", "list", "--quiet"]).unwrap_or_default()
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.kubectl);
        said(
            command
                .args(arguments)
                .env("KUBECONFIG", self.path("data/kubeconfig"))
                .env("HOME", self.dir.path()),
        )
    }

    /// Creates an object.
    pub(crate) fn create(&self, object: &Value) {
        let file = self.path("object.json");
        fs::write(&file, object.to_string()).expect("a file");
        let file = file.display().to_string();
        self.kubectl(&["create", "-f", &file])
            .expect("it can be created");
    }

    /// The kubelet's directory.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("kubelet-root")
    }

    /// Deletes a pod to its end.
    pub(crate) fn delete(&self, name: &str) {
        self.kubectl(&["delete", "pod", name, "--timeout=120s"])
            .expect("it can be deleted");
    }

    /// Where the pods of this place are counted; places do not meet.
    fn cgroups(&self) -> String {
        let name = self.dir.path().file_name().unwrap_or_default();
        let name = name.to_string_lossy().replace('.', "");
        format!("kyanite-kubelet-test-{name}")
    }

    /// A file of a pod's cgroup: the first of these names that is there, by cgroup's first version and its second.
    pub(crate) fn cgroup(&self, pod: &str, controller: &str, names: &[&str; 2]) -> String {
        let root = Path::new("/sys/fs/cgroup");
        let unified = root.join("cgroup.controllers").exists();
        let (tree, name) = match unified {
            true => (root.to_owned(), names[1]),
            false => (root.join(controller), names[0]),
        };
        let pods = tree.join(self.cgroups()).join("kubepods");
        let classes = ["", "burstable", "besteffort"];
        let mut files = classes
            .iter()
            .map(|class| pods.join(class).join(pod).join(name));
        let text = files.find_map(|file| fs::read_to_string(file).ok());
        text.unwrap_or_default().trim().to_owned()
    }

    fn ctr(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.programs.join("ctr"));
        command
            .arg("--address")
            .arg(self.path("containerd/containerd.sock"));
        said(command.args(["--namespace", "k8s.io"]).args(arguments))
    }
}

fn end(process: &mut Option<Child>) {
    if let Some(mut process) = process.take() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

impl Drop for Place {
    #[expect(
        clippy::print_stdout,
        reason = "libtest shows it with the failed test only"
    )]
    // Containers outlive containerd, so they are ended first.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("kubelet.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!(
                "--- kubelet\n{}",
                lines[lines.len().saturating_sub(80)..].join("\n")
            );
        }
        end(&mut self.kubelet);
        end(&mut self.server);
        for task in self.tasks().lines() {
            let _ = self.ctr(&["tasks", "delete", "--force", task]);
        }
        end(&mut self.containerd);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let dir = self
            .dir
            .path()
            .canonicalize()
            .expect("the directory is there");
        for path in mounts.lines().rev().filter_map(|l| l.split(' ').nth(1)) {
            if Path::new(path).starts_with(&dir) {
                let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
            }
        }
        for tree in fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            remove_empty(&tree.path().join(self.cgroups()));
            remove_empty(&tree.path().join("k8s.io"));
        }
        remove_empty(&Path::new("/sys/fs/cgroup").join(self.cgroups()));
    }
}

fn remove_empty(directory: &Path) {
    for child in fs::read_dir(directory).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&child.path());
        }
    }
    let _ = fs::remove_dir(directory);
}
