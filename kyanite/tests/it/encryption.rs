//! Secrets are encrypted in the store, and their keys can be turned while the server runs.

use std::path::Path;

use crate::harness::{Kubectl, ServerOptions, eventually};

const WORD: &str = "open-sesame";

/// Everything that is on disk of the store.
fn on_disk(home: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(home.join("data/store"))
        .unwrap()
        .flatten()
    {
        all.extend(std::fs::read(entry.path()).unwrap_or_default());
    }
    all
}

fn holds(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|w| w == needle.as_bytes())
}

#[test]
fn secrets_are_not_readable_on_disk_and_survive_a_restart() {
    let flags = vec!["--controllers="];
    let Some(mut kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    // Text, not base64, so that it would be found.
    kubectl
        .create(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: hidden, labels: {{word: {WORD}}}}}, stringData: {{a: b}}}}"
        ));
    kubectl
        .create("{apiVersion: v1, kind: ConfigMap, metadata: {name: shown, labels: {word: plainly-readable}}}");
    let home = kubectl.server.home().to_owned();
    let disk = on_disk(&home);
    assert!(
        holds(&disk, "plainly-readable"),
        "the store is where it is looked for"
    );
    assert!(!holds(&disk, WORD));
    assert!(holds(&disk, "k8s:enc:secretbox:v1:key1:"));
    kubectl.server.kill();
    kubectl.server.start_again();
    assert_eq!(
        kubectl.field("secret/hidden", ".metadata.labels.word"),
        WORD
    );
    // A new key takes the first place; a file that makes no sense changes nothing.
    let file = home.join("data/pki/encryption.yaml");
    let old = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "nonsense").unwrap();
    kubectl.run("label secret hidden still=written").ok();
    let secret = "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=";
    let turned = old.replace(
        "providers:\n",
        &format!("providers:\n  - aesgcm: {{keys: [{{name: key2, secret: {secret}}}]}}\n"),
    );
    std::fs::write(&file, turned).unwrap();
    eventually("the same secret is written anew with the new key", || {
        let same = kubectl.run("get secret hidden -o json").ok().stdout;
        kubectl.with_input("replace -f -", &same).ok();
        holds(&on_disk(&home), "k8s:enc:aesgcm:v1:key2:")
    });
    assert_eq!(
        kubectl.field("secret/hidden", ".metadata.labels.still"),
        "written"
    );
}
