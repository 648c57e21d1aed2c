//! The controller manager: controllers that bring a cluster to the state it should have.
//!
//! ```text
//! API server ─watch─► cache ─change─► queue ─key─► controller: decide ─► actor ─write─► API server
//! ```
//!
//! Each controller is one module: a pure decision about what should be written, and a thin shell
//! around it. They share watches, and each acts as a service account of its own.

mod bootstrap_signer;
mod bootstrap_token;
mod cluster_role_aggregation;
mod config;
mod csr;
mod csr_approving;
mod csr_cleaner;
mod csr_signing;
mod der;
mod namespace;
mod protection;
mod resource_quota;
mod root_ca_publisher;
mod selection;
mod service_account;
mod service_account_token;
mod token_cleaner;
mod watched;

use std::sync::Arc;

use client_runtime::Runtime;

pub use client_runtime::{Connection, Error, KeyPairFiles, LeaderElection};
pub use config::Config;
pub use selection::Selection;

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

/// Who we are to the API server; field managers are called after it.
const AGENT: &str = "kube-controller-manager/kyanite";

/// The manager while its controllers are being started.
type Manager = Runtime<Config>;

/// Runs the chosen controllers until `shutdown` completes; with an election, while this manager leads.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let config = Arc::new(config);
    let start = |client, bare| assemble(&config, client, bare);
    let election = config.leader_election.as_ref();
    client_runtime::lead(&config.connection, AGENT, election, start, shutdown).await
}

fn assemble(config: &Arc<Config>, client: kube::Client, bare: kube::Client) -> Manager {
    let mut manager = Runtime::new(Arc::clone(config), client, bare, config.own_identities);
    for controller in CONTROLLERS {
        if config.selection.includes(&controller) {
            (controller.start)(&mut manager, controller.name);
            tracing::info!(controller = controller.name, "started");
        }
    }
    manager
}
