//! The taints that controllers put on nodes, and which pods put up with them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::state::{NodeState, Status};

pub(crate) const NO_SCHEDULE: &str = "NoSchedule";
pub(crate) const NO_EXECUTE: &str = "NoExecute";
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Which condition, in which state, keeps pods away with which taint (upstream's
/// `nodeConditionToTaintKeyStatusMap`).
const BY_CONDITION: [(&str, Status, &str); 6] = [
    ("Ready", Status::False, NOT_READY),
    ("Ready", Status::Unknown, UNREACHABLE),
    (
        "MemoryPressure",
        Status::True,
        "node.kubernetes.io/memory-pressure",
    ),
    (
        "DiskPressure",
        Status::True,
        "node.kubernetes.io/disk-pressure",
    ),
    (
        "PIDPressure",
        Status::True,
        "node.kubernetes.io/pid-pressure",
    ),
    (
        "NetworkUnavailable",
        Status::True,
        "node.kubernetes.io/network-unavailable",
    ),
];

/// What is to change about the taints of a node, in one write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Swap {
    /// Key and effect of those to add.
    pub(crate) add: Vec<(&'static str, &'static str)>,
    /// Key and effect of those to remove.
    pub(crate) remove: Vec<(&'static str, &'static str)>,
}

impl Swap {
    /// Lost or broken: its pods are evicted unless they tolerate it.
    pub(crate) fn evict(status: Status) -> Option<Swap> {
        let (add, remove) = match status {
            Status::True => return None,
            Status::False => (NOT_READY, UNREACHABLE),
            Status::Unknown => (UNREACHABLE, NOT_READY),
        };
        Some(Swap {
            add: vec![(add, NO_EXECUTE)],
            remove: vec![(remove, NO_EXECUTE)],
        })
    }

    /// Well again.
    pub(crate) fn reachable() -> Swap {
        Swap {
            add: Vec::new(),
            remove: vec![(NOT_READY, NO_EXECUTE), (UNREACHABLE, NO_EXECUTE)],
        }
    }

    /// What the taints are then; none if they are so already.
    pub(crate) fn applied(&self, taints: &[Taint], now: Timestamp) -> Option<Vec<Taint>> {
        let is_removed = |taint: &Taint| self.remove.iter().any(|which| is(taint, *which));
        let mut after: Vec<Taint> = taints.iter().filter(|t| !is_removed(t)).cloned().collect();
        for which in &self.add {
            if !has(&after, *which) {
                after.push(taint(*which, now));
            }
        }
        (after != taints).then_some(after)
    }
}

fn taint((key, effect): (&str, &str), now: Timestamp) -> Taint {
    Taint {
        key: key.to_owned(),
        effect: effect.to_owned(),
        time_added: Some(Time(whole_seconds(now))),
        value: None,
    }
}

fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn is(taint: &Taint, (key, effect): (&str, &str)) -> bool {
    taint.key == key && taint.effect == effect
}

/// Whether a taint of this key and effect is among them.
pub(crate) fn has(taints: &[Taint], which: (&str, &str)) -> bool {
    taints.iter().any(|taint| is(taint, which))
}

/// What is to change so that the taints against new pods say what the conditions say.
pub(crate) fn by_condition(node: &NodeState) -> Option<Swap> {
    let mut wanted: Vec<&'static str> = BY_CONDITION
        .iter()
        .filter(|(condition, status, _)| node.status_of(condition) == Some(*status))
        .map(|(_, _, key)| *key)
        .collect();
    if node.unschedulable {
        wanted.push(UNSCHEDULABLE);
    }
    let ours = BY_CONDITION.iter().map(|(_, _, key)| *key);
    let there: Vec<&'static str> = ours
        .chain([UNSCHEDULABLE])
        .filter(|key| has(&node.taints, (key, NO_SCHEDULE)))
        .collect();
    let without = |keys: &[&'static str], others: &[&'static str]| {
        let left = keys.iter().filter(|key| !others.contains(key));
        left.map(|key| (*key, NO_SCHEDULE)).collect::<Vec<_>>()
    };
    let swap = Swap {
        add: without(&wanted, &there),
        remove: without(&there, &wanted),
    };
    (swap != Swap::default()).then_some(swap)
}

/// How long a pod stays on a node with these taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// Not at all.
    No,
    /// For this many seconds.
    Seconds(u64),
    /// As long as it likes.
    Forever,
}

/// How long a pod with these tolerations stays: the shortest time of those it needs (upstream's
/// `getMinTolerationTime`).
pub(crate) fn stay(taints: &[Taint], tolerations: &[Toleration]) -> Stay {
    let mut shortest = Stay::Forever;
    for taint in taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
        let mut matching = tolerations.iter().filter(|t| tolerates(t, taint));
        // The first that matches is the one that is used, as upstream's `GetMatchingTolerations` has it.
        let Some(used) = matching.next() else {
            return Stay::No;
        };
        shortest = match (used.toleration_seconds, shortest) {
            (None, shortest) => shortest,
            (Some(seconds), _) if seconds <= 0 => return Stay::No,
            (Some(seconds), Stay::Seconds(least)) => {
                Stay::Seconds(least.min(seconds.unsigned_abs()))
            }
            (Some(seconds), _) => Stay::Seconds(seconds.unsigned_abs()),
        };
    }
    shortest
}

/// Whether a toleration covers a taint (upstream's `ToleratesTaint`).
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_named = |wish: &Option<String>, name: &str| {
        wish.as_deref()
            .is_none_or(|wish| wish.is_empty() || wish == name)
    };
    if !is_named(&toleration.effect, &taint.effect) || !is_named(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref() {
        Some("Exists") => true,
        None | Some("" | "Equal") => {
            toleration.value.as_deref().unwrap_or_default() == value(taint)
        }
        Some("Lt") => number(toleration)
            .zip(number_of(taint))
            .is_some_and(|(t, n)| n < t),
        Some("Gt") => number(toleration)
            .zip(number_of(taint))
            .is_some_and(|(t, n)| n > t),
        Some(_) => false,
    }
}

fn value(taint: &Taint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

fn number(toleration: &Toleration) -> Option<i64> {
    toleration.value.as_deref()?.parse().ok()
}

fn number_of(taint: &Taint) -> Option<i64> {
    value(taint).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, effect: &str, seconds: Option<i64>) -> Toleration {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: filled(key),
            effect: filled(effect),
            operator: Some("Exists".into()),
            toleration_seconds: seconds,
            value: None,
        }
    }

    fn no_execute(keys: &[&str]) -> Vec<Taint> {
        let taint = |key: &&str| taint((key, NO_EXECUTE), Timestamp::UNIX_EPOCH);
        keys.iter().map(taint).collect()
    }

    #[test]
    fn the_shortest_toleration_that_is_needed_counts() {
        let (a, b) = ("a", "b");
        for (taints, tolerations, expected) in [
            (vec![], vec![], Stay::Forever),
            (vec![a], vec![], Stay::No),
            (vec![a], vec![(a, NO_EXECUTE, Some(30))], Stay::Seconds(30)),
            (vec![a], vec![(a, "", Some(0))], Stay::No),
            (vec![a], vec![(a, "", Some(-5))], Stay::No),
            (vec![a], vec![(a, NO_SCHEDULE, None)], Stay::No),
            (vec![a], vec![("", "", None)], Stay::Forever),
            (vec![a, b], vec![(a, "", Some(30))], Stay::No),
            (
                vec![a, b],
                vec![(a, "", Some(30)), (b, "", Some(20))],
                Stay::Seconds(20),
            ),
            (
                vec![a, b],
                vec![(a, "", Some(30)), (b, "", None)],
                Stay::Seconds(30),
            ),
        ] {
            let made: Vec<Toleration> = tolerations
                .iter()
                .map(|(key, effect, seconds)| toleration(key, effect, *seconds))
                .collect();
            assert_eq!(
                stay(&no_execute(&taints), &made),
                expected,
                "{taints:?} {tolerations:?}"
            );
        }
    }

    #[test]
    fn a_swap_that_changes_nothing_is_no_write() {
        let now = Timestamp::UNIX_EPOCH;
        let lost = Swap::evict(Status::Unknown).unwrap_or_default();
        let tainted = lost.applied(&[], now).unwrap_or_default();
        assert!(has(&tainted, (UNREACHABLE, NO_EXECUTE)));
        assert_eq!(lost.applied(&tainted, now), None);
        let broken = Swap::evict(Status::False).unwrap_or_default();
        let swapped = broken.applied(&tainted, now).unwrap_or_default();
        assert!(has(&swapped, (NOT_READY, NO_EXECUTE)) && swapped.len() == 1);
        assert_eq!(Swap::reachable().applied(&swapped, now), Some(vec![]));
        assert_eq!(Swap::evict(Status::True), None);
    }

    #[test]
    fn conditions_and_cordons_keep_pods_away() {
        let mut node = NodeState::default();
        assert_eq!(by_condition(&node), None);
        node.set("Ready", Status::Unknown);
        node.set("DiskPressure", Status::True);
        node.unschedulable = true;
        node.taints = vec![
            taint((NOT_READY, NO_SCHEDULE), Timestamp::UNIX_EPOCH),
            taint(("theirs", NO_SCHEDULE), Timestamp::UNIX_EPOCH),
        ];
        let swap = by_condition(&node).unwrap_or_default();
        let added: Vec<&str> = swap.add.iter().map(|(key, _)| *key).collect();
        assert_eq!(
            added,
            [
                UNREACHABLE,
                "node.kubernetes.io/disk-pressure",
                UNSCHEDULABLE
            ]
        );
        assert_eq!(swap.remove, [(NOT_READY, NO_SCHEDULE)]);
        node.taints = swap
            .applied(&node.taints, Timestamp::UNIX_EPOCH)
            .unwrap_or_default();
        assert_eq!(by_condition(&node), None);
    }
}
