//! Empties namespaces that are deleted and then lets them go.
//!
//! Pods go first, as upstream's `OrderedNamespaceDeletion` has it; then every other resource that
//! discovery names. What could not be done is told in the conditions of the namespace.

mod discovery;
mod emptying;
mod status;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use crate::Manager;
use crate::watched::NamespaceState;
use client_runtime::Change;
use client_runtime::{Actor, Answer, is_outdated, path_of};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};
use emptying::Outcome;

const ACCOUNT: &str = "namespace-controller";
/// Upstream's `--concurrent-namespace-syncs`.
const AT_ONCE: usize = 10;
/// What makes a namespace wait for us.
const FINALIZER: &str = "kubernetes";
/// How long after its deletion a namespace is first looked into: what was let in before is stored by
/// then. Upstream waits 5 s, for API servers and stores that lag behind each other.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let namespaces = manager.shared::<NamespaceState>();
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    namespaces.on_change(move |change| {
        if is_news(change) {
            noticed.add_after(&change.key.name, FIRST_LOOK);
        }
    });
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(
        name,
        queue,
        AT_ONCE,
        [namespaces.completion()],
        move |namespace: String| sync(actor.clone(), namespace),
    );
}

// A namespace that is deleted now and was not before, or is merely shown again. Its other changes are
// our own, and work that is not done comes back by itself.
fn is_news(change: &Change<'_, NamespaceState>) -> bool {
    let is_old = |before: &NamespaceState, after| before.deleting && !std::ptr::eq(before, after);
    change.after.is_some_and(|after| {
        after.deleting && !change.before.is_some_and(|before| is_old(before, after))
    })
}

async fn sync(actor: Actor, name: String) -> Synced {
    match empty(&actor, &name).await {
        // Somebody else wrote to the namespace: it is read anew.
        Err(error) if is_outdated(&error) => Err(SyncError::NotYet(error.to_string())),
        other => other,
    }
}

async fn empty(actor: &Actor, name: &str) -> Synced {
    let path = path_of::<Namespace>("", name);
    let Some(mut namespace) = actor.read(&path).await? else {
        return Ok(End::Done);
    };
    let Some(deleted) = deleted_at(&namespace).filter(|_| !is_finalized(&namespace)) else {
        return Ok(End::Done);
    };
    if namespace["status"]["phase"] != "Terminating" {
        namespace["status"]["phase"] = "Terminating".into();
        namespace = write_status(actor, &path, &namespace).await?;
    }
    let age = age(deleted, Timestamp::now());
    let outcome = emptying::empty(actor, name, age).await;
    if status::update(&mut namespace, &outcome, Timestamp::now()) {
        namespace = write_status(actor, &path, &namespace).await?;
    }
    match next(&outcome, age) {
        Next::Finish => finish(actor, &path, namespace).await,
        Next::Wait(wait) => Ok(End::After(wait)),
        Next::Fail(reason) => Err(SyncError::Other(reason)),
    }
}

async fn write_status(actor: &Actor, path: &str, namespace: &Value) -> Answer<Value> {
    actor.write(&format!("{path}/status"), namespace).await
}

async fn finish(actor: &Actor, path: &str, namespace: Value) -> Synced {
    let path = format!("{path}/finalize");
    actor.write(&path, &without_finalizer(namespace)).await?;
    Ok(End::Done)
}

fn deleted_at(namespace: &Value) -> Option<Timestamp> {
    let text = namespace["metadata"]["deletionTimestamp"].as_str()?;
    text.parse().ok()
}

fn is_finalized(namespace: &Value) -> bool {
    let finalizers = namespace["spec"]["finalizers"].as_array();
    finalizers.is_none_or(Vec::is_empty)
}

fn without_finalizer(mut namespace: Value) -> Value {
    let finalizers = namespace["spec"]["finalizers"].as_array();
    let others = finalizers
        .into_iter()
        .flatten()
        .filter(|f| **f != FINALIZER);
    namespace["spec"]["finalizers"] = json!(others.collect::<Vec<_>>());
    namespace
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// What comes after one round of deleting.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing is left.
    Finish,
    /// Something is on its way out.
    Wait(Duration),
    /// Something could not be deleted.
    Fail(String),
}

fn next(outcome: &Outcome, age: Duration) -> Next {
    let failures: Vec<&str> = outcome.failures().collect();
    match (failures.as_slice(), outcome.estimate) {
        ([], 0) => Next::Finish,
        ([], estimate) => Next::Wait(pause(estimate, age)),
        (failures, _) => Next::Fail(failures.join(", ")),
    }
}

// Upstream waits half the estimate. Most things go much sooner, so the first looks follow each other
// quickly, and later ones after a quarter of the time that has gone by.
fn pause(estimate: u64, age: Duration) -> Duration {
    let upstreams = Duration::from_secs(estimate / 2 + 1);
    (age / 4).max(FIRST_LOOK).min(upstreams)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client_runtime::ObjectKey;

    #[test]
    fn only_a_deletion_is_news() {
        let key = ObjectKey::new("", "team");
        let state = |deleting: bool| NamespaceState {
            active: !deleting,
            deleting,
        };
        let (alive, ending, still_ending) = (state(false), state(true), state(true));
        for (before, after, news) in [
            (None, Some(&alive), false),
            (None, Some(&ending), true),
            (Some(&alive), Some(&ending), true),
            (Some(&ending), Some(&still_ending), false),
            (Some(&ending), Some(&ending), true),
            (Some(&ending), None, false),
        ] {
            let change = Change {
                key: &key,
                before,
                after,
            };
            assert_eq!(is_news(&change), news, "{before:?} {after:?}");
        }
    }

    #[test]
    fn only_our_finalizer_goes() {
        let namespace = json!({ "metadata": { "name": "team" }, "spec": { "finalizers": ["kubernetes", "other"] } });
        let left = without_finalizer(namespace);
        assert_eq!(left["spec"]["finalizers"], json!(["other"]));
        assert!(!is_finalized(&left));
        assert!(is_finalized(&without_finalizer(
            json!({ "spec": { "finalizers": ["kubernetes"] } })
        )));
    }

    #[test]
    fn a_namespace_goes_when_nothing_is_left_and_nothing_failed() {
        let mut outcome = Outcome::default();
        let age = Duration::from_secs(2);
        assert_eq!(next(&outcome, age), Next::Finish);
        outcome.estimate = 15;
        assert_eq!(next(&outcome, age), Next::Wait(Duration::from_millis(500)));
        outcome.content_failures.push("no".into());
        assert_eq!(next(&outcome, age), Next::Fail("no".into()));
    }

    #[test]
    fn looks_get_rarer_with_age_and_never_rarer_than_upstreams() {
        for (estimate, age, wait) in [
            (30, 0, 200),
            (30, 4_000, 1_000),
            (30, 600_000, 16_000),
            (1, 600_000, 1_000),
        ] {
            let wait = Duration::from_millis(wait);
            assert_eq!(
                pause(estimate, Duration::from_millis(age)),
                wait,
                "{estimate} {age}"
            );
        }
    }
}
