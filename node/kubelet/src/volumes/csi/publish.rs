//! Bringing a volume to a pod: it is attached by others, staged for the node and published for the pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequestSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec};
use serde_json::json;

use super::super::layout::{Plugin, PodDirectory};
use super::super::{cause, mounting};
use super::messages::*;
use super::records::{self, Record};
use super::registry::Registered;
use super::{Csi, Wanted, driver, said, sha256, text};
use crate::spec;

/// How long a volume is waited for that is being attached, at each turn of its pod.
const ATTACHING: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(500);

/// What went wrong, and at which of upstream's steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::volumes) struct Trouble {
    /// `SetUp`, `MountDevice`, `WaitForAttach`.
    pub(in crate::volumes) step: &'static str,
    /// Why.
    pub(in crate::volumes) why: String,
}

impl Trouble {
    fn at(step: &'static str) -> impl Fn(String) -> Trouble {
        move |why| Trouble { step, why }
    }
}

/// A volume that is about to be used. If nothing comes of it, the node does not say so any longer.
struct Using<'a> {
    csi: &'a Csi,
    wanted: &'a Wanted,
    kept: bool,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let Wanted { driver, handle, .. } = self.wanted;
        let is_it = |r: records::Record| r.driver_name == *driver && r.volume_handle == *handle;
        if !self.kept && !records::all(&self.csi.root).any(is_it) {
            self.csi.in_use.remove(&self.wanted.unique_name());
        }
    }
}

/// Where a volume is, and whether fsGroup is still to be applied.
pub(in crate::volumes) type Published = (PathBuf, bool);

impl Csi {
    /// Publishes a volume for a pod, or brings it up to date.
    pub(in crate::volumes) async fn publish(
        &self,
        pod: &Pod,
        directory: &PodDirectory,
        wanted: &Wanted,
        group: Option<u32>,
    ) -> Result<Published, Trouble> {
        let _alone = self.alone(&wanted.driver, &wanted.handle).await;
        let set_up = Trouble::at("SetUp");
        let failed = |why: String| {
            format!("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {why}")
        };
        let found = self.registry.get(&wanted.driver);
        let registered = found.map_err(failed).map_err(&set_up)?;
        let described = self.objects.csi_driver(&wanted.driver).await;
        let described = described.map_err(|e| set_up(cause(&e)))?;
        check_mode(wanted, described.as_deref()).map_err(&set_up)?;
        let described = described.map(|d| d.spec.clone()).unwrap_or_default();
        let target = directory.volume(Plugin::Csi, &wanted.name).join("mount");
        let is_there = target.exists() && mounting::is_mount_point(&target).unwrap_or_default();
        let is_given = wanted.is_given(described.fs_group_policy.as_deref(), registered.abilities);
        if is_there && described.requires_republish != Some(true) {
            self.grow(&registered, wanted, &target, group)
                .await
                .map_err(&set_up)?;
            return Ok((target, false));
        }
        let mut using = Using {
            csi: self,
            wanted,
            kept: false,
        };
        let attaches = !wanted.ephemeral && described.attach_required != Some(false);
        let (attachment, published) = match attaches {
            true => self
                .attached(wanted)
                .await
                .map_err(Trouble::at("WaitForAttach"))?,
            false => Default::default(),
        };
        // Before anything is asked of the driver: what may have happened must be taken down.
        self.record(wanted, attachment)
            .write(&directory.volume(Plugin::Csi, &wanted.name))
            .map_err(&set_up)?;
        using.kept = true;
        let stages = registered.abilities.stages && !wanted.ephemeral;
        let staging = stages.then(|| self.staging(&wanted.driver, &wanted.handle));
        if let Some(staging) = &staging {
            let staged = self.stage(&registered, wanted, staging, &published, group);
            staged.await.map_err(Trouble::at("MountDevice"))?;
        }
        let request = self
            .request(pod, wanted, &described)
            .await
            .map_err(&set_up)?;
        let request = NodePublishVolumeRequest {
            publish_context: published,
            staging_target_path: staging.as_deref().map(text).unwrap_or_default(),
            target_path: text(&target),
            volume_capability: Some(wanted.capability(group, registered.abilities)),
            ..request
        };
        let done = registered.driver.publish(request).await;
        done.map_err(|status| set_up(said(status)))?;
        self.grow(&registered, wanted, &target, group)
            .await
            .map_err(&set_up)?;
        Ok((target, is_given && !is_there))
    }

    fn record(&self, wanted: &Wanted, attachment: String) -> Record {
        let mode = if wanted.ephemeral {
            "Ephemeral"
        } else {
            "Persistent"
        };
        Record {
            name: wanted.name.clone(),
            volume_handle: wanted.handle.clone(),
            driver_name: wanted.driver.clone(),
            node_name: self.node.clone(),
            attachment,
            volume_lifecycle_mode: mode.to_owned(),
        }
    }

    async fn stage(
        &self,
        registered: &Registered,
        wanted: &Wanted,
        staging: &Path,
        published: &BTreeMap<String, String>,
        group: Option<u32>,
    ) -> Result<(), String> {
        std::fs::create_dir_all(staging)
            .map_err(|error| format!("making {}: {error}", staging.display()))?;
        let driver: &driver::Driver = &registered.driver;
        let request = NodeStageVolumeRequest {
            volume_id: wanted.handle.clone(),
            publish_context: published.clone(),
            staging_target_path: text(staging),
            volume_capability: Some(wanted.capability(group, registered.abilities)),
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
        let used = wanted.unique_name();
        self.in_use.add(&used);
        self.in_use.is_told(&used).await?;
        let (handle, driver) = (&wanted.handle, &wanted.driver);
        let name = format!("csi-{}", sha256(&format!("{handle}{driver}{}", self.node)));
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
                    "timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}"
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What publishing takes beside places: secrets, and what the driver wants to know of the pod.
    async fn request(
        &self,
        pod: &Pod,
        wanted: &Wanted,
        described: &CSIDriverSpec,
    ) -> Result<NodePublishVolumeRequest, String> {
        let mut context = wanted.context.clone();
        if described.pod_info_on_mount == Some(true) {
            context.extend(pod_info(pod, wanted.ephemeral));
        }
        let mut secrets = self.secret(wanted.publish_secret.as_ref()).await?;
        if let Some(tokens) = self.tokens(pod, described).await? {
            let key = "csi.storage.k8s.io/serviceAccount.tokens".to_owned();
            match described.service_account_token_in_secrets {
                Some(true) => secrets.insert(key, tokens),
                _ => context.insert(key, tokens),
            };
        }
        Ok(NodePublishVolumeRequest {
            volume_id: wanted.handle.clone(),
            readonly: wanted.read_only,
            secrets,
            volume_context: context,
            ..NodePublishVolumeRequest::default()
        })
    }

    /// Tokens of the pod's account for the audiences that the driver names, as JSON.
    async fn tokens(&self, pod: &Pod, described: &CSIDriverSpec) -> Result<Option<String>, String> {
        let mut tokens = serde_json::Map::new();
        for asked in described.token_requests.iter().flatten() {
            let spec = TokenRequestSpec {
                audiences: Some(vec![asked.audience.clone()]),
                expiration_seconds: asked.expiration_seconds,
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            };
            let account = spec::spec(pod).service_account_name.as_deref();
            let account = account.unwrap_or("default");
            let made = self
                .objects
                .token(spec::namespace(pod), account, spec)
                .await;
            let status = made.map_err(|e| cause(&e))?.status.unwrap_or_default();
            let until = status.expiration_timestamp.map(|time| time.0.to_string());
            let token = json!({"token": status.token, "expirationTimestamp": until});
            tokens.insert(asked.audience.clone(), token);
        }
        Ok((!tokens.is_empty()).then(|| serde_json::Value::Object(tokens).to_string()))
    }

    pub(super) async fn secret(
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
}

fn pod_info(pod: &Pod, ephemeral: bool) -> BTreeMap<String, String> {
    let meta = &pod.metadata;
    let account = spec::spec(pod).service_account_name.clone();
    let info = [
        ("pod.name", meta.name.clone()),
        ("pod.namespace", meta.namespace.clone()),
        ("pod.uid", meta.uid.clone()),
        ("serviceAccount.name", account),
        ("ephemeral", Some(ephemeral.to_string())),
    ];
    info.into_iter()
        .map(|(name, value)| {
            (
                format!("csi.storage.k8s.io/{name}"),
                value.unwrap_or_default(),
            )
        })
        .collect()
}

/// Whether the driver takes volumes of this life.
fn check_mode(wanted: &Wanted, described: Option<&CSIDriver>) -> Result<(), String> {
    if !wanted.ephemeral {
        return Ok(());
    }
    let driver = &wanted.driver;
    let refused = |why: String| {
        Err(format!(
            "volume mode \"Ephemeral\" not supported by driver {driver} ({why})"
        ))
    };
    let Some(described) = described else {
        return refused("no CSIDriver object".to_owned());
    };
    let modes = described.spec.volume_lifecycle_modes.clone();
    let modes = modes.unwrap_or_else(|| vec!["Persistent".to_owned()]);
    match modes.iter().any(|mode| mode == "Ephemeral") {
        true => Ok(()),
        false => refused(format!("only supports {modes:?}")),
    }
}
