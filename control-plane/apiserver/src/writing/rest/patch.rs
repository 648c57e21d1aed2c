//! PATCH in its four kinds.

use http::StatusCode;
use objects::managed::{self, ApplyError};
use serde_json::Value;

use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::door::request::{FieldValidation, WriteOptions};
use crate::reading::negotiate;
use crate::status::{ApiError, Result};
use crate::writing::codec::{self, Expected};

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
        let patch = Patch::read(call, &options)?;
        let collected = std::sync::Mutex::new(Vec::new());
        let changed = self
            .change(call, subresource, &options, |old| {
                let mut found = Vec::new();
                let new = patch.apply(call, &call.expected(), old, &mut found)?;
                *collected
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = found;
                Ok(new)
            })
            .await?;
        warnings.extend(collected.into_inner().unwrap_or_default());
        warnings.extend(changed.warnings);
        let body = self.shown(&view, &changed.stored).await?;
        Ok(Reply::new(StatusCode::OK, &view, body).with_warnings(warnings))
    }

    async fn apply(&self, call: &Call, subresource: &str, options: &WriteOptions) -> Result<Reply> {
        let view = call.view()?;
        let config = Configuration::read(call, options)?;
        let mut warnings = config.warnings.clone();
        let expected = call.expected();
        let outcome = self
            .change(call, subresource, options, |old| {
                self.applied(call, &expected, Some(old), &config, options, subresource)
            })
            .await;
        let reply = match outcome {
            Err(error) if error.reason == "NotFound" && subresource.is_empty() => {
                if !text(&config.value, "uid").is_empty() {
                    let uid = text(&config.value, "uid");
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(ApiError::conflict(&call.resource, call.path.name(), &why));
                }
                let object = self.applied(call, &expected, None, &config, options, subresource)?;
                call.check_named(&object)?;
                let stored = self
                    .create_object(call, object, options, &mut warnings)
                    .await?;
                let body = self.shown(&view, &stored).await?;
                Reply::new(StatusCode::CREATED, &view, body)
            }
            other => {
                let changed = other?;
                warnings.extend(changed.warnings);
                let body = self.shown(&view, &changed.stored).await?;
                Reply::new(StatusCode::OK, &view, body)
            }
        };
        Ok(reply.with_warnings(warnings))
    }

    /// The object that results from applying a configuration to a live one.
    pub(super) fn applied(
        &self,
        call: &Call,
        expected: &Expected,
        live: Option<&Value>,
        config: &Configuration,
        options: &WriteOptions,
        subresource: &str,
    ) -> Result<Value> {
        let (api_version, time) = (expected.gv.to_string(), self.clock.seconds());
        let filter = match subresource {
            "scale" => managed::Filter::default(),
            _ => super::tracked_fields(&call.resource, subresource),
        };
        let request = managed::Request {
            manager: &options.field_manager,
            api_version: &api_version,
            kind: expected.kind,
            subresource,
            time: &time,
            force: options.force,
            reset: false,
            filter: &filter,
        };
        // An applied configuration is sparse; what results is a whole object.
        let finish = |merged: Value| {
            let normal = expected.ty.normalize(merged).map_err(|e| e.to_string())?;
            let mut object = normal.value;
            expected.ty.default(&mut object);
            Ok(object)
        };
        let object = managed::apply(expected.ty.shape(), live, &config.value, &request, finish)
            .map_err(apply_error)?;
        // Upstream looks for duplicate keys and at the names only now.
        if let Some(refusal) = &config.refusal {
            return Err(refusal.clone());
        }
        call.check_identity(&config.value)?;
        Ok(object)
    }
}

/// What a client applies.
#[derive(Debug)]
pub(super) struct Configuration {
    value: Value,
    refusal: Option<ApiError>,
    pub(super) warnings: Vec<String>,
}

impl Configuration {
    /// Reads the body of an apply.
    pub(super) fn read(call: &Call, options: &WriteOptions) -> Result<Configuration> {
        if call.query.get("fieldManager").is_none() {
            return Err(ApiError::invalid_option(
                "PatchOptions",
                "FieldValueRequired",
                "fieldManager",
                "Required value: is required for apply patch",
            ));
        }
        codec::check_size(&call.body, negotiate::Format::Yaml)?;
        let parsed = objects::yaml::parse(&call.body)
            .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
        let value = match parsed.value {
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
        let problems = parsed.strict;
        let refusal = (options.field_validation == FieldValidation::Strict && !problems.is_empty())
            .then(|| {
                ApiError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {}",
                    problems.join(", ")
                ))
            });
        let warnings = match options.field_validation {
            FieldValidation::Warn => codec::told_apart(&problems),
            FieldValidation::Strict | FieldValidation::Ignore => Vec::new(),
        };
        Ok(Configuration {
            value,
            refusal,
            warnings,
        })
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

/// A patch of one of the kinds other than apply.
#[derive(Debug)]
pub(super) struct Patch<'c> {
    media: &'c str,
    value: Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
}

impl Patch<'_> {
    /// Reads the body of a patch.
    pub(super) fn read<'c>(call: &'c Call, options: &WriteOptions) -> Result<Patch<'c>> {
        let media = negotiate::body_media(&call.headers);
        if ![JSON, MERGE, STRATEGIC].contains(&media) {
            return Err(ApiError::unknown_patch_type());
        }
        if options.force {
            return Err(ApiError::invalid_option(
                "PatchOptions",
                "FieldValueForbidden",
                "force",
                "Forbidden: may not be specified for non-apply patch",
            ));
        }
        codec::check_size(&call.body, negotiate::Format::Json)?;
        let prefix = if media == STRATEGIC {
            ""
        } else {
            "error decoding patch: "
        };
        let parsed = objects::json::parse(&call.body)
            .map_err(|e| ApiError::bad_request(format!("{prefix}{e}")))?;
        let value = match (media, parsed.value) {
            (STRATEGIC, Value::Null) => Value::Object(serde_json::Map::new()),
            (JSON, value) | (_, value @ Value::Object(_)) => value,
            (_, other) => {
                return Err(ApiError::bad_request(format!(
                    "{prefix}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    go_type(&other)
                )));
            }
        };
        Ok(Patch {
            media,
            value,
            duplicates: parsed.strict,
            validation: options.field_validation,
        })
    }

    /// What becomes of `old`, an object of the expected kind.
    pub(super) fn apply(
        &self,
        call: &Call,
        expected: &Expected,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let result = match self.media {
            JSON => objects::jsonpatch::json_patch(old, &self.value).map_err(patch_error)?,
            MERGE => objects::jsonpatch::merge_patch(old, &self.value).map_err(patch_error)?,
            _ => {
                let ty = expected.ty.built_in();
                let ty = ty.ok_or_else(ApiError::unsupported_patch)?;
                objects::strategic::strategic_patch(ty, old, &self.value)
                    .map_err(strategic_error)?
            }
        };
        let same_kind = result["kind"] == old["kind"] && result["apiVersion"] == old["apiVersion"];
        if !same_kind && self.media != STRATEGIC {
            let (kind, version) = (result["kind"].as_str(), result["apiVersion"].as_str());
            let why = format!(
                "no kind {:?} is registered for version {:?}",
                kind.unwrap_or_default(),
                version.unwrap_or_default()
            );
            return Err(self.refuse(&result, &why));
        }
        let decoded = (expected.ty.normalize(result.clone()))
            .map_err(|error| self.refuse(&result, &error.to_string()))?;
        let mut problems = self.duplicates.clone();
        problems.extend(decoded.unknown);
        match self.validation {
            FieldValidation::Strict if !problems.is_empty() => {
                let why = format!("strict decoding error: {}", problems.join(", "));
                return Err(self.refuse(&result, &why));
            }
            FieldValidation::Warn => warnings.extend(problems),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        let mut object = decoded.value;
        call.check_named(&object)?;
        call.check_identity(&object)?;
        object["kind"] = expected.kind.into();
        object["apiVersion"] = expected.gv.to_string().into();
        expected.ty.default(&mut object);
        Ok(object)
    }

    // Upstream shows the patched object's JSON, or the strategic patch as Go prints maps.
    fn refuse(&self, result: &Value, why: &str) -> ApiError {
        let shown = match self.media {
            STRATEGIC => objects::gotext::plain(&self.value),
            _ => result.to_string(),
        };
        let mut errors = kinds::field::Errors::default();
        errors.invalid(&kinds::field::Path::root("patch"), &shown.into(), why);
        ApiError::invalid("", "", "", &errors)
    }
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
