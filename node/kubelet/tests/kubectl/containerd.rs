//! A containerd of the test's own: in its own mounts and processes, which end with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Image, containerd_configuration, directory, eventually_async, is_root};
use kubelet::cri::{self, Client, Runtime};

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
        fs::write(
            dir.join("config.toml"),
            containerd_configuration(dir, IMAGE),
        )
        .unwrap();
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
        eventually_async("containerd answers", async || {
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
        let image = Image {
            name: IMAGE,
            links: &LINKS,
        };
        let archive = image.archive(&self.dir, &self.programs.join("busybox"));
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
    let needed = [
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "runc",
        "busybox",
    ];
    is_root("running containers").then_some(())?;
    directory("CONTAINERD_BIN", &needed)
}
