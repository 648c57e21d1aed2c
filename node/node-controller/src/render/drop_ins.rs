//! Drop-ins of `kubelet.service`: upstream's names, one concern each.

use super::kubeconfig::{BOOTSTRAP_KUBECONFIG, CA_FILE, KUBECONFIG, server, token};
use super::kubelet::{CONFIG_FILE, RESERVED_SLICE, reserved_slice};
use super::{proxy, units};
use crate::config::{Configuration, KubeletDisk};
use crate::machine::Machine;
use crate::version::at_least;

/// Where they lie.
pub const DIRECTORY: &str = "/etc/systemd/system/kubelet.service.d";

/// A drop-in, wanted or not: what an earlier configuration wanted must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// Its file name.
    pub name: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Its text, if it is wanted.
    pub text: Option<String>,
}

/// Every drop-in there is.
pub fn drop_ins(config: &Configuration, machine: &Machine) -> Vec<DropIn> {
    let since = |release| at_least(&config.kubernetes_version, release);
    let kubelet = &config.kubelet_config;
    let with_file = kubelet.enable_kubelet_config_file;
    let with_token = token(config).is_some();
    let cgroup2 = config.needs_cgroupv2 == Some(true);
    let moved = kubelet.kubelet_disk_type == KubeletDisk::TempDisk;
    let slice = reserved_slice(config);
    let flag = format!("--config {CONFIG_FILE}");
    let file = variable("KUBELET_CONFIG_FILE_FLAGS", &flag);
    let containerd = variable("KUBELET_CONTAINERD_FLAGS", &runtime_flags(slice));
    let remote = variable(
        "KUBELET_CONTAINER_RUNTIME_FLAG",
        "--container-runtime=remote",
    );
    let driver = variable("KUBELET_CGROUP_FLAGS", "--cgroup-driver=systemd");
    let rows = [
        ("10-componentconfig.conf", 0o600, with_file, file),
        ("10-containerd-base-flag.conf", 0o644, true, containerd),
        (
            "10-container-runtime-flag.conf",
            0o644,
            !since([1, 27, 0]),
            remote,
        ),
        ("10-cgroupv2.conf", 0o644, cgroup2, driver),
        (
            "10-bindmount.conf",
            0o644,
            moved,
            AFTER_BIND_MOUNT.to_owned(),
        ),
        (
            "10-watchdog.conf",
            0o644,
            since([1, 32, 0]),
            WATCHDOG.to_owned(),
        ),
        (
            "10-httpproxy.conf",
            0o644,
            proxy::wanted(config),
            proxy::UNIT_DROP_IN.to_owned(),
        ),
        (
            "10-kubereserved-slice.conf",
            0o644,
            slice,
            units::in_reserved_slice(),
        ),
        ("10-tlsbootstrap.conf", 0o600, with_token, tls_bootstrap()),
        (
            "10-credential-validation.conf",
            0o600,
            with_token,
            credential_validation(config),
        ),
        (
            "10-ensure-imds-restriction.conf",
            0o600,
            true,
            imds_restriction(config, machine),
        ),
    ];
    rows.into_iter()
        .map(|(name, mode, wanted, text)| DropIn {
            name,
            mode,
            text: wanted.then_some(text),
        })
        .collect()
}

const AFTER_BIND_MOUNT: &str = "[Unit]\nRequires=bind-mount.service\nAfter=bind-mount.service\n";
/// Kubelets since 1.32 tell systemd that they are alive.
const WATCHDOG: &str = "[Service]\nWatchdogSec=60s\n";

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

fn imds_restriction(config: &Configuration, machine: &Machine) -> String {
    let wish = &config.imds_restriction_config;
    let address = machine.addresses.first().map_or("", String::as_str);
    format!(
        "[Service]\nEnvironment=\"PRIMARY_NIC_IP={address}\"\n\
         Environment=\"ENABLE_IMDS_RESTRICTION={}\"\n\
         Environment=\"INSERT_IMDS_RESTRICTION_RULE_TO_MANGLE_TABLE={}\"\n",
        wish.enable_imds_restriction, wish.insert_imds_restriction_rule_to_mangle_table,
    )
}
