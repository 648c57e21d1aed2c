#![allow(clippy::unwrap_used, reason = "tests")]
use serde_json::json;

use super::*;

fn ready_node(name: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}})
}

fn world() -> World {
    World {
        now: "2026-01-01T00:00:10Z".parse().unwrap(),
        nodes: vec![ready_node("a")],
        machines: vec![Machine {
            name: "a".into(),
            is_running: true,
        }],
        free_disk: Some(40),
        ..World::default()
    }
}

fn pod(status: Value) -> Value {
    json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": {"nodeName": "a"}, "status": status})
}

/// The one thing that is found.
fn only(world: &World) -> Finding {
    let found = findings(world);
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].clone()
}

#[test]
fn nothing_is_wrong_with_a_healthy_cluster() {
    let mut world = world();
    world.pods = vec![pod(json!({"phase": "Running", "conditions": [
        {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]}))];
    world.events =
        vec![json!({"involvedObject": {"uid": "u"}, "reason": "Unhealthy", "message": "once"})];
    assert_eq!(findings(&world), []);
}

#[test]
fn what_nodes_say_leads_to_a_next_step() {
    for (message, word) in [
        (
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
            "/etc/cni/net.d",
        ),
        (
            "PLEG is not healthy: pleg was last seen active 5m ago",
            "systemctl status containerd",
        ),
        (
            "Kubelet stopped posting node status.",
            "systemctl status kubelet",
        ),
        ("something new", "journalctl -u kubelet"),
    ] {
        let mut world = world();
        world.nodes[0]["status"]["conditions"][0]["status"] = json!("False");
        world.nodes[0]["status"]["conditions"][0]["message"] = json!(message);
        let found = only(&world);
        assert_eq!(found.about, "node a");
        assert!(
            found.next.contains(word) && !found.next.contains('{'),
            "{found:?}"
        );
    }
}

#[test]
fn a_machine_that_is_off_is_said_once() {
    let mut world = world();
    world.machines[0].is_running = false;
    world.nodes[0]["status"]["conditions"][0]["status"] = json!("Unknown");
    assert_eq!(only(&world).next, "`kyanite up` boots it again");
    world.nodes.clear();
    assert_eq!(only(&world).about, "machine a");
    world.machines[0].is_running = true;
    assert!(only(&world).wrong.contains("has not joined"));
}

#[test]
fn hosts_and_nodes_that_are_short_of_something_say_so() {
    let mut full = world();
    full.free_disk = Some(2);
    assert_eq!(only(&full).about, "this host");
    for kind in ["DiskPressure", "MemoryPressure", "PIDPressure"] {
        let mut world = world();
        let conditions = world.nodes[0]["status"]["conditions"]
            .as_array_mut()
            .unwrap();
        conditions.push(json!({"type": kind, "status": "True"}));
        assert!(only(&world).wrong.starts_with("short of"));
    }
}

#[test]
fn a_clock_that_is_ahead_is_noticed() {
    let mut world = world();
    world.nodes[0]["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
    assert!(only(&world).wrong.contains("290 s ahead"));
}

#[test]
fn a_request_that_waits_names_the_command() {
    let mut world = world();
    let request = |conditions: Value| {
        json!({"metadata": {"name": "csr-1"}, "status": {"conditions": conditions},
            "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "username": "system:bootstrap:abc"}})
    };
    world.requests = vec![request(json!([{"type": "Approved"}]))];
    assert_eq!(findings(&world), []);
    world.requests = vec![request(json!([]))];
    assert!(
        only(&world)
            .next
            .contains("kubectl certificate approve csr-1")
    );
}

#[test]
fn why_no_node_takes_a_pod_leads_to_a_next_step() {
    for (message, word) in [
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {gpu: true}.",
            "Taints",
        ),
        ("0/2 nodes are available: 2 Insufficient cpu.", "requests"),
        (
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            "labels",
        ),
        ("no nodes available to schedule pods", "kyanite up"),
        (
            "0/2 nodes are available: 2 node(s) were unschedulable.",
            "uncordon",
        ),
        ("a reason nobody knows", "kubectl describe pod -n shop web"),
    ] {
        let mut world = world();
        let mut waiting = pod(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}));
        waiting["spec"] = json!({});
        world.pods = vec![waiting];
        let found = only(&world);
        assert!(found.next.contains(word), "{message}: {found:?}");
    }
}

#[test]
fn why_a_container_waits_leads_to_a_next_step() {
    for (reason, word) in [
        ("ImagePullBackOff", "kyanite image load"),
        ("CrashLoopBackOff", "kubectl logs -n shop web --previous"),
        ("CreateContainerConfigError", "ConfigMap"),
    ] {
        let mut world = world();
        let state = json!({"waiting": {"reason": reason, "message": "why"}});
        world.pods = vec![pod(
            json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": state}]}),
        )];
        let found = only(&world);
        assert!(
            found.wrong.contains(reason) && found.next.contains(word),
            "{found:?}"
        );
    }
    // A container that is about to be made is well.
    let mut world = world();
    let state = json!({"waiting": {"reason": "ContainerCreating"}});
    world.pods = vec![pod(
        json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": state}]}),
    )];
    assert_eq!(findings(&world), []);
}

#[test]
fn the_last_telling_event_of_a_pod_that_is_not_well_is_told() {
    let mut world = world();
    world.pods = vec![pod(json!({"phase": "Pending"}))];
    let event = |reason: &str, at: &str| json!({"involvedObject": {"uid": "u"}, "reason": reason, "message": "m", "lastTimestamp": at});
    world.events = vec![
        event("FailedMount", "2026-01-01T00:00:01Z"),
        event("FailedCreatePodSandBox", "2026-01-01T00:00:02Z"),
        event("Scheduled", "2026-01-01T00:00:03Z"),
    ];
    let found = only(&world);
    assert!(
        found
            .next
            .contains("machine exec a journalctl -u containerd"),
        "{found:?}"
    );
}

#[test]
fn pods_of_a_node_that_is_not_well_are_not_named_one_by_one() {
    let mut world = world();
    world.pods = vec![pod(
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": false,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
    )];
    assert_eq!(only(&world).about, "pod shop/web");
    world.nodes[0]["status"]["conditions"][0]["status"] = json!("Unknown");
    assert_eq!(only(&world).about, "node a");
}

#[test]
fn memory_quota_and_failures_have_their_words() {
    let mut world = world();
    world.pods = vec![pod(
        json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": false,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"reason": "OOMKilled"}}}]}),
    )];
    assert!(only(&world).wrong.contains("memory"));
    world.pods = vec![pod(
        json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}),
    )];
    assert!(only(&world).wrong.contains("low on disk"));
    world.pods.clear();
    world.deployments = vec![
        json!({"metadata": {"name": "d", "namespace": "shop"}, "status": {"conditions": [
        {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}}),
    ];
    assert!(only(&world).wrong.contains("exceeded quota"));
}

#[test]
fn every_step_of_the_tables_is_filled_in() {
    for (_, step) in words::NOT_READY
        .iter()
        .chain(&words::UNSCHEDULED)
        .chain(&words::WAITING)
        .chain(&words::EVENTS)
    {
        let filled = step
            .replace("{node}", "")
            .replace("{pod}", "")
            .replace("{namespace}", "");
        assert!(!filled.contains('{'), "{step}");
    }
}
