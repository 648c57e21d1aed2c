//! Versions of custom resources that a webhook converts: a small HTTPS server of the test does it for kubectl.

use serde_json::{Value, json};

use crate::harness::{HookServer, Kubectl, eventually};

/// Version v1 has `spec.host: "name:port"`, version v2 `spec.name` and `spec.port`.
fn converted(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    let from = object["apiVersion"].as_str().unwrap().to_owned();
    object["apiVersion"] = to.into();
    if from == to {
        return object;
    }
    object["spec"] = match to.ends_with("v2") {
        true => {
            let host = object["spec"]["host"].as_str().unwrap_or_default();
            let (name, port) = host.split_once(':').unwrap_or((host, ""));
            json!({"name": name, "port": port})
        }
        false => {
            let text = |field: &str| {
                object["spec"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            json!({"host": format!("{}:{}", text("name"), text("port"))})
        }
    };
    object
}

fn respond(path: &str, review: &Value) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap().iter();
    let mut objects: Vec<Value> = objects.map(|object| converted(object, to)).collect();
    if path.starts_with("/lie") {
        objects[0]["metadata"]["name"] = "another".into();
    }
    let result = match path.starts_with("/fail") {
        true => json!({"status": "Failed", "message": "no words for this"}),
        false => json!({"status": "Success"}),
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": request["uid"], "result": result, "convertedObjects": objects}})
}

fn definition(hook: &HookServer, path: &str, stored: &str) -> String {
    let text = || json!({"type": "string"});
    let version = |name: &str, fields: Value| {
        json!({"name": name, "served": true, "storage": name == stored,
            "subresources": {"status": {}},
            "selectableFields": match name { "v2" => json!([{"jsonPath": ".spec.port"}]), _ => json!([]) },
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": fields},
                "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "doors.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "doors", "singular": "door", "kind": "Door"},
            "versions": [version("v1", json!({"host": text()})),
                version("v2", json!({"name": text(), "port": text()}))],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("{}{path}", hook.url), "caBundle": hook.authority}}}}})
    .to_string()
}

fn door(version: &str, name: &str, spec: Value) -> String {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Door",
        "metadata": {"name": name}, "spec": spec})
    .to_string()
}

fn defined(hook: &HookServer) -> Option<Kubectl> {
    let kubectl = Kubectl::without_workloads()?;
    kubectl.create(&definition(hook, "/convert", "v1"));
    kubectl
        .run("wait --for=condition=Established --timeout=30s crd/doors.example.com")
        .ok();
    Some(kubectl)
}

#[test]
fn objects_are_read_and_written_in_every_version() {
    let hook = HookServer::start(respond);
    let Some(kubectl) = defined(&hook) else {
        return;
    };
    kubectl.create(&door("v1", "one", json!({"host": "a:80"})));
    kubectl.create(&door("v2", "two", json!({"name": "b", "port": "90"})));
    let spec = |what: &str| kubectl.field(what, ".spec");
    assert_eq!(
        spec("doors.v2.example.com/one"),
        r#"{"name":"a","port":"80"}"#
    );
    assert_eq!(spec("doors.v1.example.com/two"), r#"{"host":"b:90"}"#);
    let patch = "patch doors.v2.example.com/two --type=merge -p {\"spec\":{\"port\":\"91\"}}";
    kubectl.run(patch).ok();
    assert_eq!(spec("doors.v1.example.com/two"), r#"{"host":"b:91"}"#);
    let status = "patch doors.v2.example.com/two --subresource=status --type=merge -p {\"status\":{\"phase\":\"open\"}}";
    kubectl.run(status).ok();
    assert_eq!(
        kubectl.field("doors.v1.example.com/two", ".status.phase"),
        "open"
    );
    // A list of both, selected by what only the other version has.
    let names = "get doors.v2.example.com -o jsonpath={.items[*].spec.name}";
    assert_eq!(kubectl.run(names).ok().stdout, "a b");
    let selected = "get doors.v2.example.com --field-selector=spec.port=91 -o name";
    assert_eq!(
        kubectl.run(selected).ok().stdout.trim(),
        "door.example.com/two"
    );
    // The storage version turns: what lies there in the old one stays readable and is rewritten when it changes.
    kubectl
        .with_input("replace -f -", &definition(&hook, "/convert", "v2"))
        .ok();
    eventually("both versions are served from mixed storage", || {
        kubectl
            .run("get doors.v1.example.com -o jsonpath={.items[*].spec.host}")
            .stdout
            == "a:80 b:91"
    });
    kubectl.run("annotate doors.v1.example.com/one a=b").ok();
    assert_eq!(
        spec("doors.v2.example.com/one"),
        r#"{"name":"a","port":"80"}"#
    );
    kubectl.run("delete crd doors.example.com").ok();
}

#[test]
fn a_watch_sees_its_own_version() {
    let hook = HookServer::start(respond);
    let Some(kubectl) = defined(&hook) else {
        return;
    };
    kubectl.create(&door("v1", "early", json!({"host": "a:80"})));
    let mut watch = kubectl.spawn(
        "get doors.v2.example.com --watch --output-watch-events -o jsonpath={.type}:{.object.spec.name}{'\\n'}",
    );
    watch.wait_for_line(&["ADDED:a"]);
    kubectl.create(&door("v1", "late", json!({"host": "b:80"})));
    watch.wait_for_line(&["ADDED:b"]);
    kubectl.run("delete doors.v1.example.com/late").ok();
    watch.wait_for_line(&["DELETED:b"]);
}

#[test]
fn a_webhook_that_fails_or_lies_is_named() {
    let hook = HookServer::start(respond);
    let Some(kubectl) = defined(&hook) else {
        return;
    };
    kubectl.create(&door("v1", "one", json!({"host": "a:80"})));
    let cases = [
        (
            "/fail",
            "conversion webhook for example.com/v1, Kind=Door failed: no words for this",
        ),
        (
            "/lie",
            "conversion webhook for example.com/v1, Kind=Door returned invalid converted object at index 0: must have the same name: one != another",
        ),
    ];
    for (path, why) in cases {
        kubectl
            .with_input("replace -f -", &definition(&hook, path, "v1"))
            .ok();
        eventually(why, || {
            kubectl
                .run("get doors.v2.example.com/one")
                .stderr
                .contains(why)
        });
        // Everybody else is served.
        kubectl.run("get doors.v1.example.com/one").ok();
    }
    let gone = definition(&hook, "/convert", "v1").replace(&hook.url, "https://localhost:1");
    kubectl.with_input("replace -f -", &gone).ok();
    eventually("nobody answers", || {
        let said = kubectl.run("get doors.v2.example.com/one").stderr;
        said.contains("failed: Post \"https://localhost:1/convert?timeout=30s\":")
    });
    kubectl.run("delete doors.v1.example.com/one").ok();
    let page = kubectl.run("get --raw /metrics").ok().stdout;
    for line in [
        "apiserver_crd_conversion_webhook_duration_seconds_count{crd_name=\"doors.example.com\",from_version=\"v1\",to_version=\"v2\",succeeded=\"false\"}",
        "apiserver_conversion_webhook_request_total{result=\"failure\",failure_type=\"conversion_webhook_call_failure\"}",
        "failure_type=\"conversion_webhook_invalid_converted_object_failure\"",
    ] {
        assert!(page.contains(line), "{line}");
    }
}
