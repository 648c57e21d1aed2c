//! Checks of pods and what makes them.

use serde_json::Value;

use super::words::{EVENTS, UNSCHEDULED, WAITING, next};
use super::{Finding, World, condition, items, name_of, text};

/// How many characters of a message are shown.
const ENOUGH: usize = 240;

fn about(pod: &Value) -> String {
    format!(
        "pod {}/{}",
        text(&pod["metadata"], "namespace"),
        name_of(pod)
    )
}

fn filled(step: &str, pod: &Value) -> String {
    step.replace("{pod}", name_of(pod))
        .replace("{namespace}", text(&pod["metadata"], "namespace"))
        .replace("{node}", text(&pod["spec"], "nodeName"))
}

fn short(message: &str) -> String {
    message.chars().take(ENOUGH).collect()
}

pub(super) fn without_a_node(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    for pod in &world.pods {
        let scheduled = condition(pod, "PodScheduled").unwrap_or(&Value::Null);
        if scheduled["status"] != "False" {
            continue;
        }
        let message = text(scheduled, "message");
        let step = match scheduled["reason"] == "SchedulingGated" {
            true => "its schedulingGates hold it back: whoever set them takes them away",
            false => next(&UNSCHEDULED, message)
                .unwrap_or("`kubectl describe pod -n {namespace} {pod}` says why"),
        };
        let wrong = format!("no node takes it: {}", short(message));
        found.push(Finding::new(&about(pod), wrong, filled(step, pod)));
    }
    found
}

/// Pods that have a node: one finding each, the most telling.
pub(super) fn that_do_not_start(world: &World) -> Vec<Finding> {
    let placed = world
        .pods
        .iter()
        .filter(|pod| !text(&pod["spec"], "nodeName").is_empty())
        .filter(|pod| !matches!(text(&pod["status"], "phase"), "Succeeded"))
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .filter(|pod| is_well(world, text(&pod["spec"], "nodeName")));
    placed
        .filter_map(|pod| {
            killed_for_memory(pod)
                .or_else(|| waiting(pod))
                .or_else(|| failed(pod))
                .or_else(|| from_events(pod, world))
        })
        .collect()
}

// What a lost node makes of its pods follows from it, and it has been named.
fn is_well(world: &World, node: &str) -> bool {
    let node = world.nodes.iter().find(|known| name_of(known) == node);
    let ready = node.and_then(|node| condition(node, "Ready"));
    ready.is_some_and(|ready| ready["status"] == "True")
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let status = &pod["status"];
    items(&status["initContainerStatuses"]).chain(items(&status["containerStatuses"]))
}

fn killed_for_memory(pod: &Value) -> Option<Finding> {
    let killed = |container: &&Value| container["lastState"]["terminated"]["reason"] == "OOMKilled";
    let container = containers(pod).find(killed)?;
    if container["ready"] == true {
        return None;
    }
    let wrong = format!(
        "its container {} used more memory than its limit",
        text(container, "name")
    );
    let step = "raise resources.limits.memory, or let it use less";
    Some(Finding::new(&about(pod), wrong, step))
}

fn waiting(pod: &Value) -> Option<Finding> {
    let mut told = containers(pod).filter_map(|container| {
        let waiting = container["state"].get("waiting")?;
        let reason = text(waiting, "reason");
        let step = WAITING.iter().find(|(known, _)| *known == reason)?.1;
        let message = short(text(waiting, "message"));
        let wrong = format!(
            "its container {} waits: {reason} {message}",
            text(container, "name")
        );
        Some(Finding::new(
            &about(pod),
            wrong.trim_end(),
            filled(step, pod),
        ))
    });
    told.next()
}

fn failed(pod: &Value) -> Option<Finding> {
    let status = &pod["status"];
    (status["phase"] == "Failed").then(|| {
        let reason = format!(
            "{} {}",
            text(status, "reason"),
            short(text(status, "message"))
        );
        let step = "`kubectl logs -n {namespace} {pod}` has its last words";
        let wrong = format!("has failed: {}", reason.trim());
        Finding::new(
            &about(pod),
            wrong.trim_end_matches([':', ' ']),
            filled(step, pod),
        )
    })
}

// Only of a pod that is not well: events outlive what they tell of.
fn from_events(pod: &Value, world: &World) -> Option<Finding> {
    if condition(pod, "Ready").is_some_and(|ready| ready["status"] == "True") {
        return None;
    }
    let mut own: Vec<&Value> = world
        .events
        .iter()
        .filter(|event| event["involvedObject"]["uid"] == pod["metadata"]["uid"])
        .collect();
    own.sort_by_key(|event| text(event, "lastTimestamp").to_owned());
    own.into_iter().rev().find_map(|event| {
        let reason = text(event, "reason");
        let step = EVENTS.iter().find(|(known, _)| *known == reason)?.1;
        let wrong = format!("{reason}: {}", short(text(event, "message")));
        Some(Finding::new(&about(pod), wrong, filled(step, pod)))
    })
}

/// Quotas, Pod Security and service accounts that are not there stop pods before there is one.
pub(super) fn deployments_that_cannot_make_pods(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    for deployment in &world.deployments {
        let failure = condition(deployment, "ReplicaFailure").unwrap_or(&Value::Null);
        if failure["status"] == "True" {
            let namespace = text(&deployment["metadata"], "namespace");
            let about = format!("deployment {namespace}/{}", name_of(deployment));
            let wrong = format!("cannot make pods: {}", short(text(failure, "message")));
            let step = format!(
                "see `kubectl get quota,serviceaccount -n {namespace}` and the namespace's pod-security labels"
            );
            found.push(Finding::new(&about, wrong, step));
        }
    }
    found
}
