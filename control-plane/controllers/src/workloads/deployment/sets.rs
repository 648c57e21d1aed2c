//! The replica sets of a deployment: which one is the new one, what they are called, and what is written on them.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::ownership::owner_reference;
use super::super::template_hash;
use super::limits::Limits;

/// The label that keeps the pods of a deployment's sets apart.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
/// Which rollout a set belongs to.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that are not copied from a deployment to its sets.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MOST,
    "deprecated.deployment.rollback.to",
];
/// Upstream's `MaxRevisionHistoryLength` in characters.
const LONGEST_HISTORY: usize = 2000;

/// A deployment's sets, told apart.
pub(super) struct Sets<'a> {
    pub(super) new: Option<&'a ReplicaSet>,
    /// Oldest first.
    pub(super) old: Vec<&'a ReplicaSet>,
}

impl<'a> Sets<'a> {
    /// The new set is the oldest one with the deployment's template.
    pub(super) fn of(deployment: &Deployment, all: &[&'a ReplicaSet]) -> Sets<'a> {
        let mut old = all.to_vec();
        old.sort_by_key(|set| {
            let meta = &set.metadata;
            (
                meta.creation_timestamp.as_ref().map(|t| t.0),
                meta.name.clone(),
            )
        });
        let new = old.iter().position(|set| has_template_of(set, deployment));
        let new = new.map(|place| old.remove(place));
        Sets { new, old }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'a ReplicaSet> {
        self.old.iter().copied().chain(self.new)
    }

    /// Upstream's `MaxRevision` of the old sets, and one more.
    pub(super) fn next_revision(&self) -> i64 {
        self.old
            .iter()
            .map(|set| revision(&set.metadata))
            .max()
            .unwrap_or(0)
            + 1
    }
}

/// How many replicas a set is to have.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// How many replicas of a set are available.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

/// The revision that is written on an object.
pub(super) fn revision(meta: &ObjectMeta) -> i64 {
    annotation(meta, REVISION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// The number of replicas its deployment wanted when a set was last scaled.
pub(super) fn desired(set: &ReplicaSet) -> Option<i32> {
    annotation(&set.metadata, DESIRED)?.parse().ok()
}

/// The most pods its deployment allowed when a set was last scaled.
pub(super) fn most(set: &ReplicaSet) -> Option<i32> {
    annotation(&set.metadata, MOST)?.parse().ok()
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a set's pods are made as the deployment says, but for the hash among their labels (upstream's
/// `EqualIgnoreHash`).
pub(super) fn has_template_of(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let ours = deployment.spec.as_ref().map(|spec| &spec.template);
    let theirs = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => without_hash(ours) == without_hash(theirs),
        _ => false,
    }
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let meta = template.metadata.get_or_insert_default();
    if let Some(labels) = &mut meta.labels {
        labels.remove(HASH_LABEL);
    }
    meta.labels.take_if(|labels| labels.is_empty());
    meta.annotations
        .take_if(|annotations| annotations.is_empty());
    template
}

/// The set for the deployment's template, with so many replicas.
pub(super) fn new_set(deployment: &Deployment, replicas: i32, revision: i64) -> ReplicaSet {
    let spec = deployment.spec.clone().unwrap_or_default();
    let collisions = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count);
    let hash = template_hash::hash(&spec.template, collisions);
    let mut template = spec.template;
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH_LABEL.into(), hash.clone());
    let meta = &deployment.metadata;
    let mut set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}-{hash}",
                meta.name.as_deref().unwrap_or_default()
            )),
            namespace: meta.namespace.clone(),
            owner_references: Some(vec![owner_reference(deployment)]),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    let annotations = set.metadata.annotations.get_or_insert_default();
    copy_annotations(deployment, annotations);
    annotations.insert(REVISION.into(), revision.to_string());
    note_scale(annotations, Limits::of(deployment));
    set
}

/// The new set with what its deployment says about it now; nothing if it already does.
pub(super) fn refreshed(
    set: &ReplicaSet,
    deployment: &Deployment,
    revision: i64,
) -> Option<ReplicaSet> {
    let mut next = set.clone();
    let annotations = next.metadata.annotations.get_or_insert_default();
    copy_annotations(deployment, annotations);
    raise_revision(annotations, revision);
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.min_ready_seconds);
    let spec = next.spec.get_or_insert_default();
    if spec.min_ready_seconds.unwrap_or(0) != wanted.unwrap_or(0) {
        spec.min_ready_seconds = wanted;
    }
    (next != *set).then_some(next)
}

fn copy_annotations(deployment: &Deployment, to: &mut BTreeMap<String, String>) {
    let from = deployment.metadata.annotations.iter().flatten();
    for (key, value) in from.filter(|(key, _)| !OWN.contains(&key.as_str())) {
        to.insert(key.clone(), value.clone());
    }
}

// A set that becomes the new one again gets the next revision; those it had are kept beside.
fn raise_revision(annotations: &mut BTreeMap<String, String>, revision: i64) {
    let before = annotations.get(REVISION).cloned().unwrap_or_default();
    let number = before.parse().unwrap_or(0);
    if number >= revision {
        return;
    }
    annotations.insert(REVISION.into(), revision.to_string());
    if number == 0 {
        return;
    }
    let history = annotations.entry(REVISION_HISTORY.into()).or_default();
    match history.is_empty() {
        true => *history = before,
        false => *history = format!("{history},{before}"),
    }
    while history.len() > LONGEST_HISTORY
        && let Some((_, rest)) = history.split_once(',')
    {
        *history = rest.to_owned();
    }
}

fn note_scale(annotations: &mut BTreeMap<String, String>, limits: Limits) {
    annotations.insert(DESIRED.into(), limits.replicas.to_string());
    annotations.insert(MOST.into(), limits.most().to_string());
}

/// A set with another number of replicas, and what the deployment wants noted on it; nothing if it is so already.
pub(super) fn with_replicas(set: &ReplicaSet, replicas: i32, limits: Limits) -> Option<ReplicaSet> {
    let mut next = set.clone();
    note_scale(next.metadata.annotations.get_or_insert_default(), limits);
    next.spec.get_or_insert_default().replicas = Some(replicas);
    (next != *set).then_some(next)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(image: &str) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "uid": "d", "annotations": {
                "team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}" } },
            "spec": {
                "replicas": 4, "minReadySeconds": 5,
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "c", "image": image }] } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_new_set_says_where_it_comes_from() {
        let deployment = deployment("a");
        let set = new_set(&deployment, 3, 7);
        assert!(has_template_of(&set, &deployment));
        assert!(!has_template_of(&set, &self::deployment("b")));
        let annotations = set.metadata.annotations.as_ref().unwrap();
        let expected = [("team", "a"), (DESIRED, "4"), (MOST, "4"), (REVISION, "7")];
        for (key, value) in expected {
            assert_eq!(annotations[key], value);
        }
        assert_eq!(annotations.len(), 4);
        let hash = &set.metadata.labels.as_ref().unwrap()[HASH_LABEL];
        assert_eq!(set.metadata.name, Some(format!("web-{hash}")));
        let selector = set.spec.unwrap().selector.match_labels.unwrap();
        assert_eq!(&selector[HASH_LABEL], hash);
    }

    #[test]
    fn a_set_that_becomes_new_again_keeps_its_history() {
        let deployment = deployment("a");
        let set = new_set(&deployment, 3, 1);
        assert_eq!(refreshed(&set, &deployment, 1), None);
        let third = refreshed(&set, &deployment, 3).unwrap();
        assert_eq!(revision(&third.metadata), 3);
        let fifth = refreshed(&third, &deployment, 5).unwrap();
        assert_eq!(fifth.metadata.annotations.unwrap()[REVISION_HISTORY], "1,3");
    }

    #[test]
    fn the_oldest_set_with_the_template_is_the_new_one() {
        let deployment = deployment("a");
        let made = |name: &str, image: &str, at: &str| {
            let mut set = new_set(&self::deployment(image), 1, 1);
            set.metadata.name = Some(name.into());
            set.metadata.creation_timestamp = Some(serde_json::from_value(json!(at)).unwrap());
            set
        };
        let all = [
            made("late", "a", "2026-01-03T00:00:00Z"),
            made("early", "a", "2026-01-02T00:00:00Z"),
            made("other", "b", "2026-01-01T00:00:00Z"),
        ];
        let all: Vec<&ReplicaSet> = all.iter().collect();
        let sets = Sets::of(&deployment, &all);
        assert_eq!(sets.new.unwrap().metadata.name.as_deref(), Some("early"));
        let old: Vec<_> = sets
            .old
            .iter()
            .filter_map(|set| set.metadata.name.as_deref())
            .collect();
        assert_eq!(old, ["other", "late"]);
    }
}
