//! One network with an API server in it and machines around it. Everything ends with it.

use std::ffi::OsStr;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::{eventually, said, skip};
use machines::{Attachment, Bind, Driver as _, File, Launcher, Namespaces, Network, Spec};
use serde_json::{Value, json};

/// The image that machines are given.
pub(crate) const IMAGE: &str = "machines.test/busybox:1";

/// The program under test.
pub(crate) const KYANITE: &str = env!("CARGO_BIN_EXE_kyanite");

/// A name that the API server's certificate has, for machines without a name server.
pub(crate) const API_SERVER: &str = "kubernetes.default.svc";

// As node images bring it: it waits for cloud-init, and for a configuration.
const UNIT: &str = "[Unit]
Description=AKS node controller
ConditionPathExists=/opt/azure/containers/aks-node-controller-config.json
After=cloud-init.target network-online.target
Wants=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/azure/containers/aks-node-controller provision --provision-config=/opt/azure/containers/aks-node-controller-config.json
";

// The pods of these tests use no network; the node controller only looks whether plugins are there.
const PLUGIN: &str =
    "#!/bin/sh\necho '{\"code\": 100, \"msg\": \"no pod network in this test\"}'\nexit 1\n";

/// Where machines find the archive of the one image.
pub(crate) const IMAGE_ARCHIVE: &str = "/opt/image.tar";

/// Programs that are not ours.
struct Programs {
    containerd: PathBuf,
    upstream: PathBuf,
}

/// A network with an API server.
pub(crate) struct Site {
    programs: Programs,
    image: PathBuf,
    driver: Namespaces,
    network: Network,
    server: Option<Child>,
    dir: tempfile::TempDir,
}

/// What a machine's image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    Complete,
    WithoutKubelet,
}

impl Site {
    /// Nothing where this host lacks something.
    pub(crate) fn open() -> Option<Site> {
        let directory = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        let (Some(containerd), Some(upstream)) =
            (directory("CONTAINERD_BIN"), directory("UPSTREAM_BIN"))
        else {
            skip(
                "CONTAINERD_BIN and UPSTREAM_BIN are not set (make upstream, scripts/setup --for test, scripts/env)",
            );
            return None;
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let launcher = Launcher::new(KYANITE, &["machine-launcher"]);
        let driver = Namespaces::new(&dir.path().join("machines"), launcher).expect("a driver");
        if let Some(missing) = driver.missing().first() {
            skip(&missing.to_string());
            return None;
        }
        let subnet = "10.88.0.0/24".parse().expect("a subnet");
        let network = driver.create_network("site", subnet).expect("a network");
        let programs = Programs {
            containerd,
            upstream,
        };
        let image = harness::Image {
            name: IMAGE,
            links: &[],
        };
        let mut site = Site {
            image: image.archive(dir.path(), &programs.containerd.join("busybox")),
            programs,
            driver,
            network,
            server: None,
            dir,
        };
        site.server = Some(site.start_server());
        eventually("the API server is ready", || {
            site.kubectl(&["get", "--raw", "/readyz"])
        });
        Some(site)
    }

    fn start_server(&self) -> Child {
        let log = fs::File::create(self.dir.path().join("server.log")).expect("a log");
        let mut command = Command::new(KYANITE);
        command
            .args([
                "up",
                "--foreground",
                "--port=443",
                "--nodes=0",
                "--data-dir",
            ])
            .arg(self.dir.path().join("data"))
            .arg(format!("--bind-address={}", self.network.gateway()))
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.dir.path().join("merged-kubeconfig"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        let start = || command.spawn().expect("the server can be started");
        self.network.inside(start).expect("the network is there")
    }

    /// Ends the API server.
    pub(crate) fn stop_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// What kubectl prints, as the cluster's admin.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.programs.upstream.join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(self.dir.path().join("data/kubeconfig"))
            .args(arguments)
            .env("HOME", self.dir.path());
        self.network
            .inside(|| said(&mut command))
            .map_err(|e| e.to_string())?
    }

    /// Makes an object.
    pub(crate) fn create(&self, object: &Value) -> Result<String, String> {
        let file = self.dir.path().join("object.json");
        fs::write(&file, object.to_string()).map_err(|e| e.to_string())?;
        self.kubectl(&["create", "-f", &file.to_string_lossy()])
    }

    /// A configuration of a node of this cluster.
    pub(crate) fn config(&self) -> Value {
        let ca = fs::read(self.dir.path().join("data/pki/ca.crt")).expect("a CA");
        json!({
            "version": "v1",
            "is_vhd": false,
            "kubernetes_version": self.kubelet_version(),
            "kubernetes_ca_cert": STANDARD.encode(ca),
            "api_server_config": {"api_server_name": API_SERVER},
            "bootstrapping_config": {
                "bootstrapping_auth_method": "BOOTSTRAPPING_AUTH_METHOD_BOOTSTRAP_TOKEN",
                "tls_bootstrapping_token": self.token(),
            },
            "kube_binary_config": {"pod_infra_container_image_url": IMAGE},
            "network_config": {"network_plugin": "NETWORK_PLUGIN_NONE"},
            "kubelet_config": {
                "kubelet_flags": {"--anonymous-auth": "false", "--client-ca-file": "/etc/kubernetes/certs/ca.crt",
                    "--fail-swap-on": "false", "--cgroup-driver": "cgroupfs"},
                "kubelet_node_labels": {"agentpool": "pool1"},
            },
        })
    }

    fn kubelet_version(&self) -> String {
        let text = said(Command::new(self.programs.upstream.join("kubelet")).arg("--version"))
            .expect("a kubelet");
        text.trim().trim_start_matches("Kubernetes v").to_owned()
    }

    fn token(&self) -> String {
        let mut command = self.kyanite(["token", "create"]);
        let token = self
            .network
            .inside(|| said(&mut command))
            .expect("the network is there");
        token.expect("a token").trim().to_owned()
    }

    fn kyanite<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(KYANITE);
        command
            .args(arguments)
            .env("KYANITE_DATA_DIR", self.dir.path().join("data"))
            .env("HOME", self.dir.path());
        command
    }

    /// Boots a machine with this configuration in its custom data.
    pub(crate) fn boot(&self, name: &str, config: &Value, form: &str, image: Image) {
        let file = self.dir.path().join(format!("{name}.json"));
        fs::write(&file, config.to_string()).expect("a file");
        let mut command = self.kyanite(["node-controller", "custom-data", "--form", form]);
        let custom_data = said(command.arg(&file)).expect("custom data");
        let version = self.kubelet_version();
        let spec = Spec {
            name: name.to_owned(),
            attachment: Some(Attachment {
                network: "site".to_owned(),
                address: Ipv4Addr::new(10, 88, 0, 4),
                name_servers: Vec::new(),
            }),
            custom_data: custom_data.into_bytes(),
            files: self.files(name),
            binds: self.binds(&version, image),
            units: vec!["aks-node-controller.service".to_owned()],
            ..Spec::default()
        };
        self.driver.boot(&spec).expect("the machine starts");
    }

    fn binds(&self, version: &str, image: Image) -> Vec<Bind> {
        let mut binds = self.programs.binds(version, image);
        binds.push(Bind {
            source: self.image.clone(),
            target: IMAGE_ARCHIVE.into(),
        });
        binds
    }

    fn files(&self, name: &str) -> Vec<File> {
        let hosts = format!(
            "127.0.0.1 localhost\n10.88.0.4 {name}\n{} {API_SERVER}\n",
            self.network.gateway()
        );
        let plugin = |plugin: &str| File {
            mode: 0o755,
            ..File::new(format!("/opt/cni/bin/{plugin}"), PLUGIN)
        };
        let mut files: Vec<File> = ["bridge", "host-local", "loopback"].map(plugin).into();
        files.push(File::new("/etc/hosts", hosts));
        files.push(File::new(
            "/etc/systemd/system/aks-node-controller.service",
            UNIT,
        ));
        files
    }

    /// What the guest agent runs: `provision-wait`'s exit code and what it printed.
    pub(crate) fn provision_wait(&self, name: &str) -> (i32, Value) {
        let controller = "/opt/azure/containers/aks-node-controller";
        let mut command = eventually("the machine can be entered", || {
            let program = [controller, "provision-wait", "--timeout=600"];
            let command = self
                .driver
                .command(name, program)
                .map_err(|e| e.to_string())?;
            self.run(
                name,
                "systemctl is-system-running | grep -q -v initializing",
            )
            .map(|_| command)
        });
        let output = command.output().expect("the launcher runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let result = serde_json::from_str(&text);
        let result = result
            .unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().expect("an exit code"), result)
    }

    /// What this shell line prints in the machine.
    pub(crate) fn run(&self, name: &str, line: &str) -> Result<String, String> {
        let command = self.driver.command(name, ["/bin/bash", "-c", line]);
        said(&mut command.map_err(|e| e.to_string())?)
    }

    /// Ends a machine; the next may have its address.
    pub(crate) fn remove(&self, name: &str) {
        self.driver.remove(name).expect("the machine goes");
    }
}

impl Programs {
    // Where node images have them.
    fn binds(&self, version: &str, image: Image) -> Vec<Bind> {
        let bind = |from: &Path, name: &str, to: String| Bind {
            source: from.join(name),
            target: to.into(),
        };
        let mut binds: Vec<Bind> = ["containerd", "containerd-shim-runc-v2", "ctr"]
            .map(|name| bind(&self.containerd, name, format!("/usr/bin/{name}")))
            .into();
        binds.push(bind(&self.containerd, "runc", "/usr/sbin/runc".to_owned()));
        binds.push(Bind {
            source: KYANITE.into(),
            target: "/opt/azure/containers/aks-node-controller".into(),
        });
        if image == Image::Complete {
            let kube = ["kubelet", "kubectl"];
            binds.extend(
                kube.map(|name| bind(&self.upstream, name, format!("/opt/bin/{name}-{version}"))),
            );
        }
        binds
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop_server();
        for machine in self.driver.list().unwrap_or_default() {
            if std::thread::panicking() {
                self.show(&machine.name);
            }
            let removed = self.driver.remove(&machine.name);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
        let swept = self.driver.sweep();
        assert!(swept.is_ok() || std::thread::panicking(), "{swept:?}");
    }
}

impl Site {
    #[expect(
        clippy::print_stdout,
        reason = "libtest shows it with the failed test only"
    )]
    fn show(&self, name: &str) {
        let logs = "tail -n 40 /var/log/azure/aks-node-controller.log; systemctl --failed --no-pager; \
            journalctl --no-pager -n 60";
        println!("--- {name}\n{:?}", self.run(name, logs));
    }
}
