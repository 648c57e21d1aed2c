#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::config::tests::{EVERY_FIELD, every_field};
use crate::config::{Secret, declare::Message};

fn least() -> Configuration {
    crate::config::read(include_bytes!("../../tests/golden/least.json"))
        .unwrap()
        .configuration
}

fn broken(change: impl Fn(&mut Configuration)) -> Vec<(Severity, String)> {
    let mut config = least();
    change(&mut config);
    broken_rules(&config)
        .into_iter()
        .map(|problem| (problem.severity, problem.path))
        .collect()
}

#[test]
fn a_good_configuration_has_no_problem() {
    assert_eq!(
        validate(include_bytes!("../../tests/golden/least.json")),
        []
    );
    let problems = validate(EVERY_FIELD.as_bytes());
    assert!(
        problems
            .iter()
            .all(|problem| problem.rule == "has no effect"),
        "{problems:?}"
    );
}

#[test]
fn upstreams_required_fields_are_all_reported_at_once() {
    assert_eq!(missing_required(&every_field()), Vec::<&str>::new());
    let missing = missing_required(&Configuration::default());
    assert_eq!(missing.len(), 7);
    let problems = broken_rules(&Configuration::default());
    for path in missing {
        let rule = format!("required field {path} is missing");
        assert!(
            problems
                .iter()
                .any(|problem| problem.path == path && problem.rule == rule),
            "{path}"
        );
    }
}

#[test]
fn each_broken_rule_is_found() {
    type Change = fn(&mut Configuration);
    let cases: &[(&str, Change)] = &[
        ("kubernetes_version", |c| {
            c.kubernetes_version = "v1.34.0".into()
        }),
        ("kubernetes_ca_cert", |c| {
            c.kubernetes_ca_cert = "LS0tLS1CRUdJTg==".into()
        }),
        ("custom_ca_certs[0]", |c| c.custom_ca_certs.push("?".into())),
        ("api_server_config.api_server_name", |c| {
            c.api_server_config.api_server_name = "https://a".into()
        }),
        ("auth_config.service_principal_secret", |c| {
            c.auth_config.service_principal_secret = "raw!".into()
        }),
        ("bootstrapping_config.tls_bootstrapping_token", |c| {
            c.bootstrapping_config.tls_bootstrapping_token = Some("ABCDEF.0123456789abcdef".into());
        }),
        ("bootstrapping_config", |c| {
            c.bootstrapping_config.tls_bootstrapping_token = Some(Secret::default())
        }),
        ("http_proxy_config.http_proxy", |c| {
            c.http_proxy_config.http_proxy = "proxy:8080".into()
        }),
        ("custom_linux_os_config.sysctl_config.fs_file_max", |c| {
            c.custom_linux_os_config.sysctl_config.fs_file_max = Some(-1);
        }),
        ("custom_linux_os_config.ulimit_config.no_file", |c| {
            c.custom_linux_os_config.ulimit_config.no_file = Some("1:2:3".into());
        }),
        ("kubelet_config.kubelet_client_key", |c| {
            c.kubelet_config.kubelet_client_cert_content = c.kubernetes_ca_cert.clone();
        }),
        ("local_dns_profile.kube_dns_overrides[\"a b\"]", |c| {
            c.local_dns_profile
                .kube_dns_overrides
                .entry("a b".into())
                .or_default();
        }),
        (
            "kubelet_config.kubelet_config_file_config.eviction_soft",
            |c| {
                let file = &mut c.kubelet_config.kubelet_config_file_config;
                file.eviction_soft
                    .insert("memory.available".into(), "1Gi".into());
            },
        ),
        (
            "kubelet_config.kubelet_config_file_config.kube_reserved[\"cpu\"]",
            |c| {
                let file = &mut c.kubelet_config.kubelet_config_file_config;
                file.kube_reserved.insert("cpu".into(), "a lot".into());
            },
        ),
        (
            "kubelet_config.kubelet_config_file_config.image_gc_low_threshold_percent",
            |c| {
                c.kubelet_config
                    .kubelet_config_file_config
                    .image_gc_low_threshold_percent = Some(90);
            },
        ),
    ];
    for (path, change) in cases {
        assert_eq!(broken(change), [(Severity::Error, (*path).to_owned())]);
    }
}

#[test]
fn an_image_needs_no_credential_and_no_ca() {
    let bake = |c: &mut Configuration| {
        c.pre_provision_only = true;
        c.kubernetes_ca_cert.clear();
        c.bootstrapping_config = Default::default();
    };
    assert_eq!(broken(bake), []);
}

#[test]
fn values_that_are_good_are_let_be() {
    type Change = fn(&mut Configuration);
    let changes: &[Change] = &[
        |c| c.api_server_config.api_server_name = "10.0.0.4".into(),
        |c| c.api_server_config.api_server_name = "a.b:443".into(),
        |c| c.custom_linux_os_config.ulimit_config.no_file = Some("1024:infinity".into()),
        |c| c.custom_linux_os_config.ulimit_config.max_locked_memory = Some("64M".into()),
        |c| c.http_proxy_config.http_proxy = "http://joe:pw@proxy:8080/".into(),
        |c| c.kubelet_config.kubelet_config_file_config.pod_pids_limit = Some(-1),
        |c| {
            c.kubelet_config
                .kubelet_config_file_config
                .cpu_cfs_quota_period = "1h2.5m3ms".into()
        },
        |c| {
            c.local_dns_profile
                .critical_fqdns
                .push(" mcr.microsoft.com ".into())
        },
        |c| c.custom_cloud_config.custom_env_json_content = "eyJhIjoxfQ==".into(),
    ];
    for change in changes {
        assert_eq!(broken(change), []);
    }
}

#[test]
fn no_problem_shows_a_secret() {
    let mut config = every_field();
    let mark = || Secret::from("hunter2 in no format at all");
    config.bootstrapping_config.tls_bootstrapping_token = Some(mark());
    config.auth_config.service_principal_secret = mark();
    config.kubelet_config.kubelet_client_key = mark();
    config.http_proxy_config.http_proxy = mark();
    config.runc_config.runc_package_url = "ftp://joe:hunter2@host/path?sig=hunter2".into();
    let problems = broken_rules(&config);
    assert!(
        problems
            .iter()
            .filter(|problem| problem.value == REDACTED)
            .count()
            >= 4
    );
    assert!(
        problems
            .iter()
            .any(|problem| problem.value == "\"ftp://host/path\"")
    );
    assert!(!format!("{problems:?}").contains("hunter2"));
}

#[test]
fn what_could_not_be_read_is_reported_once() {
    let problems = validate(br#"{"version": "v1", "cluster_config": 5, "kubernetes_version": 1}"#);
    let about = |path: &str| {
        problems
            .iter()
            .filter(|problem| problem.path.starts_with(path))
            .count()
    };
    assert_eq!(
        (about("cluster_config"), about("kubernetes_version")),
        (1, 1)
    );
    assert_eq!(problems[0].place, Some((1, 37)));
    let problems = validate(b"{");
    assert_eq!((problems.len(), problems[0].place), (1, Some((1, 2))));
}

#[test]
fn rows_of_a_default_message_are_those_of_a_full_one() {
    assert_eq!(Configuration::default().rows(), every_field().rows());
}
