//! Volumes of CSI drivers: registration, staging once for a node, publishing for each pod, and back.
//!
//! What is published is written down beside it (`vol_data.json`, upstream's), so that it can be taken down by a kubelet
//! that has just begun.

mod announce;
mod driver;
mod messages;
mod registry;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{CSIVolumeSource, PersistentVolume, Pod, SecretReference};
use serde::{Deserialize, Serialize};

use super::layout::{Plugin, PodDirectory};
use super::{cause, mounting};
use crate::objects::Objects;
use driver::Abilities;
use messages::*;

pub use announce::NodeAnnouncements;
pub use registry::{Announcements, DriverOnNode, Registry};

/// How long a volume is waited for that is being attached, at each turn of its pod.
const ATTACHING: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(500);

/// What is known of a volume that is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(rename = "specVolID")]
    name: String,
    volume_handle: String,
    driver_name: String,
    node_name: String,
    #[serde(rename = "attachmentID", default)]
    attachment: String,
    volume_lifecycle_mode: String,
}

/// A volume as a driver knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Wanted {
    /// The name of its directory.
    name: String,
    handle: String,
    driver: String,
    fs_type: String,
    modes: Vec<String>,
    options: Vec<String>,
    pub(super) read_only: bool,
    context: BTreeMap<String, String>,
    stage_secret: Option<(String, String)>,
    publish_secret: Option<(String, String)>,
    ephemeral: bool,
}

impl Wanted {
    /// A persistent volume.
    pub(super) fn persistent(
        volume: &PersistentVolume,
        name: &str,
        read_only: bool,
    ) -> Option<Wanted> {
        let spec = volume.spec.as_ref()?;
        let csi = spec.csi.as_ref()?;
        let secret = |reference: &Option<SecretReference>| {
            let reference = reference.as_ref()?;
            Some((reference.namespace.clone()?, reference.name.clone()?))
        };
        Some(Wanted {
            name: name.to_owned(),
            handle: csi.volume_handle.clone(),
            driver: csi.driver.clone(),
            fs_type: csi.fs_type.clone().unwrap_or_default(),
            modes: spec.access_modes.clone().unwrap_or_default(),
            options: spec.mount_options.clone().unwrap_or_default(),
            read_only: read_only || csi.read_only.unwrap_or_default(),
            context: csi.volume_attributes.clone().unwrap_or_default(),
            stage_secret: secret(&csi.node_stage_secret_ref),
            publish_secret: secret(&csi.node_publish_secret_ref),
            ephemeral: false,
        })
    }

    /// A volume that lives as long as its pod.
    pub(super) fn inline(pod: &Pod, name: &str, csi: &CSIVolumeSource) -> Wanted {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let secret = csi.node_publish_secret_ref.as_ref();
        Wanted {
            name: name.to_owned(),
            handle: format!("csi-{}", sha256(&format!("{uid}{name}"))),
            driver: csi.driver.clone(),
            fs_type: csi.fs_type.clone().unwrap_or_default(),
            read_only: csi.read_only.unwrap_or_default(),
            context: csi.volume_attributes.clone().unwrap_or_default(),
            publish_secret: secret.map(|reference| (namespace, reference.name.clone())),
            ephemeral: true,
            ..Wanted::default()
        }
    }

    fn capability(&self, group: Option<u32>, abilities: Abilities) -> VolumeCapability {
        let group = group.filter(|_| abilities.gives_groups);
        VolumeCapability {
            block: None,
            mount: Some(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.options.clone(),
                volume_mount_group: group.map(|id| id.to_string()).unwrap_or_default(),
            }),
            access_mode: Some(AccessMode {
                mode: access_mode(&self.modes),
            }),
        }
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

/// The drivers of a node and what is done with them.
pub struct Csi {
    registry: Arc<Registry>,
    objects: Arc<dyn Objects>,
    node: String,
    /// The kubelet's root directory.
    root: PathBuf,
}

impl Csi {
    /// With the drivers of this registry, for the node of this name.
    pub fn new(registry: Arc<Registry>, objects: Arc<dyn Objects>, node: &str, root: &Path) -> Csi {
        Csi {
            registry,
            objects,
            node: node.to_owned(),
            root: root.to_owned(),
        }
    }

    fn staging(&self, driver: &str, handle: &str) -> PathBuf {
        let of_drivers = self.root.join("plugins/kubernetes.io/csi").join(driver);
        of_drivers.join(sha256(handle)).join("globalmount")
    }

    /// Publishes a volume for a pod; gives the directory and whether fsGroup is still to be applied.
    pub(super) async fn publish(
        &self,
        pod: &Pod,
        directory: &PodDirectory,
        wanted: &Wanted,
        group: Option<u32>,
    ) -> Result<(PathBuf, bool), String> {
        let failed = |why: String| {
            format!("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {why}")
        };
        let registered = self.registry.get(&wanted.driver).map_err(failed)?;
        let described = self.objects.csi_driver(&wanted.driver).await;
        let described = described.map_err(|e| cause(&e))?;
        let described = described
            .map(|driver| driver.spec.clone())
            .unwrap_or_default();
        let target = directory.volume(Plugin::Csi, &wanted.name).join("mount");
        let is_there = target.exists() && mounting::is_mount_point(&target).unwrap_or_default();
        let abilities = registered.abilities;
        let ours = !abilities.gives_groups && described.fs_group_policy.as_deref() != Some("None");
        if is_there {
            return Ok((target, false));
        }
        let attaches = !wanted.ephemeral && described.attach_required != Some(false);
        let (attachment, published) = match attaches {
            true => self.attached(wanted).await?,
            false => Default::default(),
        };
        let staging = self.staging(&wanted.driver, &wanted.handle);
        let stages = abilities.stages && !wanted.ephemeral;
        let capability = wanted.capability(group, abilities);
        self.write_down(directory, wanted, attachment)?;
        if stages {
            self.stage(
                &registered.driver,
                wanted,
                &staging,
                &published,
                &capability,
            )
            .await?;
        }
        let request = NodePublishVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context: published,
            staging_target_path: if stages {
                text(&staging)
            } else {
                String::new()
            },
            target_path: text(&target),
            volume_capability: Some(capability),
            readonly: wanted.read_only,
            secrets: self.secret(wanted.publish_secret.as_ref()).await?,
            volume_context: self.context(pod, wanted, described.pod_info_on_mount == Some(true)),
        };
        registered.driver.publish(request).await.map_err(said)?;
        Ok((target, ours))
    }

    fn context(&self, pod: &Pod, wanted: &Wanted, pod_info: bool) -> BTreeMap<String, String> {
        let mut context = wanted.context.clone();
        let key = |name: &str| format!("csi.storage.k8s.io/{name}");
        if pod_info {
            let meta = &pod.metadata;
            let account = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.service_account_name.clone());
            for (name, value) in [
                ("pod.name", meta.name.clone()),
                ("pod.namespace", meta.namespace.clone()),
                ("pod.uid", meta.uid.clone()),
                ("serviceAccount.name", account),
            ] {
                context.insert(key(name), value.unwrap_or_default());
            }
            context.insert(key("ephemeral"), wanted.ephemeral.to_string());
        }
        context
    }

    // Before anything is asked of the driver: what may have happened must be taken down.
    fn write_down(
        &self,
        directory: &PodDirectory,
        wanted: &Wanted,
        attachment: String,
    ) -> Result<(), String> {
        let place = directory.volume(Plugin::Csi, &wanted.name);
        let record = Record {
            name: wanted.name.clone(),
            volume_handle: wanted.handle.clone(),
            driver_name: wanted.driver.clone(),
            node_name: self.node.clone(),
            attachment,
            volume_lifecycle_mode: if wanted.ephemeral {
                "Ephemeral"
            } else {
                "Persistent"
            }
            .into(),
        };
        let written = fs::create_dir_all(&place)
            .and_then(|()| serde_json::to_vec(&record).map_err(Into::into))
            .and_then(|bytes| fs::write(place.join("vol_data.json"), bytes));
        written.map_err(|error| format!("writing {}/vol_data.json: {error}", place.display()))
    }

    async fn stage(
        &self,
        driver: &driver::Driver,
        wanted: &Wanted,
        staging: &Path,
        published: &BTreeMap<String, String>,
        capability: &VolumeCapability,
    ) -> Result<(), String> {
        fs::create_dir_all(staging)
            .map_err(|error| format!("making {}: {error}", staging.display()))?;
        let request = NodeStageVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context: published.clone(),
            staging_target_path: text(staging),
            volume_capability: Some(capability.clone()),
            secrets: self.secret(wanted.stage_secret.as_ref()).await?,
            volume_context: wanted.context.clone(),
        };
        driver.stage(request).await.map_err(said)
    }

    /// Waits for the controller to have attached a volume; gives the attachment's name and what it says.
    async fn attached(
        &self,
        wanted: &Wanted,
    ) -> Result<(String, BTreeMap<String, String>), String> {
        let name = format!(
            "csi-{}",
            sha256(&format!("{}{}{}", wanted.handle, wanted.driver, self.node))
        );
        let deadline = tokio::time::Instant::now() + ATTACHING;
        loop {
            let found = self
                .objects
                .attachment(&name)
                .await
                .map_err(|e| cause(&e))?;
            let status = found.and_then(|attachment| attachment.status.clone());
            if let Some(status) = status {
                if status.attached {
                    return Ok((name, status.attachment_metadata.unwrap_or_default()));
                }
                if let Some(error) = status.attach_error.and_then(|error| error.message) {
                    return Err(error);
                }
            }
            if tokio::time::Instant::now() > deadline {
                return Err(format!(
                    "volume {} is not attached yet (VolumeAttachment {name})",
                    wanted.handle
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn secret(
        &self,
        reference: Option<&(String, String)>,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some((namespace, name)) = reference else {
            return Ok(BTreeMap::new());
        };
        let found = self
            .objects
            .secret(namespace, name)
            .await
            .map_err(|e| cause(&e))?;
        let found = found.ok_or_else(|| format!("secret {name:?} not found"))?;
        let data = found.data.iter().flatten();
        Ok(data
            .map(|(k, v)| (k.clone(), String::from_utf8_lossy(&v.0).into_owned()))
            .collect())
    }

    /// Takes the volumes of a pod down that drivers have published, and what nobody else here uses of them.
    pub(super) async fn unpublish_all(&self, directory: &PodDirectory) -> Result<(), String> {
        let places = directory.volumes().join(Plugin::Csi.directory());
        for (place, record) in records(&places) {
            let registered = self.registry.get(&record.driver_name)?;
            let target = place.join("mount");
            let request = NodeUnpublishVolumeRequest {
                volume_id: record.volume_handle.clone(),
                target_path: text(&target),
            };
            registered.driver.unpublish(request).await.map_err(said)?;
            let _ = fs::remove_dir(&target);
            let removed =
                fs::remove_file(place.join("vol_data.json")).and_then(|()| fs::remove_dir(&place));
            removed.map_err(|error| format!("removing {}: {error}", place.display()))?;
            let is_staged =
                registered.abilities.stages && record.volume_lifecycle_mode == "Persistent";
            if is_staged && !self.is_used(&record) {
                self.unstage(&registered.driver, &record).await?;
            }
        }
        Ok(())
    }

    async fn unstage(&self, driver: &driver::Driver, record: &Record) -> Result<(), String> {
        let staging = self.staging(&record.driver_name, &record.volume_handle);
        let request = NodeUnstageVolumeRequest {
            volume_id: record.volume_handle.clone(),
            staging_target_path: text(&staging),
        };
        driver.unstage(request).await.map_err(said)?;
        let _ = fs::remove_dir(&staging);
        let _ = staging.parent().map(fs::remove_dir);
        Ok(())
    }

    fn is_used(&self, record: &Record) -> bool {
        let pods = fs::read_dir(self.root.join("pods"))
            .into_iter()
            .flatten()
            .flatten();
        let mut all = pods.flat_map(|pod| {
            let directory = PodDirectory::at(&pod.path());
            records(&directory.volumes().join(Plugin::Csi.directory()))
        });
        all.any(|(_, other)| {
            (&other.driver_name, &other.volume_handle)
                == (&record.driver_name, &record.volume_handle)
        })
    }
}

fn records(places: &Path) -> Vec<(PathBuf, Record)> {
    let entries = fs::read_dir(places).into_iter().flatten().flatten();
    let read = |place: PathBuf| {
        let bytes = fs::read(place.join("vol_data.json")).ok()?;
        Some((place, serde_json::from_slice(&bytes).ok()?))
    };
    entries.filter_map(|entry| read(entry.path())).collect()
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
