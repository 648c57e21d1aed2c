//! `kubectl get` in every output form, with every way to select.

use crate::harness::Kubectl;

const CONFIG_MAPS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: alpha, labels: {app: shop, tier: front}}
data: {colour: red, size: large}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: beta, labels: {app: shop, tier: back}}
data: {colour: green}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gamma, labels: {app: stock}}
data: {}
"#;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: shop}}
spec:
  containers:
  - {name: server, image: "registry.example/server:1.0"}
  - {name: sidecar, image: "registry.example/sidecar:2.0"}
"#;

#[test]
fn every_kind_has_the_columns_kubectl_users_know() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(POD);
    kubectl.create(CONFIG_MAPS);
    kubectl
        .run("create deployment web --image=registry.example/server:1.0 --replicas=3")
        .ok();
    kubectl
        .run("create secret generic token --from-literal=key=value")
        .ok();
    kubectl
        .run("create service clusterip web --tcp=80:8080")
        .ok();
    kubectl.run("create serviceaccount robot").ok();
    kubectl
        .run("create job once --image=registry.example/job:1")
        .ok();
    kubectl
        .args(&[
            "create",
            "cronjob",
            "nightly",
            "--image=registry.example/job:1",
            "--schedule=0 3 * * *",
        ])
        .ok();
    kubectl.create("{apiVersion: v1, kind: Node, metadata: {name: node-1}}");
    let tables = [
        ("pods", "NAME|READY|STATUS|RESTARTS|AGE"),
        (
            "pods -o wide",
            "NAME|READY|STATUS|RESTARTS|AGE|IP|NODE|NOMINATED NODE|READINESS GATES",
        ),
        ("configmaps", "NAME|DATA|AGE"),
        ("deployments", "NAME|READY|UP-TO-DATE|AVAILABLE|AGE"),
        (
            "deployments -o wide",
            "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR",
        ),
        ("secrets", "NAME|TYPE|DATA|AGE"),
        (
            "services web",
            "NAME|TYPE|CLUSTER-IP|EXTERNAL-IP|PORT(S)|AGE",
        ),
        ("serviceaccounts robot", "NAME|AGE"),
        ("jobs", "NAME|STATUS|COMPLETIONS|DURATION|AGE"),
        (
            "cronjobs",
            "NAME|SCHEDULE|TIMEZONE|SUSPEND|ACTIVE|LAST SCHEDULE|AGE",
        ),
        ("nodes", "NAME|STATUS|ROLES|AGE|VERSION"),
        ("namespaces", "NAME|STATUS|AGE"),
        (
            "pods --show-labels",
            "NAME|READY|STATUS|RESTARTS|AGE|LABELS",
        ),
        ("pods -L app", "NAME|READY|STATUS|RESTARTS|AGE|APP"),
    ];
    for (what, columns) in tables {
        kubectl
            .run(&format!("get {what}"))
            .ok()
            .has_columns(columns);
    }
}

#[test]
fn rows_say_what_the_objects_say() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(POD);
    kubectl.create(CONFIG_MAPS);
    kubectl
        .run("create deployment web --image=registry.example/server:1.0 --replicas=3")
        .ok();
    kubectl
        .run("create service clusterip web --tcp=80:8080")
        .ok();
    kubectl.create("{apiVersion: v1, kind: Node, metadata: {name: node-1}}");
    let row = |what: &str, name: &str| kubectl.run(&format!("get {what}")).ok().row(name);
    assert_eq!(row("pods", "web")[1..4], ["0/2", "Pending", "0"]);
    assert_eq!(row("configmaps", "alpha")[1], "2");
    assert_eq!(row("configmaps", "gamma")[1], "0");
    assert_eq!(row("deployments", "web")[1..4], ["0/3", "0", "0"]);
    assert_eq!(
        row("deployments -o wide", "web")[5..],
        ["server", "registry.example/server:1.0", "app=web"]
    );
    let service = row("services web", "web");
    assert_eq!(
        (&*service[1], &*service[3], &*service[4]),
        ("ClusterIP", "<none>", "80/TCP")
    );
    assert_eq!(row("nodes", "node-1")[1..3], ["Unknown", "<none>"]);
    assert_eq!(row("namespaces", "default")[1], "Active");
    assert_eq!(row("pods -L app", "web")[5], "shop");
}

#[test]
fn every_machine_readable_form_shows_the_same_object() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(CONFIG_MAPS);
    let object = kubectl.run("get configmap alpha -o json").ok().json();
    assert_eq!(object["kind"], "ConfigMap");
    assert_eq!(object["data"]["colour"], "red");
    assert!(
        object["metadata"]["uid"]
            .as_str()
            .is_some_and(|uid| uid.len() == 36),
        "{object}"
    );
    let forms = [
        ("name", "configmap/alpha"),
        ("jsonpath={.data.colour}", "red"),
        ("go-template={{.metadata.labels.tier}}", "front"),
        (
            "custom-columns=N:.metadata.name,C:.data.colour --no-headers",
            "alpha   red",
        ),
    ];
    for (form, printed) in forms {
        kubectl
            .run(&format!("get configmap alpha -o {form}"))
            .ok()
            .prints_only(printed);
    }
    let template = "go-template={{range $k, $v := .data}}{{$k}}={{$v}};{{end}}";
    kubectl
        .args(&["get", "configmap", "alpha", "-o", template])
        .ok()
        .prints_only("colour=red;size=large;");
    kubectl
        .run("get configmap alpha -o yaml")
        .ok()
        .prints("kind: ConfigMap\n")
        .prints("  colour: red\n");
    kubectl
        .run("get configmap alpha -o yaml")
        .ok()
        .prints_no("managedFields");
    kubectl
        .run("get configmap alpha -o yaml --show-managed-fields")
        .ok()
        .prints("manager: kubectl-create");
}

#[test]
fn lists_come_in_every_form_too() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(CONFIG_MAPS);
    let list = kubectl.run("get configmaps -l app -o json").ok().json();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3));
    let names = "configmap/alpha\nconfigmap/beta\nconfigmap/gamma";
    kubectl
        .run("get configmaps -l app -o name")
        .ok()
        .prints_only(names);
    kubectl
        .run("get configmaps -l app -o jsonpath={.items[*].metadata.name}")
        .ok()
        .prints_only("alpha beta gamma");
    kubectl
        .run("get configmap/alpha configmap/gamma -o name")
        .ok()
        .prints_only("configmap/alpha\nconfigmap/gamma");
}

#[test]
fn label_and_field_selectors_choose_on_the_server() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(CONFIG_MAPS);
    let selections = [
        ("-l app=shop", "alpha beta"),
        ("-l app=shop,tier!=back", "alpha"),
        ("-l tier", "alpha beta"),
        ("-l app,!tier", "gamma"),
        ("--field-selector metadata.name=beta", "beta"),
        ("-l app --field-selector metadata.name!=beta", "alpha gamma"),
    ];
    for (selection, names) in selections {
        let words = format!("get configmaps {selection} -o jsonpath={{.items[*].metadata.name}}");
        kubectl.run(&words).ok().prints_only(names);
    }
    let set = [
        "get",
        "configmaps",
        "-o",
        "name",
        "-l",
        "app in (stock, none)",
    ];
    kubectl.args(&set).ok().prints_only("configmap/gamma");
}

#[test]
fn a_field_selector_on_an_unknown_field_is_refused() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let refusals = [
        (
            "configmaps",
            r#"Unable to find "/v1, Resource=configmaps" that match label selector "", field selector "data.x=y": "data.x" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        (
            "pods",
            r#"Unable to find "/v1, Resource=pods" that match label selector "", field selector "data.x=y": field label not supported: data.x"#,
        ),
    ];
    for (what, complaint) in refusals {
        let refusal = kubectl
            .run(&format!("get {what} --field-selector data.x=y"))
            .exits_with(1)
            .complains("(BadRequest)")
            .complains(complaint);
        let said = refusal.stderr.matches("Unable to find").count();
        assert_eq!(said, 1, "kubectl says it, and nobody else: {refusal}");
    }
}

#[test]
fn pods_are_selected_by_phase_and_node() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(POD);
    kubectl.create(
        "{apiVersion: v1, kind: Pod, metadata: {name: bound}, \
         spec: {nodeName: node-7, containers: [{name: c, image: i}]}}",
    );
    kubectl
        .run("get pods -o name --field-selector spec.nodeName=node-7")
        .ok()
        .prints_only("pod/bound");
    kubectl
        .run("get pods -o name --field-selector spec.nodeName=")
        .ok()
        .prints_only("pod/web");
    kubectl
        .run("get pods -o name --field-selector status.phase=Running")
        .ok()
        .prints_only("");
    kubectl
        .run("get pods -o name --field-selector status.phase=Pending")
        .ok()
        .prints_only("pod/bound\npod/web");
}

#[test]
fn all_namespaces_are_listed_together() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create namespace other").ok();
    kubectl.run("create configmap here --from-literal=a=b").ok();
    kubectl
        .run("-n other create configmap there --from-literal=a=b")
        .ok();
    let all = kubectl
        .run("get configmaps -A --field-selector metadata.name!=kube-root-ca.crt")
        .ok()
        .has_columns("NAMESPACE|NAME|DATA|AGE");
    assert_eq!(all.row("other")[1], "there");
    kubectl
        .run("get configmaps -n other -o name")
        .ok()
        .prints("configmap/there")
        .prints_no("configmap/here");
}

#[test]
fn sorting_uses_any_field() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    for (name, order) in [("a", "3"), ("b", "1"), ("c", "2")] {
        kubectl
            .run(&format!(
                "create configmap {name} --from-literal=order={order}"
            ))
            .ok();
        kubectl
            .run(&format!("label configmap {name} sorted=yes"))
            .ok();
    }
    let sorted = kubectl
        .run("get configmaps -l sorted --sort-by=.data.order --no-headers -o name")
        .ok();
    sorted.prints_only("configmap/b\nconfigmap/c\nconfigmap/a");
}

#[test]
fn long_lists_are_read_in_chunks() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let one = |n: usize| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: n{n:02}, labels: {{chunked: 'yes'}}}}}}\n---\n"
        )
    };
    kubectl.create(&(0..25).map(one).collect::<String>());
    let listed = kubectl
        .run("get configmaps -l chunked -o name --chunk-size=10 -v=6")
        .ok();
    assert_eq!(listed.stdout.lines().count(), 25, "{listed}");
    let pages = listed
        .stderr
        .lines()
        .filter(|line| line.contains("limit=10"))
        .count();
    assert_eq!(pages, 3, "{listed}");
    assert_eq!(listed.stderr.matches("continue=").count(), 2, "{listed}");
}

#[test]
fn a_watch_shows_each_change_as_it_happens() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let mut watch =
        kubectl.spawn("get configmaps -l watched --watch --output-watch-events --no-headers");
    kubectl.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: seen, labels: {watched: 'yes'}}, data: {a: b}}");
    watch.wait_for_line(&["ADDED", "seen", "1"]);
    kubectl
        .args(&["patch", "configmap", "seen", "-p", r#"{"data":{"c":"d"}}"#])
        .ok();
    watch.wait_for_line(&["MODIFIED", "seen", "2"]);
    kubectl.run("delete configmap seen").ok();
    watch.wait_for_line(&["DELETED", "seen", "2"]);
}

#[test]
fn a_watch_with_a_selector_sees_objects_enter_and_leave_it() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create configmap mover").ok();
    let mut watch =
        kubectl.spawn("get configmaps -l in=yes --watch --output-watch-events --no-headers");
    kubectl.run("label configmap mover in=yes").ok();
    watch.wait_for_line(&["ADDED", "mover"]);
    kubectl.run("label configmap mover in-").ok();
    watch.wait_for_line(&["DELETED", "mover"]);
}

#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("get configmap nobody")
        .exits_with(1)
        .complains(r#"Error from server (NotFound): configmaps "nobody" not found"#);
    kubectl
        .run("get pods")
        .ok()
        .complains("No resources found in default namespace.");
    kubectl
        .run("get unicorns")
        .exits_with(1)
        .complains(r#"the server doesn't have a resource type "unicorns""#);
}
