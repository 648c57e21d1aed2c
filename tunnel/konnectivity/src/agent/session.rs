//! One server's stream as the agent sees it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use crate::lanes::{Delivery, Lanes, Side};
use crate::link::{SharedLanes, lock};
use crate::packet::Packet;

/// The most dials under way for one server.
const MAX_DIALS: usize = 4096;

/// What the shell has to do about a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// Connect, and give the connection this id.
    Dial {
        random: i64,
        id: i64,
        address: String,
    },
    /// This connection's destination is too slow.
    Congested(i64),
}

/// The state of a stream.
pub(crate) struct Session {
    pub(crate) lanes: SharedLanes,
    dials: Mutex<HashMap<i64, Option<AbortHandle>>>,
    next_id: AtomicI64,
}

impl Session {
    pub(crate) fn new(peer_window: Option<i64>) -> Session {
        Session {
            lanes: Arc::new(Mutex::new(Lanes::new(Side::Agent, peer_window))),
            dials: Mutex::default(),
            next_id: AtomicI64::new(1),
        }
    }

    fn dials(&self) -> MutexGuard<'_, HashMap<i64, Option<AbortHandle>>> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a packet of the server.
    pub(crate) fn receive(&self, packet: Packet) -> Effect {
        match packet {
            Packet::DialRequest {
                random, address, ..
            } => return self.asked(random, address),
            Packet::DialClose { random } => {
                if let Some(Some(dial)) = self.dials().remove(&random) {
                    dial.abort();
                }
            }
            Packet::Data { id: 0, .. } => {}
            Packet::Data { id, data } => {
                let mut lanes = lock(&self.lanes);
                match lanes.deliver(id, data) {
                    Delivery::Taken => {}
                    Delivery::Congested => return Effect::Congested(id),
                    Delivery::Unknown => lanes.control(unknown(id, "unrecognized connectID")),
                }
            }
            Packet::CloseRequest { id } => {
                let mut lanes = lock(&self.lanes);
                if !lanes.close(id, String::new()) {
                    lanes.control(unknown(id, "Unknown connectID"));
                }
            }
            Packet::EndOfData { id } => lock(&self.lanes).end_of_data(id),
            Packet::Credit { id, bytes } => lock(&self.lanes).credit(id, bytes),
            Packet::DialResponse { .. }
            | Packet::CloseResponse { .. }
            | Packet::Drain
            | Packet::Unknown => {}
        }
        Effect::Nothing
    }

    fn asked(&self, random: i64, address: String) -> Effect {
        // As upstream: a dial that fails has used its number up.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let refused = match self.note(random) {
            Ok(()) => {
                return Effect::Dial {
                    random,
                    id,
                    address,
                };
            }
            Err(refused) => refused,
        };
        self.failed(random, refused.to_owned());
        Effect::Nothing
    }

    fn note(&self, random: i64) -> Result<(), &'static str> {
        let mut dials = self.dials();
        if dials.len() >= MAX_DIALS {
            return Err("too many dials are under way");
        }
        match dials.entry(random) {
            Entry::Occupied(_) => Err("a dial with this id is already under way"),
            Entry::Vacant(place) => {
                place.insert(None);
                Ok(())
            }
        }
    }

    /// The task of a dial, for the case that the server changes its mind.
    pub(crate) fn dialling(&self, random: i64, task: AbortHandle) {
        if let Some(dial) = self.dials().get_mut(&random) {
            *dial = Some(task);
        }
    }

    /// Whether a dial that has come to an end is still wanted.
    pub(crate) fn finished(&self, random: i64) -> bool {
        self.dials().remove(&random).is_some()
    }

    /// Tells the server that a dial came to nothing.
    pub(crate) fn failed(&self, random: i64, error: String) {
        lock(&self.lanes).control(Packet::DialResponse {
            random,
            id: 0,
            error,
        });
    }

    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.dials().is_empty() && lock(&self.lanes).len() == 0
    }

    /// The stream is over.
    pub(crate) fn lose(&self) {
        for (_, dial) in self.dials().drain() {
            if let Some(dial) = dial {
                dial.abort();
            }
        }
        lock(&self.lanes).lose("the server is gone");
    }
}

fn unknown(id: i64, error: &str) -> Packet {
    Packet::CloseResponse {
        id,
        error: error.to_owned(),
    }
}

#[cfg(test)]
mod tests;
