//! What the cloud provider of a node reads: `azure.json` and, in clouds of their own, the
//! environment file.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::config::predicates::is_custom_cloud;
use crate::config::{Configuration, LoadBalancerSku, VmType};

/// Where the cloud provider's configuration lies.
pub const AZURE_JSON: &str = "/etc/kubernetes/azure.json";
/// Where the environment of a custom cloud lies.
pub const CUSTOM_ENVIRONMENT: &str = "/etc/kubernetes/akscustom.json";

/// The cloud's name as the cloud provider knows it.
pub fn cloud(config: &Configuration) -> &'static str {
    if is_custom_cloud(config) {
        return "AzureStackCloud";
    }
    let location = config
        .cluster_config
        .location
        .replace(' ', "")
        .to_lowercase();
    match location.as_str() {
        l if l.starts_with("china") => "AzureChinaCloud",
        "germanynortheast" | "germanycentral" => "AzureGermanCloud",
        l if l.starts_with("usgov") || l.starts_with("usdod") => "AzureUSGovernmentCloud",
        _ => "AzurePublicCloud",
    }
}

/// `azure.json`: upstream's keys in upstream's order, four spaces deep.
pub fn azure_json(config: &Configuration) -> String {
    let lines: Vec<String> = entries(config)
        .into_iter()
        .map(|(key, value)| format!("    {}: {value}", Value::from(key)))
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Base64 of PEM or JSON, as almost every long value of the contract travels; line breaks inside
/// are ignored.
pub fn decoded(value: &str) -> Option<Vec<u8>> {
    let compact: String = value.split_whitespace().collect();
    STANDARD.decode(compact).ok()
}

/// The environment of a custom cloud; some producers send it as it is instead of in base64.
pub fn custom_environment(config: &Configuration) -> Vec<u8> {
    let content = &config.custom_cloud_config.custom_env_json_content;
    decoded(content).unwrap_or_else(|| content.clone().into_bytes())
}

fn entries(config: &Configuration) -> Vec<(&'static str, Value)> {
    let auth = &config.auth_config;
    let cluster = &config.cluster_config;
    let network = &cluster.cluster_network_config;
    let balancer = &cluster.load_balancer_config;
    let text = |value: &str| Value::from(value);
    let mut entries = vec![
        ("cloud", text(cloud(config))),
        ("tenantId", text(&auth.tenant_id)),
        ("subscriptionId", text(&auth.subscription_id)),
        ("aadClientId", text(&auth.service_principal_id)),
        ("aadClientSecret", Value::from(client_secret(config))),
        ("resourceGroup", text(&cluster.resource_group)),
        ("location", text(&cluster.location)),
        ("vmType", text(vm_type(cluster.vm_type))),
        ("subnetName", text(&network.subnet)),
        ("securityGroupName", text(&network.security_group_name)),
        ("vnetName", text(&network.vnet_name)),
        ("vnetResourceGroup", text(&network.vnet_resource_group)),
        ("routeTableName", text(&network.route_table)),
        (
            "primaryAvailabilitySetName",
            text(&cluster.primary_availability_set),
        ),
        ("primaryScaleSetName", text(&cluster.primary_scale_set)),
    ];
    entries.extend(throttling(config));
    entries.extend([
        (
            "useManagedIdentityExtension",
            Value::from(auth.use_managed_identity_extension),
        ),
        ("userAssignedIdentityID", text(&auth.assigned_identity_id)),
        (
            "useInstanceMetadata",
            Value::from(cluster.use_instance_metadata),
        ),
        (
            "loadBalancerSku",
            text(balancer_sku(balancer.load_balancer_sku)),
        ),
        (
            "disableOutboundSNAT",
            Value::from(balancer.disable_outbound_snat),
        ),
        (
            "excludeMasterFromStandardLB",
            Value::from(
                balancer
                    .exclude_master_from_standard_load_balancer
                    .unwrap_or(true),
            ),
        ),
        ("providerVaultName", text("")),
        (
            "maximumLoadBalancerRuleCount",
            Value::from(balancer.max_load_balancer_rule_count.unwrap_or(148)),
        ),
        ("providerKeyName", text("k8s")),
        ("providerKeyVersion", text("")),
    ]);
    entries
}

/// How the cloud provider spaces its calls; exponent and jitter mean nothing in mode `v2`.
fn throttling(config: &Configuration) -> Vec<(&'static str, Value)> {
    let provider = &config.cluster_config.cloud_provider_config;
    let mode = match provider.backoff_mode.as_str() {
        "" => "v2",
        mode => mode,
    };
    let mut entries = vec![
        ("cloudProviderBackoffMode", Value::from(mode)),
        (
            "cloudProviderBackoff",
            Value::from(provider.backoff.unwrap_or(true)),
        ),
        (
            "cloudProviderBackoffRetries",
            Value::from(provider.backoff_retries.unwrap_or(6)),
        ),
        (
            "cloudProviderBackoffExponent",
            number(provider.backoff_exponent.unwrap_or(0.0)),
        ),
        (
            "cloudProviderBackoffDuration",
            Value::from(provider.backoff_duration.unwrap_or(5)),
        ),
        (
            "cloudProviderBackoffJitter",
            number(provider.backoff_jitter.unwrap_or(0.0)),
        ),
        (
            "cloudProviderRateLimit",
            Value::from(provider.rate_limit.unwrap_or(true)),
        ),
        (
            "cloudProviderRateLimitQPS",
            number(provider.rate_limit_qps.unwrap_or(10.0)),
        ),
        (
            "cloudProviderRateLimitBucket",
            Value::from(provider.rate_limit_bucket.unwrap_or(100)),
        ),
        (
            "cloudProviderRateLimitQPSWrite",
            number(provider.rate_limit_qps_write.unwrap_or(10.0)),
        ),
        (
            "cloudProviderRateLimitBucketWrite",
            Value::from(provider.rate_limit_bucket_write.unwrap_or(100)),
        ),
    ];
    if mode == "v2" {
        let idle = ["cloudProviderBackoffExponent", "cloudProviderBackoffJitter"];
        entries.retain(|(key, _)| !idle.contains(key));
    }
    entries
}

/// Whole numbers are written without a fraction, as Go prints them.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT {
        return Value::from(value as i64);
    }
    Value::from(value)
}

/// Producers send the secret in base64; the oldest sent it as it is.
fn client_secret(config: &Configuration) -> String {
    let sent = config.auth_config.service_principal_secret.reveal();
    decoded(sent)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_else(|| sent.to_owned())
}

fn vm_type(kind: VmType) -> &'static str {
    match kind {
        VmType::Standard => "standard",
        VmType::Vmss => "vmss",
        _ => "",
    }
}

fn balancer_sku(sku: LoadBalancerSku) -> &'static str {
    match sku {
        LoadBalancerSku::Basic => "basic",
        LoadBalancerSku::Standard => "standard",
        _ => "",
    }
}
