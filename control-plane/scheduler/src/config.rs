//! What the scheduler is told.

use client_runtime::{Connection, LeaderElection};

use crate::profile::Profile;
use crate::queue::Backoff;

/// How the scheduler runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the API server is reached, as `system:kube-scheduler`.
    pub connection: Connection,
    /// The election to win before anything runs; none where only one scheduler can exist.
    pub leader_election: Option<LeaderElection>,
    /// Which pods are placed, and how.
    pub profiles: Vec<Profile>,
    /// How long pods wait after failures.
    pub backoff: Backoff,
}

impl Config {
    /// Upstream's defaults, and no election.
    pub fn new(connection: Connection) -> Config {
        Config {
            connection,
            leader_election: None,
            profiles: vec![Profile::new("default-scheduler")],
            backoff: Backoff::default(),
        }
    }
}
