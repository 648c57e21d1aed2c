//! What fields must be together.

use super::{Problem, Severity, shown};
use crate::config::lookup::lookup;
use crate::config::predicates::is_custom_cloud;
use crate::config::{BootstrappingAuthMethod, Configuration};
use crate::version;

/// A rule for several fields: where to point, the rule, what to do; and whether it is broken.
struct Rule {
    severity: Severity,
    path: &'static str,
    rule: &'static str,
    remedy: &'static str,
    is_broken: fn(&Configuration) -> bool,
}

const fn error(
    path: &'static str,
    rule: &'static str,
    remedy: &'static str,
    is_broken: fn(&Configuration) -> bool,
) -> Rule {
    let severity = Severity::Error;
    Rule {
        severity,
        path,
        rule,
        remedy,
        is_broken,
    }
}

const fn warning(
    path: &'static str,
    rule: &'static str,
    remedy: &'static str,
    is_broken: fn(&Configuration) -> bool,
) -> Rule {
    Rule {
        severity: Severity::Warning,
        ..error(path, rule, remedy, is_broken)
    }
}

const RULES: &[Rule] = &[
    error(
        "bootstrapping_config",
        "the kubelet needs a token, secure TLS bootstrapping, or a client certificate with its key",
        "set bootstrapping_config.tls_bootstrapping_token (`kyanite token create`)",
        |c| !c.pre_provision_only && !has_credential(c),
    ),
    error(
        "bootstrapping_config.bootstrapping_auth_method",
        "this way of bootstrapping is not there on any node yet",
        "use BOOTSTRAPPING_AUTH_METHOD_BOOTSTRAP_TOKEN or BOOTSTRAPPING_AUTH_METHOD_SECURE_TLS_BOOTSTRAPPING",
        |c| {
            let method = c.bootstrapping_config.bootstrapping_auth_method;
            matches!(
                method,
                BootstrappingAuthMethod::ArcMsi | BootstrappingAuthMethod::AzureMsi
            )
        },
    ),
    error(
        "kubelet_config.kubelet_client_key",
        "a client key and a client certificate go together",
        "give kubelet_client_key and kubelet_client_cert_content, or neither",
        |c| {
            let kubelet = &c.kubelet_config;
            kubelet.kubelet_client_key.is_empty() != kubelet.kubelet_client_cert_content.is_empty()
        },
    ),
    error(
        "kubelet_config.kubelet_config_file_config",
        "the configuration file is switched on but nothing stands in it",
        "give kubelet_config_file_config, or leave enable_kubelet_config_file out",
        |c| {
            c.kubelet_config.enable_kubelet_config_file
                && !c.kubelet_config.kubelet_config_file_config.is_present()
        },
    ),
    error(
        "custom_search_domain_config",
        "a domain is joined with its name, a user and a password; one of them is missing",
        "give all three, or none",
        |c| {
            let domain = &c.custom_search_domain_config;
            let given = [
                !domain.domain_name.is_empty(),
                !domain.realm_user.is_empty(),
                !domain.realm_password.is_empty(),
            ];
            given.contains(&true) && given.contains(&false)
        },
    ),
    error(
        "custom_cloud_config.custom_env_json_content",
        "a cloud of its own must say where its endpoints are",
        "give the environment's JSON in base64",
        |c| is_custom_cloud(c) && c.custom_cloud_config.custom_env_json_content.is_empty(),
    ),
    error(
        "custom_linux_os_config.sysctl_config.net_ipv4_neigh_default_gc_thresh1",
        "the thresholds of the neighbour table must rise from 1 to 3 (4096, 8192, 16384 where not given)",
        "correct the three thresholds",
        |c| {
            let sysctl = &c.custom_linux_os_config.sysctl_config;
            let first = sysctl.net_ipv4_neigh_default_gc_thresh1.unwrap_or(4096);
            let second = sysctl.net_ipv4_neigh_default_gc_thresh2.unwrap_or(8192);
            first > second || second > sysctl.net_ipv4_neigh_default_gc_thresh3.unwrap_or(16384)
        },
    ),
    error(
        "kubelet_config.kubelet_config_file_config.image_gc_low_threshold_percent",
        "the low threshold must be below the high one (80 and 85 where not given)",
        "correct the two thresholds",
        |c| {
            let file = &c.kubelet_config.kubelet_config_file_config;
            let high = file.image_gc_high_threshold_percent.unwrap_or(85);
            file.image_gc_low_threshold_percent.unwrap_or(80) >= high
        },
    ),
    error(
        "kubelet_config.kubelet_config_file_config.eviction_soft",
        "every soft threshold needs a grace period",
        "give the same keys in eviction_soft_grace_period",
        |c| {
            let file = &c.kubelet_config.kubelet_config_file_config;
            let mut signals = file.eviction_soft.keys();
            signals.any(|signal| !file.eviction_soft_grace_period.contains_key(signal))
        },
    ),
    warning(
        "kubelet_config.kubelet_flags",
        "--streaming-connection-idle-timeout is gone since Kubernetes 1.34, and left out",
        "leave it out",
        |c| {
            let flags = &c.kubelet_config.kubelet_flags;
            let in_file = &c
                .kubelet_config
                .kubelet_config_file_config
                .streaming_connection_idle_timeout;
            let said =
                flags.contains_key("--streaming-connection-idle-timeout") || !in_file.is_empty();
            said && version::at_least(&c.kubernetes_version, [1, 34, 0])
        },
    ),
    warning(
        "custom_linux_os_config.swap_file_size",
        "swap is switched on without a size, and not made",
        "give the size in megabytes",
        |c| {
            c.custom_linux_os_config.enable_swap_config
                && c.custom_linux_os_config.swap_file_size == 0
        },
    ),
    warning(
        "local_dns_profile.enable_hosts_plugin",
        "the hosts plugin is part of the local DNS, which is off",
        "set enable_local_dns, or leave the plugin out",
        |c| c.local_dns_profile.enable_hosts_plugin && !c.local_dns_profile.enable_local_dns,
    ),
    warning(
        "gpu_config.mig_profile_layout",
        "a layout alone does not switch MIG on",
        "give gpu_instance_profile as well",
        |c| {
            !c.gpu_config.mig_profile_layout.is_empty()
                && c.gpu_config.gpu_instance_profile.is_empty()
        },
    ),
    warning("version", "v0 is deprecated", "set it to v1", |c| {
        c.version == "v0"
    }),
];

fn has_credential(c: &Configuration) -> bool {
    let bootstrapping = &c.bootstrapping_config;
    let token = bootstrapping.tls_bootstrapping_token.as_ref();
    token.is_some_and(|token| !token.is_empty())
        || bootstrapping.bootstrapping_auth_method
            == BootstrappingAuthMethod::SecureTlsBootstrapping
        || !c.kubelet_config.kubelet_client_key.is_empty()
}

/// Every rule that `config` breaks.
pub(super) fn problems(config: &Configuration) -> Vec<Problem> {
    let broken = RULES.iter().filter(|rule| (rule.is_broken)(config));
    broken
        .map(|rule| Problem {
            severity: rule.severity,
            path: rule.path.to_owned(),
            value: lookup(config, rule.path)
                .first()
                .map(shown)
                .unwrap_or_default(),
            rule: rule.rule.to_owned(),
            remedy: rule.remedy.to_owned(),
            place: None,
        })
        .collect()
}
