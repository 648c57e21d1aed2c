//! The kubelet's flags, labels, configuration file, environment file and drop-ins.

use std::collections::BTreeMap;

use super::azure::CUSTOM_ENVIRONMENT;
use super::kubeconfig::{self, BOOTSTRAP_KUBECONFIG, CA_FILE, KUBECONFIG, server};
use crate::config::{Configuration, KubeletDisk, NetworkPolicy};
use crate::environment::is_custom_cloud;
use crate::machine::Machine;
use crate::version::at_least;

/// The environment file of `kubelet.service`.
pub const DEFAULT_FILE: &str = "/etc/default/kubelet";
/// The kubelet's `KubeletConfiguration`.
pub const CONFIG_FILE: &str = "/etc/default/kubeletconfig.json";
/// Where drop-ins of `kubelet.service` lie.
pub const DROP_INS: &str = "/etc/systemd/system/kubelet.service.d";
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

/// A drop-in of `kubelet.service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// Its file name.
    pub name: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Its text.
    pub text: String,
}

/// Every drop-in the configuration asks for.
pub fn drop_ins(config: &Configuration, machine: &Machine) -> Vec<DropIn> {
    let since = |release| at_least(&config.kubernetes_version, release);
    let token = kubeconfig::token(config).is_some();
    let proxied = super::proxy::wanted(config);
    let slice = reserved_slice(config);
    let rows: [(bool, &'static str, u32, String); 9] = [
        (
            config.kubelet_config.enable_kubelet_config_file,
            "10-componentconfig.conf",
            0o600,
            variable(
                "KUBELET_CONFIG_FILE_FLAGS",
                &format!("--config {CONFIG_FILE}"),
            ),
        ),
        (
            true,
            "10-containerd-base-flag.conf",
            0o644,
            variable("KUBELET_CONTAINERD_FLAGS", &runtime_flags(slice)),
        ),
        (
            !since([1, 27, 0]),
            "10-container-runtime-flag.conf",
            0o644,
            variable(
                "KUBELET_CONTAINER_RUNTIME_FLAG",
                "--container-runtime=remote",
            ),
        ),
        (
            config.needs_cgroupv2 == Some(true),
            "10-cgroupv2.conf",
            0o644,
            variable("KUBELET_CGROUP_FLAGS", "--cgroup-driver=systemd"),
        ),
        (
            config.kubelet_config.kubelet_disk_type == KubeletDisk::TempDisk,
            "10-bindmount.conf",
            0o644,
            "[Unit]\nRequires=bind-mount.service\nAfter=bind-mount.service\n".to_owned(),
        ),
        (
            since([1, 32, 0]),
            "10-watchdog.conf",
            0o644,
            "[Service]\nWatchdogSec=60s\n".to_owned(),
        ),
        (
            proxied,
            "10-httpproxy.conf",
            0o644,
            super::proxy::UNIT_DROP_IN.to_owned(),
        ),
        (
            slice,
            "10-kubereserved-slice.conf",
            0o644,
            super::units::in_reserved_slice(),
        ),
        (token, "10-tlsbootstrap.conf", 0o600, tls_bootstrap()),
    ];
    let mut drop_ins: Vec<DropIn> = rows
        .into_iter()
        .filter(|(wanted, ..)| *wanted)
        .map(|(_, name, mode, text)| DropIn { name, mode, text })
        .collect();
    if token {
        let name = "10-credential-validation.conf";
        drop_ins.push(DropIn {
            name,
            mode: 0o600,
            text: credential_validation(config),
        });
    }
    drop_ins.push(imds_restriction(config, machine));
    drop_ins
}

/// Names of every drop-in we ever write: those that are not wanted any more must go.
pub const DROP_IN_NAMES: [&str; 11] = [
    "10-componentconfig.conf",
    "10-containerd-base-flag.conf",
    "10-container-runtime-flag.conf",
    "10-cgroupv2.conf",
    "10-bindmount.conf",
    "10-watchdog.conf",
    "10-httpproxy.conf",
    "10-kubereserved-slice.conf",
    "10-tlsbootstrap.conf",
    "10-credential-validation.conf",
    "10-ensure-imds-restriction.conf",
];

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

fn variable(name: &str, value: &str) -> String {
    format!("[Service]\nEnvironment=\"{name}={value}\"\n")
}

fn runtime_flags(reserved_slice: bool) -> String {
    let slice = if reserved_slice {
        RESERVED_SLICE
    } else {
        "system.slice"
    };
    format!(
        "--runtime-request-timeout=15m \
         --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
         --runtime-cgroups=/{slice}/containerd.service"
    )
}

fn tls_bootstrap() -> String {
    let flags = format!("--kubeconfig {KUBECONFIG} --bootstrap-kubeconfig {BOOTSTRAP_KUBECONFIG}");
    variable("KUBELET_TLS_BOOTSTRAP_FLAGS", &flags)
}

fn credential_validation(config: &Configuration) -> String {
    format!(
        "[Service]\nEnvironment=\"CREDENTIAL_VALIDATION_KUBE_CA_FILE={CA_FILE}\"\n\
         Environment=\"CREDENTIAL_VALIDATION_APISERVER_URL={}\"\n",
        server(config)
    )
}

fn imds_restriction(config: &Configuration, machine: &Machine) -> DropIn {
    let wish = &config.imds_restriction_config;
    let address = machine.addresses.first().map_or("", String::as_str);
    let text = format!(
        "[Service]\nEnvironment=\"PRIMARY_NIC_IP={address}\"\n\
         Environment=\"ENABLE_IMDS_RESTRICTION={}\"\n\
         Environment=\"INSERT_IMDS_RESTRICTION_RULE_TO_MANGLE_TABLE={}\"\n",
        wish.enable_imds_restriction, wish.insert_imds_restriction_rule_to_mangle_table,
    );
    DropIn {
        name: "10-ensure-imds-restriction.conf",
        mode: 0o600,
        text,
    }
}
