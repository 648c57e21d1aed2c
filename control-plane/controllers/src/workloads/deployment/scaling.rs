//! How many replicas each set gets: when the deployment is resized in the middle of a rollout, and step by step while
//! it rolls.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::limits::Limits;
use super::sets::{self, Sets, available, replicas};

/// A set and the number of replicas it is to have.
pub(super) type Sized<'a> = (&'a ReplicaSet, i32);

/// Whether the deployment was resized since its sets were last scaled (upstream's `isScalingEvent`).
pub(super) fn is_resized(deployment: &Deployment, sets: &Sets<'_>) -> bool {
    let wanted = Limits::of(deployment).replicas;
    let mut active = sets.all().filter(|set| replicas(set) > 0);
    active.any(|set| sets::desired(set).is_some_and(|desired| desired != wanted))
}

/// Sizes after a deployment was resized or while it is paused (upstream's `scale`).
pub(super) fn resize<'a>(deployment: &Deployment, sets: &Sets<'a>) -> Vec<Sized<'a>> {
    let limits = Limits::of(deployment);
    if let Some(only) = active_or_latest(sets) {
        // Said even if the size is right already: it is noted on the set what it was made for.
        return vec![(only, limits.replicas)];
    }
    if sets.new.is_some_and(|new| is_saturated(new, limits)) {
        let active = sets.old.iter().filter(|set| replicas(set) > 0);
        return active.map(|set| (*set, 0)).collect();
    }
    match super::rollout::recreates(deployment) {
        true => active(sets).map(|set| (set, replicas(set))).collect(),
        false => in_proportion(deployment, sets, limits),
    }
}

fn active<'a>(sets: &Sets<'a>) -> impl Iterator<Item = &'a ReplicaSet> {
    sets.all().filter(|set| replicas(set) > 0)
}

// The only set with replicas; if there is none, the newest.
fn active_or_latest<'a>(sets: &Sets<'a>) -> Option<&'a ReplicaSet> {
    let mut active = sets.all().filter(|set| replicas(set) > 0);
    match (active.next(), active.next()) {
        (Some(only), None) => Some(only),
        (None, _) => sets.new.or(sets.old.last().copied()),
        _ => None,
    }
}

fn is_saturated(new: &ReplicaSet, limits: Limits) -> bool {
    replicas(new) == limits.replicas
        && sets::desired(new) == Some(limits.replicas)
        && available(new) == limits.replicas
}

// Each set grows or shrinks by its share; what rounding leaves over goes to the largest.
fn in_proportion<'a>(deployment: &Deployment, sets: &Sets<'a>, limits: Limits) -> Vec<Sized<'a>> {
    let mut active: Vec<&ReplicaSet> = sets.all().filter(|set| replicas(set) > 0).collect();
    let total: i32 = active.iter().map(|set| replicas(set)).sum();
    let allowed = if limits.replicas > 0 {
        limits.most()
    } else {
        0
    };
    let to_add = allowed - total;
    // Larger first; of equals the newer one grows and the older one shrinks first.
    let made = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|t| t.0);
    match to_add > 0 {
        true => active.sort_by_key(|set| (Reverse(replicas(set)), Reverse(made(set)))),
        false => active.sort_by_key(|set| (Reverse(replicas(set)), made(set))),
    }
    let mut added = 0;
    let mut sized: Vec<Sized<'a>> = Vec::with_capacity(active.len());
    for set in active {
        let share = proportion(deployment, set, limits, to_add, added);
        added += share;
        sized.push((set, replicas(set) + share));
    }
    if let Some((_, first)) = sized.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sized
}

// Upstream's `GetReplicaSetProportion`.
fn proportion(
    deployment: &Deployment,
    set: &ReplicaSet,
    limits: Limits,
    to_add: i32,
    added: i32,
) -> i32 {
    if to_add == 0 || to_add == added {
        return 0;
    }
    let (fraction, allowed) = (fraction(deployment, set, limits), to_add - added);
    match to_add > 0 {
        true => fraction.min(allowed),
        false => fraction.max(allowed),
    }
}

fn fraction(deployment: &Deployment, set: &ReplicaSet, limits: Limits) -> i32 {
    let now = replicas(set);
    if limits.replicas == 0 {
        return -now;
    }
    let status = deployment
        .status
        .as_ref()
        .and_then(|status| status.replicas);
    let before = sets::most(set).or(status).filter(|most| *most > 0);
    let Some(before) = before else {
        return 0;
    };
    let size = f64::from(now) * f64::from(limits.most()) / f64::from(before);
    size.round() as i32 - now
}

/// How many replicas the new set is to have in a step (upstream's `NewRSNewReplicas`); `now` is what it has.
pub(super) fn of_new(sets: &Sets<'_>, now: i32, limits: Limits, recreates: bool) -> i32 {
    if recreates || now > limits.replicas {
        return limits.replicas;
    }
    let total: i32 = sets.all().map(replicas).sum();
    let room = (limits.most() - total).max(0);
    now + room.min(limits.replicas - now)
}

/// How far the old sets may shrink in a step (upstream's `reconcileOldReplicaSets`): first those replicas that are
/// of no use, oldest set first, then as many as the new ones that are available allow.
pub(super) fn of_old<'a>(sets: &Sets<'a>, limits: Limits) -> Vec<Sized<'a>> {
    let mut sized: Vec<Sized<'a>> = sets.old.iter().map(|set| (*set, replicas(set))).collect();
    let total: i32 = sets.all().map(replicas).sum();
    let unready = sets.new.map_or(0, |new| replicas(new) - available(new));
    let most = total - limits.fewest() - unready;
    if most <= 0 || sized.iter().all(|(_, size)| *size == 0) {
        return Vec::new();
    }
    let mut budget = most;
    for (set, size) in &mut sized {
        let useless = (*size - available(set)).clamp(0, budget);
        *size -= useless;
        budget -= useless;
    }
    let all_available: i32 = sets.all().map(available).sum();
    // A set that has not shrunk yet still counts what it will lose: never more than the sizes allow.
    let mut budget = (all_available - limits.fewest()).clamp(0, budget);
    for (_, size) in &mut sized {
        let spare = (*size).min(budget);
        *size -= spare;
        budget -= spare;
    }
    sized.retain(|(set, size)| replicas(set) != *size);
    sized
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i32, surge: i32, unavailable: i32) -> Deployment {
        serde_json::from_value(json!({ "spec": { "replicas": replicas, "selector": {},
            "template": { "metadata": { "labels": { "v": "new" } } },
            "strategy": { "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } } }))
        .unwrap()
    }

    // Name, replicas, available, desired and most as noted.
    fn set(name: &str, replicas: i32, available: i32, noted: (i32, i32)) -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {
                "deployment.kubernetes.io/desired-replicas": noted.0.to_string(),
                "deployment.kubernetes.io/max-replicas": noted.1.to_string() } },
            "spec": { "replicas": replicas, "selector": {}, "template": { "metadata": { "labels": { "v": name } } } },
            "status": { "replicas": replicas, "availableReplicas": available },
        }))
        .unwrap()
    }

    fn sizes(sized: &[Sized<'_>]) -> Vec<(String, i32)> {
        let name = |set: &ReplicaSet| set.metadata.name.clone().unwrap();
        sized.iter().map(|(set, size)| (name(set), *size)).collect()
    }

    #[test]
    fn a_resize_in_a_rollout_is_shared_out() {
        // The documentation's example: 10 replicas, surge 3, 2 unavailable; 8 old and 5 new become 15.
        let deployment = deployment(15, 3, 2);
        let (old, new) = (set("old", 8, 8, (10, 13)), set("new", 5, 0, (10, 13)));
        let all = [&old, &new];
        let sets = Sets::of(&deployment, &all);
        assert!(is_resized(&deployment, &sets));
        let expected = vec![("old".to_owned(), 11), ("new".to_owned(), 7)];
        assert_eq!(sizes(&resize(&deployment, &sets)), expected);
    }

    #[test]
    fn a_single_active_set_takes_the_whole_size() {
        let deployment = deployment(7, 1, 1);
        let (old, new) = (set("old", 0, 0, (3, 4)), set("new", 3, 3, (3, 4)));
        let all = [&old, &new];
        let sets = Sets::of(&deployment, &all);
        assert_eq!(sizes(&resize(&deployment, &sets)), [("new".to_owned(), 7)]);
        let zero = self::deployment(0, 1, 1);
        assert_eq!(sizes(&resize(&zero, &sets)), [("new".to_owned(), 0)]);
    }

    #[test]
    fn a_rollout_never_goes_over_or_under_its_limits() {
        // Whatever becomes available when, the sums keep to the limits and the rollout ends.
        for (replicas_, surge, unavailable) in
            [(10, 3, 2), (1, 1, 0), (3, 0, 1), (4, 4, 4), (7, 2, 0)]
        {
            let deployment = deployment(replicas_, surge, unavailable);
            let limits = Limits::of(&deployment);
            let noted = (replicas_, limits.most());
            let (mut old, mut new) = ((replicas_, replicas_), (0, 0));
            for _ in 0..100 {
                let (o, n) = (
                    set("old", old.0, old.1, noted),
                    set("new", new.0, new.1, noted),
                );
                let all = [&o, &n];
                let sets = Sets::of(&deployment, &all);
                let next = of_new(&sets, new.0, limits, false);
                if next != new.0 {
                    new.0 = next;
                } else if let Some((_, size)) = of_old(&sets, limits).first() {
                    old = (*size, (*size).min(old.1));
                } else {
                    new.1 = (new.1 + 1).min(new.0);
                }
                assert!(old.0 + new.0 <= limits.most());
                assert!(old.1 + new.1 >= limits.fewest(), "{old:?} {new:?}");
            }
            assert_eq!((old, new), ((0, 0), (replicas_, replicas_)));
        }
    }

    #[test]
    fn replicas_that_never_became_available_go_first() {
        let deployment = deployment(10, 3, 2);
        let limits = Limits::of(&deployment);
        let (sick, well) = (set("a-sick", 4, 0, (10, 13)), set("b-well", 8, 8, (10, 13)));
        let new = set("new", 1, 0, (10, 13));
        let all = [&sick, &well, &new];
        let sets = Sets::of(&deployment, &all);
        // 13 in all, 8 must be available, 1 new is not: 4 may go, the sick ones.
        assert_eq!(sizes(&of_old(&sets, limits)), [("a-sick".to_owned(), 0)]);
    }
}
