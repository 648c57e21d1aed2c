//! What a kubelet would do about a pod, if its containers did what their annotations say.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::residents::{Deletion, Part, Phase, Resident, Restarts};

/// The shortest time between two starts of a container that ends by itself.
const BACK_OFF: Duration = Duration::from_secs(10);

/// What is to be done about a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Nothing, until something changes.
    Nothing,
    /// Nothing yet.
    Wait(Duration),
    /// A status is to be written.
    Tell(Value),
    /// Its containers have stopped: the last status, if it was not written yet, and then the pod can go.
    Let { go: Option<Value> },
}

/// What the node gives a pod.
pub(crate) struct Place {
    pub(crate) host: IpAddr,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Decides about a pod; `place` is only asked when the pod starts, and may not know yet.
pub(crate) fn decide(
    pod: &Resident,
    place: impl FnOnce() -> Option<Place>,
    now: Timestamp,
) -> Step {
    if let Some(deletion) = pod.deletion {
        return stop(pod, deletion, now);
    }
    match (pod.phase, pod.running_since) {
        (Phase::Ended, _) => Step::Nothing,
        (Phase::Running, Some(since)) => go_on(pod, since, now),
        _ => match place() {
            Some(place) => Step::Tell(start(pod, &place, now)),
            None => Step::Nothing,
        },
    }
}

fn stop(pod: &Resident, deletion: Deletion, now: Timestamp) -> Step {
    // What is left of it waits for others.
    if deletion.grace == 0 {
        return Step::Nothing;
    }
    if pod.phase == Phase::Ended || pod.running_since.is_none() {
        return Step::Let { go: None };
    }
    let asked = deletion.due - SignedDuration::from_secs(deletion.grace);
    let stopped = (asked + signed(pod.stop)).min(deletion.due);
    match Duration::try_from(stopped.duration_since(now)) {
        Ok(left) if !left.is_zero() => Step::Wait(left),
        // Killed ones end with 137, as by SIGKILL.
        _ => {
            let was_killed = pod.stop >= Duration::from_secs(deletion.grace.unsigned_abs());
            let code = if was_killed { 137 } else { pod.exit_code };
            Step::Let {
                go: Some(ended(pod, code, now)),
            }
        }
    }
}

fn go_on(pod: &Resident, since: Timestamp, now: Timestamp) -> Step {
    if let Some(run) = pod.run {
        let restarts = match pod.restarts {
            Restarts::Always => true,
            Restarts::OnFailure => pod.exit_code != 0,
            Restarts::Never => false,
        };
        let run = if restarts { run.max(BACK_OFF) } else { run };
        let left = (since + signed(run)).duration_since(now);
        if let Ok(left) = Duration::try_from(left)
            && !left.is_zero()
        {
            return mended(pod, now).map_or(Step::Wait(left), Step::Tell);
        }
        return Step::Tell(match restarts {
            true => started_again(pod, since, now),
            false => ended(pod, pod.exit_code, now),
        });
    }
    mended(pod, now).map_or(Step::Nothing, Step::Tell)
}

// The node controller calls the pods of a lost node unready, and gates open and close.
fn mended(pod: &Resident, now: Timestamp) -> Option<Value> {
    let is_right = pod.is("Ready") == has_open_gates(pod) && pod.is("ContainersReady");
    (!is_right).then(|| json!({ "conditions": conditions(pod, true, now) }))
}

fn start(pod: &Resident, place: &Place, now: Timestamp) -> Value {
    let addresses: &[IpAddr] = match pod.is_on_host_network || place.addresses.is_empty() {
        true => &[place.host],
        false => &place.addresses,
    };
    let each = |addresses: &[IpAddr]| {
        addresses
            .iter()
            .map(|ip| json!({ "ip": ip }))
            .collect::<Value>()
    };
    json!({
        "phase": "Running",
        "observedGeneration": pod.generation,
        "startTime": Time(pod.start.unwrap_or(now)),
        "hostIP": place.host, "hostIPs": each(&[place.host]),
        "podIP": addresses.first(), "podIPs": each(addresses),
        "conditions": conditions(pod, true, now),
        "containerStatuses": statuses(pod, &pod.containers, &running(now)),
        "initContainerStatuses": init_statuses(pod, now),
    })
}

fn started_again(pod: &Resident, since: Timestamp, now: Timestamp) -> Value {
    let mut again = pod.clone();
    again.restart_count += 1;
    let mut statuses = statuses(&again, &again.containers, &running(now));
    for status in statuses.as_array_mut().into_iter().flatten() {
        status["lastState"] = terminated(pod.exit_code, since, now);
    }
    json!({ "containerStatuses": statuses })
}

fn ended(pod: &Resident, code: i32, now: Timestamp) -> Value {
    let since = pod.running_since.unwrap_or(now);
    let state = terminated(code, since, now);
    json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "observedGeneration": pod.generation,
        "conditions": conditions(pod, false, now),
        "containerStatuses": statuses(pod, &pod.containers, &state),
    })
}

fn has_open_gates(pod: &Resident) -> bool {
    pod.gates.iter().all(|gate| pod.is(gate))
}

// Times of transitions are told only where something turns, so that they stay where it does not.
fn conditions(pod: &Resident, runs: bool, now: Timestamp) -> Value {
    let reason = match (runs, has_open_gates(pod)) {
        (false, _) => "PodCompleted",
        (true, false) => "ReadinessGatesNotReady",
        (true, true) => "",
    };
    [
        ("PodReadyToStartContainers", runs, ""),
        ("Initialized", true, if runs { "" } else { reason }),
        ("Ready", runs && has_open_gates(pod), reason),
        ("ContainersReady", runs, if runs { "" } else { reason }),
        ("PodScheduled", true, ""),
    ]
    .into_iter()
    .map(|(kind, is, reason)| {
        let status = if is { "True" } else { "False" };
        let known = pod
            .conditions
            .iter()
            .any(|known| *known == (kind.to_owned(), is));
        let mut condition = json!({ "type": kind, "status": status,
            "observedGeneration": pod.generation });
        if !known {
            condition["lastTransitionTime"] = json!(Time(now));
        }
        condition["reason"] = match reason {
            "" => Value::Null,
            reason => reason.into(),
        };
        condition
    })
    .collect()
}

fn running(now: Timestamp) -> Value {
    json!({ "running": { "startedAt": Time(now) } })
}

fn terminated(code: i32, since: Timestamp, now: Timestamp) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
        "startedAt": Time(since), "finishedAt": Time(now) } })
}

fn statuses(pod: &Resident, containers: &[Part], state: &Value) -> Value {
    let runs = state.get("running").is_some();
    let one = |part: &Part| {
        json!({ "name": part.name, "image": part.image, "imageID": format!("hollow://{}", part.image),
            "containerID": format!("hollow://{}-{}", pod.uid, part.name),
            "ready": runs, "started": runs, "restartCount": pod.restart_count, "state": state })
    };
    containers.iter().map(one).collect()
}

fn init_statuses(pod: &Resident, now: Timestamp) -> Value {
    let one = |part: &Part| {
        let state = match part.stays {
            true => running(now),
            false => terminated(0, now, now),
        };
        let mut status = statuses(pod, std::slice::from_ref(part), &state)[0].take();
        status["ready"] = true.into();
        status
    };
    pod.init_containers.iter().map(one).collect()
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests;
