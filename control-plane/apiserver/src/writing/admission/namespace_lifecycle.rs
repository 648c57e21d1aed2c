//! NamespaceLifecycle: nothing enters a namespace that is missing or on its way out, and the
//! namespaces every cluster needs stay.

use futures::FutureExt as _;
use kinds::resources::Resource;
use serde_json::Value;

use super::attributes::text;
use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::{ApiError, Result};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "NamespaceLifecycle",
    handles,
    mutate: Some(|api, attributes, object| admit(api, attributes, object).boxed()),
    validate: None,
};

// An object that exists has a namespace, so updates need no look at it. Access reviews are let through:
// an answer about the namespace would tell too much.
fn handles(attributes: &Attributes<'_>) -> bool {
    match attributes.operation {
        Operation::Create => {
            attributes.resource().namespaced
                && !attributes.is("authorization.k8s.io", "localsubjectaccessreviews")
        }
        Operation::Delete => attributes.is("", "namespaces"),
        Operation::Update | Operation::Connect => false,
    }
}

async fn admit(api: &Api, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
    if attributes.operation == Operation::Delete {
        return may_go(attributes.resource(), attributes.name);
    }
    let namespaces = lookup::resource("", "v1", "namespaces");
    let name = attributes.namespace();
    let namespace = api.must_fetch(namespaces, "", name).await?;
    // Every create in every namespace comes by here: only one that may be going is read.
    match namespace.mentions("\"Terminating\"") {
        true => may_enter(attributes, &namespace.value(), object),
        false => Ok(()),
    }
}

fn may_go(resource: &Resource, name: &str) -> Result<()> {
    match IMMORTAL.contains(&name) {
        true => Err(ApiError::forbidden(
            resource,
            name,
            "this namespace may not be deleted",
        )),
        false => Ok(()),
    }
}

fn may_enter(attributes: &Attributes<'_>, namespace: &Value, object: &Value) -> Result<()> {
    if namespace["status"]["phase"] != "Terminating" {
        return Ok(());
    }
    let name = text(namespace, "name");
    let why =
        format!("unable to create new content in namespace {name} because it is being terminated");
    let message = format!("namespace {name} is being terminated");
    Err(attributes.forbid(Some(object), &why).cause(
        "NamespaceTerminating",
        message,
        "metadata.namespace",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::trial;
    use super::*;
    use serde_json::json;

    #[test]
    fn the_namespaces_every_cluster_needs_stay() {
        let namespaces = lookup::resource("", "v1", "namespaces");
        for (name, stays) in [
            ("default", true),
            ("kube-system", true),
            ("kube-public", true),
            ("kube-node-lease", false),
            ("team", false),
        ] {
            assert_eq!(may_go(namespaces, name).is_err(), stays, "{name}");
        }
        let refused = may_go(namespaces, "default").expect_err("stays");
        assert_eq!(
            refused.message,
            "namespaces \"default\" is forbidden: this namespace may not be deleted"
        );
    }

    #[test]
    fn nothing_enters_a_namespace_that_ends_and_controllers_are_told_why() {
        let call = trial::call(("", "v1", "configmaps"), "team", "");
        let attributes = trial::attributes(&call, Operation::Create, "", None);
        let object = json!({"metadata": {"generateName": "cfg-"}});
        let namespace =
            |phase: &str| json!({"metadata": {"name": "team"}, "status": {"phase": phase}});
        assert!(may_enter(&attributes, &namespace("Active"), &object).is_ok());
        let refused = may_enter(&attributes, &namespace("Terminating"), &object).expect_err("ends");
        assert_eq!(
            refused.message,
            "configmaps \"cfg-\" is forbidden: unable to create new content in namespace team because it is being terminated"
        );
        assert_eq!(
            refused.to_value()["details"]["causes"][0]["reason"],
            "NamespaceTerminating"
        );
    }

    #[test]
    fn access_reviews_tell_nothing_about_namespaces() {
        for (resource, operation, handled) in [
            (("", "v1", "pods"), Operation::Create, true),
            (("", "v1", "pods"), Operation::Update, false),
            (("", "v1", "pods"), Operation::Delete, false),
            (("", "v1", "nodes"), Operation::Create, false),
            (("", "v1", "namespaces"), Operation::Delete, true),
            (
                ("authorization.k8s.io", "v1", "localsubjectaccessreviews"),
                Operation::Create,
                false,
            ),
        ] {
            let call = trial::call(resource, "team", "");
            let attributes = trial::attributes(&call, operation, "", None);
            assert_eq!(handles(&attributes), handled, "{resource:?} {operation:?}");
        }
    }
}
