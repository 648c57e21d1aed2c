//! Directories that others than us write to.

use ::steps::engine::{Change, Scene};

use super::Changes;
use crate::config::Configuration;

/// Makes them.
pub(super) fn make(_: &Configuration, _: &Scene<'_>) -> Changes {
    const DIRECTORIES: [&str; 11] = [
        "/etc/cni/net.d",
        "/etc/containerd",
        "/etc/kubernetes/certs",
        "/etc/kubernetes/manifests",
        "/etc/kubernetes/volumeplugins",
        "/etc/systemd/system/kubelet.service.d",
        "/opt/azure/containers",
        "/opt/bin",
        "/opt/cni/bin",
        "/var/lib/cni",
        "/var/lib/kubelet",
    ];
    Ok(DIRECTORIES
        .into_iter()
        .map(|path| Change::directory(path, 0o755))
        .collect())
}
