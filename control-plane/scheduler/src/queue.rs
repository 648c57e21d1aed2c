//! Pods that wait: ready ones by importance, those that failed lately after a pause, those that cannot be placed until
//! something changes. Pure: time is given.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::hints::{Event, wakes};
use crate::placement::Waiting;
use crate::profile::Plugin;

/// Moments since the start.
pub type Moment = Duration;

/// How long a pod that cannot be placed is left alone at most (`podMaxInUnschedulablePodsDuration`).
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How long pods wait after failures.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// After the first.
    pub first: Duration,
    /// After many.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(10),
        }
    }
}

impl Backoff {
    fn after(self, attempts: u32) -> Duration {
        let doubled = 2u32.saturating_pow(attempts.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.most)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// In `ready`.
    Ready,
    /// In `paused`, until.
    Paused(Moment),
    /// Waits for something that these plugins would want to hear of; since when.
    Stuck(Vec<Plugin>, Moment),
    /// Taken: its node is being decided on, or it is being bound.
    Taken,
}

struct Entry {
    pod: Waiting,
    state: State,
    arrival: u64,
    attempts: u32,
    /// When its pause after the last failure ends.
    paused_until: Moment,
    since: Moment,
}

/// Most important first, then first come.
type Turn = (std::cmp::Reverse<i32>, u64, Arc<str>);

/// Every pod that waits.
pub struct Queue {
    backoff: Backoff,
    entries: HashMap<Arc<str>, Entry>,
    ready: BTreeSet<Turn>,
    paused: BTreeSet<(Moment, Arc<str>)>,
    /// By the plugins that refused them: few groups, however many pods.
    stuck: BTreeMap<Vec<Plugin>, BTreeSet<Arc<str>>>,
    arrivals: u64,
}

/// A pod whose turn it is.
#[derive(Debug, Clone)]
pub struct Turned {
    /// Which.
    pub pod: Waiting,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// Since when it waits.
    pub since: Moment,
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Queue {
        Queue {
            backoff,
            entries: HashMap::new(),
            ready: BTreeSet::new(),
            paused: BTreeSet::new(),
            stuck: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// A pod waits, or waits with other words than before; then it is tried again soon.
    pub fn add(&mut self, pod: Waiting, now: Moment) {
        let uid = Arc::clone(&pod.uid);
        let Some(known) = self.entries.get(&uid) else {
            self.arrivals += 1;
            let entry = Entry {
                pod,
                state: State::Ready,
                arrival: self.arrivals,
                attempts: 0,
                paused_until: now,
                since: now,
            };
            self.ready.insert(turn(&entry));
            self.entries.insert(uid, entry);
            return;
        };
        let changed = known.pod.ask != pod.ask || known.pod.priority != pod.priority;
        match (&known.state, changed) {
            (State::Ready, true) => {
                self.ready.remove(&turn(known));
                let known = self.entries.get_mut(&uid).expect("just seen");
                known.pod = pod;
                self.ready.insert(turn(known));
            }
            (State::Stuck(..), true) => {
                self.entries.get_mut(&uid).expect("just seen").pod = pod;
                self.revive(&uid, now);
            }
            _ => self.entries.get_mut(&uid).expect("just seen").pod = pod,
        }
    }

    /// A pod waits no more.
    pub fn remove(&mut self, uid: &str) {
        if let Some(entry) = self.entries.remove(uid) {
            self.take_out(&entry);
        }
    }

    /// Whether a pod waits.
    pub fn contains(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// A pod that waits.
    pub fn waiting(&self, uid: &str) -> Option<&Waiting> {
        self.entries.get(uid).map(|entry| &entry.pod)
    }

    /// How many are ready, pause, and are stuck.
    pub fn lengths(&self) -> (usize, usize, usize) {
        let stuck = self.stuck.values().map(BTreeSet::len).sum();
        (self.ready.len(), self.paused.len(), stuck)
    }

    fn take_out(&mut self, entry: &Entry) {
        match &entry.state {
            State::Ready => drop(self.ready.remove(&turn(entry))),
            State::Paused(until) => {
                self.paused.remove(&(*until, Arc::clone(&entry.pod.uid)));
            }
            State::Stuck(plugins, _) => self.unstick(&plugins.clone(), &entry.pod.uid),
            State::Taken => {}
        }
    }

    /// The pod whose turn it is. One that only pauses is taken early rather than nobody, unless it failed by itself.
    pub fn next(&mut self, now: Moment) -> Option<Turned> {
        self.end_pauses(now);
        let (_, _, uid) = self.ready.pop_first()?;
        let entry = self.entries.get_mut(&uid).expect("whoever is ready waits");
        entry.state = State::Taken;
        entry.attempts += 1;
        Some(Turned {
            pod: entry.pod.clone(),
            attempts: entry.attempts,
            since: entry.since,
        })
    }

    fn end_pauses(&mut self, now: Moment) {
        while let Some((until, _)) = self.paused.first()
            && *until <= now
            && let Some((_, uid)) = self.paused.pop_first()
        {
            let entry = self.entries.get_mut(&uid).expect("whoever pauses waits");
            entry.state = State::Ready;
            self.ready.insert(turn(entry));
        }
    }

    /// When somebody's pause ends.
    pub fn next_pause(&self) -> Option<Moment> {
        self.paused.first().map(|(until, _)| *until)
    }

    /// A pod that was taken found no node, because these plugins refused. It waits for something that changes that.
    pub fn fail(&mut self, uid: &str, plugins: Vec<Plugin>, now: Moment) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        if entry.state != State::Taken {
            return;
        }
        // Deciding takes no time as others see it: nothing can have changed meanwhile.
        entry.paused_until = now + self.backoff.after(entry.attempts);
        let group = self.stuck.entry(plugins.clone()).or_default();
        group.insert(Arc::clone(&entry.pod.uid));
        entry.state = State::Stuck(plugins, now);
    }

    /// A pod that was taken could not be bound, or could not be tried: again after a pause.
    pub fn retry(&mut self, uid: &str, now: Moment) {
        let Some(entry) = self.entries.get_mut(uid) else {
            return;
        };
        if entry.state != State::Taken {
            return;
        }
        self.paused
            .remove(&(entry.paused_until, Arc::clone(&entry.pod.uid)));
        let until = now + self.backoff.after(entry.attempts);
        entry.paused_until = until;
        entry.state = State::Paused(until);
        self.paused.insert((until, Arc::clone(&entry.pod.uid)));
    }

    /// Something changed: pods that may be placed now are tried again.
    pub fn hear(&mut self, event: &Event, now: Moment) {
        let groups = self.stuck.iter();
        let woken = groups.filter(|(plugins, _)| wakes(*event, plugins));
        let woken: Vec<Arc<str>> = woken.flat_map(|(_, uids)| uids.iter().cloned()).collect();
        for uid in woken {
            self.revive(&uid, now);
        }
    }

    /// Nothing is left alone for ever.
    pub fn remember_the_forgotten(&mut self, now: Moment) {
        let old = self.stuck.values().flatten().filter(|uid| {
            let State::Stuck(_, since) = &self.entries[*uid].state else {
                return false;
            };
            now.saturating_sub(*since) >= FORGOTTEN_AFTER
        });
        let old: Vec<Arc<str>> = old.cloned().collect();
        for uid in old {
            self.revive(&uid, now);
        }
    }

    fn unstick(&mut self, plugins: &[Plugin], uid: &str) {
        if let Some(group) = self.stuck.get_mut(plugins) {
            group.remove(uid);
            if group.is_empty() {
                self.stuck.remove(plugins);
            }
        }
    }

    fn revive(&mut self, uid: &Arc<str>, now: Moment) {
        let Some(entry) = self.entries.get(uid) else {
            return;
        };
        if let State::Stuck(plugins, _) = &entry.state {
            let plugins = plugins.clone();
            self.unstick(&plugins, uid);
        }
        let entry = self.entries.get_mut(uid).expect("just seen");
        if entry.paused_until > now {
            entry.state = State::Paused(entry.paused_until);
            self.paused.insert((entry.paused_until, Arc::clone(uid)));
        } else {
            entry.state = State::Ready;
            self.ready.insert(turn(entry));
        }
    }
}

fn turn(entry: &Entry) -> Turn {
    let priority = std::cmp::Reverse(entry.pod.priority);
    (priority, entry.arrival, Arc::clone(&entry.pod.uid))
}
