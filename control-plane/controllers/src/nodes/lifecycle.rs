//! Watches over nodes: one that falls silent is marked, kept free of new pods and, when its turn comes, emptied.
//!
//! The core is a [`Monitor`]: it is shown every node once per period, remembers when it last heard of
//! each by its own clock, and says what is to be written. Taints that evict go through a queue per zone,
//! whose speed depends on how much of the zone is lost; the eviction itself is another controller's work.

mod health;
mod shell;
#[cfg(test)]
mod timelines;
mod zones;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::clock::Moment;
use super::settings::NodeLifecycle;
use super::state::{NodeState, Status};
use super::taints::{NO_EXECUTE, NOT_READY, Swap, UNREACHABLE, has};
use health::Health;
pub(crate) use health::Unknown;
pub(crate) use shell::{ACCOUNT, about_node, about_pod, start};
use zones::{Tally, Turn, Zones};

/// Something that is to be done about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deed {
    pub(crate) node: String,
    pub(crate) action: Action,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// An event about the node.
    Tell {
        uid: String,
        reason: &'static str,
        message: String,
    },
    /// What the kubelet should have said is not known.
    Forget(Vec<Unknown>),
    /// Taints are to change.
    Taint(Swap),
}

/// Everything that is remembered from one look to the next.
#[derive(Debug)]
pub(crate) struct Monitor {
    settings: NodeLifecycle,
    known: HashMap<String, Known>,
    zones: Zones,
}

#[derive(Debug)]
struct Known {
    uid: String,
    health: Health,
}

impl Monitor {
    pub(crate) fn new(settings: NodeLifecycle) -> Monitor {
        Monitor {
            settings,
            known: HashMap::new(),
            zones: Zones::default(),
        }
    }

    /// Looks at every node; `renewed` tells when a node's lease was last renewed.
    pub(crate) fn look(
        &mut self,
        nodes: &BTreeMap<String, Arc<NodeState>>,
        renewed: impl Fn(&str) -> Option<Timestamp>,
        now: Moment,
    ) -> Vec<Deed> {
        let mut deeds = Vec::new();
        self.forget_gone(nodes, &mut deeds);
        let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
        for (name, node) in nodes {
            self.zones.know(&node.zone, &self.settings);
            let is_new = self.meet(name, node, now, &mut deeds);
            let after = self.look_at(name, node, renewed(name), now, &mut deeds);
            if !node.is_exempt {
                let tally = tallies.entry(node.zone.clone()).or_default();
                match after {
                    Some(Status::True) => tally.ready += 1,
                    _ => tally.lost += 1,
                }
            }
            self.judge(name, node, (is_new, after), &mut deeds);
        }
        match self.zones.judge(&tallies, &self.settings, now.at) {
            Turn::None => {}
            Turn::AllDark => {
                for (name, node) in nodes {
                    self.reach(name, node, &mut deeds);
                }
            }
            Turn::LightAgain => {
                let known = self.known.values_mut();
                known.for_each(|known| known.health.forgive(now));
            }
        }
        deeds
    }

    /// Nodes whose turn it is to be tainted so that their pods are evicted.
    pub(crate) fn evict(
        &mut self,
        node: impl Fn(&str) -> Option<Arc<NodeState>>,
        now: Moment,
    ) -> Vec<Deed> {
        let through = self.zones.let_through(now.at).into_iter();
        through
            .filter_map(|name| {
                let status = node(&name)?.status_of("Ready")?;
                let swap = Swap::evict(status)?;
                Some(deed(&name, Action::Taint(swap)))
            })
            .collect()
    }

    /// When [`Monitor::evict`] has something to do.
    pub(crate) fn due(&self) -> Option<SignedDuration> {
        self.zones.due()
    }

    fn forget_gone(&mut self, nodes: &BTreeMap<String, Arc<NodeState>>, deeds: &mut Vec<Deed>) {
        let is_same = |name: &str, uid: &str| nodes.get(name).is_some_and(|node| node.uid == uid);
        let gone = |(name, known): (&String, &Known)| !is_same(name, &known.uid);
        let mut gone: Vec<String> = self
            .known
            .iter()
            .filter(|known| gone(*known))
            .map(|(name, _)| name.clone())
            .collect();
        gone.sort();
        for name in gone {
            if let Some(known) = self.known.remove(&name) {
                let message = format!("Removing Node {name} from Controller");
                deeds.push(told(&name, &known.uid, "RemovingNode", message));
            }
            self.zones.leave(&name);
        }
    }

    // Taints that another manager left may be stale.
    fn meet(&mut self, name: &str, node: &NodeState, now: Moment, deeds: &mut Vec<Deed>) -> bool {
        if self.known.contains_key(name) {
            return false;
        }
        let known = Known {
            uid: node.uid.clone(),
            health: Health::new(node, now),
        };
        self.known.insert(name.to_owned(), known);
        let message = format!("Registered Node {name} in Controller");
        deeds.push(told(name, &node.uid, "RegisteredNode", message));
        self.reach(name, node, deeds);
        true
    }

    // Gives the state of its Ready condition after this look.
    fn look_at(
        &mut self,
        name: &str,
        node: &NodeState,
        renewed: Option<Timestamp>,
        now: Moment,
        deeds: &mut Vec<Deed>,
    ) -> Option<Status> {
        let before = node.status_of("Ready");
        let Some(known) = self.known.get_mut(name) else {
            return before;
        };
        known.health.note(node, renewed, now);
        let unknown = match known.health.is_lost(&self.settings, now) {
            true => health::unknown(node),
            false => Vec::new(),
        };
        let after = match unknown.iter().any(|condition| condition.kind == "Ready") {
            true => Some(Status::Unknown),
            false => before,
        };
        if !unknown.is_empty() {
            deeds.push(deed(name, Action::Forget(unknown)));
        }
        if before == Some(Status::True) && after != Some(Status::True) {
            let message = format!("Node {name} status is now: NodeNotReady");
            deeds.push(told(name, &node.uid, "NodeNotReady", message));
        }
        after
    }

    // By the condition as it was found: one that has only just become unknown waits for the next look,
    // as upstream has it, unless there was none before.
    fn judge(
        &mut self,
        name: &str,
        node: &NodeState,
        (is_new, after): (bool, Option<Status>),
        deeds: &mut Vec<Deed>,
    ) {
        let Some(status) = node.status_of("Ready").or(after) else {
            return;
        };
        let (own, other) = match status {
            Status::True => {
                if !is_new {
                    self.reach(name, node, deeds);
                }
                return;
            }
            Status::False => (NOT_READY, UNREACHABLE),
            Status::Unknown => (UNREACHABLE, NOT_READY),
        };
        if !is_new && has(&node.taints, (other, NO_EXECUTE)) {
            deeds.extend(Swap::evict(status).map(|swap| deed(name, Action::Taint(swap))));
        } else if is_new || !has(&node.taints, (own, NO_EXECUTE)) {
            self.zones.wait(&node.zone, name);
        }
    }

    fn reach(&mut self, name: &str, node: &NodeState, deeds: &mut Vec<Deed>) {
        self.zones.leave(name);
        let swap = Swap::reachable();
        if swap.remove.iter().any(|which| has(&node.taints, *which)) {
            deeds.push(deed(name, Action::Taint(swap)));
        }
    }
}

fn deed(node: &str, action: Action) -> Deed {
    Deed {
        node: node.to_owned(),
        action,
    }
}

fn told(node: &str, uid: &str, reason: &'static str, message: String) -> Deed {
    let uid = uid.to_owned();
    deed(
        node,
        Action::Tell {
            uid,
            reason,
            message,
        },
    )
}
