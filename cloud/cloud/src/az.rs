//! What makes an unmodified az speak to this cloud: a configuration directory of its own, and a few variables.
//!
//! The built-in cloud keeps its name, `AzureCloud`: commands of az branch on it. Its endpoints are ours. The owner is
//! signed in already: az asks for a token whenever it needs one.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Credentials;

/// What az has to be told.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How the cloud is reached.
    pub origin: String,
    /// The certificate authority to trust.
    pub authority: PathBuf,
    /// Where az's files go.
    pub directory: PathBuf,
    /// Who is signed in.
    pub credentials: Credentials,
}

impl Setup {
    /// The files of the configuration directory: name and content. They hold a secret.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        let Setup {
            origin,
            credentials,
            ..
        } = self;
        let host = origin.trim_start_matches("https://");
        let cloud = format!(
            "[AzureCloud]\nendpoint_management = {origin}/\nendpoint_resource_manager = {origin}/\n\
             endpoint_active_directory = {origin}\nendpoint_active_directory_resource_id = {origin}/\n\
             endpoint_active_directory_graph_resource_id = {origin}/\n\
             endpoint_microsoft_graph_resource_id = {origin}/\n\
             endpoint_vm_image_alias_doc = {origin}/aliases.json\n\
             suffix_keyvault_dns = .vault.{host}\nsuffix_storage_endpoint = core.{host}\n\
             suffix_acr_login_server_endpoint = .azurecr.{host}\n"
        );
        let config = "[core]\ninstance_discovery = false\ncollect_telemetry = false\nsurvey_message = false\n\
                      encrypt_token_cache = false\nlogin_experience_v2 = false\n[cloud]\nname = AzureCloud\n\
                      [auto-upgrade]\nenable = no\n";
        let subscription = json!({
            "id": credentials.subscription, "name": "Kyanite", "state": "Enabled", "isDefault": true,
            "user": {"name": credentials.client_id, "type": "servicePrincipal"}, "tenantId": credentials.tenant,
            "environmentName": "AzureCloud", "homeTenantId": credentials.tenant, "managedByTenants": [],
        });
        let profile =
            json!({"installationId": credentials.subscription, "subscriptions": [subscription]});
        let principal = json!([{"client_id": credentials.client_id, "tenant": credentials.tenant,
            "client_secret": credentials.client_secret}]);
        vec![
            ("clouds.config", cloud),
            ("config", config.to_owned()),
            ("azureProfile.json", profile.to_string()),
            ("service_principal_entries.json", principal.to_string()),
        ]
    }

    /// The lines that a shell evaluates.
    pub fn exports(&self) -> String {
        let authority = quoted(&self.authority);
        let rows = [
            ("AZURE_CONFIG_DIR", quoted(&self.directory)),
            ("REQUESTS_CA_BUNDLE", authority.clone()),
            ("SSL_CERT_FILE", authority.clone()),
            ("NODE_EXTRA_CA_CERTS", authority),
            ("AZURE_CORE_INSTANCE_DISCOVERY", "false".into()),
            ("AZURE_AUTHORITY_HOST", self.origin.clone()),
            ("AZURE_TENANT_ID", self.credentials.tenant.clone()),
            (
                "AZURE_SUBSCRIPTION_ID",
                self.credentials.subscription.clone(),
            ),
            ("AZURE_CLIENT_ID", self.credentials.client_id.clone()),
            (
                "AZURE_CLIENT_SECRET",
                self.credentials.client_secret.clone(),
            ),
        ];
        rows.iter()
            .map(|(name, value)| format!("export {name}={value}\n"))
            .collect()
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }
}
