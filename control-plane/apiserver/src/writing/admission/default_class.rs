//! DefaultStorageClass and DefaultIngressClass: what names no class gets the one that is the default.

use futures::FutureExt as _;
use serde_json::Value;

use super::shape::{annotation, has, meta};
use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::Result;

/// The row of DefaultStorageClass.
pub(super) const STORAGE: Plugin = Plugin {
    name: "DefaultStorageClass",
    handles: |attributes| {
        attributes.operation == Operation::Create
            && attributes.is_main("", "persistentvolumeclaims")
    },
    mutate: Some(|api, _, claim| choose(api, &STORAGE_CLASSES, claim).boxed()),
    validate: None,
};

/// The row of DefaultIngressClass.
pub(super) const INGRESS: Plugin = Plugin {
    name: "DefaultIngressClass",
    handles: is_new_ingress,
    mutate: Some(|api, _, ingress| choose(api, &INGRESS_CLASSES, ingress).boxed()),
    validate: None,
};

fn is_new_ingress(attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Create
        && attributes.is_main("networking.k8s.io", "ingresses")
}

/// How one kind of object finds its class.
struct Choice {
    classes: (&'static str, &'static str),
    /// The field that names the class.
    field: &'static str,
    /// The annotation that named it before there was a field.
    older: &'static str,
    /// Annotations that make a class the default.
    marks: &'static [&'static str],
}

const STORAGE_CLASSES: Choice = Choice {
    classes: ("storage.k8s.io", "storageclasses"),
    field: "storageClassName",
    older: "volume.beta.kubernetes.io/storage-class",
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
};

const INGRESS_CLASSES: Choice = Choice {
    classes: ("networking.k8s.io", "ingressclasses"),
    field: "ingressClassName",
    older: "kubernetes.io/ingress.class",
    marks: &["ingressclass.kubernetes.io/is-default-class"],
};

async fn choose(api: &Api, choice: &Choice, object: &mut Value) -> Result<()> {
    if has(&object["spec"], choice.field) || annotation(object, choice.older).is_some() {
        return Ok(());
    }
    let (group, plural) = choice.classes;
    let classes = lookup::list(api, lookup::resource(group, "v1", plural), "").await?;
    if let Some(name) = newest_default(choice, &classes) {
        object["spec"][choice.field] = name.into();
    }
    Ok(())
}

// Of several defaults the newest counts, so that a new one can replace an old one; RFC 3339 times of
// one zone compare as texts.
fn newest_default<'c>(choice: &Choice, classes: &'c [Value]) -> Option<&'c str> {
    let is_default = |class: &&Value| {
        let marks = choice.marks.iter();
        marks
            .copied()
            .any(|mark| annotation(class, mark) == Some("true"))
    };
    let age = |class: &&Value| {
        (
            std::cmp::Reverse(meta(class, "creationTimestamp").to_owned()),
            meta(class, "name").to_owned(),
        )
    };
    let defaults = classes.iter().filter(is_default);
    defaults.min_by_key(age).map(|class| meta(class, "name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(name: &str, day: u8, mark: &str, value: &str) -> Value {
        json!({"metadata": {"name": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z"),
            "annotations": {mark: value}}})
    }

    #[test]
    fn the_newest_default_counts_then_the_first_name() {
        let [ga, beta] = [STORAGE_CLASSES.marks[0], STORAGE_CLASSES.marks[1]];
        for (classes, chosen) in [
            (vec![], None),
            (
                vec![class("a", 1, ga, "false"), class("b", 1, "other", "true")],
                None,
            ),
            (
                vec![class("a", 1, ga, "true"), class("b", 2, beta, "true")],
                Some("b"),
            ),
            (
                vec![class("b", 1, ga, "true"), class("a", 1, ga, "true")],
                Some("a"),
            ),
        ] {
            assert_eq!(newest_default(&STORAGE_CLASSES, &classes), chosen);
        }
        let ingress = [class("nginx", 1, INGRESS_CLASSES.marks[0], "true")];
        assert_eq!(newest_default(&INGRESS_CLASSES, &ingress), Some("nginx"));
    }
}
