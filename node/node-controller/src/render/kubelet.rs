//! The kubelet's flags, labels and environment file.

use std::collections::BTreeMap;

use super::azure::CUSTOM_ENVIRONMENT;
use crate::config::predicates::is_custom_cloud;
use crate::config::{Configuration, NetworkPolicy};
use crate::machine::Machine;
use crate::version::at_least;

/// The environment file of `kubelet.service`.
pub const DEFAULT_FILE: &str = "/etc/default/kubelet";
/// The kubelet's `KubeletConfiguration`.
pub const CONFIG_FILE: &str = "/etc/default/kubeletconfig.json";
/// The serving certificate, where the kubelet does not ask the cluster for one.
pub const SERVING_CERTIFICATE: &str = "/etc/kubernetes/certs/kubeletserver.crt";
/// Its key.
pub const SERVING_KEY: &str = "/etc/kubernetes/certs/kubeletserver.key";
/// The slice of its own that a hardened node gives the kubelet and containerd.
pub const RESERVED_SLICE: &str = "kubereserved.slice";

const SERVING_LABEL: (&str, &str) = ("kubernetes.azure.com/kubelet-serving-ca", "cluster");
const EXPORTER_LABEL: (&str, &str) = ("kubernetes.azure.com/localdns-exporter", "enabled");

/// Where the kubelet's serving certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// From the cluster, renewed by the kubelet.
    Rotated,
    /// Self-signed, made by us.
    SelfSigned,
    /// Self-signed because a tag of the virtual machine says so, whatever the configuration says.
    ForcedSelfSigned,
}

/// Decides where the serving certificate comes from.
pub fn serving(config: &Configuration, machine: &Machine) -> Serving {
    if !config
        .kubelet_config
        .kubelet_config_file_config
        .server_tls_bootstrap
    {
        return Serving::SelfSigned;
    }
    match machine.is_tagged("aks-disable-kubelet-serving-certificate-rotation") {
        true => Serving::ForcedSelfSigned,
        false => Serving::Rotated,
    }
}

/// The flags, `--name=value`: the producer's in the order of their names, then ours.
pub fn flags(config: &Configuration, machine: &Machine) -> String {
    let mut flags = config.kubelet_config.kubelet_flags.clone();
    match serving(config, machine) {
        Serving::Rotated => {
            flags.retain(|name, value| {
                let own = [
                    ("--tls-cert-file", SERVING_CERTIFICATE),
                    ("--tls-private-key-file", SERVING_KEY),
                ];
                !own.contains(&(name.as_str(), value.as_str()))
            });
        }
        Serving::ForcedSelfSigned => {
            if let Some(rotate) = flags.get_mut("--rotate-server-certificates") {
                *rotate = "false".to_owned();
            }
        }
        Serving::SelfSigned => {}
    }
    let mut words: Vec<String> = flags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.extend(own_flags(config, machine, &flags));
    words.join(" ")
}

/// What the node adds: its address, without which a node of an external cloud provider has none
/// since 1.29, and leave to run on cgroup v1, which kubelets since 1.35 otherwise refuse.
fn own_flags(
    config: &Configuration,
    machine: &Machine,
    given: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut flags = Vec::new();
    let in_file = config.kubelet_config.enable_kubelet_config_file;
    if tolerates_cgroup_v1(config, machine) && !in_file && !given.contains_key("--fail-cgroupv1") {
        flags.push("--fail-cgroupv1=false".to_owned());
    }
    let addressless = !given.contains_key("--node-ip") && !machine.addresses.is_empty();
    if at_least(&config.kubernetes_version, [1, 29, 0]) && addressless {
        flags.push(format!("--node-ip={}", machine.addresses.join(",")));
    }
    flags
}

/// Whether this kubelet must be told that cgroup v1 will do.
pub(super) fn tolerates_cgroup_v1(config: &Configuration, machine: &Machine) -> bool {
    at_least(&config.kubernetes_version, [1, 35, 0]) && !machine.unified_cgroups
}

/// The labels the node registers with, `key=value` in the order of their keys, then ours.
pub fn labels(config: &Configuration, machine: &Machine) -> String {
    let mut labels = config.kubelet_config.kubelet_node_labels.clone();
    let mut added = Vec::new();
    match serving(config, machine) {
        Serving::Rotated if !labels.contains_key(SERVING_LABEL.0) => added.push(SERVING_LABEL),
        Serving::ForcedSelfSigned => {
            labels.remove(SERVING_LABEL.0);
        }
        _ => {}
    }
    let exporter = machine.has_unit("localdns-exporter.socket");
    if config.local_dns_profile.enable_local_dns
        && exporter
        && !labels.contains_key(EXPORTER_LABEL.0)
    {
        added.push(EXPORTER_LABEL);
    }
    let given = labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let words: Vec<String> = given
        .chain(added)
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    words.join(",")
}

/// The environment file of `kubelet.service`.
pub fn default_file(config: &Configuration, machine: &Machine) -> String {
    let policy = match config.network_config.network_policy {
        NetworkPolicy::None => "none",
        NetworkPolicy::Azure => "azure",
        NetworkPolicy::Calico => "calico",
        _ => "",
    };
    let mut text = format!(
        "KUBELET_FLAGS={}\nKUBELET_REGISTER_SCHEDULABLE=true\nNETWORK_POLICY={policy}\n\
         KUBELET_IMAGE=\nKUBELET_NODE_LABELS={}\n",
        flags(config, machine),
        labels(config, machine),
    );
    if is_custom_cloud(config) {
        text += &format!("AZURE_ENVIRONMENT_FILEPATH={CUSTOM_ENVIRONMENT}\n");
    }
    text
}

/// Whether the kubelet and containerd get a slice of their own.
pub fn reserved_slice(config: &Configuration) -> bool {
    let (kube, _) = reserved_cgroups(config);
    kube.trim_start_matches('/') == RESERVED_SLICE
}

/// The cgroups reserved for Kubernetes and for the system, from the file where there is one, else
/// from the flags.
pub fn reserved_cgroups(config: &Configuration) -> (String, String) {
    let kubelet = &config.kubelet_config;
    if kubelet.enable_kubelet_config_file {
        let file = &kubelet.kubelet_config_file_config;
        return (
            file.kube_reserved_cgroup.clone(),
            file.system_reserved_cgroup.clone(),
        );
    }
    let flag = |name: &str| kubelet.kubelet_flags.get(name).cloned().unwrap_or_default();
    (
        flag("--kube-reserved-cgroup"),
        flag("--system-reserved-cgroup"),
    )
}
