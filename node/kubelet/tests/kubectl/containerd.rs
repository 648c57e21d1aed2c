//! A containerd of the test's own: in its own mounts and processes, which end with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kubelet::cri::{self, Client, Runtime};
use serde_json::json;

/// The image; its programs are links to busybox.
pub(crate) const IMAGE: &str = "kubelet.test/busybox:1";
const LINKS: [&str; 8] = ["cat", "cp", "echo", "ls", "mkdir", "sh", "sleep", "tar"];

pub(crate) struct Containerd {
    dir: PathBuf,
    programs: PathBuf,
    child: Child,
    pub(crate) client: Client,
    sandbox: Option<String>,
    cgroup: String,
}

impl Containerd {
    /// Starts it; nothing where this machine lacks what it takes.
    pub(crate) async fn start(dir: &Path) -> Option<Containerd> {
        let programs = programs()?;
        fs::write(dir.join("config.toml"), configuration(dir)).unwrap();
        let start = format!(
            "mount -t tmpfs tmpfs /run && exec {}/containerd --config {}/config.toml",
            programs.display(),
            dir.display()
        );
        let log = fs::File::create(dir.join("containerd.log")).unwrap();
        let child = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                &start,
            ])
            .env(
                "PATH",
                format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()),
            )
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let socket = dir.join("containerd.sock");
        let containerd = Containerd {
            client: Client::new(socket.to_str().unwrap(), Duration::from_secs(60)),
            dir: dir.to_owned(),
            programs,
            child,
            sandbox: None,
            cgroup: format!("/kubelet-test-{}", std::process::id()),
        };
        super::eventually("containerd answers", async || {
            containerd
                .client
                .version(cri::VersionRequest::default())
                .await
                .is_ok()
        })
        .await;
        containerd.import();
        Some(containerd)
    }

    fn import(&self) {
        let archive = image(&self.dir, &self.programs.join("busybox"));
        let imported = Command::new(self.programs.join("ctr"))
            .arg("--address")
            .arg(self.dir.join("containerd.sock"))
            .args([
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "--snapshotter",
                "native",
            ])
            .arg(archive)
            .output()
            .unwrap();
        assert!(imported.status.success(), "{imported:?}");
    }

    /// Runs a container in the network of this machine; gives the ids of sandbox and container, and the log.
    pub(crate) async fn run(
        &mut self,
        command: &[&str],
        mounts: Vec<cri::Mount>,
    ) -> (String, String, PathBuf) {
        let logs = self.dir.join("logs");
        fs::create_dir_all(&logs).unwrap();
        let options = cri::NamespaceOption {
            network: cri::NamespaceMode::Node as i32,
            pid: cri::NamespaceMode::Container as i32,
            ..cri::NamespaceOption::default()
        };
        let sandbox = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: "p".into(),
                namespace: "default".into(),
                uid: "uid".into(),
                attempt: 0,
            }),
            log_directory: logs.to_str().unwrap().into(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.clone(),
                security_context: Some(cri::LinuxSandboxSecurityContext {
                    namespace_options: Some(options.clone()),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = cri::RunPodSandboxRequest {
            config: Some(sandbox.clone()),
            ..Default::default()
        };
        let id = self
            .client
            .run_pod_sandbox(request)
            .await
            .unwrap()
            .pod_sandbox_id;
        self.sandbox = Some(id.clone());
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata {
                name: "c".into(),
                attempt: 0,
            }),
            image: Some(cri::ImageSpec {
                image: IMAGE.into(),
                ..Default::default()
            }),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            mounts,
            log_path: "c.log".into(),
            stdin: true,
            linux: Some(cri::LinuxContainerConfig {
                security_context: Some(cri::LinuxContainerSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox),
        };
        let container = self
            .client
            .create_container(request)
            .await
            .unwrap()
            .container_id;
        let request = cri::StartContainerRequest {
            container_id: container.clone(),
        };
        self.client.start_container(request).await.unwrap();
        (id, container, logs.join("c.log"))
    }

    /// Ends everything in order, so that nothing of it is left on this machine.
    pub(crate) async fn stop(mut self) {
        if let Some(id) = self.sandbox.take() {
            let stop = cri::StopPodSandboxRequest {
                pod_sandbox_id: id.clone(),
            };
            let _ = self.client.stop_pod_sandbox(stop).await;
            let remove = cri::RemovePodSandboxRequest { pod_sandbox_id: id };
            let _ = self.client.remove_pod_sandbox(remove).await;
        }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What a test that failed has left in each hierarchy, or in the only one.
        let name = self.cgroup.trim_start_matches('/');
        let top = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
        let mut places: Vec<PathBuf> = hierarchies.map(|entry| entry.path()).collect();
        places.push(top.to_owned());
        for place in places {
            remove_cgroups(&place.join(name));
        }
    }
}

// Only directories can be removed, and only those without others in them.
fn remove_cgroups(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.path().is_dir()) {
        remove_cgroups(&entry.path());
    }
    let _ = fs::remove_dir(directory);
}

fn programs() -> Option<PathBuf> {
    let Some(programs) = std::env::var_os("CONTAINERD_BIN").map(PathBuf::from) else {
        eprintln!("SKIPPED: no containerd (CONTAINERD_BIN is not set)");
        return None;
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: running containers needs root");
        return None;
    }
    let needed = [
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "runc",
        "busybox",
    ];
    if let Some(missing) = needed.iter().find(|name| !programs.join(name).is_file()) {
        eprintln!("SKIPPED: no {missing} in {}", programs.display());
        return None;
    }
    Some(programs)
}

// Snapshots are plain copies: an overlay cannot always lie on the file system of a temporary directory. Not every root
// may make a process safer from the kernel's memory killer than itself.
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
"#
    )
}

/// Makes an archive as `docker save` makes them.
fn image(dir: &Path, busybox: &Path) -> PathBuf {
    let tree = dir.join("image");
    fs::create_dir_all(tree.join("root/bin")).unwrap();
    fs::create_dir_all(tree.join("root/tmp")).unwrap();
    fs::copy(busybox, tree.join("root/bin/busybox")).unwrap();
    for link in LINKS {
        std::os::unix::fs::symlink("busybox", tree.join("root/bin").join(link)).unwrap();
    }
    tar(&tree.join("root"), &tree.join("layer.tar"), &["bin", "tmp"]);
    let layer = fs::read(tree.join("layer.tar")).unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &layer);
    let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "100000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    fs::write(tree.join("config.json"), config.to_string()).unwrap();
    fs::write(tree.join("manifest.json"), manifest.to_string()).unwrap();
    let archive = dir.join("image.tar");
    tar(
        &tree,
        &archive,
        &["manifest.json", "config.json", "layer.tar"],
    );
    archive
}

fn tar(from: &Path, to: &Path, files: &[&str]) {
    let mut command = Command::new("tar");
    command
        .arg("--create")
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(from)
        .args(files);
    assert!(command.status().unwrap().success());
}
