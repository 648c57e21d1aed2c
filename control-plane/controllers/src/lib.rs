//! The controller manager: controllers that bring a cluster to the state it should have.
//!
//! ```text
//! API server ─watch─► cache ─change─► queue ─key─► controller: decide ─► actor ─write─► API server
//! ```
//!
//! Each controller is one module: a pure decision about what should be written, and a thin shell
//! around it. They share the watches of [`manager`], and each acts as a service account of its own.

mod actor;
mod bootstrap_signer;
mod bootstrap_token;
mod cache;
mod cluster_role_aggregation;
mod config;
mod connect;
mod csr;
mod csr_approving;
mod csr_cleaner;
mod csr_signing;
mod der;
mod leader_election;
mod manager;
mod namespace;
mod protection;
mod queue;
mod resource_quota;
mod root_ca_publisher;
mod selection;
mod service_account;
mod service_account_token;
mod token_cleaner;
mod watched;
mod worker;

use std::path::Path;
use std::sync::Arc;

pub use config::{Config, Connection, KeyPairFiles, LeaderElection};
pub use selection::Selection;

use actor::Actor;
use manager::Manager;

/// One controller: its name, the name it had before, and how it starts.
struct Controller {
    name: &'static str,
    alias: &'static str,
    on_by_default: bool,
    start: fn(&mut Manager, &'static str),
}

impl Controller {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || (!name.is_empty() && self.alias == name)
    }
}

const fn controller(
    name: &'static str,
    alias: &'static str,
    on_by_default: bool,
    start: fn(&mut Manager, &'static str),
) -> Controller {
    Controller {
        name,
        alias,
        on_by_default,
        start,
    }
}

/// Every controller, by upstream's names (`cmd/kube-controller-manager/names`).
#[rustfmt::skip]
const CONTROLLERS: [Controller; 14] = [
    controller("serviceaccount-token-controller", "serviceaccount-token", true, service_account_token::start),
    controller("serviceaccount-controller", "serviceaccount", true, service_account::start),
    controller("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", true, root_ca_publisher::start),
    controller("namespace-controller", "namespace", true, namespace::start),
    controller("resourcequota-controller", "resourcequota", true, resource_quota::start),
    controller("clusterrole-aggregation-controller", "clusterrole-aggregation", true, cluster_role_aggregation::start),
    controller("certificatesigningrequest-approving-controller", "csrapproving", true, csr_approving::start),
    controller("certificatesigningrequest-signing-controller", "csrsigning", true, csr_signing::start),
    controller("certificatesigningrequest-cleaner-controller", "csrcleaner", true, csr_cleaner::start),
    controller("persistentvolumeclaim-protection-controller", "pvc-protection", true, protection::claims::start),
    controller("persistentvolume-protection-controller", "pv-protection", true, protection::volumes::start),
    controller("volumeattributesclass-protection-controller", "", true, protection::attribute_classes::start),
    controller("bootstrap-signer-controller", "bootstrapsigner", false, bootstrap_signer::start),
    controller("token-cleaner-controller", "tokencleaner", false, token_cleaner::start),
];

/// The names of every controller there is here; another manager beside this one must leave these alone.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|controller| controller.name)
}

/// Why the manager could not run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that was named is of no use.
    #[error("cannot {action} `{path}`: {cause}")]
    File {
        /// What was to be done with it.
        action: &'static str,
        /// Which file.
        path: String,
        /// Why not.
        cause: String,
    },
    /// The API server cannot be reached the way it was described.
    #[error("cannot connect to the API server as `{place}` says: {cause}")]
    Connection {
        /// The kubeconfig or address.
        place: String,
        /// Why not.
        cause: String,
    },
    /// Another manager leads now.
    #[error("leader election lost: another controller manager may lead now")]
    LeaseLost,
    /// A part of the manager ended that must not.
    #[error("the controller manager is broken: {0}")]
    Broken(String),
}

impl Error {
    fn file(action: &'static str, path: &Path, cause: &dyn std::fmt::Display) -> Error {
        Error::File {
            action,
            path: path.display().to_string(),
            cause: cause.to_string(),
        }
    }
}

/// Runs the chosen controllers until `shutdown` completes; with an election, while this manager leads.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let config = Arc::new(config);
    let (client, bare) = connect::clients(&config.connection).await?;
    let actor = Actor::of_client(client.clone());
    let mut shutdown = std::pin::pin!(shutdown);
    let mut seat = None;
    if let Some(election) = &config.leader_election {
        seat = tokio::select! {
            () = &mut shutdown => return Ok(()),
            won = leader_election::acquire(&actor, election) => Some(won),
        };
    }
    let manager = assemble(&config, client, bare);
    let outcome = tokio::select! {
        () = &mut shutdown => Ok(()),
        broken = manager.run() => Err(broken),
        lost = keep_leading(&actor, seat.as_mut()) => Err(lost),
    };
    // What still ran has been dropped: nobody acts on our behalf when the next one starts.
    if let (Ok(()), Some(seat)) = (&outcome, seat.as_mut()) {
        leader_election::release(&actor, seat).await;
    }
    outcome
}

fn assemble(config: &Arc<Config>, client: kube::Client, bare: kube::Client) -> Manager {
    let mut manager = Manager::new(Arc::clone(config), client, bare);
    for controller in CONTROLLERS {
        if config.selection.includes(&controller) {
            (controller.start)(&mut manager, controller.name);
            tracing::info!(controller = controller.name, "started");
        }
    }
    manager
}

async fn keep_leading(actor: &Actor, seat: Option<&mut leader_election::Seat>) -> Error {
    match seat {
        Some(seat) => leader_election::hold(actor, seat).await,
        None => std::future::pending().await,
    }
}
