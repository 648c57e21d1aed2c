//! A volume as its driver has to be told of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{CSIVolumeSource, PersistentVolume, Pod, SecretReference};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::driver::Abilities;
use super::messages::*;
use super::sha256;

/// A volume as a driver knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::volumes) struct Wanted {
    /// The name of its directory.
    pub(in crate::volumes) name: String,
    pub(super) handle: String,
    pub(super) driver: String,
    pub(super) fs_type: String,
    pub(super) modes: Vec<String>,
    options: Vec<String>,
    pub(in crate::volumes) read_only: bool,
    pub(super) context: BTreeMap<String, String>,
    pub(super) stage_secret: Option<(String, String)>,
    pub(super) publish_secret: Option<(String, String)>,
    expand_secret: Option<(String, String)>,
    pub(super) ephemeral: bool,
    /// The claim's namespace and name.
    pub(in crate::volumes) claim: Option<(String, String)>,
    /// How large the volume is now, where its claim says less: its file system is yet to grow.
    pub(in crate::volumes) grow: Option<Quantity>,
}

impl Wanted {
    /// A persistent volume.
    pub(in crate::volumes) fn persistent(
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
            expand_secret: secret(&csi.node_expand_secret_ref),
            ..Wanted::default()
        })
    }

    /// A volume that lives as long as its pod.
    pub(in crate::volumes) fn inline(pod: &Pod, name: &str, csi: &CSIVolumeSource) -> Wanted {
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

    pub(super) fn capability(&self, group: Option<u32>, abilities: Abilities) -> VolumeCapability {
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

    /// The name by which the node says that it is in use.
    pub(super) fn unique_name(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    /// The driver's name and what the driver calls it.
    pub(in crate::volumes) fn known_as(&self) -> (&str, &str) {
        (&self.driver, &self.handle)
    }

    /// The secret for growing it.
    pub(super) fn expand_secret(&self) -> Option<&(String, String)> {
        self.expand_secret.as_ref()
    }

    /// Whether the kubelet gives its files to the pod's group (`fsGroupPolicy`).
    pub(super) fn is_given(&self, policy: Option<&str>, abilities: Abilities) -> bool {
        if abilities.gives_groups || self.read_only {
            return false;
        }
        match policy {
            Some("None") => false,
            Some("File") => true,
            // ReadWriteOnceWithFSType, which is the default.
            _ => !self.fs_type.is_empty() && self.modes.iter().any(|mode| mode == "ReadWriteOnce"),
        }
    }
}

/// A volume by the name that the attach controller knows.
pub(super) fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}
