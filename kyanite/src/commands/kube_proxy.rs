//! `kyanite kube-proxy`: makes Services reachable from this node.

use network::kube_proxy::{Error, cleanup, run as run_proxy};
use network::{ConfigError, Flags, Tracking};

use super::serve;
use crate::cli::kube_proxy::KubeProxy;
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// Runs the proxy until told to stop; the rules stay.
pub(super) async fn run(flags: KubeProxy) -> Result<()> {
    logging::start(&flags.logging)?;
    if flags.cleanup {
        return Ok(cleanup().await?);
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let config = settings(flags).config(&host)?;
    Ok(run_proxy(config, serve::told_to_stop()).await?)
}

fn settings(flags: KubeProxy) -> Flags {
    Flags {
        config: flags.config,
        kubeconfig: flags.kubeconfig,
        hostname_override: flags.hostname_override,
        cluster_cidr: flags.cluster_cidr,
        proxy_mode: flags.proxy_mode,
        detect_local_mode: flags.detect_local_mode,
        pod_bridge_interface: flags.pod_bridge_interface,
        pod_interface_name_prefix: flags.pod_interface_name_prefix,
        masquerade_all: flags.masquerade_all,
        nodeport_addresses: flags.nodeport_addresses,
        healthz_bind_address: flags.healthz_bind_address,
        metrics_bind_address: flags.metrics_bind_address,
        tracking: Tracking {
            max_per_core: flags.conntrack_max_per_core,
            min: flags.conntrack_min,
            tcp_established: flags.conntrack_tcp_timeout_established,
            tcp_close_wait: flags.conntrack_tcp_timeout_close_wait,
        },
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(Code::Usage, error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Client(client_runtime::Error::File { .. }) => Code::Usage,
            Error::Client(client_runtime::Error::Connection { .. }) => Code::Unavailable,
            Error::Listen { .. } => Code::Conflict,
            _ => Code::Failure,
        };
        Failure::new(code, error.to_string())
    }
}
