//! One agent's stream as the server sees it: dials that wait for an answer, and connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

use crate::lanes::{Delivery, Lanes, Side};
use crate::link::{SharedLanes, Wire, lock};
use crate::metrics::{DialFailure, ServerMetrics};
use crate::packet::Packet;
use crate::strategies::{Candidate, Identifiers};

/// The most dials that may wait for one agent: beyond it, something is wrong there.
const MAX_PENDING: usize = 10_000;

/// Why a dial failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DialError {
    /// The agent's own words.
    #[error("{0}")]
    Endpoint(String),
    /// The agent gave it up.
    #[error("dial closed")]
    Closed,
    /// The agent is gone.
    #[error("{0}")]
    Lost(String),
    #[error("too many dials wait for the agent")]
    TooMany,
    #[error("a dial with this id is already waiting")]
    Duplicate,
}

type Answer = oneshot::Sender<Result<Wire, DialError>>;

/// An agent.
pub(crate) struct Backend {
    pub(crate) agent_id: String,
    identifiers: Identifiers,
    pub(crate) lanes: SharedLanes,
    pending: Mutex<Pending>,
    draining: AtomicBool,
    metrics: Arc<ServerMetrics>,
}

#[derive(Default)]
struct Pending {
    dials: HashMap<i64, Answer>,
    lost: Option<String>,
}

impl Backend {
    pub(crate) fn new(
        agent_id: String,
        identifiers: Identifiers,
        peer_window: Option<i64>,
        metrics: Arc<ServerMetrics>,
    ) -> Arc<Backend> {
        let lanes = Lanes::new(Side::Server, peer_window);
        Arc::new(Backend {
            agent_id,
            identifiers,
            lanes: Arc::new(Mutex::new(lanes)),
            pending: Mutex::default(),
            draining: AtomicBool::new(false),
            metrics,
        })
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the agent to connect to `address`.
    pub(crate) fn dial(
        self: &Arc<Self>,
        random: i64,
        protocol: String,
        address: String,
    ) -> Result<PendingDial, DialError> {
        let (answer, waiting) = oneshot::channel();
        let mut pending = self.pending();
        if let Some(lost) = &pending.lost {
            return Err(DialError::Lost(lost.clone()));
        }
        if pending.dials.len() >= MAX_PENDING {
            return Err(DialError::TooMany);
        }
        match pending.dials.entry(random) {
            Entry::Occupied(_) => return Err(DialError::Duplicate),
            Entry::Vacant(place) => place.insert(answer),
        };
        drop(pending);
        lock(&self.lanes).control(Packet::DialRequest {
            random,
            protocol,
            address,
        });
        Ok(PendingDial {
            backend: Arc::clone(self),
            random,
            waiting,
            since: Instant::now(),
        })
    }

    /// Judges a packet of the agent; the connection it found congested, if any.
    pub(crate) fn receive(&self, packet: Packet) -> Option<i64> {
        match packet {
            Packet::DialResponse { random, id, error } => self.answered(random, id, error),
            Packet::DialClose { random } => {
                if let Some(answer) = self.pending().dials.remove(&random) {
                    self.metrics.dial_failed(DialFailure::BackendClose);
                    // Nobody may be waiting any more.
                    let _ = answer.send(Err(DialError::Closed));
                }
            }
            Packet::Data { id: 0, .. } => {}
            Packet::Data { id, data } => {
                let mut lanes = lock(&self.lanes);
                match lanes.deliver(id, data) {
                    Delivery::Taken => {}
                    Delivery::Congested => return Some(id),
                    Delivery::Unknown => lanes.control(Packet::CloseRequest { id }),
                }
            }
            Packet::CloseResponse { id, error } => {
                lock(&self.lanes).close(id, error);
            }
            Packet::EndOfData { id } => lock(&self.lanes).end_of_data(id),
            Packet::Credit { id, bytes } => lock(&self.lanes).credit(id, bytes),
            Packet::Drain => self.draining.store(true, Ordering::Relaxed),
            Packet::DialRequest { .. } | Packet::CloseRequest { .. } | Packet::Unknown => {}
        }
        None
    }

    fn answered(&self, random: i64, id: i64, error: String) {
        let Some(answer) = self.pending().dials.remove(&random) else {
            self.metrics.dial_failed(DialFailure::UnrecognizedResponse);
            // It was cancelled, or never asked for: the agent must not keep it.
            if id != 0 && !lock(&self.lanes).has(id) {
                lock(&self.lanes).control(Packet::CloseRequest { id });
            }
            return;
        };
        let result = if error.is_empty() && (id == 0 || lock(&self.lanes).has(id)) {
            Err(DialError::Endpoint(format!(
                "the agent answered with a connection id it may not use: {id}"
            )))
        } else if error.is_empty() {
            Ok(Wire::open(&self.lanes, id))
        } else {
            self.metrics.dial_failed(DialFailure::ErrorResponse);
            Err(DialError::Endpoint(error))
        };
        // If nobody waits any more, the connection is dropped here and so closed.
        if answer.send(result).is_err() {
            self.metrics.dial_failed(DialFailure::SendResponse);
        }
    }

    /// The stream is over: everybody who waits or talks is told at once.
    pub(crate) fn lose(&self, reason: &str) {
        let mut pending = self.pending();
        pending.lost = Some(reason.to_owned());
        for (_, answer) in pending.dials.drain() {
            self.metrics.dial_failed(DialFailure::BackendClose);
            let _ = answer.send(Err(DialError::Lost(reason.to_owned())));
        }
        drop(pending);
        lock(&self.lanes).lose("");
    }
}

impl Candidate for Arc<Backend> {
    fn agent_id(&self) -> &str {
        &self.agent_id
    }

    fn identifiers(&self) -> &Identifiers {
        &self.identifiers
    }

    fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn load(&self) -> usize {
        lock(&self.lanes).len()
    }
}

/// A dial under way. Dropping it tells the agent that nobody waits any more.
pub(crate) struct PendingDial {
    backend: Arc<Backend>,
    random: i64,
    waiting: oneshot::Receiver<Result<Wire, DialError>>,
    since: Instant,
}

impl PendingDial {
    /// The agent's answer. May be dropped and awaited again.
    pub(crate) async fn answer(&mut self) -> Result<Wire, DialError> {
        let metrics = &self.backend.metrics;
        let _held = metrics.pending.hold();
        let answer = (&mut self.waiting).await;
        metrics.dialled(self.since.elapsed());
        answer.unwrap_or(Err(DialError::Closed))
    }
}

impl Drop for PendingDial {
    fn drop(&mut self) {
        if self.backend.pending().dials.remove(&self.random).is_some() {
            let random = self.random;
            lock(&self.backend.lanes).control(Packet::DialClose { random });
        }
    }
}

#[cfg(test)]
impl PendingDial {
    /// The answer, if it is there.
    pub(crate) fn try_answer(&mut self) -> Option<Result<Wire, DialError>> {
        self.waiting.try_recv().ok()
    }
}

#[cfg(test)]
impl Backend {
    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending().dials.is_empty() && lock(&self.lanes).len() == 0
    }
}

#[cfg(test)]
mod tests;
