//! Env mode, for nodes that still carry the provisioning scripts: the variables those scripts read and the
//! command that starts them, with the values that upstream's parser gives them.

pub mod containerd;
pub mod corefile;
pub mod gpu;
mod scripts;
pub mod sysctl;
mod table;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::{Configuration, NetworkPlugin, NetworkPolicy, encode};
use crate::version;

pub use scripts::{Scripts, command};

/// What of the node, besides its configuration, decides values.
#[derive(Debug, Clone)]
pub struct Host {
    /// How its containerd wants to be configured.
    pub containerd: containerd::Layout,
    /// The driver images its image knows; none where it has no `components.json`.
    pub drivers: gpu::DriverImages,
}

/// A variable of the scripts' environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether nobody may print the value.
    pub is_secret: bool,
}

/// Every variable, in the order of names.
pub fn variables(config: &Configuration, host: &Host) -> Vec<Variable> {
    let config = &without_dead_settings(config);
    let fixed = table::VARIABLES.iter().map(|row| {
        let value = (row.value)(config, host);
        Variable {
            name: row.name.to_owned(),
            is_secret: row.is_secret || is_signed_url(&value),
            value,
        }
    });
    let certificates = config.custom_ca_certs.iter().enumerate();
    let certificates = certificates.map(|(index, certificate)| Variable {
        name: format!("CUSTOM_CA_CERT_{index}"),
        value: one_line(certificate),
        is_secret: false,
    });
    let mut all: Vec<_> = fixed.chain(certificates).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Whether it is a URL with something to keep from others: a password or a signature.
fn is_signed_url(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest.contains(['@', '?']))
}

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

/// The kubelet's configuration file; empty where nothing is said of the kubelet.
pub fn kubelet_file(config: &Configuration) -> String {
    if config.kubelet_config.is_present() {
        encode::encode(
            &*config.kubelet_config.kubelet_config_file_config,
            encode::KUBELET_FILE,
        )
    } else {
        String::new()
    }
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

/// The region's name as clouds compare it: lower case, no spaces.
fn location(config: &Configuration) -> String {
    let words: String = config.cluster_config.location.split_whitespace().collect();
    words.to_lowercase()
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], "")
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

#[cfg(test)]
mod tests;
