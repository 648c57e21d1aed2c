//! Objects that were stored otherwise are written anew when a StorageVersionMigration asks for it.

use std::path::Path;

use crate::harness::{Kubectl, ServerOptions, eventually};

fn holds(home: &Path, needle: &str) -> bool {
    let entries = std::fs::read_dir(home.join("data/store")).unwrap();
    let files = entries
        .flatten()
        .map(|e| std::fs::read(e.path()).unwrap_or_default());
    files
        .flatten()
        .collect::<Vec<u8>>()
        .windows(needle.len())
        .any(|w| w == needle.as_bytes())
}

fn migrate(kubectl: &Kubectl, name: &str, resource: &str, group: &str) {
    kubectl.create(&format!(
        "{{apiVersion: storagemigration.k8s.io/v1beta1, kind: StorageVersionMigration, metadata: {{name: {name}}}, \
         spec: {{resource: {{resource: {resource}, group: \"{group}\"}}}}}}"
    ));
    kubectl
        .run(&format!(
            "wait --for=condition=Succeeded --timeout=60s storageversionmigration/{name}"
        ))
        .ok();
    assert!(
        !kubectl
            .field(
                &format!("storageversionmigration/{name}"),
                ".status.resourceVersion"
            )
            .is_empty()
    );
}

#[test]
fn secrets_are_written_with_the_new_key_and_nothing_else_about_them_changes() {
    let flags = vec!["--controllers="];
    let Some(kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    let home = kubectl.server.home().to_owned();
    for n in 0..20 {
        kubectl.create(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: s{n}}}, stringData: {{a: b}}}}"
        ));
    }
    let before = kubectl.field("secret/s7", ".metadata.resourceVersion");
    let file = home.join("data/pki/encryption.yaml");
    let old = std::fs::read_to_string(&file).unwrap();
    let secret = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=";
    let first = format!("providers:\n  - aesgcm: {{keys: [{{name: key2, secret: {secret}}}]}}\n");
    std::fs::write(&file, old.replace("providers:\n", &first)).unwrap();
    eventually("the new key is in force", || {
        kubectl.run("delete secret probe --ignore-not-found").ok();
        kubectl.create("{apiVersion: v1, kind: Secret, metadata: {name: probe}}");
        holds(&home, "k8s:enc:aesgcm:v1:key2:")
    });
    migrate(&kubectl, "keys", "secrets", "");
    assert_ne!(
        kubectl.field("secret/s7", ".metadata.resourceVersion"),
        before
    );
    assert_eq!(kubectl.field("secret/s7", ".data.a"), "Yg==");
    let after = kubectl.field("secret/s7", ".metadata.resourceVersion");
    // Whoever has the new key already is left alone; the old key can go.
    migrate(&kubectl, "again", "secrets", "");
    assert_eq!(
        kubectl.field("secret/s7", ".metadata.resourceVersion"),
        after
    );
    kubectl
        .args(&[
            "patch",
            "storageversionmigration",
            "keys",
            "--type=merge",
            r#"-p={"spec":{"resource":{"resource":"pods"}}}"#,
        ])
        .exits_with(1)
        .complains("field is immutable");
}

#[test]
fn a_definitions_older_versions_are_forgotten_when_nothing_is_stored_in_them() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let definition = |storage: &str| {
        let version = |name: &str| {
            let stored = name == storage;
            format!(
                "{{name: {name}, served: true, storage: {stored}, schema: {{openAPIV3Schema: {{type: object, \
                 properties: {{spec: {{type: object, properties: {{a: {{type: string}}}}}}}}}}}}}}"
            )
        };
        format!(
            "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: boxes.example.com}}, \
             spec: {{group: example.com, scope: Namespaced, names: {{plural: boxes, singular: box, kind: Box}}, \
             versions: [{}, {}]}}}}",
            version("v1"),
            version("v2")
        )
    };
    kubectl.with_input("apply -f -", &definition("v1")).ok();
    kubectl
        .run("wait --for=condition=Established --timeout=30s crd/boxes.example.com")
        .ok();
    kubectl.create("{apiVersion: example.com/v1, kind: Box, metadata: {name: one}, spec: {a: b}}");
    kubectl.with_input("apply -f -", &definition("v2")).ok();
    assert_eq!(
        kubectl.field("crd/boxes.example.com", ".status.storedVersions[*]"),
        "v1 v2"
    );
    let version = || kubectl.field("boxes.v2.example.com/one", ".metadata.resourceVersion");
    let before = version();
    migrate(&kubectl, "boxes", "boxes", "example.com");
    assert_ne!(version(), before, "it was written anew");
    eventually("only the storage version is left", || {
        kubectl.field("crd/boxes.example.com", ".status.storedVersions[*]") == "v2"
    });
    // What is stored as it should be is not written again.
    let before = version();
    let same = kubectl
        .run("get boxes.v2.example.com one -o json")
        .ok()
        .stdout;
    kubectl.with_input("replace -f -", &same).ok();
    assert_eq!(version(), before);
    kubectl.create(
        "{apiVersion: storagemigration.k8s.io/v1beta1, kind: StorageVersionMigration, metadata: {name: reviews}, \
         spec: {resource: {resource: tokenreviews, group: authentication.k8s.io}}}",
    );
    kubectl
        .run("wait --for=condition=Failed --timeout=60s storageversionmigration/reviews")
        .ok();
    let said = kubectl.field(
        "storageversionmigration/reviews",
        ".status.conditions[?(@.type==\"Failed\")].message",
    );
    assert!(
        said.contains("does not support discovery operations"),
        "{said}"
    );
}
