//! Volumes of CSI drivers: registration, staging once for a node, publishing for each pod, and back.
//!
//! What is published is written down beside it (`vol_data.json`, upstream's), so that it can be taken down by a kubelet
//! that has just begun.

mod announce;
mod driver;
mod growth;
mod in_use;
mod messages;
mod publish;
mod records;
mod registry;
mod removal;
mod wanted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::objects::Objects;

pub use announce::NodeAnnouncements;
pub use in_use::InUse;
pub use registry::{Announcements, DriverOnNode, Registry};

pub(super) use publish::Trouble;
pub(super) use wanted::Wanted;

/// The drivers of a node and what is done with them.
pub struct Csi {
    registry: Arc<Registry>,
    objects: Arc<dyn Objects>,
    in_use: Arc<InUse>,
    node: String,
    /// The kubelet's root directory.
    root: PathBuf,
    /// One thing at a time is done with a volume, whichever pods it is for.
    busy: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Csi {
    /// With the drivers of this registry, for the node of this name. Volumes that a kubelet before this one published
    /// are in use.
    pub fn new(
        registry: Arc<Registry>,
        objects: Arc<dyn Objects>,
        in_use: Arc<InUse>,
        node: &str,
        root: &Path,
    ) -> Csi {
        for record in records::all(root) {
            if !record.attachment.is_empty() {
                in_use.add(&wanted::unique_name(
                    &record.driver_name,
                    &record.volume_handle,
                ));
            }
        }
        Csi {
            registry,
            objects,
            in_use,
            node: node.to_owned(),
            root: root.to_owned(),
            busy: Mutex::default(),
        }
    }

    fn staging(&self, driver: &str, handle: &str) -> PathBuf {
        let of_drivers = self.root.join("plugins/kubernetes.io/csi").join(driver);
        of_drivers.join(sha256(handle)).join("globalmount")
    }

    /// Waits until nobody else does something with a volume.
    async fn alone(&self, driver: &str, handle: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut all = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that nobody holds are made anew when they are needed.
            all.retain(|_, lock| Arc::strong_count(lock) > 1);
            let name = wanted::unique_name(driver, handle);
            Arc::clone(all.entry(name).or_default())
        };
        lock.lock_owned().await
    }
}

fn sha256(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn said(status: tonic::Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}

#[cfg(test)]
mod tests;
