//! What each field must be: one row per field or group of fields.

use super::checks::Check::{self, *};
use super::{Problem, Severity, shown};
use crate::config::Configuration;
use crate::config::declare::View;
use crate::config::lookup::{Found, lookup};

/// The fields that upstream's `Validate` asks for, and what they are.
pub(super) const REQUIRED: &[(&str, &str)] = &[
    ("version", "set it to v1"),
    (
        "auth_config.subscription_id",
        "give the subscription of the cluster",
    ),
    (
        "cluster_config.resource_group",
        "give the resource group of the nodes",
    ),
    (
        "cluster_config.location",
        "give the region, such as westeurope",
    ),
    (
        "cluster_config.cluster_network_config.vnet_name",
        "give the network that the node is in",
    ),
    (
        "cluster_config.cluster_network_config.route_table",
        "give the route table of the subnet",
    ),
    (
        "api_server_config.api_server_name",
        "give the API server's name, as in the kubeconfig after https://",
    ),
];

/// What a node needs besides, unless only an image is baked.
const NEEDED_TO_JOIN: &[(&str, &str)] = &[
    (
        "kubernetes_version",
        "give the cluster's version, such as 1.34.8",
    ),
    (
        "kubernetes_ca_cert",
        "give the cluster's CA: `base64 -w0 ca.crt`",
    ),
];

const TODAY: &[&str] = &["v0", "v1"];
const HUGE_PAGES: &[&str] = &["always", "madvise", "never"];
const DEFRAG: &[&str] = &["always", "defer", "defer+madvise", "madvise", "never"];
const CPU_POLICIES: &[&str] = &["none", "static"];
const TOPOLOGY: &[&str] = &["none", "best-effort", "restricted", "single-numa-node"];
const AUTHORIZATION: &[&str] = &["AlwaysAllow", "Webhook"];
const NOT_NEGATIVE: Check = Between(0, i32::MAX);
const POSITIVE: Check = Between(1, i32::MAX);
const PERCENT: Check = Between(0, 100);

/// Rules whose breach is an error.
const RULES: &[(&str, Check)] = &[
    ("version", OneOf(TODAY)),
    ("kubernetes_version", Release),
    ("kubernetes_ca_cert", Pem("CERTIFICATE")),
    ("message_of_the_day", Base64),
    ("linux_admin_username", User),
    ("custom_ca_certs.*", Pem("CERTIFICATE")),
    ("api_server_config.api_server_name", Host),
    (
        "api_server_config.api_server_public_key",
        Pem("CERTIFICATE"),
    ),
    ("auth_config.service_principal_secret", Base64),
    ("bootstrapping_config.tls_bootstrapping_token", Token),
    (
        "bootstrapping_config.secure_tls_bootstrapping_custom_client_download_url",
        Url,
    ),
    (
        "bootstrapping_config.secure_tls_bootstrapping_validate_kubeconfig_timeout",
        Duration,
    ),
    (
        "bootstrapping_config.secure_tls_bootstrapping_get_access_token_timeout",
        Duration,
    ),
    (
        "bootstrapping_config.secure_tls_bootstrapping_get_instance_data_timeout",
        Duration,
    ),
    (
        "bootstrapping_config.secure_tls_bootstrapping_get_nonce_timeout",
        Duration,
    ),
    (
        "bootstrapping_config.secure_tls_bootstrapping_get_attested_data_timeout",
        Duration,
    ),
    (
        "bootstrapping_config.secure_tls_bootstrapping_get_credential_timeout",
        Duration,
    ),
    (
        "cluster_config.cluster_network_config.core_dns_service_ip",
        Ip,
    ),
    (
        "cluster_config.load_balancer_config.max_load_balancer_rule_count",
        NOT_NEGATIVE,
    ),
    ("cluster_config.cloud_provider_config.*", NOT_NEGATIVE),
    ("containerd_config.containerd_package_url", Url),
    ("containerd_config.containerd_download_url_base", Url),
    ("runc_config.runc_package_url", Url),
    ("kube_binary_config.kube_binary_url", Url),
    ("kube_binary_config.custom_kube_binary_url", Url),
    ("kube_binary_config.linux_credential_provider_url", Url),
    ("custom_cloud_config.custom_env_json_content", Environment),
    ("custom_cloud_config.repo_depot_endpoint", Url),
    ("http_proxy_config.http_proxy", Url),
    ("http_proxy_config.https_proxy", Url),
    ("http_proxy_config.proxy_trusted_ca", Pem("CERTIFICATE")),
    ("network_config.vnet_cni_plugins_url", Url),
    ("network_config.standard_secondary_nic_count", NOT_NEGATIVE),
    (
        "gpu_config.gpu_instance_profile",
        OneOf(&["MIG1g", "MIG2g", "MIG3g", "MIG4g", "MIG7g"]),
    ),
    (
        "gpu_config.mig_strategy",
        OneOf(&["None", "Single", "Mixed"]),
    ),
    ("custom_linux_os_config.swap_file_size", NOT_NEGATIVE),
    (
        "custom_linux_os_config.transparent_hugepage_support",
        OneOf(HUGE_PAGES),
    ),
    ("custom_linux_os_config.transparent_defrag", OneOf(DEFRAG)),
    ("custom_linux_os_config.ulimit_config.*", Limit),
    ("custom_linux_os_config.sysctl_config.*", NOT_NEGATIVE),
    (
        "custom_linux_os_config.sysctl_config.net_ipv4_ip_local_port_range",
        PortRange,
    ),
    (
        "custom_linux_os_config.sysctl_config.vm_swappiness",
        Between(0, 200),
    ),
    ("local_dns_profile.cpu_limit_in_milli_cores", POSITIVE),
    ("local_dns_profile.memory_limit_in_mb", POSITIVE),
    ("local_dns_profile.critical_fqdns.*", Host),
    (
        "local_dns_profile.*.*.query_logging",
        OneOf(&["Error", "Log"]),
    ),
    (
        "local_dns_profile.*.*.protocol",
        OneOf(&["PreferUDP", "ForceTCP"]),
    ),
    (
        "local_dns_profile.*.*.forward_destination",
        OneOf(&["VnetDNS", "ClusterCoreDNS"]),
    ),
    (
        "local_dns_profile.*.*.forward_policy",
        OneOf(&["Sequential", "RoundRobin", "Random"]),
    ),
    (
        "local_dns_profile.*.*.serve_stale",
        OneOf(&["Verify", "Immediate", "Disable"]),
    ),
    ("local_dns_profile.*.*.max_concurrent", POSITIVE),
    (
        "local_dns_profile.*.*.cache_duration_in_seconds",
        NOT_NEGATIVE,
    ),
    (
        "local_dns_profile.*.*.serve_stale_duration_in_seconds",
        NOT_NEGATIVE,
    ),
    ("local_dns_profile.*.*.health_check.duration", Duration),
    ("local_dns_profile.*.*.health_check.domain", Host),
    ("kubelet_config.kubelet_client_key", Pem("PRIVATE KEY")),
    (
        "kubelet_config.kubelet_client_cert_content",
        Pem("CERTIFICATE"),
    ),
    ("kubelet_config.container_data_dir", Path),
    (
        "kubelet_config.kubelet_config_file_config.kind",
        OneOf(&["KubeletConfiguration"]),
    ),
    (
        "kubelet_config.kubelet_config_file_config.api_version",
        OneOf(&["kubelet.config.k8s.io/v1beta1"]),
    ),
    (
        "kubelet_config.kubelet_config_file_config.static_pod_path",
        Path,
    ),
    ("kubelet_config.kubelet_config_file_config.address", Ip),
    (
        "kubelet_config.kubelet_config_file_config.read_only_port",
        Between(0, 65535),
    ),
    (
        "kubelet_config.kubelet_config_file_config.tls_cert_file",
        Path,
    ),
    (
        "kubelet_config.kubelet_config_file_config.tls_private_key_file",
        Path,
    ),
    (
        "kubelet_config.kubelet_config_file_config.authentication.x509.client_ca_file",
        Path,
    ),
    (
        "kubelet_config.kubelet_config_file_config.authentication.webhook.cache_ttl",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.authorization.mode",
        OneOf(AUTHORIZATION),
    ),
    (
        "kubelet_config.kubelet_config_file_config.authorization.webhook.cache_authorized_ttl",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.authorization.webhook.cache_unauthorized_ttl",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.event_record_qps",
        NOT_NEGATIVE,
    ),
    (
        "kubelet_config.kubelet_config_file_config.cluster_domain",
        Host,
    ),
    (
        "kubelet_config.kubelet_config_file_config.cluster_dns.*",
        Ip,
    ),
    (
        "kubelet_config.kubelet_config_file_config.streaming_connection_idle_timeout",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.node_status_update_frequency",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.node_status_report_frequency",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.image_gc_high_threshold_percent",
        PERCENT,
    ),
    (
        "kubelet_config.kubelet_config_file_config.image_gc_low_threshold_percent",
        PERCENT,
    ),
    (
        "kubelet_config.kubelet_config_file_config.cpu_manager_policy",
        OneOf(CPU_POLICIES),
    ),
    (
        "kubelet_config.kubelet_config_file_config.topology_manager_policy",
        OneOf(TOPOLOGY),
    ),
    (
        "kubelet_config.kubelet_config_file_config.max_pods",
        NOT_NEGATIVE,
    ),
    (
        "kubelet_config.kubelet_config_file_config.resolv_conf",
        Path,
    ),
    (
        "kubelet_config.kubelet_config_file_config.cpu_cfs_quota_period",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.eviction_hard.*",
        Threshold,
    ),
    (
        "kubelet_config.kubelet_config_file_config.eviction_soft.*",
        Threshold,
    ),
    (
        "kubelet_config.kubelet_config_file_config.eviction_soft_grace_period.*",
        Duration,
    ),
    (
        "kubelet_config.kubelet_config_file_config.container_log_max_size",
        Quantity,
    ),
    (
        "kubelet_config.kubelet_config_file_config.container_log_max_files",
        Between(2, i32::MAX),
    ),
    (
        "kubelet_config.kubelet_config_file_config.system_reserved.*",
        Quantity,
    ),
    (
        "kubelet_config.kubelet_config_file_config.kube_reserved.*",
        Quantity,
    ),
];

/// Values that are not taken as they stand, and what happens instead.
const TAKEN_OTHERWISE: &[(&str, Check, &str)] = &[
    (
        "cse_timeout",
        Between(1, 21600),
        "900 seconds are used; give one to 21600",
    ),
    (
        "local_dns_profile.hosts_plugin_refresh_interval_in_seconds",
        POSITIVE,
        "the timer's own interval is used; give a positive number",
    ),
];

/// Fields that no longer mean anything, or not yet.
const WITHOUT_EFFECT: &[&str] = &[
    "provision_output",
    "workload_runtime",
    "disable_custom_data",
    "network_config.cni_plugins_url",
    "gpu_config.enable_amd_gpu",
    "bootstrapping_config.cluster_join_method",
];

/// Fields that must be there and are not.
pub(super) fn required(config: &Configuration) -> Vec<Problem> {
    let to_join = match config.pre_provision_only {
        true => &[],
        false => NEEDED_TO_JOIN,
    };
    let all = REQUIRED.iter().chain(to_join);
    let missing = all.filter_map(|(path, remedy)| {
        let field = lookup(config, path)
            .into_iter()
            .find(|field| !field.is_set)?;
        let rule = format!("required field {path} is missing");
        Some(problem(Severity::Error, &field, rule, remedy))
    });
    missing.collect()
}

/// Fields that are not what they must be.
pub(super) fn fields(config: &Configuration) -> Vec<Problem> {
    let broken = RULES.iter().flat_map(|&(pattern, check)| {
        let broken = breaking(config, pattern, check);
        broken.map(move |field| problem(Severity::Error, &field, check.rule(), check.remedy()))
    });
    let otherwise = TAKEN_OTHERWISE
        .iter()
        .flat_map(|&(pattern, check, instead)| {
            let broken = breaking(config, pattern, check);
            broken.map(move |field| problem(Severity::Warning, &field, check.rule(), instead))
        });
    let without_effect = WITHOUT_EFFECT.iter().flat_map(|path| {
        let set = lookup(config, path)
            .into_iter()
            .filter(|field| field.is_set);
        set.map(|field| {
            problem(
                Severity::Warning,
                &field,
                "has no effect".into(),
                "leave it out",
            )
        })
    });
    let unknown = lookup(config, "*.*").into_iter().filter(is_unknown_choice);
    let unknown = unknown.map(|field| {
        let rule = "is a number that this version does not know, and counts as not said";
        problem(
            Severity::Warning,
            &field,
            rule.into(),
            "use one of the names of the contract",
        )
    });
    broken
        .chain(otherwise)
        .chain(without_effect)
        .chain(unknown)
        .collect()
}

fn breaking<'a>(
    config: &'a Configuration,
    pattern: &str,
    check: Check,
) -> impl Iterator<Item = Found<'a>> + use<'a> {
    let found = lookup(config, pattern).into_iter();
    found.filter(move |field| !check.holds(&field.view))
}

fn is_unknown_choice(field: &Found<'_>) -> bool {
    matches!(field.view, View::Choice(_, None))
}

/// A field that breaks a rule.
pub(super) fn problem(
    severity: Severity,
    field: &Found<'_>,
    rule: String,
    remedy: &str,
) -> Problem {
    Problem {
        severity,
        path: field.path.clone(),
        value: shown(field),
        rule,
        remedy: remedy.to_owned(),
        place: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_the_tables_is_a_path_of_the_contract() {
        let full = crate::config::tests::every_field();
        let patterns = RULES.iter().map(|(path, _)| *path);
        let others = TAKEN_OTHERWISE.iter().map(|(path, ..)| *path);
        let required = REQUIRED.iter().chain(NEEDED_TO_JOIN).map(|(path, _)| *path);
        let all = patterns
            .chain(others)
            .chain(required)
            .chain(WITHOUT_EFFECT.iter().copied());
        for path in all {
            assert!(
                lookup(&full, path).iter().any(|field| field.is_set),
                "{path}"
            );
        }
    }
}
