//! Which pods go first when there are too many (upstream's `ActivePodsWithRanks`).

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::pod_view::PodView;

/// The `count` pods of `pods` that are worth least; `related` are those of the sets of the same owner, which tell
/// how crowded a node is.
pub(crate) fn least_valuable<'a>(
    pods: &[&'a Arc<PodView>],
    related: &[Arc<PodView>],
    count: usize,
    now: Timestamp,
) -> Vec<&'a Arc<PodView>> {
    let mut pods = pods.to_vec();
    if count < pods.len() {
        let crowd = crowd(related);
        pods.sort_by(|a, b| compare((a, &crowd), (b, &crowd), now));
    }
    pods.truncate(count);
    pods
}

type Crowd<'a> = HashMap<&'a str, usize>;

fn crowd(related: &[Arc<PodView>]) -> Crowd<'_> {
    let mut crowd = Crowd::new();
    for pod in related.iter().filter(|pod| pod.is_active()) {
        *crowd
            .entry(pod.node.as_deref().unwrap_or_default())
            .or_default() += 1;
    }
    crowd
}

// Less is deleted first.
fn compare(
    (a, crowd): (&PodView, &Crowd<'_>),
    (b, _): (&PodView, &Crowd<'_>),
    now: Timestamp,
) -> Ordering {
    let rank = |pod: &PodView| {
        let node = pod.node.as_deref().unwrap_or_default();
        crowd.get(node).copied().unwrap_or_default()
    };
    let plain = |pod: &PodView| {
        (
            pod.node.is_some(),
            pod.phase,
            pod.is_ready(),
            pod.deletion_cost,
            Reverse(rank(pod)),
        )
    };
    plain(a)
        .cmp(&plain(b))
        .then_with(|| match (a.ready_since, b.ready_since) {
            (Some(one), Some(other)) if one != other => younger_first((a, one), (b, other), now),
            _ => Ordering::Equal,
        })
        .then_with(|| b.restarts.cmp(&a.restarts))
        .then_with(|| match a.created == b.created {
            true => Ordering::Equal,
            false => younger_first((a, a.created), (b, b.created), now),
        })
}

// Ages count by their order of magnitude only, so that the youngest are not always the ones to go; among equals
// chance decides, which is what uids are.
fn younger_first(
    (a, one): (&PodView, Timestamp),
    (b, other): (&PodView, Timestamp),
    now: Timestamp,
) -> Ordering {
    magnitude(one, now)
        .cmp(&magnitude(other, now))
        .then_with(|| a.uid.cmp(&b.uid))
}

fn magnitude(since: Timestamp, now: Timestamp) -> i64 {
    match now.as_nanosecond() - since.as_nanosecond() {
        age if age > 0 => i64::from(age.ilog2()),
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod_view::Phase;
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn ago(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 - seconds).unwrap()
    }

    fn pod(name: &str, change: impl Fn(&mut PodView)) -> Arc<PodView> {
        let mut pod = PodView {
            uid: name.into(),
            name: name.into(),
            phase: Phase::Running,
            node: Some("n1".into()),
            ready_since: Some(ago(1000)),
            created: ago(2000),
            ..PodView::default()
        };
        change(&mut pod);
        Arc::new(pod)
    }

    #[test]
    fn pods_go_in_upstreams_order() {
        // Each goes before the next one.
        let pods = [
            pod("unassigned", |p| p.node = None),
            pod("pending", |p| p.phase = Phase::Pending),
            pod("unknown", |p| p.phase = Phase::Unknown),
            pod("not ready", |p| p.ready_since = None),
            pod("cheap", |p| p.deletion_cost = -5),
            pod("crowded", |p| p.node = Some("crowded".into())),
            pod("just ready", |p| p.ready_since = Some(ago(1))),
            pod("restarted", |p| p.restarts = 3),
            pod("young", |p| p.created = ago(100)),
            pod("old", |_| {}),
            pod("dear", |p| p.deletion_cost = 5),
        ];
        let related: Vec<_> = (0..40)
            .map(|_| pod("x", |p| p.node = Some("crowded".into())))
            .collect();
        let mut mixed: Vec<&Arc<PodView>> = pods.iter().rev().collect();
        mixed.swap(2, 7);
        mixed.push(&pods[0]);
        let order = least_valuable(&mixed, &related, pods.len(), now());
        let names: Vec<&str> = order.iter().map(|p| p.name.as_str()).skip(1).collect();
        let expected: Vec<&str> = pods.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, expected[..pods.len() - 1]);
    }
}
