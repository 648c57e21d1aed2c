#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::config::read;
use crate::config::tests::{EVERY_FIELD, every_field};

fn opened(config: &Configuration, form: Form) -> String {
    let data = custom_data(config, form).unwrap();
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

/// The configuration in the lines after the one that contains `mark`.
fn carried(text: &str, mark: &str) -> Configuration {
    let mut lines = text.lines().skip_while(|line| !line.contains(mark)).skip(1);
    let json = STANDARD.decode(lines.next().unwrap().trim()).unwrap();
    read(&json).unwrap().configuration
}

#[test]
fn every_form_carries_the_whole_configuration() {
    let config = every_field();
    let boothook = opened(&config, Form::Boothook);
    assert_eq!(carried(&boothook, "base64 -d"), config);
    assert_eq!(
        carried(&opened(&config, Form::WriteFiles), "!!binary"),
        config
    );
    let ignition: serde_json::Value =
        serde_json::from_str(&opened(&config, Form::Ignition)).unwrap();
    let file = &ignition["storage"]["files"][0];
    assert_eq!(
        (file["path"].as_str(), file["mode"].as_u64()),
        (Some(CONFIG_PATH), Some(384))
    );
    assert_eq!(ignition["ignition"]["version"], "3.4.0");
    let source = file["contents"]["source"].as_str().unwrap();
    let json = STANDARD
        .decode(source.strip_prefix("data:;base64,").unwrap())
        .unwrap();
    assert_eq!(read(&json).unwrap().configuration, config);
}

#[test]
fn the_boothook_is_the_first_of_two_parts() {
    let text = opened(&every_field(), Form::Boothook);
    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    let boundary = head.split('"').nth(1).unwrap();
    assert_eq!(
        head,
        format!("MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"{boundary}\"")
    );
    let parts: Vec<_> = rest.split(&format!("--{boundary}")).collect();
    assert_eq!((parts[0], parts[3]), ("", "--\r\n"));
    for (part, kind, start) in [
        (
            parts[1],
            "text/cloud-boothook",
            "#cloud-boothook\n#!/bin/bash\nset -euo pipefail\n",
        ),
        (parts[2], "text/cloud-config", "#cloud-config\nruncmd:\n"),
    ] {
        let head = format!(
            "\r\nContent-Transfer-Encoding: 7bit\r\nContent-Type: {kind}\r\nMime-Version: 1.0\r\n\r\n{start}"
        );
        assert!(
            part.starts_with(&head) && part.ends_with("\n\r\n"),
            "{part}"
        );
    }
}

#[test]
fn the_same_configuration_gives_the_same_text() {
    let mut config = every_field();
    let first = custom_data(&config, Form::Boothook).unwrap();
    assert_eq!(custom_data(&config, Form::Boothook).unwrap(), first);
    config.vm_size.push('x');
    assert_ne!(custom_data(&config, Form::Boothook).unwrap(), first);
}

#[test]
fn features_are_filtered_and_leave_no_trace_when_there_are_none() {
    let mut config = every_field();
    config.enabled_features.clear();
    let plain = opened(&config, Form::Boothook);
    assert!(!plain.contains(FEATURES_PATH));
    for (key, value) in [
        ("1x", "y"),
        ("a-b", "y"),
        ("", "y"),
        ("A", "two\nlines"),
        ("B", "cr\r"),
    ] {
        config.enabled_features.insert(key.into(), value.into());
    }
    assert_eq!(features(&config), "");
    for (key, value) in [("_z", ""), ("Z9", "a b=c")] {
        config.enabled_features.insert(key.into(), value.into());
    }
    assert_eq!(features(&config), "Z9=a b=c\n_z=\n");
    let script = opened(&config, Form::Boothook);
    let written = script.find(FEATURES_PATH).unwrap();
    assert!(written < script.find("aks-node-controller-launcher.sh").unwrap());
}

#[test]
fn bash_takes_the_boothook_and_it_leaves_private_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let mut config = every_field();
    config.enabled_features.insert("B".into(), "it's".into());
    let script = boothook(&marshal(&config), &features(&config));
    // The script as it is, but for where it writes, and without a log or a service to start.
    let script = script
        .replace("/opt/azure", root.path().to_str().unwrap())
        .replace("/var/log/azure", root.path().join("log").to_str().unwrap())
        .replace("systemctl", "true")
        .replace("logger", "true");
    let ran = std::process::Command::new("bash")
        .arg("-c")
        .arg(script)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let containers = root.path().join("containers");
    let path = containers.join("aks-node-controller-config.json");
    assert_eq!(
        read(&std::fs::read(&path).unwrap()).unwrap().configuration,
        config
    );
    let features = containers.join("enabled_features.sh");
    assert_eq!(std::fs::read_to_string(&features).unwrap(), "A=b\nB=it's\n");
    for file in [path, features] {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn what_the_service_would_not_take_is_refused() {
    let mut config = every_field();
    config.message_of_the_day = "x".repeat(60_000);
    let error = custom_data(&config, Form::Boothook).unwrap_err();
    assert!(error.size > LARGEST);
    assert!(error.to_string().contains("87380"), "{error}");
    assert!(EVERY_FIELD.len() < LARGEST);
}
