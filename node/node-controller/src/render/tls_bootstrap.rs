//! Secure TLS bootstrapping: a client of its own proves which virtual machine it runs on and gets
//! the kubelet's first certificate; the bootstrap token is the fallback.

use super::azure::{AZURE_JSON, CUSTOM_ENVIRONMENT};
use crate::config::predicates::is_custom_cloud;
use crate::config::{BootstrappingAuthMethod, Configuration};

/// What the client's unit reads its flags from.
pub const DEFAULT_FILE: &str = "/etc/default/secure-tls-bootstrap";
/// The drop-in that ties the client to the kubelet.
pub const DROP_IN: &str =
    "/etc/systemd/system/secure-tls-bootstrap.service.d/10-securetlsbootstrap.conf";
/// The client.
pub const CLIENT: &str = "/opt/bin/aks-secure-tls-bootstrap-client";

/// The application id of AKS' own server side, for producers that name no other.
const AKS_SERVER_APPLICATION: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

/// Whether the node gets its first certificate this way.
pub fn enabled(config: &Configuration) -> bool {
    config.bootstrapping_config.bootstrapping_auth_method
        == BootstrappingAuthMethod::SecureTlsBootstrapping
}

/// The environment file with the client's flags.
pub fn default_file(config: &Configuration) -> String {
    let mut text = format!("BOOTSTRAP_FLAGS={}\n", flags(config).join(" "));
    if is_custom_cloud(config) {
        text += &format!("AZURE_ENVIRONMENT_FILEPATH={CUSTOM_ENVIRONMENT}\n");
    }
    text
}

/// The drop-in: started whenever the kubelet is, and before it.
pub fn drop_in() -> String {
    format!(
        "[Unit]\nBefore=kubelet.service\n[Service]\nEnvironmentFile={DEFAULT_FILE}\n\
         [Install]\nWantedBy=kubelet.service\n"
    )
}

fn flags(config: &Configuration) -> Vec<String> {
    let wish = &config.bootstrapping_config;
    let set = |value: &Option<String>| value.clone().filter(|v| !v.is_empty());
    let resource = set(&wish.secure_tls_bootstrapping_aad_resource);
    let mut flags = vec![
        format!(
            "--aad-resource={}",
            resource.as_deref().unwrap_or(AKS_SERVER_APPLICATION)
        ),
        format!(
            "--apiserver-fqdn={}",
            config.api_server_config.api_server_name
        ),
        format!("--cloud-provider-config={AZURE_JSON}"),
    ];
    let optional = [
        (
            "user-assigned-identity-id",
            &wish.secure_tls_bootstrapping_user_assigned_identity_id,
        ),
        (
            "validate-kubeconfig-timeout",
            &wish.secure_tls_bootstrapping_validate_kubeconfig_timeout,
        ),
        (
            "get-access-token-timeout",
            &wish.secure_tls_bootstrapping_get_access_token_timeout,
        ),
        (
            "get-instance-data-timeout",
            &wish.secure_tls_bootstrapping_get_instance_data_timeout,
        ),
        (
            "get-nonce-timeout",
            &wish.secure_tls_bootstrapping_get_nonce_timeout,
        ),
        (
            "get-attested-data-timeout",
            &wish.secure_tls_bootstrapping_get_attested_data_timeout,
        ),
        (
            "get-credential-timeout",
            &wish.secure_tls_bootstrapping_get_credential_timeout,
        ),
    ];
    flags.extend(
        optional
            .into_iter()
            .filter_map(|(name, value)| set(value).map(|value| format!("--{name}={value}"))),
    );
    flags
}
