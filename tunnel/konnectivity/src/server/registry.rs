//! The agents that are connected now.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Shared;
use super::backend::{Backend, DialError, PendingDial};
use crate::http2::Leaver;
use crate::link::{Wire, lock};
use crate::metrics::DialFailure;
use crate::strategies::{self, Candidate, Identifiers, Strategy};

/// What callers are told when there is nobody to dial through; upstream's words.
pub(super) const NO_AGENT: &str = "No agent available";
/// What they are told when the agent does not answer; upstream's words.
pub(super) const DIAL_TIMED_OUT: &str = "timed out waiting for backend dial";
/// What callers and agents are told that come at the end.
pub(super) const SHUTTING_DOWN: &str = "the server is shutting down";
// An agent may go between being chosen and being asked.
const TRIES: usize = 3;

/// All agents, in the order of their arrival.
pub(super) struct Registry {
    strategies: Vec<Strategy>,
    agents: Mutex<Vec<Entry>>,
}

/// An agent as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectedAgent {
    /// The name it gave itself.
    pub id: String,
    /// The hosts it says it is.
    pub hosts: Vec<String>,
    /// How many connections go through it.
    pub connections: usize,
}

struct Entry {
    backend: Arc<Backend>,
    leaver: Leaver,
    /// Whether it seems to take nothing any more.
    suspect: Arc<AtomicBool>,
}

impl Candidate for Entry {
    fn agent_id(&self) -> &str {
        self.backend.agent_id()
    }

    fn identifiers(&self) -> &Identifiers {
        self.backend.identifiers()
    }

    fn draining(&self) -> bool {
        self.backend.draining() || self.suspect.load(Ordering::Relaxed)
    }

    fn load(&self) -> usize {
        self.backend.load()
    }
}

impl Registry {
    pub(super) fn new(strategies: Vec<Strategy>) -> Registry {
        Registry {
            strategies,
            agents: Mutex::default(),
        }
    }

    fn agents(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an agent until the result is dropped, which also ends everything that goes through it.
    pub(super) fn register(&self, backend: &Arc<Backend>, leaver: Leaver) -> Registered<'_> {
        let suspect = Arc::new(AtomicBool::new(false));
        self.agents().push(Entry {
            backend: Arc::clone(backend),
            leaver,
            suspect: Arc::clone(&suspect),
        });
        Registered {
            suspect,
            registry: self,
            backend: Arc::clone(backend),
        }
    }

    fn pick(&self, address: &str) -> Option<Arc<Backend>> {
        let agents = self.agents();
        let chance = |below| rand::random_range(0..below);
        let found = strategies::pick(&self.strategies, &agents, address, chance);
        found.map(|entry| Arc::clone(&entry.backend))
    }

    /// Tells agents to look for another server. They keep what runs here, but upstream's would cut it: those hear of
    /// it when it is over.
    pub(super) fn leave(&self) {
        for entry in self.agents().iter() {
            if lock(&entry.backend.lanes).extended() {
                entry.leaver.leave();
            }
        }
    }

    /// Agents by strategy, in the order of the strategies.
    pub(super) fn counts(&self) -> Vec<(&'static str, usize)> {
        let agents = self.agents();
        let count = |strategy: &Strategy| (strategy.name(), strategies::count(*strategy, &agents));
        self.strategies.iter().map(count).collect()
    }

    /// Every agent with its addresses, in the order of their arrival.
    pub(super) fn all(&self) -> Vec<ConnectedAgent> {
        let agents = self.agents();
        let shown = agents.iter().map(|entry| ConnectedAgent {
            id: entry.agent_id().to_owned(),
            hosts: entry.identifiers().hosts().to_vec(),
            connections: entry.load(),
        });
        shown.collect()
    }

    /// Whether the first strategy has somebody to choose.
    pub(super) fn is_ready(&self) -> bool {
        self.counts().first().is_some_and(|(_, count)| *count > 0)
    }
}

/// An agent's place among the others.
pub(super) struct Registered<'a> {
    registry: &'a Registry,
    backend: Arc<Backend>,
    /// Whether others are chosen before it.
    pub(super) suspect: Arc<AtomicBool>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut agents = self.registry.agents();
        agents.retain(|agent| !Arc::ptr_eq(&agent.backend, &self.backend));
        drop(agents);
        self.backend.lose("context canceled");
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoConnection {
    #[error("{NO_AGENT}")]
    NoAgent,
    #[error("{DIAL_TIMED_OUT}")]
    Timeout,
    #[error("{SHUTTING_DOWN}")]
    ShuttingDown,
    #[error(transparent)]
    Failed(DialError),
}

impl Shared {
    /// Chooses an agent and asks it.
    pub(super) fn dial(
        &self,
        random: i64,
        protocol: &str,
        address: &str,
    ) -> Result<(PendingDial, Arc<Backend>), NoConnection> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(NoConnection::ShuttingDown);
        }
        let mut last = NoConnection::NoAgent;
        for _ in 0..TRIES {
            let Some(backend) = self.registry.pick(address) else {
                break;
            };
            match backend.dial(random, protocol.to_owned(), address.to_owned()) {
                Ok(pending) => return Ok((pending, backend)),
                Err(error @ DialError::Lost(_)) => last = NoConnection::Failed(error),
                Err(error) => {
                    last = NoConnection::Failed(error);
                    break;
                }
            }
        }
        if last == NoConnection::NoAgent {
            self.metrics.dial_failed(DialFailure::NoAgent);
        }
        Err(last)
    }

    /// The agent's answer, in time.
    pub(super) async fn answer(&self, pending: &mut PendingDial) -> Result<Wire, NoConnection> {
        let limit: Duration = self.dial_timeout;
        match tokio::time::timeout(limit, pending.answer()).await {
            Ok(answer) => answer.map_err(NoConnection::Failed),
            Err(_) => {
                self.metrics.dial_failed(DialFailure::BackendDialTimeout);
                Err(NoConnection::Timeout)
            }
        }
    }
}
