//! kubectl's imperative changes: patch, edit, scale, label, set, replace, wait, rollout, cordon.

use crate::harness::Kubectl;

#[test]
fn each_patch_type_patches_in_its_own_way() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create deployment web --image=i:1").ok();
    let image = |name: &str| {
        kubectl.field(
            "deployment web",
            &format!(".spec.template.spec.containers[?(@.name==\"{name}\")].image"),
        )
    };
    let patch = |kind: &str, body: &str| {
        kubectl.args(&["patch", "deployment", "web", "--type", kind, "-p", body])
    };

    let add = r#"{"spec":{"template":{"spec":{"containers":[{"name":"extra","image":"e:1"}]}}}}"#;
    patch("strategic", add)
        .ok()
        .prints("deployment.apps/web patched");
    assert_eq!((image("i"), image("extra")), ("i:1".into(), "e:1".into()));

    let replace =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"only","image":"o:1"}]}}}}"#;
    patch("merge", replace).ok();
    assert_eq!(
        (image("i"), image("extra"), image("only")),
        (String::new(), String::new(), "o:1".into())
    );

    patch(
        "json",
        r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"o:2"}]"#,
    )
    .ok();
    assert_eq!(image("only"), "o:2");

    let same = patch("merge", r#"{"spec":{"replicas":1}}"#).ok();
    same.prints("deployment.apps/web patched (no change)");
    let failed = patch(
        "json",
        r#"[{"op":"test","path":"/spec/replicas","value":9}]"#,
    )
    .exits_with(1);
    failed.complains("the server rejected our request due to an error in our request");
}

#[test]
fn edit_sends_what_the_editor_leaves() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create configmap cm --from-literal=colour=red")
        .ok();
    kubectl
        .edit("configmap cm", "s/red/blue/")
        .ok()
        .prints("configmap/cm edited");
    assert_eq!(kubectl.field("configmap cm", ".data.colour"), "blue");
    kubectl
        .edit("configmap cm", "s/nothing/at-all/")
        .ok()
        .complains("Edit cancelled, no changes made.");
}

#[test]
fn scale_goes_through_the_scale_subresource() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create deployment web --image=i:1 --replicas=1")
        .ok();
    kubectl
        .run("scale deployment web --replicas=5")
        .ok()
        .prints("deployment.apps/web scaled");
    assert_eq!(kubectl.field("deployment web", ".spec.replicas"), "5");
    let wrong = kubectl
        .run("scale deployment web --current-replicas=1 --replicas=2")
        .exits_with(1);
    wrong.complains("Expected replicas to be 1, was 5");
    let scale = kubectl
        .run("get deployment web --subresource=scale -o json")
        .ok()
        .json();
    assert_eq!(
        (&scale["kind"], &scale["apiVersion"]),
        (&"Scale".into(), &"autoscaling/v1".into())
    );
    assert_eq!(scale["status"]["selector"], "app=web");
}

#[test]
fn labels_and_annotations_come_and_go() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create configmap cm").ok();
    kubectl
        .run("label configmap cm a=1 b=2")
        .ok()
        .prints("configmap/cm labeled");
    kubectl
        .run("label configmap cm a=3")
        .exits_with(1)
        .complains("'a' already has a value (1), and --overwrite is false");
    kubectl.run("label configmap cm a=3 b- --overwrite").ok();
    assert_eq!(
        kubectl.field("configmap cm", ".metadata.labels"),
        r#"{"a":"3"}"#
    );
    kubectl
        .run("annotate configmap cm note=kept")
        .ok()
        .prints("configmap/cm annotated");
    assert_eq!(
        kubectl.field("configmap cm", ".metadata.annotations.note"),
        "kept"
    );
    let refusal = kubectl
        .args(&["label", "configmap", "cm", "bad=no spaces"])
        .exits_with(1);
    refusal
        .complains("a valid label must be an empty string or consist of alphanumeric characters");
}

#[test]
fn set_changes_one_thing() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create deployment web --image=registry.example/server:1")
        .ok();
    kubectl
        .run("set image deployment/web server=registry.example/server:2")
        .ok()
        .prints("image updated");
    assert_eq!(
        kubectl.field("deployment web", ".spec.template.spec.containers[0].image"),
        "registry.example/server:2"
    );
    assert_eq!(kubectl.field("deployment web", ".metadata.generation"), "2");
    kubectl.run("set env deployment/web MODE=fast").ok();
    kubectl
        .run("set env deployment/web --list")
        .ok()
        .prints("MODE=fast");
    kubectl
        .run("set resources deployment/web --limits=cpu=200m")
        .ok();
    assert_eq!(
        kubectl.field(
            "deployment web",
            ".spec.template.spec.containers[0].resources.limits.cpu"
        ),
        "200m"
    );
}

#[test]
fn replace_puts_the_whole_object() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let config_map = |value: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm}}, data: {{{value}}}}}")
    };
    kubectl.create(&config_map("a: b"));
    let uid = kubectl.field("configmap cm", ".metadata.uid");
    kubectl
        .with_input("replace -f -", &config_map("c: d"))
        .ok()
        .prints("configmap/cm replaced");
    assert_eq!(kubectl.field("configmap cm", ".data"), r#"{"c":"d"}"#);
    assert_eq!(kubectl.field("configmap cm", ".metadata.uid"), uid);
    kubectl
        .with_input("replace --force -f -", &config_map("e: f"))
        .ok()
        .prints("configmap/cm replaced");
    assert_ne!(
        kubectl.field("configmap cm", ".metadata.uid"),
        uid,
        "--force deletes and creates"
    );
}

#[test]
fn replace_with_an_old_resource_version_conflicts() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create configmap cm --from-literal=a=b").ok();
    let old = kubectl.run("get configmap cm -o json").ok().stdout;
    kubectl
        .args(&["patch", "configmap", "cm", "-p", r#"{"data":{"a":"c"}}"#])
        .ok();
    let refusal = kubectl.with_input("replace -f -", &old).exits_with(1);
    refusal.complains(
        r#"Operation cannot be fulfilled on configmaps "cm": the object has been modified; please apply your changes to the latest version and try again"#,
    );
}

#[test]
fn immutable_fields_stay() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create deployment web --image=i:1").ok();
    let body = r#"{"spec":{"selector":{"matchLabels":{"app":"other"}},"template":{"metadata":{"labels":{"app":"other"}}}}}"#;
    let refusal = kubectl
        .args(&["patch", "deployment", "web", "-p", body])
        .exits_with(1);
    refusal.complains(r#"The Deployment "web" is invalid: spec.selector: Invalid value:"#);
}

#[test]
fn wait_sees_conditions_fields_and_deletion() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create deployment web --image=i:1").ok();
    let status = |body: &str| {
        kubectl
            .args(&[
                "patch",
                "deployment",
                "web",
                "--subresource=status",
                "--type=merge",
                "-p",
                body,
            ])
            .ok()
    };
    let mut waits = vec![
        kubectl.spawn("wait --for=condition=Available deployment/web --timeout=60s"),
        kubectl.spawn("wait --for=jsonpath={.status.readyReplicas}=1 deployment/web --timeout=60s"),
    ];
    status(
        r#"{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,
        "conditions":[{"type":"Available","status":"True","reason":"MinimumReplicasAvailable"}]}}"#,
    );
    for wait in waits.drain(..) {
        let (code, printed) = wait.finish();
        assert_eq!(
            (code, printed.as_str()),
            (0, "deployment.apps/web condition met")
        );
    }
    let gone = kubectl.spawn("wait --for=delete deployment/web --timeout=60s");
    kubectl.run("delete deployment web --wait=false").ok();
    assert_eq!(gone.finish().0, 0);
    let late = kubectl
        .run("wait --for=condition=Ready namespace/default --timeout=0s")
        .exits_with(1);
    assert!(!late.stderr.is_empty(), "{late}");
}

#[test]
fn rollout_commands_read_the_deployment() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create deployment web --image=i:1 --replicas=2")
        .ok();
    let status = r#"{"status":{"observedGeneration":1,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}}"#;
    kubectl
        .args(&[
            "patch",
            "deployment",
            "web",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ])
        .ok();
    kubectl
        .run("rollout status deployment/web --timeout=30s")
        .ok()
        .prints(r#"deployment "web" successfully rolled out"#);
    kubectl
        .run("rollout pause deployment/web")
        .ok()
        .prints("deployment.apps/web paused");
    assert_eq!(kubectl.field("deployment web", ".spec.paused"), "true");
    kubectl
        .run("rollout resume deployment/web")
        .ok()
        .prints("deployment.apps/web resumed");
    kubectl
        .run("rollout restart deployment/web")
        .ok()
        .prints("deployment.apps/web restarted");
    let annotations = kubectl.field("deployment web", ".spec.template.metadata.annotations");
    assert!(
        annotations.contains("kubectl.kubernetes.io/restartedAt"),
        "{annotations}"
    );
    kubectl
        .run("rollout history deployment/web")
        .ok()
        .prints("deployment.apps/web");
}

#[test]
fn nodes_are_cordoned_and_tainted() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create("{apiVersion: v1, kind: Node, metadata: {name: node-1}}");
    kubectl
        .run("cordon node-1")
        .ok()
        .prints("node/node-1 cordoned");
    assert_eq!(kubectl.field("node node-1", ".spec.unschedulable"), "true");
    assert_eq!(
        kubectl.run("get node node-1").ok().row("node-1")[1],
        "Unknown,SchedulingDisabled"
    );
    kubectl
        .run("uncordon node-1")
        .ok()
        .prints("node/node-1 uncordoned");
    assert_eq!(kubectl.field("node node-1", ".spec.unschedulable"), "");
    kubectl
        .run("taint node node-1 dedicated=web:NoSchedule")
        .ok()
        .prints("node/node-1 tainted");
    kubectl
        .run("describe node node-1")
        .ok()
        .prints("dedicated=web:NoSchedule");
    kubectl
        .run("taint node node-1 dedicated-")
        .ok()
        .prints("node/node-1 untainted");
    kubectl
        .run("describe node node-1")
        .ok()
        .prints_no("dedicated=web:NoSchedule");
}

#[test]
fn the_status_subresource_and_the_object_keep_apart() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create deployment web --image=i:1").ok();
    let both = r#"{"spec":{"replicas":9},"status":{"replicas":4}}"#;
    kubectl
        .args(&["patch", "deployment", "web", "--type=merge", "-p", both])
        .ok();
    assert_eq!(
        kubectl.field("deployment web", ".status.replicas"),
        "",
        "the object does not take a status"
    );
    let other = r#"{"spec":{"replicas":3},"status":{"replicas":4}}"#;
    kubectl
        .args(&[
            "patch",
            "deployment",
            "web",
            "--subresource=status",
            "--type=merge",
            "-p",
            other,
        ])
        .ok();
    assert_eq!(kubectl.field("deployment web", ".status.replicas"), "4");
    assert_eq!(
        kubectl.field("deployment web", ".spec.replicas"),
        "9",
        "status does not take a spec"
    );
    assert_eq!(
        kubectl.field("deployment web", ".metadata.generation"),
        "2",
        "status does not raise generation"
    );
}
