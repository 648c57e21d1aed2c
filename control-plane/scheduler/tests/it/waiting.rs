//! Whose turn it is, and what brings a pod back: with a clock of our own.

use std::time::Duration;

use scheduler::{Action, Backoff, Brain, Event, Plugin, Profile, Queue};
use serde_json::{Value, json};

use super::world::{Mind, node, pod};

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn queue(pods: &[(&str, i32)]) -> Queue {
    let mut mind = Mind::new(Profile::new("default-scheduler"));
    let mut queue = Queue::new(Backoff::default());
    for (name, priority) in pods {
        let pod = pod(name, "1", &json!({ "spec": { "priority": priority } }));
        queue.add(mind.waiting(&pod), second(0));
    }
    queue
}

fn next(queue: &mut Queue, now: u64) -> Option<String> {
    queue
        .next(second(now))
        .map(|turned| turned.pod.name.to_string())
}

#[test]
fn the_most_important_comes_first_then_whoever_came_first() {
    let mut queue = queue(&[("a", 0), ("b", 5), ("c", 5)]);
    let order: Vec<String> = std::iter::from_fn(|| next(&mut queue, 0)).collect();
    assert_eq!(order, ["b", "c", "a"]);
}

#[test]
fn who_failed_waits_for_an_event_that_helps_and_then_out_its_pause() {
    let mut queue = queue(&[("a", 0)]);
    assert_eq!(next(&mut queue, 0).as_deref(), Some("a"));
    queue.fail("default/a", vec![Plugin::NodeResourcesFit], second(0));
    queue.hear(&Event::NodeTaints, second(0));
    assert_eq!(
        queue.lengths(),
        (0, 0, 1),
        "taints are not what it waits for"
    );
    queue.hear(&Event::PodGone, second(0));
    assert_eq!(next(&mut queue, 0), None, "its pause is a second");
    assert_eq!(next(&mut queue, 1).as_deref(), Some("a"));
    queue.fail("default/a", vec![Plugin::NodeResourcesFit], second(1));
    queue.hear(&Event::PodGone, second(1));
    assert_eq!(next(&mut queue, 2), None, "the second pause is two seconds");
    assert_eq!(next(&mut queue, 3).as_deref(), Some("a"));
    queue.fail("default/a", vec![Plugin::NodeResourcesFit], second(3));
    queue.hear(&Event::PodGone, second(60));
    assert_eq!(
        next(&mut queue, 60).as_deref(),
        Some("a"),
        "a pause that is over delays nobody"
    );
}

#[test]
fn pauses_grow_to_ten_seconds() {
    let mut queue = queue(&[("a", 0)]);
    let mut now = 0;
    for pause in [1, 2, 4, 8, 10, 10] {
        assert_eq!(next(&mut queue, now).as_deref(), Some("a"));
        queue.retry("default/a", second(now));
        assert_eq!(queue.next_pause(), Some(second(now + pause)));
        now += pause;
    }
}

#[test]
fn nobody_is_forgotten() {
    let mut queue = queue(&[("a", 0)]);
    next(&mut queue, 0);
    queue.fail("default/a", vec![Plugin::NodeAffinity], second(0));
    queue.remember_the_forgotten(second(299));
    assert_eq!(next(&mut queue, 299), None);
    queue.remember_the_forgotten(second(300));
    assert_eq!(next(&mut queue, 300).as_deref(), Some("a"));
}

fn brain() -> Brain {
    Brain::new(
        vec![Profile::new("default-scheduler")],
        Backoff::default(),
        1,
    )
}

fn see(brain: &mut Brain, pod: &Value) {
    let mut pod = pod.clone();
    pod["metadata"]["uid"] = pod["metadata"]["name"].clone();
    let pod = serde_json::from_value(pod).unwrap();
    let seen = brain.read_pod(&pod);
    brain.see_pod(None, Some(&seen), second(0));
}

fn see_node(brain: &mut Brain, name: &str) {
    let node = serde_json::from_value(node(name, &json!({}), &json!({}))).unwrap();
    brain.see_node(name, Some(&node), second(0));
}

fn only(brain: &mut Brain, now: u64) -> Option<Action> {
    let mut actions = brain.next(second(now))?;
    assert_eq!(actions.len(), 1, "{actions:?}");
    actions.pop()
}

#[test]
fn a_pod_that_was_decided_on_counts_before_anybody_else_knows() {
    let mut brain = brain();
    see_node(&mut brain, "n");
    see(&mut brain, &pod("a", "3", &json!({})));
    see(&mut brain, &pod("b", "3", &json!({})));
    assert!(
        matches!(only(&mut brain, 0), Some(Action::Bind(pod, node)) if *pod.name == *"a" && *node == *"n")
    );
    assert!(matches!(only(&mut brain, 0), Some(Action::Report(pod, _)) if *pod.name == *"b"));
    brain.unassume("a", true, second(5));
    assert!(matches!(only(&mut brain, 5), Some(Action::Bind(pod, _)) if *pod.name == *"b"));
}

#[test]
fn gated_foreign_and_ending_pods_are_left_alone() {
    let mut brain = brain();
    see_node(&mut brain, "n");
    for more in [
        json!({ "spec": { "schedulingGates": [{ "name": "wait" }] } }),
        json!({ "spec": { "schedulerName": "another" } }),
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
    ] {
        see(&mut brain, &pod("p", "1", &more));
        assert!(brain.next(second(0)).is_none(), "{more}");
    }
}

#[test]
fn claims_that_nobody_has_bound_hold_a_pod_back() {
    let mut brain = brain();
    see_node(&mut brain, "n");
    see(
        &mut brain,
        &pod(
            "p",
            "1",
            &json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] } }),
        ),
    );
    let said = format!("{:?}", only(&mut brain, 0));
    assert!(
        said.contains(
            "0/1 nodes are available: persistentvolumeclaim \\\"data\\\" not found. preemption: "
        ),
        "{said}"
    );
    brain.see_claim("default/data".into(), Some(false), second(1));
    let said = format!("{:?}", only(&mut brain, 1));
    assert!(
        said.contains("pod has unbound immediate PersistentVolumeClaims"),
        "{said}"
    );
    brain.see_claim("default/data".into(), Some(true), second(9));
    assert!(matches!(only(&mut brain, 9), Some(Action::Bind(..))));
}

#[test]
fn pods_of_one_owner_are_spread_by_default() {
    let mut brain = brain();
    see_node(&mut brain, "n1");
    see_node(&mut brain, "n2");
    let selector = serde_json::from_value(json!({ "matchLabels": { "app": "web" } })).unwrap();
    brain.see_owner("ReplicaSet", ("default", "web"), Some(&selector));
    // A large pod of somebody else makes one node the worse choice by resources.
    see(
        &mut brain,
        &pod("other", "1", &json!({ "spec": { "nodeName": "n1" } })),
    );
    let owned = |name: &str| {
        let mut pod = pod(
            name,
            "1m",
            &json!({ "metadata": { "labels": { "app": "web" } } }),
        );
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true }]);
        pod
    };
    for (name, expected) in [("a", "n2"), ("b", "n1")] {
        see(&mut brain, &owned(name));
        let action = only(&mut brain, 0);
        assert!(
            matches!(&action, Some(Action::Bind(_, node)) if **node == *expected),
            "{name}: {action:?}"
        );
    }
}
