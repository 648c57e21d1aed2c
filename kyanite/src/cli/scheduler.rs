//! The flags of `kyanite scheduler`; upstream's names.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::{Logging, SecurePort, duration};

#[derive(Debug, Clone, Args)]
pub(crate) struct Scheduler {
    /// A KubeSchedulerConfiguration, YAML or JSON: profiles, plugins and their arguments
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How the API server is reached, and as whom; a configuration's `clientConnection` may say it instead
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Whether to run only while this scheduler holds the lease
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub(crate) leader_elect: Option<bool>,
    /// How long a leader that stopped renewing is still believed [default: 15s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) leader_elect_lease_duration: Option<Duration>,
    /// How long the leader tries to renew before it gives up [default: 10s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) leader_elect_renew_deadline: Option<Duration>,
    /// How often it is tried to get or keep the lease [default: 2s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) leader_elect_retry_period: Option<Duration>,
    /// Namespace of the lease [default: kube-system]
    #[arg(long, value_name = "NAME")]
    pub(crate) leader_elect_resource_namespace: Option<String>,
    /// Name of the lease [default: kube-scheduler]
    #[arg(long, value_name = "NAME")]
    pub(crate) leader_elect_resource_name: Option<String>,
    #[command(flatten)]
    pub(crate) pages: SecurePort,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
