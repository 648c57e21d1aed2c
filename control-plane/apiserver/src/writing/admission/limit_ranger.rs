//! LimitRanger: defaults for what containers ask for, and bounds on pods and volume claims.

use futures::FutureExt as _;
use policy::limit_range;
use serde_json::Value;

use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::Result;

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "LimitRanger",
    handles,
    mutate: Some(|api, attributes, pod| fill_in(api, attributes, pod).boxed()),
    validate: Some(|api, attributes, object| check(api, attributes, object).boxed()),
};

// What containers ask for changes only by resizing. An object on its way out is left in peace.
fn handles(attributes: &Attributes<'_>) -> bool {
    let leaving = attributes
        .old
        .is_some_and(|old| old["metadata"].get("deletionTimestamp").is_some());
    let concerned = match (attributes.operation, attributes.subresource) {
        (Operation::Create, "") => {
            attributes.is("", "pods") || attributes.is("", "persistentvolumeclaims")
        }
        (Operation::Update, "") => attributes.is("", "persistentvolumeclaims"),
        (Operation::Update, "resize") => attributes.is("", "pods"),
        _ => false,
    };
    concerned && !leaving
}

async fn limit_ranges(api: &Api, attributes: &Attributes<'_>) -> Result<Vec<Value>> {
    let resource = lookup::resource("", "v1", "limitranges");
    lookup::list(api, resource, attributes.namespace()).await
}

async fn fill_in(api: &Api, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    if !attributes.is("", "pods") {
        return Ok(());
    }
    for limit_range in limit_ranges(api, attributes).await? {
        limit_range::fill_in(&limit_range, pod);
    }
    Ok(())
}

async fn check(api: &Api, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    let Some(object) = object else { return Ok(()) };
    let complaint = match attributes.is("", "pods") {
        true => limit_range::pod_complaint,
        false => limit_range::claim_complaint,
    };
    for limit_range in limit_ranges(api, attributes).await? {
        if let Some(why) = complaint(&limit_range, object) {
            return Err(attributes.forbid(Some(object), &why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::trial;
    use super::*;
    use serde_json::json;

    #[test]
    fn only_writes_that_change_what_is_asked_for_are_looked_at() {
        let (pods, claims) = (("", "v1", "pods"), ("", "v1", "persistentvolumeclaims"));
        let leaving = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        for (resource, operation, subresource, old, handled) in [
            (pods, Operation::Create, "", None, true),
            (pods, Operation::Create, "binding", None, false),
            (pods, Operation::Update, "", Some(&Value::Null), false),
            (pods, Operation::Update, "resize", Some(&Value::Null), true),
            (pods, Operation::Update, "resize", Some(&leaving), false),
            (claims, Operation::Update, "", Some(&Value::Null), true),
            (
                claims,
                Operation::Update,
                "status",
                Some(&Value::Null),
                false,
            ),
            (pods, Operation::Delete, "", Some(&Value::Null), false),
            (("", "v1", "services"), Operation::Create, "", None, false),
        ] {
            let call = trial::call(resource, "team", "x");
            let attributes = trial::attributes(&call, operation, subresource, old);
            assert_eq!(
                handles(&attributes),
                handled,
                "{resource:?} {operation:?} {subresource}"
            );
        }
    }
}
