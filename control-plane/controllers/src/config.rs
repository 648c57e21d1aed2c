//! What the controller manager is told.

use std::path::PathBuf;
use std::time::Duration;

use client_runtime::{Connection, KeyPairFiles, LeaderElection, Selection};

use crate::nodes::settings::{NodeIpam, NodeLifecycle};

/// How the manager runs. Key material is named by file and read when it is used, so that a rotated
/// authority is used without a restart and no key stays in memory.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the API server is reached, as `system:kube-controller-manager`.
    pub connection: Connection,
    /// The authority that signs approved requests; without it nothing is signed.
    pub signing: Option<KeyPairFiles>,
    /// The longest life of a signed certificate.
    pub signing_duration: Duration,
    /// The CA bundle that pods get to know the API server by.
    pub root_ca: Option<PathBuf>,
    /// The key of service-account tokens; without it no legacy token is made.
    pub service_account_key: Option<PathBuf>,
    /// Which controllers run.
    pub selection: Selection,
    /// Whether each controller acts as its own service account of kube-system, as upstream's
    /// `--use-service-account-credentials`; otherwise all act as the connection's user.
    pub own_identities: bool,
    /// The election to win before anything runs; none where only one manager can exist.
    pub leader_election: Option<LeaderElection>,
    /// How nodes are watched over.
    pub node_lifecycle: NodeLifecycle,
    /// Which addresses nodes get for their pods; none where that is somebody else's business.
    pub node_ipam: Option<NodeIpam>,
    /// How many pods that have ended are kept; 0 keeps all (`--terminated-pod-gc-threshold`).
    pub terminated_pod_gc_threshold: usize,
}

impl Config {
    /// Every controller, one identity each, no election, certificates for a year at most.
    pub fn new(connection: Connection) -> Config {
        Config {
            connection,
            signing: None,
            signing_duration: Duration::from_secs(365 * 24 * 3600),
            root_ca: None,
            service_account_key: None,
            selection: Selection::everything(),
            own_identities: true,
            leader_election: None,
            node_lifecycle: NodeLifecycle::default(),
            node_ipam: None,
            terminated_pod_gc_threshold: 12_500,
        }
    }
}
