//! What the controller manager is told.

use std::path::PathBuf;
use std::time::Duration;

use crate::selection::Selection;

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
        }
    }
}

/// How the API server is reached.
#[derive(Debug, Clone)]
pub enum Connection {
    /// As a kubeconfig's current context says.
    Kubeconfig(PathBuf),
    /// By address, with a client certificate.
    Certificate {
        /// `https://host:port`.
        server: String,
        /// The CA of the server's certificate, PEM.
        ca: PathBuf,
        /// The client certificate and its key, PEM.
        client: KeyPairFiles,
    },
}

/// A certificate and its key on disk, PEM.
#[derive(Debug, Clone)]
pub struct KeyPairFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How the managers of a cluster agree on one of them.
#[derive(Debug, Clone)]
pub struct LeaderElection {
    /// Who we are among the candidates; unique.
    pub identity: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// How long a leader that stopped renewing is still believed.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How often a candidate tries.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// Upstream's names and periods.
    pub fn new(identity: String) -> LeaderElection {
        LeaderElection {
            identity,
            namespace: "kube-system".into(),
            name: "kube-controller-manager".into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
