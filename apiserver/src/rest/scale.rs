//! The scale subresource: replicas as autoscaling/v1 Scale.

use http::StatusCode;
use kinds::field::{Errors, Path};
use kinds::resources::{GroupVersion, Resource};
use objects::schema::{self, TypeRef};
use serde_json::{Value, json};

use super::{Api, Call, Reply, text};
use crate::codec::{self, Expected};
use crate::negotiate;
use crate::status::{ApiError, Result};
use crate::view::{self, View};

const GV: GroupVersion = GroupVersion {
    group: "autoscaling",
    version: "v1",
};

fn scale_type() -> TypeRef {
    schema::kind(GV.group, GV.version, "Scale").expect("in the table")
}

/// A Scale as seen through an object that has replicas.
pub(crate) fn of(resource: &Resource, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let selector = match resource.kind {
        "ReplicationController" => {
            kube_kit::selector::LabelSelector::from_map(&object["spec"]["selector"])
        }
        _ => kube_kit::selector::LabelSelector::from_object(&object["spec"]["selector"])
            .unwrap_or_else(|_| kube_kit::selector::LabelSelector::nothing()),
    };
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": object["spec"]["replicas"].as_i64().unwrap_or(0)},
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or(0),
            "selector": selector.to_string(),
        },
    });
    if scale["spec"]["replicas"] == 0 {
        scale["spec"] = json!({});
    }
    scale
}

impl Api {
    pub(super) async fn scale(&self, call: &Call, verb: &str) -> Result<Reply> {
        let view = call.view_of(true)?;
        if verb == "get" {
            let stored = self
                .must_fetch(call.resource, call.namespace(), call.path.name())
                .await?;
            return Ok(scale_reply(call, &view, &stored.value()));
        }
        let options = call.write_options()?;
        let mut warnings = Vec::new();
        let expected = Expected {
            gv: GV,
            kind: "Scale",
            ty: scale_type(),
        };
        let body = match verb {
            "update" => codec::object(
                &call.headers,
                &call.body,
                expected,
                options.field_validation,
                &mut warnings,
            )?,
            _ => Value::Null,
        };
        let changed = self
            .change(call, "scale", &options, |old| {
                let scale = match verb {
                    "update" => body.clone(),
                    _ => patch_scale(call, &of(call.resource, old))?,
                };
                with_replicas(call, &scale, old)
            })
            .await?;
        Ok(scale_reply(call, &view, &changed.stored.value()).with_warnings(warnings))
    }
}

fn scale_reply(call: &Call, view: &View, object: &Value) -> Reply {
    let scale = of(call.resource, object);
    let accepted = negotiate::Accepted {
        shape: negotiate::Shape::Object,
        ..view.accepted
    };
    Reply::new(StatusCode::OK, view, view::encode(&scale, accepted).into())
}

fn patch_scale(call: &Call, scale: &Value) -> Result<Value> {
    let patch = objects::json::parse(&call.body)
        .map_err(|e| ApiError::bad_request(e.to_string()))?
        .value;
    match negotiate::body_media(&call.headers) {
        "application/json-patch+json" => objects::jsonpatch::json_patch(scale, &patch)
            .map_err(|e| ApiError::unprocessable(e.to_string())),
        "application/merge-patch+json" => objects::jsonpatch::merge_patch(scale, &patch)
            .map_err(|e| ApiError::bad_request(e.to_string())),
        "application/strategic-merge-patch+json" => {
            objects::strategic::strategic_patch(scale_type(), scale, &patch)
                .map_err(|e| ApiError::bad_request(e.to_string()))
        }
        _ => Err(ApiError::unsupported_media_type(
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
        )),
    }
}

fn with_replicas(call: &Call, scale: &Value, old: &Value) -> Result<Value> {
    call.check_identity(scale)?;
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let mut errors = Errors::default();
        let spec = Path::root("spec");
        errors.invalid(
            &spec.child("replicas"),
            &replicas.into(),
            "must be greater than or equal to 0",
        );
        return Err(ApiError::invalid(
            GV.group,
            "Scale",
            call.path.name(),
            &errors,
        ));
    }
    let mut new = old.clone();
    new["spec"]["replicas"] = replicas.into();
    let version = text(scale, "resourceVersion");
    if !version.is_empty() {
        new["metadata"]["resourceVersion"] = version.into();
    }
    if !text(scale, "uid").is_empty() {
        new["metadata"]["uid"] = scale["metadata"]["uid"].clone();
    }
    Ok(new)
}
