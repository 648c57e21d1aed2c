//! `kubectl delete`: grace, cascades, finalizers, selections, namespaces.

use crate::harness::{Kubectl, ServerOptions, eventually};

const BOUND_POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: bound}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}}";

#[test]
fn objects_are_deleted_by_name_file_and_label() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    for name in ["a", "b", "c", "d"] {
        kubectl.run(&format!("create configmap {name}")).ok();
    }
    kubectl.run("label configmap c d doomed=yes").ok();
    kubectl
        .run("delete configmap a")
        .ok()
        .prints(r#"configmap "a" deleted"#);
    let document = "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}";
    kubectl
        .with_input("delete -f -", document)
        .ok()
        .prints(r#"configmap "b" deleted"#);
    kubectl
        .run("delete configmap -l doomed")
        .ok()
        .prints(r#""c" deleted"#)
        .prints(r#""d" deleted"#);
    kubectl
        .run("get configmaps -o name")
        .ok()
        .prints_no("configmap/a")
        .prints_no("configmap/c");
    kubectl
        .run("delete configmap a")
        .exits_with(1)
        .complains(r#"configmaps "a" not found"#);
    kubectl.run("delete configmap a --ignore-not-found").ok();
}

#[test]
fn delete_all_empties_a_collection() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create namespace crowd").ok();
    for name in ["a", "b", "c"] {
        kubectl
            .run(&format!("-n crowd create secret generic {name}"))
            .ok();
    }
    let (code, _) = kubectl.server.send(
        http::Request::delete("/api/v1/namespaces/crowd/secrets")
            .body(Vec::new())
            .unwrap(),
    );
    assert_eq!(code, 200);
    kubectl
        .run("-n crowd get secrets -o name")
        .ok()
        .prints_only("");
}

#[test]
fn a_pod_no_node_runs_is_gone_at_once() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("run web --image=i").ok();
    kubectl
        .run("delete pod web --timeout=30s")
        .ok()
        .prints(r#"pod "web" deleted"#);
    kubectl.run("get pod web").exits_with(1);
}

#[test]
fn a_pod_on_a_node_is_given_its_grace() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(BOUND_POD);
    kubectl.run("delete pod bound --wait=false").ok();
    assert_eq!(
        kubectl.field("pod bound", ".metadata.deletionGracePeriodSeconds"),
        "30"
    );
    assert_ne!(
        kubectl.field("pod bound", ".metadata.deletionTimestamp"),
        ""
    );
    assert_eq!(
        kubectl.run("get pod bound").ok().row("bound")[2],
        "Terminating"
    );
    kubectl
        .run("delete pod bound --wait=false --grace-period=7")
        .ok();
    assert_eq!(
        kubectl.field("pod bound", ".metadata.deletionGracePeriodSeconds"),
        "7",
        "grace may shrink"
    );
    kubectl
        .run("delete pod bound --grace-period=0 --force")
        .ok()
        .complains("Immediate deletion does not wait");
    kubectl
        .run("get pod bound")
        .exits_with(1)
        .complains("not found");
}

#[test]
fn each_cascade_leaves_its_finalizer() {
    let alone = ServerOptions {
        flags: vec!["--controllers=*,-garbage-collector-controller"],
    };
    let Some(kubectl) = Kubectl::start_with(alone) else {
        return;
    };
    for (cascade, finalizer) in [("foreground", "foregroundDeletion"), ("orphan", "orphan")] {
        let what = format!("deployment {cascade}");
        kubectl.run(&format!("create {what} --image=i:1")).ok();
        kubectl
            .run(&format!("delete {what} --cascade={cascade} --wait=false"))
            .ok();
        // No garbage collector runs, so the object stays until the finalizer is taken away.
        assert_eq!(kubectl.field(&what, ".metadata.finalizers[*]"), finalizer);
        assert_ne!(kubectl.field(&what, ".metadata.deletionTimestamp"), "");
        let none = r#"{"metadata":{"finalizers":null}}"#;
        kubectl
            .args(&["patch", "deployment", cascade, "--type=merge", "-p", none])
            .ok();
        kubectl
            .run(&format!("get {what}"))
            .exits_with(1)
            .complains("not found");
    }
    kubectl.run("create deployment background --image=i:1").ok();
    kubectl
        .run("delete deployment background --cascade=background --timeout=30s")
        .ok();
    kubectl.run("get deployment background").exits_with(1);
}

#[test]
fn a_finalizer_holds_an_object_until_it_is_removed() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}",
    );
    let deletion = kubectl.spawn("delete configmap held --timeout=60s");
    eventually("the deletion has begun", || {
        let stamp = kubectl.field("configmap held", ".metadata.deletionTimestamp");
        if stamp.is_empty() {
            Err("no deletionTimestamp".to_owned())
        } else {
            Ok(())
        }
    });
    let more = r#"{"metadata":{"finalizers":["example.com/hold","example.com/late"]}}"#;
    let refusal = kubectl
        .args(&["patch", "configmap", "held", "--type=merge", "-p", more])
        .exits_with(1);
    refusal.complains("no new finalizers can be added if the object is being deleted");
    kubectl
        .args(&[
            "patch",
            "configmap",
            "held",
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":[]}}"#,
        ])
        .ok();
    let (code, printed) = deletion.finish();
    assert_eq!(code, 0, "{printed}");
}

#[test]
fn a_delete_with_a_wrong_precondition_is_refused() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create configmap cm").ok();
    let options = r#"{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}"#;
    let request = http::Request::delete("/api/v1/namespaces/default/configmaps/cm")
        .header("content-type", "application/json");
    let (code, body) = kubectl.server.send(request.body(options.into()).unwrap());
    assert_eq!(code, 409, "{body}");
    assert!(body.contains("does not match the UID in record"), "{body}");
    kubectl.run("get configmap cm").ok();
}

#[test]
fn a_namespace_being_deleted_takes_nothing_new() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create namespace leaving").ok();
    // What is held keeps the namespace from going before we have looked.
    kubectl.create(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: inside, namespace: leaving, finalizers: [example.com/hold]}}",
    );
    kubectl
        .run("delete namespace leaving --wait=false")
        .ok()
        .prints(r#"namespace "leaving" deleted"#);
    assert_eq!(
        kubectl.field("namespace leaving", ".status.phase"),
        "Terminating"
    );
    let refusal = kubectl
        .run("-n leaving create configmap late")
        .exits_with(1);
    refusal.complains("because it is being terminated");
}
