//! Request bodies: from bytes to an object in normal form, with the server's checks on top.

use http::HeaderMap;
use kinds::defined::{Definition, ObjectType};
use kinds::resources::GroupVersion;
use objects::MAX_PARTS;
use objects::decode::{ContentType, DecodeError, Decoded, GroupVersionKind, Target};
use serde_json::Value;

use crate::door::request::FieldValidation;
use crate::reading::negotiate::{self, Format};
use crate::status::{ApiError, Result};

/// What a body must be.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    /// Group and version of the endpoint.
    pub(crate) gv: GroupVersion,
    /// Kind the endpoint takes.
    pub(crate) kind: &'static str,
    /// Its type.
    pub(crate) ty: ObjectType,
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
    let decoded = decode(headers, bytes, &expected)?;
    check_kind(&decoded, &expected)?;
    strict(&decoded.strict, &expected, validation, warnings)?;
    let mut object = decoded.object;
    object["apiVersion"] = expected.gv.to_string().into();
    object["kind"] = expected.kind.into();
    Ok(object)
}

/// Refuses bodies that would grow out of proportion when decoded. YAML and protobuf are counted while they are read;
/// JSON, which may come as YAML, too, is counted before.
pub(crate) fn check_size(bytes: &[u8], format: Format) -> Result<()> {
    let is_json = match format {
        Format::Json => true,
        Format::Yaml => bytes.trim_ascii_start().starts_with(b"{"),
        Format::Protobuf => false,
    };
    match is_json && bytes.len() > MAX_PARTS && json_parts(bytes) > MAX_PARTS {
        true => Err(too_many_parts()),
        false => Ok(()),
    }
}

/// How many values a JSON text has, about: what opens and what follows a comma, outside of texts.
fn json_parts(bytes: &[u8]) -> usize {
    let (mut parts, mut is_text) = (0, false);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match (byte, is_text) {
            (b'"', _) => is_text = !is_text,
            (b'\\', true) => drop(rest.next()),
            (b'{' | b'[' | b',', false) => parts += 1,
            _ => {}
        }
    }
    parts
}

fn decode(headers: &HeaderMap, bytes: &[u8], expected: &Expected) -> Result<Decoded> {
    decode_raw(headers, bytes, expected)?.map_err(|error| decode_error(&error, bytes, expected))
}

fn decode_raw(
    headers: &HeaderMap,
    bytes: &[u8],
    expected: &Expected,
) -> Result<std::result::Result<Decoded, DecodeError>> {
    let format = negotiate::body_format(headers)?;
    check_size(bytes, format)?;
    let content = match format {
        Format::Json => ContentType::Json,
        Format::Yaml => ContentType::Yaml,
        Format::Protobuf => ContentType::Protobuf,
    };
    let default = GroupVersionKind::new(expected.gv.group, expected.gv.version, expected.kind);
    let decoded = match &expected.ty {
        ObjectType::BuiltIn(_) => {
            objects::decode::decode(content, bytes, Some(&default), objects::decode::builtin)
        }
        ObjectType::Defined(definition) => {
            let untyped = |_: &GroupVersionKind| Some(Target::Untyped);
            objects::decode::decode(content, bytes, Some(&default), untyped)
                .and_then(|decoded| custom(&**definition, decoded))
        }
    };
    // What is left out in a body may be filled in when it is read.
    if bytes.len() > MAX_PARTS
        && let Ok(decoded) = &decoded
        && !has_at_most(&decoded.object, &mut { MAX_PARTS })
    {
        return Err(too_many_parts());
    }
    Ok(decoded)
}

// A custom resource is read as it is, and then cut down to what its definition knows.
fn custom(
    definition: &dyn Definition,
    decoded: Decoded,
) -> std::result::Result<Decoded, DecodeError> {
    let Decoded {
        gvk,
        object,
        mut strict,
    } = decoded;
    let normal = definition
        .normalize(object)
        .map_err(|error| DecodeError::Type {
            gvk: Box::new(gvk.clone()),
            error,
        })?;
    strict.extend(normal.unknown);
    Ok(Decoded {
        gvk,
        object: normal.value,
        strict,
    })
}

/// Whether a value has no more than so many parts; stops counting when it has.
fn has_at_most(value: &Value, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else {
        return false;
    };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| has_at_most(item, left)),
        Value::Object(fields) => fields.values().all(|field| has_at_most(field, left)),
        _ => true,
    }
}

fn too_many_parts() -> ApiError {
    ApiError::bad_request(format!("the body has more than {MAX_PARTS} parts"))
}

// Upstream's `transformDecodeError`: a body whose kind is known is named by it, any other by its start.
fn decode_error(error: &DecodeError, bytes: &[u8], expected: &Expected) -> ApiError {
    let wanted = expected.kind;
    let named = match error {
        DecodeError::Type { gvk, .. } => Some((gvk.kind.as_str(), gvk.version.as_str())),
        DecodeError::NotRegistered { api_version, kind } => {
            let version = api_version.rsplit('/').next().unwrap_or(api_version);
            Some((kind.as_str(), version))
        }
        _ => None,
    };
    ApiError::bad_request(match named {
        Some((kind, version)) => {
            format!("{kind} in version {version:?} cannot be handled as a {wanted}: {error}")
        }
        None => format!(
            "the object provided is unrecognized (must be of type {wanted}): {error} ({})",
            summary(bytes)
        ),
    })
}

// The first thirty bytes, as text if they look like JSON.
fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = &bytes[..bytes.len().min(SHOWN)];
    let rest = if bytes.len() > SHOWN { " ..." } else { "" };
    match bytes.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{rest}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{rest}")
        }
    }
}

fn check_kind(decoded: &Decoded, expected: &Expected) -> Result<()> {
    let (wanted, found) = (expected.gv.to_string(), decoded.gvk.api_version());
    if decoded.gvk.kind != expected.kind {
        // Upstream names its internal type: the group's package and the kind.
        let package = expected.ty.package();
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {to}: \
             converting ({version}.{kind}) to ({package}.{to}): unknown conversion",
            kind = decoded.gvk.kind,
            version = decoded.gvk.version,
            to = expected.kind,
        )));
    }
    if found != wanted {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({wanted})"
        )));
    }
    Ok(())
}

/// Refuses, warns about or passes over unknown and duplicate fields.
pub(crate) fn strict(
    problems: &[String],
    expected: &Expected,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.extend(told_apart(problems)),
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

/// Problems as warnings: what one YAML error lists becomes a warning each.
pub(crate) fn told_apart(problems: &[String]) -> Vec<String> {
    let lines = |problem: &String| -> Vec<String> {
        match problem.strip_prefix("yaml: unmarshal errors:\n  ") {
            Some(lines) => lines.split("\n  ").map(str::to_owned).collect(),
            None => vec![problem.clone()],
        }
    };
    problems.iter().flat_map(lines).collect()
}

/// Decodes a body of one kind whatever group and version it names (option kinds exist in all).
pub(crate) fn any_version(headers: &HeaderMap, bytes: &[u8], expected: Expected) -> Result<Value> {
    let decoded =
        decode_raw(headers, bytes, &expected)?.map_err(|e| ApiError::bad_request(e.to_string()))?;
    if decoded.gvk.kind != expected.kind {
        return Err(ApiError::bad_request(format!(
            "no kind {:?} is registered for version {:?} in scheme \"pkg/runtime/scheme.go:111\"",
            decoded.gvk.kind,
            decoded.gvk.api_version(),
        )));
    }
    Ok(decoded.object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> std::result::Result<Value, String> {
        let maps = kinds::resources::find("", "v1", "configmaps").expect("exists");
        let expected = Expected {
            gv: maps.gv,
            kind: maps.kind,
            ty: maps.ty.clone(),
        };
        let mut warnings = Vec::new();
        object(
            &HeaderMap::new(),
            body.as_bytes(),
            expected,
            FieldValidation::Strict,
            &mut warnings,
        )
        .map_err(|error| error.message)
    }

    #[test]
    fn refusals_are_in_upstreams_words() {
        let cases = [
            (
                "",
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
            ),
            (
                "{\"a\":",
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"a\":)",
            ),
            (
                r#"{"kind":"Secret","apiVersion":"v1"}"#,
                "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
            ),
            (
                r#"{"kind":"ConfigMap","apiVersion":"v1","foo":1}"#,
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"foo\"",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(read(body).expect_err(body), message);
        }
        assert!(
            read(r#"{"metadata":{"name":"a"}}"#).is_ok(),
            "kind and version default to the endpoint's"
        );
    }

    #[test]
    fn each_duplicate_key_is_a_warning() {
        let problems = [
            "yaml: unmarshal errors:\n  line 3: a\n  line 6: b".to_owned(),
            "unknown field \"x\"".to_owned(),
        ];
        assert_eq!(
            told_apart(&problems),
            ["line 3: a", "line 6: b", "unknown field \"x\""]
        );
    }

    #[test]
    fn bodies_of_very_many_parts_are_refused_unread() {
        let many = MAX_PARTS + 1;
        for body in [
            format!("[{}]", "{},".repeat(many)),
            format!("[{}0]", "0,".repeat(many)),
        ] {
            let refused = check_size(body.as_bytes(), Format::Json).expect_err("too many");
            assert_eq!(refused.code.as_u16(), 400);
        }
        let text = format!(r#"{{"data":{{"csv":"{}"}}}}"#, "a,[{\\\",".repeat(many));
        assert!(check_size(text.as_bytes(), Format::Json).is_ok());
    }

    #[test]
    fn every_codec_counts_what_it_reads() {
        let pods = kinds::resources::find("", "v1", "pods").expect("exists");
        let expected = Expected {
            gv: pods.gv,
            kind: pods.kind,
            ty: pods.ty.clone(),
        };
        // An envelope, then metadata with a million empty finalizers of two bytes each.
        let finalizers = [0x72, 0].repeat(1_000_000);
        let protobuf = |raw: &[u8]| {
            let field = |tag: u8, bytes: &[u8]| {
                let mut out = vec![tag];
                let mut len = bytes.len();
                while len >= 0x80 {
                    out.push((len & 0x7f) as u8 | 0x80);
                    len >>= 7;
                }
                out.push(len as u8);
                [out, bytes.to_vec()].concat()
            };
            let meta = [field(0x0a, b"v1"), field(0x12, b"Pod")].concat();
            let unknown = [field(0x0a, &meta), field(0x12, &field(0x0a, raw))].concat();
            [objects::protobuf::MAGIC.to_vec(), unknown].concat()
        };
        let cases = [
            ("application/vnd.kubernetes.protobuf", protobuf(&finalizers)),
            (
                "application/yaml",
                format!("metadata:\n  finalizers:\n{}", "  - a\n".repeat(300_000)).into(),
            ),
            (
                "application/json",
                format!(
                    "{{\"metadata\":{{\"finalizers\":[{}0]}}}}",
                    "0,".repeat(300_000)
                )
                .into(),
            ),
        ];
        for (media, body) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::CONTENT_TYPE, media.parse().expect("a type"));
            let refused = decode(&headers, &body, &expected).expect_err(media);
            assert_eq!(refused.code.as_u16(), 400, "{media}: {}", refused.message);
            let is_count = ["parts", "budget"]
                .iter()
                .any(|word| refused.message.contains(word));
            assert!(is_count, "{media}: {}", refused.message);
        }
    }
}
