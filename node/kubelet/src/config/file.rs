//! The fields of `KubeletConfiguration` that this kubelet heeds, with upstream's defaults. `known` has all there are.
#![allow(
    missing_docs,
    reason = "each name is the one that upstream's reference documents"
)]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::text::GoDuration;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Enabled {
    pub enabled: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenWebhook {
    pub enabled: bool,
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: GoDuration,
}

impl Default for TokenWebhook {
    fn default() -> Self {
        Self {
            enabled: true,
            cache_ttl: GoDuration::seconds(120),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct X509 {
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Authentication {
    pub x509: X509,
    pub webhook: TokenWebhook,
    pub anonymous: Enabled,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessWebhook {
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: GoDuration,
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: GoDuration,
}

impl Default for AccessWebhook {
    fn default() -> Self {
        Self {
            cache_authorized_ttl: GoDuration::seconds(300),
            cache_unauthorized_ttl: GoDuration::seconds(30),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Authorization {
    pub mode: String,
    pub webhook: AccessWebhook,
}

impl Default for Authorization {
    fn default() -> Self {
        Self {
            mode: "Webhook".to_owned(),
            webhook: AccessWebhook::default(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CrashLoopBackOff {
    pub max_container_restart_period: GoDuration,
}

impl Default for CrashLoopBackOff {
    fn default() -> Self {
        Self {
            max_container_restart_period: GoDuration::seconds(300),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterTaint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownGrace {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

macro_rules! configuration {
    ($( $field:ident: $type:ty = $default:expr; )*) => {
        /// The configuration.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct KubeletConfiguration {
            $( pub $field: $type, )*
            #[serde(rename = "serverTLSBootstrap")]
            pub server_tls_bootstrap: bool,
            #[serde(rename = "clusterDNS")]
            pub cluster_dns: Vec<String>,
            #[serde(rename = "kubeAPIQPS")]
            pub kube_api_qps: i32,
            #[serde(rename = "kubeAPIBurst")]
            pub kube_api_burst: i32,
            #[serde(rename = "cpuCFSQuota")]
            pub cpu_cfs_quota: bool,
            #[serde(rename = "imageMinimumGCAge")]
            pub image_minimum_gc_age: GoDuration,
            #[serde(rename = "imageMaximumGCAge")]
            pub image_maximum_gc_age: GoDuration,
            #[serde(rename = "imageGCHighThresholdPercent")]
            pub image_gc_high_threshold_percent: i32,
            #[serde(rename = "imageGCLowThresholdPercent")]
            pub image_gc_low_threshold_percent: i32,
            #[serde(rename = "providerID")]
            pub provider_id: String,
            #[serde(rename = "eventRecordQPS")]
            pub event_record_qps: i32,
            #[serde(rename = "podCIDR")]
            pub pod_cidr: String,
            #[serde(rename = "staticPodURL")]
            pub static_pod_url: String,
            #[serde(rename = "cgroupsPerQOS")]
            pub cgroups_per_qos: bool,
        }

        impl Default for KubeletConfiguration {
            fn default() -> Self {
                Self {
                    $( $field: $default, )*
                    server_tls_bootstrap: false,
                    cluster_dns: Vec::new(),
                    kube_api_qps: 50,
                    kube_api_burst: 100,
                    cpu_cfs_quota: true,
                    image_minimum_gc_age: GoDuration::seconds(120),
                    image_maximum_gc_age: GoDuration::seconds(0),
                    image_gc_high_threshold_percent: 85,
                    image_gc_low_threshold_percent: 80,
                    provider_id: String::new(),
                    event_record_qps: 50,
                    pod_cidr: String::new(),
                    static_pod_url: String::new(),
                    cgroups_per_qos: true,
                }
            }
        }
    };
}

type Map = BTreeMap<String, String>;

configuration! {
    enable_server: bool = true;
    static_pod_path: String = String::new();
    sync_frequency: GoDuration = GoDuration::seconds(60);
    file_check_frequency: GoDuration = GoDuration::seconds(20);
    address: String = "0.0.0.0".to_owned();
    port: u16 = 10250;
    read_only_port: u16 = 0;
    tls_cert_file: String = String::new();
    tls_private_key_file: String = String::new();
    tls_cipher_suites: Vec<String> = Vec::new();
    tls_min_version: String = String::new();
    rotate_certificates: bool = false;
    authentication: Authentication = Authentication::default();
    authorization: Authorization = Authorization::default();
    healthz_port: u16 = 10248;
    healthz_bind_address: String = "127.0.0.1".to_owned();
    cluster_domain: String = String::new();
    node_status_update_frequency: GoDuration = GoDuration::seconds(10);
    node_status_report_frequency: GoDuration = GoDuration::seconds(300);
    node_lease_duration_seconds: i32 = 40;
    cgroup_root: String = String::new();
    cgroup_driver: String = "cgroupfs".to_owned();
    runtime_request_timeout: GoDuration = GoDuration::seconds(120);
    max_pods: i32 = 110;
    pods_per_core: i32 = 0;
    pod_pids_limit: i64 = -1;
    resolv_conf: Option<String> = None;
    node_status_max_images: i32 = 50;
    serialize_image_pulls: bool = true;
    max_parallel_image_pulls: Option<i32> = None;
    eviction_hard: Map = Map::new();
    eviction_soft: Map = Map::new();
    eviction_soft_grace_period: Map = Map::new();
    eviction_minimum_reclaim: Map = Map::new();
    eviction_pressure_transition_period: GoDuration = GoDuration::seconds(300);
    eviction_max_pod_grace_period: i32 = 0;
    merge_default_eviction_settings: bool = false;
    protect_kernel_defaults: bool = false;
    fail_swap_on: bool = true;
    fail_cgroup_v1: bool = true;
    container_log_max_size: String = "10Mi".to_owned();
    container_log_max_files: i32 = 5;
    system_reserved: Map = Map::new();
    kube_reserved: Map = Map::new();
    system_reserved_cgroup: String = String::new();
    kube_reserved_cgroup: String = String::new();
    enforce_node_allocatable: Vec<String> = vec!["pods".to_owned()];
    allowed_unsafe_sysctls: Vec<String> = Vec::new();
    feature_gates: BTreeMap<String, bool> = BTreeMap::new();
    register_node: bool = true;
    register_with_taints: Vec<RegisterTaint> = Vec::new();
    seccomp_default: bool = false;
    container_runtime_endpoint: String = "unix:///run/containerd/containerd.sock".to_owned();
    image_service_endpoint: String = String::new();
    pod_logs_dir: String = "/var/log/pods".to_owned();
    crash_loop_back_off: CrashLoopBackOff = CrashLoopBackOff::default();
    enable_debugging_handlers: bool = true;
    shutdown_grace_period: GoDuration = GoDuration::seconds(0);
    shutdown_grace_period_critical_pods: GoDuration = GoDuration::seconds(0);
    shutdown_grace_period_by_pod_priority: Vec<ShutdownGrace> = Vec::new();
}

impl KubeletConfiguration {
    /// Who asks for another time between two looks at the status has it reported as often, as upstream has it; what
    /// is usual counts as not asked for, because AKS' files always name it.
    pub(super) fn fill_frequencies(&mut self) {
        let usual = KubeletConfiguration::default();
        let is_usual = self.node_status_update_frequency == usual.node_status_update_frequency;
        if !is_usual && self.node_status_report_frequency == usual.node_status_report_frequency {
            self.node_status_report_frequency = self.node_status_update_frequency;
        }
    }

    /// A file's thresholds stand alone; without any, or if it says so, upstream's are added.
    pub(super) fn fill_eviction(&mut self) {
        if !self.eviction_hard.is_empty() && !self.merge_default_eviction_settings {
            return;
        }
        for (signal, value) in [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ] {
            self.eviction_hard
                .entry(signal.to_owned())
                .or_insert_with(|| value.to_owned());
        }
    }
}
