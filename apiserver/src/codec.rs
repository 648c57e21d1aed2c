//! Request bodies: from bytes to an object in normal form, with the server's checks on top.

use http::HeaderMap;
use kinds::resources::GroupVersion;
use objects::decode::{ContentType, Decoded, GroupVersionKind, Target};
use objects::schema::TypeRef;
use serde_json::Value;

use crate::negotiate::{self, Format};
use crate::request::FieldValidation;
use crate::status::{ApiError, Result};

/// What a body must be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Group and version of the endpoint.
    pub(crate) gv: GroupVersion,
    /// Kind the endpoint takes.
    pub(crate) kind: &'static str,
    /// Its type.
    pub(crate) ty: TypeRef,
}

/// Decodes a body that must be of one kind. Unknown and duplicate fields are refused, warned about or
/// passed over as the client asked.
pub(crate) fn object(
    headers: &HeaderMap,
    bytes: &[u8],
    expected: Expected,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value> {
    let decoded = decode(headers, bytes, expected)?;
    check_kind(&decoded, expected)?;
    strict(&decoded.strict, expected, validation, warnings)?;
    let mut object = decoded.object;
    object["apiVersion"] = expected.gv.to_string().into();
    object["kind"] = expected.kind.into();
    Ok(object)
}

fn decode(headers: &HeaderMap, bytes: &[u8], expected: Expected) -> Result<Decoded> {
    let content = match negotiate::body_format(headers)? {
        Format::Json => ContentType::Json,
        Format::Yaml => ContentType::Yaml,
        Format::Protobuf => ContentType::Protobuf,
    };
    let default = GroupVersionKind::new(expected.gv.group, expected.gv.version, expected.kind);
    let resolve = |gvk: &GroupVersionKind| {
        if gvk.kind == expected.kind {
            Some(Target::Typed(expected.ty))
        } else {
            objects::decode::builtin(gvk)
        }
    };
    objects::decode::decode(content, bytes, Some(&default), resolve)
        .map_err(|error| decode_error(&error.to_string(), expected))
}

fn decode_error(error: &str, expected: Expected) -> ApiError {
    if error.starts_with("json: cannot unmarshal") || error.contains("quantities must match") {
        return ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {error}",
            kind = expected.kind,
            version = expected.gv.version,
        ));
    }
    ApiError::bad_request(error)
}

fn check_kind(decoded: &Decoded, expected: Expected) -> Result<()> {
    let wanted = expected.gv.to_string();
    let api_version = decoded.gvk.api_version();
    if decoded.gvk.kind != expected.kind {
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: no kind {:?} is served at this endpoint",
            decoded.gvk.kind, api_version, expected.kind, decoded.gvk.kind,
        )));
    }
    if api_version != wanted {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({wanted})",
            api_version,
        )));
    }
    Ok(())
}

/// Refuses, warns about or passes over unknown and duplicate fields.
pub(crate) fn strict(
    problems: &[String],
    expected: Expected,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend_from_slice(problems),
        FieldValidation::Strict => {
            return Err(ApiError::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {all}",
                kind = expected.kind,
                version = expected.gv.version,
                all = problems.join(", "),
            )));
        }
    }
    Ok(())
}

/// Decodes a body of one kind whatever group and version it names (option kinds exist in all).
pub(crate) fn any_version(headers: &HeaderMap, bytes: &[u8], expected: Expected) -> Result<Value> {
    let decoded = decode(headers, bytes, expected)?;
    if decoded.gvk.kind != expected.kind {
        return Err(ApiError::bad_request(format!(
            "expected {}, got {}",
            expected.kind, decoded.gvk.kind
        )));
    }
    Ok(decoded.object)
}
