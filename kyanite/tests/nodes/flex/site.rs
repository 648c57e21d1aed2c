//! A network with an API server in it, and one machine that no cloud knows.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use azure::{Arm, CloudConfig};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::{eventually, said, skip};
use machines::{Attachment, Bind, Driver as _, File, Launcher, Namespaces, Network, Spec};
use serde_json::Value;

use crate::site::{API_SERVER, KYANITE};

pub(crate) const IMAGE: &str = "machines.test/busybox:1";
pub(crate) const IMAGE_ARCHIVE: &str = "/opt/image.tar";

pub(crate) struct Site {
    kubectl: PathBuf,
    containerd: PathBuf,
    image: PathBuf,
    driver: Namespaces,
    network: Network,
    server: Child,
    machine: std::cell::RefCell<String>,
    dir: tempfile::TempDir,
}

impl Site {
    /// Nothing where this host lacks something.
    pub(crate) fn open() -> Option<Site> {
        Site::with(&[])
    }

    /// With more flags for `kyanite up`.
    pub(crate) fn with(flags: &[&str]) -> Option<Site> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let (Some(containerd), Some(kubectl)) = (variable("CONTAINERD_BIN"), variable("KUBECTL"))
        else {
            skip("CONTAINERD_BIN and KUBECTL are not set (scripts/setup --for test, scripts/env)");
            return None;
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let launcher = Launcher::new(KYANITE, &["machine-launcher"]);
        let driver = Namespaces::new(&dir.path().join("machines"), launcher).expect("a driver");
        if let Some(missing) = driver.missing().first() {
            skip(&missing.to_string());
            return None;
        }
        let subnet = "10.89.0.0/24".parse().expect("a subnet");
        let network = driver.create_network("flex", subnet).expect("a network");
        let image = harness::Image {
            name: IMAGE,
            links: &[],
        };
        let site = Site {
            image: image.archive(dir.path(), &containerd.join("busybox")),
            server: start_server(&network, dir.path(), flags),
            kubectl,
            containerd,
            driver,
            network,
            machine: std::cell::RefCell::default(),
            dir,
        };
        eventually("the API server is ready", || {
            site.kubectl(&["get", "--raw", "/readyz"])
        });
        Some(site)
    }

    pub(crate) fn server(&self) -> String {
        format!("https://{API_SERVER}:443")
    }

    pub(crate) fn authority(&self) -> String {
        let ca = fs::read(self.dir.path().join("data/pki/ca.crt")).expect("a CA");
        STANDARD.encode(ca)
    }

    /// A bootstrap token.
    pub(crate) fn token(&self) -> String {
        let mut command = Command::new(KYANITE);
        command
            .args(["token", "create"])
            .env("KYANITE_DATA_DIR", self.dir.path().join("data"))
            .env("HOME", self.dir.path());
        let token = self
            .network
            .inside(|| said(&mut command))
            .expect("the network is there");
        token.expect("a token").trim().to_owned()
    }

    /// Where the cloud beside the API server is, and the credentials of its owner.
    pub(crate) fn cloud(&self) -> Value {
        eventually("the cloud says where it is", || {
            let text = fs::read_to_string(self.dir.path().join("data/azure/kyanite.json"));
            serde_json::from_str(&text.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        })
    }

    /// Who vouches for it, PEM.
    pub(crate) fn cloud_authority(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("data/pki/ca.crt")).expect("a CA")
    }

    /// A listener that machines reach, and its address.
    pub(crate) fn listen(&self) -> (TcpListener, SocketAddr) {
        let place = SocketAddr::from((self.network.gateway(), 0));
        let bound = self.network.inside(|| TcpListener::bind(place));
        let listener = bound.expect("the network is there").expect("a port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    /// What Resource Manager says of a path, to the cloud's owner; null where there is nothing.
    pub(crate) fn arm(&self, path: &str) -> Result<Value, String> {
        let known = self.cloud();
        let own = &known["credentials"];
        let config = serde_json::json!({"tenantId": own["tenant"], "subscriptionId": own["subscription"],
            "aadClientId": own["client_id"], "aadClientSecret": own["client_secret"],
            "resourceManagerEndpoint": known["origin"]});
        let config = CloudConfig::parse(&config.to_string(), |_| None).expect("settings");
        let authority = self.cloud_authority();
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.map_err(|e| e.to_string())?.block_on(async {
                let tls = wire::https::tls(Some(&authority)).expect("a client");
                let client = Arc::new(wire::client::Client::new(tls, Duration::from_secs(60)));
                let arm = Arm::connect(&config, client, |_| None)
                    .await
                    .map_err(|e| e.to_string())?;
                let found = arm.get(path, "").await.map_err(|e| e.to_string())?;
                Ok(found.unwrap_or_default())
            })
        };
        self.network.inside(ask).map_err(|e| e.to_string())?
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.dir.path().join("data/kubeconfig"))
            .args(arguments)
            .env("HOME", self.dir.path());
        self.network
            .inside(|| said(&mut command))
            .map_err(|e| e.to_string())?
    }

    pub(crate) fn create(&self, object: &Value) -> Result<String, String> {
        let file = self.dir.path().join("object.json");
        fs::write(&file, object.to_string()).map_err(|e| e.to_string())?;
        self.kubectl(&["create", "-f", &file.to_string_lossy()])
    }

    /// Boots a machine that has containerd, plugins, the agent and its configuration, and none of them started.
    pub(crate) fn boot(&self, name: &str, config: &Value) {
        self.boot_with(name, config, &[]);
    }

    /// The same, with more programs from this host.
    pub(crate) fn boot_with(&self, name: &str, config: &Value, more: &[(&Path, &str)]) {
        let bind = |source: &Path, target: &str| Bind {
            source: source.to_owned(),
            target: target.into(),
        };
        let containerd = |name: &str| self.containerd.join(name);
        let plugin = Path::new(KYANITE).with_file_name("kyanite-cni");
        let mut binds = vec![
            bind(&containerd("containerd"), "/usr/bin/containerd"),
            bind(
                &containerd("containerd-shim-runc-v2"),
                "/usr/bin/containerd-shim-runc-v2",
            ),
            bind(&containerd("ctr"), "/usr/bin/ctr"),
            bind(&containerd("runc"), "/usr/sbin/runc"),
            bind(Path::new(KYANITE), "/usr/local/bin/aks-flex-node"),
            bind(&plugin, "/usr/local/bin/kyanite-cni"),
            bind(&self.image, IMAGE_ARCHIVE),
        ];
        binds.extend(more.iter().map(|(source, target)| bind(source, target)));
        let hosts = format!(
            "127.0.0.1 localhost\n10.89.0.4 {name}\n{} {API_SERVER}\n",
            self.network.gateway()
        );
        let secret = |path: &str, text: Vec<u8>| File {
            mode: 0o600,
            ..File::new(path, text)
        };
        let admin = fs::read(self.dir.path().join("data/kubeconfig")).expect("a kubeconfig");
        let spec = Spec {
            name: name.to_owned(),
            attachment: Some(Attachment {
                network: "flex".to_owned(),
                address: Ipv4Addr::new(10, 89, 0, 4),
                name_servers: Vec::new(),
            }),
            custom_data: Vec::new(),
            files: vec![
                File::new("/etc/hosts", hosts),
                secret(
                    "/etc/aks-flex-node/config.json",
                    config.to_string().into_bytes(),
                ),
                secret("/opt/admin.conf", admin),
                File::new("/etc/aks-flex-node/cloud.crt", self.cloud_authority()),
            ],
            binds,
            units: Vec::new(),
            ..Spec::default()
        };
        self.driver.boot(&spec).expect("the machine starts");
        self.machine.replace(name.to_owned());
        eventually("the machine is up", || {
            self.run("systemctl is-system-running | grep -E -q 'running|degraded'")
        });
    }

    /// Somebody who may delete nodes.
    pub(crate) fn admin_in_machine(&self) -> &'static str {
        "/opt/admin.conf"
    }

    /// What this shell line prints in the machine.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        let command = self
            .driver
            .command(&self.machine.borrow(), ["/bin/bash", "-c", line]);
        said(&mut command.map_err(|e| e.to_string())?)
    }

    pub(crate) fn state(&self, script: &str) -> Vec<String> {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let checkout = checkout.expect("the workspace").to_string_lossy();
        let script = script.replace("CHECKOUT", &checkout);
        let text = self.run(&script).expect("a state");
        text.lines().map(str::to_owned).collect()
    }

    /// Lines that only one of two states has.
    pub(crate) fn differences(&self, before: &[String], now: &[String]) -> Vec<String> {
        let (one, other): (BTreeSet<_>, BTreeSet<_>) =
            (before.iter().collect(), now.iter().collect());
        let gone = one.difference(&other).map(|line| format!("gone: {line}"));
        let new = other.difference(&one).map(|line| format!("new: {line}"));
        gone.chain(new).collect()
    }

    #[expect(
        clippy::print_stdout,
        reason = "shown with --nocapture, and with a failed test"
    )]
    pub(crate) fn note(&self, text: &str) {
        println!("{text}");
    }
}

fn start_server(network: &Network, dir: &Path, flags: &[&str]) -> Child {
    let log = fs::File::create(dir.join("server.log")).expect("a log");
    let mut command = Command::new(KYANITE);
    command
        .args([
            "up",
            "--foreground",
            "--port=443",
            "--nodes=0",
            "--data-dir",
        ])
        .arg(dir.join("data"))
        .arg(format!("--bind-address={}", network.gateway()))
        .args(flags)
        .env("HOME", dir)
        .env("KUBECONFIG", dir.join("merged-kubeconfig"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file can be shared"))
        .stderr(log);
    let start = || command.spawn().expect("the server can be started");
    network.inside(start).expect("the network is there")
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = "journalctl --no-pager -n 80 -u kubelet -u containerd";
            self.note(&format!("{:?}", self.run(logs)));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
        for machine in self.driver.list().unwrap_or_default() {
            let removed = self.driver.remove(&machine.name);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
        }
        let swept = self.driver.sweep();
        assert!(swept.is_ok() || std::thread::panicking(), "{swept:?}");
    }
}
