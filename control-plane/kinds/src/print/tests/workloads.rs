//! Workloads and autoscalers.

use serde_json::{Value, json};

use super::check;

fn template() -> Value {
    json!({"metadata": {"labels": {"b": "2", "a": "1"}}, "spec": {
        "containers": [{"name": "web", "image": "nginx:1"}, {"name": "log", "image": "fluent:2"}],
        "nodeSelector": {"disk": "ssd"},
    }})
}

pub(super) fn selector() -> Value {
    json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}]})
}

pub(super) const SELECTOR: &str = "app=web,tier in (a,b)";

#[test]
fn workloads_have_upstreams_columns() {
    check(
        "apps",
        "Deployment",
        json!({"spec": {"replicas": 3, "template": template(), "selector": selector()},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
        json!([
            "x",
            "1/3",
            2,
            1,
            "5m",
            "web,log",
            "nginx:1,fluent:2",
            SELECTOR
        ]),
    );
    check(
        "apps",
        "Deployment",
        json!({}),
        json!(["x", "0/0", 0, 0, "5m", "", "", ""]),
    );
    let bad = json!({"spec": {"selector": {"matchLabels": {"-": "x"}}}});
    check(
        "apps",
        "Deployment",
        bad.clone(),
        json!(["x", "0/0", 0, 0, "5m", "", "", "<invalid>"]),
    );
    check(
        "apps",
        "ReplicaSet",
        bad,
        json!(["x", 0, 0, 0, "5m", "", "", "<error>"]),
    );
    check(
        "apps",
        "ReplicaSet",
        json!({"spec": {"replicas": 3, "template": template(), "selector": selector()},
            "status": {"replicas": 2, "readyReplicas": 1}}),
        json!(["x", 3, 2, 1, "5m", "web,log", "nginx:1,fluent:2", SELECTOR]),
    );
    check(
        "",
        "ReplicationController",
        json!({"spec": {"replicas": 1, "template": template(), "selector": {"b": "2", "a": "1"}}, "status": {"replicas": 1}}),
        json!(["x", 1, 1, 0, "5m", "web,log", "nginx:1,fluent:2", "a=1,b=2"]),
    );
    check(
        "apps",
        "DaemonSet",
        json!({"spec": {"template": template(), "selector": {}}, "status": {"desiredNumberScheduled": 5,
            "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2, "numberAvailable": 1}}),
        json!([
            "x",
            5,
            4,
            3,
            2,
            1,
            "disk=ssd",
            "5m",
            "web,log",
            "nginx:1,fluent:2",
            "<none>"
        ]),
    );
    check(
        "apps",
        "StatefulSet",
        json!({"spec": {"replicas": 3, "template": template()}, "status": {"readyReplicas": 2}}),
        json!(["x", "2/3", "5m", "web,log", "nginx:1,fluent:2"]),
    );
    check(
        "",
        "PodTemplate",
        json!({"template": template()}),
        json!(["x", "web,log", "nginx:1,fluent:2", "a=1,b=2"]),
    );
}

#[test]
fn revisions_name_their_controller() {
    let owned = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "n"},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "controller": true},
    ]}, "revision": 7});
    check(
        "apps",
        "ControllerRevision",
        owned,
        json!(["x", "daemonset.apps/ds", 7, "5m"]),
    );
    check(
        "apps",
        "ControllerRevision",
        json!({}),
        json!(["x", "<none>", 0, "5m"]),
    );
}

#[test]
fn jobs_have_upstreams_columns() {
    let job = |spec: Value, status: Value, expected: [&str; 3]| {
        let [state, completions, duration] = expected;
        check(
            "batch",
            "Job",
            json!({"spec": spec, "status": status}),
            json!(["x", state, completions, duration, "5m", "", "", "<none>"]),
        );
    };
    let condition =
        |ty: &str| json!([{"type": "Complete", "status": "False"}, {"type": ty, "status": "True"}]);
    job(
        json!({"completions": 4}),
        json!({"succeeded": 1}),
        ["Running", "1/4", ""],
    );
    job(
        json!({"parallelism": 3}),
        json!({"startTime": "2026-01-01T00:01:00Z"}),
        ["Running", "0/1 of 3", "4m"],
    );
    job(
        json!({"parallelism": 1}),
        json!({"startTime": "2026-01-01T00:01:00Z", "completionTime": "2026-01-01T00:01:42Z", "succeeded": 1,
            "conditions": [{"type": "Complete", "status": "True"}]}),
        ["Complete", "1/1", "42s"],
    );
    for ty in ["Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"] {
        job(
            json!({}),
            json!({"conditions": condition(ty)}),
            [ty, "0/1", ""],
        );
    }
    check(
        "batch",
        "Job",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:01Z"}, "status": {"conditions": condition("Suspended")}}),
        json!(["x", "Terminating", "0/1", "", "5m", "", "", "<none>"]),
    );
}

#[test]
fn cron_jobs_and_budgets() {
    check(
        "batch",
        "CronJob",
        json!({"spec": {"schedule": "*/5 * * * *", "suspend": false, "timeZone": "Etc/UTC",
            "jobTemplate": {"spec": {"template": template(), "selector": selector()}}},
            "status": {"active": [{}, {}], "lastScheduleTime": "2026-01-01T00:04:00Z"}}),
        json!([
            "x",
            "*/5 * * * *",
            "Etc/UTC",
            "False",
            2,
            "60s",
            "5m",
            "web,log",
            "nginx:1,fluent:2",
            SELECTOR
        ]),
    );
    check(
        "batch",
        "CronJob",
        json!({"spec": {"schedule": "@daily", "suspend": true}}),
        json!([
            "x", "@daily", "<none>", "True", 0, "<none>", "5m", "", "", "<none>"
        ]),
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 1}}),
        json!(["x", "2", "N/A", 1, "5m"]),
    );
    check(
        "policy",
        "PodDisruptionBudget",
        json!({"spec": {"maxUnavailable": "50%"}}),
        json!(["x", "N/A", "50%", 0, "5m"]),
    );
}

#[test]
fn autoscalers_show_current_and_wanted_values() {
    let targets = |metrics: Value, current: Value, expected: &str| {
        check(
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 9,
                "metrics": metrics}, "status": {"currentReplicas": 3, "currentMetrics": current}}),
            json!(["x", "Deployment/web", expected, "2", 9, 3, "5m"]),
        );
    };
    let cpu =
        |target: Value| json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "10"}}});
    let external = |target: Value| json!({"type": "External", "external": {"target": target}});
    targets(
        json!([cpu(json!({"averageUtilization": 80}))]),
        json!(null),
        "cpu: <unknown>/80%",
    );
    targets(
        json!([cpu(json!({"averageUtilization": 80}))]),
        json!([{"type": "Resource", "resource": {"current": {"averageUtilization": 20}}}]),
        "cpu: 20%/80%",
    );
    targets(json!([cpu(json!({}))]), json!([]), "cpu: <unknown>/<auto>");
    targets(
        json!([cpu(json!({"averageValue": "100m"}))]),
        json!([{"type": "Resource", "resource": {"current": {"averageValue": "50m"}}}]),
        "cpu: 50m/100m",
    );
    targets(
        json!([pods, external(json!({"value": "7"}))]),
        json!([{"pods": {"current": {"averageValue": "4"}}}, {"external": {"current": {"value": "5"}}}]),
        "4/10, 5/7",
    );
    targets(
        json!([external(json!({"averageValue": "7"})), pods, pods, pods]),
        json!([]),
        "<unknown>/7 (avg), <unknown>/10 + 2 more...",
    );
    targets(
        json!([{"type": "Object", "object": {"target": {"averageValue": "7"}}}]),
        json!([{"object": {"current": {"averageValue": "6"}}}]),
        "6/7 (avg)",
    );
    targets(json!([{"type": "Odd"}]), json!([]), "<unknown type>");
    targets(json!([]), json!([]), "<none>");
    check(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
            "targetCPUUtilizationPercentage": 70}, "status": {"currentCPUUtilizationPercentage": 30}}),
        json!(["x", "Deployment/web", "cpu: 30%/70%", "<unset>", 9, 0, "5m"]),
    );
    check(
        "autoscaling",
        "Scale",
        json!({"spec": {"replicas": 3}, "status": {"replicas": 2}}),
        json!(["x", 3, 2, "5m"]),
    );
}
