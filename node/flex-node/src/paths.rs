//! Where things are. All but the last group are upstream's.

/// The configuration.
pub const CONFIG: &str = "/etc/aks-flex-node/config.json";
/// The kubelet's data.
pub const KUBELET_DIR: &str = "/var/lib/kubelet";
/// The kubelet.
pub const KUBELET: &str = "/usr/local/bin/kubelet";
/// Its own kubeconfig.
pub const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// What it asks for its first certificate with.
pub const BOOTSTRAP_KUBECONFIG: &str = "/var/lib/kubelet/bootstrap-kubeconfig";
/// Upstream's token script; a line that runs this program here.
pub const TOKEN_SCRIPT: &str = "/var/lib/kubelet/token.sh";
/// Its configuration.
pub const KUBELET_CONFIG: &str = "/var/lib/kubelet/config.yaml";
/// Its flags.
pub const KUBELET_DEFAULTS: &str = "/etc/default/kubelet";
/// Its unit.
pub const KUBELET_UNIT: &str = "/etc/systemd/system/kubelet.service";
/// Drop-ins of its unit.
pub const KUBELET_DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";
/// The cluster's authority, as era A has it.
pub const CLUSTER_CA: &str = "/etc/kubernetes/certs/ca.crt";
/// containerd's configuration.
pub const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// The template of the pod network's configuration; containerd fills in the node's range.
pub const CNI_TEMPLATE: &str = "/etc/containerd/kubenet_template.conf";
/// containerd's unit, where nobody else brought one.
pub const CONTAINERD_UNIT: &str = "/etc/systemd/system/containerd.service";
/// What makes a package's unit start the program that was fetched.
pub const CONTAINERD_DROP_IN: &str =
    "/etc/systemd/system/containerd.service.d/10-aks-flex-node.conf";
/// containerd's socket.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Plugins of the pod network.
pub const CNI_BIN: &str = "/opt/cni/bin";
/// Kernel settings.
pub const SYSCTL: &str = "/etc/sysctl.d/999-sysctl-aks.conf";
/// How the node is.
pub const STATUS: &str = "/run/aks-flex-node/status.json";
/// The agent's unit.
pub const AGENT_UNIT: &str = "/etc/systemd/system/aks-flex-node-agent.service";
/// What the kubelet serves with, where the agent had it signed.
pub const SERVING_CERTIFICATE: &str = "/var/lib/kubelet/pki/serving.crt";
/// Its key.
pub const SERVING_KEY: &str = "/var/lib/kubelet/pki/serving.key";
/// The unit that serves the identity of a machine that connected itself.
pub const HIMDS_UNIT: &str = "/etc/systemd/system/aks-flex-node-himds.service";
/// Where an agent of Arc lays down its proofs.
pub const ARC_TOKENS: &str = "/var/opt/azcmagent/tokens";

/// Modules that are loaded at boot.
pub const MODULES: &str = "/etc/modules-load.d/aks-flex-node.conf";
/// The journal, and what was learnt of the cluster.
pub const STATE: &str = "/var/lib/aks-flex-node";
/// What Azure said of the cluster.
pub const CLUSTER: &str = "/var/lib/aks-flex-node/cluster.json";
/// What the last run did.
pub const LAST_RUN: &str = "/var/lib/aks-flex-node/last-run.json";
/// What lasts only as long as the machine is up.
pub const VOLATILE: &str = "/run/aks-flex-node";
/// Held by the run that is under way.
pub const LOCK: &str = "/run/aks-flex-node/lock";
/// Tokens that are still good; root's alone.
pub const TOKENS: &str = "/run/aks-flex-node/tokens";
