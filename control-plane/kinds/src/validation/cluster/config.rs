//! ConfigMaps and Secrets: keys, sizes, typed secrets, immutability.

use base64::Engine;
use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, deep, entries, flag, text};
use crate::validation::rules::{complain, immutable};

const SIZE_MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// A new ConfigMap.
pub fn config_map(object: &Value, errors: &mut Errors) {
    let (data, binary) = (Path::root("data"), Path::root("binaryData"));
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        complain(errors, &data.key(key), key, names::config_map_key(key));
        if !deep(object, &["binaryData", key]).is_null() {
            let complaint = "duplicate of key present in binaryData";
            errors.invalid(&data.key(key), &key.into(), complaint);
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, "binaryData") {
        complain(errors, &binary.key(key), key, names::config_map_key(key));
        size += decoded_length(value);
    }
    if size > SIZE_MAX {
        // The whole object is at fault: upstream reports it without a path.
        errors.too_long(&Path::root(""), SIZE_MAX);
    }
}

/// A changed ConfigMap.
pub fn config_map_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    frozen(new, old, &["data", "binaryData"], errors);
    config_map(new, errors);
}

/// A new Secret.
pub fn secret(object: &Value, errors: &mut Errors) {
    let data = Path::root("data");
    let mut size = 0;
    for (key, value) in entries(object, "data") {
        complain(errors, &data.key(key), key, names::config_map_key(key));
        size += decoded_length(value);
    }
    if size > SIZE_MAX {
        errors.too_long(&data, SIZE_MAX);
    }
    typed_secret(object, errors);
}

/// A changed Secret.
pub fn secret_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    immutable(
        errors,
        &Path::root("type"),
        at(new, "type"),
        at(old, "type"),
    );
    frozen(new, old, &["data"], errors);
    secret(new, errors);
}

fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.forbidden(&Path::root("immutable"), FROZEN);
    }
    for field in fields {
        if !entries(new, field).eq(entries(old, field)) {
            errors.forbidden(&Path::root(field), FROZEN);
        }
    }
}

fn typed_secret(object: &Value, errors: &mut Errors) {
    let data = Path::root("data");
    let has = |key: &str| !deep(object, &["data", key]).is_null();
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let annotations = deep(object, &["metadata", "annotations"]);
            if text(annotations, SERVICE_ACCOUNT_NAME).is_empty() {
                let path = Path::root("metadata");
                errors.required(&path.child("annotations").key(SERVICE_ACCOUNT_NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => registry_secret(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => registry_secret(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.required(&data.key("username"), "");
            errors.required(&data.key("password"), "");
        }
        "kubernetes.io/ssh-auth"
            if deep(object, &["data", "ssh-privatekey"]) == "" || !has("ssh-privatekey") =>
        {
            errors.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)) {
                errors.required(&data.key(key), "");
            }
        }
        _ => {}
    }
}

fn registry_secret(object: &Value, key: &str, errors: &mut Errors) {
    let data = Path::root("data");
    let Some(encoded) = deep(object, &["data", key]).as_str() else {
        return errors.required(&data.key(key), "");
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .unwrap_or_default();
    let parsed: Result<serde_json::Map<String, Value>, _> = serde_json::from_slice(&bytes);
    if let Err(problem) = parsed {
        let complaint = as_go_says(&bytes, &problem);
        errors.invalid(
            &data.key(key),
            &"<secret contents redacted>".into(),
            &complaint,
        );
    }
}

// Go's words for the commonest mistakes; the exact text of the others is nobody's contract.
fn as_go_says(bytes: &[u8], problem: &serde_json::Error) -> String {
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    match first {
        Some(b) if !b"{[\"-0123456789tfn".contains(b) => format!(
            "invalid character {:?} looking for beginning of value",
            char::from(*b)
        ),
        _ if problem.is_eof() => "unexpected end of JSON input".to_owned(),
        _ => problem.to_string(),
    }
}

fn decoded_length(value: &Value) -> usize {
    let encoded = value.as_str().unwrap_or_default();
    encoded.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn config_maps_have_good_keys_and_a_limit() {
        let base = json!({"data": {"a": "b"}, "binaryData": {"c": "AAAA"}});
        creates(
            config_map,
            &base,
            &[
                (
                    json!({"data": {"": "x"}}),
                    "data[]: Invalid value: \"\": a valid config key must consist",
                ),
                (
                    json!({"binaryData": {"a b": "AA=="}}),
                    "binaryData[a b]: Invalid value: \"a b\": a valid config key",
                ),
                (
                    json!({"data": {"c": "x"}}),
                    "data[c]: Invalid value: \"c\": duplicate of key present in binaryData",
                ),
                (
                    json!({"data": {"a": "x".repeat(SIZE_MAX)}}),
                    ": Too long: may not be more than 1048576 bytes",
                ),
                (json!({"data": {"a": "x".repeat(SIZE_MAX - 3)}}), ""),
            ],
        );
    }

    #[test]
    fn what_is_immutable_stays() {
        let base = json!({"immutable": true, "data": {"a": "b"}, "type": "Opaque"});
        updates(
            config_map_update,
            "",
            &base,
            &[
                (
                    json!({"immutable": null}),
                    "immutable: Forbidden: field is immutable when `immutable` is set",
                ),
                (
                    json!({"data": {"a": "c"}}),
                    "data: Forbidden: field is immutable when `immutable` is set",
                ),
                (
                    json!({"binaryData": {"a": "AA=="}}),
                    "binaryData: Forbidden: field is immutable",
                ),
            ],
        );
        updates(
            secret_update,
            "",
            &base,
            &[
                (
                    json!({"data": {"b": "AA=="}}),
                    "data: Forbidden: field is immutable when `immutable` is set",
                ),
                (
                    json!({"type": "x"}),
                    "type: Invalid value: \"x\": field is immutable",
                ),
            ],
        );
        let open = json!({"data": {"a": "AA=="}});
        updates(
            secret_update,
            "",
            &open,
            &[(json!({"data": {"a": "BB=="}, "immutable": true}), "")],
        );
    }

    #[test]
    fn typed_secrets_have_their_keys() {
        let typed =
            |ty: &str, data: Value| json!({"type": format!("kubernetes.io/{ty}"), "data": data});
        let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let good = encoded("{\"auths\":{}}");
        let cases = [
            (
                typed("dockerconfigjson", json!({".dockerconfigjson": good})),
                "",
            ),
            (
                typed("dockerconfigjson", json!({})),
                "data[.dockerconfigjson]: Required value",
            ),
            (typed("dockercfg", json!({".dockercfg": good})), ""),
            (
                typed("dockercfg", json!({".dockercfg": encoded("x")})),
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value",
            ),
            (typed("basic-auth", json!({"username": ""})), ""),
            (
                typed("basic-auth", json!({})),
                "data[password]: Required value",
            ),
            (typed("ssh-auth", json!({"ssh-privatekey": "AA=="})), ""),
            (
                typed("ssh-auth", json!({"ssh-privatekey": ""})),
                "data[ssh-privatekey]: Required value",
            ),
            (typed("tls", json!({"tls.crt": "", "tls.key": ""})), ""),
            (
                typed("tls", json!({"tls.crt": ""})),
                "data[tls.key]: Required value",
            ),
            (
                typed("service-account-token", json!({})),
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
            (
                json!({"type": "kubernetes.io/service-account-token", "metadata": {"annotations": {SERVICE_ACCOUNT_NAME: "a"}}}),
                "",
            ),
        ];
        creates(secret, &json!({}), &cases);
        creates(
            secret,
            &json!({}),
            &[(
                json!({"data": {"a": "A".repeat(SIZE_MAX / 3 * 4 + 8)}}),
                "data: Too long: may not be more than 1048576 bytes",
            )],
        );
    }
}
