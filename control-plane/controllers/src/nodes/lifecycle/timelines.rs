//! The documented timelines, to the tick: a cluster on paper whose clock jumps from one event to the next.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Toleration;

use super::zones::Disruption;
use super::{Action, Monitor};
use crate::nodes::clock::Moment;
use crate::nodes::settings::NodeLifecycle;
use crate::nodes::state::{Condition, NodeState, Status};
use crate::nodes::taint_eviction::{Step, Timers};
use crate::nodes::taints::{NO_EXECUTE, NOT_READY, UNREACHABLE, has};
use client_runtime::ObjectKey;

const PERIOD: i64 = 5_000;
const RENEWAL: i64 = 10_000;
/// How finely the clock runs: upstream's pause between two tainting passes.
const TICK: i64 = 100;

/// A cluster: nodes that renew their leases every ten seconds while they live.
struct World {
    monitor: Monitor,
    timers: Timers,
    nodes: BTreeMap<String, Arc<NodeState>>,
    leases: BTreeMap<String, Timestamp>,
    silent: BTreeSet<String>,
    /// A pod per node, by how long it tolerates the loss of its node.
    pods: BTreeMap<String, (String, Vec<Toleration>)>,
    millis: i64,
    /// When what happened, in milliseconds.
    log: Vec<(i64, String)>,
}

fn wall(millis: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_millis(millis)
}

impl World {
    fn new() -> World {
        World {
            monitor: Monitor::new(NodeLifecycle::default()),
            timers: Timers::default(),
            nodes: BTreeMap::new(),
            leases: BTreeMap::new(),
            silent: BTreeSet::new(),
            pods: BTreeMap::new(),
            millis: 0,
            log: Vec::new(),
        }
    }

    /// A number of ready nodes in a zone, `zone-000` and on.
    fn with(mut self, zone: &str, count: usize) -> World {
        for number in 0..count {
            let mut node = NodeState {
                uid: format!("{zone}-{number}"),
                zone: zone.to_owned(),
                created: Some(wall(self.millis)),
                ..NodeState::default()
            };
            node.conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
                .map(|kind| condition(kind, kind == "Ready", self.millis))
                .into();
            self.nodes
                .insert(format!("{zone}-{number:03}"), Arc::new(node));
        }
        self
    }

    fn with_pod(mut self, node: &str, name: &str, seconds: Option<i64>) -> World {
        let toleration = |key: &str| Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(NO_EXECUTE.into()),
            toleration_seconds: seconds,
            value: None,
        };
        let tolerations = [NOT_READY, UNREACHABLE].map(toleration).into();
        self.pods
            .insert(name.to_owned(), (node.to_owned(), tolerations));
        self
    }

    fn now(&self) -> Moment {
        Moment {
            at: SignedDuration::from_millis(self.millis),
            wall: wall(self.millis),
        }
    }

    fn silence(&mut self, zone: &str, count: usize) {
        for number in 0..count {
            self.silent.insert(format!("{zone}-{number:03}"));
        }
    }

    /// Its kubelet is back and says that all is well.
    fn wake(&mut self, name: &str) {
        self.silent.remove(name);
        let millis = self.millis;
        self.leases.insert(name.to_owned(), wall(millis));
        self.change(name, |node| {
            for known in &mut node.conditions {
                *known = condition(&known.kind, known.kind == "Ready", millis);
            }
        });
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut NodeState)) {
        if let Some(node) = self.nodes.get_mut(name) {
            change(Arc::make_mut(node));
        }
    }

    /// Lets time pass, up to and with this moment.
    fn until(&mut self, seconds: i64) {
        while self.millis <= seconds * 1_000 {
            if self.millis % RENEWAL == 0 {
                let awake = self
                    .nodes
                    .keys()
                    .filter(|name| !self.silent.contains(*name));
                let renewed: Vec<String> = awake.cloned().collect();
                let at = wall(self.millis);
                self.leases
                    .extend(renewed.into_iter().map(|name| (name, at)));
            }
            if self.millis % PERIOD == 0 {
                let (nodes, leases) = (self.nodes.clone(), self.leases.clone());
                let now = self.now();
                let deeds = self
                    .monitor
                    .look(&nodes, |name| leases.get(name).copied(), now);
                deeds
                    .into_iter()
                    .for_each(|deed| self.act(&deed.node, deed.action));
            }
            let nodes = self.nodes.clone();
            let now = self.now();
            let deeds = self.monitor.evict(|name| nodes.get(name).cloned(), now);
            deeds
                .into_iter()
                .for_each(|deed| self.act(&deed.node, deed.action));
            self.evict_pods();
            self.millis += TICK;
        }
    }

    fn act(&mut self, name: &str, action: Action) {
        let (millis, now) = (self.millis, wall(self.millis));
        match action {
            Action::Tell { reason, .. } => self.note(format!("{name} {reason}")),
            Action::Forget(unknown) => {
                self.note(format!("{name} unknown"));
                self.change(name, |node| {
                    for gone in unknown {
                        node.conditions.retain(|known| known.kind != gone.kind);
                        let mut condition = condition(gone.kind, false, millis);
                        condition.status = Status::Unknown;
                        node.conditions.push(condition);
                    }
                });
            }
            Action::Taint(swap) => {
                let taints = self.nodes.get(name).map(|node| node.taints.clone());
                if let Some(after) = swap.applied(&taints.unwrap_or_default(), now) {
                    self.note(match after.is_empty() {
                        true => format!("{name} untainted"),
                        false => format!("{name} tainted"),
                    });
                    self.change(name, |node| node.taints = after);
                }
            }
        }
    }

    fn evict_pods(&mut self) {
        let at = SignedDuration::from_millis(self.millis);
        for (name, (node, tolerations)) in self.pods.clone() {
            let taints = self.nodes.get(&node).map(|n| n.taints.clone());
            let key = ObjectKey::new("default", name.clone());
            let step =
                self.timers
                    .step(&key, Some((&taints.unwrap_or_default(), &tolerations)), at);
            match step {
                Step::Delete => {
                    self.pods.remove(&name);
                    self.note(format!("{name} evicted"));
                }
                Step::Cancelled => self.note(format!("{name} spared")),
                Step::Nothing | Step::Wait(_) => {}
            }
        }
    }

    fn note(&mut self, text: String) {
        self.log.push((self.millis, text));
    }

    /// When something happened, in seconds.
    fn times(&self, text: &str) -> Vec<f64> {
        let matching = self.log.iter().filter(|(_, entry)| entry.ends_with(text));
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        matching
            .map(|(millis, _)| *millis as f64 / 1_000.0)
            .collect()
    }

    fn tainted(&self) -> usize {
        let is = |node: &&Arc<NodeState>| has(&node.taints, (UNREACHABLE, NO_EXECUTE));
        self.nodes.values().filter(is).count()
    }
}

fn condition(kind: &str, is: bool, millis: i64) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: if is { Status::True } else { Status::False },
        heartbeat: Some(wall(millis)),
        transition: Some(wall(millis)),
    }
}

#[test]
fn one_lost_node_is_unknown_after_its_grace_and_tainted_at_the_next_look() {
    let mut world = World::new()
        .with("a", 4)
        .with_pod("a-000", "default-toleration", Some(300));
    world.until(20);
    assert_eq!(world.times("RegisteredNode").len(), 4);
    // Its last lease is that of second 20.
    world.silence("a", 1);
    world.until(600);
    assert_eq!(
        world.times("a-000 unknown"),
        [75.0],
        "the first look past 70"
    );
    assert_eq!(world.times("a-000 NodeNotReady"), [75.0]);
    assert_eq!(world.times(" tainted"), [80.0]);
    assert_eq!(world.times("default-toleration evicted"), [380.0]);
}

#[test]
fn ten_percent_of_a_zone_go_one_by_one() {
    let mut world = World::new().with("a", 100);
    world.until(20);
    world.silence("a", 10);
    world.until(300);
    assert_eq!(world.times(" unknown"), [75.0; 10]);
    let every_ten: Vec<f64> = (0..10).map(|n| 80.0 + 10.0 * f64::from(n)).collect();
    assert_eq!(world.times(" tainted"), every_ten);
    assert_eq!(world.monitor.zones.disruption("a"), Disruption::Normal);
}

#[test]
fn most_of_a_zone_is_left_alone_where_it_is_small_and_goes_slowly_where_it_is_large() {
    for (size, lost, tainted_at) in [
        (49, 28, vec![]),
        (50, 28, vec![]),
        (51, 29, vec![80.0, 180.0, 280.0, 380.0, 480.0]),
    ] {
        let mut world = World::new().with("a", size).with("b", 3);
        world.until(20);
        world.silence("a", lost);
        world.until(500);
        assert_eq!(world.times(" unknown").len(), lost);
        assert_eq!(world.monitor.zones.disruption("a"), Disruption::Partial);
        assert_eq!(world.times(" tainted"), tainted_at, "{size} nodes");
    }
}

#[test]
fn a_zone_that_is_lost_as_a_whole_is_emptied_at_the_usual_speed() {
    let mut world = World::new().with("a", 3).with("b", 3);
    world.until(20);
    world.silence("a", 3);
    world.until(200);
    assert_eq!(world.monitor.zones.disruption("a"), Disruption::Full);
    assert_eq!(world.times(" tainted"), [80.0, 90.0, 100.0]);
}

#[test]
fn two_lost_nodes_of_four_do_not_disrupt_a_zone() {
    let mut world = World::new().with("a", 4);
    world.until(20);
    world.silence("a", 2);
    world.until(200);
    assert_eq!(world.monitor.zones.disruption("a"), Disruption::Normal);
    assert_eq!(world.times(" tainted"), [80.0, 90.0]);
}

#[test]
fn when_every_zone_is_dark_nobody_is_evicted_until_light_returns() {
    let mut world = World::new()
        .with("a", 4)
        .with("b", 4)
        .with_pod("a-000", "pod", Some(30));
    world.until(20);
    // One node first, so that there is a taint to take back.
    world.silence("a", 1);
    world.until(81);
    assert_eq!(world.tainted(), 1);
    world.silence("a", 4);
    world.silence("b", 4);
    world.until(1_000);
    // The last leases are those of second 80.
    assert_eq!(world.times("b-003 unknown"), [135.0]);
    assert_eq!(world.times(" untainted"), [135.0]);
    assert_eq!(world.tainted(), 0);
    assert_eq!(
        world.times("pod evicted"),
        [110.0],
        "its node was lost before"
    );
    // One node is back: everybody else gets the whole grace period anew, then goes one by one.
    world.wake("b-000");
    world.until(1_200);
    assert_eq!(world.monitor.zones.disruption("a"), Disruption::Full);
    assert_eq!(world.monitor.zones.disruption("b"), Disruption::Partial);
    let after: Vec<f64> = world.times(" tainted");
    assert_eq!(after, [80.0, 1_015.0, 1_025.0, 1_035.0, 1_045.0]);
}

#[test]
fn a_node_back_within_its_grace_was_never_lost() {
    let mut world = World::new().with("a", 4);
    world.until(20);
    world.silence("a", 1);
    world.until(69);
    world.silent.clear();
    world.until(300);
    assert!(world.times(" unknown").is_empty() && world.times(" tainted").is_empty());
}

#[test]
fn a_node_back_after_its_grace_is_untainted_at_once_and_its_pods_are_spared() {
    let mut world = World::new()
        .with("a", 4)
        .with_pod("a-000", "pod", Some(300));
    world.until(20);
    world.silence("a", 1);
    world.until(200);
    assert_eq!(world.tainted(), 1);
    world.wake("a-000");
    world.until(600);
    assert_eq!(world.times(" untainted"), [205.0]);
    assert_eq!(world.times("pod spared"), [205.0]);
    assert!(world.times("pod evicted").is_empty());
}

#[test]
fn a_flapping_node_starts_from_the_beginning_each_time() {
    let mut world = World::new()
        .with("a", 4)
        .with_pod("a-000", "pod", Some(300));
    world.until(20);
    for round in 0..3 {
        let start = 20 + round * 200;
        world.silence("a", 1);
        world.until(start + 100);
        world.wake("a-000");
        world.until(start + 200);
    }
    assert_eq!(world.times(" unknown"), [75.0, 275.0, 475.0]);
    assert_eq!(world.times(" tainted"), [80.0, 280.0, 480.0]);
    assert_eq!(world.times(" untainted").len(), 3);
    assert!(world.times("pod evicted").is_empty());
}

#[test]
fn pods_stay_as_long_as_they_tolerate_it() {
    let mut world = World::new()
        .with("a", 4)
        .with_pod("a-000", "zero", Some(0))
        .with_pod("a-000", "thirty", Some(30))
        .with_pod("a-000", "forever", None);
    world.until(20);
    world.silence("a", 1);
    world.until(10_000);
    assert_eq!(world.times("zero evicted"), [80.0]);
    assert_eq!(world.times("thirty evicted"), [110.0]);
    assert!(world.times("forever evicted").is_empty());
}

#[test]
fn a_kubelet_that_says_not_ready_gets_no_grace() {
    let mut world = World::new().with("a", 4);
    world.until(21);
    world.change("a-000", |node| node.conditions[0].status = Status::False);
    world.until(60);
    assert_eq!(world.times(" tainted"), [25.0]);
    let node = &world.nodes["a-000"];
    assert!(has(&node.taints, (NOT_READY, NO_EXECUTE)));
    // It falls silent, too: the one taint takes the place of the other at once.
    world.silence("a", 1);
    world.until(200);
    let node = &world.nodes["a-000"];
    assert!(has(&node.taints, (UNREACHABLE, NO_EXECUTE)) && node.taints.len() == 1);
    assert_eq!(world.times(" unknown"), [115.0]);
    assert_eq!(world.times(" tainted"), [25.0, 120.0]);
}

#[test]
fn a_node_that_never_says_anything_is_unknown_a_minute_after_it_was_made() {
    let mut world = World::new().with("a", 4);
    world.change("a-000", |node| node.conditions.clear());
    world.silence("a", 1);
    world.until(100);
    assert_eq!(world.times(" unknown"), [65.0]);
    assert_eq!(world.times(" tainted"), [65.0]);
}

#[test]
fn leases_alone_keep_a_node_alive() {
    let mut world = World::new().with("a", 2);
    world.until(3_000);
    assert!(world.times(" unknown").is_empty());
}

#[test]
fn a_new_manager_gives_a_dead_node_its_grace_again() {
    let mut world = World::new().with("a", 4);
    world.until(20);
    world.silence("a", 1);
    world.until(100);
    assert_eq!(world.tainted(), 1);
    world.monitor = Monitor::new(NodeLifecycle::default());
    world.until(104);
    assert_eq!(world.times(" tainted"), [80.0]);
    world.until(200);
    // Stale taints go at its first look; those of a node that is known to be lost come back with it.
    assert_eq!(world.times(" untainted"), [105.0]);
    assert_eq!(world.times(" tainted"), [80.0, 105.0]);
}

#[test]
fn an_exempt_node_does_not_count_for_its_zone() {
    let mut world = World::new().with("a", 5);
    for number in 0..3 {
        world.change(&format!("a-{number:03}"), |node| node.is_exempt = true);
    }
    world.until(20);
    world.silence("a", 3);
    world.until(200);
    assert_eq!(world.monitor.zones.disruption("a"), Disruption::Normal);
    assert_eq!(world.times(" tainted"), [80.0, 90.0, 100.0]);
}

#[test]
fn a_node_that_goes_leaves_the_queue_and_is_told_of() {
    let mut world = World::new().with("a", 10);
    world.until(20);
    world.silence("a", 3);
    world.until(81);
    world.nodes.remove("a-001");
    world.until(200);
    assert_eq!(world.times("RemovingNode"), [85.0]);
    assert_eq!(world.times(" tainted"), [80.0, 90.0]);
}
