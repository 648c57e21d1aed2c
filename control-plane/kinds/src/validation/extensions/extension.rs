//! CustomResourceDefinitions and APIServices: names, versions and where they are served.
//!
//! The schemas inside a CustomResourceDefinition are judged where they are compiled.

use serde_json::Value;

use super::webhooks::{client_config, review_versions};
use crate::field::{Errors, Path};
use crate::validation::reading::{at, deep, flag, has, int, items, same_text, text, texts};
use crate::validation::rules::{immutable, one_of, required};
use crate::validation::{internal, names};

const SPEC: Path<'static> = Path::root("spec");
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] = &[
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];
const WARNING_MAX: usize = 256;
const APPROVED: &str = "api-approved.kubernetes.io";

/// A new CustomResourceDefinition.
pub fn definition(object: &Value, errors: &mut Errors) {
    approval(object, &Value::Null, errors);
    definition_spec(object, errors);
    // Upstream's new definitions have stored what their storage version says.
    let versions = items(at(object, "spec"), "versions");
    if !versions.iter().any(|version| flag(version, "storage")) {
        let complaint = "must have at least one stored version";
        let status = Path::root("status");
        errors.invalid(&status.child("storedVersions"), &Value::Null, complaint);
    }
}

fn definition_spec(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    definition_name(object, spec, errors);
    group(spec, errors);
    if required(errors, &SPEC, spec, "scope") {
        one_of(errors, &SPEC, spec, "scope", &["Cluster", "Namespaced"]);
    }
    versions(spec, errors);
    definition_names(at(spec, "names"), &SPEC.child("names"), errors);
    for name in ["plural", "singular", "kind", "listKind"] {
        required(errors, &SPEC.child("names"), at(spec, "names"), name);
    }
    conversion(spec, errors);
    if flag(spec, "preserveUnknownFields") {
        let complaint = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.invalid(
            &SPEC.child("preserveUnknownFields"),
            &true.into(),
            complaint,
        );
    }
    let status = Path::root("status");
    let accepted = deep(object, &["status", "acceptedNames"]);
    definition_names(accepted, &status.child("acceptedNames"), errors);
}

/// A changed CustomResourceDefinition, or its status.
pub fn definition_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        let status = Path::root("status");
        let accepted = deep(new, &["status", "acceptedNames"]);
        return definition_names(accepted, &status.child("acceptedNames"), errors);
    }
    approval(new, old, errors);
    definition_spec(new, errors);
    stored_versions(new, errors);
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    let in_names = SPEC.child("names");
    let name = |spec, part| at(at(spec, "names"), part);
    // What is established keeps the names its clients know.
    if is_established(old) {
        immutable(
            errors,
            &SPEC.child("scope"),
            at(spec, "scope"),
            at(before, "scope"),
        );
        let kind = in_names.child("kind");
        immutable(errors, &kind, name(spec, "kind"), name(before, "kind"));
    }
    immutable(
        errors,
        &SPEC.child("group"),
        at(spec, "group"),
        at(before, "group"),
    );
    immutable(
        errors,
        &in_names.child("plural"),
        name(spec, "plural"),
        name(before, "plural"),
    );
}

fn is_established(object: &Value) -> bool {
    items(at(object, "status"), "conditions")
        .iter()
        .any(|c| text(c, "type") == "Established" && text(c, "status") == "True")
}

fn definition_name(object: &Value, spec: &Value, errors: &mut Errors) {
    let name = text(at(object, "metadata"), "name");
    if name.is_empty() {
        return;
    }
    let mut complaints = names::dns1123_subdomain(name);
    if name
        != format!(
            "{}.{}",
            text(at(spec, "names"), "plural"),
            text(spec, "group")
        )
    {
        complaints.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    for complaint in complaints {
        errors.invalid(
            &Path::root("metadata").child("name"),
            &name.into(),
            &complaint,
        );
    }
}

fn joined(errors: &mut Errors, path: &Path<'_>, value: &str, complaints: &[String]) {
    if !complaints.is_empty() {
        errors.invalid(path, &value.into(), &complaints.join(","));
    }
}

fn group(spec: &Value, errors: &mut Errors) {
    let (path, group) = (SPEC.child("group"), text(spec, "group"));
    let complaints = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&path, "");
    } else if !complaints.is_empty() {
        joined(errors, &path, group, &complaints);
    } else if !group.contains('.') {
        errors.invalid(
            &path,
            &group.into(),
            "should be a domain with at least one dot",
        );
    }
}

fn versions(spec: &Value, errors: &mut Errors) {
    let (path, list) = (SPEC.child("versions"), items(spec, "versions"));
    for (i, version) in list.iter().enumerate() {
        definition_version(version, &path.index(i), errors);
    }
    for (i, version) in list.iter().enumerate() {
        let name = text(version, "name");
        let path = path.index(i);
        let complaints = names::dns1035_label(name);
        joined(errors, &path.child("name"), name, &complaints);
    }
    let shown = internal::DEFINITION_VERSION.shown(at(spec, "versions"));
    if same_text(list, "name").contains(&true) {
        errors.invalid_text(&path, &shown, "must contain unique version names");
    }
    if list
        .iter()
        .filter(|version| flag(version, "storage"))
        .count()
        != 1
    {
        let complaint = "must have exactly one version marked as storage version";
        errors.invalid_text(&path, &shown, complaint);
    }
    // The field of old that is the first version's name.
    let first = list.first().map_or("", |version| text(version, "name"));
    joined(
        errors,
        &SPEC.child("version"),
        first,
        &names::dns1035_label(first),
    );
}

fn definition_version(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let schema = path.child("schema");
    if deep(version, &["schema", "openAPIV3Schema"]).is_null() {
        errors.required(&schema.child("openAPIV3Schema"), "");
    }
    if let Some(warning) = at(version, "deprecationWarning").as_str() {
        for complaint in warning_complaints(flag(version, "deprecated"), warning) {
            errors.invalid(
                &path.child("deprecationWarning"),
                &warning.into(),
                complaint,
            );
        }
    }
    scale_subresource(version, path, errors);
    let columns = path.child("additionalPrinterColumns");
    for (i, item) in items(version, "additionalPrinterColumns")
        .iter()
        .enumerate()
    {
        column(item, &columns.index(i), errors);
    }
    let fields = path.child("selectableFields");
    for (i, field) in items(version, "selectableFields").iter().enumerate() {
        required(errors, &fields.index(i), field, "jsonPath");
    }
}

fn warning_complaints(is_deprecated: bool, warning: &str) -> Vec<&'static str> {
    if !is_deprecated {
        return vec!["can only be set for deprecated versions"];
    }
    let mut complaints = Vec::new();
    if warning.len() > WARNING_MAX {
        complaints.push("must be <= 256 characters long");
    }
    if warning.is_empty() {
        complaints.push("must not be an empty string");
    }
    complaints
}

fn scale_subresource(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let scale = deep(version, &["subresources", "scale"]);
    if scale.is_null() {
        return;
    }
    let subresources = path.child("subresources");
    let path = subresources.child("scale");
    for (name, prefix) in [
        ("specReplicasPath", ".spec."),
        ("statusReplicasPath", ".status."),
    ] {
        let value = text(scale, name);
        if value.is_empty() {
            errors.required(&path.child(name), "");
        } else if !value.starts_with(prefix) {
            let complaint = format!(
                "should be a json path under {}",
                &prefix[..prefix.len() - 1]
            );
            errors.invalid(&path.child(name), &value.into(), &complaint);
        }
    }
}

fn column(column: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, path, column, "name");
    let (ty, format) = (text(column, "type"), text(column, "format"));
    let complaint = format!("must be one of {}", COLUMN_TYPES.join(","));
    if ty.is_empty() {
        errors.required(&path.child("type"), &complaint);
    } else if !COLUMN_TYPES.contains(&ty) {
        errors.invalid(&path.child("type"), &ty.into(), &complaint);
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let complaint = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.invalid(&path.child("format"), &format.into(), &complaint);
    }
    // Upstream spells the first letters large.
    let json_path = text(column, "jsonPath");
    if json_path.is_empty() {
        errors.required(&path.child("JSONPath"), "");
    } else if !json_path.starts_with('.') {
        let complaint = "must be a simple json path starting with .";
        errors.invalid(&path.child("JSONPath"), &json_path.into(), complaint);
    }
}

fn definition_names(definition: &Value, path: &Path<'_>, errors: &mut Errors) {
    for part in ["plural", "singular"] {
        let name = text(definition, part);
        if !name.is_empty() {
            joined(errors, &path.child(part), name, &names::dns1035_label(name));
        }
    }
    for part in ["kind", "listKind"] {
        let name = text(definition, part);
        let complaints = names::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !complaints.is_empty() {
            let complaint = format!(
                "may have mixed case, but should otherwise match: {}",
                complaints.join(",")
            );
            errors.invalid(&path.child(part), &name.into(), &complaint);
        }
    }
    for list in ["shortNames", "categories"] {
        for (i, name) in texts(definition, list).enumerate() {
            joined(
                errors,
                &path.child(list).index(i),
                name,
                &names::dns1035_label(name),
            );
        }
    }
    let (kind, list_kind) = (text(definition, "kind"), text(definition, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let complaint = "kind and listKind may not be the same";
        errors.invalid(&path.child("listKind"), &list_kind.into(), complaint);
    }
}

fn conversion(spec: &Value, errors: &mut Errors) {
    let (path, conversion) = (SPEC.child("conversion"), at(spec, "conversion"));
    if conversion.is_null() {
        return;
    }
    if required(errors, &path, conversion, "strategy") {
        one_of(errors, &path, conversion, "strategy", &["None", "Webhook"]);
    }
    // Upstream reports the `v1` webhook under the names it has inside.
    let (config_path, versions) = ("webhookClientConfig", "conversionReviewVersions");
    let hook = at(conversion, "webhook");
    if text(conversion, "strategy") == "Webhook" {
        if has(hook, "clientConfig") {
            client_config(at(hook, "clientConfig"), &path.child(config_path), errors);
        } else {
            errors.required(
                &path.child(config_path),
                "required when strategy is set to Webhook",
            );
        }
        let versions_path = path.child(versions);
        // Upstream has no more to say here, unlike for admission webhooks.
        if items(hook, versions).is_empty() {
            errors.required(&versions_path, "");
        } else {
            review_versions(hook, versions, &versions_path, errors);
        }
    } else if !hook.is_null() {
        let complaint = "should not be set when strategy is not set to Webhook";
        errors.forbidden(&path.child(config_path), complaint);
    }
}

// Names of protected groups are given out by the Kubernetes community.
fn approval(object: &Value, old: &Value, errors: &mut Errors) {
    let group = text(at(object, "spec"), "group");
    let is_in = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let approval = |o| text(deep(o, &["metadata", "annotations"]), APPROVED);
    let value = approval(object);
    let is_unchanged = !old.is_null() && approval(old) == value;
    if !(is_in("k8s.io") || is_in("kubernetes.io")) || is_unchanged {
        return;
    }
    let metadata = Path::root("metadata");
    let annotations = metadata.child("annotations");
    let path = annotations.key(APPROVED);
    let link = "see https://github.com/kubernetes/enhancements/pull/1111";
    let head = format!("protected groups must have approval annotation {APPROVED:?}");
    if value.is_empty() {
        errors.required(&path, &format!("{head}, {link}"));
    } else if !value.starts_with("unapproved") && !value.contains("://") {
        let complaint =
            format!("{head} with either a URL or a reason starting with \"unapproved\", {link}");
        errors.invalid(&path, &value.into(), &complaint);
    }
}

fn stored_versions(object: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let path = status.child("storedVersions");
    let versions = items(at(object, "spec"), "versions");
    for (i, stored) in texts(at(object, "status"), "storedVersions").enumerate() {
        if !versions
            .iter()
            .any(|version| text(version, "name") == stored)
        {
            let complaint = "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
                .replace("v1", stored);
            errors.invalid(&path.index(i), &stored.into(), &complaint);
        }
    }
}

/// A new APIService.
pub fn api_service(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    api_service_name(object, spec, errors);
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    if group.is_empty() && version != "v1" {
        let complaint = "only v1 may have an empty group and it better be legacy kube";
        errors.required(&SPEC.child("group"), complaint);
    }
    if !group.is_empty() {
        crate::validation::rules::complain(
            errors,
            &SPEC.child("group"),
            group,
            names::dns1123_subdomain(group),
        );
    }
    crate::validation::rules::complain(
        errors,
        &SPEC.child("version"),
        version,
        names::dns1035_label(version),
    );
    for (name, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let value = int(spec, name);
        if !(1..=max).contains(&value) {
            let complaint = format!("must be positive and less than {max}");
            errors.invalid(&SPEC.child(name), &value.into(), &complaint);
        }
    }
    if has(spec, "service") {
        remote_service(spec, errors)
    } else {
        local_service(spec, errors)
    }
}

fn api_service_name(object: &Value, spec: &Value, errors: &mut Errors) {
    let (name, wanted) = (
        text(at(object, "metadata"), "name"),
        format!("{}.{}", text(spec, "version"), text(spec, "group")),
    );
    let mut complaints = names::path_segment(name);
    if complaints.is_empty() && name != wanted && !name.is_empty() {
        complaints.push(format!(
            "must be `spec.version+\".\"+spec.group`: {wanted:?}"
        ));
    }
    for complaint in complaints {
        errors.invalid(
            &Path::root("metadata").child("name"),
            &name.into(),
            &complaint,
        );
    }
}

fn local_service(spec: &Value, errors: &mut Errors) {
    let bundle = crate::validation::pem::bytes(at(spec, "caBundle")).len();
    if bundle > 0 {
        let complaint = "local APIServices may not have a caBundle";
        errors.invalid(
            &SPEC.child("caBundle"),
            &format!("{bundle} bytes").into(),
            complaint,
        );
    }
    if flag(spec, "insecureSkipTLSVerify") {
        let complaint = "local APIServices may not have insecureSkipTLSVerify";
        errors.invalid(
            &SPEC.child("insecureSkipTLSVerify"),
            &true.into(),
            complaint,
        );
    }
}

fn remote_service(spec: &Value, errors: &mut Errors) {
    let (path, service) = (SPEC.child("service"), at(spec, "service"));
    required(errors, &path, service, "namespace");
    required(errors, &path, service, "name");
    let port = at(service, "port").as_i64().unwrap_or(443);
    let complaints = names::port_number(port);
    if !complaints.is_empty() {
        let complaint = format!("port is not valid: {}", complaints.join(", "));
        errors.invalid(&path.child("port"), &port.into(), &complaint);
    }
    if flag(spec, "insecureSkipTLSVerify") && !text(spec, "caBundle").is_empty() {
        let complaint = "may not be true if caBundle is present";
        errors.invalid(
            &SPEC.child("insecureSkipTLSVerify"),
            &true.into(),
            complaint,
        );
    }
}

/// A changed APIService, or its status.
pub fn api_service_update(new: &Value, _old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource != "status" {
        return api_service(new, errors);
    }
    let status = Path::root("status");
    let path = status.child("conditions");
    for (i, condition) in items(at(new, "status"), "conditions").iter().enumerate() {
        one_of(
            errors,
            &path.index(i),
            condition,
            "status",
            &["True", "False", "Unknown"],
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn crd() -> Value {
        json!({"metadata": {"name": "foos.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    }

    #[test]
    fn definitions_are_named_after_what_they_define() {
        let spec = |patch: Value| json!({"spec": patch});
        let version =
            |patch: Value| spec(json!({"versions": [with(&crd()["spec"]["versions"][0], &patch)]}));
        let one = crd()["spec"]["versions"][0].clone();
        creates(
            definition,
            &crd(),
            &[
                (
                    json!({"metadata": {"name": "bars.example.com"}}),
                    "metadata.name: Invalid value: \"bars.example.com\": must be spec.names.plural+\".\"+spec.group",
                ),
                (
                    spec(json!({"group": "example"})),
                    "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
                ),
                (spec(json!({"group": null})), "spec.group: Required value"),
                (
                    spec(json!({"scope": "Galaxy"})),
                    "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
                ),
                (
                    spec(json!({"names": {"kind": null}})),
                    "spec.names.kind: Required value",
                ),
                (
                    spec(json!({"names": {"kind": "A_b"}})),
                    "spec.names.kind: Invalid value: \"A_b\": may have mixed case, but should otherwise match: a DNS-1035 label",
                ),
                (
                    spec(json!({"names": {"listKind": "Foo"}})),
                    "spec.names.listKind: Invalid value: \"Foo\": kind and listKind may not be the same",
                ),
                (
                    spec(json!({"names": {"shortNames": ["F"]}})),
                    "spec.names.shortNames[0]: Invalid value: \"F\"",
                ),
                (
                    spec(json!({"versions": [one, one]})),
                    "spec.versions: Invalid value: ",
                ),
                (
                    version(json!({"storage": false})),
                    "spec.versions: Invalid value: ",
                ),
                (
                    version(json!({"name": "1"})),
                    "spec.versions[0].name: Invalid value: \"1\"",
                ),
                (
                    version(json!({"schema": null})),
                    "spec.versions[0].schema.openAPIV3Schema: Required value",
                ),
                (
                    version(json!({"deprecationWarning": "x"})),
                    "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
                ),
                (
                    version(
                        json!({"additionalPrinterColumns": [{"name": "a", "type": "string", "jsonPath": ".spec.a"}]}),
                    ),
                    "",
                ),
                (
                    version(
                        json!({"additionalPrinterColumns": [{"name": "a", "type": "text", "jsonPath": ".a"}]}),
                    ),
                    "spec.versions[0].additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string",
                ),
                (
                    version(json!({"additionalPrinterColumns": [{"name": "a", "type": "string"}]})),
                    "spec.versions[0].additionalPrinterColumns[0].JSONPath: Required value",
                ),
                (
                    version(
                        json!({"subresources": {"scale": {"specReplicasPath": ".replicas", "statusReplicasPath": ".status.replicas"}}}),
                    ),
                    "spec.versions[0].subresources.scale.specReplicasPath: Invalid value: \".replicas\": should be a json path under .spec",
                ),
                (
                    spec(json!({"conversion": {"strategy": "Webhook"}})),
                    "spec.conversion.webhookClientConfig: Required value",
                ),
                (
                    spec(
                        json!({"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v1"]}}}),
                    ),
                    "",
                ),
                (
                    spec(
                        json!({"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v2"]}}}),
                    ),
                    "spec.conversion.conversionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
                ),
                (
                    spec(json!({"conversion": {"strategy": "None", "webhook": {}}})),
                    "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
                ),
                (
                    json!({"metadata": {"name": "foos.a.k8s.io"}, "spec": {"group": "a.k8s.io"}}),
                    "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see",
                ),
                (
                    json!({"metadata": {"name": "foos.a.k8s.io", "annotations": {APPROVED: "unapproved"}}, "spec": {"group": "a.k8s.io"}}),
                    "",
                ),
                (
                    spec(json!({"preserveUnknownFields": true})),
                    "spec.preserveUnknownFields: Invalid value: true: cannot set to true",
                ),
            ],
        );
    }

    #[test]
    fn established_names_stay() {
        let established = with(
            &crd(),
            &json!({"status": {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]}}),
        );
        updates(
            definition_update,
            "",
            &established,
            &[
                (
                    json!({"spec": {"scope": "Cluster"}}),
                    "spec.scope: Invalid value: \"Cluster\": field is immutable",
                ),
                (
                    json!({"spec": {"names": {"kind": "Bar"}}}),
                    "spec.names.kind: Invalid value: \"Bar\": field is immutable",
                ),
                (
                    json!({"spec": {"versions": [with(&crd()["spec"]["versions"][0], &json!({"name": "v2"}))]}}),
                    "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions",
                ),
            ],
        );
        updates(
            definition_update,
            "",
            &crd(),
            &[
                (json!({"spec": {"scope": "Cluster"}}), ""),
                (
                    json!({"spec": {"group": "b.com"}}),
                    "spec.group: Invalid value: \"b.com\": field is immutable",
                ),
            ],
        );
        updates(
            definition_update,
            "status",
            &crd(),
            &[(
                json!({"status": {"acceptedNames": {"plural": "F"}}}),
                "status.acceptedNames.plural: Invalid value: \"F\"",
            )],
        );
    }

    #[test]
    fn api_services_are_named_after_what_they_serve() {
        let base = json!({"metadata": {"name": "v1.example.com"}, "spec": {"group": "example.com", "version": "v1",
            "groupPriorityMinimum": 100, "versionPriority": 10, "service": {"name": "s", "namespace": "n", "port": 443}}});
        creates(
            api_service,
            &base,
            &[
                (
                    json!({"metadata": {"name": "v2.example.com"}}),
                    "metadata.name: Invalid value: \"v2.example.com\": must be `spec.version+\".\"+spec.group`: \"v1.example.com\"",
                ),
                (
                    json!({"spec": {"groupPriorityMinimum": 20001}}),
                    "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
                ),
                (
                    json!({"spec": {"versionPriority": 0}}),
                    "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
                ),
                (
                    json!({"spec": {"service": {"name": null}}}),
                    "spec.service.name: Required value",
                ),
                (
                    json!({"spec": {"service": {"port": 70000}}}),
                    "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
                ),
                (
                    json!({"spec": {"insecureSkipTLSVerify": true, "caBundle": "AAAA"}}),
                    "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
                ),
                (
                    json!({"spec": {"service": null, "caBundle": "AAAA"}}),
                    "spec.caBundle: Invalid value: \"3 bytes\": local APIServices may not have a caBundle",
                ),
                (json!({"spec": {"service": null}}), ""),
            ],
        );
        updates(
            api_service_update,
            "",
            &base,
            &[(
                json!({"spec": {"versionPriority": 0}}),
                "spec.versionPriority: Invalid",
            )],
        );
        updates(
            api_service_update,
            "status",
            &base,
            &[(
                json!({"status": {"conditions": [{"status": "Maybe"}]}}),
                "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"True\", \"False\", \"Unknown\"",
            )],
        );
    }
}
