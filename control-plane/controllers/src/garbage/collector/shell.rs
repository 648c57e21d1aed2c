//! Does what the graph decides.

use std::sync::Arc;

use client_runtime::{Actor, Answer, End, Recorder, Severity, SyncError, Synced, is};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Patch;
use serde_json::{Value, json};

use super::graph::{Mistake, ORPHAN, Owner, Propagation, Seen, Uid, Verdict};
use super::monitors::{self, Knowledge};
use crate::Manager;

const ACCOUNT: &str = "generic-garbage-collector";
/// Upstream's `--concurrent-gc-syncs`.
const AT_ONCE: usize = 20;
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let recorder = manager.recorder("garbage-collector-controller", actor.clone());
    let knowledge = Knowledge::new(move |mistake| report(&recorder, &mistake));
    let (client, root) = (manager.client(), manager.root.clone());
    manager.spawn(monitors::follow(root, client, knowledge.clone()));
    let queue = Arc::clone(&knowledge.queue);
    manager.start_work(name, queue, AT_ONCE, [], move |uid| {
        sync(knowledge.clone(), actor.clone(), uid)
    });
}

fn report(recorder: &Recorder, mistake: &Mistake) {
    let (object, owner) = (&mistake.object, &mistake.owner);
    let about = ObjectReference {
        kind: Some(object.resource.kind.clone()),
        api_version: Some(object.resource.api_version()),
        namespace: Some(object.namespace.clone()),
        name: Some(object.name.clone()),
        uid: Some(object.uid.to_string()),
        ..ObjectReference::default()
    };
    let message = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
        owner.api_version, owner.kind, object.namespace, owner.name, owner.uid, object.namespace
    );
    recorder.event(
        about,
        Severity::Warning,
        "OwnerRefInvalidNamespace",
        message,
    );
}

async fn sync(knowledge: Knowledge, actor: Actor, uid: Uid) -> Synced {
    knowledge.completed().await;
    let verdict = knowledge.graph().decide(&uid);
    match verdict {
        Verdict::Keep => Ok(End::Done),
        Verdict::Await(dependents) => {
            knowledge.queue.add_all(dependents);
            Ok(End::Done)
        }
        Verdict::Ask { owner, namespace } => {
            ask(&knowledge, &actor, &owner, &namespace).await?;
            knowledge.queue.add(uid);
            Ok(End::Done)
        }
        Verdict::Unlink { object, owners } => settled(unlink(&actor, &object, &owners).await),
        Verdict::Delete {
            object,
            how,
            unblock,
        } => {
            if unblock {
                settled(unblock_owners(&actor, &object).await)?;
            }
            settled(delete(&actor, &object, how).await)
        }
        Verdict::Finish { object, finalizer } => settled(finish(&actor, &object, finalizer).await),
        Verdict::Orphan { object, dependents } => {
            let each = dependents
                .into_iter()
                .map(|dependent| let_live(actor.clone(), dependent, Arc::clone(&object.uid)));
            let all = stream::iter(each).buffer_unordered(AT_ONCE);
            all.try_collect::<()>().await?;
            settled(finish(&actor, &object, ORPHAN).await)
        }
    }
}

async fn let_live(actor: Actor, dependent: Seen, owner: Uid) -> Answer<()> {
    match unlink(&actor, &dependent, &[owner]).await {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

// What is gone needs nothing more. What has changed is decided about again, with what the watch brings.
fn settled(outcome: Answer<()>) -> Synced {
    match outcome {
        Err(error) if is_gone(&error) => Ok(End::Done),
        Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => {
            Err(SyncError::NotYet(error.to_string()))
        }
        other => other.map(|()| End::Done),
    }
}

fn is_gone(error: &SyncError) -> bool {
    matches!(error, SyncError::Api(error) if is(error, StatusCode::NOT_FOUND))
}

// A kind that nobody serves is no proof that its objects are gone.
async fn ask(knowledge: &Knowledge, actor: &Actor, owner: &Owner, namespace: &str) -> Answer<()> {
    let resources = knowledge.resources();
    let Some(resource) = resources.find(&owner.api_version, &owner.kind) else {
        let cause = format!("nobody serves {} of {}", owner.kind, owner.api_version);
        return Err(SyncError::NotYet(cause));
    };
    if resource.namespaced && namespace.is_empty() {
        let cause = "an object of the whole cluster names an owner in a namespace";
        return Err(SyncError::NotYet(cause.into()));
    }
    let found = actor
        .read_as(&resource.path(namespace, &owner.name), METADATA)
        .await?;
    match found {
        Some(found) if found["metadata"]["uid"] == *owner.uid => {
            Err(SyncError::NotYet("an owner was not seen yet".into()))
        }
        _ => {
            let then = knowledge.graph().miss(&owner.uid);
            knowledge.follow_up(then);
            Ok(())
        }
    }
}

fn path(object: &Seen) -> String {
    object.resource.path(&object.namespace, &object.name)
}

async fn unlink(actor: &Actor, object: &Seen, owners: &[Uid]) -> Answer<()> {
    let gone: Vec<Value> = owners
        .iter()
        .map(|uid| json!({ "$patch": "delete", "uid": **uid }))
        .collect();
    let patch =
        Patch::Strategic(json!({ "metadata": { "uid": *object.uid, "ownerReferences": gone } }));
    match actor.patch_at(&path(object), &patch).await {
        // Custom resources know no such patch.
        Err(SyncError::Api(error)) if is(&error, StatusCode::UNSUPPORTED_MEDIA_TYPE) => {
            let is_gone = |reference: &Value| owners.iter().any(|uid| reference["uid"] == **uid);
            change(actor, object, |meta| {
                retain(meta, "ownerReferences", |r| !is_gone(r))
            })
            .await
        }
        other => other,
    }
}

async fn unblock_owners(actor: &Actor, object: &Seen) -> Answer<()> {
    change(actor, object, |meta| {
        for reference in meta["ownerReferences"].as_array_mut().into_iter().flatten() {
            reference["blockOwnerDeletion"] = Value::Bool(false);
        }
    })
    .await
}

async fn finish(actor: &Actor, object: &Seen, finalizer: &str) -> Answer<()> {
    change(actor, object, |meta| {
        retain(meta, "finalizers", |known| known != finalizer);
    })
    .await
}

fn retain(meta: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(list) = meta[list].as_array_mut() {
        list.retain(keep);
    }
}

// Changes owners and finalizers as they are now, on condition that they stay so.
async fn change(actor: &Actor, object: &Seen, change: impl FnOnce(&mut Value)) -> Answer<()> {
    let path = path(object);
    let Some(found) = actor.read_as(&path, METADATA).await? else {
        return Ok(());
    };
    if found["metadata"]["uid"] != *object.uid {
        return Ok(());
    }
    let mut meta = found["metadata"].clone();
    change(&mut meta);
    if meta == found["metadata"] {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "metadata": {
        "uid": *object.uid,
        "resourceVersion": found["metadata"]["resourceVersion"],
        "finalizers": meta["finalizers"],
        "ownerReferences": meta["ownerReferences"],
    } }));
    actor.patch_at(&path, &patch).await
}

async fn delete(actor: &Actor, object: &Seen, how: Propagation) -> Answer<()> {
    let how = match how {
        Propagation::Foreground => "Foreground",
        Propagation::Background => "Background",
        Propagation::Orphan => "Orphan",
    };
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": how,
        "preconditions": { "uid": *object.uid, "resourceVersion": object.version } });
    actor.delete_as(&path(object), &options).await?;
    let Seen {
        namespace, name, ..
    } = object;
    tracing::debug!(
        kind = object.resource.kind,
        namespace,
        name,
        "deleted: its owners are gone"
    );
    Ok(())
}
