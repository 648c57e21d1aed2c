//! The kubelet's image credential provider for Azure's container registries.

use super::azure::AZURE_JSON;
use crate::config::Configuration;

/// The provider's configuration.
pub const CONFIG_FILE: &str = "/var/lib/kubelet/credential-provider-config.yaml";
/// Where the kubelet looks for the provider.
pub const BINARY: &str = "/var/lib/kubelet/credential-provider/acr-credential-provider";
/// Microsoft's registry, which a network isolated cluster mirrors.
pub const MICROSOFT_REGISTRY: &str = "mcr.microsoft.com";

const REGISTRIES: [&str; 8] = [
    "*.azurecr.io",
    "*.azurecr.cn",
    "*.azurecr.de",
    "*.azurecr.us",
    "*.*.geo.azurecr.io",
    "*.*.geo.azurecr.cn",
    "*.*.geo.azurecr.de",
    "*.*.geo.azurecr.us",
];

/// Whether the kubelet is told of a provider: both of its flags are given.
pub fn wanted(config: &Configuration) -> bool {
    let flags = &config.kubelet_config.kubelet_flags;
    [
        "--image-credential-provider-config",
        "--image-credential-provider-bin-dir",
    ]
    .iter()
    .all(|flag| flags.contains_key(*flag))
}

/// The `CredentialProviderConfig`.
pub fn config_file(config: &Configuration) -> String {
    let images: String = images(config)
        .iter()
        .map(|i| format!("      - {}\n", quoted(i)))
        .collect();
    let args: String = args(config)
        .iter()
        .map(|a| format!("      - {a}\n"))
        .collect();
    let tokens = if config.service_account_image_pull_profile.enabled {
        TOKENS
    } else {
        ""
    };
    format!(
        "apiVersion: kubelet.config.k8s.io/v1\n\
         kind: CredentialProviderConfig\n\
         providers:\n  \
         - name: acr-credential-provider\n    \
         matchImages:\n{images}    \
         defaultCacheDuration: \"10m\"\n    \
         apiVersion: credentialprovider.kubelet.k8s.io/v1\n{tokens}    \
         args:\n{args}"
    )
}

/// Pulls with the identity of the pod's own service account.
const TOKENS: &str = "    tokenAttributes:
      serviceAccountTokenAudience: api://AKSIdentityBinding
      requireServiceAccount: false
      cacheType: ServiceAccount
      optionalServiceAccountAnnotationKeys:
        - kubernetes.azure.com/acr-client-id
";

fn images(config: &Configuration) -> Vec<String> {
    let mut images: Vec<String> = REGISTRIES.map(str::to_owned).into();
    let suffix = &config.custom_cloud_config.container_registry_dns_suffix;
    if !suffix.is_empty() {
        images.push(format!("*{suffix}"));
    }
    if !config
        .bootstrap_profile_container_registry_server
        .is_empty()
    {
        images.push(MICROSOFT_REGISTRY.to_owned());
    }
    images
}

fn args(config: &Configuration) -> Vec<String> {
    let mut args = vec![AZURE_JSON.to_owned()];
    let mirror = &config.bootstrap_profile_container_registry_server;
    if !mirror.is_empty() {
        args.push(format!("--registry-mirror={MICROSOFT_REGISTRY}:{mirror}"));
    }
    let profile = &config.service_account_image_pull_profile;
    if profile.enabled {
        args.push(format!("--ib-sni-name={}", profile.local_authority_sni));
        let defaults = [
            ("--ib-default-client-id", &profile.default_client_id),
            ("--ib-default-tenant-id", &profile.default_tenant_id),
        ];
        let given = defaults.iter().filter(|(_, value)| !value.is_empty());
        args.extend(given.map(|(flag, value)| format!("{flag}={value}")));
        args.push(format!(
            "--ib-apiserver-ip={}",
            config.api_server_config.api_server_name
        ));
    }
    args
}

fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}
