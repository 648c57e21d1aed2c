#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Map, Value as Tree, json};

use super::*;
use crate::config::declare::Row;
use crate::config::encode::{NODE_CONFIG, encode};
use crate::config::lookup::lookup;
use crate::config::tests::{EVERY_FIELD, EVERY_ROW};
use crate::config::{Configuration, NetworkPlugin, VmType};

fn read(text: &str) -> (Configuration, Findings) {
    let mut config = Configuration::default();
    let findings = decode(text.as_bytes(), &mut config);
    (config, findings)
}

fn accepted(text: &str) -> Configuration {
    let (config, findings) = read(text);
    assert_eq!(findings, Findings::default(), "{text}");
    config
}

#[test]
fn both_spellings_of_every_field_are_read() {
    let full: Tree = serde_json::from_str(EVERY_FIELD).unwrap();
    let camel = respelled(&full, &mut |_| true);
    assert_ne!(full, camel);
    assert_eq!(accepted(&camel.to_string()), accepted(EVERY_FIELD));
}

#[test]
fn mechanical_names_of_overridden_fields_are_unknown() {
    let file = |field: &str| {
        format!(r#"{{"kubeletConfig": {{"kubeletConfigFileConfig": {{"{field}": true}}}}}}"#)
    };
    let (config, findings) = read(&file("serverTlsBootstrap"));
    assert!(
        !config
            .kubelet_config
            .kubelet_config_file_config
            .server_tls_bootstrap
    );
    assert_eq!(findings.notices.len(), 1);
    assert!(
        accepted(&file("serverTLSBootstrap"))
            .kubelet_config
            .kubelet_config_file_config
            .server_tls_bootstrap
    );
    for ttl in ["cache_ttl", "cacheTtl", "cacheTTL"] {
        let text = format!(
            r#"{{"kubelet_config": {{"kubelet_config_file_config": {{"authentication": {{"webhook": {{"{ttl}": "1m"}}}}}}}}}}"#
        );
        let file = &accepted(&text).kubelet_config.kubelet_config_file_config;
        assert_eq!(file.authentication.webhook.cache_ttl, "1m", "{ttl}");
    }
}

#[test]
fn whole_numbers_are_read_in_every_notation() {
    let good = [
        ("5", 5),
        ("-5", -5),
        ("-0", 0),
        ("0.0", 0),
        ("0e99", 0),
        ("1e3", 1000),
        ("1.50e1", 15),
        ("150e-1", 15),
        ("\"1e3\"", 1000),
        ("\"-2147483648\"", i32::MIN),
        ("2147483647.000", i32::MAX),
    ];
    for (text, number) in good {
        let config = accepted(&format!(r#"{{"cse_timeout": {text}}}"#));
        assert_eq!(config.cse_timeout, Some(number), "{text}");
    }
    let bad = [
        "1.5",
        "15e-1",
        "2147483648",
        "-2147483649",
        "1e10",
        "1e400",
        "1e99999999999999999999",
        "\" 5\"",
        "\"5 \"",
        "\"\"",
        "\"01\"",
        "\"+5\"",
        "\"five\"",
        "true",
        "[]",
        "{}",
    ];
    for text in bad {
        let (config, findings) = read(&format!(r#"{{"cse_timeout": {text}, "version": "v1"}}"#));
        assert_eq!(findings.errors.len(), 1, "{text}");
        assert_eq!(
            (findings.errors[0].line, findings.errors[0].column),
            (1, 17),
            "{text}"
        );
        assert_eq!(config.version, "v1", "what follows is still read");
    }
}

#[test]
fn doubles_are_read_with_their_names() {
    let jitter = |text: &str| {
        let text = format!(
            r#"{{"cluster_config": {{"cloud_provider_config": {{"backoff_jitter": {text}}}}}}}"#
        );
        let (config, findings) = read(&text);
        findings.errors.is_empty().then(|| {
            config
                .cluster_config
                .cloud_provider_config
                .backoff_jitter
                .unwrap()
        })
    };
    assert!(jitter("\"NaN\"").unwrap().is_nan());
    assert_eq!(jitter("\"-Infinity\""), Some(f64::NEG_INFINITY));
    assert_eq!(jitter("\"2.5\""), Some(2.5));
    assert_eq!(jitter("1e-7"), Some(1e-7));
    for bad in ["1e400", "\"inf\"", "\" 1\"", "true", "\"\""] {
        assert_eq!(jitter(bad), None, "{bad}");
    }
}

#[test]
fn enums_are_read_by_name_and_number_and_unknown_names_left_out() {
    let (config, findings) = read(
        r#"{"cluster_config": {"vm_type": "VM_TYPE_VMSS"},
            "network_config": {"network_plugin": 99, "network_policy": "NETWORK_POLICY_NEW"}}"#,
    );
    assert_eq!(config.cluster_config.vm_type, VmType::Vmss);
    assert_eq!(
        config.network_config.network_plugin,
        NetworkPlugin::Unknown(99)
    );
    assert!(!lookup(&config, "network_config.network_policy")[0].is_set);
    assert_eq!(findings.errors, []);
    let notice = &findings.notices[0];
    assert_eq!(
        (notice.line, notice.column, notice.path.as_str()),
        (2, 72, "network_config.network_policy")
    );
    for bad in ["1.5", "true", "[]"] {
        let (_, findings) = read(&format!(r#"{{"workload_runtime": {bad}}}"#));
        assert_eq!(findings.errors.len(), 1, "{bad}");
    }
}

#[test]
fn a_field_or_key_given_twice_is_an_error_an_unknown_one_is_not() {
    for twice in [
        r#"{"vm_size": "a", "vmSize": "b"}"#,
        r#"{"vm_size": "a", "vm_size": null}"#,
        r#"{"vm_size": null, "vm_size": "a"}"#,
        r#"{"enabled_features": {"A": "1", "A": "2"}}"#,
    ] {
        assert_eq!(read(twice).1.errors.len(), 1, "{twice}");
    }
    let (_, findings) = read(r#"{"unknown": 1, "unknown": 2}"#);
    assert_eq!((findings.errors.len(), findings.notices.len()), (0, 2));
}

#[test]
fn null_is_nothing_for_a_field_and_wrong_for_an_item() {
    assert_eq!(
        accepted(r#"{"is_vhd": null, "kubelet_config": null, "vm_size": null}"#),
        Configuration::default()
    );
    for bad in [
        r#"{"custom_ca_certs": [null]}"#,
        r#"{"enabled_features": {"A": null}}"#,
    ] {
        assert_eq!(read(bad).1.errors.len(), 1, "{bad}");
    }
}

#[test]
fn presence_is_kept() {
    let config = accepted(
        r#"{"is_vhd": false, "kubelet_config": {}, "custom_linux_os_config": {"ulimit_config": {}}}"#,
    );
    assert_eq!((config.is_vhd, config.enable_ssh), (Some(false), None));
    assert!(config.kubelet_config.is_present());
    assert!(
        !config
            .kubelet_config
            .kubelet_config_file_config
            .is_present()
    );
    assert!(config.custom_linux_os_config.ulimit_config.is_present());
}

#[test]
fn a_value_that_does_not_fit_is_never_shown() {
    for text in [
        r#"{"auth_config": {"service_principal_secret": ["hunter2"]}}"#,
        r#"{"bootstrapping_config": {"tls_bootstrapping_token": {"a": "hunter2"}}}"#,
        r#"{"cse_timeout": "hunter2"}"#,
    ] {
        let (config, findings) = read(text);
        assert_eq!(findings.errors.len(), 1);
        assert!(!format!("{findings:?} {config:?}").contains("hunter2"));
    }
}

/// `tree` with the names of fields in their JSON spelling where `pick` says so.
fn respelled(tree: &Tree, pick: &mut dyn FnMut(&Row) -> bool) -> Tree {
    match tree {
        Tree::Object(entries) => {
            let renamed = entries.iter().map(|(key, value)| {
                let row = EVERY_ROW.iter().find(|row| row.name == key);
                let key = match row {
                    Some(row) if pick(row) => row.json_name(),
                    _ => key.clone(),
                };
                (key, respelled(value, pick))
            });
            Tree::Object(renamed.collect())
        }
        other => other.clone(),
    }
}

/// A choice for every step of a walk, repeated when they run out.
struct Dice(Vec<u8>, usize);

impl Dice {
    fn one_in(&mut self, sides: u8) -> bool {
        self.1 += 1;
        self.0[self.1 % self.0.len()].is_multiple_of(sides)
    }
}

/// A part of `tree`, by chance.
fn thinned(tree: &Tree, dice: &mut Dice) -> Tree {
    let Tree::Object(entries) = tree else {
        return tree.clone();
    };
    let kept: Vec<_> = entries.iter().filter(|_| !dice.one_in(3)).collect();
    Tree::Object(
        kept.into_iter()
            .map(|(key, value)| (key.clone(), thinned(value, dice)))
            .collect(),
    )
}

fn is_field(name: &str) -> bool {
    EVERY_ROW.iter().any(|row| row.name == name)
}

/// The same configuration in other words: numbers in quotes, nulls and unknown fields between. Maps, whose keys
/// are anybody's, and what may be one, stay as they are. Counts the unknown fields.
fn reworded(tree: &Tree, dice: &mut Dice, unknown: &mut usize) -> Tree {
    match tree {
        Tree::Number(number) if dice.one_in(2) => json!(number.to_string()),
        Tree::Object(entries) if !entries.is_empty() && entries.keys().all(|key| is_field(key)) => {
            let mut out = Map::new();
            for (key, value) in entries {
                out.insert(key.clone(), reworded(value, dice, unknown));
            }
            if dice.one_in(3) {
                *unknown += 1;
                out.insert(
                    "a_field_of_tomorrow".into(),
                    json!({"a": [1, null, {"b": 1e300}]}),
                );
            }
            Tree::Object(out)
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn other_words_for_the_same_configuration_mean_the_same(dice in proptest::collection::vec(any::<u8>(), 1..400)) {
        let full: Tree = serde_json::from_str(EVERY_FIELD).unwrap();
        let mut dice = Dice(dice, 0);
        let plain = thinned(&full, &mut dice);
        let mut unknown = 0;
        let other = reworded(&plain, &mut dice, &mut unknown);
        let other = respelled(&other, &mut |_| dice.one_in(2));
        let (expected, findings) = read(&plain.to_string());
        prop_assert_eq!(findings, Findings::default());
        let (config, findings) = read(&format!("{other:#}"));
        prop_assert_eq!(&config, &expected);
        prop_assert_eq!((findings.errors.len(), findings.notices.len()), (0, unknown));
        prop_assert_eq!(&accepted(&encode(&config, NODE_CONFIG)), &config);
    }

    #[test]
    fn a_text_that_breaks_off_is_refused_at_its_end(cut in 1..EVERY_FIELD.trim_end().len()) {
        prop_assume!(EVERY_FIELD.is_char_boundary(cut));
        let (_, findings) = read(&EVERY_FIELD[..cut]);
        prop_assert_eq!(findings.errors.len(), 1);
        prop_assert_eq!(&findings.errors[0].path, "");
    }

    #[test]
    fn no_text_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,200}") {
        let mut config = Configuration::default();
        let _ = decode(&bytes, &mut config);
        let _ = decode(text.as_bytes(), &mut config);
    }

    #[test]
    fn a_changed_byte_is_read_or_refused_with_a_place(at in 0..EVERY_FIELD.len(), byte in any::<u8>()) {
        let mut bytes = EVERY_FIELD.as_bytes().to_vec();
        bytes[at] = byte;
        let mut config = Configuration::default();
        let lines = 1 + bytes.iter().filter(|byte| **byte == b'\n').count();
        for error in decode(&bytes, &mut config).errors {
            prop_assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
        }
    }
}
