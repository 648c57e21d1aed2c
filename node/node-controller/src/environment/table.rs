//! Every variable and where its value comes from.

use crate::config::predicates::{is_custom_cloud, is_kubenet_bridge, is_nvidia_node};
use crate::config::{
    BootstrappingAuthMethod, Configuration, KubeletDisk, LoadBalancerSku, NetworkPlugin,
    NetworkPolicy, VmType,
};
use crate::environment::containerd::config as containerd_config;
use crate::environment::corefile::corefile;
use crate::environment::{Host, base64, gpu, kubelet_file, location, one_line, sysctl};

/// A variable: its name, its value, and whether that is a secret.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) value: fn(&Configuration, &Host) -> String,
    pub(super) is_secret: bool,
}

macro_rules! variables {
    ($config:ident, $host:ident; $($name:ident $($secret:ident)? = $value:expr;)*) => {
        &[$(Row {
            name: stringify!($name),
            // Some values ask neither.
            value: |$config, $host| { let _ = ($config, $host); ($value).to_string() },
            is_secret: variables!(@secret $($secret)?),
        }),*]
    };
    (@secret) => { false };
    (@secret secret) => { true };
}

pub(super) const VARIABLES: &[Row] = variables! { c, host;
    ADMINUSER = or(&c.linux_admin_username, "azureuser");
    AKS_CUSTOM_CLOUD_CONTAINER_REGISTRY_DNS_SUFFIX = c.custom_cloud_config.container_registry_dns_suffix;
    API_SERVER_NAME = c.api_server_config.api_server_name;
    APISERVER_PUBLIC_KEY = c.api_server_config.api_server_public_key;
    ARM_RESOURCE_ENDPOINT = resource_manager(c);
    ARTIFACT_STREAMING_ENABLED = c.enable_artifact_streaming;
    AZURE_ENVIRONMENT_FILEPATH = if is_custom_cloud(c) { "/etc/kubernetes/akscustom.json" } else { "" };
    AZURE_PRIVATE_REGISTRY_SERVER = c.azure_private_registry_server;
    BOOTSTRAP_PROFILE_CONTAINER_REGISTRY_SERVER = c.bootstrap_profile_container_registry_server;
    CLI_TOOL = "ctr";
    CLOUDPROVIDER_BACKOFF = c.cluster_config.cloud_provider_config.backoff.unwrap_or(true);
    CLOUDPROVIDER_BACKOFF_DURATION = c.cluster_config.cloud_provider_config.backoff_duration.unwrap_or(5);
    CLOUDPROVIDER_BACKOFF_EXPONENT = go_real(c.cluster_config.cloud_provider_config.backoff_exponent.unwrap_or(0.0));
    CLOUDPROVIDER_BACKOFF_JITTER = go_real(c.cluster_config.cloud_provider_config.backoff_jitter.unwrap_or(0.0));
    CLOUDPROVIDER_BACKOFF_MODE = or(&c.cluster_config.cloud_provider_config.backoff_mode, "v2");
    CLOUDPROVIDER_BACKOFF_RETRIES = c.cluster_config.cloud_provider_config.backoff_retries.unwrap_or(6);
    CLOUDPROVIDER_RATELIMIT = c.cluster_config.cloud_provider_config.rate_limit.unwrap_or(true);
    CLOUDPROVIDER_RATELIMIT_BUCKET = c.cluster_config.cloud_provider_config.rate_limit_bucket.unwrap_or(100);
    CLOUDPROVIDER_RATELIMIT_BUCKET_WRITE = c.cluster_config.cloud_provider_config.rate_limit_bucket_write.unwrap_or(100);
    CLOUDPROVIDER_RATELIMIT_QPS = go_real(c.cluster_config.cloud_provider_config.rate_limit_qps.unwrap_or(10.0));
    CLOUDPROVIDER_RATELIMIT_QPS_WRITE = go_real(c.cluster_config.cloud_provider_config.rate_limit_qps_write.unwrap_or(10.0));
    CONFIG_GPU_DRIVER_IF_NEEDED = c.gpu_config.config_gpu_driver;
    CONTAINERD_CONFIG_CONTENT = base64(&containerd_config(c, host.containerd, true));
    CONTAINERD_CONFIG_NO_GPU_CONTENT = base64(&containerd_config(c, host.containerd, false));
    CONTAINERD_DOWNLOAD_URL_BASE = c.containerd_config.containerd_download_url_base;
    CONTAINERD_PACKAGE_URL = c.containerd_config.containerd_package_url;
    CONTAINERD_ULIMITS = ulimits(c);
    CONTAINERD_VERSION = c.containerd_config.containerd_version;
    CREDENTIAL_PROVIDER_DOWNLOAD_URL = c.kube_binary_config.linux_credential_provider_url;
    CSE_CONFIG_FILEPATH = "/opt/azure/containers/provision_configs.sh";
    CSE_DISTRO_HELPERS_FILEPATH = "/opt/azure/containers/provision_source_distro.sh";
    CSE_DISTRO_INSTALL_FILEPATH = "/opt/azure/containers/provision_installs_distro.sh";
    CSE_HELPERS_FILEPATH = "/opt/azure/containers/provision_source.sh";
    CSE_INSTALL_FILEPATH = "/opt/azure/containers/provision_installs.sh";
    CSE_TIMEOUT = timeout_seconds(c);
    CUSTOM_CA_TRUST_COUNT = c.custom_ca_certs.len();
    CUSTOM_ENV_JSON = c.custom_cloud_config.custom_env_json_content;
    CUSTOM_KUBE_BINARY_URL = c.kube_binary_config.custom_kube_binary_url;
    CUSTOM_SEARCH_DOMAIN_FILEPATH = "/opt/azure/containers/setup-custom-search-domains.sh";
    CUSTOM_SEARCH_DOMAIN_NAME = c.custom_search_domain_config.domain_name;
    CUSTOM_SEARCH_REALM_PASSWORD secret = c.custom_search_domain_config.realm_password.reveal();
    CUSTOM_SEARCH_REALM_USER = c.custom_search_domain_config.realm_user;
    CUSTOM_SECURE_TLS_BOOTSTRAPPING_CLIENT_DOWNLOAD_URL = given(&c.bootstrapping_config.secure_tls_bootstrapping_custom_client_download_url);
    DHCPV6_CONFIG_FILEPATH = "/opt/azure/containers/enable-dhcpv6.sh";
    DHCPV6_SERVICE_FILEPATH = "/etc/systemd/system/dhcpv6.service";
    DISABLE_PUBKEY_AUTH = c.disable_pubkey_auth.unwrap_or_default();
    DISABLE_SSH = c.enable_ssh == Some(false);
    ENABLE_GPU_DEVICE_PLUGIN_IF_NEEDED = c.gpu_config.gpu_device_plugin;
    ENABLE_HOSTS_CONFIG_AGENT = c.enable_hosts_config_agent;
    ENABLE_IMDS_RESTRICTION = c.imds_restriction_config.enable_imds_restriction;
    ENABLE_KUBELET_SERVING_CERTIFICATE_ROTATION = c.kubelet_config.kubelet_config_file_config.server_tls_bootstrap;
    ENABLE_MANAGED_GPU = c.gpu_config.enable_managed_gpu;
    ENABLE_MANAGED_GPU_DRA = c.gpu_config.enable_managed_gpu_dra;
    ENABLE_SECURE_TLS_BOOTSTRAPPING = c.bootstrapping_config.bootstrapping_auth_method == BootstrappingAuthMethod::SecureTlsBootstrapping;
    ENABLE_UNATTENDED_UPGRADES = c.enable_unattended_upgrade;
    ENSURE_NO_DUPE_PROMISCUOUS_BRIDGE = is_kubenet_bridge(c);
    EXCLUDE_MASTER_FROM_STANDARD_LB = c.cluster_config.load_balancer_config.exclude_master_from_standard_load_balancer.unwrap_or(true);
    GPU_DRIVER_TYPE = gpu::needs(&c.vm_size).driver;
    GPU_DRIVER_VERSION = host.drivers.driver_version(&c.vm_size);
    GPU_IMAGE_SHA = host.drivers.image_suffix(&c.vm_size);
    GPU_INSTANCE_PROFILE = c.gpu_config.gpu_instance_profile;
    GPU_NEEDS_FABRIC_MANAGER = gpu::needs(&c.vm_size).fabric_manager;
    GPU_NODE = is_nvidia_node(c);
    HAS_CUSTOM_SEARCH_DOMAIN = has_search_domain(c);
    HAS_KUBELET_DISK_TYPE = c.kubelet_config.kubelet_disk_type == KubeletDisk::TempDisk;
    HTTP_PROXY_TRUSTED_CA = one_line(&c.http_proxy_config.proxy_trusted_ca);
    HTTP_PROXY_URLS secret = c.http_proxy_config.http_proxy.reveal();
    HTTPS_PROXY_URLS secret = c.http_proxy_config.https_proxy.reveal();
    IDENTITY_BINDINGS_LOCAL_AUTHORITY_SNI = c.service_account_image_pull_profile.local_authority_sni;
    INIT_AKS_CLOUD_FILEPATH = "/opt/azure/containers/init-aks-cloud.sh";
    INSERT_IMDS_RESTRICTION_RULE_TO_MANGLE_TABLE = c.imds_restriction_config.insert_imds_restriction_rule_to_mangle_table;
    IPV6_DUAL_STACK_ENABLED = c.ipv6_dual_stack_enabled;
    IS_CUSTOM_CLOUD = is_custom_cloud(c);
    IS_KATA = c.is_kata;
    IS_VHD = c.is_vhd.unwrap_or(true);
    KUBE_BINARY_URL = c.kube_binary_config.kube_binary_url;
    KUBE_CA_CRT = c.kubernetes_ca_cert;
    KUBELET_CLIENT_CERT_CONTENT = c.kubelet_config.kubelet_client_cert_content;
    KUBELET_CLIENT_CONTENT secret = c.kubelet_config.kubelet_client_key.reveal();
    KUBELET_CONFIG_FILE_CONTENT = base64(&kubelet_file(c));
    KUBELET_CONFIG_FILE_ENABLED = c.kubelet_config.enable_kubelet_config_file;
    KUBELET_FLAGS = pairs(&c.kubelet_config.kubelet_flags, " ");
    KUBELET_NODE_LABELS = pairs(&c.kubelet_config.kubelet_node_labels, ",");
    KUBENET_TEMPLATE = base64(include_str!("../../data/kubenet.conflist.tmpl"));
    KUBEPROXY_URL = c.kube_proxy_url;
    KUBERNETES_VERSION = c.kubernetes_version;
    LOAD_BALANCER_DISABLE_OUTBOUND_SNAT = c.cluster_config.load_balancer_config.disable_outbound_snat;
    LOAD_BALANCER_SKU = match c.cluster_config.load_balancer_config.load_balancer_sku {
        LoadBalancerSku::Basic => "basic",
        LoadBalancerSku::Standard => "standard",
        LoadBalancerSku::Unspecified | LoadBalancerSku::Unknown(_) => "",
    };
    LOCALDNS_COREFILE_BASE = base64(&corefile(c, false));
    LOCALDNS_COREFILE_WITH_HOSTS = base64(&corefile(c, true));
    LOCALDNS_CPU_LIMIT = local_dns_limit(c, c.local_dns_profile.cpu_limit_in_milli_cores, |milli| format!("{:.1}%", f64::from(milli) / 10.0), "200.0%");
    LOCALDNS_CRITICAL_FQDNS = critical_names(c);
    LOCALDNS_GENERATED_COREFILE = base64(&corefile(c, false));
    LOCALDNS_HOSTS_PLUGIN_REFRESH_INTERVAL_IN_SECONDS = match c.local_dns_profile.hosts_plugin_refresh_interval_in_seconds {
        Some(seconds) if seconds > 0 => seconds.to_string(),
        _ => String::new(),
    };
    LOCALDNS_MEMORY_LIMIT = local_dns_limit(c, c.local_dns_profile.memory_limit_in_mb, |mb| format!("{mb}M"), "128M");
    LOCATION = c.cluster_config.location;
    MANAGED_GPU_EXPERIENCE_AFEC_ENABLED = c.gpu_config.managed_gpu_experience_afec_enabled;
    MAXIMUM_LOADBALANCER_RULE_COUNT = c.cluster_config.load_balancer_config.max_load_balancer_rule_count.unwrap_or(148);
    MESSAGE_OF_THE_DAY = c.message_of_the_day;
    MIG_NODE = !c.gpu_config.gpu_instance_profile.is_empty();
    MOBY_VERSION = "";
    NEEDS_CGROUPV2 = c.needs_cgroupv2.unwrap_or_default();
    NETWORK_ISOLATED_CLUSTER_TEST_MODE = false;
    NETWORK_MODE = "";
    NETWORK_PLUGIN = match c.network_config.network_plugin {
        NetworkPlugin::None => "none",
        NetworkPlugin::Azure => "azure",
        NetworkPlugin::Kubenet => "kubenet",
        NetworkPlugin::Unspecified | NetworkPlugin::Unknown(_) => "",
    };
    NETWORK_POLICY = match c.network_config.network_policy {
        NetworkPolicy::None => "none",
        NetworkPolicy::Azure => "azure",
        NetworkPolicy::Calico => "calico",
        NetworkPolicy::Unspecified | NetworkPolicy::Unknown(_) => "",
    };
    NETWORK_SECURITY_GROUP = c.cluster_config.cluster_network_config.security_group_name;
    NO_PROXY_URLS = c.http_proxy_config.no_proxy_entries.join(",");
    NVIDIA_MIG_PROFILE_LAYOUT = c.gpu_config.mig_profile_layout.join(",");
    NVIDIA_MIG_STRATEGY = c.gpu_config.mig_strategy;
    OUTBOUND_COMMAND = c.outbound_command;
    PRE_PROVISION_ONLY = c.pre_provision_only;
    PRIMARY_AVAILABILITY_SET = c.cluster_config.primary_availability_set;
    PRIMARY_SCALE_SET = c.cluster_config.primary_scale_set;
    PRIVATE_EGRESS_PROXY_ADDRESS = c.private_egress_proxy_address;
    PRIVATE_KUBE_BINARY_URL = c.kube_binary_config.private_kube_binary_url;
    PROVISION_OUTPUT = "/var/log/azure/cluster-provision-cse-output.log";
    PROXY_VARS secret = proxy_exports(c);
    REPO_DEPOT_ENDPOINT = if is_custom_cloud(c) { &c.custom_cloud_config.repo_depot_endpoint } else { "" };
    RESOURCE_GROUP = c.cluster_config.resource_group;
    ROUTE_TABLE = c.cluster_config.cluster_network_config.route_table;
    RUNC_PACKAGE_URL = c.runc_config.runc_package_url;
    RUNC_VERSION = c.runc_config.runc_version;
    SECURE_TLS_BOOTSTRAPPING_AAD_RESOURCE = given(&c.bootstrapping_config.secure_tls_bootstrapping_aad_resource);
    SECURE_TLS_BOOTSTRAPPING_GET_ACCESS_TOKEN_TIMEOUT = given(&c.bootstrapping_config.secure_tls_bootstrapping_get_access_token_timeout);
    SECURE_TLS_BOOTSTRAPPING_GET_ATTESTED_DATA_TIMEOUT = given(&c.bootstrapping_config.secure_tls_bootstrapping_get_attested_data_timeout);
    SECURE_TLS_BOOTSTRAPPING_GET_CREDENTIAL_TIMEOUT = given(&c.bootstrapping_config.secure_tls_bootstrapping_get_credential_timeout);
    SECURE_TLS_BOOTSTRAPPING_GET_INSTANCE_DATA_TIMEOUT = given(&c.bootstrapping_config.secure_tls_bootstrapping_get_instance_data_timeout);
    SECURE_TLS_BOOTSTRAPPING_GET_NONCE_TIMEOUT = given(&c.bootstrapping_config.secure_tls_bootstrapping_get_nonce_timeout);
    SECURE_TLS_BOOTSTRAPPING_USER_ASSIGNED_IDENTITY_ID = given(&c.bootstrapping_config.secure_tls_bootstrapping_user_assigned_identity_id);
    SECURE_TLS_BOOTSTRAPPING_VALIDATE_KUBECONFIG_TIMEOUT = given(&c.bootstrapping_config.secure_tls_bootstrapping_validate_kubeconfig_timeout);
    SERVICE_ACCOUNT_IMAGE_PULL_DEFAULT_CLIENT_ID = c.service_account_image_pull_profile.default_client_id;
    SERVICE_ACCOUNT_IMAGE_PULL_DEFAULT_TENANT_ID = c.service_account_image_pull_profile.default_tenant_id;
    SERVICE_ACCOUNT_IMAGE_PULL_ENABLED = c.service_account_image_pull_profile.enabled;
    SERVICE_PRINCIPAL_CLIENT_ID = c.auth_config.service_principal_id;
    SERVICE_PRINCIPAL_FILE_CONTENT secret = c.auth_config.service_principal_secret.reveal();
    SGX_NODE = matches!(c.vm_size.as_str(), "Standard_DC2s" | "Standard_DC4s");
    SHOULD_CONFIG_CONTAINERD_ULIMITS = c.custom_linux_os_config.ulimit_config.is_present();
    SHOULD_CONFIG_SWAP_FILE = c.custom_linux_os_config.enable_swap_config && c.custom_linux_os_config.swap_file_size > 0;
    SHOULD_CONFIG_TRANSPARENT_HUGE_PAGE = !c.custom_linux_os_config.transparent_hugepage_support.is_empty() || !c.custom_linux_os_config.transparent_defrag.is_empty();
    SHOULD_CONFIGURE_CUSTOM_CA_TRUST = !c.custom_ca_certs.is_empty();
    SHOULD_CONFIGURE_HTTP_PROXY = !c.http_proxy_config.http_proxy.is_empty() || !c.http_proxy_config.https_proxy.is_empty();
    SHOULD_CONFIGURE_HTTP_PROXY_CA = !c.http_proxy_config.proxy_trusted_ca.is_empty();
    SHOULD_ENABLE_HOSTS_PLUGIN = c.local_dns_profile.enable_local_dns && c.local_dns_profile.enable_hosts_plugin;
    SHOULD_ENABLE_LOCALDNS = c.local_dns_profile.enable_local_dns;
    SKIP_WAAGENT_HOLD = true;
    STANDARD_SECONDARY_NIC_COUNT = c.network_config.standard_secondary_nic_count;
    SUBNET = c.cluster_config.cluster_network_config.subnet;
    SUBSCRIPTION_ID = c.auth_config.subscription_id;
    SWAP_FILE_SIZE_MB = c.custom_linux_os_config.swap_file_size;
    SYSCTL_CONTENT = base64(&sysctl::file(&c.custom_linux_os_config.sysctl_config));
    TARGET_CLOUD = if is_custom_cloud(c) { "AzureStackCloud" } else { cloud(c).name };
    TARGET_ENVIRONMENT = if is_custom_cloud(c) { "akscustom" } else { cloud(c).name };
    TENANT_ID = c.auth_config.tenant_id;
    THP_DEFRAG = c.custom_linux_os_config.transparent_defrag;
    THP_ENABLED = c.custom_linux_os_config.transparent_hugepage_support;
    TLS_BOOTSTRAP_TOKEN secret = c.bootstrapping_config.tls_bootstrapping_token.as_ref().map_or("", |token| token.reveal());
    USE_INSTANCE_METADATA = c.cluster_config.use_instance_metadata;
    USE_MANAGED_IDENTITY_EXTENSION = c.auth_config.use_managed_identity_extension;
    USER_ASSIGNED_IDENTITY_ID = c.auth_config.assigned_identity_id;
    VIRTUAL_NETWORK = c.cluster_config.cluster_network_config.vnet_name;
    VIRTUAL_NETWORK_RESOURCE_GROUP = c.cluster_config.cluster_network_config.vnet_resource_group;
    VM_TYPE = match c.cluster_config.vm_type {
        VmType::Standard => "standard",
        VmType::Vmss => "vmss",
        VmType::Unspecified | VmType::Unknown(_) => "",
    };
    VNET_CNI_PLUGINS_URL = c.network_config.vnet_cni_plugins_url;
};

fn or<'a>(given: &'a str, default: &'a str) -> &'a str {
    if given.is_empty() { default } else { given }
}

fn given(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

fn pairs(map: &std::collections::BTreeMap<String, String>, between: &str) -> String {
    let pairs: Vec<_> = map
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(between)
}

/// A public cloud: its name and where its resource manager is.
struct Cloud {
    name: &'static str,
    resource_manager: &'static str,
}

const fn azure(name: &'static str, resource_manager: &'static str) -> Cloud {
    Cloud {
        name,
        resource_manager,
    }
}

fn cloud(c: &Configuration) -> Cloud {
    let public = "https://management.azure.com/";
    match location(c).as_str() {
        china if china.starts_with("china") => {
            azure("AzureChinaCloud", "https://management.chinacloudapi.cn/")
        }
        "germanynortheast" | "germanycentral" => azure("AzureGermanCloud", public),
        us if us.starts_with("usgov") || us.starts_with("usdod") => azure(
            "AzureUSGovernmentCloud",
            "https://management.usgovcloudapi.net/",
        ),
        _ => azure("AzurePublicCloud", public),
    }
}

/// A cloud of its own says it in its environment, which upstream reads here as plain JSON.
fn resource_manager(c: &Configuration) -> String {
    if !is_custom_cloud(c) {
        return cloud(c).resource_manager.to_owned();
    }
    let content = &c.custom_cloud_config.custom_env_json_content;
    let Ok(serde_json::Value::Object(environment)) = serde_json::from_str(content) else {
        return String::new();
    };
    let mut entries = environment.iter();
    let endpoint = entries.find(|(key, _)| key.eq_ignore_ascii_case("resourceManagerEndpoint"));
    let endpoint = endpoint.and_then(|(_, value)| value.as_str());
    endpoint.unwrap_or_default().to_owned()
}

/// Spaces become new lines in the scripts.
fn ulimits(c: &Configuration) -> String {
    let limits = &c.custom_linux_os_config.ulimit_config;
    if !limits.is_present() {
        return String::new();
    }
    let line =
        |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value} "));
    let memory = line("LimitMEMLOCK", &limits.max_locked_memory);
    let files = line("LimitNOFILE", &limits.no_file);
    format!(
        "[Service] {}{}",
        memory.unwrap_or_default(),
        files.unwrap_or_default()
    )
}

/// Seconds a provision may take: 15 minutes, unless something up to six hours was said.
pub(super) fn timeout_seconds(c: &Configuration) -> i32 {
    match c.cse_timeout {
        Some(seconds) if (1..=21600).contains(&seconds) => seconds,
        _ => 900,
    }
}

fn has_search_domain(c: &Configuration) -> bool {
    let domain = &c.custom_search_domain_config;
    !domain.domain_name.is_empty()
        && !domain.realm_user.is_empty()
        && !domain.realm_password.is_empty()
}

fn local_dns_limit(
    c: &Configuration,
    limit: Option<i32>,
    show: fn(i32) -> String,
    default: &str,
) -> String {
    match limit {
        Some(limit) if limit != 0 && c.local_dns_profile.enable_local_dns => show(limit),
        _ => default.to_owned(),
    }
}

fn critical_names(c: &Configuration) -> String {
    let names = c
        .local_dns_profile
        .critical_fqdns
        .iter()
        .map(|name| name.trim());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    names.join(",")
}

/// Shell text that the scripts evaluate.
fn proxy_exports(c: &Configuration) -> String {
    let proxy = &c.http_proxy_config;
    let mut exports = String::new();
    if !proxy.no_proxy_entries.is_empty() {
        exports += &format!("export NO_PROXY=\"{}\"; ", proxy.no_proxy_entries.join(","));
    }
    if !proxy.https_proxy.is_empty() {
        exports += &format!("export HTTPS_PROXY=\"{}\"; ", proxy.https_proxy.reveal());
    }
    if !proxy.http_proxy.is_empty() {
        exports += &format!("export http_proxy=\"{}\";", proxy.http_proxy.reveal());
    }
    exports
}

/// A double as Go's `%v` prints it.
fn go_real(real: f64) -> String {
    if real.is_nan() {
        return "NaN".into();
    }
    if real.is_infinite() {
        return if real < 0.0 { "-Inf" } else { "+Inf" }.into();
    }
    let scientific = format!("{real:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => real.to_string(),
    }
}
