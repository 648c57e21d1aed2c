//! When a node was last heard of, by our own clock.
//!
//! Clocks of nodes are never compared with ours: all that counts is whether what they write has changed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::nodes::clock::Moment;
use crate::nodes::settings::NodeLifecycle;
use crate::nodes::state::{NodeState, Status};

/// The conditions that nobody can know of a node that is silent. `NetworkUnavailable` is not the kubelet's.
const OF_THE_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What is known of one node's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health {
    /// When it was last heard of.
    heard: SignedDuration,
    /// The heartbeat in its Ready condition; none before there is such a condition.
    ready: Option<Option<Timestamp>>,
    renewed: Option<Timestamp>,
}

/// A condition that is now unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) kind: &'static str,
    /// Whether the kubelet ever wrote it.
    pub(crate) was_there: bool,
}

impl Health {
    /// The first sight of a node. One that says nothing yet has been silent since it was made.
    pub(super) fn new(node: &NodeState, now: Moment) -> Health {
        let ready = node.condition("Ready").map(|ready| ready.heartbeat);
        let heard = match (ready, node.created) {
            (None, Some(created)) => now.at - now.wall.duration_since(created),
            _ => now.at,
        };
        Health {
            heard,
            ready,
            renewed: None,
        }
    }

    /// Notes what has changed since the last look.
    pub(super) fn note(&mut self, node: &NodeState, renewed: Option<Timestamp>, now: Moment) {
        let ready = node.condition("Ready").map(|ready| ready.heartbeat);
        if ready != self.ready {
            (self.ready, self.heard) = (ready, now.at);
        }
        if renewed.is_some() && (self.renewed.is_none() || self.renewed < renewed) {
            (self.renewed, self.heard) = (renewed, now.at);
        }
    }

    /// Forgets the silence so far.
    pub(super) fn forgive(&mut self, now: Moment) {
        self.heard = now.at;
    }

    /// Whether the node has been silent for longer than it may.
    pub(super) fn is_lost(&self, settings: &NodeLifecycle, now: Moment) -> bool {
        let grace = match self.ready {
            Some(_) => settings.monitor_grace_period,
            None => settings.startup_grace_period,
        };
        now.at > self.heard + signed(grace)
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// What nobody can know any more of a node that is lost; nothing where that is written already.
pub(super) fn unknown(node: &NodeState) -> Vec<Unknown> {
    if node.status_of("Ready") == Some(Status::Unknown) {
        return Vec::new();
    }
    let unknown = OF_THE_KUBELET.into_iter().map(|kind| Unknown {
        kind,
        was_there: node.condition(kind).is_some(),
    });
    unknown
        .filter(|condition| node.status_of(condition.kind) != Some(Status::Unknown))
        .collect()
}
