//! `kubectl apply`, client-side and server-side, with `diff` and pruning.

use crate::harness::Kubectl;

fn config_map(name: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{set: one}}}}, data: {{{data}}}}}\n---\n"
    )
}

fn data(kubectl: &Kubectl, name: &str) -> String {
    kubectl
        .run(&format!("get configmap {name} -o jsonpath={{.data}}"))
        .ok()
        .stdout
}

#[test]
fn client_side_apply_creates_configures_and_leaves_alone() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let apply = |text: &str| {
        kubectl
            .with_input("apply -f -", &config_map("cm", text))
            .ok()
    };
    apply("a: '1', b: '2'").prints("configmap/cm created");
    apply("a: '1', b: '2'").prints("configmap/cm unchanged");
    kubectl
        .args(&[
            "patch",
            "configmap",
            "cm",
            "-p",
            r#"{"data":{"other":"kept"}}"#,
        ])
        .ok();
    apply("a: '9'").prints("configmap/cm configured");
    assert_eq!(
        data(&kubectl, "cm"),
        r#"{"a":"9","other":"kept"}"#,
        "b was ours and is gone, other was not"
    );
}

#[test]
fn client_side_apply_merges_lists_by_their_keys() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let deployment = |image: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{selector: {{matchLabels: {{a: b}}}}, \
             template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: main, image: {image}}}]}}}}}}}}"
        )
    };
    kubectl.with_input("apply -f -", &deployment("m:1")).ok();
    let sidecar =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}"#;
    kubectl
        .args(&["patch", "deployment", "web", "-p", sidecar])
        .ok();
    kubectl
        .with_input("apply -f -", &deployment("m:2"))
        .ok()
        .prints("configured");
    let images = kubectl
        .run("get deployment web -o jsonpath={.spec.template.spec.containers[*].image}")
        .ok()
        .stdout;
    let mut images: Vec<&str> = images.split(' ').collect();
    images.sort_unstable();
    assert_eq!(images, ["m:2", "s:1"]);
}

#[test]
fn server_side_apply_owns_what_it_applies() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let apply = |words: &str, text: &str| {
        kubectl.with_input(
            &format!("apply --server-side -f - {words}"),
            &config_map("cm", text),
        )
    };
    apply("--field-manager=first", "a: '1', b: '2'")
        .ok()
        .prints("configmap/cm serverside-applied");
    apply("--field-manager=second", "c: '3'").ok();
    assert_eq!(data(&kubectl, "cm"), r#"{"a":"1","b":"2","c":"3"}"#);
    apply("--field-manager=first", "a: '1'").ok();
    assert_eq!(
        data(&kubectl, "cm"),
        r#"{"a":"1","c":"3"}"#,
        "what its only owner no longer applies is removed"
    );
    let managers = kubectl.run("get configmap cm --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}").ok();
    let mut managers: Vec<&str> = managers.stdout.split(' ').collect();
    managers.sort_unstable();
    assert_eq!(managers, ["first", "second"]);
}

#[test]
fn server_side_apply_conflicts_until_it_is_forced() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let apply = |words: &str, text: &str| {
        kubectl.with_input(
            &format!("apply --server-side -f - {words}"),
            &config_map("cm", text),
        )
    };
    apply("--field-manager=first", "a: '1'").ok();
    let conflict = apply("--field-manager=second", "a: '2'").exits_with(1);
    conflict.complains(r#"Apply failed with 1 conflict: conflict with "first": .data.a"#);
    assert_eq!(data(&kubectl, "cm"), r#"{"a":"1"}"#);
    apply("--field-manager=second --force-conflicts", "a: '2'").ok();
    assert_eq!(data(&kubectl, "cm"), r#"{"a":"2"}"#);
    let back = apply("--field-manager=first", "a: '1'").exits_with(1);
    back.complains(r#"conflict with "second": .data.a"#);
    apply("--field-manager=first", "a: '2'").ok();
}

#[test]
fn server_side_apply_sees_other_writers_as_owners() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create deployment web --image=i:1 --replicas=1")
        .ok();
    kubectl.run("scale deployment web --replicas=4").ok();
    let document =
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2}}";
    let conflict = kubectl
        .with_input("apply --server-side -f -", document)
        .exits_with(1);
    // The manager's name is the name of the kubectl binary, which differs between machines.
    conflict.complains(r#"with subresource "scale" using apps/v1: .spec.replicas"#);
}

#[test]
fn client_side_apply_hands_over_to_server_side_apply() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .with_input("apply -f -", &config_map("cm", "a: '1', b: '2'"))
        .ok();
    kubectl
        .with_input("apply --server-side -f -", &config_map("cm", "a: '2'"))
        .ok()
        .prints("serverside-applied");
    assert_eq!(
        data(&kubectl, "cm"),
        r#"{"a":"2"}"#,
        "the migrated manager owned b and dropped it"
    );
}

#[test]
fn pruning_removes_what_is_no_longer_in_the_set() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let words = "apply -f - --prune -l set=one --prune-allowlist=core/v1/ConfigMap";
    let both = config_map("stays", "a: b") + &config_map("goes", "a: b");
    kubectl.with_input(words, &both).ok();
    kubectl
        .with_input(words, &config_map("stays", "a: b"))
        .ok()
        .prints("configmap/goes pruned");
    kubectl
        .run("get configmaps -l set=one -o name")
        .ok()
        .prints_only("configmap/stays");
}

#[test]
fn diff_shows_changes_and_exits_with_one() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .with_input("apply -f -", &config_map("cm", "a: old"))
        .ok();
    kubectl
        .with_input("diff -f -", &config_map("cm", "a: old"))
        .exits_with(0)
        .prints_only("");
    let changed = kubectl
        .with_input("diff -f -", &config_map("cm", "a: new"))
        .exits_with(1);
    changed.prints("-  a: old").prints("+  a: new");
    kubectl
        .with_input("diff --server-side -f -", &config_map("cm", "a: new"))
        .exits_with(1)
        .prints("+  a: new");
    assert_eq!(
        data(&kubectl, "cm"),
        r#"{"a":"old"}"#,
        "a diff changes nothing"
    );
}

#[test]
fn apply_reports_unknown_fields_with_their_path() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let document = config_map("cm", "a: b").replace(", data:", ", dta: {}, data:");
    let refusal = kubectl.with_input("apply -f -", &document).exits_with(1);
    refusal.complains(r#"unknown field "dta""#);
    let refusal = kubectl
        .with_input("apply --server-side -f -", &document)
        .exits_with(1);
    refusal.complains(".dta: field not declared in schema");
}

#[test]
fn last_applied_can_be_viewed_and_set() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .with_input("apply -f -", &config_map("cm", "a: b"))
        .ok();
    kubectl
        .run("apply view-last-applied configmap/cm -o json")
        .ok()
        .prints(r#""a": "b""#);
    let set = kubectl
        .with_input("apply set-last-applied -f -", &config_map("cm", "a: c"))
        .ok();
    set.prints("configmap/cm configured");
}
