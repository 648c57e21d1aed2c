#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use super::*;
use crate::codes;

#[test]
fn every_need_is_a_step_and_every_code_is_known() {
    let names: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
    for row in TABLE {
        for need in row.after {
            assert!(
                names.contains(need),
                "{} needs {need}, which is no step",
                row.name
            );
        }
        assert!(
            codes::all().any(|code| code.number == row.code),
            "{}: {}",
            row.name,
            row.code
        );
        let (retry, deadline) = (row.retry, row.deadline);
        assert!(
            retry.attempts > 0 && retry.attempt <= deadline,
            "{}: {retry:?}",
            row.name
        );
    }
}

/// Rows of the same name are for different configurations.
#[test]
fn no_configuration_has_a_step_twice() {
    let servers = ["", "10.0.0.1", "c.azmk8s.io", "c.privatelink.azmk8s.io"];
    for (server, bits) in servers
        .into_iter()
        .flat_map(|s| (0..16).map(move |bits: u32| (s, bits)))
    {
        let bit = |n: u32| bits & (1 << n) != 0;
        let mut config = Configuration {
            enable_hosts_config_agent: bit(0),
            ..Configuration::default()
        };
        config.api_server_config.api_server_name = server.to_owned();
        config.imds_restriction_config.enable_imds_restriction = bit(1);
        config
            .imds_restriction_config
            .insert_imds_restriction_rule_to_mangle_table = bit(2);
        config.pre_provision_only = bit(3);
        let mut seen = BTreeSet::new();
        for step in steps(&config) {
            assert!(
                seen.insert(step.name),
                "{server} {bits:04b}: {} is there twice",
                step.name
            );
        }
    }
}

#[test]
fn baking_an_image_joins_no_cluster() {
    let config = Configuration {
        pre_provision_only: true,
        ..Configuration::default()
    };
    let names: Vec<&str> = steps(&config).iter().map(|step| step.name).collect();
    assert!(names.contains(&"ensureContainerd"));
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("ensureKubelet") && !name.contains("Cgroup"))
    );
    assert!(!names.contains(&"configureAzureJson") && !names.contains(&"ensureKubeCACert"));
}
