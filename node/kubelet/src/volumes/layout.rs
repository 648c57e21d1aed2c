//! Where a pod's volumes lie: upstream's directories, because CSI drivers, log shippers and people look there.

use std::path::{Path, PathBuf};

/// Kinds of volumes that have a directory of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Plugin {
    /// `emptyDir`.
    EmptyDir,
    /// `configMap`.
    ConfigMap,
    /// `secret`.
    Secret,
    /// `projected`.
    Projected,
    /// `downwardAPI`.
    DownwardApi,
    /// `local` persistent volumes.
    Local,
    /// Volumes of CSI drivers.
    Csi,
}

impl Plugin {
    /// The name of its directory.
    pub(super) fn directory(self) -> &'static str {
        match self {
            Plugin::EmptyDir => "kubernetes.io~empty-dir",
            Plugin::ConfigMap => "kubernetes.io~configmap",
            Plugin::Secret => "kubernetes.io~secret",
            Plugin::Projected => "kubernetes.io~projected",
            Plugin::DownwardApi => "kubernetes.io~downward-api",
            Plugin::Local => "kubernetes.io~local-volume",
            Plugin::Csi => "kubernetes.io~csi",
        }
    }

    /// Whether its content never touches a disk: it may be secret.
    pub(super) fn is_in_memory(self) -> bool {
        matches!(
            self,
            Plugin::Secret | Plugin::Projected | Plugin::DownwardApi
        )
    }
}

/// The directory of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodDirectory(PathBuf);

impl PodDirectory {
    /// The directory `<root>/pods/<uid>`.
    pub(super) fn at(directory: &Path) -> PodDirectory {
        PodDirectory(directory.to_owned())
    }

    /// The directory itself.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Where all volumes are.
    pub(super) fn volumes(&self) -> PathBuf {
        self.0.join("volumes")
    }

    /// Where one volume is.
    pub(super) fn volume(&self, plugin: Plugin, name: &str) -> PathBuf {
        self.volumes().join(plugin.directory()).join(name)
    }

    /// What kinds of volumes remember about themselves.
    pub(super) fn plugins(&self) -> PathBuf {
        self.0.join("plugins")
    }

    /// Says that an emptyDir was made: it is never made twice, its content is the pod's.
    pub(super) fn ready_marker(&self, volume: &str) -> PathBuf {
        let of_volume = self.plugins().join(Plugin::EmptyDir.directory());
        of_volume.join(volume).join("ready")
    }

    /// Where parts of volumes are mounted for containers.
    pub(super) fn sub_paths(&self) -> PathBuf {
        self.0.join("volume-subpaths")
    }

    /// Where the part of a volume is mounted for the nth mount of a container.
    pub(super) fn sub_path(&self, volume: &str, container: &str, nth: usize) -> PathBuf {
        let of_volume = self.sub_paths().join(volume);
        of_volume.join(container).join(nth.to_string())
    }
}
