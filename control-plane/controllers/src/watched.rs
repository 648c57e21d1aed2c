//! What is kept of the objects that several controllers watch.

use std::hash::{DefaultHasher, Hasher as _};

use client_runtime::{Cache, Runtime, Watched};
use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use serde::Serialize;

use crate::protection::Guarded;

impl Watched for NamespaceState {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let keep = |namespace: Namespace| NamespaceState {
            active: namespace.status.and_then(|s| s.phase).as_deref() == Some("Active"),
            deleting: namespace.metadata.deletion_timestamp.is_some(),
        };
        runtime.watch(Api::all(runtime.client()), "", keep)
    }
}

impl Watched for AccountState {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let all: Api<ServiceAccount> = Api::all(runtime.client());
        runtime.watch_metadata(None, all, |meta| AccountState {
            uid: meta.uid.unwrap_or_default(),
        })
    }
}

impl Watched for PodState {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let need = runtime.need::<PodState>();
        let all = Api::all(runtime.client());
        runtime.watch_when(Some(need), all, "", |pod: Pod| PodState::of(&pod))
    }
}

impl Watched for ClaimState {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let keep = |claim: PersistentVolumeClaim| ClaimState::of(&claim);
        runtime.watch(Api::all(runtime.client()), "", keep)
    }
}

impl Watched for VolumeState {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let keep = |volume: PersistentVolume| VolumeState::of(&volume);
        runtime.watch(Api::all(runtime.client()), "", keep)
    }
}

/// A secret of kube-system that holds a bootstrap token.
pub(crate) struct BootstrapToken(pub(crate) Secret);

impl Watched for BootstrapToken {
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self> {
        let system = Api::namespaced(runtime.client(), "kube-system");
        let fields = "type=bootstrap.kubernetes.io/token";
        runtime.watch(system, fields, |mut secret: Secret| {
            secret.metadata.managed_fields = None;
            BootstrapToken(secret)
        })
    }
}

/// What is kept of a namespace.
#[derive(Debug)]
pub(crate) struct NamespaceState {
    /// Whether objects may be created in it.
    pub(crate) active: bool,
    /// Whether it is to go.
    pub(crate) deleting: bool,
}

/// What is kept of a service account.
pub(crate) struct AccountState {
    pub(crate) uid: String,
}

/// What is kept of a pod.
#[derive(Debug)]
pub(crate) struct PodState {
    pub(crate) uid: String,
    pub(crate) is_scheduled: bool,
    /// Whether the kubelet is done with it, or never will be: it is deleted without any grace left.
    pub(crate) is_shut_down: bool,
    pub(crate) claims: Vec<ClaimUse>,
    /// Changes with what quotas count of it.
    pub(crate) cost: u64,
}

/// A claim that a pod names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClaimUse {
    /// One that is there apart from the pod.
    Named(String),
    /// One that is made for the pod's ephemeral volume, if it is the pod's own.
    Ephemeral(String),
}

impl ClaimUse {
    pub(crate) fn name(&self) -> &str {
        match self {
            ClaimUse::Named(name) | ClaimUse::Ephemeral(name) => name,
        }
    }
}

impl PodState {
    pub(crate) fn of(pod: &Pod) -> PodState {
        let meta = &pod.metadata;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        PodState {
            uid: meta.uid.clone().unwrap_or_default(),
            is_scheduled: node.is_some_and(|node| !node.is_empty()),
            is_shut_down: meta.deletion_timestamp.is_some()
                && meta.deletion_grace_period_seconds == Some(0),
            claims: claims(pod),
            cost: pod_cost(pod),
        }
    }
}

fn claims(pod: &Pod) -> Vec<ClaimUse> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    volumes
        .filter_map(|volume| match &volume.persistent_volume_claim {
            Some(source) => Some(ClaimUse::Named(source.claim_name.clone())),
            None => volume
                .ephemeral
                .as_ref()
                .map(|_| ClaimUse::Ephemeral(format!("{name}-{}", volume.name))),
        })
        .collect()
}

// Whether it has ended, and what its containers ask for and hold.
fn pod_cost(pod: &Pod) -> u64 {
    let status = pod.status.as_ref();
    let phase = status.and_then(|s| s.phase.as_deref());
    let ended = matches!(phase, Some("Failed" | "Succeeded"));
    let asked = pod.spec.iter().flat_map(|spec| &spec.containers);
    let held = status.and_then(|s| s.container_statuses.as_deref());
    let asked: Vec<_> = asked.map(|c| &c.resources).collect();
    let held: Vec<_> = held.into_iter().flatten().map(|c| &c.resources).collect();
    digest(&(ended, asked, held))
}

/// What is kept of a persistent volume claim.
#[derive(Debug)]
pub(crate) struct ClaimState {
    pub(crate) guarded: Guarded,
    /// The object it belongs to.
    pub(crate) controller: Option<String>,
    /// The attribute classes it has, had or is to have.
    pub(crate) classes: Vec<String>,
    /// Changes with what quotas count of it.
    pub(crate) cost: u64,
}

impl ClaimState {
    pub(crate) fn of(claim: &PersistentVolumeClaim) -> ClaimState {
        let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
        let modified = status.and_then(|s| s.modify_volume_status.as_ref());
        let classes = [
            spec.and_then(|s| s.volume_attributes_class_name.as_ref()),
            status.and_then(|s| s.current_volume_attributes_class_name.as_ref()),
            modified.and_then(|m| m.target_volume_attributes_class_name.as_ref()),
        ];
        ClaimState {
            guarded: Guarded::of(&claim.metadata, crate::protection::CLAIM_FINALIZER),
            controller: controller(&claim.metadata),
            classes: named(classes),
            cost: claim_cost(claim),
        }
    }
}

fn controller(meta: &ObjectMeta) -> Option<String> {
    let owners = meta.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.uid.clone())
}

fn claim_cost(claim: &PersistentVolumeClaim) -> u64 {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    digest(&(
        spec.map(|s| (&s.resources, &s.volume_attributes_class_name)),
        status.map(|s| {
            (
                &s.allocated_resources,
                &s.current_volume_attributes_class_name,
                &s.modify_volume_status,
            )
        }),
    ))
}

/// What is kept of a persistent volume.
#[derive(Debug)]
pub(crate) struct VolumeState {
    pub(crate) guarded: Guarded,
    pub(crate) is_bound: bool,
    /// The attribute class it has.
    pub(crate) classes: Vec<String>,
}

impl VolumeState {
    pub(crate) fn of(volume: &PersistentVolume) -> VolumeState {
        let class = volume.spec.as_ref();
        let class = class.and_then(|spec| spec.volume_attributes_class_name.as_ref());
        let phase = volume.status.as_ref().and_then(|s| s.phase.as_deref());
        VolumeState {
            guarded: Guarded::of(&volume.metadata, crate::protection::VOLUME_FINALIZER),
            is_bound: phase == Some("Bound"),
            classes: named([class]),
        }
    }
}

fn named<const N: usize>(names: [Option<&String>; N]) -> Vec<String> {
    let names = names.into_iter().flatten();
    names.filter(|name| !name.is_empty()).cloned().collect()
}

// Kept instead of what it stands for, which is only ever compared with what it was before.
fn digest(value: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&serde_json::to_vec(value).unwrap_or_default());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn pod(more: &Value) -> PodState {
        let mut pod = json!({ "metadata": { "name": "web" }, "spec": { "containers": [] } });
        for (field, value) in more.as_object().unwrap() {
            let known = pod[field].as_object().cloned().unwrap_or_default();
            pod[field] = json!(known);
            for (key, value) in value.as_object().unwrap() {
                pod[field][key] = value.clone();
            }
        }
        PodState::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_costs_less_once_it_has_ended() {
        let cost = |phase: &str| pod(&json!({ "status": { "phase": phase } })).cost;
        assert_eq!(cost("Pending"), cost("Running"));
        assert_ne!(cost("Running"), cost("Succeeded"));
    }

    #[test]
    fn a_pods_claims_are_those_of_its_volumes() {
        let volumes = json!([
            { "name": "a", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "b", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
            { "name": "c", "emptyDir": {} },
        ]);
        assert_eq!(
            pod(&json!({ "spec": { "volumes": volumes } })).claims,
            [
                ClaimUse::Named("data".into()),
                ClaimUse::Ephemeral("web-b".into())
            ]
        );
    }

    #[test]
    fn only_a_deletion_without_grace_shuts_a_pod_down() {
        let at = "2026-01-01T00:00:00Z";
        for (meta, is_shut_down) in [
            (json!({}), false),
            (
                json!({ "deletionTimestamp": at, "deletionGracePeriodSeconds": 30 }),
                false,
            ),
            (
                json!({ "deletionTimestamp": at, "deletionGracePeriodSeconds": 0 }),
                true,
            ),
        ] {
            let state = pod(&json!({ "metadata": meta }));
            assert_eq!(state.is_shut_down, is_shut_down, "{meta}");
        }
    }

    #[test]
    fn a_claim_has_the_classes_of_its_past_present_and_future() {
        let claim = json!({
            "metadata": {},
            "spec": { "volumeAttributesClassName": "wanted" },
            "status": {
                "currentVolumeAttributesClassName": "current",
                "modifyVolumeStatus": { "status": "", "targetVolumeAttributesClassName": "target" },
            },
        });
        let state = ClaimState::of(&serde_json::from_value(claim).unwrap());
        assert_eq!(state.classes, ["wanted", "current", "target"]);
        let plain = json!({ "metadata": {}, "spec": { "volumeAttributesClassName": "" } });
        let state = ClaimState::of(&serde_json::from_value(plain).unwrap());
        assert!(state.classes.is_empty());
    }
}
