//! Secrets are encrypted in the store, and their keys can be turned while the server runs.

use std::path::Path;

use crate::harness::{KmsPlugin, Kubectl, ServerOptions, eventually};

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

/// Puts a provider before all others; the file is read again when it changes.
fn put_first(file: &Path, provider: &str) {
    let old = std::fs::read_to_string(file).unwrap();
    let new = old.replacen("providers:\n", &format!("providers:\n  - {provider}\n"), 1);
    assert_ne!(old, new);
    std::fs::write(file, new).unwrap();
}

/// Writes an object as it is until what is on disk holds a word.
fn written_anew(kubectl: &Kubectl, object: &str, word: &str) {
    let home = kubectl.server.home().to_owned();
    eventually(&format!("{object} is written anew, with {word}"), || {
        let same = kubectl.run(&format!("get {object} -o json")).ok().stdout;
        kubectl.with_input("replace -f -", &same).ok();
        holds(&on_disk(&home), word)
    });
}

#[test]
fn a_key_management_service_has_the_key_and_its_absence_concerns_only_what_it_encrypted() {
    let flags = vec!["--controllers="];
    let Some(mut kubectl) = Kubectl::start_with(ServerOptions { flags }) else {
        return;
    };
    let home = kubectl.server.home().to_owned();
    let mut plugin = KmsPlugin::start(home.join("kms.sock"), "first-key");
    let file = home.join("data/pki/encryption.yaml");
    let endpoint = format!("unix://{}", plugin.socket().display());
    kubectl.create(&format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: hidden, labels: {{word: {WORD}}}}}}}"
    ));
    kubectl.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: shown}}");
    put_first(
        &file,
        &format!("kms: {{apiVersion: v2, name: vault, endpoint: '{endpoint}'}}"),
    );
    written_anew(&kubectl, "secret/hidden", "k8s:enc:kms:v2:vault:");
    assert!(holds(&on_disk(&home), "first-key"));
    let ready = kubectl.run("get --raw /readyz?verbose").ok().stdout;
    assert!(ready.contains("[+]kms-providers ok"), "{ready}");

    // Its key changes: what is written from then on is encrypted with the new one, and the old can be read.
    plugin.turn("second-key");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}# looked at again\n")).unwrap();
    eventually("the service was asked for its new key", || {
        plugin.calls("Encrypt") == 2
    });
    written_anew(&kubectl, "secret/hidden", "second-key");

    // The server starts without the service: secrets cannot be had, and everything else can.
    kubectl.server.kill();
    plugin.stop();
    kubectl.server.launch_again();
    eventually("the server answers", || {
        kubectl.run("get configmap shown").code == Some(0)
    });
    let refused = kubectl.run("get secret hidden").exits_with(1).stderr;
    assert!(refused.contains("failed to decrypt DEK"), "{refused}");
    let refused = kubectl.run("get secrets").exits_with(1).stderr;
    assert!(refused.contains("unable to transform key"), "{refused}");
    let refused = kubectl
        .run("create secret generic other")
        .exits_with(1)
        .stderr;
    assert!(refused.contains("KMS provider \"vault\""), "{refused}");
    let ill = kubectl.run("get --raw /readyz?verbose").exits_with(1);
    let said = format!("{}{}", ill.stdout, ill.stderr);
    assert!(said.contains("[-]kms-providers failed"), "{said}");

    // It comes back: the same server finds what it could not read.
    plugin.start_again();
    eventually("the server is ready", || {
        kubectl.run("get --raw /readyz").code == Some(0)
    });
    eventually("secrets can be listed", || {
        let listed = kubectl.run("get secrets -o name");
        listed.code == Some(0) && listed.stdout.contains("secret/hidden")
    });
    assert_eq!(
        kubectl.field("secret/hidden", ".metadata.labels.word"),
        WORD
    );
    kubectl.run("create secret generic other").ok();
    let page = kubectl.run("get --raw /metrics").ok().stdout;
    for line in [
        "apiserver_storage_transformation_operations_total{resource=\"secrets\",transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:kms:v2:vault:\",status=\"OK\"}",
        "apiserver_envelope_encryption_key_id_hash_total{transformation_type=\"to_storage\",provider_name=\"vault\",key_id_hash=\"sha256:",
        "method_name=\"/v2.KeyManagementService/Decrypt\",grpc_status_code=\"OK\"",
    ] {
        assert!(page.contains(line), "{line}");
    }
}
