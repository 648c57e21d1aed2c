//! A write as webhooks and policies are told of it: the AdmissionRequest.

use access::User;
use kinds::defined::ObjectType;
use kinds::resources::{GroupVersion, Resource};
use serde_json::{Value, json};

use super::matching::Matched;
use super::{Attributes, Operation};
use crate::api::Api;
use crate::status::Result;

/// The request without its objects and its uid, which policies do not see.
pub(super) fn request(attributes: &Attributes<'_>, matched: &Matched) -> Value {
    let own = attributes.resource();
    let (kind, own_kind) = (
        kind_of(&matched.resource, attributes.subresource),
        kind_of(own, attributes.subresource),
    );
    let mut request = json!({
        "kind": kind,
        "resource": resource_of(&matched.resource),
        "requestKind": own_kind,
        "requestResource": resource_of(own),
        "operation": attributes.operation.as_str(),
        "userInfo": user_info(attributes.user()),
        "dryRun": attributes.dry_run,
        "options": options(attributes),
    });
    let optional = [
        ("subResource", attributes.subresource),
        ("requestSubResource", attributes.subresource),
        ("name", attributes.name),
        ("namespace", attributes.namespace()),
    ];
    for (field, value) in optional.into_iter().filter(|(_, value)| !value.is_empty()) {
        request[field] = value.into();
    }
    request
}

/// Group, version and kind of a body.
pub(super) fn body_kind(resource: &Resource, subresource: &str) -> (GroupVersion, &'static str) {
    match resource.subresource(subresource) {
        Some(below) => (below.gv.unwrap_or(resource.gv), below.kind),
        None => (resource.gv, resource.kind),
    }
}

fn kind_of(resource: &Resource, subresource: &str) -> Value {
    let (gv, kind) = body_kind(resource, subresource);
    json!({"group": gv.group, "version": gv.version, "kind": kind})
}

fn resource_of(resource: &Resource) -> Value {
    json!({"group": resource.gv.group, "version": resource.gv.version, "resource": resource.plural})
}

fn user_info(user: &User) -> Value {
    let mut info = json!({});
    let fields = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (field, value, _) in fields.into_iter().filter(|(_, _, empty)| !empty) {
        info[field] = value;
    }
    info
}

fn options(attributes: &Attributes<'_>) -> Value {
    let kind = match (attributes.operation, &attributes.call.method) {
        (Operation::Connect, _) => return Value::Null,
        (Operation::Delete, _) => "DeleteOptions",
        (_, &http::Method::PATCH) => "PatchOptions",
        (Operation::Create, _) => "CreateOptions",
        (Operation::Update, _) => "UpdateOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    for field in ["fieldManager", "fieldValidation"] {
        if let Some(value) = attributes.call.query.get(field) {
            options[field] = value.into();
        }
    }
    if attributes.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    options
}

/// The type of a body.
pub(super) fn body_type(resource: &Resource, subresource: &str) -> ObjectType {
    let (gv, kind) = body_kind(resource, subresource);
    match objects::schema::kind(gv.group, gv.version, kind) {
        Some(ty) if (gv, kind) != (resource.gv, resource.kind) => ty.into(),
        _ => resource.ty.clone(),
    }
}

/// An object in the version in which it matched, if that is another one.
pub(super) async fn in_version(
    api: &Api,
    object: Option<&Value>,
    own: &Resource,
    matched: &Matched,
) -> Result<Option<Value>> {
    let Some(object) = object.filter(|object| !object.is_null()) else {
        return Ok(None);
    };
    if own.gv == matched.resource.gv {
        return Ok(None);
    }
    let converted = api.between(own, &matched.resource, object.clone()).await?;
    Ok(super::super::rest::normal_form(&matched.resource, converted).ok())
}

/// The same, back again.
pub(super) async fn back(
    api: &Api,
    object: Value,
    own: &Resource,
    matched: &Matched,
) -> Result<Value> {
    match own.gv == matched.resource.gv {
        true => Ok(object),
        false => api.between(&matched.resource, own, object).await,
    }
}
