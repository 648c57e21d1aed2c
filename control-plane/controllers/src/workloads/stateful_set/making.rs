//! The pods and claims of a stateful set as they are made.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::ownership::owner_reference;
use super::super::pod_view::PodView;
use super::super::pods::pod_from_template;
use super::super::revisions::REVISION_LABEL;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The pod of an ordinal.
pub(super) fn pod(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    template: &PodTemplateSpec,
    revision: &str,
    ordinal: i32,
) -> Pod {
    let mut pod = pod_from_template(set, template);
    let name = format!(
        "{}-{ordinal}",
        set.metadata.name.as_deref().unwrap_or_default()
    );
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.into(), name.clone());
    labels.insert(POD_INDEX.into(), ordinal.to_string());
    labels.insert(REVISION_LABEL.into(), revision.to_owned());
    let inside = pod.spec.get_or_insert_default();
    inside.hostname = Some(name.clone());
    inside.subdomain = spec.service_name.clone().filter(|name| !name.is_empty());
    let claims = spec.volume_claim_templates.iter().flatten();
    let volumes: Vec<Volume> = claims.map(|claim| volume(set, claim, ordinal)).collect();
    let known = inside.volumes.get_or_insert_default();
    known.retain(|old| volumes.iter().all(|new| new.name != old.name));
    known.extend(volumes);
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(name);
    pod
}

fn volume(set: &StatefulSet, claim: &PersistentVolumeClaim, ordinal: i32) -> Volume {
    Volume {
        name: claim.metadata.name.clone().unwrap_or_default(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(set, claim, ordinal),
            read_only: Some(false),
        }),
        ..Volume::default()
    }
}

/// The name of an ordinal's claim.
pub(super) fn claim_name(set: &StatefulSet, claim: &PersistentVolumeClaim, ordinal: i32) -> String {
    let of = |name: &Option<String>| name.clone().unwrap_or_default();
    format!(
        "{}-{}-{ordinal}",
        of(&claim.metadata.name),
        of(&set.metadata.name)
    )
}

/// The claims of an ordinal.
pub(super) fn claims(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    ordinal: i32,
) -> Vec<PersistentVolumeClaim> {
    let templates = spec.volume_claim_templates.iter().flatten();
    let made = templates.map(|template| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(set, template, ordinal));
        claim.metadata.namespace = set.metadata.namespace.clone();
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        claim.metadata.owner_references = match goes_with_set(spec) {
            true => Some(vec![set_reference(set)]),
            false => None,
        };
        claim.status = None;
        claim
    });
    made.collect()
}

// Claims are kept by no one's wish but their owner's: it does not control them, and waits for nothing.
fn set_reference(set: &StatefulSet) -> OwnerReference {
    OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..owner_reference(set)
    }
}

fn goes_with_set(spec: &StatefulSetSpec) -> bool {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    policy.and_then(|policy| policy.when_deleted.as_deref()) == Some("Delete")
}

fn goes_with_pod(spec: &StatefulSetSpec) -> bool {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    policy.and_then(|policy| policy.when_scaled.as_deref()) == Some("Delete")
}

/// Whether anything but keeping claims for ever is asked for.
pub(super) fn has_retention(spec: &StatefulSetSpec) -> bool {
    goes_with_set(spec) || goes_with_pod(spec)
}

/// The owners a claim is to have (upstream's `updateClaimOwnerRefForSetAndPod`); nothing if it has them.
pub(super) fn with_owners(
    claim: &PersistentVolumeClaim,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pod: &PodView,
    is_condemned: bool,
) -> Option<PersistentVolumeClaim> {
    let by_pod = is_condemned && goes_with_pod(spec);
    let by_set = goes_with_set(spec) && !by_pod;
    let before = claim.metadata.owner_references.clone().unwrap_or_default();
    let set_uid = set.metadata.uid.clone().unwrap_or_default();
    let is_ours = |owner: &OwnerReference| {
        owner.uid == set_uid || owner.kind == "Pod" && owner.name == pod.name
    };
    let mut owners: Vec<OwnerReference> = before
        .iter()
        .filter(|owner| !is_ours(owner))
        .cloned()
        .collect();
    if by_set {
        owners.push(set_reference(set));
    }
    if by_pod {
        owners.push(OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            controller: None,
            block_owner_deletion: None,
        });
    }
    let mut next = claim.clone();
    next.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
    (next.metadata.owner_references.clone().unwrap_or_default() != before).then_some(next)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_go_with_the_set_or_with_pods_that_are_scaled_away() {
        let claim = PersistentVolumeClaim::default();
        let pod = PodView {
            name: "db-3".into(),
            uid: "p".into(),
            ..PodView::default()
        };
        for (deleted, scaled, condemned, expected) in [
            ("Retain", "Retain", true, vec![]),
            ("Delete", "Retain", true, vec!["StatefulSet"]),
            ("Retain", "Delete", false, vec![]),
            ("Retain", "Delete", true, vec!["Pod"]),
            ("Delete", "Delete", false, vec!["StatefulSet"]),
            ("Delete", "Delete", true, vec!["Pod"]),
        ] {
            let set: StatefulSet = serde_json::from_value(json!({ "metadata": { "name": "db", "uid": "s" },
                "spec": { "selector": {}, "template": {}, "serviceName": "",
                    "persistentVolumeClaimRetentionPolicy": { "whenDeleted": deleted, "whenScaled": scaled } } }))
            .unwrap();
            let spec = set.spec.as_ref().unwrap();
            let next = with_owners(&claim, &set, spec, &pod, condemned).unwrap_or_default();
            let owners = next.metadata.owner_references.unwrap_or_default();
            let kinds: Vec<&str> = owners.iter().map(|owner| owner.kind.as_str()).collect();
            assert_eq!(kinds, expected, "{deleted} {scaled} {condemned}");
        }
    }
}
