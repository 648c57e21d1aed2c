//! PATCH in its four kinds.

use http::StatusCode;
use objects::managed::{self, ApplyError};
use serde_json::Value;

use super::{Api, Call, Reply, text};
use crate::codec;
use crate::negotiate;
use crate::request::{FieldValidation, WriteOptions};
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
            return Err(ApiError::invalid_option(
                "PatchOptions",
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch",
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
        warnings.extend(changed.warnings);
        Ok(Reply::new(StatusCode::OK, &view, view.stored(&changed.stored)).with_warnings(warnings))
    }

    async fn apply(&self, call: &Call, subresource: &str, options: &WriteOptions) -> Result<Reply> {
        let view = call.view()?;
        if call.query.get("fieldManager").is_none() {
            return Err(ApiError::invalid_option(
                "PatchOptions",
                "FieldValueRequired",
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
                    let uid = text(&config, "uid");
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(ApiError::conflict(call.resource, call.path.name(), &why));
                }
                let object = self.applied(call, None, &config, options, subresource)?;
                call.check_named(&object)?;
                let stored = self
                    .create_object(call, object, options, &mut warnings)
                    .await?;
                Reply::new(StatusCode::CREATED, &view, view.stored(&stored))
            }
            other => {
                let changed = other?;
                warnings.extend(changed.warnings);
                Reply::new(StatusCode::OK, &view, view.stored(&changed.stored))
            }
        };
        Ok(reply.with_warnings(warnings))
    }

    fn read_config(
        &self,
        call: &Call,
        options: &WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        codec::check_size(&call.body, negotiate::Format::Yaml)?;
        let parsed = objects::yaml::parse(&call.body)
            .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
        let config = match parsed.value {
            Value::Null => Value::Object(serde_json::Map::new()),
            config @ Value::Object(_) => config,
            other => {
                let found = go_type(&other);
                return Err(ApiError::bad_request(format!(
                    "error decoding YAML: error unmarshaling JSON: while decoding JSON: \
                     json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                )));
            }
        };
        call.check_identity(&config)?;
        codec::strict(
            &parsed.strict,
            call.expected(),
            options.field_validation,
            warnings,
        )?;
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

// What Go's JSON decoder calls a value that does not fit.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null | Value::Object(_) => "object",
    }
}

fn read_patch(call: &Call, options: &WriteOptions, warnings: &mut Vec<String>) -> Result<Value> {
    let media = negotiate::body_media(&call.headers);
    if ![JSON, MERGE, STRATEGIC].contains(&media) {
        return Err(ApiError::unknown_patch_type());
    }
    codec::check_size(&call.body, negotiate::Format::Json)?;
    let prefix = if media == STRATEGIC {
        ""
    } else {
        "error decoding patch: "
    };
    let parsed = objects::json::parse(&call.body)
        .map_err(|e| ApiError::bad_request(format!("{prefix}{e}")))?;
    codec::strict(
        &parsed.strict,
        call.expected(),
        options.field_validation,
        warnings,
    )?;
    match (media, &parsed.value) {
        (JSON, _) | (_, Value::Object(_)) => Ok(parsed.value),
        (STRATEGIC, Value::Null) => Ok(Value::Object(serde_json::Map::new())),
        (_, other) => Err(ApiError::bad_request(format!(
            "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(other)
        ))),
    }
}

fn patched(
    call: &Call,
    patch: &Value,
    old: &Value,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let media = negotiate::body_media(&call.headers);
    let result = match media {
        JSON => objects::jsonpatch::json_patch(old, patch).map_err(patch_error)?,
        MERGE => objects::jsonpatch::merge_patch(old, patch).map_err(patch_error)?,
        _ => objects::strategic::strategic_patch(call.resource.ty, old, patch)
            .map_err(strategic_error)?,
    };
    let refuse = |why: &str| {
        let mut errors = kinds::field::Errors::default();
        let shown = Value::String(result.to_string());
        errors.invalid(&kinds::field::Path::root("patch"), &shown, why);
        ApiError::invalid("", "", "", &errors)
    };
    let same_kind = result["kind"] == old["kind"] && result["apiVersion"] == old["apiVersion"];
    if !same_kind && media != STRATEGIC {
        let (kind, version) = (result["kind"].as_str(), result["apiVersion"].as_str());
        return Err(refuse(&format!(
            "no kind {:?} is registered for version {:?}",
            kind.unwrap_or_default(),
            version.unwrap_or_default()
        )));
    }
    let decoded = objects::normalize::normalize(call.resource.ty, result.clone())
        .map_err(|error| refuse(&error.to_string()))?;
    match options.field_validation {
        FieldValidation::Strict if !decoded.unknown.is_empty() => {
            return Err(refuse(&format!(
                "strict decoding error: {}",
                decoded.unknown.join(", ")
            )));
        }
        FieldValidation::Warn => warnings.extend(decoded.unknown),
        FieldValidation::Strict | FieldValidation::Ignore => {}
    }
    let mut object = decoded.value;
    call.check_named(&object)?;
    call.check_identity(&object)?;
    object["kind"] = call.resource.kind.into();
    object["apiVersion"] = call.resource.gv.to_string().into();
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
        E::Failed(message) => {
            tracing::debug!(message, "a JSON patch does not apply");
            ApiError::patch_rejected()
        }
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
