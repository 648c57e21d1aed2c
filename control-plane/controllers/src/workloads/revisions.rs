//! The history of a set's pod template, as controller revisions: what `kubectl rollout undo` goes back to.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use client_runtime::{Actor, Cache, Object, SyncError, is};

use super::ownership::{Owner, owner_reference};
use super::template_hash;

/// The label with a revision's hash.
const HASH: &str = "controller.kubernetes.io/hash";
/// The label with a revision on pods, and on the revisions of daemon sets.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// What is to be done so that there is a revision for the template.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// This one is it already.
    Use(usize),
    /// This one is it again: it gets a new number.
    Renumber(usize, i64),
    /// There is none: it gets this number.
    Make(i64),
}

/// The contents of a revision: a patch that brings the template back.
pub(crate) fn contents(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    template["$patch"] = json!("replace");
    json!({ "spec": { "template": template } })
}

/// The template a revision holds.
pub(crate) fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision
        .data
        .as_ref()?
        .0
        .get("spec")?
        .get("template")?
        .clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The revisions of an owner, oldest first.
pub(crate) fn of_owner(
    all: &Cache<ControllerRevision>,
    namespace: &str,
    uid: &str,
) -> Vec<Arc<ControllerRevision>> {
    let is_ours = |revision: &ControllerRevision| {
        Owner::of(&revision.metadata).is_some_and(|owner| owner.uid == uid)
    };
    let ours = all.within(namespace, is_ours);
    let mut ours: Vec<_> = ours.into_iter().map(|(_, revision)| revision).collect();
    ours.sort_by_key(|revision| revision.revision);
    ours
}

fn step(known: &[Arc<ControllerRevision>], wanted: &Value) -> Step {
    let is_it =
        |revision: &ControllerRevision| revision.data.as_ref().map(|data| &data.0) == Some(wanted);
    let next = known.last().map_or(1, |last| last.revision + 1);
    match known.iter().rposition(|revision| is_it(revision)) {
        Some(place) if place + 1 == known.len() => Step::Use(place),
        Some(place) => Step::Renumber(place, next),
        None => Step::Make(next),
    }
}

/// The revision of the owner's template as it is now, made or renumbered if need be; none if its name is taken by
/// another content: then the owner has to count a collision.
pub(crate) async fn ensure<K: Object>(
    actor: &Actor,
    owner: &K,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    known: &[Arc<ControllerRevision>],
) -> Result<Option<Arc<ControllerRevision>>, SyncError> {
    let wanted = contents(template);
    match step(known, &wanted) {
        Step::Use(place) => Ok(Some(Arc::clone(&known[place]))),
        Step::Renumber(place, number) => {
            let mut renumbered = (*known[place]).clone();
            renumbered.revision = number;
            actor
                .replace(&renumbered)
                .await
                .map(|revision| Some(Arc::new(revision)))
        }
        Step::Make(number) => {
            let revision = revision(owner, template, wanted, collisions, number);
            make(actor, revision).await
        }
    }
}

async fn make(
    actor: &Actor,
    revision: ControllerRevision,
) -> Result<Option<Arc<ControllerRevision>>, SyncError> {
    let namespace = revision.metadata.namespace.clone().unwrap_or_default();
    let name = revision.metadata.name.clone().unwrap_or_default();
    match actor.create(&namespace, &revision).await {
        Ok(made) => Ok(Some(Arc::new(made))),
        Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => {
            let taken: Option<ControllerRevision> = actor.get(&namespace, &name).await?;
            Ok(taken
                .filter(|taken| taken.data == revision.data)
                .map(Arc::new))
        }
        Err(error) => Err(error),
    }
}

fn revision<K: Object>(
    owner: &K,
    template: &PodTemplateSpec,
    contents: Value,
    collisions: Option<i32>,
    number: i64,
) -> ControllerRevision {
    let hash = template_hash::hash(&contents, collisions);
    let meta = owner.meta();
    let labels = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.labels.clone());
    let mut labels = labels.unwrap_or_default();
    labels.insert(HASH.into(), hash.clone());
    labels.insert(REVISION_LABEL.into(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!(
                "{}-{hash}",
                meta.name.as_deref().unwrap_or_default()
            )),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: meta.annotations.clone(),
            owner_references: Some(vec![owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(contents)),
        revision: number,
    }
}

/// A revision's hash.
pub(crate) fn hash(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    let hash = labels.and_then(|labels| labels.get(REVISION_LABEL).or_else(|| labels.get(HASH)));
    hash.map(String::as_str).unwrap_or_default()
}

/// A revision's name.
pub(crate) fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// Deletes the oldest revisions nobody uses, down to the limit.
pub(crate) async fn trim(
    actor: &Actor,
    known: &[Arc<ControllerRevision>],
    limit: i32,
    is_used: impl Fn(&ControllerRevision) -> bool,
) -> Result<(), SyncError> {
    let unused: Vec<_> = known.iter().filter(|revision| !is_used(revision)).collect();
    let surplus = unused
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    for revision in unused.into_iter().take(surplus) {
        let meta = &revision.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        actor
            .delete::<ControllerRevision>(namespace, name(revision), meta.uid.as_deref())
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_that_was_there_before_gets_a_new_number() {
        let known: Vec<Arc<ControllerRevision>> = [("a", 1), ("b", 4)]
            .map(|(data, revision)| ControllerRevision {
                data: Some(RawExtension(json!(data))),
                revision,
                ..ControllerRevision::default()
            })
            .map(Arc::new)
            .to_vec();
        assert_eq!(step(&known, &json!("b")), Step::Use(1));
        assert_eq!(step(&known, &json!("a")), Step::Renumber(0, 5));
        assert_eq!(step(&known, &json!("c")), Step::Make(5));
        assert_eq!(step(&[], &json!("c")), Step::Make(1));
    }

    #[test]
    fn a_template_comes_back_from_its_revision() {
        let template: PodTemplateSpec = serde_json::from_value(
            json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [] } }),
        )
        .unwrap();
        let revision = ControllerRevision {
            data: Some(RawExtension(contents(&template))),
            ..ControllerRevision::default()
        };
        assert_eq!(self::template(&revision), Some(template));
    }
}
