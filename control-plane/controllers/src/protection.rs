//! Keeps storage objects that are in use: a finalizer holds them until nobody uses them any more.
//!
//! Admission puts the finalizer on new objects; here it is put on those that were made without it,
//! and taken off deleted ones.

pub(crate) mod attribute_classes;
pub(crate) mod claims;
pub(crate) mod volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use client_runtime::End;
use client_runtime::ObjectKey;
use client_runtime::Synced;
use client_runtime::{Actor, Object, is_outdated, path_of};

/// What holds a persistent volume claim.
pub(crate) const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// What holds a persistent volume.
pub(crate) const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
/// What holds a volume attributes class.
pub(crate) const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";

/// How an object stands with its finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarded {
    /// It lives and has the finalizer.
    Safe,
    /// It lives without the finalizer.
    Open,
    /// It is deleted, and we hold it, perhaps with others.
    Held,
    /// It is deleted, and we do not hold it.
    Released,
}

impl Guarded {
    pub(crate) fn of(meta: &ObjectMeta, finalizer: &str) -> Guarded {
        let has = meta.finalizers.iter().flatten().any(|f| f == finalizer);
        Guarded::new(meta.deletion_timestamp.is_some(), has)
    }

    fn of_json(object: &Value, finalizer: &str) -> Guarded {
        let meta = &object["metadata"];
        let mut finalizers = meta["finalizers"].as_array().into_iter().flatten();
        Guarded::new(
            !meta["deletionTimestamp"].is_null(),
            finalizers.any(|one| one == finalizer),
        )
    }

    fn new(is_deleted: bool, has_finalizer: bool) -> Guarded {
        match (is_deleted, has_finalizer) {
            (false, true) => Guarded::Safe,
            (false, false) => Guarded::Open,
            (true, true) => Guarded::Held,
            (true, false) => Guarded::Released,
        }
    }
}

/// Puts the finalizer on, or takes it off if the object is found deleted; what else is there stays.
async fn settle<K: Object>(actor: &Actor, key: &ObjectKey, finalizer: &str) -> Synced {
    let path = path_of::<K>(&key.namespace, &key.name);
    let Some(object) = actor.read(&path).await? else {
        return Ok(End::Done);
    };
    let Some(object) = settled(object, finalizer) else {
        return Ok(End::Done);
    };
    match actor.write(&path, &object).await {
        Err(error) if is_outdated(&error) => Ok(End::Done),
        written => written.map(|_| End::Done),
    }
}

fn settled(mut object: Value, finalizer: &str) -> Option<Value> {
    let guarded = Guarded::of_json(&object, finalizer);
    let finalizers = &mut object["metadata"]["finalizers"];
    let mut all = finalizers.as_array().cloned().unwrap_or_default();
    match guarded {
        Guarded::Safe | Guarded::Released => return None,
        Guarded::Open => all.push(finalizer.into()),
        Guarded::Held => all.retain(|one| one != finalizer),
    }
    *finalizers = all.into();
    Some(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_finalizer_comes_with_life_and_goes_with_death() {
        let at = "2026-01-01T00:00:00Z";
        for (before, after) in [
            (json!({}), Some(json!(["ours"]))),
            (json!({ "finalizers": ["x"] }), Some(json!(["x", "ours"]))),
            (json!({ "finalizers": ["ours"] }), None),
            (
                json!({ "finalizers": ["ours", "x"], "deletionTimestamp": at }),
                Some(json!(["x"])),
            ),
            (
                json!({ "finalizers": ["x"], "deletionTimestamp": at }),
                None,
            ),
        ] {
            let object = json!({ "metadata": before, "spec": { "kept": true } });
            let settled = settled(object, "ours");
            let finalizers = settled
                .as_ref()
                .map(|o| o["metadata"]["finalizers"].clone());
            assert_eq!(finalizers, after, "{before}");
            assert!(settled.is_none_or(|object| object["spec"]["kept"] == true));
        }
    }
}
