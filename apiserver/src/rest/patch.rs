//! PATCH in its four kinds.

use http::StatusCode;
use objects::managed::{self, ApplyError};
use serde_json::Value;

use super::{Api, Call, Reply, text};
use crate::codec;
use crate::negotiate;
use crate::request::WriteOptions;
use crate::status::{ApiError, Result};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Whether the request is a server-side apply.
pub(super) fn is_apply(call: &Call) -> bool {
    call.method == http::Method::PATCH && negotiate::body_media(&call.headers) == APPLY
}

impl Api {
    pub(super) async fn patch(&self, call: &Call, subresource: &str) -> Result<Reply> {
        let view = call.view()?;
        let options = call.write_options()?;
        let mut warnings = Vec::new();
        if is_apply(call) {
            return self.apply(call, subresource, &options).await;
        }
        if options.force {
            return Err(option_error(
                "force",
                "may not be specified for non-apply patch",
            ));
        }
        let patch = read_patch(call, &options, &mut warnings)?;
        let collected = std::sync::Mutex::new(Vec::new());
        let changed = self
            .change(call, subresource, &options, |old| {
                let mut found = Vec::new();
                let new = patched(call, &patch, old, &options, &mut found)?;
                *collected
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = found;
                Ok(new)
            })
            .await?;
        warnings.extend(collected.into_inner().unwrap_or_default());
        Ok(
            Reply::new(StatusCode::OK, &view, view.stored(changed.stored()))
                .with_warnings(warnings),
        )
    }

    async fn apply(&self, call: &Call, subresource: &str, options: &WriteOptions) -> Result<Reply> {
        let view = call.view()?;
        if call.query.get("fieldManager").is_none() {
            return Err(option_error(
                "fieldManager",
                "Required value: is required for apply patch",
            ));
        }
        let mut warnings = Vec::new();
        let config = self.read_config(call, options, &mut warnings)?;
        let outcome = self
            .change(call, subresource, options, |old| {
                self.applied(call, Some(old), &config, options, subresource)
            })
            .await;
        let reply = match outcome {
            Err(error) if error.reason == "NotFound" && subresource.is_empty() => {
                if !text(&config, "uid").is_empty() {
                    let why = "Precondition failed: UID in precondition, object does not exist";
                    return Err(ApiError::conflict(call.resource, call.path.name(), why));
                }
                let object = self.applied(call, None, &config, options, subresource)?;
                let stored = self
                    .create_object(call, object, options, &mut warnings)
                    .await?;
                Reply::new(StatusCode::CREATED, &view, view.stored(&stored))
            }
            other => Reply::new(StatusCode::OK, &view, view.stored(other?.stored())),
        };
        Ok(reply.with_warnings(warnings))
    }

    fn read_config(
        &self,
        call: &Call,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let parsed = objects::yaml::parse(&call.body)
            .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
        let mut config = parsed.value;
        let wanted = call.resource.gv.to_string();
        if config["apiVersion"] != wanted.as_str() || config["kind"] != call.resource.kind {
            return Err(ApiError::bad_request(format!(
                "incorrect apiVersion/kind in patch: {}/{} does not match the request's {wanted}/{}",
                config["apiVersion"].as_str().unwrap_or_default(),
                config["kind"].as_str().unwrap_or_default(),
                call.resource.kind,
            )));
        }
        check_identity(call, &config)?;
        let checked = objects::normalize::normalize(call.resource.ty, config.clone())
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let problems: Vec<String> = parsed
            .strict
            .iter()
            .chain(&checked.unknown)
            .cloned()
            .collect();
        codec::strict(
            &problems,
            call.expected(),
            options.field_validation,
            warnings,
        )?;
        if let Some(metadata) = config["metadata"].as_object_mut() {
            metadata
                .entry("name")
                .or_insert_with(|| call.path.name().into());
            if call.resource.namespaced {
                metadata
                    .entry("namespace")
                    .or_insert_with(|| call.namespace().into());
            }
        }
        Ok(config)
    }

    fn applied(
        &self,
        call: &Call,
        live: Option<&Value>,
        config: &Value,
        options: &WriteOptions,
        subresource: &str,
    ) -> Result<Value> {
        let (api_version, time) = (call.resource.gv.to_string(), self.clock.seconds());
        let filter = super::tracked_fields(call.resource, subresource);
        let request = managed::Request {
            manager: &options.field_manager,
            api_version: &api_version,
            kind: call.resource.kind,
            subresource,
            time: &time,
            force: options.force,
            reset: false,
            filter: &filter,
        };
        // An applied configuration is sparse; what results is a whole object.
        let finish = |merged: Value| {
            let normal = objects::normalize::normalize(call.resource.ty, merged)
                .map_err(|e| e.to_string())?;
            let mut object = normal.value;
            kinds::defaults::apply(call.resource.ty, &mut object);
            Ok(object)
        };
        managed::apply(call.resource.ty, live, config, &request, finish).map_err(apply_error)
    }
}

fn option_error(field: &str, message: &str) -> ApiError {
    ApiError::unprocessable(format!(
        "PatchOptions.meta.k8s.io \"\" is invalid: {field}: {message}"
    ))
    .cause("FieldValueInvalid", message, field)
}

fn check_identity(call: &Call, object: &Value) -> Result<()> {
    let (name, namespace) = (text(object, "name"), text(object, "namespace"));
    if !name.is_empty() && name != call.path.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.path.name()
        )));
    }
    if !namespace.is_empty() && namespace != call.namespace() {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn read_patch(call: &Call, options: &WriteOptions, warnings: &mut Vec<String>) -> Result<Value> {
    let media = negotiate::body_media(&call.headers);
    if ![JSON, MERGE, STRATEGIC].contains(&media) {
        return Err(ApiError::unsupported_media_type(
            &[JSON, MERGE, STRATEGIC, APPLY].join(", "),
        ));
    }
    let parsed =
        objects::json::parse(&call.body).map_err(|e| ApiError::bad_request(e.to_string()))?;
    codec::strict(
        &parsed.strict,
        call.expected(),
        options.field_validation,
        warnings,
    )?;
    Ok(parsed.value)
}

fn patched(
    call: &Call,
    patch: &Value,
    old: &Value,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let result = match negotiate::body_media(&call.headers) {
        JSON => objects::jsonpatch::json_patch(old, patch).map_err(patch_error)?,
        MERGE => objects::jsonpatch::merge_patch(old, patch).map_err(patch_error)?,
        _ => objects::strategic::strategic_patch(call.resource.ty, old, patch)
            .map_err(strategic_error)?,
    };
    let decoded = objects::normalize::normalize(call.resource.ty, result).map_err(|error| {
        let mut errors = kinds::field::Errors::default();
        errors.invalid(
            &kinds::field::Path::root("patch"),
            patch,
            &error.to_string(),
        );
        ApiError::invalid(
            call.resource.gv.group,
            call.resource.kind,
            call.path.name(),
            &errors,
        )
    })?;
    codec::strict(
        &decoded.unknown,
        call.expected(),
        options.field_validation,
        warnings,
    )?;
    let mut object = decoded.value;
    check_identity(call, &object)?;
    kinds::defaults::apply(call.resource.ty, &mut object);
    Ok(object)
}

fn strategic_error(error: objects::strategic::StrategicError) -> ApiError {
    use objects::strategic::StrategicError as E;
    match error {
        E::ListOfLists => ApiError::unprocessable(error.to_string()),
        E::Unprocessable(message) => ApiError::plain(message),
        _ => ApiError::bad_request(error.to_string()),
    }
}

fn patch_error(error: objects::jsonpatch::JsonPatchError) -> ApiError {
    use objects::jsonpatch::JsonPatchError as E;
    match error {
        E::TooManyOperations { .. } => ApiError::too_large(error.to_string()),
        E::Malformed(message) => ApiError::bad_request(message),
        E::Failed(message) => ApiError::unprocessable(message),
    }
}

fn apply_error(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let mut status = ApiError::apply_conflict(conflicts.to_string());
            for conflict in &conflicts.0 {
                status = status.cause(
                    "FieldManagerConflict",
                    conflict.message(),
                    &conflict.field(),
                );
            }
            status
        }
        ApplyError::BadRequest(message) => ApiError::bad_request(message),
        ApplyError::Unusable(message) => ApiError::plain(message),
    }
}
