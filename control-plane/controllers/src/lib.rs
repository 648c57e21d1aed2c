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
mod csr_serving_approving;
mod csr_signing;
mod garbage;
mod namespace;
mod nodes;
mod protection;
mod resource_quota;
mod root_ca_publisher;
mod service_account;
mod service_account_token;
mod services;
mod token_cleaner;
mod watched;
mod workloads;

use std::sync::Arc;

use client_runtime::Runtime;

pub use client_runtime::{Connection, Error, KeyPairFiles, LeaderElection, Selection};
pub use config::Config;
pub use nodes::settings::{BadRange, NodeIpam, NodeLifecycle};

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

/// Controllers that upstream's manager has not: what AKS' cloud does.
pub const OWN: [&str; 1] = [csr_serving_approving::NAME];

/// Every controller, by upstream's names (`cmd/kube-controller-manager/names`).
#[rustfmt::skip]
const CONTROLLERS: &[Controller] = &[
    controller("serviceaccount-token-controller", "serviceaccount-token", true, service_account_token::start),
    controller("serviceaccount-controller", "serviceaccount", true, service_account::start),
    controller("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", true, root_ca_publisher::start),
    controller("namespace-controller", "namespace", true, namespace::start),
    controller("resourcequota-controller", "resourcequota", true, resource_quota::start),
    controller("clusterrole-aggregation-controller", "clusterrole-aggregation", true, cluster_role_aggregation::start),
    controller("certificatesigningrequest-approving-controller", "csrapproving", true, csr_approving::start),
    controller("certificatesigningrequest-signing-controller", "csrsigning", true, csr_signing::start),
    controller(csr_serving_approving::NAME, "", false, csr_serving_approving::start),
    controller("certificatesigningrequest-cleaner-controller", "csrcleaner", true, csr_cleaner::start),
    controller("persistentvolumeclaim-protection-controller", "pvc-protection", true, protection::claims::start),
    controller("persistentvolume-protection-controller", "pv-protection", true, protection::volumes::start),
    controller("volumeattributesclass-protection-controller", "", true, protection::attribute_classes::start),
    controller("replicaset-controller", "replicaset", true, workloads::replica_set::start),
    controller("replicationcontroller-controller", "replicationcontroller", true, workloads::replica_set::start_for_controllers),
    controller("deployment-controller", "deployment", true, workloads::deployment::start),
    controller("endpointslice-controller", "endpointslice", true, services::endpoint_slices::start),
    controller("endpoints-controller", "endpoint", true, services::endpoints::start),
    controller("endpointslice-mirroring-controller", "endpointslicemirroring", true, services::mirroring::start),
    controller("node-lifecycle-controller", "nodelifecycle", true, nodes::lifecycle::start),
    controller("taint-eviction-controller", "", true, nodes::taint_eviction::start),
    controller("node-ipam-controller", "nodeipam", true, nodes::ipam::start),
    controller("garbage-collector-controller", "garbagecollector", true, garbage::collector::start),
    controller("pod-garbage-collector-controller", "podgc", true, garbage::pods::start),
    controller("job-controller", "job", true, workloads::job::start),
    controller("ttl-after-finished-controller", "ttl-after-finished", true, workloads::ttl_after_finished::start),
    controller("daemonset-controller", "daemonset", true, workloads::daemon_set::start),
    controller("statefulset-controller", "statefulset", true, workloads::stateful_set::start),
    controller("cronjob-controller", "cronjob", true, workloads::cron_job::start),
    controller("disruption-controller", "disruption", true, workloads::disruption::start),
    controller("ttl-controller", "ttl", true, workloads::node_ttl::start),
    controller("ephemeral-volume-controller", "ephemeral-volume", true, workloads::ephemeral_claims::start),
    controller("resourceclaim-controller", "resource-claim-controller", true, workloads::resource_claims::start),
    controller("service-cidr-controller", "", true, services::cidrs::start),
    controller("bootstrap-signer-controller", "bootstrapsigner", false, bootstrap_signer::start),
    controller("token-cleaner-controller", "tokencleaner", false, token_cleaner::start),
];

/// Upstream's controllers that are not here, and why. Their names are known, so that lists made for upstream's
/// manager are understood.
#[rustfmt::skip]
const LATER: [(&str, &str, &str); 16] = [
    ("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", "needs the metrics APIs"),
    ("persistentvolume-binder-controller", "persistentvolume-binder", "storage is not served by drivers yet"),
    ("persistentvolume-attach-detach-controller", "attachdetach", "storage is not served by drivers yet"),
    ("persistentvolume-expander-controller", "persistentvolume-expander", "storage is not served by drivers yet"),
    ("selinux-warning-controller", "", "off by default upstream; no node labels volumes"),
    ("service-lb-controller", "service", "belongs to the cloud's controller manager"),
    ("node-route-controller", "route", "belongs to the cloud's controller manager"),
    ("cloud-node-lifecycle-controller", "cloud-node-lifecycle", "belongs to the cloud's controller manager"),
    ("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner", "no token is made without being asked for"),
    ("validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status", "the API server checks expressions when they are written"),
    ("storageversion-garbage-collector-controller", "storage-version-gc", "off by default upstream; storage versions are not recorded"),
    ("storage-version-migrator-controller", "", "off by default upstream; every kind is stored in one version"),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", "", "off by default upstream; its API is a beta that is not served"),
    ("podcertificaterequest-cleaner-controller", "", "off by default upstream; its API is a beta that is not served"),
    ("device-taint-eviction-controller", "", "off by default upstream; its API is a beta that is not served"),
    ("resourcepoolstatusrequest-controller", "", "off by default upstream; its API is an alpha that is not served"),
];

/// Upstream's controllers that are not here: their names, and why not.
pub fn later() -> impl Iterator<Item = (&'static str, &'static str)> {
    LATER.iter().map(|(name, _, why)| (*name, *why))
}

/// The names of every controller there is here; another manager beside this one must leave these alone.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|controller| controller.name)
}

/// Reads a list of controllers, as upstream's `--controllers`; names of those that are not here are known, too.
pub fn select<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Selection, String> {
    Selection::parse(entries, |name| {
        CONTROLLERS.iter().any(|c| c.is_called(name))
            || LATER.iter().any(|row| row.0 == name || row.1 == name)
    })
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
        if config
            .selection
            .includes(|name| controller.is_called(name), controller.on_by_default)
        {
            (controller.start)(&mut manager, controller.name);
            tracing::info!(controller = controller.name, "started");
        }
    }
    manager
}
