//! The scheduler: finds a node for every pod that has none.
//!
//! ```text
//! API server ─watch─► brain: queue ─► placement (view of the cluster) ─► binding ─► API server
//!                                        └─► preemption, FailedScheduling
//! ```
//!
//! [`driver`] is the shell. Everything it decides is decided by [`brain`], which does no I/O and is told the time:
//! [`queue`] says whose turn it is, [`placement`] finds the node, [`preemption`] finds who must go. The cluster is
//! columns ([`cluster`]); a [`view`] is what one kind of pod makes of it, kept up to date change by change.

pub mod ask;
pub mod brain;
pub mod cluster;
mod config;
mod configuration;
mod driver;
pub mod hints;
pub mod metrics;
pub mod placement;
pub mod preemption;
pub mod profile;
pub mod queue;
pub mod selector;
pub mod symbols;
pub mod ties;
pub mod verdict;
pub mod view;

use std::sync::Arc;

use client_runtime::Runtime;

pub use ask::Ask;
pub use brain::{Action, Brain};
pub use client_runtime::{Connection, Error, KeyPairFiles, LeaderElection};
pub use cluster::{Cluster, Pod};
pub use config::Config;
pub use configuration::{Configuration, ConfigurationError};
pub use hints::Event;
pub use placement::{Place, Placement, Waiting};
pub use preemption::{Budget, Preempted};
pub use profile::{PLUGINS, Plugin, Profile, Strategy};
pub use queue::{Backoff, Queue};
pub use selector::Selector;
pub use ties::Ties;
pub use verdict::{Diagnosis, Verdict};
pub use view::scan::Found;

/// The field manager of what we write is taken from here.
const AGENT: &str = "kube-scheduler/kyanite";

/// Schedules pods until `shutdown` completes; with an election, while this scheduler leads.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let config = Arc::new(config);
    let start = |client, bare| {
        let mut runtime = Runtime::new(Arc::clone(&config), client, bare, false);
        driver::start(&mut runtime);
        runtime
    };
    let election = config.leader_election.as_ref();
    client_runtime::lead(&config.connection, AGENT, election, start, shutdown).await
}
