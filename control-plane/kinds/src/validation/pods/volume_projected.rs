//! Volumes made of pieces: downward API files and projections.

use std::collections::HashSet;

use serde_json::Value;

use super::container_env::{VOLUME_FIELDS, field_ref, resource_field_ref};
use super::volume::key_to_path;
use super::volume_paths;
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, int, items, some_int, text};
use crate::validation::rules::{complain, label_selector};
use crate::validation::values::file_mode;

const TOKEN_SECONDS_MIN: i64 = 10 * 60;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const CLASHING_PATHS: &str = "conflicting duplicate paths";
const KEY_TYPES: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
const SOURCES: [&str; 6] = [
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
];
const CERTIFICATE_SECONDS_MIN: i64 = 3600;
const CERTIFICATE_SECONDS_MAX: i64 = 91 * 24 * 3600;
const KUBERNETES_CERTIFICATE_SECONDS_MAX: i64 = 24 * 3600;

/// Files that show fields of the pod.
pub(crate) fn downward(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    file_mode(errors, path, source, "defaultMode");
    // Upstream reports all files at the volume.
    for file in items(source, "items") {
        downward_file(errors, path, file);
    }
}

fn downward_file(errors: &mut Errors, path: &Path<'_>, file: &Value) {
    if text(file, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    volume_paths::not_reserved(errors, &path.child("path"), text(file, "path"));
    match (has(file, "fieldRef"), has(file, "resourceFieldRef")) {
        (true, both) => {
            field_ref(
                errors,
                &path.child("fieldRef"),
                at(file, "fieldRef"),
                &VOLUME_FIELDS,
            );
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, &"resource".into(), detail);
            }
        }
        (false, true) => {
            let path = path.child("resourceFieldRef");
            resource_field_ref(errors, &path, at(file, "resourceFieldRef"), true);
        }
        (false, false) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
    file_mode(errors, path, file, "mode");
}

/// Files of several sources in one directory.
pub(crate) fn projected(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    file_mode(errors, path, source, "defaultMode");
    let sources = path.child("sources");
    let mut paths = Paths {
        taken: HashSet::new(),
    };
    for (i, piece) in items(source, "sources").iter().enumerate() {
        let element = sources.index(i);
        let given: Vec<&str> = SOURCES
            .into_iter()
            .filter(|name| has(piece, name))
            .collect();
        for name in &given {
            let value = at(piece, name);
            let piece_path = element.child(name);
            match *name {
                "secret" | "configMap" => keys(errors, path, &piece_path, value, &mut paths),
                "downwardAPI" => downward_piece(errors, path, &piece_path, value, &mut paths),
                "serviceAccountToken" => token(errors, path, &piece_path, value),
                "clusterTrustBundle" => trust_bundle(errors, path, &piece_path, value, &mut paths),
                _ => certificate(errors, path, &piece_path, value, &mut paths),
            }
        }
        if given.len() > 1 {
            errors.forbidden(
                &element,
                "may not specify more than 1 volume type per source",
            );
        }
    }
}

// The files so far: two sources may not write the same one.
struct Paths<'v> {
    taken: HashSet<&'v str>,
}

impl<'v> Paths<'v> {
    fn take(&mut self, errors: &mut Errors, volume: &Path<'_>, file: &'v str, shown: &str) {
        if !self.taken.insert(file) {
            errors.invalid(volume, &shown.into(), CLASHING_PATHS);
        }
    }
}

fn keys<'v>(
    errors: &mut Errors,
    volume: &Path<'_>,
    path: &Path<'_>,
    source: &'v Value,
    paths: &mut Paths<'v>,
) {
    let name = text(source, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    }
    let items_path = path.child("items");
    for (i, item) in items(source, "items").iter().enumerate() {
        key_to_path(errors, &items_path.index(i), item);
        let file = text(item, "path");
        if !file.is_empty() {
            paths.take(errors, volume, file, name);
        }
    }
}

fn downward_piece<'v>(
    errors: &mut Errors,
    volume: &Path<'_>,
    path: &Path<'_>,
    source: &'v Value,
    paths: &mut Paths<'v>,
) {
    for item in items(source, "items") {
        downward_file(errors, path, item);
        let file = text(item, "path");
        if !file.is_empty() {
            paths.take(errors, volume, file, file);
        }
    }
}

fn token(errors: &mut Errors, volume: &Path<'_>, path: &Path<'_>, source: &Value) {
    let seconds = int(source, "expirationSeconds");
    let seconds_path = path.child("expirationSeconds");
    if seconds < TOKEN_SECONDS_MIN {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid(&seconds_path, &seconds.into(), detail);
    }
    if seconds > TOKEN_SECONDS_MAX {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&seconds_path, &seconds.into(), detail);
    }
    match text(source, "path") {
        "" => errors.required(&volume.child("path"), ""),
        file => volume_paths::not_reserved(errors, &volume.child("path"), file),
    }
}

fn trust_bundle<'v>(
    errors: &mut Errors,
    volume: &Path<'_>,
    path: &Path<'_>,
    source: &'v Value,
    paths: &mut Paths<'v>,
) {
    match (has(source, "name"), has(source, "signerName")) {
        (true, true) => {
            errors.invalid(path, source, "only one of name and signerName may be used");
        }
        (true, false) => bundle_by_name(errors, path, source),
        (false, true) => {
            signer_name(
                errors,
                &path.child("signerName"),
                text(source, "signerName"),
            );
            label_selector(
                errors,
                &path.child("labelSelector"),
                at(source, "labelSelector"),
            );
        }
        (false, false) => errors.required(path, "either name or signerName must be specified"),
    }
    let file = text(source, "path");
    if file.is_empty() {
        errors.required(&path.child("path"), "");
    }
    volume_paths::not_reserved(errors, &path.child("path"), file);
    paths.take(errors, volume, file, file);
}

// A bundle of a signer is called `signer:with:colons:name`; others have plain names.
fn bundle_by_name(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let name = text(source, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "must be a valid object name");
    }
    let own = name.rsplit(':').next().unwrap_or(name);
    for complaint in names::dns1123_subdomain(own) {
        let detail = format!("not a valid clustertrustbundlename: {complaint}");
        errors.invalid(&path.child("name"), &name.into(), &detail);
    }
    if has(source, "labelSelector") {
        let detail = "labelSelector must be unset if name is specified";
        errors.invalid(
            &path.child("labelSelector"),
            at(source, "labelSelector"),
            detail,
        );
    }
}

fn signer_name(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(path, "must be a valid signer name");
    }
    let Some((domain, rest)) = name.split_once('/') else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, &name.into(), detail);
    };
    complain(errors, path, domain, names::dns1123_subdomain(domain));
    complain(errors, path, rest, names::dns1123_subdomain(rest));
}

fn certificate<'v>(
    errors: &mut Errors,
    volume: &Path<'_>,
    path: &Path<'_>,
    source: &'v Value,
    paths: &mut Paths<'v>,
) {
    signer_name(
        errors,
        &path.child("signerName"),
        text(source, "signerName"),
    );
    let key_type = text(source, "keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(&path.child("keyType"), &key_type.into(), &KEY_TYPES);
    }
    certificate_lifetime(errors, &path.child("maxExpirationSeconds"), source);
    let fields = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    let mut given = 0;
    for field in fields {
        let file = text(source, field);
        if !file.is_empty() {
            given += 1;
            volume_paths::not_reserved(errors, &path.child(field), file);
            paths.take(errors, volume, file, file);
        }
    }
    if given == 0 {
        let detail =
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
}

fn certificate_lifetime(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let Some(seconds) = some_int(source, "maxExpirationSeconds") else {
        return;
    };
    if seconds < CERTIFICATE_SECONDS_MIN {
        let detail = "if provided, maxExpirationSeconds must be >= 3600";
        errors.invalid(path, &seconds.into(), detail);
    }
    let domain = text(source, "signerName")
        .split('/')
        .next()
        .unwrap_or_default();
    let is_ours = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let most = if is_ours {
        KUBERNETES_CERTIFICATE_SECONDS_MAX
    } else {
        CERTIFICATE_SECONDS_MAX
    };
    if seconds > most {
        let detail = format!("if provided, maxExpirationSeconds must be <= {most}");
        errors.invalid(path, &seconds.into(), &detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    fn check(sources: Value) -> String {
        told(|e| projected(e, &Path::root("p"), &json!({ "sources": sources }))).join("|")
    }

    #[test]
    fn the_service_account_volume_every_pod_gets() {
        let found = check(json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{
                "path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
            }]}}
        ]));
        assert_eq!(found, "");
    }

    #[test]
    fn pieces_are_complete_and_apart() {
        let item = json!({"key": "k", "path": "x"});
        let cases = [
            (
                json!([{"serviceAccountToken": {"expirationSeconds": 1, "path": "t"}}]),
                "p.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
            ),
            (
                json!([{"serviceAccountToken": {"expirationSeconds": 3600}}]),
                "p.path: Required value",
            ),
            (
                json!([{"secret": {}}]),
                "p.sources[0].secret.name: Required value",
            ),
            (
                json!([{"secret": {"name": "a", "items": [item]}}, {"configMap": {"name": "b", "items": [item]}}]),
                "p: Invalid value: \"b\": conflicting duplicate paths",
            ),
            (
                json!([{"secret": {"name": "a"}, "configMap": {"name": "b"}}]),
                "p.sources[0]: Forbidden: may not specify more than 1 volume type per source",
            ),
            (
                json!([{"clusterTrustBundle": {"path": "ca"}}]),
                "p.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified",
            ),
            (
                json!([{"podCertificate": {"signerName": "a.b/c", "keyType": "ED25519"}}]),
                "p.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
            ),
            (
                json!([{"downwardAPI": {"items": [{"path": "x"}]}}]),
                "p.sources[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            ),
        ];
        for (sources, expected) in cases {
            assert_eq!(check(sources.clone()), expected, "{sources}");
        }
    }
}
