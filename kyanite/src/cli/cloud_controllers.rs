//! The flags of `kyanite cloud-controller-manager` and `kyanite cloud-node-manager`; upstream's names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use ipnet::IpNet;

use super::controller_manager::Election;
use super::{Logging, duration};

/// Every controller of the cloud's manager.
pub(crate) fn table() -> String {
    let names = ::cloud_controllers::names().map(|name| format!("  {name}\n"));
    format!("Controllers:\n{}", names.collect::<String>())
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CloudControllerManager {
    /// How the API server is reached, and as whom; otherwise as the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// azure.json: which Azure, whose credentials, which group and network
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_config: PathBuf,
    /// Controllers to run: `*` for all, `name` for one more, `-name` for one less
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        value_name = "NAMES"
    )]
    pub(crate) controllers: Vec<String>,
    /// What load balancers are called
    #[arg(long, default_value = "kubernetes", value_name = "NAME")]
    pub(crate) cluster_name: String,
    /// Ranges of pods
    #[arg(long, value_delimiter = ',', value_name = "CIDRS")]
    pub(crate) cluster_cidr: Vec<IpNet>,
    /// Whether nodes get ranges for their pods, without which nothing is routed
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) allocate_node_cidrs: bool,
    /// Whether routes to pods are written
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) configure_cloud_routes: bool,
    /// How often routes are looked at
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub(crate) route_reconciliation_period: Duration,
    /// How often machines of nodes that are not ready are asked about
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub(crate) node_monitor_period: Duration,
    /// How often addresses of nodes are read again
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub(crate) node_status_update_frequency: Duration,
    /// Whether each controller acts as its own service account of kube-system
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) use_service_account_credentials: bool,
    #[command(flatten)]
    pub(crate) election: Election,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CloudNodeManager {
    /// How the API server is reached, and as whom; otherwise as the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The node's name, where it is not the host's
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Whether the machine's metadata service is asked; otherwise Azure Resource Manager
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) use_instance_metadata: bool,
    /// azure.json, for Azure Resource Manager
    #[arg(long, value_name = "FILE", default_value = "")]
    pub(crate) cloud_config: PathBuf,
    /// Keep pods away until there are routes to them
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) wait_routes: bool,
    /// How often the machine is asked again
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub(crate) node_status_update_frequency: Duration,
    /// Write the older labels, too
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) enable_deprecated_beta_topology_labels: bool,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
