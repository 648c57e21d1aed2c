//! What pods mount. The pod workers ask for a pod's volumes before its first container, for each container's mounts
//! when it is made, and take all down at the end.
//!
//! [`NodeVolumes`] does it on a real machine: `gather` learns what each volume is to be, `materialise` makes it so, and
//! `container` says what a container mounts of it. What decides is pure: `payload`, `downward`, `trust`, `host_path`.

mod atomic;
mod container;
pub mod csi;
mod downward;
mod gather;
mod host_path;
mod layout;
mod materialise;
mod mounting;
mod node;
#[cfg(test)]
mod own_mounts;
mod ownership;
mod payload;
mod removal;
mod sub_path;
mod tokens;
mod trust;

pub use downward::Allocatable;
pub use node::NodeVolumes;
pub use removal::remove_tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::cri;
use crate::space::Space;

/// A volume of a pod that is ready on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    /// What containers get to see.
    pub host_path: PathBuf,
    /// Whether nobody may write, whatever the mount says (configMap, secret, projected, downwardAPI).
    pub read_only: bool,
    /// The image whose files it is: the runtime mounts it, and there is no path.
    pub image: Option<String>,
}

/// The volumes of a pod by name.
pub type Volumes = BTreeMap<String, Volume>;

/// How full a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Its name in the pod.
    pub volume: String,
    /// The claim's namespace and name.
    pub claim: Option<(String, String)>,
    /// How full.
    pub space: Space,
}

/// Why volumes are not ready. It is reported as an event and tried again at the pod's next turn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct VolumeError {
    /// The event's reason: `FailedMount` and the like.
    pub reason: &'static str,
    /// Upstream's text, such as `MountVolume.SetUp failed for volume "v" : configmap "x" not found`.
    pub message: String,
}

/// What mounts and unmounts.
#[async_trait]
pub trait Mounts: Send + Sync {
    /// Makes the pod's volumes ready below its directory (`<root>/pods/<uid>`), or brings them up to date. Called at
    /// every turn of the pod; cheap when nothing changed.
    async fn mount(&self, pod: &Pod, directory: &Path) -> Result<Volumes, VolumeError>;

    /// The mounts of one container in the order of its spec, with sub-paths prepared. `env` is the container's whole
    /// environment, for `subPathExpr`. An error is the container's `CreateContainerConfigError`.
    async fn container_mounts(
        &self,
        pod: &Pod,
        container: &Container,
        env: &BTreeMap<String, String>,
        volumes: &Volumes,
        directory: &Path,
    ) -> Result<Vec<cri::Mount>, VolumeError>;

    /// How full those of a pod's volumes are that outlive it.
    async fn usage(&self, _uid: &str) -> Vec<VolumeUsage> {
        Vec::new()
    }

    /// Unmounts everything below the pod's directory; its containers have ended. Done when nothing was there.
    async fn unmount(&self, uid: &str, directory: &Path) -> Result<(), VolumeError>;
}

/// What an API server says about a failure, as Go's clients tell it.
fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
