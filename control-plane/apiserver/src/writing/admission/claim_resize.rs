//! PersistentVolumeClaimResize: a claim grows only if its class can make volumes grow.

use futures::FutureExt as _;
use kinds::pod_resources::parse;
use serde_json::Value;

use super::shape::{annotation, text};
use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::Result;

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "PersistentVolumeClaimResize",
    handles: |attributes| {
        attributes.operation == Operation::Update
            && attributes.is_main("", "persistentvolumeclaims")
    },
    mutate: None,
    validate: Some(|api, attributes, claim| validate(api, attributes, claim).boxed()),
};

async fn validate(api: &Api, attributes: &Attributes<'_>, new: Option<&Value>) -> Result<()> {
    let (Some(new), Some(old)) = (new, attributes.old) else {
        return Ok(());
    };
    if !grows(old, new) {
        return Ok(());
    }
    let class = match common_class(old, new) {
        Some(name) => {
            let classes = lookup::resource("storage.k8s.io", "v1", "storageclasses");
            lookup::get(api, classes, "", name).await?
        }
        None => None,
    };
    may_grow(old, class.as_ref()).map_err(|why| attributes.forbid(Some(new), why))
}

fn grows(old: &Value, new: &Value) -> bool {
    let size = |claim: &Value| {
        let size = parse(&claim["spec"]["resources"]["requests"]["storage"]);
        size.map_or(0, |size| size.nanos())
    };
    size(new) > size(old)
}

fn common_class<'c>(old: &'c Value, new: &'c Value) -> Option<&'c str> {
    let class = class_of(new);
    (!class.is_empty() && class == class_of(old)).then_some(class)
}

fn class_of(claim: &Value) -> &str {
    annotation(claim, "volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| text(&claim["spec"]["storageClassName"]))
}

fn may_grow(old: &Value, class: Option<&Value>) -> Result<(), &'static str> {
    if old["status"]["phase"] != "Bound" {
        return Err("Only bound persistent volume claims can be expanded");
    }
    match class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        true => Ok(()),
        false => Err(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
             must support resize",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(size: &str, class: &str, phase: &str) -> Value {
        json!({"spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}},
            "status": {"phase": phase}})
    }

    #[test]
    fn only_growth_is_looked_at() {
        for (old, new, expected) in [
            ("1Gi", "2Gi", true),
            ("1Gi", "1024Mi", false),
            ("2Gi", "1Gi", false),
            ("1Gi", "1073741825", true),
        ] {
            let (before, after) = (claim(old, "c", "Bound"), claim(new, "c", "Bound"));
            assert_eq!(grows(&before, &after), expected, "{old} {new}");
        }
    }

    #[test]
    fn a_bound_claim_grows_where_its_class_allows_it() {
        let class = |allowed: Value| json!({"allowVolumeExpansion": allowed});
        let not_bound = Some("Only bound persistent volume claims can be expanded");
        let not_dynamic = Some(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
             must support resize",
        );
        for (phase, class, refusal) in [
            ("Bound", Some(class(json!(true))), None),
            ("Bound", Some(class(json!(false))), not_dynamic),
            ("Bound", Some(class(Value::Null)), not_dynamic),
            ("Bound", None, not_dynamic),
            ("Pending", Some(class(json!(true))), not_bound),
        ] {
            let old = claim("1Gi", "c", phase);
            assert_eq!(
                may_grow(&old, class.as_ref()).err(),
                refusal,
                "{phase} {class:?}"
            );
        }
        let (a, b) = (claim("1Gi", "a", ""), claim("1Gi", "b", ""));
        assert_eq!(common_class(&a, &a), Some("a"));
        assert_eq!(common_class(&a, &b), None);
        assert_eq!(
            common_class(&claim("1Gi", "", ""), &claim("1Gi", "", "")),
            None
        );
    }
}
