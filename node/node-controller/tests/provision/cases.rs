//! Configurations: a base that a real producer would send, and what each case changes in it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use node_controller::config::Configuration;
use serde_json::{Value, json};

use crate::machines::{Image, configuration};

/// One configuration on one machine.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) image: Image,
    /// Tags of the virtual machine, as JSON objects.
    pub(crate) tags: &'static str,
    /// A JSON merge patch over the base.
    pub(crate) patch: &'static str,
}

impl Case {
    /// The whole configuration.
    pub(crate) fn configuration(&self) -> Configuration {
        let mut config = base();
        merge(
            &mut config,
            serde_json::from_str(self.patch).expect(self.name),
        );
        configuration(&config)
    }
}

/// The cluster CA of all cases.
pub(crate) const CA: &str = include_str!("ca.pem");

/// What a producer sends for a plain node.
pub(crate) fn base() -> Value {
    json!({
        "version": "v1",
        "kubernetes_version": "1.34.8",
        "kubernetes_ca_cert": STANDARD.encode(CA),
        "vm_size": "Standard_D2s_v3",
        "api_server_config": {"api_server_name": "c-dns-1.hcp.westeurope.azmk8s.io"},
        "auth_config": {
            "tenant_id": "tenant", "subscription_id": "subscription", "service_principal_id": "msi",
            "service_principal_secret": STANDARD.encode("msi"), "assigned_identity_id": "identity",
            "use_managed_identity_extension": true
        },
        "bootstrapping_config": {
            "bootstrapping_auth_method": "BOOTSTRAPPING_AUTH_METHOD_BOOTSTRAP_TOKEN",
            "tls_bootstrapping_token": "abcdef.0123456789abcdef"
        },
        "cluster_config": {
            "resource_group": "MC_rg", "location": "westeurope", "vm_type": "VM_TYPE_VMSS",
            "primary_scale_set": "aks-pool1-1234-vmss", "use_instance_metadata": true,
            "cluster_network_config": {
                "vnet_name": "vnet", "vnet_resource_group": "MC_rg", "subnet": "aks-subnet",
                "security_group_name": "nsg", "route_table": "routes"
            },
            "load_balancer_config": {"load_balancer_sku": "LOAD_BALANCER_SKU_STANDARD"}
        },
        "kube_binary_config": {"pod_infra_container_image_url": "mcr.microsoft.com/oss/kubernetes/pause:3.9"},
        "kubelet_config": {
            "kubelet_flags": {
                "--cloud-provider": "external",
                "--kubeconfig": "/var/lib/kubelet/kubeconfig",
                "--register-with-taints": "dedicated=gpu:NoSchedule",
                "--streaming-connection-idle-timeout": "4h"
            },
            "kubelet_node_labels": {
                "agentpool": "pool1", "kubernetes.azure.com/cluster": "MC_rg", "kubernetes.azure.com/mode": "user"
            },
            "enable_kubelet_config_file": true,
            "kubelet_config_file_config": {
                "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "staticPodPath": "/etc/kubernetes/manifests", "address": "0.0.0.0",
                "tlsCertFile": "/etc/kubernetes/certs/kubeletserver.crt",
                "tlsPrivateKeyFile": "/etc/kubernetes/certs/kubeletserver.key",
                "rotateCertificates": true, "serverTLSBootstrap": true,
                "authentication": {
                    "x509": {"clientCAFile": "/etc/kubernetes/certs/ca.crt"},
                    "webhook": {"enabled": true}, "anonymous": {"enabled": false}
                },
                "authorization": {"mode": "Webhook"},
                "clusterDomain": "cluster.local", "clusterDNS": ["10.0.0.10"],
                "maxPods": 110, "evictionHard": {"memory.available": "750Mi", "nodefs.available": "10%"},
                "protectKernelDefaults": true
            }
        }
    })
}

/// RFC 7396: what is null goes, objects are merged, everything else is replaced.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().map(|object| object.remove(&key))),
            value => merge(&mut target[&key], value),
        }
    }
}

const fn on(image: Image, name: &'static str, patch: &'static str) -> Case {
    Case {
        name,
        image,
        tags: "",
        patch,
    }
}

const fn tagged(name: &'static str, tags: &'static str, patch: &'static str) -> Case {
    Case {
        name,
        image: Image::Aks22,
        tags,
        patch,
    }
}

use Image::{Aks22, Aks24, Bare, Debian};

/// Off Azure nobody answers for the metadata service.
const OFF_AZURE: &str = r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}}"#;

pub(crate) const CASES: &[Case] = &[
    on(Aks22, "base-aks-containerd-1", "{}"),
    on(Aks24, "base-aks-containerd-2", "{}"),
    on(Debian, "base-debian", OFF_AZURE),
    on(Bare, "base-nothing-installed", OFF_AZURE),
    on(
        Aks22,
        "auth-service-principal",
        r#"{"auth_config": {"service_principal_id": "sp", "service_principal_secret": "cyJlY1xyZXQ=", "assigned_identity_id": null, "use_managed_identity_extension": false}}"#,
    ),
    on(
        Aks22,
        "cluster-availability-set",
        r#"{"cluster_config": {"vm_type": "VM_TYPE_STANDARD", "primary_availability_set": "as", "primary_scale_set": null, "load_balancer_config": {"load_balancer_sku": "LOAD_BALANCER_SKU_BASIC", "exclude_master_from_standard_load_balancer": false, "max_load_balancer_rule_count": 250, "disable_outbound_snat": true}}}"#,
    ),
    on(
        Aks22,
        "cluster-cloud-provider",
        r#"{"cluster_config": {"cloud_provider_config": {"backoff": false, "backoff_mode": "v1", "backoff_retries": 3, "backoff_exponent": 1.5, "backoff_duration": 7, "backoff_jitter": 1, "rate_limit": false, "rate_limit_qps": 3.2, "rate_limit_qps_write": 4, "rate_limit_bucket": 20, "rate_limit_bucket_write": 30}}}"#,
    ),
    on(
        Aks22,
        "cloud-custom",
        r#"{"custom_cloud_config": {"custom_cloud_env_name": "AKSCustom", "custom_env_json_content": "eyJuYW1lIjoiYyJ9", "container_registry_dns_suffix": ".azurecr.custom", "repo_depot_endpoint": "https://depot"}, "kubelet_config": {"kubelet_flags": {"--image-credential-provider-config": "/var/lib/kubelet/credential-provider-config.yaml", "--image-credential-provider-bin-dir": "/var/lib/kubelet/credential-provider"}}, "kube_binary_config": {"linux_credential_provider_url": "https://downloads.example/provider.tar.gz#sha256=0eb3e36bfb24dcd9bb1d1bece1531216b59539a8fde17ee80224af0653c92aa3"}}"#,
    ),
    on(
        Aks22,
        "cloud-china",
        r#"{"cluster_config": {"location": "China East 2"}}"#,
    ),
    on(
        Aks22,
        "cloud-us-government",
        r#"{"cluster_config": {"location": "usgovvirginia"}}"#,
    ),
    on(
        Aks22,
        "join-client-certificate",
        r#"{"bootstrapping_config": null, "api_server_config": {"api_server_public_key": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkEK"}, "kubelet_config": {"kubelet_client_key": "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCkEK", "kubelet_client_cert_content": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkIK"}}"#,
    ),
    on(
        Aks22,
        "join-secure-tls",
        r#"{"bootstrapping_config": {"bootstrapping_auth_method": "BOOTSTRAPPING_AUTH_METHOD_SECURE_TLS_BOOTSTRAPPING", "secure_tls_bootstrapping_aad_resource": "resource", "secure_tls_bootstrapping_user_assigned_identity_id": "id", "secure_tls_bootstrapping_validate_kubeconfig_timeout": "1m", "secure_tls_bootstrapping_get_access_token_timeout": "2m", "secure_tls_bootstrapping_get_instance_data_timeout": "3m", "secure_tls_bootstrapping_get_nonce_timeout": "4m", "secure_tls_bootstrapping_get_attested_data_timeout": "5m", "secure_tls_bootstrapping_get_credential_timeout": "6m"}}"#,
    ),
    on(
        Debian,
        "join-secure-tls-debian",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "bootstrapping_config": {"tls_bootstrapping_token": null, "bootstrapping_auth_method": "BOOTSTRAPPING_AUTH_METHOD_SECURE_TLS_BOOTSTRAPPING", "secure_tls_bootstrapping_custom_client_download_url": "https://downloads.example/plain.tar.gz"}}"#,
    ),
    on(
        Aks22,
        "kubelet-every-field",
        r#"{"kubelet_config": {"kubelet_config_file_config": {"readOnlyPort": 10255, "tlsCipherSuites": ["TLS_A", "TLS_B"], "eventRecordQPS": 0, "streamingConnectionIdleTimeout": "4h0m0s", "nodeStatusUpdateFrequency": "10s", "nodeStatusReportFrequency": "5m", "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "cgroupsPerQOS": true, "cpuManagerPolicy": "static", "topologyManagerPolicy": "best-effort", "podPidsLimit": -1, "resolvConf": "/run/systemd/resolve/resolv.conf", "cpuCFSQuota": false, "cpuCFSQuotaPeriod": "200ms", "featureGates": {"A": true, "B": false}, "failSwapOn": false, "containerLogMaxSize": "50M", "containerLogMaxFiles": 5, "systemReserved": {"cpu": "2"}, "kubeReserved": {"memory": "1638Mi"}, "enforceNodeAllocatable": ["pods"], "evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}, "evictionMaxPodGracePeriod": 30, "allowedUnsafeSysctls": ["net.core.somaxconn"], "serializeImagePulls": false, "seccompDefault": true, "authentication": {"webhook": {"cacheTtl": "2m"}}, "authorization": {"webhook": {"cacheAuthorizedTtl": "5m", "cacheUnauthorizedTtl": "30s"}}}}}"#,
    ),
    on(
        Aks22,
        "kubelet-flags-only",
        r#"{"kubelet_config": {"enable_kubelet_config_file": false, "kubelet_config_file_config": null}}"#,
    ),
    on(
        Aks22,
        "kubelet-1.26",
        r#"{"kubernetes_version": "1.26.3", "kube_binary_config": {"kube_binary_url": "https://downloads.example/plain.tar.gz"}}"#,
    ),
    on(
        Debian,
        "kubelet-1.36-on-cgroup-v1",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "kubernetes_version": "1.36.1", "kube_binary_config": {"custom_kube_binary_url": "file:///opt/offline/kubernetes-node.tar.gz"}}"#,
    ),
    on(
        Aks22,
        "kubelet-url-with-digest",
        r#"{"kubernetes_version": "1.35.1", "kube_binary_config": {"kube_binary_url": "https://downloads.example/kube.tar.gz#sha256=0eb3e36bfb24dcd9bb1d1bece1531216b59539a8fde17ee80224af0653c92aa3"}}"#,
    ),
    on(
        Aks22,
        "kubelet-temporary-disk",
        r#"{"kubelet_config": {"kubelet_disk_type": "KUBELET_DISK_TEMP_DISK", "container_data_dir": "/mnt/containerd"}}"#,
    ),
    on(
        Debian,
        "kubelet-temporary-disk-debian",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "kubelet_config": {"kubelet_disk_type": "KUBELET_DISK_TEMP_DISK"}}"#,
    ),
    on(
        Aks22,
        "kubelet-hardened",
        r#"{"needs_cgroupv2": true, "kubelet_config": {"kubelet_config_file_config": {"kubeReservedCgroup": "/kubereserved.slice", "systemReservedCgroup": "/system.slice", "enforceNodeAllocatable": ["pods", "kube-reserved"]}}}"#,
    ),
    on(
        Aks22,
        "serving-self-signed",
        r#"{"kubelet_config": {"kubelet_flags": {"--rotate-server-certificates": "false", "--tls-cert-file": "/etc/kubernetes/certs/kubeletserver.crt"}, "kubelet_config_file_config": {"serverTLSBootstrap": null}}}"#,
    ),
    on(
        Aks22,
        "serving-rotated",
        r#"{"kubelet_config": {"kubelet_flags": {"--rotate-server-certificates": "true", "--tls-cert-file": "/etc/kubernetes/certs/kubeletserver.crt"}}}"#,
    ),
    tagged(
        "serving-rotation-off-by-tag",
        r#"{"name": "aks-disable-kubelet-serving-certificate-rotation", "value": "true"}"#,
        r#"{"kubelet_config": {"kubelet_flags": {"--rotate-server-certificates": "true"}, "kubelet_node_labels": {"kubernetes.azure.com/kubelet-serving-ca": "cluster"}}}"#,
    ),
    on(
        Aks22,
        "trust-custom-cas",
        r#"{"custom_ca_certs": ["LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkEK", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkIK\n"]}"#,
    ),
    on(
        Aks22,
        "proxy",
        r#"{"http_proxy_config": {"http_proxy": "http://user:p%40ss@proxy:3128/", "https_proxy": "http://proxy:3129/", "no_proxy_entries": ["localhost", "10.0.0.0/8", "azmk8s.io"], "proxy_trusted_ca": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkMK"}, "outbound_command": "curl -v --insecure https://mcr.microsoft.com/v2/"}"#,
    ),
    on(
        Aks22,
        "kernel-sysctls",
        r#"{"custom_linux_os_config": {"sysctl_config": {"net_core_somaxconn": 1024, "net_core_netdev_max_backlog": 2000, "net_core_rmem_default": 1, "net_core_rmem_max": 2, "net_core_wmem_default": 3, "net_core_wmem_max": 4, "net_core_optmem_max": 5, "net_ipv4_tcp_tw_reuse": true, "net_ipv4_ip_local_port_range": "1024 65535", "net_netfilter_nf_conntrack_max": 131072, "fs_inotify_max_user_watches": 7, "fs_file_max": 8, "fs_aio_max_nr": 9, "fs_nr_open": 10, "kernel_threads_max": 11}}}"#,
    ),
    on(
        Aks22,
        "kernel-ulimits",
        r#"{"custom_linux_os_config": {"ulimit_config": {"no_file": "1024:2048", "max_locked_memory": "infinity"}}}"#,
    ),
    on(
        Aks22,
        "kernel-swap",
        r#"{"custom_linux_os_config": {"enable_swap_config": true, "swap_file_size": 1500}}"#,
    ),
    on(
        Aks24,
        "kernel-swap-temporary-disk",
        r#"{"custom_linux_os_config": {"enable_swap_config": true, "swap_file_size": 1500}}"#,
    ),
    on(
        Aks22,
        "kernel-huge-pages",
        r#"{"custom_linux_os_config": {"transparent_hugepage_support": "never", "transparent_defrag": "defer+madvise"}}"#,
    ),
    on(
        Aks22,
        "ssh-off",
        r#"{"enable_ssh": false, "disable_pubkey_auth": true}"#,
    ),
    on(
        Aks22,
        "ssh-without-keys",
        r#"{"enable_ssh": true, "disable_pubkey_auth": true}"#,
    ),
    on(
        Aks22,
        "motd",
        r#"{"message_of_the_day": "aGVsbG8K", "linux_admin_username": "nobodyhere"}"#,
    ),
    on(
        Debian,
        "motd-debian",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "message_of_the_day": "aGVsbG8K"}"#,
    ),
    on(
        Aks22,
        "network-private-hosts",
        r#"{"enable_hosts_config_agent": true, "api_server_config": {"api_server_name": "c.privatelink.westeurope.azmk8s.io"}}"#,
    ),
    on(
        Aks22,
        "network-address-of-api-server",
        r#"{"api_server_config": {"api_server_name": "10.1.2.3"}}"#,
    ),
    on(
        Debian,
        "network-port-of-api-server",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "api_server_config": {"api_server_name": "kyanite.example:6443"}}"#,
    ),
    on(
        Aks22,
        "network-localdns",
        r#"{"cluster_config": {"cluster_network_config": {"core_dns_service_ip": "10.2.0.10"}}, "local_dns_profile": {"enable_local_dns": true, "cpu_limit_in_milli_cores": 1500, "memory_limit_in_mb": 256, "vnet_dns_overrides": {".": {"query_logging": "Log", "protocol": "PreferUDP", "forward_destination": "ClusterCoreDNS", "forward_policy": "RoundRobin", "max_concurrent": 1000, "cache_duration_in_seconds": 3600, "serve_stale_duration_in_seconds": 600, "serve_stale": "Verify"}}, "kube_dns_overrides": {"cluster.local": {"query_logging": "Error", "protocol": "ForceTCP", "forward_policy": "Random", "serve_stale": "Disable", "failfast_all_unhealthy_upstreams": true, "health_check": {"duration": "2s", "no_rec": true, "domain": "example.org"}}}}}"#,
    ),
    on(
        Aks22,
        "network-localdns-hosts",
        r#"{"local_dns_profile": {"enable_local_dns": true, "enable_hosts_plugin": true, "critical_fqdns": ["mcr.microsoft.com", " acs-mirror.azureedge.net"], "hosts_plugin_refresh_interval_in_seconds": 2, "vnet_dns_overrides": {".": {}}}}"#,
    ),
    on(
        Aks22,
        "network-kubenet",
        r#"{"network_config": {"network_plugin": "NETWORK_PLUGIN_KUBENET"}}"#,
    ),
    on(
        Aks24,
        "network-kubenet-containerd-2",
        r#"{"network_config": {"network_plugin": "NETWORK_PLUGIN_KUBENET", "network_policy": "NETWORK_POLICY_NONE"}}"#,
    ),
    on(
        Aks22,
        "network-kubenet-calico",
        r#"{"network_config": {"network_plugin": "NETWORK_PLUGIN_KUBENET", "network_policy": "NETWORK_POLICY_CALICO"}}"#,
    ),
    on(
        Aks22,
        "network-azure",
        r#"{"network_config": {"network_plugin": "NETWORK_PLUGIN_AZURE", "network_policy": "NETWORK_POLICY_AZURE", "vnet_cni_plugins_url": "https://downloads.example/plain.tar.gz"}}"#,
    ),
    on(
        Aks22,
        "network-azure-calico",
        r#"{"network_config": {"network_plugin": "NETWORK_PLUGIN_AZURE", "network_policy": "NETWORK_POLICY_CALICO"}}"#,
    ),
    on(
        Aks22,
        "network-dual-stack",
        r#"{"ipv6_dual_stack_enabled": true}"#,
    ),
    on(
        Debian,
        "network-dual-stack-debian",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "ipv6_dual_stack_enabled": true}"#,
    ),
    on(
        Aks22,
        "network-secondary-interfaces",
        r#"{"network_config": {"standard_secondary_nic_count": 1}}"#,
    ),
    on(
        Aks22,
        "network-isolated",
        r#"{"bootstrap_profile_container_registry_server": "registry.azurecr.io/aks", "kubelet_config": {"kubelet_flags": {"--image-credential-provider-config": "/var/lib/kubelet/credential-provider-config.yaml", "--image-credential-provider-bin-dir": "/var/lib/kubelet/credential-provider"}}, "kube_binary_config": {"linux_credential_provider_url": "https://downloads.example/plain.tar.gz"}, "service_account_image_pull_profile": {"enabled": true, "default_client_id": "client", "default_tenant_id": "tenant", "local_authority_sni": "sni.example"}}"#,
    ),
    on(
        Aks22,
        "network-search-domain",
        r#"{"custom_search_domain_config": {"domain_name": "corp.example", "realm_user": "joiner", "realm_password": "secret"}}"#,
    ),
    on(
        Aks22,
        "imds-restricted",
        r#"{"imds_restriction_config": {"enable_imds_restriction": true}}"#,
    ),
    on(
        Aks22,
        "imds-restricted-in-mangle",
        r#"{"imds_restriction_config": {"enable_imds_restriction": true, "insert_imds_restriction_rule_to_mangle_table": true}}"#,
    ),
    on(
        Debian,
        "imds-restricted-with-nft",
        r#"{"is_vhd": false, "cluster_config": {"use_instance_metadata": false}, "imds_restriction_config": {"enable_imds_restriction": true}}"#,
    ),
    on(Aks22, "containers-cgroup2", r#"{"needs_cgroupv2": true}"#),
    tagged(
        "containers-gpu-without-driver",
        r#"{"name": "SkipGpuDriverInstall", "value": "true"}"#,
        r#"{"vm_size": "Standard_NC6s_v3", "gpu_config": {"enable_nvidia": true}}"#,
    ),
    on(
        Aks22,
        "containers-gpu",
        r#"{"vm_size": "Standard_NC6s_v3", "gpu_config": {"enable_nvidia": true, "config_gpu_driver": true}}"#,
    ),
    on(
        Aks24,
        "containers-gpu-containerd-2",
        r#"{"needs_cgroupv2": true, "gpu_config": {"enable_nvidia": true}}"#,
    ),
    on(Aks22, "containers-kata", r#"{"is_kata": true}"#),
    on(
        Aks24,
        "containers-kata-streaming",
        r#"{"is_kata": true, "enable_artifact_streaming": true}"#,
    ),
    on(
        Aks22,
        "containers-streaming",
        r#"{"enable_artifact_streaming": true}"#,
    ),
    on(
        Aks22,
        "containers-packages",
        r#"{"containerd_config": {"containerd_version": "1.7.30", "containerd_package_url": "https://downloads.example/moby-containerd.deb?sig=signature"}, "runc_config": {"runc_package_url": "/opt/offline/runc.deb"}}"#,
    ),
    on(Aks22, "upgrades", r#"{"enable_unattended_upgrade": true}"#),
    on(Aks22, "bake-only", r#"{"pre_provision_only": true}"#),
];
