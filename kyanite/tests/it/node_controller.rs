//! `kyanite node-controller` and `aks-node-controller`: the same program under two names.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Finished, KYANITE};

const GOOD: &str = include_str!("../../../node/node-controller/tests/golden/least.json");
const BAD: &str = include_str!("../../../node/node-controller/tests/golden/every-rule-broken.json");

fn kyanite(words: &[&str], stdin: &str) -> Finished {
    Finished::run(Command::new(KYANITE).args(words), stdin)
}

/// The binary called by upstream's name.
fn stand_in(words: &[&str], stdin: &str) -> Finished {
    let mut command = Command::new(KYANITE);
    command
        .arg0("/opt/azure/containers/aks-node-controller")
        .args(words);
    Finished::run(&mut command, stdin)
}

fn json(words: &[&str], stdin: &str) -> Value {
    let finished = stand_in(&[&["-o", "json"], words].concat(), stdin);
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn a_configuration_is_validated_under_either_name() {
    let good = kyanite(&["node-controller", "validate", "-"], GOOD);
    assert_eq!(
        (good.code, good.stdout.trim()),
        (Some(0), "nothing is wrong with this configuration")
    );
    let bad = stand_in(&["validate", "-"], BAD);
    assert_eq!(bad.code, Some(1));
    assert!(bad.stdout.contains(
        "error: api_server_config.api_server_name = \"https://cluster\"\n  must be a host"
    ));
    assert!(!bad.stdout.contains("SECRET"));
    let report = json(&["validate", "-"], BAD);
    assert_eq!(report["valid"], false);
    assert_eq!(report["problems"].as_array().unwrap().len() as u64, {
        report["errors"].as_u64().unwrap() + report["warnings"].as_u64().unwrap()
    });
    assert_eq!(
        stand_in(&["validate", "/nowhere/config.json"], "").code,
        Some(3)
    );
}

#[test]
fn codes_are_explained() {
    let told = stand_in(&["explain", "ERR_OUTBOUND_CONN_FAIL"], "");
    assert!(
        told.stdout.starts_with("50 (ERR_OUTBOUND_CONN_FAIL)\n"),
        "{}",
        told.stdout
    );
    assert_eq!(json(&["explain", "124"], "")["name"], Value::Null);
    // No step ends with the one; the other is no code at all.
    for (code, why) in [
        ("66", "no step ends with this code"),
        ("256", "exit codes are 0 to 255"),
    ] {
        let told = stand_in(&["explain", code], "");
        assert_eq!(told.code, Some(3));
        assert!(told.stderr.contains(why), "{}", told.stderr);
    }
    let unknown = stand_in(&["explain", "swap"], "");
    assert_eq!(unknown.code, Some(3));
    assert!(
        unknown.stderr.contains("ERR_SWAP_CREATE_FAIL"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn the_environment_hides_secrets_until_asked() {
    let line = |words: &[&str]| {
        let told = stand_in(&[&["env", "-"], words].concat(), GOOD);
        let token = told
            .stdout
            .lines()
            .find(|line| line.starts_with("TLS_BOOTSTRAP_TOKEN="));
        token.unwrap().to_owned()
    };
    assert_eq!(line(&[]), "TLS_BOOTSTRAP_TOKEN=[redacted]");
    assert_eq!(
        line(&["--show-secrets"]),
        "TLS_BOOTSTRAP_TOKEN=abcdef.0123456789abcdef"
    );
    let told = json(
        &["env", "-", "--containerd-version", "containerd x 2.1.0"],
        GOOD,
    );
    assert_eq!(told["environment"].as_object().unwrap().len(), 164);
    assert_eq!(told["command"][0], "/bin/bash");
}

#[test]
fn custom_data_is_made_for_a_configuration_that_can_be_used() {
    let made = json(&["custom-data", "-"], GOOD);
    assert_eq!(
        made["commandToExecute"],
        "/opt/azure/containers/aks-node-controller provision-wait"
    );
    let text = stand_in(&["custom-data", "-"], GOOD).stdout;
    assert_eq!(text.trim(), made["customData"]);
    let refused = stand_in(&["custom-data", "-"], r#"{"version": "v7"}"#);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("unsupported version: v7"),
        "{}",
        refused.stderr
    );
    assert!(refused.stdout.is_empty());
}

#[test]
fn wrong_usage_ends_as_it_does_upstream() {
    for wrong in [&[][..], &["nonsense"], &["validate", "--nonsense"]] {
        let finished = stand_in(wrong, "");
        assert_eq!(
            (finished.code, finished.stdout.as_str()),
            (Some(1), ""),
            "{wrong:?}"
        );
    }
    assert_eq!(stand_in(&["--help"], "").code, Some(0));
    assert_eq!(kyanite(&["node-controller", "nonsense"], "").code, Some(2));
}
