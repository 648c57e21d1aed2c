//! The agents that are connected now.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Shared;
use super::backend::{Backend, DialError, PendingDial};
use crate::link::Wire;
use crate::metrics::DialFailure;
use crate::strategies::{self, Strategy};

/// What callers are told when there is nobody to dial through; upstream's words.
pub(super) const NO_AGENT: &str = "No agent available";
/// What they are told when the agent does not answer; upstream's words.
pub(super) const DIAL_TIMED_OUT: &str = "timed out waiting for backend dial";
// An agent may go between being chosen and being asked.
const TRIES: usize = 3;

/// All agents, in the order of their arrival.
pub(super) struct Registry {
    strategies: Vec<Strategy>,
    agents: Mutex<Vec<Arc<Backend>>>,
}

impl Registry {
    pub(super) fn new(strategies: Vec<Strategy>) -> Registry {
        Registry {
            strategies,
            agents: Mutex::default(),
        }
    }

    fn agents(&self) -> MutexGuard<'_, Vec<Arc<Backend>>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an agent until the result is dropped, which also ends everything that goes through it.
    pub(super) fn register(&self, backend: &Arc<Backend>) -> Registered<'_> {
        self.agents().push(Arc::clone(backend));
        Registered {
            registry: self,
            backend: Arc::clone(backend),
        }
    }

    fn pick(&self, address: &str) -> Option<Arc<Backend>> {
        let agents = self.agents();
        let chance = |below| rand::random_range(0..below);
        strategies::pick(&self.strategies, &agents, address, chance).cloned()
    }

    /// Agents by strategy, in the order of the strategies.
    pub(super) fn counts(&self) -> Vec<(&'static str, usize)> {
        let agents = self.agents();
        let count = |strategy: &Strategy| (strategy.name(), strategies::count(*strategy, &agents));
        self.strategies.iter().map(count).collect()
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
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut agents = self.registry.agents();
        agents.retain(|agent| !Arc::ptr_eq(agent, &self.backend));
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
