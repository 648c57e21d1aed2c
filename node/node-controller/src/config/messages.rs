//! Every message of `aksnodeconfig.v1`, field by field. Numbers and names are the contract; a field that
//! is gone (10 `teleport_config`, and 4, 5 and 9 of the bootstrapping config) is an unknown field.

use std::collections::BTreeMap;

use super::declare::{Part, choices, json_name, messages};
use super::secret::Secret;

messages! {
    /// What a node is asked to be.
    Configuration {
        /// `v1`.
        1 version: String,
        2 kube_binary_config: Part<KubeBinaryConfig>,
        3 custom_cloud_config: Part<CustomCloudConfig>,
        4 api_server_config: Part<ApiServerConfig>,
        5 cluster_config: Part<ClusterConfig>,
        6 bootstrapping_config: Part<BootstrappingConfig>,
        7 auth_config: Part<AuthConfig>,
        8 runc_config: Part<RuncConfig>,
        9 containerd_config: Part<ContainerdConfig>,
        11 kubelet_config: Part<KubeletConfig>,
        12 custom_search_domain_config: Part<CustomSearchDomainConfig>,
        13 custom_linux_os_config: Part<CustomLinuxOsConfig>,
        14 http_proxy_config: Part<HttpProxyConfig>,
        15 gpu_config: Part<GpuConfig>,
        16 network_config: Part<NetworkConfig>,
        /// Base64 of the cluster CA's PEM.
        17 kubernetes_ca_cert: String,
        /// Such as `1.34.8`.
        18 kubernetes_version: String,
        /// The image of kube-proxy.
        19 kube_proxy_url: String,
        /// Such as `Standard_D2s_v3`.
        20 vm_size: String,
        /// Empty for `azureuser`.
        21 linux_admin_username: String,
        /// True unless said otherwise.
        22 is_vhd: Option<bool>,
        /// Absent leaves ssh as it is.
        23 enable_ssh: Option<bool>,
        24 enable_unattended_upgrade: bool,
        /// Base64 of the text.
        25 message_of_the_day: String,
        26 enable_hosts_config_agent: bool,
        /// Each base64 of PEM.
        27 custom_ca_certs: Vec<String>,
        /// No longer means anything.
        28 provision_output: String,
        /// Does not mean anything yet.
        29 workload_runtime: WorkloadRuntime,
        30 ipv6_dual_stack_enabled: bool,
        /// A command line that proves egress; empty for no proof.
        31 outbound_command: String,
        32 azure_private_registry_server: String,
        33 private_egress_proxy_address: String,
        34 enable_artifact_streaming: bool,
        35 is_kata: bool,
        /// False unless said otherwise.
        36 needs_cgroupv2: Option<bool>,
        /// No longer means anything.
        37 disable_custom_data: bool,
        /// The registry of a network-isolated cluster, perhaps with a path.
        38 bootstrap_profile_container_registry_server: String,
        39 imds_restriction_config: Part<ImdsRestrictionConfig>,
        /// Bakes an image: everything but the kubelet.
        40 pre_provision_only: bool,
        41 local_dns_profile: Part<LocalDnsProfile>,
        /// False unless said otherwise.
        42 disable_pubkey_auth: Option<bool>,
        43 service_account_image_pull_profile: Part<ServiceAccountImagePullProfile>,
        /// Seconds that a provision may take.
        44 cse_timeout: Option<i32>,
        /// Environment of the launcher, carried by the custom data.
        45 enabled_features: BTreeMap<String, String>,
    }

    /// How the API server is reached.
    ApiServerConfig {
        /// Base64 of PEM.
        1 api_server_public_key: String,
        /// A name or an IPv4 address.
        2 api_server_name: String,
    }

    /// Who the node is in the cloud.
    AuthConfig {
        1 tenant_id: String,
        2 subscription_id: String,
        /// `msi` where an identity is used.
        3 service_principal_id: String,
        /// Base64 of the secret.
        4 service_principal_secret: Secret,
        /// The kubelet identity's client id.
        5 assigned_identity_id: String,
        6 use_managed_identity_extension: bool,
    }

    /// How the kubelet gets its first credential.
    BootstrappingConfig {
        1 bootstrapping_auth_method: BootstrappingAuthMethod,
        /// Does not mean anything yet.
        2 cluster_join_method: ClusterJoinMethod,
        /// `id.secret`.
        3 tls_bootstrapping_token: Option<Secret>,
        6 secure_tls_bootstrapping_aad_resource: Option<String>,
        7 secure_tls_bootstrapping_user_assigned_identity_id: Option<String>,
        8 secure_tls_bootstrapping_custom_client_download_url: Option<String>,
        10 secure_tls_bootstrapping_validate_kubeconfig_timeout: Option<String>,
        11 secure_tls_bootstrapping_get_access_token_timeout: Option<String>,
        12 secure_tls_bootstrapping_get_instance_data_timeout: Option<String>,
        13 secure_tls_bootstrapping_get_nonce_timeout: Option<String>,
        14 secure_tls_bootstrapping_get_attested_data_timeout: Option<String>,
        15 secure_tls_bootstrapping_get_credential_timeout: Option<String>,
    }

    /// What the cloud provider must know of the cluster: `azure.json`.
    ClusterConfig {
        1 cluster_network_config: Part<ClusterNetworkConfig>,
        2 load_balancer_config: Part<LoadBalancerConfig>,
        3 resource_group: String,
        4 location: String,
        5 vm_type: VmType,
        6 primary_availability_set: String,
        7 primary_scale_set: String,
        8 use_instance_metadata: bool,
        9 cloud_provider_config: Part<CloudProviderConfig>,
    }

    /// The network that the cluster is in.
    ClusterNetworkConfig {
        1 vnet_name: String,
        2 vnet_resource_group: String,
        3 subnet: String,
        4 security_group_name: String,
        5 route_table: String,
        /// Where the local DNS forwards to; 10.0.0.10 unless said otherwise.
        6 core_dns_service_ip: String,
    }

    /// The cluster's load balancer.
    LoadBalancerConfig {
        1 load_balancer_sku: LoadBalancerSku,
        /// True unless said otherwise.
        2 exclude_master_from_standard_load_balancer: Option<bool>,
        /// 148 unless said otherwise.
        3 max_load_balancer_rule_count: Option<i32>,
        4 disable_outbound_snat: bool,
    }

    /// How hard the cloud provider asks.
    CloudProviderConfig {
        1 backoff: Option<bool>,
        2 backoff_mode: String,
        3 backoff_retries: Option<i32>,
        4 backoff_exponent: Option<f64>,
        5 backoff_duration: Option<i32>,
        6 backoff_jitter: Option<f64>,
        7 rate_limit: Option<bool>,
        8 rate_limit_qps: Option<f64>,
        9 rate_limit_qps_write: Option<f64>,
        10 rate_limit_bucket: Option<i32>,
        11 rate_limit_bucket_write: Option<i32>,
    }

    /// Where containerd comes from.
    ContainerdConfig {
        1 containerd_download_url_base: String,
        2 containerd_version: String,
        3 containerd_package_url: String,
    }

    /// Where runc comes from.
    RuncConfig {
        1 runc_version: String,
        2 runc_package_url: String,
    }

    /// Where Kubernetes' programs and the pause image come from.
    KubeBinaryConfig {
        1 kube_binary_url: String,
        2 custom_kube_binary_url: String,
        3 private_kube_binary_url: String,
        /// The pause image.
        4 pod_infra_container_image_url: String,
        5 linux_credential_provider_url: String,
    }

    /// A cloud that is none of the public ones.
    CustomCloudConfig {
        /// `akscustom`, in any case, makes it one.
        1 custom_cloud_env_name: String,
        2 repo_depot_endpoint: String,
        /// Base64 of JSON.
        3 custom_env_json_content: String,
        4 container_registry_dns_suffix: String,
    }

    /// A domain to join; done when all three are given.
    CustomSearchDomainConfig {
        1 domain_name: String,
        2 realm_user: String,
        3 realm_password: Secret,
    }

    /// The proxy to the outside. The URLs may carry a password.
    HttpProxyConfig {
        1 http_proxy: Secret,
        2 https_proxy: Secret,
        3 no_proxy_entries: Vec<String>,
        /// Base64 of PEM.
        4 proxy_trusted_ca: String,
    }

    /// Whether pods may ask the instance metadata service.
    ImdsRestrictionConfig {
        1 enable_imds_restriction: bool,
        2 insert_imds_restriction_rule_to_mangle_table: bool,
    }

    /// Images pulled with the identity of a pod's service account.
    ServiceAccountImagePullProfile {
        1 enabled: bool,
        2 default_client_id: String,
        3 default_tenant_id: String,
        4 local_authority_sni: String,
    }

    /// The pod network.
    NetworkConfig {
        1 network_plugin: NetworkPlugin,
        2 network_policy: NetworkPolicy,
        3 vnet_cni_plugins_url: String,
        /// No longer means anything.
        4 cni_plugins_url: String,
        5 standard_secondary_nic_count: i32,
    }

    /// GPUs.
    GpuConfig {
        /// False unless said otherwise.
        1 enable_nvidia: Option<bool>,
        2 config_gpu_driver: bool,
        3 gpu_device_plugin: bool,
        /// `MIG1g`, `MIG2g`, `MIG3g`, `MIG4g` or `MIG7g`.
        4 gpu_instance_profile: String,
        /// Does not mean anything yet.
        5 enable_amd_gpu: Option<bool>,
        6 managed_gpu_experience_afec_enabled: bool,
        7 enable_managed_gpu: bool,
        /// `None`, `Single` or `Mixed`.
        8 mig_strategy: String,
        9 mig_profile_layout: Vec<String>,
        10 enable_managed_gpu_dra: bool,
    }

    /// The kernel and its limits.
    CustomLinuxOsConfig {
        1 sysctl_config: Part<SysctlConfig>,
        2 ulimit_config: Part<UlimitConfig>,
        3 enable_swap_config: bool,
        /// Megabytes.
        4 swap_file_size: i32,
        5 transparent_hugepage_support: String,
        6 transparent_defrag: String,
    }

    /// Limits of containerd.
    UlimitConfig {
        1 no_file: Option<String>,
        2 max_locked_memory: Option<String>,
    }

    /// Kernel settings.
    SysctlConfig {
        1 net_core_somaxconn: Option<i32>,
        2 net_core_netdev_max_backlog: Option<i32>,
        3 net_core_rmem_default: Option<i32>,
        4 net_core_rmem_max: Option<i32>,
        5 net_core_wmem_default: Option<i32>,
        6 net_core_wmem_max: Option<i32>,
        7 net_core_optmem_max: Option<i32>,
        8 net_ipv4_tcp_max_syn_backlog: Option<i32>,
        9 net_ipv4_tcp_max_tw_buckets: Option<i32>,
        10 net_ipv4_tcp_fin_timeout: Option<i32>,
        11 net_ipv4_tcp_keepalive_time: Option<i32>,
        12 net_ipv4_tcp_keepalive_probes: Option<i32>,
        13 net_ipv4_tcpkeepalive_intvl: Option<i32>,
        14 net_ipv4_tcp_tw_reuse: Option<bool>,
        /// `low high`.
        15 net_ipv4_ip_local_port_range: Option<String>,
        16 net_ipv4_neigh_default_gc_thresh1: Option<i32>,
        17 net_ipv4_neigh_default_gc_thresh2: Option<i32>,
        18 net_ipv4_neigh_default_gc_thresh3: Option<i32>,
        19 net_netfilter_nf_conntrack_max: Option<i32>,
        20 net_netfilter_nf_conntrack_buckets: Option<i32>,
        21 fs_inotify_max_user_watches: Option<i32>,
        22 fs_file_max: Option<i32>,
        23 fs_aio_max_nr: Option<i32>,
        24 fs_nr_open: Option<i32>,
        25 kernel_threads_max: Option<i32>,
        26 vm_max_map_count: Option<i32>,
        27 vm_swappiness: Option<i32>,
        28 vm_vfs_cache_pressure: Option<i32>,
    }

    /// A DNS server on the node.
    LocalDnsProfile {
        1 enable_local_dns: bool,
        2 cpu_limit_in_milli_cores: Option<i32>,
        3 memory_limit_in_mb: Option<i32>,
        /// By domain, for what asks through the node.
        4 vnet_dns_overrides: BTreeMap<String, LocalDnsOverrides>,
        /// By domain, for what asks through the cluster.
        5 kube_dns_overrides: BTreeMap<String, LocalDnsOverrides>,
        6 enable_hosts_plugin: bool,
        7 critical_fqdns: Vec<String>,
        8 hosts_plugin_refresh_interval_in_seconds: Option<i32>,
    }

    /// How the local DNS treats one domain.
    LocalDnsOverrides {
        /// `Error` or `Log`.
        1 query_logging: String,
        /// `PreferUDP` or `ForceTCP`.
        2 protocol: String,
        /// `VnetDNS` or `ClusterCoreDNS`.
        3 forward_destination: String,
        /// `Sequential`, `RoundRobin` or `Random`.
        4 forward_policy: String,
        5 max_concurrent: Option<i32>,
        6 cache_duration_in_seconds: Option<i32>,
        7 serve_stale_duration_in_seconds: Option<i32>,
        /// `Verify`, `Immediate` or `Disable`.
        8 serve_stale: String,
        9 failfast_all_unhealthy_upstreams: Option<bool>,
        10 health_check: Part<LocalDnsHealthCheck>,
    }

    /// How the local DNS looks after its upstreams.
    LocalDnsHealthCheck {
        1 duration: Option<String>,
        2 no_rec: Option<bool>,
        3 domain: Option<String>,
    }

    /// The kubelet.
    KubeletConfig {
        /// Keys with their leading `--`.
        1 kubelet_flags: BTreeMap<String, String>,
        2 kubelet_node_labels: BTreeMap<String, String>,
        3 kubelet_disk_type: KubeletDisk,
        4 enable_kubelet_config_file: bool,
        5 kubelet_config_file_config: Part<KubeletConfigFileConfig>,
        /// Base64 of PEM.
        6 kubelet_client_key: Secret,
        /// Base64 of PEM.
        7 kubelet_client_cert_content: String,
        /// Where containerd keeps its data.
        8 container_data_dir: String,
    }

    /// The kubelet's own configuration file, in the order it is written.
    KubeletConfigFileConfig {
        1 kind: String,
        2 api_version: String,
        3 static_pod_path: String,
        4 address: String,
        5 read_only_port: i32,
        6 tls_cert_file: String,
        7 tls_private_key_file: String,
        8 tls_cipher_suites: Vec<String>,
        9 rotate_certificates: bool,
        10 server_tls_bootstrap as "serverTLSBootstrap": bool,
        11 authentication: Part<KubeletAuthentication>,
        12 authorization: Part<KubeletAuthorization>,
        13 event_record_qps as "eventRecordQPS": Option<i32>,
        14 cluster_domain: String,
        15 cluster_dns as "clusterDNS": Vec<String>,
        /// Gone from Kubernetes 1.34 on.
        16 streaming_connection_idle_timeout: String,
        17 node_status_update_frequency: String,
        18 node_status_report_frequency: String,
        19 image_gc_high_threshold_percent as "imageGCHighThresholdPercent": Option<i32>,
        20 image_gc_low_threshold_percent as "imageGCLowThresholdPercent": Option<i32>,
        21 cgroups_per_qos as "cgroupsPerQOS": Option<bool>,
        22 cpu_manager_policy: String,
        23 topology_manager_policy: String,
        24 max_pods: Option<i32>,
        25 pod_pids_limit: Option<i32>,
        26 resolv_conf: String,
        27 cpu_cfs_quota as "cpuCFSQuota": Option<bool>,
        28 cpu_cfs_quota_period as "cpuCFSQuotaPeriod": String,
        29 eviction_hard: BTreeMap<String, String>,
        30 protect_kernel_defaults: bool,
        31 feature_gates: BTreeMap<String, bool>,
        32 fail_swap_on: Option<bool>,
        33 container_log_max_size: String,
        34 container_log_max_files: Option<i32>,
        35 system_reserved: BTreeMap<String, String>,
        36 kube_reserved: BTreeMap<String, String>,
        37 enforce_node_allocatable: Vec<String>,
        41 eviction_soft: BTreeMap<String, String>,
        42 eviction_soft_grace_period: BTreeMap<String, String>,
        43 eviction_max_pod_grace_period: i32,
        44 kube_reserved_cgroup: String,
        45 system_reserved_cgroup: String,
        38 allowed_unsafe_sysctls: Vec<String>,
        39 serialize_image_pulls: Option<bool>,
        40 seccomp_default: bool,
    }

    /// Who may talk to the kubelet.
    KubeletAuthentication {
        1 x509: Part<KubeletX509Authentication>,
        2 webhook: Part<KubeletWebhookAuthentication>,
        3 anonymous: Part<KubeletAnonymousAuthentication>,
    }

    /// By certificate.
    KubeletX509Authentication {
        1 client_ca_file as "clientCAFile": String,
    }

    /// By token. The kubelet knows `cacheTTL`; upstream's contract says `cacheTtl`, which no kubelet reads.
    KubeletWebhookAuthentication {
        1 enabled: bool,
        2 cache_ttl as "cacheTTL" or "cacheTtl": String,
    }

    /// By nothing.
    KubeletAnonymousAuthentication {
        1 enabled: bool,
    }

    /// What they may do.
    KubeletAuthorization {
        1 mode: String,
        2 webhook: Part<KubeletWebhookAuthorization>,
    }

    /// How long the API server's answers are believed.
    KubeletWebhookAuthorization {
        1 cache_authorized_ttl as "cacheAuthorizedTTL" or "cacheAuthorizedTtl": String,
        2 cache_unauthorized_ttl as "cacheUnauthorizedTTL" or "cacheUnauthorizedTtl": String,
    }
}

choices! {
    /// What the kubelet shows first.
    BootstrappingAuthMethod "BOOTSTRAPPING_AUTH_METHOD_" {
        BootstrapToken = 1 "BOOTSTRAP_TOKEN",
        SecureTlsBootstrapping = 2 "SECURE_TLS_BOOTSTRAPPING",
        ArcMsi = 3 "ARC_MSI",
        AzureMsi = 4 "AZURE_MSI",
    }
    /// How the node would join.
    ClusterJoinMethod "CLUSTER_JOIN_METHOD_" {
        GenerateCsr = 1 "GENERATE_CSR",
        UseBootstrappingAuth = 2 "USE_BOOTSTRAPPING_AUTH",
    }
    /// What kind of machine it is to the cloud.
    VmType "VM_TYPE_" {
        Standard = 1 "STANDARD",
        Vmss = 2 "VMSS",
    }
    /// What kind of load balancer.
    LoadBalancerSku "LOAD_BALANCER_SKU_" {
        Basic = 1 "BASIC",
        Standard = 2 "STANDARD",
    }
    /// Who makes the pod network.
    NetworkPlugin "NETWORK_PLUGIN_" {
        None = 1 "NONE",
        Azure = 2 "AZURE",
        Kubenet = 3 "KUBENET",
    }
    /// Who enforces network policies.
    NetworkPolicy "NETWORK_POLICY_" {
        None = 1 "NONE",
        Azure = 2 "AZURE",
        Calico = 3 "CALICO",
    }
    /// Which disk holds the kubelet's data.
    KubeletDisk "KUBELET_DISK_" {
        OsDisk = 1 "OS_DISK",
        TempDisk = 2 "TEMP_DISK",
    }
    /// What runs workloads.
    WorkloadRuntime "WORKLOAD_RUNTIME_" {
        OciContainer = 1 "OCI_CONTAINER",
    }
}
