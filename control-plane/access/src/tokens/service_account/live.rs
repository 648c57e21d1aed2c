//! Whether what a token is bound to still lives.

use jiff::Timestamp;
use serde_json::Value;

use super::claims::{Bound, Ref};
use crate::tokens::claims::{LEEWAY, shifted};
use crate::tokens::{Invalid, Objects};

/// Refuses a token whose service account, secret, pod or node is gone, is another of that name, or has been
/// deleted for more than a minute and only waits for its finalizers.
pub(super) fn check(bound: &Bound, now: Timestamp, objects: &dyn Objects) -> Result<(), Invalid> {
    let too_long_ago = shifted(now, -LEEWAY);
    account(bound, too_long_ago, objects)?;
    let check = |what, plural, namespace: &str, reference: &Option<Ref>| match reference {
        Some(reference) => {
            let object = objects.get("", plural, namespace, &reference.name);
            bound_object(what, reference, object, too_long_ago)
        }
        None => Ok(()),
    };
    check("secret", "secrets", &bound.namespace, &bound.secret)?;
    check("pod", "pods", &bound.namespace, &bound.pod)?;
    // The node of a pod is information; only a token bound to the node itself dies with it.
    if bound.pod.is_none() {
        check("node", "nodes", "", &bound.node)?;
    }
    Ok(())
}

fn account(bound: &Bound, too_long_ago: Timestamp, objects: &dyn Objects) -> Result<(), Invalid> {
    let (namespace, claimed) = (&bound.namespace, &bound.serviceaccount);
    let Some(account) = objects.get("", "serviceaccounts", namespace, &claimed.name) else {
        return Err(Invalid(format!(
            "serviceaccounts {:?} not found",
            claimed.name
        )));
    };
    let uid = uid(&account);
    if uid != claimed.uid {
        return Err(Invalid(format!(
            "service account UID ({uid}) does not match claim ({})",
            claimed.uid
        )));
    }
    if deleted_before(&account, too_long_ago) {
        return Err(Invalid(format!(
            "service account {namespace}/{} has been deleted",
            claimed.name
        )));
    }
    Ok(())
}

fn bound_object(
    what: &str,
    claimed: &Ref,
    object: Option<Value>,
    too_long_ago: Timestamp,
) -> Result<(), Invalid> {
    let gone = || Invalid::new("service account token has been invalidated");
    let object = object.ok_or_else(gone)?;
    let uid = uid(&object);
    if uid != claimed.uid {
        let claimed = &claimed.uid;
        return Err(Invalid(format!(
            "{what} UID ({uid}) does not match service account {what} ref claim ({claimed})"
        )));
    }
    if deleted_before(&object, too_long_ago) {
        Err(gone())
    } else {
        Ok(())
    }
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whether the object was deleted before a moment. A time nobody can read counts as long ago.
fn deleted_before(object: &Value, moment: Timestamp) -> bool {
    match &object["metadata"]["deletionTimestamp"] {
        Value::Null => false,
        Value::String(text) => text
            .parse::<Timestamp>()
            .map_or(true, |deleted| deleted < moment),
        _ => true,
    }
}
