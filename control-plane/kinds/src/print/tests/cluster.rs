//! Configuration, events, nodes, admission and flow control.

use serde_json::{Value, json};

use super::check;

#[test]
fn configuration_has_upstreams_columns() {
    check(
        "",
        "Namespace",
        json!({"status": {"phase": "Active"}}),
        json!(["x", "Active", "5m"]),
    );
    check(
        "",
        "ConfigMap",
        json!({"data": {"a": ""}, "binaryData": {"b": "", "c": ""}}),
        json!(["x", 3, "5m"]),
    );
    check(
        "",
        "Secret",
        json!({"type": "Opaque", "data": {"a": ""}}),
        json!(["x", "Opaque", 1, "5m"]),
    );
    check("", "ServiceAccount", json!({}), json!(["x", "5m"]));
    check(
        "",
        "ResourceQuota",
        json!({"status": {"hard": {"pods": "10", "limits.cpu": "4", "requests.cpu": "2"}, "used": {"pods": "3", "limits.cpu": "500m"}}}),
        json!([
            "x",
            "pods: 3/10, requests.cpu: 0/2",
            "limits.cpu: 500m/4",
            "5m"
        ]),
    );
    check(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "ann"}, {"kind": "Group", "name": "g1"}, {"kind": "Group", "name": "g2"},
            {"kind": "ServiceAccount", "namespace": "ns", "name": "sa"}]}),
        json!(["x", "ClusterRole/view", "5m", "ann", "g1, g2", "ns/sa"]),
    );
    check(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}}),
        json!(["x", "ClusterRole/admin", "5m", "", "", ""]),
    );
    check(
        "coordination.k8s.io",
        "Lease",
        json!({"spec": {"holderIdentity": "n1"}}),
        json!(["x", "n1", "5m"]),
    );
}

#[test]
fn events_have_upstreams_columns() {
    let event = json!({"involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{web}"},
        "type": "Warning", "reason": "BackOff", "message": " Back-off restarting \n", "count": 3,
        "firstTimestamp": "2026-01-01T00:01:00Z", "lastTimestamp": "2026-01-01T00:04:50Z",
        "source": {"component": "kubelet", "host": "n1"}});
    let expected = json!([
        "10s",
        "Warning",
        "BackOff",
        "pod/web",
        "spec.containers{web}",
        "kubelet, n1",
        "Back-off restarting",
        "4m",
        3,
        "x"
    ]);
    check("", "Event", event.clone(), expected.clone());
    let newer = json!({"regarding": event["involvedObject"], "type": "Warning", "reason": "BackOff", "note": event["message"],
        "deprecatedCount": 3, "deprecatedFirstTimestamp": event["firstTimestamp"],
        "deprecatedLastTimestamp": event["lastTimestamp"], "deprecatedSource": event["source"]});
    check("events.k8s.io", "Event", newer, expected);
    check(
        "",
        "Event",
        json!({"involvedObject": {"kind": "Node"}, "eventTime": "2026-01-01T00:04:00.000000Z", "firstTimestamp": null,
            "reportingComponent": "scheduler", "reportingInstance": ""}),
        json!(["60s", "", "", "node", "", "scheduler", "", "60s", 1, "x"]),
    );
    check(
        "",
        "Event",
        json!({"involvedObject": {"kind": "Node", "name": "n"}, "eventTime": "2026-01-01T00:04:00.000000Z",
            "series": {"count": 9, "lastObservedTime": "2026-01-01T00:04:59.000000Z"}}),
        json!(["1s", "", "", "node/n", "", "", "", "60s", 9, "x"]),
    );
    check(
        "",
        "Event",
        json!({}),
        json!(["<unknown>", "", "", "", "", "", "", "<unknown>", 1, "x"]),
    );
}

#[test]
fn nodes_have_upstreams_columns() {
    check(
        "",
        "Node",
        json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "",
            "kubernetes.io/role": "agent"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.4"}],
                "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Ubuntu", "kernelVersion": "6.8", "architecture": "amd64",
                    "containerRuntimeVersion": "containerd://2.1"}}}),
        json!([
            "x",
            "Ready,SchedulingDisabled",
            "agent,worker",
            "5m",
            "v1.36.4",
            "10.0.0.4",
            "<none>",
            "Ubuntu",
            "6.8 (amd64)",
            "containerd://2.1"
        ]),
    );
    check(
        "",
        "Node",
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
        json!([
            "x",
            "NotReady",
            "<none>",
            "5m",
            "",
            "<none>",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]),
    );
    check(
        "",
        "Node",
        json!({}),
        json!([
            "x",
            "Unknown",
            "<none>",
            "5m",
            "",
            "<none>",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]),
    );
}

#[test]
fn cluster_objects_have_upstreams_columns() {
    check(
        "",
        "ComponentStatus",
        json!({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}),
        json!(["x", "Healthy", "ok", ""]),
    );
    check(
        "",
        "ComponentStatus",
        json!({"conditions": [{"type": "Healthy", "status": "False", "error": "no"}]}),
        json!(["x", "Unhealthy", "", "no"]),
    );
    check(
        "",
        "ComponentStatus",
        json!({}),
        json!(["x", "Unknown", "", ""]),
    );
    check(
        "scheduling.k8s.io",
        "PriorityClass",
        json!({"value": 1000, "globalDefault": true, "preemptionPolicy": "Never"}),
        json!(["x", 1000, true, "5m", "Never"]),
    );
    check(
        "node.k8s.io",
        "RuntimeClass",
        json!({"handler": "kata"}),
        json!(["x", "kata", "5m"]),
    );
    check(
        "resource.k8s.io",
        "DeviceClass",
        json!({}),
        json!(["x", "5m"]),
    );
    check(
        "resource.k8s.io",
        "ResourceClaimTemplate",
        json!({}),
        json!(["x", "5m"]),
    );
    check(
        "resource.k8s.io",
        "ResourceClaim",
        json!({}),
        json!(["x", "pending", "5m"]),
    );
    check(
        "resource.k8s.io",
        "ResourceClaim",
        json!({"status": {"allocation": {}, "reservedFor": [{}]}}),
        json!(["x", "allocated,reserved", "5m"]),
    );
    check(
        "resource.k8s.io",
        "ResourceClaim",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"allocation": {}}}),
        json!(["x", "deleted,allocated", "5m"]),
    );
    check(
        "resource.k8s.io",
        "ResourceSlice",
        json!({"spec": {"nodeName": "n", "driver": "gpu", "pool": {"name": "p"}}}),
        json!(["x", "n", "gpu", "p", "5m"]),
    );
}

#[test]
fn signing_requests_have_upstreams_columns() {
    let request = |status: Value, expected: &str| {
        check(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 86400}, "status": status}),
            json!(["x", "5m", "s", "u", "24h", expected]),
        );
    };
    request(json!({}), "Pending");
    request(json!({"conditions": [{"type": "Approved"}]}), "Approved");
    request(
        json!({"conditions": [{"type": "Approved"}], "certificate": "YQ=="}),
        "Approved,Issued",
    );
    request(
        json!({"conditions": [{"type": "Approved"}, {"type": "Denied"}]}),
        "Denied",
    );
    request(
        json!({"conditions": [{"type": "Approved"}, {"type": "Failed"}]}),
        "Approved,Failed",
    );
    check(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        json!({}),
        json!(["x", "5m", "<none>", "", "<none>", "Pending"]),
    );
}

#[test]
fn admission_objects_have_upstreams_columns() {
    const GROUP: &str = "admissionregistration.k8s.io";
    for kind in [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ] {
        check(
            GROUP,
            kind,
            json!({"webhooks": [{}, {}]}),
            json!(["x", 2, "5m"]),
        );
    }
    for (kind, rules) in [
        ("ValidatingAdmissionPolicy", "validations"),
        ("MutatingAdmissionPolicy", "mutations"),
    ] {
        check(
            GROUP,
            kind,
            json!({"spec": {rules: [{}]}}),
            json!(["x", 1, "<unset>", "5m"]),
        );
        let kinded = json!({"spec": {"paramKind": {"apiVersion": "g.io/v1", "kind": "P"}}});
        check(GROUP, kind, kinded, json!(["x", 0, "g.io/v1/P", "5m"]));
    }
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicyBinding",
    ] {
        for (params, shown) in [
            (json!(null), "<unset>"),
            (json!({"name": "p"}), "*/p"),
            (json!({"name": "p", "namespace": "ns"}), "ns/p"),
            (
                json!({"selector": {"matchLabels": {"b": "2", "a": "1"},
                    "matchExpressions": [{"key": "k", "operator": "In", "values": ["u", "v"]}]}}),
                "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement\
                 {LabelSelectorRequirement{Key:k,Operator:In,Values:[u v],},},}",
            ),
        ] {
            check(
                GROUP,
                kind,
                json!({"spec": {"policyName": "p", "paramRef": params}}),
                json!(["x", "p", shown, "5m"]),
            );
        }
    }
}

#[test]
fn flow_control_and_aggregation() {
    const GROUP: &str = "flowcontrol.apiserver.k8s.io";
    check(
        GROUP,
        "FlowSchema",
        json!({"spec": {"priorityLevelConfiguration": {"name": "pl"}, "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"}}, "status": {"conditions": [{"type": "Dangling", "status": "False"}]}}),
        json!(["x", "pl", 500, "ByUser", "5m", "False"]),
    );
    check(
        GROUP,
        "FlowSchema",
        json!({}),
        json!(["x", "", 0, "<none>", "5m", "?"]),
    );
    check(
        GROUP,
        "PriorityLevelConfiguration",
        json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}}),
        json!(["x", "Limited", 30, 64, 6, 50, "5m"]),
    );
    check(
        GROUP,
        "PriorityLevelConfiguration",
        json!({"spec": {"type": "Exempt"}}),
        json!(["x", "Exempt", "<none>", "<none>", "<none>", "<none>", "5m"]),
    );
    for (spec, conditions, service, available) in [
        (
            json!({}),
            json!([{"type": "Available", "status": "True", "reason": "Local"}]),
            "Local",
            "True",
        ),
        (
            json!({"service": {"namespace": "kube-system", "name": "metrics-server"}}),
            json!([{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]),
            "kube-system/metrics-server",
            "False (MissingEndpoints)",
        ),
        (
            json!({}),
            json!([{"type": "Available", "status": "False"}]),
            "Local",
            "False",
        ),
        (json!({}), json!([]), "Local", "Unknown"),
    ] {
        check(
            "apiregistration.k8s.io",
            "APIService",
            json!({"spec": spec, "status": {"conditions": conditions}}),
            json!(["x", service, available, "5m"]),
        );
    }
}
