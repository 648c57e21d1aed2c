//! The environment of a container, and the parts of a pod that may be shown to it.

use serde_json::Value;

use super::volume_paths;
use crate::field::{Errors, Path};
use crate::pod_resources;
use crate::validation::names;
use crate::validation::reading::{at, has, text};
use crate::validation::rules::complain;

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields a downward volume may show.
pub(crate) const VOLUME_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
/// Fields that exist but are not offered everywhere.
const OTHER_FIELDS: [&str; 3] = ["spec.restartPolicy", "spec.schedulerName", "status.phase"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];
const NO_SOURCE: &str = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
const MANY_SOURCES: &str = "may not have more than one field specified at a time";
const BYTE_DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// The variables of a container.
pub(crate) fn variables(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    for (i, variable) in list.iter().enumerate() {
        let path = path.index(i);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            complain(errors, &path.child("name"), name, names::env_var_name(name));
        }
        if has(variable, "valueFrom") {
            value_from(errors, &path.child("valueFrom"), variable);
        }
    }
}

fn value_from(errors: &mut Errors, path: &Path<'_>, variable: &Value) {
    let from = at(variable, "valueFrom");
    let given: Vec<&str> = SOURCES.into_iter().filter(|name| has(from, name)).collect();
    for name in &given {
        source(errors, &path.child(name), name, at(from, name));
    }
    let empty = Value::from("");
    if given.is_empty() {
        errors.invalid(path, &empty, NO_SOURCE);
    } else if !text(variable, "value").is_empty() {
        errors.invalid(
            path,
            &empty,
            "may not be specified when `value` is not empty",
        );
    } else if given.len() > 1 {
        errors.invalid(path, &empty, MANY_SOURCES);
    }
}

fn source(errors: &mut Errors, path: &Path<'_>, name: &str, source: &Value) {
    match name {
        "fieldRef" => field_ref(errors, path, source, &ENV_FIELDS),
        "resourceFieldRef" => resource_field_ref(errors, path, source, false),
        "fileKeyRef" => file_key(errors, path, source),
        _ => key_ref(errors, path, source),
    }
}

fn key_ref(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    let (name, key) = (text(source, "name"), text(source, "key"));
    complain(
        errors,
        &path.child("name"),
        name,
        names::dns1123_subdomain(name),
    );
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        complain(errors, &path.child("key"), key, names::config_map_key(key));
    }
}

fn file_key(errors: &mut Errors, path: &Path<'_>, source: &Value) {
    type Check = fn(&str) -> Vec<String>;
    let checks: [(&str, Check); 2] = [
        ("key", names::env_var_name),
        ("volumeName", names::dns1123_label),
    ];
    for (field, check) in checks {
        match text(source, field) {
            "" => errors.required(&path.child(field), ""),
            value => complain(errors, &path.child(field), value, check(value)),
        }
    }
    match text(source, "path") {
        "" => errors.required(&path.child("path"), ""),
        value => volume_paths::no_backsteps(errors, &path.child("path"), value),
    }
}

/// A reference to a field of the pod.
pub(crate) fn field_ref(errors: &mut Errors, path: &Path<'_>, source: &Value, allowed: &[&str]) {
    for name in ["apiVersion", "fieldPath"] {
        if text(source, name).is_empty() {
            return errors.required(&path.child(name), "");
        }
    }
    let (version, field) = (text(source, "apiVersion"), text(source, "fieldPath"));
    if let Some(reason) = not_a_field(version, field) {
        let detail = format!("error converting fieldPath: {reason}");
        return errors.invalid(&path.child("fieldPath"), &field.into(), &detail);
    }
    match subscript(field) {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            complain(errors, path, &key, names::qualified_name(&key));
        }
        Some((_, key)) => complain(errors, path, key, names::qualified_name(key)),
        None => {
            let field = if field == "spec.host" {
                "spec.nodeName"
            } else {
                field
            };
            if !allowed.contains(&field) {
                errors.not_supported(&path.child("fieldPath"), &field.into(), allowed);
            }
        }
    }
}

fn not_a_field(version: &str, field: &str) -> Option<String> {
    if version != "v1" {
        return Some(format!("unsupported pod version: {version}"));
    }
    match subscript(field) {
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {field}")),
        None => {
            let known = [&ENV_FIELDS[..], &VOLUME_FIELDS, &OTHER_FIELDS].concat();
            let is_known = field == "spec.host" || known.contains(&field);
            (!is_known).then(|| format!("field label not supported: {field}"))
        }
    }
}

// `metadata.labels['key']` taken apart.
fn subscript(field: &str) -> Option<(&str, &str)> {
    let (path, rest) = field.split_once("['")?;
    let key = rest.strip_suffix("']")?;
    (!path.is_empty()).then_some((path, key))
}

/// A reference to the resources of a container; volumes must say which.
pub(crate) fn resource_field_ref(
    errors: &mut Errors,
    path: &Path<'_>,
    source: &Value,
    needs_container: bool,
) {
    let resource = text(source, "resource");
    let is_huge_page =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if needs_container && text(source, "containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge_page {
        errors.not_supported(&path.child("resource"), &resource.into(), &RESOURCES);
    }
    divisor(
        errors,
        &path.child("divisor"),
        resource,
        at(source, "divisor"),
    );
}

fn divisor(errors: &mut Errors, path: &Path<'_>, resource: &str, divisor: &Value) {
    let Some(divisor) = pod_resources::parse(divisor).filter(|d| !d.is_zero()) else {
        return;
    };
    let what = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => "cpu",
        Some("memory") => "memory",
        Some("ephemeral-storage") => "local ephemeral storage",
        Some(name) if pod_resources::is_huge_page(name) => "hugepages",
        _ => return,
    };
    let (allowed, spoken): (&[&str], String) = match what {
        "cpu" => (&["1m", "1"], "1m and 1".to_owned()),
        _ => (&BYTE_DIVISORS, BYTE_DIVISORS.join(", ")),
    };
    if !allowed.contains(&divisor.to_string().as_str()) {
        let detail =
            format!("only divisor's values {spoken} are supported with the {what} resource");
        errors.invalid(path, &resource.into(), &detail);
    }
}

/// The config maps and secrets whose keys become variables.
pub(crate) fn variables_from(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    for (i, source) in list.iter().enumerate() {
        let element = path.index(i);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            complain(
                errors,
                &element.child("prefix"),
                prefix,
                names::env_var_name(prefix),
            );
        }
        let refs = ["configMapRef", "secretRef"];
        let given: Vec<&str> = refs.into_iter().filter(|name| has(source, name)).collect();
        for name in &given {
            named_source(errors, &element.child(name), text(at(source, name), "name"));
        }
        // Upstream reports these two at the list.
        match given.len() {
            0 => errors.invalid(
                path,
                &"".into(),
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(path, &"".into(), MANY_SOURCES),
        }
    }
}

// The name may be a prefix to come: a closing dash is let through, as upstream does.
fn named_source(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.required(&path.child("name"), "");
    }
    let complete = name
        .strip_suffix('-')
        .map_or(name.to_owned(), |stem| format!("{stem}a"));
    complain(
        errors,
        &path.child("name"),
        name,
        names::dns1123_subdomain(&complete),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    #[test]
    fn a_variable_has_a_value_or_one_source() {
        let cases = [
            (json!({"name": "A", "value": "b"}), ""),
            (json!({"name": "with space.and-dash"}), ""),
            (json!({"name": ""}), "e[0].name: Required value"),
            (
                json!({"name": "A=B"}),
                "e[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
            ),
            (
                json!({"name": "A", "valueFrom": {}}),
                "e[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            ),
            (
                json!({"name": "A", "value": "b", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
                "e[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            ),
            (
                json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}),
                "e[0].valueFrom.secretKeyRef.key: Required value",
            ),
            (
                json!({"name": "A", "valueFrom": {
                    "secretKeyRef": {"name": "s", "key": "k"}, "configMapKeyRef": {"name": "s", "key": "k"}
                }}),
                "e[0].valueFrom: Invalid value: \"\": may not have more than one field specified at a time",
            ),
            (
                json!({"name": "A", "valueFrom": {"fileKeyRef": {"key": "K", "volumeName": "v", "path": "../x"}}}),
                "e[0].valueFrom.fileKeyRef.path: Invalid value: \"../x\": must not contain '..'",
            ),
        ];
        for (variable, expected) in cases {
            let list = [variable.clone()];
            let found = told(|e| variables(e, &Path::root("e"), &list)).join("|");
            assert_eq!(found, expected, "{variable}");
        }
    }

    #[test]
    fn fields_of_the_pod() {
        let check = |field: &str| {
            let source = json!({"apiVersion": "v1", "fieldPath": field});
            told(|e| field_ref(e, &Path::root("f"), &source, &ENV_FIELDS)).join("|")
        };
        for fine in [
            "metadata.name",
            "status.podIPs",
            "metadata.labels['a/b']",
            "spec.host",
        ] {
            assert_eq!(check(fine), "", "{fine}");
        }
        assert!(check("metadata.labels").starts_with(
            "f.fieldPath: Unsupported value: \"metadata.labels\": supported values: \"metadata.name\""
        ));
        assert_eq!(
            check("spec.foo"),
            "f.fieldPath: Invalid value: \"spec.foo\": error converting fieldPath: field label not supported: spec.foo"
        );
        assert_eq!(
            check("spec.nodeName['a']"),
            "f.fieldPath: Invalid value: \"spec.nodeName['a']\": error converting fieldPath: field label does not support subscript: spec.nodeName['a']"
        );
        assert!(check("metadata.labels['a b']").contains("name part must consist of"));
    }

    #[test]
    fn resources_of_a_container() {
        let check = |source: Value, volume| {
            told(|e| resource_field_ref(e, &Path::root("f"), &source, volume)).join("|")
        };
        assert_eq!(
            check(json!({"resource": "limits.cpu", "divisor": "1m"}), false),
            ""
        );
        assert_eq!(
            check(json!({"resource": "limits.hugepages-2Mi"}), false),
            ""
        );
        assert_eq!(
            check(json!({"resource": "limits.cpu"}), true),
            "f.containerName: Required value"
        );
        assert_eq!(
            check(json!({"resource": "limits.cpu", "divisor": "2"}), false),
            "f.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with the cpu resource"
        );
        assert!(check(json!({"resource": "limits.gpu"}), false).contains("Unsupported value"));
    }

    #[test]
    fn sources_of_many_variables() {
        let check = |source: Value| {
            let list = [source];
            told(|e| variables_from(e, &Path::root("e"), &list)).join("|")
        };
        assert_eq!(
            check(json!({"prefix": "P_", "configMapRef": {"name": "c"}})),
            ""
        );
        assert_eq!(
            check(json!({"secretRef": {}})),
            "e[0].secretRef.name: Required value"
        );
        assert_eq!(
            check(json!({})),
            "e: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"
        );
        assert!(check(json!({"prefix": "a=", "secretRef": {"name": "s"}})).contains("prefix"));
    }
}
