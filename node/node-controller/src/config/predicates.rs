//! What follows from a configuration in one word, for steps and scripts alike.

use super::{Configuration, NetworkPlugin, NetworkPolicy};
use crate::version;

/// The configuration without what this Kubernetes no longer has: since 1.34 the kubelet fails on
/// `--streaming-connection-idle-timeout`.
pub fn without_dead_settings(config: &Configuration) -> Configuration {
    let mut config = config.clone();
    if version::at_least(&config.kubernetes_version, [1, 34, 0])
        && config.kubelet_config.is_present()
    {
        let kubelet = &mut *config.kubelet_config;
        kubelet
            .kubelet_flags
            .remove("--streaming-connection-idle-timeout");
        if kubelet.kubelet_config_file_config.is_present() {
            kubelet
                .kubelet_config_file_config
                .streaming_connection_idle_timeout
                .clear();
        }
    }
    config
}

/// Whether it is a node with NVIDIA GPUs.
pub fn is_nvidia_node(config: &Configuration) -> bool {
    config.gpu_config.enable_nvidia.unwrap_or_default()
}

/// Whether containerd makes the pod network from kubenet's template.
pub fn is_kubenet_bridge(config: &Configuration) -> bool {
    let network = &config.network_config;
    network.network_plugin == NetworkPlugin::Kubenet
        && network.network_policy != NetworkPolicy::Calico
}

/// Whether it is a cloud of its own.
pub fn is_custom_cloud(config: &Configuration) -> bool {
    let name = &config.custom_cloud_config.custom_cloud_env_name;
    name.eq_ignore_ascii_case("akscustom")
}
