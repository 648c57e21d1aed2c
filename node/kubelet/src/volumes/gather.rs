//! What a volume is to be, with everything that must be asked of the API server at hand.

use std::path::PathBuf;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, EmptyDirVolumeSource, KeyToPath, PersistentVolume,
    PersistentVolumeClaim, Pod, ProjectedVolumeSource, Volume, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Storage;
use kube_kit::quantity::Quantity;

use super::cause;
use super::csi::{Trouble, Wanted};
use super::downward::{self, Allocatable};
use super::layout::Plugin;
use super::payload::{self, DEFAULT_MODE, File, Keys, Payload, mode_of};
use super::tokens::Tokens;
use super::trust;
use crate::objects::Objects;
use crate::resources;

/// What is done for a volume.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Material {
    /// An empty directory on disk.
    Disk,
    /// An empty directory in memory.
    Memory {
        /// The most it may hold, in bytes.
        size: Option<u64>,
    },
    /// An empty directory of huge pages.
    HugePages {
        /// The size of a page, in bytes.
        page: Option<u64>,
    },
    /// Files.
    Files {
        /// Whose they are.
        plugin: Plugin,
        /// The files.
        files: Payload,
    },
    /// A place on the node.
    Host {
        /// Where.
        path: String,
        /// What must be there.
        kind: String,
    },
    /// A directory of the node that is mounted as a persistent volume.
    Local {
        /// The persistent volume.
        name: String,
        /// Where.
        path: PathBuf,
        /// Whether pods may only read.
        read_only: bool,
    },
    /// A volume of a CSI driver that is yet to be published.
    Csi(Box<Wanted>),
    /// A volume that a driver has published.
    Published {
        /// Where.
        path: PathBuf,
        /// What it is.
        of: Box<Wanted>,
        /// Whether pods may only read.
        read_only: bool,
        /// Whether fsGroup is to be applied here, and not by the driver.
        give: bool,
    },
    /// An image, which the runtime mounts.
    Image {
        /// Its name.
        reference: String,
    },
}

/// Why a volume cannot be: upstream's text, and whether it is about the volume's claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// `MountVolume.SetUp` failed.
    SetUp(String),
    /// The volume could not even be looked at.
    Process(String),
    /// A driver's volume could not be brought here.
    Csi {
        /// The volume, as messages name it.
        volume: String,
        /// What went wrong.
        trouble: Trouble,
    },
}

impl<T: std::error::Error> From<T> for Why {
    fn from(error: T) -> Why {
        Why::SetUp(error.to_string())
    }
}

/// Where answers come from.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) objects: &'a dyn Objects,
    pub(super) tokens: &'a Tokens,
    pub(super) allocatable: &'a Allocatable,
    pub(super) pod: &'a Pod,
}

impl Asked<'_> {
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// What one volume is to be.
    pub(super) async fn material(&self, volume: &Volume) -> Result<Material, Why> {
        if let Some(empty) = &volume.empty_dir {
            return self.empty(empty);
        }
        if let Some(host) = &volume.host_path {
            return Ok(Material::Host {
                path: host.path.clone(),
                kind: host.type_.clone().unwrap_or_default(),
            });
        }
        if let Some(image) = &volume.image {
            return Ok(Material::Image {
                reference: image.reference.clone().unwrap_or_default(),
            });
        }
        if let Some(csi) = &volume.csi {
            let wanted = Wanted::inline(self.pod, &volume.name, csi);
            return Ok(Material::Csi(Box::new(wanted)));
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            return self
                .claim(
                    &claim.claim_name,
                    claim.read_only.unwrap_or_default(),
                    false,
                )
                .await;
        }
        if volume.ephemeral.is_some() {
            let pod = self.pod.metadata.name.as_deref().unwrap_or_default();
            let claim = format!("{pod}-{}", volume.name);
            return self.claim(&claim, false, true).await;
        }
        let (plugin, files) = self.files(volume).await?;
        payload::check_paths(&files)?;
        Ok(Material::Files { plugin, files })
    }

    async fn files(&self, volume: &Volume) -> Result<(Plugin, Payload), Why> {
        let mode = |asked| mode_of(asked, DEFAULT_MODE);
        if let Some(map) = &volume.config_map {
            let keys = keys(map.items.as_deref(), mode(map.default_mode), map.optional);
            return Ok((Plugin::ConfigMap, self.config_map(&map.name, keys).await?));
        }
        if let Some(secret) = &volume.secret {
            let keys = keys(
                secret.items.as_deref(),
                mode(secret.default_mode),
                secret.optional,
            );
            let name = secret.secret_name.as_deref().unwrap_or_default();
            return Ok((Plugin::Secret, self.secret(name, keys).await?));
        }
        if let Some(downward) = &volume.downward_api {
            let items = downward.items.as_deref().unwrap_or_default();
            let mode = mode(downward.default_mode);
            let files = downward::payload(self.pod, items, mode, self.allocatable)?;
            return Ok((Plugin::DownwardApi, files));
        }
        if let Some(projected) = &volume.projected {
            return Ok((Plugin::Projected, self.projected(projected).await?));
        }
        Err(Why::Process("no volume plugin matched".into()))
    }

    async fn config_map(&self, name: &str, keys: Keys<'_>) -> Result<Payload, Why> {
        let found = self.objects.config_map(self.namespace(), name).await;
        match found.map_err(|e| Why::SetUp(cause(&e)))? {
            Some(map) => Ok(payload::of_config_map(&map, keys)?),
            None if keys.optional => Ok(Payload::new()),
            None => Err(Why::SetUp(format!("configmap {name:?} not found"))),
        }
    }

    async fn secret(&self, name: &str, keys: Keys<'_>) -> Result<Payload, Why> {
        let found = self.objects.secret(self.namespace(), name).await;
        match found.map_err(|e| Why::SetUp(cause(&e)))? {
            Some(secret) => Ok(payload::of_secret(&secret, keys)?),
            None if keys.optional => Ok(Payload::new()),
            None => Err(Why::SetUp(format!("secret {name:?} not found"))),
        }
    }

    // Later sources win; all complaints are told at once (`collectData`).
    async fn projected(&self, projected: &ProjectedVolumeSource) -> Result<Payload, Why> {
        let mode = mode_of(projected.default_mode, DEFAULT_MODE);
        let sources = projected.sources.iter().flatten();
        let parts = join_all(sources.map(|source| self.part(source, mode))).await;
        let mut files = Payload::new();
        let mut complaints = Vec::new();
        for part in parts {
            match part {
                Ok(part) => files.extend(part),
                Err(Why::SetUp(text) | Why::Process(text)) => complaints.push(text),
                Err(Why::Csi { trouble, .. }) => complaints.push(trouble.why),
            }
        }
        match complaints.as_slice() {
            [] => Ok(files),
            [only] => Err(Why::SetUp(only.clone())),
            several => Err(Why::SetUp(format!("[{}]", several.join(", ")))),
        }
    }

    async fn part(&self, source: &VolumeProjection, mode: u32) -> Result<Payload, Why> {
        if let Some(map) = &source.config_map {
            let keys = keys(map.items.as_deref(), mode, map.optional);
            return self.config_map(&map.name, keys).await;
        }
        if let Some(secret) = &source.secret {
            let keys = keys(secret.items.as_deref(), mode, secret.optional);
            return self.secret(&secret.name, keys).await;
        }
        if let Some(downward) = &source.downward_api {
            let items = downward.items.as_deref().unwrap_or_default();
            return Ok(downward::payload(self.pod, items, mode, self.allocatable)?);
        }
        if let Some(bundle) = &source.cluster_trust_bundle {
            return self.trust_bundle(bundle, mode).await;
        }
        let Some(token) = &source.service_account_token else {
            return Ok(Payload::new());
        };
        let text = self.tokens.get(self.objects, self.pod, token).await;
        let owner = payload::common_user(self.pod);
        let private = owner.is_some() || fs_group(self.pod).is_some();
        let file = File {
            data: text.map_err(Why::SetUp)?.into_bytes(),
            mode: if private { 0o600 } else { mode },
            owner,
        };
        Ok([(token.path.clone(), file)].into())
    }

    async fn trust_bundle(
        &self,
        asked: &ClusterTrustBundleProjection,
        mode: u32,
    ) -> Result<Payload, Why> {
        let bundles = self.objects.trust_bundles().await;
        let bundles = bundles.map_err(|e| Why::SetUp(cause(&e)))?;
        let data = trust::anchors(&bundles, asked).map_err(Why::SetUp)?;
        let file = File {
            data: data.into_bytes(),
            mode,
            owner: None,
        };
        Ok([(asked.path.clone(), file)].into())
    }

    fn empty(&self, asked: &EmptyDirVolumeSource) -> Result<Material, Why> {
        let medium = asked.medium.as_deref().unwrap_or_default();
        let number = |text: &str| text.parse::<Quantity>().ok().map(|q| q.value());
        let bytes = |q: i64| u64::try_from(q).ok().filter(|q| *q > 0);
        match medium {
            "" => Ok(Material::Disk),
            "Memory" => {
                let own = asked.size_limit.as_ref().and_then(|q| number(&q.0));
                let node = self.allocatable.get("memory").map(Quantity::value);
                let limits = [own, memory_limit(self.pod), node];
                let size = limits.into_iter().flatten().filter_map(bytes).min();
                Ok(Material::Memory { size })
            }
            "HugePages" => Ok(Material::HugePages { page: None }),
            other => match other.strip_prefix("HugePages-").and_then(number) {
                Some(page) => Ok(Material::HugePages { page: bytes(page) }),
                None => Err(Why::SetUp(format!("unknown storage medium {other:?}"))),
            },
        }
    }

    async fn claim(&self, name: &str, read_only: bool, owned: bool) -> Result<Material, Why> {
        let failed = |why: String| {
            Why::Process(format!(
                "error processing PVC {}/{name}: {why}",
                self.namespace()
            ))
        };
        let claim = self.objects.claim(self.namespace(), name).await;
        let claim = claim.map_err(|e| {
            failed(format!(
                "failed to fetch PVC from API server: {}",
                cause(&e)
            ))
        })?;
        let claim = claim.ok_or_else(|| {
            failed(format!(
                "failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found"
            ))
        })?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(failed("PVC is being deleted".into()));
        }
        let uid = self.pod.metadata.uid.as_ref();
        let mut owners = claim.metadata.owner_references.iter().flatten();
        if owned && !owners.any(|owner| Some(&owner.uid) == uid) {
            return Err(failed("PVC was not created for the pod".into()));
        }
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let bound = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_name.clone());
        let (Some("Bound"), Some(bound)) = (phase, bound) else {
            return Err(failed("PVC is not bound".into()));
        };
        let volume = self.objects.persistent_volume(&bound).await;
        let volume = volume.map_err(|e| failed(cause(&e)))?;
        let volume =
            volume.ok_or_else(|| failed(format!("failed to fetch PV {bound} from API server")))?;
        let reference = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.claim_ref.as_ref());
        if reference.and_then(|r| r.uid.as_ref()) != claim.metadata.uid.as_ref() {
            return Err(failed(format!(
                "found PV object {bound} bound to another PVC than {name}"
            )));
        }
        let material = persistent(&volume, &bound, read_only)
            .ok_or_else(|| Why::Process("no volume plugin matched".into()))?;
        let Material::Csi(mut wanted) = material else {
            return Ok(material);
        };
        wanted.grow = growth(&claim, &volume);
        wanted.claim = Some((self.namespace().to_owned(), name.to_owned()));
        Ok(Material::Csi(wanted))
    }
}

fn persistent(volume: &PersistentVolume, name: &str, read_only: bool) -> Option<Material> {
    let spec = volume.spec.as_ref()?;
    if let Some(host) = &spec.host_path {
        return Some(Material::Host {
            path: host.path.clone(),
            kind: host.type_.clone().unwrap_or_default(),
        });
    }
    if let Some(wanted) = Wanted::persistent(volume, name, read_only) {
        return Some(Material::Csi(Box::new(wanted)));
    }
    let local = spec.local.as_ref()?;
    Some(Material::Local {
        name: name.to_owned(),
        path: PathBuf::from(&local.path),
        read_only,
    })
}

/// How large a volume is, if its claim does not know yet.
fn growth(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Storage> {
    let size = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
    let known = claim.status.as_ref()?.capacity.as_ref()?.get("storage")?;
    (resources::whole(size) > resources::whole(known)).then(|| size.clone())
}

fn keys(items: Option<&[KeyToPath]>, mode: u32, optional: Option<bool>) -> Keys<'_> {
    Keys {
        items: items.unwrap_or_default(),
        mode,
        optional: optional.unwrap_or_default(),
    }
}

/// The group that a pod's volumes belong to.
pub(super) fn fs_group(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok()
}

// What a pod's cgroup may use: only where each container has a limit.
fn memory_limit(pod: &Pod) -> Option<i64> {
    let limit = |limits: Option<&std::collections::BTreeMap<String, _>>| {
        let text: &k8s_openapi::apimachinery::pkg::api::resource::Quantity =
            limits?.get("memory")?;
        text.0.parse::<Quantity>().ok().map(|q| q.value())
    };
    let containers = &pod.spec.as_ref()?.containers;
    let limits = containers
        .iter()
        .map(|c| limit(c.resources.as_ref().and_then(|r| r.limits.as_ref())));
    limits.sum()
}
