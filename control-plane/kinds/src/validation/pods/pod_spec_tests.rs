use serde_json::json;

use super::*;
use crate::validation::cases::told;

/// A pod spec as the API server sees it, with every default filled in.
pub(in super::super) fn complete(extra: Value) -> Value {
    let mut pod =
        json!({"spec": {"containers": [{"name": "app", "image": "nginx", "resources": {}}]}});
    for (name, value) in extra.as_object().expect("an object") {
        pod["spec"][name] = value.clone();
    }
    let ty = objects::schema::lookup("core.v1.PodTemplateSpec").expect("exists");
    crate::defaults::apply(ty, &mut pod);
    pod["spec"].clone()
}

fn check(extra: Value) -> String {
    let value = complete(extra);
    told(|e| spec(e, &Path::root("spec"), &value, &json!({"name": "pod"}))).join("|")
}

#[test]
fn a_pod_spec_is_checked_field_by_field() {
    let port = json!([{"name": "app", "image": "nginx", "resources": {}, "ports": [{"containerPort": 80}]}]);
    let cases = [
        (json!({}), ""),
        (
            json!({"hostname": "a", "subdomain": "b", "nodeName": "n.x", "nodeSelector": {"a": "b"}}),
            "",
        ),
        (
            json!({"restartPolicy": "x"}),
            "spec.restartPolicy: Unsupported value: \"x\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            json!({"dnsPolicy": "x"}),
            "spec.dnsPolicy: Unsupported value: \"x\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"",
        ),
        (
            json!({"dnsPolicy": "None"}),
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            json!({"dnsPolicy": "None", "dnsConfig": {}}),
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (
            json!({"dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}}),
            "spec.dnsConfig.nameservers: Invalid value: [\"1.1.1.1\",\"1.1.1.2\",\"1.1.1.3\",\"1.1.1.4\"]: must not have more than 3 nameservers",
        ),
        (
            json!({"dnsConfig": {"nameservers": ["x"]}}),
            "spec.dnsConfig.nameservers[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"dnsConfig": {"searches": [".", "_a.b."], "options": [{}]}}),
            "spec.dnsConfig.options[0]: Required value: must not be empty",
        ),
        (
            json!({"activeDeadlineSeconds": 0}),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            json!({"preemptionPolicy": "x"}),
            "spec.preemptionPolicy: Unsupported value: \"x\": supported values: \"PreemptLowerPriority\", \"Never\"",
        ),
        (
            json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]}),
            "spec.schedulingGates[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"hostNetwork": true, "containers": port}),
            "spec.containers[0].ports[0].hostPort: Invalid value: 0: must match `containerPort` when `hostNetwork` is true",
        ),
        (
            json!({"hostUsers": false, "hostPID": true}),
            "spec.HostPID: Forbidden: when `hostUsers` is false",
        ),
        (
            json!({"hostnameOverride": "a", "hostNetwork": true}),
            "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
        ),
        (
            json!({"resourceClaims": [{"name": "c"}]}),
            "spec.resourceClaims[0]: Invalid value: {\"name\":\"c\"}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        ),
        (
            json!({"hostAliases": [{"ip": "x"}]}),
            "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"overhead": {"cpu": "-1"}}),
            "spec.overhead.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (json!({"containers": []}), "spec.containers: Required value"),
    ];
    for (extra, expected) in cases {
        assert_eq!(check(extra.clone()), expected, "{extra}");
    }
    for (field, value) in [
        ("hostname", json!("A.b")),
        ("nodeName", json!("A")),
        ("serviceAccountName", json!("A")),
        ("priorityClassName", json!("A")),
        ("runtimeClassName", json!("")),
        ("readinessGates", json!([{"conditionType": "a b"}])),
        ("nodeSelector", json!({"a b": "c"})),
    ] {
        assert!(
            check(json!({ field: value })).starts_with(&format!("spec.{field}")),
            "{field}"
        );
    }
}

#[test]
fn files_of_variables_are_in_empty_directories() {
    let container = json!([{"name": "app", "image": "nginx", "resources": {}, "env": [
        {"name": "A", "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "v", "path": "p"}}}
    ]}]);
    let with = |volume: Value| check(json!({"containers": container, "volumes": [volume]}));
    assert_eq!(with(json!({"name": "v", "emptyDir": {}})), "");
    let at = "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName";
    assert_eq!(
        with(json!({"name": "v", "configMap": {"name": "c"}})),
        format!("{at}: Invalid value: \"v\": referenced volume must be of type emptyDir")
    );
    assert_eq!(
        with(json!({"name": "w", "emptyDir": {}})),
        format!("{at}: Not found: \"v\"")
    );
}
