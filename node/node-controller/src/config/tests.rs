#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::LazyLock;

use super::declare::{Message, Row, View};
use super::*;
use crate::config::encode::{KUBELET_FILE, NODE_CONFIG, encode};

/// A valid configuration with every field set.
pub(crate) const EVERY_FIELD: &str = include_str!("../../tests/golden/every-field.json");

/// [`EVERY_FIELD`], read.
pub(crate) fn every_field() -> Configuration {
    read(EVERY_FIELD.as_bytes()).unwrap().configuration
}

/// The same with this word as every secret.
pub(crate) fn every_secret(word: &str) -> Configuration {
    let mut config = every_field();
    let mark = || Secret::from(word);
    config.bootstrapping_config.tls_bootstrapping_token = Some(mark());
    config.auth_config.service_principal_secret = mark();
    config.custom_search_domain_config.realm_password = mark();
    config.kubelet_config.kubelet_client_key = mark();
    config.http_proxy_config.http_proxy = mark();
    config.http_proxy_config.https_proxy = mark();
    config
}

/// Every row of every message.
pub(crate) static EVERY_ROW: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    visit(&every_field(), &mut |message| rows.extend(message.rows()));
    rows
});

fn visit(message: &dyn Message, see: &mut dyn FnMut(&dyn Message)) {
    see(message);
    for row in message.rows() {
        match message.value(row.name).unwrap().view() {
            View::Message(inner) => visit(inner, see),
            View::Map(entries) => {
                for (_, view) in entries {
                    if let View::Message(inner) = view {
                        visit(inner, see);
                    }
                }
            }
            _ => {}
        }
    }
}

#[test]
fn the_full_configuration_sets_every_field_of_every_message() {
    let mut set = std::collections::BTreeSet::new();
    let mut all = std::collections::BTreeSet::new();
    visit(&every_field(), &mut |message| {
        let name = format!("{:?}", message.rows().first());
        for row in message.rows() {
            all.insert((name.clone(), row.name));
            if message.value(row.name).unwrap().is_set() {
                set.insert((name.clone(), row.name));
            }
        }
    });
    let unset: Vec<_> = all.difference(&set).map(|(_, field)| *field).collect();
    assert_eq!(unset, Vec::<&str>::new());
}

#[test]
fn numbers_and_names_stand_once_in_a_message() {
    visit(&every_field(), &mut |message| {
        for (index, row) in message.rows().iter().enumerate() {
            for other in &message.rows()[..index] {
                assert!(
                    row.number != other.number && !row.is_spelled(other.name),
                    "{row:?} {other:?}"
                );
                assert_ne!(row.json_name(), other.json_name());
            }
        }
    });
}

#[test]
fn names_in_json_are_mechanical_or_declared() {
    let name = |field: &str| {
        EVERY_ROW
            .iter()
            .find(|row| row.name == field)
            .unwrap()
            .json_name()
    };
    assert_eq!(
        name("net_ipv4_neigh_default_gc_thresh1"),
        "netIpv4NeighDefaultGcThresh1"
    );
    assert_eq!(
        name("net_ipv4_tcpkeepalive_intvl"),
        "netIpv4TcpkeepaliveIntvl"
    );
    assert_eq!(
        name("image_gc_high_threshold_percent"),
        "imageGCHighThresholdPercent"
    );
    assert_eq!(name("x509"), "x509");
}

#[test]
fn versions_decide_first() {
    let version = |text: &str| read(text.as_bytes());
    assert_eq!(version(r#"{"version": "v1"}"#).unwrap().notices, []);
    assert_eq!(
        version(r#"{"version": "v0"}"#).unwrap().notices,
        [Notice::Deprecated]
    );
    for (text, shown) in [
        (r#"{"version": "v2"}"#, "v2"),
        ("{}", ""),
        (r#"{"version": null}"#, ""),
    ] {
        let error = version(text).unwrap_err();
        assert_eq!(error.to_string(), format!("unsupported version: {shown}"));
    }
}

#[test]
fn half_a_configuration_is_none() {
    let error = read(b"{\"version\": \"v1\", invalid}")
        .unwrap_err()
        .to_string();
    let expected = "the node configuration cannot be read: line 1, column 19: `i` where a name in double quotes belongs";
    assert_eq!(error, expected);
    assert!(matches!(read(b""), Err(Unusable::Unreadable(errors)) if errors.len() == 1));
    assert!(matches!(
        read(br#"{"version": "v1", "is_kata": "true"}"#),
        Err(Unusable::Unreadable(_))
    ));
}

#[test]
fn what_is_written_is_what_was_read() {
    let config = every_field();
    let text = encode(&config, NODE_CONFIG);
    assert_eq!(read(text.as_bytes()).unwrap().configuration, config);
    let expected: serde_json::Value = serde_json::from_str(EVERY_FIELD).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written, expected);
    assert_eq!(encode(&Configuration::default(), NODE_CONFIG), "{}");
}

#[test]
fn presence_and_order_are_written() {
    let mut config = Configuration {
        version: "v1".into(),
        is_vhd: Some(false),
        ..Default::default()
    };
    config.kubelet_config.enable_kubelet_config_file = false;
    config.cluster_config.cloud_provider_config.backoff_jitter = Some(1e21);
    let text = "{\n  \"version\": \"v1\",\n  \"cluster_config\": {\n    \"cloud_provider_config\": {\n      \
                \"backoff_jitter\": 1e+21\n    }\n  },\n  \"kubelet_config\": {},\n  \"is_vhd\": false\n}";
    assert_eq!(encode(&config, NODE_CONFIG), text);
}

#[test]
fn the_kubelets_file_is_safe_to_embed() {
    let mut file = KubeletConfigFileConfig {
        kind: "<a>&\u{2028}\n\u{1}\"é".into(),
        ..Default::default()
    };
    file.authentication.anonymous.enabled = false;
    file.feature_gates.insert("B".into(), false);
    file.feature_gates.insert("A".into(), true);
    let text = "{\n    \"kind\": \"\\u003ca\\u003e\\u0026\\u2028\\n\\u0001\\\"é\",\n    \"authentication\": {\n        \
                \"anonymous\": {}\n    },\n    \"featureGates\": {\n        \"A\": true,\n        \"B\": false\n    }\n}";
    assert_eq!(encode(&file, KUBELET_FILE), text);
}

#[test]
fn secrets_are_never_printed() {
    let config = every_secret("hunter2");
    assert!(!format!("{config:?} {config:#?}").contains("hunter2"));
    assert!(format!("{config:?}").contains(REDACTED));
}

#[test]
fn recorded_configurations_are_read() {
    let Some(directory) = fixtures() else { return };
    for (name, notices) in [("", 0), ("_fields_missing", 0), ("_fields_unexpected", 2)] {
        let text = std::fs::read(directory.join(format!("test_aksnodeconfig{name}.json"))).unwrap();
        let accepted = read(&text).unwrap();
        let config = accepted.configuration;
        assert_eq!(accepted.notices.len(), notices, "{name}");
        assert_eq!(
            config.bootstrapping_config.bootstrapping_auth_method,
            BootstrappingAuthMethod::BootstrapToken
        );
        assert_eq!(config.cluster_config.vm_type, VmType::Vmss);
        assert_eq!(
            config
                .cluster_config
                .load_balancer_config
                .max_load_balancer_rule_count,
            Some(250)
        );
        assert_eq!(config.enable_ssh, Some(true));
        assert_eq!(config.is_vhd, (name != "_fields_missing").then_some(true));
    }
}

/// What was recorded from the real system, where this machine has it.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn fixtures() -> Option<std::path::PathBuf> {
    let directory = std::env::var_os("KYANITE_FIXTURES").map(std::path::PathBuf::from);
    let directory = directory.map(|fixtures| fixtures.join("aks-node-controller"));
    let found = directory.filter(|directory| directory.is_dir());
    if found.is_none() {
        eprintln!("SKIPPED: no recorded node configurations; set KYANITE_FIXTURES");
    }
    found
}
