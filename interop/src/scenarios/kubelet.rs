//! A kubelet that joins with nothing but a token.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use serde_json::json;

use super::controllers::allow_joining;
use crate::cluster::Cluster;
use crate::outcome::Missing;
use crate::pki::write_private;
use crate::process::Process;
use crate::wait::eventually;

/// From the token to a certificate. Needs no container runtime: a kubelet asks for its certificate first.
pub(crate) fn joins(cluster: &mut Cluster<'_>) -> Result<()> {
    let token = allow_joining(&cluster.kubectl)?;
    let kubelet = Kubelet::prepare(cluster, token, "unix:///nonexistent/containerd.sock")?;
    let _running = kubelet.start(cluster)?;
    let certificate = kubelet.dir.join("pki/kubelet-client-current.pem");
    eventually("the kubelet has its certificate", || {
        ensure!(certificate.exists(), "no {}", certificate.display());
        Ok(())
    })?;
    let kubectl = &cluster.kubectl;
    kubectl.expect(
        "get csr",
        "{.items[*].status.conditions[*].type}",
        "Approved",
    )?;
    kubectl.expect(
        "get csr",
        "{.items[*].spec.username}",
        "system:bootstrap:abcdef",
    )?;
    let me = kubectl
        .as_user(kubelet.dir.join("kubeconfig"))
        .run("auth whoami -o jsonpath={.status.userInfo.username}")?;
    ensure!(
        me == "system:node:interop-node",
        "the certificate is {me:?}'s"
    );
    Ok(())
}

/// From the token to a pod that has ended well.
pub(crate) fn runs_a_pod(cluster: &mut Cluster<'_>) -> Result<()> {
    let runtime = containerd()?;
    let kubectl = cluster.kubectl.clone();
    let token = allow_joining(&kubectl)?;
    let kubelet = Kubelet::prepare(cluster, token, &runtime)?;
    let mut running = kubelet.start(cluster)?;
    eventually("the node is ready", || {
        running.check()?;
        let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
        kubectl.expect("get node interop-node", path, "True")
    })?;
    kubectl.with_input("create -f -", &pod().to_string())?;
    eventually("the pod has ended well", || {
        running.check()?;
        kubectl.expect("get pod once", "{.status.phase}", "Succeeded")
    })
}

// No scheduler runs here, so the pod names its node.
fn pod() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"},
        "spec": {"nodeName": "interop-node", "restartPolicy": "Never", "hostNetwork": true,
                 "containers": [{"name": "once", "image": "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
                                 "imagePullPolicy": "IfNotPresent", "command": ["true"]}]},
    })
}

fn containerd() -> Result<String> {
    let socket = Path::new("/run/containerd/containerd.sock");
    if socket.exists() {
        return Ok(format!("unix://{}", socket.display()));
    }
    Err(Missing(format!(
        "no containerd runs on this machine ({} is not there)",
        socket.display()
    ))
    .into())
}

struct Kubelet {
    dir: PathBuf,
}

impl Kubelet {
    /// Writes what it is started with: a configuration and a kubeconfig with the token.
    fn prepare(cluster: &Cluster<'_>, token: &str, runtime: &str) -> Result<Kubelet> {
        let dir = cluster.subdirectory("kubelet")?;
        cluster
            .pki
            .token_kubeconfig("bootstrap", cluster.ports.api_server, token)?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": runtime,
            "authentication": {"x509": {"clientCAFile": cluster.pki.file("ca.crt")}},
            "address": "127.0.0.1", "port": cluster.ports.other, "healthzPort": 0,
            "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
            "podLogsDir": dir.join("logs"), "volumePluginDir": dir.join("plugins"),
            "rotateCertificates": true,
        });
        write_private(&dir.join("config.json"), &config.to_string())?;
        Ok(Kubelet { dir })
    }

    fn start(&self, cluster: &Cluster<'_>) -> Result<Process> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let mut command = Command::new(cluster.programs.upstream("kubelet")?);
        command.args([
            file("config", self.dir.join("config.json")),
            file(
                "bootstrap-kubeconfig",
                cluster.pki.file("bootstrap.kubeconfig"),
            ),
            file("kubeconfig", self.dir.join("kubeconfig")),
            file("cert-dir", self.dir.join("pki")),
            file("root-dir", self.dir.join("root")),
            "--hostname-override=interop-node".into(),
            "--node-ip=127.0.0.1".into(),
        ]);
        Process::start("kubelet", cluster.dir, &mut command)
    }
}
