//! Certificate signing requests.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::pem;
use crate::validation::reading::{at, deep, items, repeated, some_int, text, texts};
use crate::validation::rules::unique;

const SPEC: Path<'static> = Path::root("spec");
const STATUS: Path<'static> = Path::root("status");
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const SIGNER_MAX: usize = 571;
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A new CertificateSigningRequest.
pub fn create(object: &Value, errors: &mut Errors) {
    check(object, &Value::Null, errors);
}

/// A changed CertificateSigningRequest, its status or its approval.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    check(new, old, errors);
    kept_conditions(new, old, errors);
    if subresource != "approval" {
        same_verdict(new, old, errors);
    }
    let certificate = |o| text(at(o, "status"), "certificate");
    if certificate(new) != certificate(old) {
        let path = STATUS.child("certificate");
        if subresource != "status" {
            errors.forbidden(&path, "updates may not set certificate content");
        } else if !certificate(old).is_empty() {
            errors.forbidden(&path, "updates may not modify existing certificate content");
        }
    }
}

// What an old object was let in with is not held against the new one.
fn check(object: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (at(object, "spec"), at(old, "spec"));
    if let Some(problem) = request_problem(&pem::bytes(at(spec, "request"))) {
        errors.invalid(&SPEC.child("request"), at(spec, "request"), problem);
    }
    usages(spec, before, errors);
    signer(spec, before, errors);
    if some_int(spec, "expirationSeconds").is_some_and(|seconds| seconds < 600) {
        let complaint = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(
            &SPEC.child("expirationSeconds"),
            at(spec, "expirationSeconds"),
            complaint,
        );
    }
    conditions(object, old, errors);
    let (certificate, was) = (
        deep(object, &["status", "certificate"]),
        deep(old, &["status", "certificate"]),
    );
    if certificate != was
        && let Some(problem) = certificate_problem(&pem::bytes(certificate))
    {
        let shown = "<certificate data>".into();
        errors.invalid(&STATUS.child("certificate"), &shown, &problem);
    }
}

fn request_problem(data: &[u8]) -> Option<&'static str> {
    match pem::blocks(data).first() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => (!pem::is_der_sequence(&block.der))
            .then_some("asn1: structure error: malformed certificate request"),
        _ => Some("PEM block type must be CERTIFICATE REQUEST"),
    }
}

fn certificate_problem(data: &[u8]) -> Option<String> {
    if data.is_empty() {
        return None;
    }
    let blocks = pem::blocks(data);
    if blocks.is_empty() {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    blocks.iter().find_map(|block| {
        if block.label != "CERTIFICATE" {
            return Some(format!(
                "only CERTIFICATE PEM blocks are allowed, found {:?}",
                block.label
            ));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        (!pem::is_der_sequence(&block.der)).then(|| "x509: malformed certificate".to_owned())
    })
}

fn usages(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("usages");
    let list = items(spec, "usages");
    if list.is_empty() {
        errors.required(&path, "");
    }
    if texts(old, "usages").all(|usage| USAGES.contains(&usage)) {
        for (i, usage) in texts(spec, "usages").enumerate() {
            if !USAGES.contains(&usage) {
                errors.not_supported(&path.index(i), &usage.into(), USAGES);
            }
        }
    }
    let had_duplicates = repeated(texts(old, "usages")).contains(&true);
    if !had_duplicates {
        unique(errors, &path, list, None, ToString::to_string);
    }
}

fn signer(spec: &Value, old: &Value, errors: &mut Errors) {
    let (path, name) = (SPEC.child("signerName"), text(spec, "signerName"));
    if name == LEGACY_SIGNER && text(old, "signerName") != LEGACY_SIGNER {
        let complaint = "the legacy signerName is not allowed via this API version";
        return errors.invalid(&path, &name.into(), complaint);
    }
    signer_name(name, &path, errors);
}

/// A signer's name: a domain of two parts at least, a slash, and a path of subdomains.
pub fn signer_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let [domain, tail] = name.split('/').collect::<Vec<_>>()[..] else {
        let complaint =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, &name.into(), complaint);
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.too_long(path, names::SUBDOMAIN_MAX);
    }
    first_bad_label(domain, names::dns1123_label, path, errors);
    if !domain.contains('.') {
        let complaint = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, &domain.into(), complaint);
    }
    first_bad_label(tail, names::dns1123_subdomain, path, errors);
    if name.len() > SIGNER_MAX {
        errors.too_long(path, SIGNER_MAX);
    }
}

fn first_bad_label(part: &str, rule: names::Rule, path: &Path<'_>, errors: &mut Errors) {
    let bad = part
        .split('.')
        .map(|label| (label, rule(label)))
        .find(|(_, e)| !e.is_empty());
    for (label, complaint) in bad
        .into_iter()
        .flat_map(|(l, e)| e.into_iter().map(move |e| (l, e)))
    {
        let complaint = format!("validating label {label:?}: {complaint}");
        errors.invalid(path, &part.into(), &complaint);
    }
}

fn condition_types(object: &Value) -> Vec<&str> {
    items(at(object, "status"), "conditions")
        .iter()
        .map(|c| text(c, "type"))
        .collect()
}

fn conditions(object: &Value, old: &Value, errors: &mut Errors) {
    let path = STATUS.child("conditions");
    let list = items(at(object, "status"), "conditions");
    for (i, condition) in list.iter().enumerate() {
        condition_fields(condition, &path.index(i), errors);
    }
    let (types, before) = (condition_types(object), condition_types(old));
    let is_torn = |types: &[&str]| types.contains(&"Approved") && types.contains(&"Denied");
    if is_torn(&types) && !is_torn(&before) {
        let last = types.iter().rfind(|t| matches!(**t, "Approved" | "Denied"));
        let complaint = "Approved and Denied conditions are mutually exclusive";
        errors.invalid(&path, &last.copied().unwrap_or_default().into(), complaint);
    }
    let had_duplicates = repeated(before).contains(&true);
    if !had_duplicates {
        unique(errors, &path, list, Some("type"), |c| {
            text(c, "type").to_owned()
        });
    }
}

fn condition_fields(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (ty, status) = (text(condition, "type"), text(condition, "status"));
    if ty.is_empty() {
        errors.required(&path.child("type"), "");
    }
    let allowed: &[&str] = match ty {
        "Approved" | "Denied" | "Failed" => &["True"],
        _ => &["False", "True", "Unknown"],
    };
    if status.is_empty() {
        errors.required(&path.child("status"), "");
    } else if !allowed.contains(&status) {
        errors.not_supported(&path.child("status"), &status.into(), allowed);
    }
}

fn of_type<'v>(object: &'v Value, ty: &str) -> Vec<&'v Value> {
    let list = items(at(object, "status"), "conditions");
    list.iter()
        .filter(|condition| text(condition, "type") == ty)
        .collect()
}

fn kept_conditions(new: &Value, old: &Value, errors: &mut Errors) {
    for ty in ["Approved", "Denied", "Failed"] {
        if of_type(new, ty).len() < of_type(old, ty).len() {
            let complaint = format!("updates may not remove a condition of type {ty:?}");
            errors.forbidden(&STATUS.child("conditions"), &complaint);
        }
    }
}

fn same_verdict(new: &Value, old: &Value, errors: &mut Errors) {
    for ty in ["Approved", "Denied"] {
        let (now, before) = (of_type(new, ty), of_type(old, ty));
        let verb = match now.len().cmp(&before.len()) {
            std::cmp::Ordering::Greater => "add",
            std::cmp::Ordering::Equal if now != before => "modify",
            _ => continue,
        };
        let complaint = format!("updates may not {verb} a condition of type {ty:?}");
        errors.forbidden(&STATUS.child("conditions"), &complaint);
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn encoded(label: &str) -> String {
        let text = format!("-----BEGIN {label}-----\nMAMBAf8=\n-----END {label}-----\n");
        base64::engine::general_purpose::STANDARD.encode(text)
    }

    fn csr() -> Value {
        json!({"spec": {"request": encoded("CERTIFICATE REQUEST"), "usages": ["client auth"], "signerName": "kubernetes.io/kube-apiserver-client"}})
    }

    fn judged(ty: &str) -> Value {
        json!({"status": {"conditions": [{"type": ty, "status": "True"}]}})
    }

    #[test]
    fn requests_ask_a_signer_for_known_usages() {
        let signer = |name: &str| json!({"spec": {"signerName": name}});
        creates(
            create,
            &csr(),
            &[
                (
                    json!({"spec": {"request": encoded("CERTIFICATE")}}),
                    "spec.request: Invalid value",
                ),
                (
                    json!({"spec": {"usages": null}}),
                    "spec.usages: Required value",
                ),
                (
                    json!({"spec": {"usages": ["fun"]}}),
                    "spec.usages[0]: Unsupported value: \"fun\": supported values: \"any\", \"cert sign\"",
                ),
                (
                    json!({"spec": {"usages": ["any", "any"]}}),
                    "spec.usages[1]: Duplicate value: \"any\"",
                ),
                (signer(""), "spec.signerName: Required value"),
                (
                    signer("a"),
                    "spec.signerName: Invalid value: \"a\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
                ),
                (
                    signer("a/b"),
                    "spec.signerName: Invalid value: \"a\": should be a domain with at least two segments separated by dots",
                ),
                (
                    signer("A.b/c"),
                    "spec.signerName: Invalid value: \"A.b\": validating label \"A\": a lowercase RFC 1123 label",
                ),
                (
                    signer(LEGACY_SIGNER),
                    "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
                ),
                (
                    json!({"spec": {"expirationSeconds": 599}}),
                    "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
                ),
            ],
        );
    }

    #[test]
    fn verdicts_come_by_approval_and_stay() {
        let both = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]}});
        updates(
            update,
            "approval",
            &csr(),
            &[
                (judged("Approved"), ""),
                (
                    both,
                    "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
                ),
                (
                    json!({"status": {"conditions": [{"type": "Approved", "status": "False"}]}}),
                    "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"",
                ),
                (
                    json!({"status": {"conditions": [{"type": "", "status": "True"}]}}),
                    "status.conditions[0].type: Required value",
                ),
                (
                    json!({"status": {"certificate": encoded("CERTIFICATE")}}),
                    "status.certificate: Forbidden: updates may not set certificate content",
                ),
            ],
        );
        updates(
            update,
            "",
            &csr(),
            &[(
                judged("Approved"),
                "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
            )],
        );
        updates(
            update,
            "approval",
            &with(&csr(), &judged("Approved")),
            &[(
                json!({"status": {"conditions": []}}),
                "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"",
            )],
        );
    }

    #[test]
    fn the_certificate_is_set_once_through_status() {
        updates(
            update,
            "status",
            &csr(),
            &[
                (
                    json!({"status": {"certificate": encoded("CERTIFICATE")}}),
                    "",
                ),
                (
                    json!({"status": {"certificate": encoded("KEY")}}),
                    "status.certificate: Invalid value: \"<certificate data>\": only CERTIFICATE PEM blocks are allowed, found \"KEY\"",
                ),
                (
                    json!({"status": {"certificate": "AAAA"}}),
                    "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
                ),
                (judged("Failed"), ""),
            ],
        );
        let issued = with(
            &csr(),
            &json!({"status": {"certificate": encoded("CERTIFICATE")}}),
        );
        updates(
            update,
            "status",
            &issued,
            &[(
                json!({"status": {"certificate": "AAAA"}}),
                "status.certificate: Forbidden: updates may not modify existing certificate content",
            )],
        );
    }
}
