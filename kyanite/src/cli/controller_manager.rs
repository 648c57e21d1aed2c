//! The flags of `kyanite controller-manager`; upstream's names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use ipnet::IpNet;

use super::node_controllers::NodeControllers;
use super::{Logging, SecurePort, duration};

/// Every controller of upstream's: those that are here, and those that are not, with the reason.
pub(crate) fn table() -> String {
    let mut text = String::from("Controllers:\n");
    for name in controllers::names() {
        text += &format!("  {name}\n");
    }
    text += "\nNot here yet:\n";
    for (name, why) in controllers::later() {
        text += &format!("  {name}: {why}\n");
    }
    text
}

/// How managers agree on one that works.
#[derive(Debug, Clone, Args)]
pub(crate) struct Election {
    /// Whether to run only while this manager holds the lease
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) leader_elect: bool,
    /// How long a leader that stopped renewing is still believed
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub(crate) leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew before it gives up
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub(crate) leader_elect_renew_deadline: Duration,
    /// How often it is tried to get or keep the lease
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    pub(crate) leader_elect_retry_period: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ControllerManager {
    /// How the API server is reached, and as whom
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// CA that signs certificate requests, PEM
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    pub(crate) cluster_signing_cert_file: Option<PathBuf>,
    /// Key of that CA
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    pub(crate) cluster_signing_key_file: Option<PathBuf>,
    /// The longest life of a signed certificate
    #[arg(long, default_value = "8760h", value_parser = duration, value_name = "DURATION")]
    pub(crate) cluster_signing_duration: Duration,
    /// CA bundle that goes into every namespace and into token secrets
    #[arg(long, value_name = "FILE")]
    pub(crate) root_ca_file: Option<PathBuf>,
    /// Key that signs service account tokens
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_private_key_file: Option<PathBuf>,
    /// Controllers to run: `*` for those on by default, `name` for one more, `-name` for one less
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        value_name = "NAMES"
    )]
    pub(crate) controllers: Vec<String>,
    /// Whether each controller acts as its own service account of kube-system
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) use_service_account_credentials: bool,
    #[command(flatten)]
    pub(crate) election: Election,
    /// Virtual IPs of services, which no node gets for its pods
    #[arg(long, value_delimiter = ',', value_name = "CIDRS")]
    pub(crate) service_cluster_ip_range: Vec<IpNet>,
    #[command(flatten)]
    pub(crate) nodes: NodeControllers,
    #[command(flatten)]
    pub(crate) pages: SecurePort,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
