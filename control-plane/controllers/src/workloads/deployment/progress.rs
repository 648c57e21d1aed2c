//! What a deployment's status says: counts, availability, and whether the rollout goes on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::limits::Limits;
use super::sets::Sets;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// The counts and the availability (upstream's `calculateStatus`).
pub(super) fn counted(
    deployment: &Deployment,
    sets: &Sets<'_>,
    now: Timestamp,
) -> DeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let none = ReplicaSetStatus::default();
    let status = |set: &ReplicaSet| set.status.clone().unwrap_or_else(|| none.clone());
    let sum = |count: fn(&ReplicaSetStatus) -> Option<i32>| -> i32 {
        sets.all().map(|set| count(&status(set)).unwrap_or(0)).sum()
    };
    let (total, available) = (sum(|s| Some(s.replicas)), sum(|s| s.available_replicas));
    let some = |count: i32| (count != 0).then_some(count);
    let mut next = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(total),
        updated_replicas: some(sets.new.map_or(0, |new| status(new).replicas)),
        ready_replicas: some(sum(|s| s.ready_replicas)),
        available_replicas: some(available),
        unavailable_replicas: some((total - available).max(0)),
        terminating_replicas: terminating(sets),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let is_available = available >= Limits::of(deployment).fewest();
    let condition = match is_available {
        true => (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        ),
        false => (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        ),
    };
    set_condition(&mut next, self::condition(AVAILABLE, condition, now));
    next
}

// Unknown as long as one set does not know.
fn terminating(sets: &Sets<'_>) -> Option<i32> {
    let counts = sets
        .all()
        .map(|set| set.status.as_ref()?.terminating_replicas);
    counts.sum()
}

/// The status in the middle of a rollout (upstream's `syncRolloutStatus`).
pub(super) fn rolling(
    deployment: &Deployment,
    sets: &Sets<'_>,
    now: Timestamp,
) -> DeploymentStatus {
    let mut next = counted(deployment, sets, now);
    if deadline(deployment).is_none() {
        remove_condition(&mut next, PROGRESSING);
    }
    let current = find(&next, PROGRESSING).cloned();
    let is_over = next.replicas == next.updated_replicas
        && current
            .as_ref()
            .is_some_and(|c| c.reason.as_deref() == Some(NEW_AVAILABLE));
    if deadline(deployment).is_some() && !is_over {
        note_progress(deployment, sets, &mut next, current, now);
    }
    match failure(sets) {
        Some(condition) => set_condition(&mut next, condition),
        None => remove_condition(&mut next, REPLICA_FAILURE),
    }
    next
}

fn note_progress(
    deployment: &Deployment,
    sets: &Sets<'_>,
    next: &mut DeploymentStatus,
    current: Option<DeploymentCondition>,
    now: Timestamp,
) {
    let name = |object: &Option<String>| object.clone().unwrap_or_default();
    let subject = match sets.new {
        Some(new) => format!("ReplicaSet \"{}\"", name(&new.metadata.name)),
        None => format!("Deployment \"{}\"", name(&deployment.metadata.name)),
    };
    if is_complete(deployment, next) {
        let text = format!("{subject} has successfully progressed.");
        set_condition(
            next,
            condition(PROGRESSING, ("True", NEW_AVAILABLE, &text), now),
        );
    } else if has_progressed(deployment, next) {
        let text = format!("{subject} is progressing.");
        let mut said = condition(PROGRESSING, ("True", "ReplicaSetUpdated", &text), now);
        // Said anew each time, because the deadline counts from the last time it was said.
        if let Some(current) = current.filter(|current| current.status == "True") {
            said.last_transition_time = current.last_transition_time;
        }
        remove_condition(next, PROGRESSING);
        next.conditions.get_or_insert_default().push(said);
    } else if is_timed_out(deployment, next, now) {
        let text = format!("{subject} has timed out progressing.");
        set_condition(
            next,
            condition(PROGRESSING, ("False", TIMED_OUT, &text), now),
        );
    }
}

/// Whether everything is new and available (upstream's `DeploymentComplete`).
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = Limits::of(deployment).replicas;
    let is_all = |count: Option<i32>| count.unwrap_or(0) == wanted;
    is_all(status.updated_replicas)
        && is_all(status.replicas)
        && is_all(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

fn has_progressed(deployment: &Deployment, next: &DeploymentStatus) -> bool {
    let before = deployment.status.clone().unwrap_or_default();
    let updated = |s: &DeploymentStatus| s.updated_replicas.unwrap_or(0);
    let old = |s: &DeploymentStatus| s.replicas.unwrap_or(0) - updated(s);
    updated(next) > updated(&before)
        || old(next) < old(&before)
        || next.ready_replicas.unwrap_or(0) > before.ready_replicas.unwrap_or(0)
        || next.available_replicas.unwrap_or(0) > before.available_replicas.unwrap_or(0)
}

fn is_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(condition) = find(status, PROGRESSING) else {
        return false;
    };
    match condition.reason.as_deref() {
        Some(NEW_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => left(deployment, condition, now).is_some_and(|left| left < 0),
    }
}

fn left(deployment: &Deployment, condition: &DeploymentCondition, now: Timestamp) -> Option<i64> {
    let since = condition.last_update_time.as_ref()?.0.as_second();
    Some(since + deadline(deployment)? - now.as_second())
}

/// When a rollout that stands still has to be looked at again (upstream's `requeueStuckDeployment`).
pub(super) fn look_again(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    deadline(deployment)?;
    let condition = find(status, PROGRESSING)?;
    let is_settled = matches!(condition.reason.as_deref(), Some(NEW_AVAILABLE | TIMED_OUT));
    if is_settled || is_complete(deployment, status) {
        return None;
    }
    let left = left(deployment, condition, now)?;
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0) + 1))
}

fn deadline(deployment: &Deployment) -> Option<i64> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then_some(i64::from(seconds))
}

// The first failure of the new set; without one, of any.
fn failure(sets: &Sets<'_>) -> Option<DeploymentCondition> {
    let of = |set: &ReplicaSet| {
        let mut conditions = set
            .status
            .iter()
            .flat_map(|s| s.conditions.iter().flatten());
        let found = conditions.find(|c| c.type_ == REPLICA_FAILURE)?;
        Some(DeploymentCondition {
            type_: REPLICA_FAILURE.into(),
            status: found.status.clone(),
            reason: found.reason.clone(),
            message: found.message.clone(),
            last_transition_time: found.last_transition_time.clone(),
            last_update_time: found.last_transition_time.clone(),
        })
    };
    sets.new.and_then(of).or_else(|| sets.all().find_map(of))
}

/// The deployment with the pausing, or its end, noted (upstream's `checkPausedConditions`).
pub(super) fn note_pause(deployment: &mut Deployment, now: Timestamp) {
    let is_paused = deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
    if deadline(deployment).is_none() {
        return;
    }
    let status = deployment.status.get_or_insert_default();
    let reason = find(status, PROGRESSING).and_then(|condition| condition.reason.clone());
    let reason = reason.as_deref();
    let said = match (is_paused, reason) {
        // A rollout that failed stays failed, paused or not.
        (_, Some(TIMED_OUT)) => return,
        (true, Some(PAUSED)) => return,
        (true, _) => (PAUSED, "Deployment is paused"),
        (false, Some(PAUSED)) => (RESUMED, "Deployment is resumed"),
        (false, _) => return,
    };
    set_condition(
        status,
        condition(PROGRESSING, ("Unknown", said.0, said.1), now),
    );
}

/// Notes that the new set was found or made.
pub(super) fn note_new_set(deployment: &mut Deployment, made: bool, name: &str, now: Timestamp) {
    if deadline(deployment).is_none() {
        return;
    }
    let status = deployment.status.get_or_insert_default();
    let (reason, text) = match made {
        true => (
            "NewReplicaSetCreated",
            format!("Created new replica set \"{name}\""),
        ),
        false => (
            "FoundNewReplicaSet",
            format!("Found new replica set \"{name}\""),
        ),
    };
    if made || find(status, PROGRESSING).is_none() {
        set_condition(status, condition(PROGRESSING, ("True", reason, &text), now));
    }
}

/// The deployment with the failure to make its new set noted.
pub(super) fn not_created(
    deployment: &Deployment,
    text: &str,
    now: Timestamp,
) -> Option<Deployment> {
    deadline(deployment)?;
    let mut next = deployment.clone();
    let said = condition(PROGRESSING, ("False", "ReplicaSetCreateError", text), now);
    set_condition(next.status.get_or_insert_default(), said);
    (next != *deployment).then_some(next)
}

fn condition(
    name: &str,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: name.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

fn find<'a>(status: &'a DeploymentStatus, name: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == name)
}

// What has been said already is not said again, and the time of the last turn is kept.
fn set_condition(status: &mut DeploymentStatus, mut said: DeploymentCondition) {
    if let Some(before) = find(status, &said.type_) {
        if before.status == said.status && before.reason == said.reason {
            return;
        }
        if before.status == said.status {
            said.last_transition_time = before.last_transition_time.clone();
        }
    }
    remove_condition(status, &said.type_);
    status.conditions.get_or_insert_default().push(said);
}

fn remove_condition(status: &mut DeploymentStatus, name: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != name);
    }
    status
        .conditions
        .take_if(|conditions| conditions.is_empty());
}
