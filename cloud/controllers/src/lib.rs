//! The cloud controllers: nodes, routes and load balancers follow Azure, ours or the real one.
//!
//! ```text
//! nodes/initialise  a new node learns from its machine who and where it is
//! nodes/lifecycle   a node goes with its machine, and is marked while that is off
//! nodes/routes      ranges of pods into the table of routes
//! nodes/manager     cloud-node-manager: the first of these, on the node itself
//! services          Services of type LoadBalancer: addresses, rules, probes, pools, security rules
//! parts             how lists inside Azure's resources are brought to what they should be
//! ```
//!
//! As in every role here: decisions are pure, what they need is read before and what they want is written after.

mod nodes;
mod parts;
mod services;

use std::sync::Arc;
use std::time::Duration;

use azure::{Arm, CloudConfig};
use client_runtime::Runtime;
use ipnet::IpNet;

pub use client_runtime::{Connection, Error, LeaderElection, Selection};
use nodes::instances::Instances;
pub use nodes::manager::{NodeManager, Provider, run as run_node_manager};

/// What the manager is told.
pub struct Config {
    /// How the API server is reached.
    pub connection: Connection,
    /// azure.json.
    pub cloud: Arc<CloudConfig>,
    /// Which controllers run.
    pub selection: Selection,
    /// Whether each acts as its own service account of kube-system.
    pub own_identities: bool,
    /// The election to win before anything runs.
    pub leader_election: Option<LeaderElection>,
    /// The cluster's name, which load balancers are called by.
    pub cluster_name: String,
    /// The ranges of pods.
    pub cluster_cidrs: Vec<IpNet>,
    /// Whether routes to pods are ours to write.
    pub routes: bool,
    /// How often routes are looked at.
    pub route_reconciliation_period: Duration,
    /// How often machines of nodes that are not ready are asked about.
    pub node_monitor_period: Duration,
    /// How often addresses of nodes are read again.
    pub node_status_update_frequency: Duration,
    /// Whether nodes are followed that never said that they are of a cloud: upstream's manager takes them for machines
    /// that are gone.
    pub follows_strangers: bool,
    /// Whether machines of nodes that are well are asked about, too: a list for each set instead of the wait until a
    /// node is silent.
    pub asks_about_well: bool,
    instances: Arc<Instances>,
}

impl Config {
    /// Every controller with upstream's periods, no election.
    pub fn new(connection: Connection, cloud: CloudConfig, arm: Arm) -> Config {
        let cloud = Arc::new(cloud);
        Config {
            connection,
            instances: Arc::new(Instances::new(arm, Arc::clone(&cloud))),
            cloud,
            selection: Selection::everything(),
            own_identities: false,
            leader_election: None,
            cluster_name: "kubernetes".into(),
            cluster_cidrs: Vec::new(),
            routes: true,
            route_reconciliation_period: Duration::from_secs(10),
            node_monitor_period: Duration::from_secs(5),
            node_status_update_frequency: Duration::from_secs(300),
            follows_strangers: true,
            asks_about_well: false,
        }
    }

    fn instances(&self) -> Arc<Instances> {
        Arc::clone(&self.instances)
    }
}

/// The manager while its controllers are being started.
type Manager = Runtime<Config>;

/// Every controller: its name, its alias, and how it starts.
type Row = (&'static str, &'static str, fn(&mut Manager, &'static str));

#[rustfmt::skip]
const CONTROLLERS: &[Row] = &[
    ("cloud-node-controller", "cloud-node", nodes::initialise::start),
    ("cloud-node-lifecycle-controller", "cloud-node-lifecycle", nodes::lifecycle::start),
    ("node-route-controller", "route", nodes::routes::start),
    ("service-lb-controller", "service", services::start),
];

/// The names of every controller there is here.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|row| row.0)
}

/// Reads a list of controllers, as upstream's `--controllers`.
pub fn select<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Selection, String> {
    // Ranges of pods are given out by the controller manager here.
    let elsewhere = ["node-ipam", "node-ipam-controller"];
    Selection::parse(entries, |name| {
        CONTROLLERS.iter().any(|row| row.0 == name || row.1 == name) || elsewhere.contains(&name)
    })
}

/// Who we are to the API server.
const AGENT: &str = "cloud-controller-manager/kyanite";

/// Runs the chosen controllers until `shutdown` completes; with an election, while this manager leads.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let config = Arc::new(config);
    let start = |client, bare| assemble(&config, client, bare);
    let election = config.leader_election.as_ref();
    client_runtime::lead(&config.connection, AGENT, election, start, shutdown).await
}

fn assemble(config: &Arc<Config>, client: kube::Client, bare: kube::Client) -> Manager {
    let mut manager = Runtime::new(Arc::clone(config), client, bare, config.own_identities);
    for (name, alias, start) in CONTROLLERS {
        let is_called = |called: &str| called == *name || called == *alias;
        if config.selection.includes(is_called, true) {
            start(&mut manager, name);
            tracing::info!(controller = name, "started");
        }
    }
    manager
}
