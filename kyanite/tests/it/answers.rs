//! Answers that people and programs compare with upstream's: words, columns, conditions, and what is left out.

use serde_json::{Value, json};

use crate::harness::{Kubectl, eventually};

const CRD: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: as.b.example}, \
    spec: {group: b.example, scope: Namespaced, names: {plural: as, singular: a, kind: A, listKind: AList}, versions: \
    [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {x: {type: string, \
    format: int32}}}}}]}}";

/// What is created, and what is said beside the success.
const WARNED: [(&str, &str); 2] = [
    (CRD, "unrecognized format \"int32\""),
    (
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a.static.k8s.io}}",
        "names ending with \".static.k8s.io\" are reserved",
    ),
];

/// What is asked for, and the words of the refusal, once.
const REFUSED: [(&str, &str); 4] = [
    (
        "get pods --field-selector x=y",
        "that match label selector \"\", field selector \"x=y\": field label not supported: x",
    ),
    (
        "get jobs --field-selector x=y",
        ": field label \"x\" not supported for Job",
    ),
    (
        "get events.events.k8s.io --field-selector involvedObject.name=y",
        ": field label not supported: involvedObject.name",
    ),
    (
        "get configmaps --field-selector x=y",
        ": \"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    ),
];

#[test]
fn words_are_upstreams() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    for (document, warning) in WARNED {
        kubectl.create(document).complains(warning);
    }
    for (words, complaint) in REFUSED {
        let refusal = kubectl.run(words).exits_with(1).complains(complaint);
        assert_eq!(refusal.stderr.matches("Unable to find").count(), 1);
    }
    let events = "get events.events.k8s.io --field-selector regarding.name=y,reportingController=z";
    kubectl.run(events).ok();
    a_name_that_is_going_is_said_to_be(&kubectl);
    what_may_not_change_is_shown(&kubectl);
}

fn a_name_that_is_going_is_said_to_be(kubectl: &Kubectl) {
    let map =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: going, finalizers: [a.example/b]}}";
    kubectl.create(map);
    kubectl.run("delete configmap going --wait=false").ok();
    let refusal = kubectl.with_input("create -f -", map).exits_with(1);
    refusal.complains("object is being deleted: configmaps \"going\" already exists");
}

fn what_may_not_change_is_shown(kubectl: &Kubectl) {
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: [ReadWriteOnce], \
        resources: {requests: {storage: 1Gi}}}}";
    kubectl.create(claim);
    let patch = r#"--patch={"spec":{"accessModes":["ReadOnlyMany"]}}"#;
    let refusal = kubectl
        .args(&["patch", "pvc", "c", "--type=merge", patch])
        .exits_with(1)
        .complains("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims");
    for line in ["@@ -1,", "-  \"ReadWriteOnce\"", "+  \"ReadOnlyMany\""] {
        assert!(refusal.stderr.contains(line), "{line} in {refusal}");
    }
}

#[test]
fn the_parts_of_the_control_plane_have_rows_and_columns() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    // The harness starts no scheduler.
    let table = eventually("the controllers run", || {
        let table = kubectl.run("get componentstatuses").ok().stdout;
        let runs = |line: &str| line.starts_with("controller-manager") && line.contains("Healthy");
        match table.lines().any(runs) && !table.contains("controller-manager   Unhealthy") {
            true => Ok(table),
            false => Err(table),
        }
    });
    let words = |line: &str| {
        let words = line.split_whitespace().map(str::to_owned);
        words.collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = table.lines().map(words).collect();
    assert_eq!(rows[0], ["NAME", "STATUS", "MESSAGE", "ERROR"]);
    assert_eq!(rows[1][..3], ["controller-manager", "Healthy", "ok"]);
    assert_eq!(rows[2][..2], ["scheduler", "Unhealthy"]);
    assert_eq!(rows[3][..3], ["etcd-0", "Healthy", "ok"]);
    kubectl
        .run("get componentstatus etcd-0")
        .ok()
        .prints("Healthy");
    let missing = kubectl.run("get componentstatus other").exits_with(1);
    missing.complains("(NotFound)");
}

#[test]
fn flow_schemas_say_whether_their_level_exists() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let schema = "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: f}, \
        spec: {priorityLevelConfiguration: {name: later}, matchingPrecedence: 100}}";
    kubectl.create(schema);
    let condition = |wanted: &str| {
        let path = ".status.conditions[?(@.type==\"Dangling\")]['status','reason','message']";
        eventually(wanted, || {
            let said = kubectl.field("flowschema f", path);
            said.contains(wanted).then_some(()).ok_or(said)
        });
    };
    condition(
        "True NotFound This FlowSchema references the PriorityLevelConfiguration object named \"later\" but there is no such object",
    );
    kubectl.create(
        "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, metadata: {name: later}, \
         spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}",
    );
    condition("False Found");
}

#[test]
fn a_dry_run_and_gated_fields_leave_no_trace() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: dry}}";
    let words = "apply --server-side --dry-run=server -o json -f -";
    let dry: Value = kubectl.with_input(words, map).ok().json();
    assert_eq!(dry["metadata"]["resourceVersion"], Value::Null, "{dry}");
    assert!(dry["metadata"]["uid"].is_string(), "{dry}");
    // The gate of stop signals is off.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"os": {"name": "linux"},
        "schedulingGroup": {"podGroupName": "g"},
        "containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}}]}});
    let pods = "/api/v1/namespaces/default/pods";
    let made = kubectl.server.admin().post(pods, &pod).ok();
    assert_eq!(made["spec"]["containers"][0]["lifecycle"], Value::Null);
    assert_eq!(made["spec"]["schedulingGroup"], Value::Null);
}
