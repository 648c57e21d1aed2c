use serde_json::json;

use super::*;
use crate::validation::cases::told;

fn container(extra: Value) -> Value {
    let mut container = json!({
        "name": "app", "image": "nginx", "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "resources": {}
    });
    for (name, value) in extra.as_object().expect("an object") {
        container[name] = value.clone();
    }
    container
}

fn check(spec: Value) -> String {
    let pod = PodContext::of(&spec, true);
    told(|e| {
        main_containers(e, &Path::root("containers"), &spec, &pod);
        init_containers(e, &Path::root("initContainers"), &spec, &pod);
        ephemeral_containers(e, &Path::root("ephemeralContainers"), &spec, &pod);
    })
    .join("|")
}

#[test]
fn a_container_is_complete() {
    let cases = [
        (json!({}), ""),
        (
            json!({"name": "A"}),
            "containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        (json!({"name": ""}), "containers[0].name: Required value"),
        (json!({"image": ""}), "containers[0].image: Required value"),
        (
            json!({"imagePullPolicy": "Sometimes"}),
            "containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            json!({"terminationMessagePolicy": "x"}),
            "containers[0].terminationMessagePolicy: Unsupported value: \"x\": supported values: \"File\", \"FallbackToLogsOnError\"",
        ),
        (
            json!({"ports": [{"protocol": "TCP"}]}),
            "containers[0].ports[0].containerPort: Required value",
        ),
        (
            json!({"ports": [{"containerPort": 70000, "protocol": "TCP"}]}),
            "containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            json!({"ports": [{"containerPort": 80, "protocol": "X"}]}),
            "containers[0].ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (
            json!({"ports": [
                {"name": "a", "containerPort": 1, "protocol": "TCP"},
                {"name": "a", "containerPort": 2, "protocol": "TCP"}
            ]}),
            "containers[0].ports[1].name: Duplicate value: \"a\"",
        ),
        (
            json!({"ports": [
                {"hostPort": 9, "containerPort": 1, "protocol": "TCP"},
                {"hostPort": 9, "containerPort": 2, "protocol": "TCP"}
            ]}),
            "containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\"",
        ),
        (
            json!({"resizePolicy": [{"resourceName": "disk", "restartPolicy": "NotRequired"}]}),
            "containers[0].resizePolicy: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\"",
        ),
        (
            json!({"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}),
            "containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ),
    ];
    for (extra, expected) in cases {
        assert_eq!(
            check(json!({ "containers": [container(extra.clone())] })),
            expected,
            "{extra}"
        );
    }
    assert_eq!(check(json!({})), "containers: Required value");
}

#[test]
fn names_are_unique_across_all_containers() {
    let (app, other) = (container(json!({})), container(json!({"name": "other"})));
    assert_eq!(check(json!({"containers": [app, other]})), "");
    assert_eq!(
        check(json!({"containers": [app, app]})),
        "containers[1].name: Duplicate value: \"app\""
    );
    assert_eq!(
        check(json!({"containers": [app], "initContainers": [app]})),
        "initContainers[0].name: Duplicate value: \"app\""
    );
    assert_eq!(
        check(json!({"containers": [app], "ephemeralContainers": [app]})),
        "ephemeralContainers[0].name: Duplicate value: \"app\""
    );
}

#[test]
fn only_sidecars_among_init_containers_have_probes() {
    let probe = json!({"exec": {"command": ["x"]}, "successThreshold": 1});
    let init = container(json!({"name": "init", "livenessProbe": probe}));
    let sidecar =
        container(json!({"name": "init", "livenessProbe": probe, "restartPolicy": "Always"}));
    let app = container(json!({}));
    assert_eq!(
        check(json!({"containers": [app], "initContainers": [init]})),
        "initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"
    );
    assert_eq!(
        check(json!({"containers": [app], "initContainers": [sidecar]})),
        ""
    );
}

#[test]
fn ephemeral_containers_promise_nothing() {
    let app = container(json!({}));
    let with = |extra: Value| {
        let mut debug = container(json!({"name": "debug"}));
        for (name, value) in extra.as_object().expect("an object") {
            debug[name] = value.clone();
        }
        check(json!({"containers": [app], "ephemeralContainers": [debug]}))
    };
    assert_eq!(with(json!({"targetContainerName": "app"})), "");
    assert_eq!(
        with(json!({"targetContainerName": "x"})),
        "ephemeralContainers[0].targetContainerName: Not found: \"x\""
    );
    assert_eq!(
        with(json!({"ports": [{"containerPort": 80, "protocol": "TCP"}]})),
        "ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"
    );
    assert_eq!(
        with(json!({"image": " nginx"})),
        "ephemeralContainers[0].image: Invalid value: \" nginx\": must not have leading or trailing whitespace"
    );
}
