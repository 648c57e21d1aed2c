//! azure.json: what a cluster knows of the cloud it is in.
//!
//! The file is YAML, so JSON too; names match without case, names nobody knows are passed over, and an empty value is as
//! good as none.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::Error;

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $default:expr,)*) => {
        /// The fields of azure.json.
        #[derive(Debug, Clone, Deserialize)]
        #[serde(default)]
        pub struct CloudConfig {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for CloudConfig {
            fn default() -> CloudConfig {
                CloudConfig { $($name: $default,)* }
            }
        }

        /// Every field's name here; in the file it is written together.
        const FIELDS: &[&str] = &[$(stringify!($name)),*];
    };
}

settings! {
    /// The environment's name.
    cloud: String = "AzurePublicCloud".into(),
    /// The tenant of our credentials.
    tenant_id: String = String::new(),
    /// The subscription of machines and of the cluster.
    subscription_id: String = String::new(),
    /// The tenant of the network, where it is another one.
    network_resource_tenant_id: String = String::new(),
    /// The subscription of the network, where it is another one.
    network_resource_subscription_id: String = String::new(),
    /// What we call ourselves.
    user_agent: String = String::new(),
    /// A Resource Manager that is none of the public ones.
    resource_manager_endpoint: String = String::new(),
    /// `azure_ad` or `adfs`.
    identity_system: String = String::new(),
    /// The application's id.
    aad_client_id: String = String::new(),
    /// Its secret.
    aad_client_secret: String = String::new(),
    /// Its certificate and key, PEM.
    aad_client_cert_path: String = String::new(),
    /// The password of that file.
    aad_client_cert_password: String = String::new(),
    /// Whether the machine's own identity is used.
    use_managed_identity_extension: bool = false,
    /// Which of the machine's identities: a client id, or a resource id.
    user_assigned_identity_id: String = String::new(),
    /// Whether a token of the cluster is exchanged for one of Azure's.
    use_federated_workload_identity_extension: bool = false,
    /// Where that token is.
    aad_federated_token_file: String = String::new(),
    /// Credentials of the first-party data plane.
    aad_msi_data_plane_identity_path: String = String::new(),
    /// A secret with a second tenant's token.
    auxiliary_token_provider: Value = Value::Null,
    /// Whether an environment file is passed over.
    disable_azure_stack_cloud: bool = false,
    /// Whether a minimum is waited after a refusal.
    enable_minimum_retry_after: bool = false,
    /// Whether the following four count.
    cloud_provider_backoff: bool = false,
    /// How often a request is tried again.
    cloud_provider_backoff_retries: u32 = 6,
    /// The first wait, in seconds.
    cloud_provider_backoff_duration: u64 = 5,
    /// How the wait grows.
    cloud_provider_backoff_exponent: f64 = 1.5,
    /// How much of it is chance.
    cloud_provider_backoff_jitter: f64 = 1.0,
    /// `file`, `secret` or `merge`.
    cloud_config_type: String = "merge".into(),
    /// The cluster's group of resources, in lower case.
    resource_group: String = String::new(),
    /// Where it is.
    location: String = String::new(),
    /// An edge zone.
    extended_location_name: String = String::new(),
    /// `EdgeZone`.
    extended_location_type: String = String::new(),
    /// The network of the nodes.
    vnet_name: String = String::new(),
    /// Its group, where it is another one.
    vnet_resource_group: String = String::new(),
    /// The nodes' subnet.
    subnet_name: String = String::new(),
    /// The security group of the nodes.
    security_group_name: String = String::new(),
    /// Its group, where it is another one.
    security_group_resource_group: String = String::new(),
    /// The table of routes to pods; without one nothing is routed.
    route_table_name: String = String::new(),
    /// Its group, where it is another one.
    route_table_resource_group: String = String::new(),
    /// The set of machines behind the first load balancer.
    primary_availability_set_name: String = String::new(),
    /// The scale set behind the first load balancer.
    primary_scale_set_name: String = String::new(),
    /// `vmss`, `standard` or `vmssflex`.
    vm_type: String = "vmss".into(),
    /// Whether every node is of a scale set.
    disable_availability_set_nodes: bool = false,
    /// Whether flexible sets are looked at.
    enable_vmss_flex_nodes: bool = false,
    /// Whether a machine asks its metadata service about itself.
    use_instance_metadata: bool = false,
    /// Tags of what we make: `k=v,k2=v2`.
    tags: String = String::new(),
    /// The same as a map, which wins.
    tags_map: BTreeMap<String, String> = BTreeMap::new(),
    /// Prefixes of tags that are never removed.
    system_tags: String = String::new(),
    /// `standard`, or what is no longer made: `basic`.
    load_balancer_sku: String = "standard".into(),
    /// The load balancer's name, instead of the cluster's.
    load_balancer_name: String = String::new(),
    /// Its group, where it is another one.
    load_balancer_resource_group: String = String::new(),
    /// Kinds of load balancer whose pools are somebody else's: `internal`, `external`, `all`.
    pre_configured_backend_pool_load_balancer_types: String = String::new(),
    /// Whether nodes of the control plane are left out.
    exclude_master_from_standard_lb: bool = true,
    /// Whether rules give no way out.
    disable_outbound_snat: bool = false,
    /// How many rules a load balancer may have before another one is chosen.
    maximum_load_balancer_rule_count: u32 = 250,
    /// `nodeIPConfiguration`, `nodeIP` or `podIP`.
    load_balancer_backend_pool_configuration_type: String = "nodeIPConfiguration".into(),
    /// Whether pools are migrated by Azure.
    enable_migrate_to_ip_based_backend_pool_api: bool = false,
    /// How many machines of a set are written at once.
    put_vmss_vm_batch_size: u32 = 0,
    /// The group of private link services.
    private_link_service_resource_group: String = String::new(),
    /// Whether the tags of a public address may change.
    enable_ip_tag_mutation_for_existing_public_ip: bool = false,
    /// Several load balancers beside each other.
    multiple_standard_load_balancer_configurations: Value = Value::Null,
    /// `servicenodeport` or `shared`.
    cluster_service_load_balancer_health_probe_mode: String = "servicenodeport".into(),
    /// The port of the shared probe.
    cluster_service_shared_load_balancer_health_probe_port: u16 = 10256,
    /// Its path.
    cluster_service_shared_load_balancer_health_probe_path: String = "/healthz".into(),
    /// How often routes are written.
    route_update_interval_in_seconds: u64 = 30,
    /// How often pools of local services are written.
    load_balancer_backend_pool_update_interval_in_seconds: u64 = 30,
    /// How young a node may be and have no machine.
    node_instance_not_found_grace_period_in_seconds: u64 = 0,
    /// Service gateways.
    service_gateway_enabled: bool = false,
    /// Whether nothing is to be done at all.
    disable_cloud_provider: bool = false,
    /// Whether nothing is remembered.
    disable_api_call_cache: bool = false,
    /// How long it is remembered which nodes are of no uniform set.
    non_vmss_uniform_nodes_cache_ttl_in_seconds: u64 = 900,
    /// The same, of scale sets.
    vmss_cache_ttl_in_seconds: u64 = 600,
    /// The same, of their machines.
    vmss_virtual_machines_cache_ttl_in_seconds: u64 = 600,
    /// The same, of flexible sets.
    vmss_flex_cache_ttl_in_seconds: u64 = 600,
    /// The same, of their machines.
    vmss_flex_vm_cache_ttl_in_seconds: u64 = 600,
    /// The same, of availability sets.
    availability_sets_cache_ttl_in_seconds: u64 = 600,
    /// The same, of machines.
    vm_cache_ttl_in_seconds: u64 = 60,
    /// The same, of load balancers.
    load_balancer_cache_ttl_in_seconds: u64 = 120,
    /// The same, of security groups.
    nsg_cache_ttl_in_seconds: u64 = 120,
    /// The same, of route tables.
    route_table_cache_ttl_in_seconds: u64 = 120,
    /// The same, of public addresses.
    public_ip_cache_ttl_in_seconds: u64 = 120,
    /// The same, of private link services.
    pls_cache_ttl_in_seconds: u64 = 120,
    /// How long upstream waits after routes were written.
    route_update_waiting_in_seconds: u64 = 30,
    /// Whether lists come without the machines' states.
    list_vmss_virtual_machines_without_instance_view: bool = false,
    /// Whether requests are limited by us.
    cloud_provider_rate_limit: bool = false,
    /// Reads in a second.
    cloud_provider_rate_limit_qps: f64 = 1.0,
    /// Reads at once.
    cloud_provider_rate_limit_bucket: u32 = 5,
    /// Writes in a second.
    cloud_provider_rate_limit_qps_write: f64 = 0.0,
    /// Writes at once.
    cloud_provider_rate_limit_bucket_write: u32 = 0,
    /// Limits of single types.
    route_table_rate_limit: Value = Value::Null,
    /// Limits of single types.
    subnets_rate_limit: Value = Value::Null,
    /// Limits of single types.
    interface_rate_limit: Value = Value::Null,
    /// Limits of single types.
    load_balancer_rate_limit: Value = Value::Null,
    /// Limits of single types.
    public_ip_address_rate_limit: Value = Value::Null,
    /// Limits of single types.
    security_group_rate_limit: Value = Value::Null,
    /// Limits of single types.
    virtual_machine_rate_limit: Value = Value::Null,
    /// Limits of single types.
    virtual_machine_scale_set_rate_limit: Value = Value::Null,
}

/// Variables of the environment that say something else than the file, and the field they are about.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("AZURE_TENANT_ID", "tenant_id"),
    ("AZURE_CLIENT_ID", "aad_client_id"),
    ("AZURE_CLIENT_SECRET", "aad_client_secret"),
    ("AZURE_FEDERATED_TOKEN_FILE", "aad_federated_token_file"),
];

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// Where something is: a subscription, a group and a name.
#[derive(Debug, Clone, Copy)]
pub struct Place<'c> {
    /// The subscription.
    pub subscription: &'c str,
    /// The group of resources.
    pub group: &'c str,
}

impl Place<'_> {
    /// The id of a resource of a type here.
    pub fn resource(&self, kind: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(kind))
    }

    /// The address of every resource of a type here.
    pub fn collection(&self, kind: &str) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}/providers/{kind}",
            self.subscription, self.group
        )
    }
}

impl CloudConfig {
    /// Reads the text of the file; `environment` is what variables are set.
    pub fn parse(
        text: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<CloudConfig, Error> {
        let wrong = |cause: String| Error::Config(format!("azure.json cannot be read: {cause}"));
        let value: Value = serde_saphyr::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let Value::Object(given) = value else {
            return Err(wrong("it is no list of names and values".into()));
        };
        let mut known = Map::new();
        for (name, value) in given {
            let name = plain(&name);
            let field = FIELDS.iter().find(|field| plain(field) == name);
            let is_empty = value.is_null() || value == "";
            if let Some(field) = field.filter(|_| !is_empty) {
                known.insert((*field).to_owned(), value);
            }
        }
        for (variable, field) in ENVIRONMENT {
            if let Some(value) = environment(variable).filter(|value| !value.is_empty()) {
                if field == "aad_federated_token_file" {
                    let on = "use_federated_workload_identity_extension";
                    known.insert(on.to_owned(), Value::Bool(true));
                }
                known.insert(field.to_owned(), Value::String(value));
            }
        }
        let mut config: CloudConfig =
            serde_json::from_value(Value::Object(known)).map_err(|e| wrong(e.to_string()))?;
        config.resource_group.make_ascii_lowercase();
        config.location = config.location.to_lowercase().replace(' ', "");
        Ok(config)
    }

    /// The tags of what we make. A value `null` keeps the blanks around it, because ARM has another use for the word.
    pub fn all_tags(&self) -> BTreeMap<String, String> {
        if !self.tags_map.is_empty() {
            return self.tags_map.clone();
        }
        parse_tags(&self.tags)
    }

    /// Where the cluster's machines are.
    pub fn cluster(&self) -> Place<'_> {
        Place {
            subscription: &self.subscription_id,
            group: &self.resource_group,
        }
    }

    /// Where something of the network is, in a group of its own or in the cluster's.
    pub fn network<'c>(&'c self, group: &'c str) -> Place<'c> {
        Place {
            subscription: match self.network_resource_subscription_id.as_str() {
                "" => &self.subscription_id,
                other => other,
            },
            group: match group {
                "" => &self.resource_group,
                other => other,
            },
        }
    }

    /// The id of the table of routes, if there is one.
    pub fn route_table(&self) -> Option<String> {
        let place = self.network(&self.route_table_resource_group);
        (!self.route_table_name.is_empty())
            .then(|| place.resource("Microsoft.Network/routeTables", &self.route_table_name))
    }

    /// The id of the security group, if there is one.
    pub fn security_group(&self) -> Option<String> {
        let place = self.network(&self.security_group_resource_group);
        let kind = "Microsoft.Network/networkSecurityGroups";
        (!self.security_group_name.is_empty())
            .then(|| place.resource(kind, &self.security_group_name))
    }

    /// The id of the network.
    pub fn network_id(&self) -> String {
        let place = self.network(&self.vnet_resource_group);
        place.resource("Microsoft.Network/virtualNetworks", &self.vnet_name)
    }

    /// The limits of reads and writes of a type, where there are any: (in a second, at once).
    pub fn limits(&self, kind: &str) -> Option<[(f64, u32); 2]> {
        let own = match plain(kind).as_str() {
            "routetables" => &self.route_table_rate_limit,
            "subnets" => &self.subnets_rate_limit,
            "networkinterfaces" => &self.interface_rate_limit,
            "loadbalancers" => &self.load_balancer_rate_limit,
            "publicipaddresses" => &self.public_ip_address_rate_limit,
            "networksecuritygroups" => &self.security_group_rate_limit,
            "virtualmachines" => &self.virtual_machine_rate_limit,
            "virtualmachinescalesets" => &self.virtual_machine_scale_set_rate_limit,
            _ => &Value::Null,
        };
        let own: BTreeMap<String, &Value> = own
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (plain(name), value))
            .collect();
        let of = |name: &str| own.get(name).copied();
        let is_on = of("cloudproviderratelimit")
            .and_then(Value::as_bool)
            .unwrap_or(self.cloud_provider_rate_limit);
        let number = |name: &str, usual: f64| {
            of(name)
                .and_then(Value::as_f64)
                .filter(|n| *n > 0.0)
                .unwrap_or(usual)
        };
        let reads = (
            number(
                "cloudproviderratelimitqps",
                self.cloud_provider_rate_limit_qps,
            ),
            number(
                "cloudproviderratelimitbucket",
                f64::from(self.cloud_provider_rate_limit_bucket),
            ),
        );
        // Writes are as reads where nobody says otherwise.
        let usual = |own: f64, reads: f64| if own > 0.0 { own } else { reads };
        let writes = (
            number(
                "cloudproviderratelimitqpswrite",
                usual(self.cloud_provider_rate_limit_qps_write, reads.0),
            ),
            number(
                "cloudproviderratelimitbucketwrite",
                usual(
                    f64::from(self.cloud_provider_rate_limit_bucket_write),
                    reads.1,
                ),
            ),
        );
        is_on.then(|| [reads, writes].map(|(qps, bucket)| (qps, bucket as u32)))
    }
}

/// Reads `k=v,k2=v2`; what has no `=` is passed over.
pub fn parse_tags(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, _)| !name.trim().is_empty())
        .map(|(name, value)| {
            let is_reserved = value.trim().eq_ignore_ascii_case("null");
            let value = if is_reserved { value } else { value.trim() };
            (name.trim().to_owned(), value.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn parse(text: &str) -> CloudConfig {
        CloudConfig::parse(text, |_| None).unwrap()
    }

    #[test]
    fn names_match_without_case_and_nothing_is_the_usual() {
        let config = parse(
            r#"{"RESOURCEGROUP": "MC_Group", "vnetName": null, "unknown": {"a": 1}, "location": "East US",
                "loadBalancerSku": "", "useManagedIdentityExtension": true, "vmType": "standard"}"#,
        );
        assert_eq!(config.resource_group, "mc_group");
        assert_eq!(config.location, "eastus");
        assert_eq!(config.load_balancer_sku, "standard");
        assert!(config.use_managed_identity_extension);
        assert_eq!(config.vm_type, "standard");
        assert!(config.exclude_master_from_standard_lb);
    }

    #[test]
    fn yaml_is_read_too_and_the_environment_wins() {
        let environment = |name: &str| match name {
            "AZURE_TENANT_ID" => Some("theirs".to_owned()),
            "AZURE_FEDERATED_TOKEN_FILE" => Some("/token".to_owned()),
            _ => None,
        };
        let config = CloudConfig::parse("tenantId: ours\naadClientId: c\n", environment).unwrap();
        assert_eq!(
            (config.tenant_id.as_str(), config.aad_client_id.as_str()),
            ("theirs", "c")
        );
        assert!(config.use_federated_workload_identity_extension);
    }

    #[test]
    fn what_is_no_configuration_is_said() {
        for text in ["[]", "{", "{\"tags\": 5}"] {
            assert!(CloudConfig::parse(text, |_| None).is_err(), "{text}");
        }
    }

    #[test]
    fn things_of_the_network_may_be_elsewhere() {
        let config = parse(
            r#"{"subscriptionId": "s", "networkResourceSubscriptionID": "n", "resourceGroup": "g",
                "routeTableName": "t", "securityGroupName": "nsg", "securityGroupResourceGroup": "other"}"#,
        );
        let table = "/subscriptions/n/resourceGroups/g/providers/Microsoft.Network/routeTables/t";
        assert_eq!(config.route_table().as_deref(), Some(table));
        let group = config.security_group().unwrap();
        assert!(group.contains("/resourceGroups/other/"), "{group}");
        assert_eq!(parse("{}").route_table(), None);
    }

    #[test]
    fn a_types_own_limit_wins() {
        let config = parse(
            r#"{"cloudProviderRateLimit": true, "cloudProviderRateLimitQPS": 3, "cloudProviderRateLimitBucket": 7,
                "loadBalancerRateLimit": {"cloudProviderRateLimitQPSWrite": 9},
                "interfaceRateLimit": {"cloudProviderRateLimit": false}}"#,
        );
        assert_eq!(config.limits("routeTables"), Some([(3.0, 7), (3.0, 7)]));
        assert_eq!(config.limits("loadBalancers"), Some([(3.0, 7), (9.0, 7)]));
        assert_eq!(config.limits("networkInterfaces"), None);
        assert_eq!(parse("{}").limits("loadBalancers"), None);
    }

    #[test]
    fn tags_are_pairs() {
        let tags = parse_tags("a=1, b = two ,c, =x,d= null ");
        let expected = [("a", "1"), ("b", "two"), ("d", " null ")];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(tags, BTreeMap::from(expected));
    }
}
