//! The metadata every object shares: names, labels, annotations, owners, finalizers.
//!
//! The rules are those of `apimachinery/pkg/api/validation/objectmeta.go` plus the finalizer rule
//! of `pkg/apis/core/validation`. Whether an update must name a resource version differs by kind
//! and is decided where the write happens.

use std::collections::BTreeSet;

use serde_json::Value;

use super::reading::{at, entries, flag, int, items, text, texts};
use super::rules::{self, NEGATIVE, complain};
use super::{names, rules::immutable_fields};
use crate::field::{Errors, Path};
use crate::resources::Resource;

const ANNOTATIONS_MAX: usize = 256 * 1024;
const FIELD_MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a kind's names look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label: what becomes part of a DNS name.
    Label,
    /// Anything that can stand in a URL path.
    PathSegment,
    /// A canonical IP address.
    Address,
    /// The kind's own rules compare the name with the spec.
    BySpec,
}

// Kinds whose names are not subdomains.
const NAME_RULES: &[(&str, &str, NameRule)] = &[
    ("", "Namespace", NameRule::Label),
    ("", "Service", NameRule::Label),
    ("apps", "StatefulSet", NameRule::Label),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        NameRule::PathSegment,
    ),
    ("networking.k8s.io", "IPAddress", NameRule::Address),
    ("rbac.authorization.k8s.io", "Role", NameRule::PathSegment),
    (
        "rbac.authorization.k8s.io",
        "RoleBinding",
        NameRule::PathSegment,
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRole",
        NameRule::PathSegment,
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        NameRule::PathSegment,
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        NameRule::BySpec,
    ),
    ("apiregistration.k8s.io", "APIService", NameRule::BySpec),
];

// Groups whose finalizers may be plain words: upstream checks these with the generic rules only.
// Custom resources do too, and live in groups of their own.
const PLAIN_FINALIZER_GROUPS: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
];

/// The name rule of a kind.
pub fn name_rule(group: &str, kind: &str) -> NameRule {
    let row = NAME_RULES
        .iter()
        .find(|(g, k, _)| *g == group && *k == kind);
    row.map_or(NameRule::Subdomain, |(_, _, rule)| *rule)
}

impl NameRule {
    /// The complaints about a name.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            NameRule::Subdomain => names::dns1123_subdomain(name),
            NameRule::Label => names::dns1123_label(name),
            NameRule::PathSegment => names::path_segment(name),
            NameRule::Address => names::canonical_ip(name),
            NameRule::BySpec => Vec::new(),
        }
    }

    /// The complaints about a `generateName`, to which a random suffix will be added.
    pub fn check_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            NameRule::PathSegment => names::path_segment_prefix(prefix),
            NameRule::Subdomain | NameRule::Label => self.check(&without_trailing_dash(prefix)),
            NameRule::Address | NameRule::BySpec => self.check(prefix),
        }
    }
}

// Upstream's mask drops the character before the dash too; a prefix such as `a--` passes with it.
fn without_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut kept = rest.to_owned();
            kept.pop();
            kept + "a"
        }
        _ => prefix.to_owned(),
    }
}

// `v1` Events were never held to these rules, and old reporters rely on it.
fn is_exempt(resource: &Resource) -> bool {
    (resource.gv.group, resource.kind) == ("", "Event")
}

/// What is wrong with the metadata of a new object.
pub fn create(resource: &Resource, object: &Value, errors: &mut Errors) {
    if is_exempt(resource) {
        return;
    }
    let path = Path::root("metadata");
    let metadata = at(object, "metadata");
    object_names(resource, metadata, &path, errors);
    namespace(resource.namespaced, metadata, &path, errors);
    if int(metadata, "generation") < 0 {
        errors.invalid(
            &path.child("generation"),
            at(metadata, "generation"),
            NEGATIVE,
        );
    }
    shared(metadata, &path, errors);
    finalizers(metadata, &path, errors);
    managed_fields(metadata, &path, errors);
    qualified_finalizers(resource, metadata, &path, errors);
}

/// What is wrong with the metadata of a changed object.
pub fn update(resource: &Resource, new: &Value, old: &Value, errors: &mut Errors) {
    if is_exempt(resource) {
        return;
    }
    let path = Path::root("metadata");
    let (new, old) = (at(new, "metadata"), at(old, "metadata"));
    no_new_finalizers(new, old, &path, errors);
    if int(new, "generation") < int(old, "generation") {
        let generation = Value::from(int(new, "generation"));
        errors.invalid(
            &path.child("generation"),
            &generation,
            "must not be decremented",
        );
    }
    let fixed = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ];
    immutable_fields(errors, Some(&path), new, old, &fixed);
    shared(new, &path, errors);
    managed_fields(new, &path, errors);
    qualified_finalizers(resource, new, &path, errors);
}

/// The metadata of a pod template or claim template: labels and annotations only.
pub fn template(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    rules::labels(errors, path, metadata, "labels");
    annotations(metadata, path, errors);
}

fn shared(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    rules::labels(errors, path, metadata, "labels");
    annotations(metadata, path, errors);
    owner_references(metadata, path, errors);
}

fn object_names(resource: &Resource, metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rule = name_rule(resource.gv.group, resource.kind);
    let (name, prefix) = (text(metadata, "name"), text(metadata, "generateName"));
    if !prefix.is_empty() {
        complain(
            errors,
            &path.child("generateName"),
            prefix,
            rule.check_prefix(prefix),
        );
    }
    if name.is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        complain(errors, &path.child("name"), name, rule.check(name));
    }
}

fn namespace(namespaced: bool, metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (path, namespace) = (path.child("namespace"), text(metadata, "namespace"));
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.required(&path, ""),
        (true, false) => complain(errors, &path, namespace, names::dns1123_label(namespace)),
        (false, false) => errors.forbidden(&path, "not allowed on this type"),
        (false, true) => {}
    }
}

/// The keys and total size of annotations.
pub fn annotations(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("annotations");
    let mut size = 0;
    for (key, value) in entries(metadata, "annotations") {
        // Letter case does not matter in keys of annotations.
        complain(
            errors,
            &path,
            key,
            names::qualified_name(&key.to_lowercase()),
        );
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.too_long(&path, ANNOTATIONS_MAX);
    }
}

// Upstream reports every reference at the path of the list.
fn owner_references(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("ownerReferences");
    let list = at(metadata, "ownerReferences");
    let mut controller: Option<String> = None;
    for reference in items(metadata, "ownerReferences") {
        owner_reference(reference, &path, errors);
        if !flag(reference, "controller") {
            continue;
        }
        let name = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
        match &controller {
            None => controller = Some(name),
            Some(first) => errors.invalid(&path, list, &format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
            )),
        }
    }
}

fn owner_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let api_version = text(reference, "apiVersion");
    if api_version
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .is_empty()
    {
        let value = api_version.into();
        errors.invalid(
            &path.child("apiVersion"),
            &value,
            "version must not be empty",
        );
    }
    for name in ["kind", "name", "uid"] {
        if text(reference, name).is_empty() {
            errors.invalid(&path.child(name), &"".into(), "must not be empty");
        }
    }
    if (api_version, text(reference, "kind")) == ("v1", "Event") {
        errors.invalid(
            path,
            reference,
            "/v1, Kind=Event is disallowed from being an owner",
        );
    }
}

fn finalizers(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("finalizers");
    for name in texts(metadata, "finalizers") {
        complain(errors, &path, name, names::qualified_name(name));
    }
    let has = |wanted| texts(metadata, "finalizers").any(|name| name == wanted);
    if has(ORPHAN) && has(FOREGROUND) {
        let complaint = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.invalid(&path, at(metadata, "finalizers"), &complaint);
    }
}

fn qualified_finalizers(
    resource: &Resource,
    metadata: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let group = resource.gv.group;
    let is_built_in = !group.contains('.') || group.ends_with(".k8s.io");
    if !is_built_in || PLAIN_FINALIZER_GROUPS.contains(&group) {
        return;
    }
    for (i, name) in texts(metadata, "finalizers").enumerate() {
        if !name.contains('/') && !["kubernetes", ORPHAN, FOREGROUND].contains(&name) {
            errors.invalid(
                &path.child("finalizers").index(i),
                &name.into(),
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
}

fn no_new_finalizers(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if at(old, "deletionTimestamp").is_null() {
        return;
    }
    let before: BTreeSet<_> = texts(old, "finalizers").collect();
    let added: BTreeSet<_> = texts(new, "finalizers")
        .filter(|f| !before.contains(f))
        .collect();
    if !added.is_empty() {
        let list = added
            .iter()
            .map(|f| format!("{f:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        errors.forbidden(&path.child("finalizers"), &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
        ));
    }
}

fn managed_fields(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("managedFields");
    for (i, entry) in items(metadata, "managedFields").iter().enumerate() {
        let path = path.index(i);
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            let value = operation.into();
            errors.invalid(
                &path.child("operation"),
                &value,
                "must be `Apply` or `Update`",
            );
        }
        let ty = text(entry, "fieldsType");
        if !matches!(ty, "" | "FieldsV1") {
            errors.invalid(&path.child("fieldsType"), &ty.into(), "must be `FieldsV1`");
        }
        field_manager(text(entry, "manager"), &path.child("manager"), errors);
        if text(entry, "subresource").len() > SUBRESOURCE_MAX {
            errors.too_long(&path.child("subresource"), SUBRESOURCE_MAX);
        }
    }
}

/// The name of a field manager, in managed fields or in the query of a write.
pub fn field_manager(manager: &str, path: &Path<'_>, errors: &mut Errors) {
    if manager.len() > FIELD_MANAGER_MAX {
        errors.too_long(path, FIELD_MANAGER_MAX);
    }
    for (at, character) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let complaint = format!(
            "invalid character U+{:04X} (at position {at})",
            u32::from(character)
        );
        errors.invalid(path, &manager.into(), &complaint);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources;

    fn resource(group: &str, plural: &str) -> &'static Resource {
        resources::find(group, "v1", plural).expect("a built-in resource")
    }

    fn told(check: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut errors = Errors::default();
        check(&mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    fn created(group: &str, plural: &str, metadata: Value) -> Vec<String> {
        told(|e| create(resource(group, plural), &json!({"metadata": metadata}), e))
    }

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        let cases = [
            ("", "configmaps", "a.b", true),
            ("", "configmaps", "a_b", false),
            ("", "services", "1-a", true),
            ("", "services", "a.b", false),
            ("apps", "statefulsets", "a.b", false),
            ("rbac.authorization.k8s.io", "roles", "system:a", true),
            ("rbac.authorization.k8s.io", "roles", "a/b", false),
        ];
        for (group, plural, name, is_fine) in cases {
            let found = created(group, plural, json!({"name": name, "namespace": "n"}));
            assert_eq!(found.is_empty(), is_fine, "{plural} {name}: {found:?}");
        }
        let ip = |name| created("networking.k8s.io", "ipaddresses", json!({"name": name}));
        assert!(ip("10.0.0.1").is_empty());
        assert!(ip("x")[0].starts_with("metadata.name: Invalid value: \"x\": must be a valid IP"));
    }

    #[test]
    fn a_name_or_a_prefix_is_needed() {
        let nothing = created("", "configmaps", json!({"namespace": "n"}));
        assert_eq!(
            nothing,
            ["metadata.name: Required value: name or generateName is required"]
        );
        let dash = json!({"generateName": "a-", "name": "a-x", "namespace": "n"});
        assert!(created("", "configmaps", dash).is_empty());
        let bad = json!({"generateName": "A-", "name": "a", "namespace": "n"});
        assert!(
            created("", "configmaps", bad).is_empty(),
            "the mask hides one character"
        );
        let bad = json!({"generateName": "AB-", "name": "a", "namespace": "n"});
        assert!(created("", "configmaps", bad)[0].starts_with("metadata.generateName: Invalid"));
    }

    #[test]
    fn namespaces_stand_where_the_scope_says() {
        let missing = created("", "configmaps", json!({"name": "a"}));
        assert_eq!(missing, ["metadata.namespace: Required value"]);
        let extra = created("", "nodes", json!({"name": "a", "namespace": "n"}));
        assert_eq!(
            extra,
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
        assert!(created("", "nodes", json!({"name": "a"})).is_empty());
    }

    #[test]
    fn labels_annotations_owners_finalizers_and_managers_are_checked() {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
        let good = json!({
            "labels": {"a": ""}, "annotations": {"A.Example.com/B": "any \u{0} text"},
            "ownerReferences": [owner], "finalizers": ["example.com/f", "kubernetes"],
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1"}],
        });
        let cases = [
            (
                json!({"labels": {"a b": "c"}}),
                "metadata.labels: Invalid value: \"a b\": name part must consist",
            ),
            (
                json!({"labels": {"a": "b c"}}),
                "metadata.labels: Invalid value: \"b c\": a valid label must",
            ),
            (
                json!({"annotations": {"a b": "x"}}),
                "metadata.annotations: Invalid value: \"a b\": name part must consist",
            ),
            (
                json!({"annotations": {"a": "x".repeat(ANNOTATIONS_MAX)}}),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (
                json!({"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u"}]}),
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ),
            (
                json!({"ownerReferences": [owner, owner]}),
                "metadata.ownerReferences: Invalid value: [{",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "p", "uid": "u"}]}),
                "metadata.ownerReferences: Invalid value: {",
            ),
            (
                json!({"finalizers": ["plain"]}),
                "metadata.finalizers[0]: Invalid value: \"plain\": name is neither a standard finalizer name nor is it fully qualified",
            ),
            (
                json!({"finalizers": [ORPHAN, FOREGROUND]}),
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
            ),
            (
                json!({"managedFields": [{"operation": "Create"}]}),
                "metadata.managedFields[0].operation: Invalid value: \"Create\": must be `Apply` or `Update`",
            ),
            (
                json!({"managedFields": [{"operation": "Apply", "fieldsType": "V2"}]}),
                "metadata.managedFields[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
            ),
            (
                json!({"managedFields": [{"operation": "Apply", "manager": "a\n"}]}),
                "metadata.managedFields[0].manager: Invalid value: \"a\\n\": invalid character U+000A (at position 1)",
            ),
        ];
        let named = |mut metadata: Value| {
            metadata["name"] = "a".into();
            metadata["namespace"] = "n".into();
            created("", "configmaps", metadata)
        };
        assert_eq!(named(good), Vec::<String>::new());
        for (metadata, expected) in cases {
            let found = named(metadata);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(expected), "{} != {expected}", found[0]);
        }
    }

    #[test]
    fn old_events_may_be_called_anything() {
        assert!(created("", "events", json!({"name": "A_b", "namespace": "n"})).is_empty());
        assert!(
            !created(
                "events.k8s.io",
                "events",
                json!({"name": "A_b", "namespace": "n"})
            )
            .is_empty()
        );
    }

    #[test]
    fn webhook_configurations_may_have_plain_finalizers() {
        let metadata = json!({"name": "a", "finalizers": ["plain"]});
        let group = "admissionregistration.k8s.io";
        assert!(created(group, "validatingwebhookconfigurations", metadata).is_empty());
    }

    #[test]
    fn identity_is_fixed_and_a_dying_object_gains_no_finalizers() {
        let old = json!({"metadata": {"name": "a", "namespace": "n", "uid": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["a/b"]}});
        let updated = |change: &dyn Fn(&mut Value)| {
            let mut new = old.clone();
            change(&mut new["metadata"]);
            told(|e| update(resource("", "configmaps"), &new, &old, e))
        };
        assert!(updated(&|m| m["finalizers"] = json!([])).is_empty());
        for name in ["name", "namespace", "uid", "creationTimestamp"] {
            let found = updated(&|m| m[name] = "x".into());
            assert_eq!(
                found,
                [format!(
                    "metadata.{name}: Invalid value: \"x\": field is immutable"
                )]
            );
        }
        assert_eq!(
            updated(&|m| m["finalizers"] = json!(["a/b", "c/d"])),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\"}"
            ]
        );
    }
}
