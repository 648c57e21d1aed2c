//! AdmissionReview: what a webhook is asked, and what it may answer. Pure.

use base64::Engine as _;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::NULL;
use crate::status::ApiError;
use crate::writing::admission::matching::Matched;
use crate::writing::admission::shape::{items, text};
use crate::writing::admission::{Attributes, asked};

/// What a webhook said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) warnings: Vec<String>,
    /// A JSON patch.
    pub(super) patch: Option<Value>,
    /// The status of a no.
    pub(super) denied: Option<Value>,
    /// What it wants to be recorded.
    pub(super) annotations: Vec<(String, String)>,
}

/// The question.
pub(super) fn request(
    attributes: &Attributes<'_>,
    matched: &Matched,
    (object, old): (Option<&Value>, Option<&Value>),
    uid: &str,
    version: &str,
) -> Bytes {
    let mut request = asked::request(attributes, matched);
    request["uid"] = uid.into();
    request["object"] = object.unwrap_or(NULL).clone();
    request["oldObject"] = old.unwrap_or(NULL).clone();
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{version}"),
        "request": request,
    });
    Bytes::from(review.to_string())
}

/// The answer, or what is wrong with it.
pub(super) fn answer(
    bytes: &[u8],
    uid: &str,
    version: &str,
    mutates: bool,
) -> Result<Answer, String> {
    let review: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("unable to parse AdmissionReview: {error}"))?;
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".into());
    }
    if version == "v1" {
        check_envelope(&review, uid)?;
    }
    let patch = patch(response, version, mutates)?;
    let warnings = items(&response["warnings"])
        .iter()
        .map(|w| text(w).to_owned());
    let allowed = response["allowed"].as_bool().unwrap_or(false);
    Ok(Answer {
        warnings: warnings.collect(),
        denied: (!allowed).then(|| response["status"].clone()),
        patch: patch.filter(|_| allowed),
        annotations: annotations(&response["auditAnnotations"]),
    })
}

fn annotations(given: &Value) -> Vec<(String, String)> {
    let given = given.as_object().into_iter().flatten();
    given
        .map(|(key, value)| (key.clone(), text(value).to_owned()))
        .collect()
}

fn check_envelope(review: &Value, uid: &str) -> Result<(), String> {
    let found = text(&review["response"]["uid"]);
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let (version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
        ));
    }
    Ok(())
}

fn patch(response: &Value, version: &str, mutates: bool) -> Result<Option<Value>, String> {
    let (patch, kind) = (text(&response["patch"]), text(&response["patchType"]));
    if !mutates {
        return match (patch.is_empty(), kind.is_empty()) {
            _ if version != "v1" => Ok(None),
            (false, _) => Err("validating webhook may not return response.patch".into()),
            (true, false) => Err("validating webhook may not return response.patchType".into()),
            (true, true) => Ok(None),
        };
    }
    match (patch.is_empty(), kind) {
        (true, "") => return Ok(None),
        (false, "") if version == "v1" => {
            return Err("webhook returned response.patch but not response.patchType".into());
        }
        (true, _) if version == "v1" => {
            return Err("webhook returned response.patchType but not response.patch".into());
        }
        (true, _) => return Ok(None),
        (false, "" | "JSONPatch") => {}
        (false, other) => return Err(format!("unsupported patch type {other:?}")),
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(patch);
    let bytes = bytes.map_err(|error| format!("response.patch is not base64: {error}"))?;
    let patch = serde_json::from_slice(&bytes);
    patch
        .map(Some)
        .map_err(|error| format!("response.patch is not a JSON patch: {error}"))
}

/// A no, in upstream's words and with the webhook's code, which is at least 400.
pub(super) fn refusal(name: &str, status: &Value) -> ApiError {
    const REASONS: [&str; 12] = [
        "BadRequest",
        "Unauthorized",
        "Forbidden",
        "NotFound",
        "AlreadyExists",
        "Conflict",
        "Gone",
        "Invalid",
        "RequestEntityTooLarge",
        "TooManyRequests",
        "InternalError",
        "ServiceUnavailable",
    ];
    let (said, reason) = (text(&status["message"]), text(&status["reason"]));
    let prefix = format!("admission webhook {name:?} denied the request");
    let message = match (said, reason) {
        ("", "") => format!("{prefix} without explanation"),
        ("", reason) => format!("{prefix}: {reason}"),
        (said, _) => format!("{prefix}: {said}"),
    };
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    // A reason that is no constant of ours would be a text of unbounded length from elsewhere.
    let reason = REASONS.into_iter().find(|known| *known == reason);
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
    ApiError::answer(code, reason.unwrap_or_default(), message, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(response: Value, mutates: bool) -> Result<Answer, String> {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        answer(review.to_string().as_bytes(), "u", "v1", mutates)
    }

    #[test]
    fn answers_are_believed_only_when_they_are_whole() {
        let patch = base64::engine::general_purpose::STANDARD.encode("[]");
        let cases = [
            (
                json!({"uid": "u", "allowed": true}),
                false,
                Ok(Answer::default()),
            ),
            (
                json!({"uid": "x", "allowed": true}),
                false,
                Err("expected response.uid=\"u\", got \"x\""),
            ),
            (
                json!({"uid": "u", "allowed": true, "patch": patch}),
                false,
                Err("validating webhook may not return response.patch"),
            ),
            (
                json!({"uid": "u", "allowed": true, "patch": patch}),
                true,
                Err("webhook returned response.patch but not response.patchType"),
            ),
            (
                json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"}),
                true,
                Ok(Answer {
                    patch: Some(json!([])),
                    ..Answer::default()
                }),
            ),
            (
                json!({"uid": "u", "allowed": false, "status": {"code": 403}, "warnings": ["w"]}),
                false,
                Ok(Answer {
                    denied: Some(json!({"code": 403})),
                    warnings: vec!["w".into()],
                    ..Answer::default()
                }),
            ),
            (Value::Null, false, Err("webhook response was absent")),
        ];
        for (response, mutates, wanted) in cases {
            let found = said(response.clone(), mutates);
            assert_eq!(found, wanted.map_err(str::to_owned), "{response}");
        }
        let other =
            json!({"kind": "Pod", "apiVersion": "v1", "response": {"uid": "u", "allowed": true}});
        assert!(answer(other.to_string().as_bytes(), "u", "v1", false).is_err());
        assert!(answer(b"<html>", "u", "v1", false).is_err());
    }

    #[test]
    fn a_no_is_at_least_a_400_and_says_who_said_it() {
        let cases = [
            (
                json!({}),
                400,
                "admission webhook \"a.b.c\" denied the request without explanation",
            ),
            (
                json!({"message": "no", "code": 200}),
                400,
                "admission webhook \"a.b.c\" denied the request: no",
            ),
            (
                json!({"reason": "Forbidden", "code": 403}),
                403,
                "admission webhook \"a.b.c\" denied the request: Forbidden",
            ),
        ];
        for (status, code, message) in cases {
            let error = refusal("a.b.c", &status);
            assert_eq!(
                (error.code.as_u16(), error.message.as_str()),
                (code, message)
            );
        }
    }
}
