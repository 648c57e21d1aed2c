//! Who owns what: adopting what the selector matches and nobody controls, and letting go of what it no longer
//! matches (upstream's `ControllerRefManager`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::api::Patch;
use kube_kit::selector::LabelSelector as Selector;
use serde_json::{Value, json};

use client_runtime::{Actor, Answer, Object, SyncError, is_outdated};

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// The controller an object belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl Owner {
    /// The one owner that is marked as the controller.
    pub(crate) fn of(meta: &ObjectMeta) -> Option<Owner> {
        let mut owners = meta.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true))?;
        Some(Owner {
            uid: owner.uid.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
        })
    }

    /// Whether it is an object of this kind and name.
    pub(crate) fn is(&self, kind: &str, name: &str) -> bool {
        self.kind == kind && self.name == name
    }
}

/// A selector of the API, ready to be used; one that is missing or broken selects nothing.
pub(crate) fn selector(of: Option<&LabelSelector>) -> Selector {
    let value = of.map(|selector| serde_json::to_value(selector).unwrap_or_default());
    let value = value.unwrap_or(Value::Null);
    Selector::from_object(&value).unwrap_or_else(|_| Selector::nothing())
}

/// Whether labels match a selector.
pub(crate) fn matches(selector: &Selector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

/// What is to happen with an object that may be ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is ours and stays so.
    Keep,
    /// Nobody's, and it matches.
    Adopt,
    /// Ours, and it no longer matches.
    Release,
    /// Somebody else's, or none of our business.
    Ignore,
}

/// What there is to know about the one who claims.
pub(crate) struct Claimant<'a> {
    pub(crate) uid: &'a str,
    pub(crate) is_deleted: bool,
    pub(crate) selector: &'a Selector,
}

/// What there is to know about the object that may be claimed.
pub(crate) struct Claimed<'a> {
    pub(crate) owner: Option<&'a str>,
    pub(crate) labels: &'a Labels,
    pub(crate) is_deleted: bool,
}

impl Claimant<'_> {
    /// Upstream's `ClaimObject`.
    pub(crate) fn claim(&self, object: &Claimed<'_>) -> Claim {
        let is_matching = matches(self.selector, object.labels);
        match object.owner {
            Some(owner) if owner != self.uid => Claim::Ignore,
            Some(_) if is_matching => Claim::Keep,
            Some(_) if self.is_deleted => Claim::Ignore,
            Some(_) => Claim::Release,
            None if self.is_deleted || object.is_deleted || !is_matching => Claim::Ignore,
            None => Claim::Adopt,
        }
    }
}

/// A reference to an owner that controls.
pub(crate) fn owner_reference<K: Object>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.meta().name.clone().unwrap_or_default(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Makes an object ours, if the owner still is the one we know (upstream's `RecheckDeletionTimestamp`).
/// Gives whether it is ours now.
pub(crate) async fn adopt<K: Object, T: Object>(
    actor: &Actor,
    owner: &K,
    name: &str,
    uid: &str,
    finalizers: &[&str],
) -> Answer<bool> {
    let meta = owner.meta();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let fresh: Option<K> = actor
        .get(namespace, meta.name.as_deref().unwrap_or_default())
        .await?;
    let is_same = fresh.is_some_and(|fresh| {
        fresh.meta().uid == meta.uid && fresh.meta().deletion_timestamp.is_none()
    });
    if !is_same {
        let kind = K::kind(&());
        let text = format!("{kind} {namespace}/{:?} has just been deleted", meta.name);
        return Err(SyncError::NotYet(text));
    }
    let mut metadata = json!({ "ownerReferences": [owner_reference(owner)], "uid": uid });
    if !finalizers.is_empty() {
        metadata["finalizers"] = json!(finalizers);
    }
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    settled(actor.patch::<T>((namespace, name), None, &patch).await)
}

/// Lets go of an object.
pub(crate) async fn release<K: Object, T: Object>(
    actor: &Actor,
    owner: &K,
    name: &str,
    uid: &str,
    finalizer: Option<&str>,
) -> Answer<bool> {
    let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
    let mut metadata = json!({
        "ownerReferences": [{ "$patch": "delete", "uid": owner.meta().uid }],
        "uid": uid,
    });
    if let Some(finalizer) = finalizer {
        metadata["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
    }
    let patch = Patch::Strategic(json!({ "metadata": metadata }));
    settled(actor.patch::<T>((namespace, name), None, &patch).await)
}

// An object that went, or is another one of the same name by now, needs nothing from us.
fn settled<T>(answer: Answer<T>) -> Answer<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if is_outdated(&error) || is_invalid(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_invalid(error: &SyncError) -> bool {
    matches!(error, SyncError::Api(kube::Error::Api(status)) if status.code == 422)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_an_object() {
        let selector = Selector::parse("app=web").unwrap();
        let labels = |app: &str| Labels::from([("app".to_owned(), app.to_owned())]);
        for (owner, app, object_deleted, owner_deleted, expected) in [
            (Some("us"), "web", false, false, Claim::Keep),
            (Some("us"), "web", true, false, Claim::Keep),
            (Some("us"), "db", false, false, Claim::Release),
            (Some("us"), "db", false, true, Claim::Ignore),
            (Some("them"), "web", false, false, Claim::Ignore),
            (None, "web", false, false, Claim::Adopt),
            (None, "web", true, false, Claim::Ignore),
            (None, "web", false, true, Claim::Ignore),
            (None, "db", false, false, Claim::Ignore),
        ] {
            let claimant = Claimant {
                uid: "us",
                is_deleted: owner_deleted,
                selector: &selector,
            };
            let labels = labels(app);
            let object = Claimed {
                owner,
                labels: &labels,
                is_deleted: object_deleted,
            };
            assert_eq!(claimant.claim(&object), expected, "{owner:?} {app}");
        }
    }

    #[test]
    fn a_missing_selector_selects_nothing_and_an_empty_one_everything() {
        let labels = Labels::new();
        assert!(!matches(&selector(None), &labels));
        assert!(matches(&selector(Some(&LabelSelector::default())), &labels));
    }
}
