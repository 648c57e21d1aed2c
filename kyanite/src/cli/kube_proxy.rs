//! The flags of `kyanite kube-proxy`; upstream's names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use kube_kit::duration::go;

use super::Logging;

#[derive(Debug, Clone, Args)]
pub(crate) struct KubeProxy {
    /// A KubeProxyConfiguration; most flags are without effect then
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How the API server is reached, and as whom; otherwise as the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The node's name, where it is not the host's
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname_override: Option<String>,
    /// Ranges of pod addresses: what comes from elsewhere gets this node's address on its way to a Service
    #[arg(long, default_value = "", value_name = "CIDRS")]
    pub(crate) cluster_cidr: String,
    /// Always nftables; other modes are accepted and not followed
    #[arg(long, default_value = "", value_name = "MODE")]
    pub(crate) proxy_mode: String,
    /// How pods are told from others: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix
    #[arg(long, default_value = "", value_name = "MODE")]
    pub(crate) detect_local_mode: String,
    /// The pods' bridge, for BridgeInterface
    #[arg(long, default_value = "", value_name = "NAME")]
    pub(crate) pod_bridge_interface: String,
    /// How the pods' interfaces begin, for InterfaceNamePrefix
    #[arg(long, default_value = "", value_name = "PREFIX")]
    pub(crate) pod_interface_name_prefix: String,
    /// Give this node's address to everything that goes to a Service
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) masquerade_all: bool,
    /// Ranges of addresses that have node ports, or `primary`
    #[arg(long, value_delimiter = ',', value_name = "CIDRS")]
    pub(crate) nodeport_addresses: Vec<String>,
    /// Where health is served; empty for nowhere
    #[arg(long, default_value = "0.0.0.0:10256", value_name = "IP:PORT")]
    pub(crate) healthz_bind_address: String,
    /// Where metrics are served; empty for nowhere
    #[arg(long, default_value = "127.0.0.1:10249", value_name = "IP:PORT")]
    pub(crate) metrics_bind_address: String,
    /// Connections that the kernel tracks for each processor; 0 leaves its limit alone
    #[arg(long, value_name = "COUNT")]
    pub(crate) conntrack_max_per_core: Option<u32>,
    /// The least limit with --conntrack-max-per-core
    #[arg(long, value_name = "COUNT")]
    pub(crate) conntrack_min: Option<u32>,
    /// How long an open TCP connection may be silent and is still tracked
    #[arg(long, value_parser = go::flag, value_name = "DURATION")]
    pub(crate) conntrack_tcp_timeout_established: Option<Duration>,
    /// How long a TCP connection is tracked that one side has ended
    #[arg(long, value_parser = go::flag, value_name = "DURATION")]
    pub(crate) conntrack_tcp_timeout_close_wait: Option<Duration>,
    /// Take away everything a proxy has written, and end
    #[arg(long)]
    pub(crate) cleanup: bool,
    /// Flags of upstream's that change nothing here
    #[command(flatten)]
    pub(crate) unused: Unused,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

/// Accepted so that command lines written for upstream's program work.
#[derive(Debug, Clone, Args)]
pub(crate) struct Unused {
    #[arg(long, hide = true)]
    pub(crate) bind_address: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) feature_gates: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) iptables_min_sync_period: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) iptables_sync_period: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) iptables_masquerade_bit: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) oom_score_adj: Option<String>,
    #[arg(short, long, hide = true)]
    pub(crate) v: Option<String>,
}
