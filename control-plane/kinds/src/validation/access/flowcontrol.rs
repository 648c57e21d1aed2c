//! Flow schemas and priority levels.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::reading::{at, flag, has, int, items, some_int, text, texts};
use crate::validation::rules::{complain, one_of, required, unique};
use crate::validation::{internal, names};

const SPEC: Path<'static> = Path::root("spec");
const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
const HASH_BITS_MAX: u32 = 60;
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

/// A new FlowSchema.
pub fn flow_schema(object: &Value, errors: &mut Errors) {
    let (name, spec) = (text(at(object, "metadata"), "name"), at(object, "spec"));
    precedence(name, int(spec, "matchingPrecedence"), errors);
    if has(spec, "distinguisherMethod") {
        let (path, method) = (
            SPEC.child("distinguisherMethod"),
            at(spec, "distinguisherMethod"),
        );
        if !matches!(text(method, "type"), "ByNamespace" | "ByUser") {
            let shown = internal::DISTINGUISHER.shown(method);
            errors.not_supported_text(&path.child("type"), &shown, &["ByNamespace", "ByUser"]);
        }
    }
    let path = SPEC.child("priorityLevelConfiguration");
    let level = text(at(spec, "priorityLevelConfiguration"), "name");
    if level.is_empty() {
        errors.required(&path.child("name"), "must reference a priority level");
    } else {
        complain(
            errors,
            &path.child("name"),
            level,
            names::dns1123_subdomain(level),
        );
    }
    for (i, rule) in items(spec, "rules").iter().enumerate() {
        policy_rules(rule, &SPEC.child("rules").index(i), errors);
    }
    condition_types(object, errors);
}

/// A changed FlowSchema, or its status.
pub fn flow_schema_update(new: &Value, _old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        condition_types(new, errors)
    } else {
        flow_schema(new, errors)
    }
}

fn precedence(name: &str, precedence: i64, errors: &mut Errors) {
    let path = SPEC.child("matchingPrecedence");
    let shown = precedence.into();
    if precedence <= 0 {
        errors.invalid(&path, &shown, "must be a positive value");
    }
    if precedence > PRECEDENCE_MAX {
        errors.invalid(
            &path,
            &shown,
            &format!("must not be greater than {PRECEDENCE_MAX}"),
        );
    }
    if precedence == 1 && name != "exempt" {
        let complaint = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&path, &shown, complaint);
    }
}

fn policy_rules(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let subjects = path.child("subjects");
    if items(rule, "subjects").is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for (i, item) in items(rule, "subjects").iter().enumerate() {
        subject(item, &subjects.index(i), errors);
    }
    let (resource, other) = (
        items(rule, "resourceRules"),
        items(rule, "nonResourceRules"),
    );
    if resource.is_empty() && other.is_empty() {
        let complaint = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(path, complaint);
    }
    for (i, rule) in resource.iter().enumerate() {
        resource_rule(rule, &path.child("resourceRules").index(i), errors);
    }
    for (i, rule) in other.iter().enumerate() {
        url_rule(rule, &path.child("nonResourceRules").index(i), errors);
    }
}

fn subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kinds = [
        ("ServiceAccount", "serviceAccount"),
        ("User", "user"),
        ("Group", "group"),
    ];
    let kind = text(subject, "kind");
    let Some((_, field)) = kinds.iter().find(|(name, _)| *name == kind) else {
        let allowed = ["Group", "ServiceAccount", "User"];
        return errors.not_supported(&path.child("kind"), &kind.into(), &allowed);
    };
    if has(subject, field) {
        subject_fields(kind, at(subject, field), &path.child(field), errors);
    } else {
        let complaint = format!("{field} is required when subject kind is '{kind}'");
        errors.required(&path.child(field), &complaint);
    }
    for (name, other) in kinds
        .iter()
        .filter(|(name, other)| *name != kind && has(subject, other))
    {
        let complaint = format!("{other} is forbidden when subject kind is not '{name}'");
        errors.forbidden(&path.child(other), &complaint);
    }
}

fn subject_fields(kind: &str, fields: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(fields, "name");
    let has_name = required(errors, path, fields, "name");
    if kind != "ServiceAccount" {
        return;
    }
    if has_name && name != "*" {
        complain(
            errors,
            &path.child("name"),
            name,
            names::dns1123_subdomain(name),
        );
    }
    let namespace = text(fields, "namespace");
    if namespace.is_empty() {
        let complaint = "must specify namespace for service account";
        errors.required(&path.child("namespace"), complaint);
    } else {
        complain(
            errors,
            &path.child("namespace"),
            namespace,
            names::dns1123_label(namespace),
        );
    }
}

fn has_star(rule: &Value, list: &str) -> bool {
    texts(rule, list).any(|entry| entry == "*")
}

// The star of a list stands alone; `true` when there is one.
fn lone_star(rule: &Value, list: &str, what: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    if has_star(rule, list) && items(rule, list).len() > 1 {
        let complaint = format!("if '*' is present, must not specify other {what}");
        errors.invalid(&path.child(list), at(rule, list), &complaint);
    }
    has_star(rule, list)
}

fn verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at_verbs = path.child("verbs");
    if items(rule, "verbs").is_empty() {
        errors.required(&at_verbs, "verbs must contain at least one value");
    } else if !lone_star(rule, "verbs", "verbs", path, errors)
        && !texts(rule, "verbs").all(|verb| VERBS.contains(&verb))
    {
        errors.not_supported(&at_verbs, at(rule, "verbs"), VERBS);
    }
}

fn resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    for (list, what, complaint) in [
        (
            "apiGroups",
            "api groups",
            "resource rules must supply at least one api group",
        ),
        (
            "resources",
            "resources",
            "resource rules must supply at least one resource",
        ),
    ] {
        if items(rule, list).is_empty() {
            errors.required(&path.child(list), complaint);
        }
        lone_star(rule, list, what, path, errors);
    }
    let namespaces = path.child("namespaces");
    if items(rule, "namespaces").is_empty() && !flag(rule, "clusterScope") {
        let complaint =
            "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&namespaces, complaint);
    } else if !lone_star(rule, "namespaces", "namespaces", path, errors) {
        for (i, name) in texts(rule, "namespaces").enumerate() {
            for complaint in names::dns1123_label(name) {
                let complaint = format!(
                    "each member of this list must be '*' or a DNS-1123 label; {complaint}"
                );
                errors.invalid(&namespaces.index(i), &name.into(), &complaint);
            }
        }
    }
}

fn url_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    let urls = path.child("nonResourceURLs");
    if items(rule, "nonResourceURLs").is_empty() {
        errors.required(&urls, "nonResourceURLs must contain at least one value");
    } else if !lone_star(rule, "nonResourceURLs", "non-resource URLs", path, errors) {
        for (i, url) in texts(rule, "nonResourceURLs").enumerate() {
            if let Some(complaint) = url_complaint(url) {
                errors.invalid(&urls.index(i), &url.into(), complaint);
            }
        }
    }
}

fn url_complaint(url: &str) -> Option<&'static str> {
    let stars = url.matches('*').count();
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !url.starts_with('/') => Some("must start with slash"),
        _ if url.contains(' ') => Some("must not contain white-space"),
        _ if url.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !url.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

fn condition_types(object: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let path = status.child("conditions");
    let conditions = items(at(object, "status"), "conditions");
    unique(errors, &path, conditions, Some("type"), |c| {
        text(c, "type").to_owned()
    });
    for (i, condition) in conditions.iter().enumerate() {
        required(errors, &path.index(i), condition, "type");
    }
}

/// A new PriorityLevelConfiguration.
pub fn priority_level(object: &Value, errors: &mut Errors) {
    let (name, spec) = (text(at(object, "metadata"), "name"), at(object, "spec"));
    let ty = text(spec, "type");
    if (name == "exempt") != (ty == "Exempt") {
        let complaint = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&SPEC.child("type"), &ty.into(), complaint);
    }
    match ty {
        "Exempt" => {
            if has(spec, "limited") {
                let complaint = "must be nil if the type is not Limited";
                errors.forbidden(&SPEC.child("limited"), complaint);
            }
            shares(at(spec, "exempt"), &SPEC.child("exempt"), errors);
            lendable(at(spec, "exempt"), &SPEC.child("exempt"), errors);
        }
        "Limited" => {
            if has(spec, "exempt") {
                errors.forbidden(&SPEC.child("exempt"), "must be nil if the type is Limited");
            }
            if has(spec, "limited") {
                limited(at(spec, "limited"), &SPEC.child("limited"), errors);
            } else {
                let complaint = "must not be empty when type is Limited";
                errors.required(&SPEC.child("limited"), complaint);
            }
        }
        "" => errors.required(&SPEC.child("type"), ""),
        _ => {
            one_of(errors, &SPEC, spec, "type", &["Exempt", "Limited"]);
        }
    }
    condition_types(object, errors);
}

/// A changed PriorityLevelConfiguration, or its status.
pub fn priority_level_update(new: &Value, _old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        condition_types(new, errors)
    } else {
        priority_level(new, errors)
    }
}

fn shares(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = "nominalConcurrencyShares";
    if int(level, name) < 0 {
        errors.invalid(
            &path.child(name),
            at(level, name),
            "must be a non-negative integer",
        );
    }
}

fn lendable(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = "lendablePercent";
    if some_int(level, name).is_some_and(|percent| !(0..=100).contains(&percent)) {
        errors.invalid(
            &path.child(name),
            at(level, name),
            "must be between 0 and 100, inclusive",
        );
    }
}

fn limited(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    shares(level, path, errors);
    limit_response(
        at(level, "limitResponse"),
        &path.child("limitResponse"),
        errors,
    );
    lendable(level, path, errors);
    let name = "borrowingLimitPercent";
    if some_int(level, name).is_some_and(|percent| percent < 0) {
        let complaint = "if specified, must be a non-negative integer";
        errors.invalid(&path.child(name), at(level, name), complaint);
    }
}

fn limit_response(response: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at_queuing = path.child("queuing");
    match (text(response, "type"), has(response, "queuing")) {
        ("Reject", true) => errors.forbidden(
            &at_queuing,
            "must be nil if limited.limitResponse.type is not Limited",
        ),
        ("Reject", false) => {}
        ("Queue", true) => queuing(at(response, "queuing"), &at_queuing, errors),
        ("Queue", false) => errors.required(
            &at_queuing,
            "must not be empty if limited.limitResponse.type is Limited",
        ),
        ("", _) => errors.required(&path.child("type"), ""),
        _ => {
            one_of(errors, path, response, "type", &["Queue", "Reject"]);
        }
    }
}

fn queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["queueLengthLimit", "queues", "handSize"] {
        if int(queuing, name) <= 0 {
            errors.invalid(
                &path.child(name),
                &int(queuing, name).into(),
                "must be positive",
            );
        }
    }
    let (queues, hand) = (int(queuing, "queues"), int(queuing, "handSize"));
    if queues > QUEUES_MAX {
        let complaint = format!("must not be greater than {QUEUES_MAX}");
        errors.invalid(&path.child("queues"), &queues.into(), &complaint);
    }
    let complaint = if hand <= 0 {
        return;
    } else if hand > queues {
        format!("should not be greater than queues ({queues})")
    } else if entropy_bits(queues, hand) > HASH_BITS_MAX {
        format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS_MAX}"
        )
    } else {
        return;
    };
    errors.invalid(&path.child("handSize"), &hand.into(), &complaint);
}

// Bits of hash that dealing a hand from a deck uses up (shuffle sharding).
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    let bits: f64 = (0..hand).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as u32
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn schema() -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "b"}, "rules": [rules()]}})
    }

    fn rules() -> Value {
        json!({"subjects": [{"kind": "User", "user": {"name": "*"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]})
    }

    #[test]
    fn schemas_lead_subjects_to_a_level() {
        let rule = |patch: Value| json!({"spec": {"rules": [with(&rules(), &patch)]}});
        let resource = |patch: Value| {
            rule(json!({"resourceRules": [with(&rules()["resourceRules"][0], &patch)]}))
        };
        let url = |urls: Value| {
            rule(json!({"nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": urls}]}))
        };
        creates(
            flow_schema,
            &schema(),
            &[
                (
                    json!({"spec": {"matchingPrecedence": 0}}),
                    "spec.matchingPrecedence: Invalid value: 0: must be a positive value",
                ),
                (
                    json!({"spec": {"matchingPrecedence": 10001}}),
                    "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
                ),
                (
                    json!({"spec": {"matchingPrecedence": 1}}),
                    "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt'",
                ),
                (
                    json!({"spec": {"distinguisherMethod": {"type": "ByMood"}}}),
                    "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"ByMood\"}: supported values: \"ByNamespace\", \"ByUser\"",
                ),
                (
                    json!({"spec": {"priorityLevelConfiguration": null}}),
                    "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
                ),
                (
                    rule(json!({"subjects": null})),
                    "spec.rules[0].subjects: Required value: subjects must contain at least one value",
                ),
                (
                    rule(json!({"subjects": [{"kind": "Robot"}]})),
                    "spec.rules[0].subjects[0].kind: Unsupported value: \"Robot\": supported values: \"Group\", \"ServiceAccount\", \"User\"",
                ),
                (
                    rule(json!({"subjects": [{"kind": "User"}]})),
                    "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
                ),
                (
                    rule(
                        json!({"subjects": [{"kind": "User", "user": {"name": "a"}, "group": {"name": "b"}}]}),
                    ),
                    "spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
                ),
                (
                    rule(
                        json!({"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "*"}}]}),
                    ),
                    "spec.rules[0].subjects[0].serviceAccount.namespace: Required value",
                ),
                (
                    rule(json!({"resourceRules": null})),
                    "spec.rules[0]: Required value: at least one of resourceRules",
                ),
                (
                    resource(json!({"verbs": ["*", "get"]})),
                    "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
                ),
                (
                    resource(json!({"verbs": ["sing"]})),
                    "spec.rules[0].resourceRules[0].verbs: Unsupported value: [\"sing\"]",
                ),
                (
                    resource(json!({"apiGroups": null})),
                    "spec.rules[0].resourceRules[0].apiGroups: Required value",
                ),
                (
                    resource(json!({"namespaces": null})),
                    "spec.rules[0].resourceRules[0].namespaces: Required value",
                ),
                (
                    resource(json!({"namespaces": null, "clusterScope": true})),
                    "",
                ),
                (
                    resource(json!({"namespaces": ["A"]})),
                    "spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: \"A\": each member of this list must be '*' or a DNS-1123 label;",
                ),
                (url(json!(["/healthz", "/a/*"])), ""),
                (
                    url(json!(["a"])),
                    "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"a\": must start with slash",
                ),
                (
                    url(json!(["/a*"])),
                    "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*\": wildcard can only do suffix matching",
                ),
            ],
        );
        updates(
            flow_schema_update,
            "",
            &schema(),
            &[(
                json!({"spec": {"matchingPrecedence": 0}}),
                "spec.matchingPrecedence: Invalid",
            )],
        );
        updates(
            flow_schema_update,
            "status",
            &schema(),
            &[(
                json!({"status": {"conditions": [{}]}}),
                "status.conditions[0].type: Required value",
            )],
        );
    }

    #[test]
    fn levels_limit_or_exempt() {
        let queuing = |patch: Value| json!({"spec": {"limited": {"limitResponse": {"type": "Queue", "queuing": with(&json!({"queues": 64, "handSize": 8, "queueLengthLimit": 50}), &patch)}}}});
        let base = json!({"metadata": {"name": "a"}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30, "limitResponse": {"type": "Reject"}}}});
        creates(
            priority_level,
            &base,
            &[
                (
                    json!({"spec": {"type": "Exempt"}}),
                    "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
                ),
                (
                    json!({"metadata": {"name": "exempt"}, "spec": {"type": "Exempt", "limited": null}}),
                    "",
                ),
                (json!({"spec": {"type": null}}), "spec.type: Required value"),
                (
                    json!({"spec": {"type": "Odd"}}),
                    "spec.type: Unsupported value: \"Odd\": supported values: \"Exempt\", \"Limited\"",
                ),
                (
                    json!({"spec": {"limited": null}}),
                    "spec.limited: Required value: must not be empty when type is Limited",
                ),
                (
                    json!({"spec": {"limited": {"nominalConcurrencyShares": -1}}}),
                    "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                ),
                (
                    json!({"spec": {"limited": {"lendablePercent": 101}}}),
                    "spec.limited.lendablePercent: Invalid value: 101",
                ),
                (
                    json!({"spec": {"limited": {"borrowingLimitPercent": -1}}}),
                    "spec.limited.borrowingLimitPercent: Invalid value: -1",
                ),
                (
                    json!({"spec": {"limited": {"limitResponse": {"type": "Queue"}}}}),
                    "spec.limited.limitResponse.queuing: Required value",
                ),
                (
                    json!({"spec": {"limited": {"limitResponse": {"queuing": {}}}}}),
                    "spec.limited.limitResponse.queuing: Forbidden",
                ),
                (queuing(json!({})), ""),
                (
                    queuing(json!({"queues": 0})),
                    "spec.limited.limitResponse.queuing.queues: Invalid value: 0: must be positive",
                ),
                (
                    queuing(json!({"handSize": 65})),
                    "spec.limited.limitResponse.queuing.handSize: Invalid value: 65: should not be greater than queues (64)",
                ),
                (
                    queuing(json!({"handSize": 20})),
                    "spec.limited.limitResponse.queuing.handSize: Invalid value: 20: required entropy bits of deckSize 64 and handSize 20",
                ),
            ],
        );
        updates(
            priority_level_update,
            "",
            &base,
            &[(json!({"spec": {"type": null}}), "spec.type: Required value")],
        );
        updates(
            priority_level_update,
            "status",
            &base,
            &[(
                json!({"status": {"conditions": [{"type": "A"}, {"type": "A"}]}}),
                "status.conditions[1].type: Duplicate value: \"A\"",
            )],
        );
    }
}
