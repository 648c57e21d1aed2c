//! The volumes of a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod, Volume as Asked, VolumeMount};

use super::container::{self, Place};
use super::csi::{Csi, Wanted};
use super::downward::Allocatable;
use super::gather::{self, Material, Why};
use super::layout::PodDirectory;
use super::materialise::{self, Ownership};
use super::tokens::Tokens;
use super::{Mounts, Volume, VolumeError, VolumeUsage, Volumes};
use crate::cri;
use crate::objects::Objects;
use crate::space::Space;
use crate::spec;

/// Makes volumes on this machine.
pub struct NodeVolumes {
    objects: Arc<dyn Objects>,
    tokens: Tokens,
    csi: Option<Arc<Csi>>,
    allocatable: ArcSwap<Allocatable>,
    deep_read_only: AtomicBool,
    /// The volumes of pods that outlive them, by the pods' UIDs.
    places: Mutex<BTreeMap<String, Vec<Kept>>>,
}

/// A volume that outlives its pod.
#[derive(Debug, Clone)]
struct Kept {
    volume: String,
    path: PathBuf,
    of: Wanted,
}

impl NodeVolumes {
    /// Volumes whose content comes from these objects.
    pub fn new(objects: Arc<dyn Objects>) -> NodeVolumes {
        NodeVolumes {
            objects,
            tokens: Tokens::default(),
            csi: None,
            allocatable: ArcSwap::default(),
            deep_read_only: AtomicBool::new(false),
            places: Mutex::default(),
        }
    }

    /// With volumes of CSI drivers as well.
    pub fn with_csi(self, csi: Arc<Csi>) -> NodeVolumes {
        NodeVolumes {
            csi: Some(csi),
            ..self
        }
    }

    /// What the node offers to pods: limits that a container does not set, sizes of memory volumes.
    pub fn set_allocatable(&self, allocatable: Allocatable) {
        self.allocatable.store(Arc::new(allocatable));
    }

    /// Whether the runtime says that it can make mounts read-only with all under them (`recursiveReadOnlyMounts`).
    pub fn set_deep_read_only(&self, can: bool) {
        self.deep_read_only.store(can, Ordering::Relaxed);
    }

    fn places(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Kept>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, pod: &Pod, gathered: &[(String, Result<Material, Why>)]) {
        let kept = gathered
            .iter()
            .filter_map(|(volume, material)| match material {
                Ok(Material::Published { path, of, .. }) => Some(Kept {
                    volume: volume.clone(),
                    path: path.clone(),
                    of: (**of).clone(),
                }),
                _ => None,
            });
        let kept: Vec<Kept> = kept.collect();
        let uid = spec::uid(pod).to_owned();
        match kept.is_empty() {
            true => drop(self.places().remove(&uid)),
            false => drop(self.places().insert(uid, kept)),
        }
    }

    async fn published(
        &self,
        pod: &Pod,
        directory: &PodDirectory,
        wanted: &Wanted,
    ) -> Result<Material, Why> {
        let Some(csi) = &self.csi else {
            return Err(Why::Process("no volume plugin matched".into()));
        };
        let group = gather::fs_group(pod);
        let published = csi.publish(pod, directory, wanted, group).await;
        let (path, give) = published.map_err(|trouble| Why::Csi {
            volume: wanted.name.clone(),
            trouble,
        })?;
        Ok(Material::Published {
            path,
            of: Box::new(wanted.clone()),
            read_only: wanted.read_only,
            give,
        })
    }

    async fn gathered(
        &self,
        pod: &Pod,
        directory: &PodDirectory,
    ) -> Vec<(String, Result<Material, Why>)> {
        let allocatable = self.allocatable.load_full();
        let asked = gather::Asked {
            objects: &*self.objects,
            tokens: &self.tokens,
            allocatable: &allocatable,
            pod,
        };
        let each = mentioned(pod).into_iter().map(|volume| async move {
            let material = match asked.material(volume).await {
                Ok(Material::Csi(wanted)) => self.published(pod, directory, &wanted).await,
                other => other,
            };
            (volume.name.clone(), material)
        });
        join_all(each).await
    }
}

#[async_trait]
impl Mounts for NodeVolumes {
    async fn mount(&self, pod: &Pod, directory: &Path) -> Result<Volumes, VolumeError> {
        let directory = PodDirectory::at(directory);
        let gathered = self.gathered(pod, &directory).await;
        self.remember(pod, &gathered);
        let ownership = ownership(pod);
        // Those that can be are made, even if others cannot: the next try has less to do.
        let made = blocking(move || {
            let each = gathered.into_iter().map(|(name, material)| {
                let made = material.and_then(|material| {
                    Ok(materialise::volume(
                        &directory, &name, &material, ownership,
                    )?)
                });
                (name, made)
            });
            each.collect::<Vec<(String, Result<Volume, Why>)>>()
        });
        let made = made.await.map_err(|why| failed(&[], &why))?;
        let unmounted: Vec<String> = made
            .iter()
            .filter(|(_, made)| made.is_err())
            .map(|(name, _)| name.clone())
            .collect();
        let ready = made.into_iter().map(|(name, made)| match made {
            Ok(volume) => Ok((name, volume)),
            Err(Why::SetUp(why)) => Err(VolumeError {
                reason: "FailedMount",
                message: format!("MountVolume.SetUp failed for volume {name:?} : {why}"),
            }),
            Err(Why::Csi { volume, trouble }) => Err(VolumeError {
                reason: "FailedMount",
                message: format!(
                    "MountVolume.{} failed for volume {volume:?} : {}",
                    trouble.step, trouble.why
                ),
            }),
            Err(Why::Process(why)) => Err(failed(&unmounted, &why)),
        });
        ready.collect()
    }

    async fn container_mounts(
        &self,
        _pod: &Pod,
        container: &Container,
        env: &BTreeMap<String, String>,
        volumes: &Volumes,
        directory: &Path,
    ) -> Result<Vec<cri::Mount>, VolumeError> {
        let pod = PodDirectory::at(directory);
        let deep_read_only = self.deep_read_only.load(Ordering::Relaxed);
        let refused = |message| VolumeError {
            reason: "Failed",
            message,
        };
        let mounts = container.volume_mounts.iter().flatten();
        if !mounts.into_iter().any(is_part) {
            let place = Place {
                env,
                volumes,
                pod: &pod,
                deep_read_only,
            };
            return container::mounts(container, place).map_err(refused);
        }
        let (container, env, volumes) = (container.clone(), env.clone(), volumes.clone());
        let mounts = blocking(move || {
            let place = Place {
                env: &env,
                volumes: &volumes,
                pod: &pod,
                deep_read_only,
            };
            container::mounts(&container, place)
        });
        mounts.await.and_then(|mounts| mounts).map_err(refused)
    }

    async fn usage(&self, uid: &str) -> Vec<VolumeUsage> {
        let kept = self.places().get(uid).cloned().unwrap_or_default();
        let each = kept.into_iter().map(|kept| async move {
            let csi = self.csi.as_ref()?;
            let (driver, handle) = kept.of.known_as();
            let space = match csi.measure(driver, handle, &kept.path).await {
                Some(space) => space,
                None => Space::of(&kept.path)?,
            };
            Some(VolumeUsage {
                volume: kept.volume,
                claim: kept.of.claim.clone(),
                space,
            })
        });
        join_all(each).await.into_iter().flatten().collect()
    }

    async fn unmount(&self, uid: &str, directory: &Path) -> Result<(), VolumeError> {
        self.tokens.forget(uid);
        self.places().remove(uid);
        let pod = PodDirectory::at(directory);
        let refused = |why: String| VolumeError {
            reason: "FailedUnmount",
            message: format!("UnmountVolume.TearDown failed : {why}"),
        };
        // Parts of volumes first: a driver cannot unmount what is mounted elsewhere.
        let parts = pod.clone();
        let parts =
            blocking(move || materialise::take_parts_down(&parts).map_err(|why| why.to_string()));
        parts.await.and_then(|down| down).map_err(refused)?;
        if let Some(csi) = &self.csi {
            csi.unpublish_all(&pod).await.map_err(refused)?;
        }
        let down = blocking(move || materialise::take_down(&pod).map_err(|why| why.to_string()));
        down.await.and_then(|down| down).map_err(refused)
    }
}

fn failed(unmounted: &[String], why: &str) -> VolumeError {
    let list = unmounted.join(" ");
    VolumeError {
        reason: "FailedMount",
        message: format!(
            "Unable to attach or mount volumes: unmounted volumes=[{list}], unattached volumes=[], failed to process volumes=[{list}]: {why}"
        ),
    }
}

// Parts of volumes need mounts of our own, which block.
fn is_part(mount: &VolumeMount) -> bool {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    is_set(&mount.sub_path) || is_set(&mount.sub_path_expr)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| error.to_string())
}

fn ownership(pod: &Pod) -> Ownership {
    let context = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    Ownership {
        group: gather::fs_group(pod),
        only_on_mismatch: policy == Some("OnRootMismatch"),
    }
}

/// The volumes that any container mounts; nobody misses the others.
fn mentioned(pod: &Pod) -> Vec<&Asked> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let of_containers = containers.flat_map(|c| {
        let mounts = c.volume_mounts.iter().flatten().map(|m| m.name.as_str());
        mounts.chain(c.volume_devices.iter().flatten().map(|d| d.name.as_str()))
    });
    let debuggers = spec.ephemeral_containers.iter().flatten();
    let of_debuggers =
        debuggers.flat_map(|c| c.volume_mounts.iter().flatten().map(|m| m.name.as_str()));
    let names: BTreeSet<&str> = of_containers.chain(of_debuggers).collect();
    let volumes = spec.volumes.iter().flatten();
    volumes
        .filter(|v| names.contains(v.name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests;
