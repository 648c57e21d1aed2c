//! A kubelet that joins with nothing but a token.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::controllers::allow_joining;
use super::streams;
use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::pki::write_private;
use crate::process::Process;
use crate::runtime::{IMAGE, Runtime, unmount_below};
use crate::wait::eventually;

/// From the token to a certificate. Needs no container runtime: a kubelet asks for its certificate first.
pub(crate) fn joins(cluster: &mut Cluster<'_>) -> Result<()> {
    let token = allow_joining(&cluster.kubectl)?;
    let kubelet = Kubelet::prepare(cluster, token, None)?;
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

/// From the token to a pod that has ended well, and one that can be looked into while it runs.
pub(crate) fn runs_a_pod(cluster: &mut Cluster<'_>) -> Result<()> {
    with_a_node(cluster, |cluster, running| {
        runs_to_its_end(&cluster.kubectl, running)?;
        streams::run(&cluster.kubectl, NODE)
    })
}

/// The same pod looked into through a tunnel, and out of sight once that is cut.
pub(crate) fn is_reached_by_tunnel(cluster: &mut Cluster<'_>) -> Result<()> {
    with_a_node(cluster, |cluster, _| {
        streams::run(&cluster.kubectl, NODE)?;
        cluster.cut_tunnel();
        eventually("nothing leads to the node", || {
            let health = format!("get --raw /api/v1/nodes/{NODE}/proxy/healthz");
            cluster
                .kubectl
                .refused(&health, "error trying to reach service")
        })
    })
}

fn with_a_node(
    cluster: &mut Cluster<'_>,
    work: impl FnOnce(&mut Cluster<'_>, &mut Process) -> Result<()>,
) -> Result<()> {
    let runtime = Runtime::start(
        cluster.programs.containerd(),
        cluster.subdirectory("containerd")?,
    )?;
    let kubectl = cluster.kubectl.clone();
    let token = allow_joining(&kubectl)?;
    let kubelet = Kubelet::prepare(cluster, token, Some(&runtime))?;
    let mut running = kubelet.start(cluster)?;
    eventually("the node is ready", || {
        running.check()?;
        let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
        kubectl.expect("get node interop-node", path, "True")
    })?;
    work(cluster, &mut running)
}

fn runs_to_its_end(kubectl: &Kubectl, running: &mut Process) -> Result<()> {
    kubectl.with_input("create -f -", &pod().to_string())?;
    eventually("the pod has ended well", || {
        running.check()?;
        kubectl.expect("get pod once", "{.status.phase}", "Succeeded")
    })?;
    // The kubelet takes everything down that it had set up for the pod, and then the object.
    kubectl.run("delete pod once --timeout=60s").map(drop)
}

// Upstream lets no kubelet be at loopback, so it listens at the address that this machine has towards others. Choosing
// it sends nothing.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // An address of the documentation range: only the route to it matters.
    let routed = socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9));
    let address = routed.and_then(|()| socket.local_addr());
    Ok(address
        .context("this machine has no address but loopback")?
        .ip())
}

// No scheduler runs here, so the pod names its node.
fn pod() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"},
        "spec": {"nodeName": "interop-node", "restartPolicy": "Never", "hostNetwork": true,
                 "containers": [{"name": "once", "image": IMAGE, "imagePullPolicy": "Never",
                                 "command": ["/busybox", "true"]}]},
    })
}

/// The name of the node.
const NODE: &str = "interop-node";

struct Kubelet {
    dir: PathBuf,
}

impl Kubelet {
    /// Writes what it is started with: a configuration and a kubeconfig with the token.
    fn prepare(cluster: &Cluster<'_>, token: &str, runtime: Option<&Runtime>) -> Result<Kubelet> {
        let dir = cluster.subdirectory("kubelet")?;
        let socket = runtime.map_or("/nonexistent/containerd.sock".into(), Runtime::socket);
        cluster
            .pki
            .token_kubeconfig("bootstrap", cluster.ports.api_server, token)?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
            "authentication": {"x509": {"clientCAFile": cluster.pki.file("ca.crt")}},
            "address": own_address()?, "port": cluster.ports.other, "healthzPort": 0,
            "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
            "podLogsDir": dir.join("logs"), "volumePluginDir": dir.join("plugins"),
            // One that renews its certificate asks for the first in the background, and would end for want of a
            // runtime before it has come; one that does not renew it waits for it first.
            "rotateCertificates": runtime.is_some(),
            // How full this machine is has nothing to do with the contract.
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                             "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
            // Leave the machine's firewall and its tree of cgroups alone.
            "makeIPTablesUtilChains": false, "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
        });
        write_private(&dir.join("config.json"), &config.to_string())?;
        Ok(Kubelet { dir })
    }

    fn start(&self, cluster: &Cluster<'_>) -> Result<Process> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let mut command = cluster.kubelet()?;
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
        ]);
        Process::start("kubelet", cluster.dir, &mut command)
    }
}

impl Drop for Kubelet {
    // A kubelet mounts its directory onto itself, so that volumes are seen by containers, and leaves it so; and
    // the volumes of a pod that was on its way.
    fn drop(&mut self) {
        unmount_below(&self.dir);
    }
}
