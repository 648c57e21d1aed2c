//! `kyanite controller-manager`: the controllers alone, beside any API server.

use controllers::{Config, Connection, KeyPairFiles, LeaderElection};

use super::own_pages::OwnPages;
use super::serve;
use crate::cli::controller_manager::{ControllerManager, Election};
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// Runs the controllers until told to stop.
pub(super) async fn run(flags: ControllerManager) -> Result<()> {
    logging::start(&flags.logging)?;
    let pages = OwnPages {
        component: "kube-controller-manager",
        port: 10257,
        measured: client_runtime::metrics::register,
        kubeconfig: flags.kubeconfig.clone(),
    };
    let pages = pages.open(&flags.pages).await?;
    let config = config(flags)?;
    tokio::select! {
        outcome = controllers::run(config, serve::told_to_stop()) => outcome.map_err(failure),
        () = pages => Ok(()),
    }
}

fn config(flags: ControllerManager) -> Result<Config> {
    let chosen = flags.controllers.iter().map(String::as_str);
    let selection = controllers::select(chosen)
        .map_err(|e| Failure::new(Code::Usage, format!("--controllers cannot be read: {e}")))?;
    let signing = flags
        .cluster_signing_cert_file
        .clone()
        .zip(flags.cluster_signing_key_file.clone())
        .map(|(cert, key)| KeyPairFiles { cert, key });
    let election = election(&flags.election, "kube-controller-manager")?;
    flags.nodes.warn();
    let services = &flags.service_cluster_ip_range;
    let ipam = flags.nodes.ipam(false, Vec::new(), services);
    Ok(Config {
        signing,
        signing_duration: flags.cluster_signing_duration,
        root_ca: flags.root_ca_file,
        service_account_key: flags.service_account_private_key_file,
        selection,
        own_identities: flags.use_service_account_credentials,
        leader_election: election,
        node_lifecycle: flags.nodes.lifecycle(),
        node_ipam: ipam.map_err(|cause| Failure::new(Code::Usage, cause))?,
        terminated_pod_gc_threshold: flags.nodes.terminated_pod_gc_threshold,
        ..Config::new(Connection::Kubeconfig(flags.kubeconfig))
    })
}

/// The election for a lease, if there is to be one. As client-go checks it: a leader must have given up before another
/// one may start.
pub(super) fn election(flags: &Election, lease: &str) -> Result<Option<LeaderElection>> {
    if !flags.leader_elect {
        return Ok(None);
    }
    let wrong = |text: &str| Failure::new(Code::Usage, text);
    if flags.leader_elect_lease_duration <= flags.leader_elect_renew_deadline {
        return Err(wrong(
            "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline",
        ));
    }
    if flags.leader_elect_renew_deadline <= flags.leader_elect_retry_period.mul_f64(1.2) {
        return Err(wrong(
            "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period",
        ));
    }
    Ok(Some(LeaderElection {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
        ..LeaderElection::new(lease, identity())
    }))
}

// The host's name and something that no other process has.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:032x}", host.trim(), rand::random::<u128>())
}

/// Why a manager ended, with the code to end with.
pub(super) fn failure(error: controllers::Error) -> Failure {
    let code = match &error {
        controllers::Error::File { .. } => Code::Usage,
        controllers::Error::LeaseLost => Code::Conflict,
        controllers::Error::Connection { .. } => Code::Unavailable,
        controllers::Error::Broken(_) => Code::Failure,
    };
    Failure::new(code, error.to_string())
}
