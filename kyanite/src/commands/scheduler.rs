//! `kyanite scheduler`: the scheduler alone, beside any API server.

use std::path::PathBuf;

use ::scheduler::{Config, Configuration, Connection, LeaderElection};

use super::own_pages::OwnPages;
use super::serve;
use crate::cli::scheduler::Scheduler;
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// Schedules pods until told to stop.
pub(super) async fn run(flags: Scheduler) -> Result<()> {
    logging::start(&flags.logging)?;
    let told = told(&flags)?;
    let kubeconfig = kubeconfig(&flags, &told)?;
    let pages = OwnPages {
        component: "kube-scheduler",
        port: 10259,
        measured: |registry| {
            client_runtime::metrics::register(registry);
            ::scheduler::metrics::register(registry);
        },
        kubeconfig: kubeconfig.clone(),
    };
    let pages = pages.open(&flags.pages).await?;
    let config = config(&flags, told, kubeconfig)?;
    tokio::select! {
        outcome = ::scheduler::run(config, serve::told_to_stop()) => outcome.map_err(failure),
        () = pages => Ok(()),
    }
}

fn told(flags: &Scheduler) -> Result<Configuration> {
    match &flags.config {
        Some(path) => {
            Configuration::read(path).map_err(|e| Failure::new(Code::Usage, e.to_string()))
        }
        None => Ok(Configuration::default()),
    }
}

fn kubeconfig(flags: &Scheduler, told: &Configuration) -> Result<PathBuf> {
    let named = flags.kubeconfig.clone().or(told.kubeconfig.clone());
    let what = "the scheduler is not told how to reach the API server";
    named.ok_or_else(|| {
        Failure::new(Code::Usage, what)
            .hint("give --kubeconfig, or clientConnection.kubeconfig in the file of --config")
    })
}

fn config(flags: &Scheduler, told: Configuration, kubeconfig: PathBuf) -> Result<Config> {
    let leads = flags.leader_elect.unwrap_or(told.leader_elect);
    let election = leads.then(|| election(flags, &told)).transpose()?;
    Ok(Config {
        leader_election: election,
        profiles: told.profiles,
        backoff: told.backoff,
        ..Config::new(Connection::Kubeconfig(kubeconfig))
    })
}

// As client-go checks it: a leader must have given up before another one may start.
fn election(flags: &Scheduler, told: &Configuration) -> Result<LeaderElection> {
    let base = told.election(identity());
    let election = LeaderElection {
        lease_duration: flags
            .leader_elect_lease_duration
            .unwrap_or(base.lease_duration),
        renew_deadline: flags
            .leader_elect_renew_deadline
            .unwrap_or(base.renew_deadline),
        retry_period: flags.leader_elect_retry_period.unwrap_or(base.retry_period),
        namespace: flags
            .leader_elect_resource_namespace
            .clone()
            .unwrap_or(base.namespace),
        name: flags
            .leader_elect_resource_name
            .clone()
            .unwrap_or(base.name),
        identity: base.identity,
    };
    let wrong = |text: &str| Err(Failure::new(Code::Usage, text));
    if election.lease_duration <= election.renew_deadline {
        return wrong(
            "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline",
        );
    }
    if election.renew_deadline <= election.retry_period.mul_f64(1.2) {
        return wrong(
            "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period",
        );
    }
    Ok(election)
}

// The host's name and something that no other process has.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:032x}", host.trim(), rand::random::<u128>())
}

fn failure(error: ::scheduler::Error) -> Failure {
    let code = match &error {
        ::scheduler::Error::File { .. } => Code::Usage,
        ::scheduler::Error::LeaseLost => Code::Conflict,
        ::scheduler::Error::Connection { .. } => Code::Unavailable,
        ::scheduler::Error::Broken(_) => Code::Failure,
    };
    Failure::new(code, error.to_string())
}
