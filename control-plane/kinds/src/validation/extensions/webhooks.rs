//! Webhook configurations: who is called, for what, and how.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, items, repeated, same_text, some_int, text, texts};
use crate::validation::rules::{complain, label_selector, one_of, required};

/// What may happen when an admission plugin cannot decide.
pub(crate) const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
/// Whether rules match other versions of the same resource.
pub(crate) const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
/// Whether a mutation runs again after others.
pub(crate) const REINVOCATION: &[&str] = &["IfNeeded", "Never"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];
const MATCH_CONDITIONS_MAX: usize = 64;
const URL_FORM: &str = "; desired format: https://host[/path]";

/// A new ValidatingWebhookConfiguration or MutatingWebhookConfiguration.
pub fn create(object: &Value, errors: &mut Errors) {
    let path = Path::root("webhooks");
    let hooks = items(object, "webhooks");
    for (i, hook) in hooks.iter().enumerate() {
        webhook(hook, &path.index(i), errors);
    }
    let same_name = same_text(hooks, "name");
    for (i, hook) in hooks.iter().enumerate() {
        let name = text(hook, "name");
        if !name.is_empty() && same_name[i] {
            errors.duplicate(&path.index(i).child("name"), &name.into());
        }
    }
}

/// A changed webhook configuration.
pub fn update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    create(new, errors);
}

fn webhook(hook: &Value, path: &Path<'_>, errors: &mut Errors) {
    if required(errors, path, hook, "name") {
        let name = text(hook, "name");
        complain(
            errors,
            &path.child("name"),
            name,
            names::fully_qualified_name(name),
        );
    }
    for (i, rule) in items(hook, "rules").iter().enumerate() {
        rule_with_operations(rule, &path.child("rules").index(i), errors);
    }
    for (field, allowed) in [
        ("failurePolicy", FAILURE_POLICIES),
        ("matchPolicy", MATCH_POLICIES),
        ("sideEffects", SIDE_EFFECTS),
        ("reinvocationPolicy", REINVOCATION),
    ] {
        if has(hook, field) {
            one_of(errors, path, hook, field, allowed);
        }
    }
    if !has(hook, "sideEffects") {
        let complaint = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.required(&path.child("sideEffects"), &complaint);
    }
    if some_int(hook, "timeoutSeconds").is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let complaint = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(
            &path.child("timeoutSeconds"),
            at(hook, "timeoutSeconds"),
            complaint,
        );
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        label_selector(errors, &path.child(selector), at(hook, selector));
    }
    client_config(
        at(hook, "clientConfig"),
        &path.child("clientConfig"),
        errors,
    );
    match_conditions(hook, path, errors);
    let versions = "admissionReviewVersions";
    review_versions(hook, versions, &path.child(versions), errors);
}

/// Where a webhook is called: a URL or a Service.
pub fn client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (at(config, "url").as_str(), has(config, "service")) {
        (Some(url), false) => webhook_url(url, &path.child("url"), errors),
        (None, true) => webhook_service(at(config, "service"), &path.child("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn webhook_url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let complaint = format!("'https' is the only allowed URL scheme{URL_FORM}");
        errors.invalid(path, &scheme.into(), &complaint);
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() {
        ""
    } else {
        rest.split('/').next().unwrap_or_default()
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        errors.invalid(
            path,
            &"".into(),
            &format!("host must be specified{URL_FORM}"),
        );
    }
    for (part, what) in [
        (user, "user information is"),
        (fragment, "fragments are"),
        (query, "query parameters are"),
    ] {
        if !part.is_empty() {
            let complaint = format!("{what} not permitted in the URL");
            errors.invalid(path, &part.into(), &complaint);
        }
    }
}

fn webhook_service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, path, service, "name");
    required(errors, path, service, "namespace");
    let port = some_int(service, "port").unwrap_or(443);
    let complaints = names::port_number(port);
    if !complaints.is_empty() {
        let complaint = format!("port is not valid: {}", complaints.join(", "));
        errors.invalid(&path.child("port"), &port.into(), &complaint);
    }
    let url_path = text(service, "path");
    if !matches!(url_path, "" | "/") {
        webhook_path(url_path, &path.child("path"), errors);
    }
}

fn webhook_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(rest) = value.strip_prefix('/') else {
        return errors.invalid(path, &value.into(), "must start with a '/'");
    };
    for (i, segment) in rest
        .strip_suffix('/')
        .unwrap_or(rest)
        .split('/')
        .enumerate()
    {
        if segment.is_empty() {
            let complaint = format!("segment[{i}] may not be empty");
            errors.invalid(path, &value.into(), &complaint);
            continue;
        }
        for complaint in names::dns1123_subdomain(segment) {
            errors.invalid(path, &value.into(), &format!("segment[{i}]: {complaint}"));
        }
    }
}

/// The review versions a webhook understands, one of ours among them.
pub fn review_versions(hook: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let known = REVIEW_VERSIONS.join(", ");
    let list = at(hook, field);
    let versions: Vec<_> = texts(hook, field).collect();
    if versions.is_empty() {
        return errors.required(path, &format!("must specify one of {known}"));
    }
    let same = repeated(&versions);
    for (i, version) in versions.iter().enumerate() {
        if same[i] {
            errors.invalid(&path.index(i), &(*version).into(), "duplicate version");
        } else {
            complain(
                errors,
                &path.index(i),
                version,
                names::dns1035_label(version),
            );
        }
    }
    if !versions
        .iter()
        .any(|version| REVIEW_VERSIONS.contains(version))
    {
        errors.invalid(path, list, &format!("must include at least one of {known}"));
    }
}

/// A rule: which operations on which resources.
pub(crate) fn rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    wildcard_list(rule, "operations", "operations", path, errors);
    let operations = path.child("operations");
    for (i, operation) in texts(rule, "operations").enumerate() {
        if !OPERATIONS.contains(&operation) {
            errors.not_supported(&operations.index(i), &operation.into(), OPERATIONS);
        }
    }
    wildcard_list(rule, "apiGroups", "API groups", path, errors);
    wildcard_list(rule, "apiVersions", "API versions", path, errors);
    for (i, _) in texts(rule, "apiVersions")
        .enumerate()
        .filter(|(_, v)| v.is_empty())
    {
        errors.required(&path.child("apiVersions").index(i), "");
    }
    rule_resources(rule, &path.child("resources"), errors);
    if has(rule, "scope") {
        one_of(errors, path, rule, "scope", &["*", "Cluster", "Namespaced"]);
    }
}

// The list has entries, and a star stands alone.
fn wildcard_list(rule: &Value, list: &str, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let count = items(rule, list).len();
    if count == 0 {
        errors.required(&path.child(list), "");
    } else if count > 1 && texts(rule, list).any(|entry| entry == "*") {
        let complaint = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&path.child(list), at(rule, list), &complaint);
    }
}

fn rule_resources(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let resources: Vec<_> = texts(rule, "resources").collect();
    if resources.is_empty() {
        errors.required(path, "");
    }
    let mut earlier: HashSet<&str> = HashSet::new();
    for (i, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.required(&path.index(i), "");
        }
        let patterns = resource.split_once('/');
        let patterns = patterns.map(|(plural, sub)| [format!("{plural}/*"), format!("*/{sub}")]);
        for pattern in patterns.into_iter().flatten() {
            if earlier.contains(pattern.as_str()) {
                let complaint = format!("if '{pattern}' is present, must not specify {resource}");
                errors.invalid(&path.index(i), &(*resource).into(), &complaint);
            }
        }
        earlier.insert(resource);
    }
    let list = at(rule, "resources");
    if resources.len() > 1 && resources.contains(&"*/*") {
        errors.invalid(
            path,
            list,
            "if '*/*' is present, must not specify other resources",
        );
    }
    let is_plain = |resource: &&str| !resource.contains('/') && *resource != "*";
    if resources.contains(&"*") && resources.iter().any(is_plain) {
        let complaint = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, list, complaint);
    }
}

/// Expressions that must hold before anything else is asked.
pub(crate) fn match_conditions(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("matchConditions");
    let conditions = items(object, "matchConditions");
    if conditions.len() > MATCH_CONDITIONS_MAX {
        errors.too_many(&path, conditions.len(), MATCH_CONDITIONS_MAX);
    }
    let same_name = same_text(conditions, "name");
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        if text(condition, "expression").trim().is_empty() {
            errors.required(&path.child("expression"), "");
        }
        let name = text(condition, "name");
        if required(errors, &path, condition, "name") {
            complain(
                errors,
                &path.child("name"),
                name,
                names::qualified_name(name),
            );
            if same_name[i] {
                errors.duplicate(&path.child("name"), &name.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn rule() -> Value {
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]})
    }

    fn hook(patch: Value) -> Value {
        let good = json!({"name": "a.b.c", "rules": [rule()], "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"name": "s", "namespace": "n", "port": 443}}});
        json!({"webhooks": [with(&good, &patch)]})
    }

    #[test]
    fn webhooks_are_named_reachable_and_harmless() {
        let rules = |patch: Value| hook(json!({"rules": [with(&rule(), &patch)]}));
        let url = |url: &str| hook(json!({"clientConfig": {"service": null, "url": url}}));
        let one = hook(json!({}))["webhooks"][0].clone();
        creates(
            create,
            &hook(json!({})),
            &[
                (
                    json!({"webhooks": [one, one]}),
                    "webhooks[1].name: Duplicate value: \"a.b.c\"",
                ),
                (
                    hook(json!({"name": "a.b"})),
                    "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
                ),
                (
                    hook(json!({"name": null})),
                    "webhooks[0].name: Required value",
                ),
                (
                    hook(json!({"sideEffects": null})),
                    "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                ),
                (
                    hook(json!({"sideEffects": "Some"})),
                    "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
                ),
                (
                    hook(json!({"failurePolicy": "Maybe"})),
                    "webhooks[0].failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
                ),
                (
                    hook(json!({"timeoutSeconds": 31})),
                    "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
                ),
                (
                    hook(json!({"admissionReviewVersions": null})),
                    "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
                ),
                (
                    hook(json!({"admissionReviewVersions": ["v2"]})),
                    "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1",
                ),
                (
                    hook(json!({"admissionReviewVersions": ["v1", "v1"]})),
                    "webhooks[0].admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
                ),
                (
                    hook(json!({"objectSelector": {"matchLabels": {"a b": "c"}}})),
                    "webhooks[0].objectSelector.matchLabels: Invalid value",
                ),
                (
                    hook(json!({"clientConfig": {"service": null}})),
                    "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
                ),
                (
                    hook(json!({"clientConfig": {"service": {"name": null}}})),
                    "webhooks[0].clientConfig.service.name: Required value",
                ),
                (
                    hook(json!({"clientConfig": {"service": {"port": 0}}})),
                    "webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
                ),
                (
                    hook(json!({"clientConfig": {"service": {"path": "a"}}})),
                    "webhooks[0].clientConfig.service.path: Invalid value: \"a\": must start with a '/'",
                ),
                (
                    hook(json!({"clientConfig": {"service": {"path": "/a//b"}}})),
                    "webhooks[0].clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty",
                ),
                (url("https://example.com/a"), ""),
                (
                    url("http://example.com"),
                    "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]",
                ),
                (
                    url("https://u@example.com"),
                    "webhooks[0].clientConfig.url: Invalid value: \"u\": user information is not permitted in the URL",
                ),
                (
                    url("https://example.com?a=b"),
                    "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
                ),
                (
                    rules(json!({"operations": null})),
                    "webhooks[0].rules[0].operations: Required value",
                ),
                (
                    rules(json!({"operations": ["READ"]})),
                    "webhooks[0].rules[0].operations[0]: Unsupported value: \"READ\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"DELETE\", \"UPDATE\"",
                ),
                (
                    rules(json!({"operations": ["*", "CREATE"]})),
                    "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
                ),
                (
                    rules(json!({"resources": ["*", "pods"]})),
                    "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
                ),
                (
                    rules(json!({"resources": ["pods/*", "pods/status"]})),
                    "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status",
                ),
                (
                    rules(json!({"scope": "All"})),
                    "webhooks[0].rules[0].scope: Unsupported value: \"All\": supported values: \"*\", \"Cluster\", \"Namespaced\"",
                ),
                (
                    hook(json!({"matchConditions": [{"name": "a", "expression": "true"}]})),
                    "",
                ),
                (
                    hook(json!({"matchConditions": [{"name": "a"}]})),
                    "webhooks[0].matchConditions[0].expression: Required value",
                ),
                (
                    hook(
                        json!({"matchConditions": vec![json!({"name": "a", "expression": "true"}); 65]}),
                    ),
                    "webhooks[0].matchConditions: Too many: 65: must have at most 64 items",
                ),
            ],
        );
        updates(
            update,
            "",
            &hook(json!({})),
            &[(
                hook(json!({"name": null})),
                "webhooks[0].name: Required value",
            )],
        );
    }
}
