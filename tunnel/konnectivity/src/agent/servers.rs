//! The servers an agent is connected to.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use crate::metrics::AgentMetrics;

/// Who is connected, and who is told when that changes.
pub(super) struct Servers {
    pub(super) metrics: Arc<AgentMetrics>,
    known: Mutex<Known>,
    changed: Notify,
    turn: AtomicUsize,
}

#[derive(Default)]
struct Known {
    /// By id.
    connected: HashSet<String>,
    /// How many servers there are, in the words of the last one that was connected.
    told: Option<u32>,
}

impl Servers {
    pub(super) fn new(metrics: Arc<AgentMetrics>) -> Servers {
        Servers {
            metrics,
            known: Mutex::default(),
            changed: Notify::new(),
            // Agents that start together do not all begin at the same server.
            turn: AtomicUsize::new(rand::random_range(0..1 << 16)),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next attempt to connect.
    pub(super) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a server's place, until the result is dropped; `None` if it is taken.
    pub(super) fn add(self: &Arc<Self>, id: &str, told: Option<u32>) -> Option<Connected> {
        let mut known = self.known();
        if !known.connected.insert(id.to_owned()) {
            return None;
        }
        known.told = told.or(known.told);
        self.metrics.servers.set(known.connected.len() as i64);
        Some(Connected {
            servers: Arc::clone(self),
            id: id.to_owned(),
        })
    }

    /// How many are connected.
    pub(super) fn count(&self) -> usize {
        self.known().connected.len()
    }

    /// How many there are, as far as a server has said.
    pub(super) fn told(&self) -> Option<u32> {
        self.known().told
    }

    pub(super) fn connected(&self) -> bool {
        self.count() > 0
    }

    /// Completes when the condition holds; looked at whenever something has ended, or the caller's task runs.
    pub(super) async fn until(&self, condition: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            let moved = std::future::poll_fn(|cx| match condition() {
                true => Poll::Ready(false),
                false => changed.as_mut().poll(cx).map(|()| true),
            });
            if !moved.await {
                return;
            }
        }
    }

    /// A connection to a server or a destination has ended.
    pub(super) fn moved(&self) {
        self.changed.notify_waiters();
    }

    /// Completes when there is no connection to a destination left.
    pub(super) async fn idle(&self) {
        self.until(|| self.metrics.endpoints.get() == 0).await;
    }
}

/// A server's place.
pub(super) struct Connected {
    servers: Arc<Servers>,
    id: String,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut known = self.servers.known();
        known.connected.remove(&self.id);
        self.servers
            .metrics
            .servers
            .set(known.connected.len() as i64);
        drop(known);
        self.servers.moved();
    }
}
