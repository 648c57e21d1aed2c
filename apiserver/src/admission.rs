//! Admission: what may enter, decided after defaulting and before validation.
//!
//! Today one plugin stands here, NamespaceLifecycle, because nothing else keeps objects out of
//! namespaces that do not exist. More plugins join as rows of [`PLUGINS`].

use futures::future::BoxFuture;
use kinds::resources::{self, Resource};
use serde_json::Value;

use crate::rest::{Api, Call};
use crate::status::{ApiError, Result};

/// A write on its way in.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    /// The request.
    pub(crate) call: &'a Call,
    /// `create` or `update`.
    pub(crate) verb: &'a str,
}

type Plugin = for<'a> fn(&'a Api, &'a Attributes<'a>, &'a mut Value) -> BoxFuture<'a, Result<()>>;

/// The plugins in upstream's order (`pkg/kubeapiserver/options/plugins.go`).
const PLUGINS: &[(&str, Plugin)] = &[("NamespaceLifecycle", |api, attributes, object| {
    Box::pin(namespace_lifecycle(api, attributes, object))
})];

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Runs every plugin over an object.
pub(crate) async fn admit(
    api: &Api,
    attributes: &Attributes<'_>,
    object: &mut Value,
) -> Result<()> {
    for (_, plugin) in PLUGINS {
        plugin(api, attributes, object).await?;
    }
    Ok(())
}

/// Whether an object may be deleted.
pub(crate) fn admit_delete(resource: &Resource, name: &str) -> Result<()> {
    if resource.kind == "Namespace" && IMMORTAL.contains(&name) {
        return Err(ApiError::forbidden(
            resource,
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

async fn namespace_lifecycle(
    api: &Api,
    attributes: &Attributes<'_>,
    object: &mut Value,
) -> Result<()> {
    let call = attributes.call;
    if attributes.verb != "create" || !call.resource.namespaced || call.resource.is_virtual {
        return Ok(());
    }
    let namespaces = resources::find("", "v1", "namespaces").expect("in the table");
    let namespace = api
        .must_fetch(namespaces, "", call.path.namespace())
        .await?
        .value();
    if namespace["metadata"].get("deletionTimestamp").is_none() {
        return Ok(());
    }
    let name = call.path.namespace();
    let why =
        format!("unable to create new content in namespace {name} because it is being terminated");
    let message = format!("namespace {name} is being terminated");
    Err(ApiError::forbidden(
        call.resource,
        object["metadata"]["name"].as_str().unwrap_or_default(),
        &why,
    )
    .cause("NamespaceTerminating", message, "metadata.namespace"))
}

/// A certificate request carries who asked for it, whatever the client wrote there.
pub(crate) fn stamp_requester(call: &Call, object: &mut Value) {
    if call.resource.kind != "CertificateSigningRequest" {
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    spec.insert("username".into(), call.user.name.as_str().into());
    spec.insert("groups".into(), call.user.groups.as_slice().into());
}
