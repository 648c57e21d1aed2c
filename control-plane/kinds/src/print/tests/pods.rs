//! The status of pods.

use serde_json::{Value, json};

use super::printed;

/// Ready, status and restarts of a pod.
fn summary(spec: Value, status: Value) -> [String; 3] {
    summary_of(json!({"spec": spec, "status": status}))
}

fn summary_of(pod: Value) -> [String; 3] {
    let cells = printed("", "Pod", pod);
    [1, 2, 3].map(|i| cells[i].as_str().unwrap().to_owned())
}

fn containers(count: usize) -> Value {
    let containers: Vec<Value> = (0..count)
        .map(|i| json!({"name": format!("c{i}")}))
        .collect();
    json!({"containers": containers})
}

fn running(ready: bool) -> Value {
    json!({"ready": ready, "restartCount": 0, "state": {"running": {}}, "lastState": {}})
}

fn waiting(reason: &str) -> Value {
    json!({"ready": false, "state": {"waiting": {"reason": reason}}})
}

fn ended(reason: &str, code: i64, signal: i64) -> Value {
    json!({"ready": false, "state": {"terminated": {"reason": reason, "exitCode": code, "signal": signal}}})
}

#[test]
fn the_containers_decide_the_status() {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for (phase, conditions, statuses, expected) in [
        ("Pending", json!(null), json!([]), ["0/2", "Pending", "0"]),
        (
            "Running",
            ready.clone(),
            json!([running(true), running(true)]),
            ["2/2", "Running", "0"],
        ),
        (
            "Running",
            json!(null),
            json!([running(true), running(false)]),
            ["1/2", "Running", "0"],
        ),
        (
            "Pending",
            json!(null),
            json!([waiting("ContainerCreating")]),
            ["0/2", "ContainerCreating", "0"],
        ),
        (
            "Running",
            json!(null),
            json!([waiting("CrashLoopBackOff"), running(true)]),
            ["1/2", "CrashLoopBackOff", "0"],
        ),
        (
            "Succeeded",
            json!(null),
            json!([ended("Completed", 0, 0)]),
            ["0/2", "Completed", "0"],
        ),
        (
            "Failed",
            json!(null),
            json!([ended("Error", 1, 0)]),
            ["0/2", "Error", "0"],
        ),
        (
            "Failed",
            json!(null),
            json!([ended("", 3, 0)]),
            ["0/2", "ExitCode:3", "0"],
        ),
        (
            "Failed",
            json!(null),
            json!([ended("", 137, 9)]),
            ["0/2", "Signal:9", "0"],
        ),
        (
            "Running",
            ready.clone(),
            json!([ended("Completed", 0, 0), running(true)]),
            ["1/2", "Running", "0"],
        ),
        (
            "Running",
            json!(null),
            json!([ended("Completed", 0, 0), running(true)]),
            ["1/2", "NotReady", "0"],
        ),
        (
            "Running",
            json!(null),
            json!([ended("Completed", 0, 0), ended("OOMKilled", 137, 0)]),
            ["0/2", "OOMKilled", "0"],
        ),
        (
            "Running",
            ready,
            json!([ended("Error", 1, 0), running(true)]),
            ["1/2", "Error", "0"],
        ),
    ] {
        let status =
            json!({"phase": phase, "conditions": conditions, "containerStatuses": statuses});
        assert_eq!(summary(containers(2), status.clone()), expected, "{status}");
    }
}

#[test]
fn the_pods_own_reason_comes_before_its_phase() {
    assert_eq!(
        summary(
            containers(1),
            json!({"phase": "Failed", "reason": "Evicted"})
        )[1],
        "Evicted"
    );
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    assert_eq!(
        summary(
            containers(1),
            json!({"phase": "Pending", "conditions": gated})
        )[1],
        "SchedulingGated"
    );
}

#[test]
fn a_deleted_pod_is_terminating_unless_it_ended_or_its_node_is_lost() {
    for (phase, reason, expected) in [
        ("Running", "", "Terminating"),
        ("Pending", "", "Terminating"),
        ("Succeeded", "", "Succeeded"),
        ("Failed", "Evicted", "Evicted"),
        ("Running", "NodeLost", "Unknown"),
        ("Failed", "NodeLost", "Unknown"),
    ] {
        let pod = json!({
            "metadata": {"deletionTimestamp": "2026-01-01T00:04:00Z"},
            "spec": containers(1),
            "status": {"phase": phase, "reason": reason},
        });
        assert_eq!(summary_of(pod)[1], expected, "{phase} {reason}");
    }
}

#[test]
fn restarts_tell_when_the_last_one_was() {
    let restarted = |count: i64, finished: &str| {
        let mut status = running(true);
        status["restartCount"] = count.into();
        status["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": finished}});
        status
    };
    let cases = [
        (json!([restarted(3, "2026-01-01T00:03:00Z")]), "3 (2m ago)"),
        (
            json!([
                restarted(1, "2026-01-01T00:02:00Z"),
                restarted(2, "2026-01-01T00:04:50Z")
            ]),
            "3 (10s ago)",
        ),
        (json!([restarted(0, "2026-01-01T00:03:00Z")]), "0"),
    ];
    for (statuses, expected) in cases {
        let status = json!({"phase": "Running", "containerStatuses": statuses});
        assert_eq!(summary(containers(1), status)[2], expected);
    }
    let without_time = json!({"restartCount": 4, "ready": true, "state": {"running": {}}});
    assert_eq!(
        summary(containers(1), json!({"containerStatuses": [without_time]}))[2],
        "4"
    );
}

fn with_init() -> Value {
    let mut spec = containers(1);
    spec["initContainers"] = json!([{"name": "a"}, {"name": "b"}]);
    spec
}

#[test]
fn the_first_unfinished_init_container_decides() {
    let done = json!({"name": "a", "state": {"terminated": {"exitCode": 0}}});
    for (second, expected) in [
        (json!({"name": "b", "state": {"running": {}}}), "Init:1/2"),
        (
            json!({"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}}),
            "Init:1/2",
        ),
        (
            json!({"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff"}}}),
            "Init:ImagePullBackOff",
        ),
        (
            json!({"name": "b", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}),
            "Init:Error",
        ),
        (
            json!({"name": "b", "state": {"terminated": {"exitCode": 2}}}),
            "Init:ExitCode:2",
        ),
        (
            json!({"name": "b", "state": {"terminated": {"exitCode": 2, "signal": 15}}}),
            "Init:Signal:15",
        ),
        (
            json!({"name": "b", "state": {"terminated": {"exitCode": 0}}}),
            "PodInitializing",
        ),
    ] {
        let status = json!({
            "phase": "Pending",
            "initContainerStatuses": [done, second],
            "containerStatuses": [waiting("PodInitializing")],
        });
        assert_eq!(summary(with_init(), status)[1], expected, "{second}");
    }
}

#[test]
fn restarts_of_init_containers_count_only_while_they_run() {
    let init = json!({"name": "a", "restartCount": 3, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:04:50Z"}}});
    let status = json!({"phase": "Pending", "initContainerStatuses": [init]});
    assert_eq!(
        summary(with_init(), status),
        ["0/1", "Init:0/2", "3 (10s ago)"]
    );
    let init = json!({"name": "a", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}});
    let status = json!({"phase": "Running", "initContainerStatuses": [init], "containerStatuses": [running(true)]});
    assert_eq!(summary(with_init(), status), ["1/1", "Running", "0"]);
}

#[test]
fn sidecars_count_as_containers() {
    let mut spec = containers(1);
    spec["initContainers"] = json!([{"name": "s", "restartPolicy": "Always"}, {"name": "b"}]);
    let sidecar = |started: bool, ready: bool| {
        json!({"name": "s", "started": started, "ready": ready, "restartCount": 2, "state": {"running": {}},
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:03:00Z"}}})
    };
    let done = json!({"name": "b", "state": {"terminated": {"exitCode": 0}}});
    let status = json!({"phase": "Running", "initContainerStatuses": [sidecar(true, true), done],
        "containerStatuses": [running(true)]});
    assert_eq!(
        summary(spec.clone(), status),
        ["2/2", "Running", "2 (2m ago)"]
    );
    let status = json!({"phase": "Pending", "initContainerStatuses": [sidecar(false, false)]});
    assert_eq!(
        summary(spec.clone(), status),
        ["0/2", "Init:0/2", "2 (2m ago)"]
    );
    let status = json!({"phase": "Pending",
        "initContainerStatuses": [sidecar(true, true), {"name": "b", "state": {"running": {}}}]});
    assert_eq!(
        summary(spec.clone(), status),
        ["1/2", "Init:1/2", "2 (2m ago)"]
    );
    // Once initialized, a sidecar that has to start again no longer hides the containers.
    let status = json!({"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}],
        "initContainerStatuses": [sidecar(false, false), done], "containerStatuses": [waiting("CrashLoopBackOff")]});
    assert_eq!(
        summary(spec, status),
        ["0/2", "CrashLoopBackOff", "2 (2m ago)"]
    );
}

#[test]
fn wide_output_tells_where_a_pod_is() {
    let pod = json!({
        "spec": {"nodeName": "n1", "readinessGates": [{"conditionType": "lb"}, {"conditionType": "dns"}]},
        "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "nominatedNodeName": "n2",
            "conditions": [{"type": "lb", "status": "True"}, {"type": "dns", "status": "False"}]},
    });
    assert_eq!(
        printed("", "Pod", pod)[5..],
        ["10.0.0.1", "n1", "n2", "1/2"]
    );
    let single = json!({"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}]}});
    assert_eq!(printed("", "Pod", single)[5], "10.0.0.2");
    assert_eq!(
        printed("", "Pod", json!({}))[5..],
        ["<none>", "<none>", "<none>", "<none>"]
    );
}
