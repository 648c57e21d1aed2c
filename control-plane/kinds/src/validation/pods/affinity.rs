//! Where a pod may run: affinity, spreading, tolerations.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{
    at, entries, has, int, items, repeated, same, some_int, text, texts,
};
use crate::validation::rules::{complain, label_selector};
use crate::validation::values::{NOT_POSITIVE, optional_choice};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_OPERATOR: &str = "not a valid selector operator";
const WEIGHT: &str = "must be in the range 1-100";
const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const ONLY_SECONDS: &str = "existing toleration can not be modified except its tolerationSeconds";

/// The affinity of a pod.
pub(crate) fn affinity(errors: &mut Errors, path: &Path<'_>, affinity: &Value) {
    if has(affinity, "nodeAffinity") {
        node_affinity(
            errors,
            &path.child("nodeAffinity"),
            at(affinity, "nodeAffinity"),
        );
    }
    for name in ["podAffinity", "podAntiAffinity"] {
        pod_affinity(errors, &path.child(name), at(affinity, name));
    }
}

fn node_affinity(errors: &mut Errors, path: &Path<'_>, affinity: &Value) {
    if has(affinity, REQUIRED) {
        node_selector(errors, &path.child(REQUIRED), at(affinity, REQUIRED));
    }
    let path = path.child(PREFERRED);
    for (i, term) in items(affinity, PREFERRED).iter().enumerate() {
        let element = path.index(i);
        weight(errors, &element, term);
        // A preference for a label value that no node can have does no harm.
        node_term(
            errors,
            &element.child("preference"),
            at(term, "preference"),
            true,
        );
    }
}

fn weight(errors: &mut Errors, path: &Path<'_>, term: &Value) {
    let weight = int(term, "weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&path.child("weight"), &weight.into(), WEIGHT);
    }
}

/// A node selector: terms of which one must match.
pub(crate) fn node_selector(errors: &mut Errors, path: &Path<'_>, selector: &Value) {
    let path = path.child("nodeSelectorTerms");
    let terms = items(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        return errors.required(&path, "must have at least one node selector term");
    }
    for (i, term) in terms.iter().enumerate() {
        node_term(errors, &path.index(i), term, false);
    }
}

fn node_term(errors: &mut Errors, path: &Path<'_>, term: &Value, any_values: bool) {
    let expressions = path.child("matchExpressions");
    for (i, requirement) in items(term, "matchExpressions").iter().enumerate() {
        node_requirement(errors, &expressions.index(i), requirement, any_values);
    }
    let fields = path.child("matchFields");
    for (i, requirement) in items(term, "matchFields").iter().enumerate() {
        node_field(errors, &fields.index(i), requirement);
    }
}

fn node_requirement(errors: &mut Errors, path: &Path<'_>, requirement: &Value, any_values: bool) {
    let values = items(requirement, "values");
    let values_path = path.child("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => errors.required(
            &values_path,
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.forbidden(
            &values_path,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        "Gt" | "Lt" if values.len() != 1 => errors.required(
            &values_path,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.invalid(&path.child("operator"), &other.into(), NO_OPERATOR),
    }
    let key = text(requirement, "key");
    complain(errors, &path.child("key"), key, names::qualified_name(key));
    if !any_values {
        for (i, value) in texts(requirement, "values").enumerate() {
            complain(
                errors,
                &values_path.index(i),
                value,
                names::label_value(value),
            );
        }
    }
}

fn node_field(errors: &mut Errors, path: &Path<'_>, requirement: &Value) {
    let values_path = path.child("values");
    match text(requirement, "operator") {
        "In" | "NotIn" if items(requirement, "values").len() != 1 => errors.required(
            &values_path,
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
        "In" | "NotIn" => {}
        other => errors.invalid(&path.child("operator"), &other.into(), NO_OPERATOR),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        return errors.invalid(
            &path.child("key"),
            &key.into(),
            "not a valid field selector key",
        );
    }
    for (i, value) in texts(requirement, "values").enumerate() {
        complain(
            errors,
            &values_path.index(i),
            value,
            names::dns1123_subdomain(value),
        );
    }
}

fn pod_affinity(errors: &mut Errors, path: &Path<'_>, affinity: &Value) {
    let required = path.child(REQUIRED);
    for (i, term) in items(affinity, REQUIRED).iter().enumerate() {
        pod_term(errors, &required.index(i), term);
    }
    let preferred = path.child(PREFERRED);
    for (i, weighted) in items(affinity, PREFERRED).iter().enumerate() {
        let element = preferred.index(i);
        weight(errors, &element, weighted);
        pod_term(
            errors,
            &element.child("podAffinityTerm"),
            at(weighted, "podAffinityTerm"),
        );
    }
}

fn pod_term(errors: &mut Errors, path: &Path<'_>, term: &Value) {
    for name in ["labelSelector", "namespaceSelector"] {
        label_selector(errors, &path.child(name), at(term, name));
    }
    for name in texts(term, "namespaces") {
        complain(
            errors,
            &path.child("namespace"),
            name,
            names::dns1123_label(name),
        );
    }
    label_keys(errors, path, term);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(&path.child("topologyKey"), "can not be empty");
    }
    complain(
        errors,
        &path.child("topologyKey"),
        key,
        names::qualified_name(key),
    );
}

// `matchLabelKeys` become expressions of the selector when a pod is created, so a key that occurs
// twice there was given twice.
fn label_keys(errors: &mut Errors, path: &Path<'_>, owner: &Value) {
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let list_path = path.child(list);
        if items(owner, list).is_empty() {
            continue;
        }
        if !has(owner, "labelSelector") {
            errors.forbidden(
                &list_path,
                "must not be specified when labelSelector is not set",
            );
            continue;
        }
        for (i, key) in texts(owner, list).enumerate() {
            complain(errors, &list_path.index(i), key, names::qualified_name(key));
        }
    }
    let keys: Vec<&str> = texts(owner, "matchLabelKeys").collect();
    let places: HashMap<&str, usize> = keys.iter().copied().zip(0..).collect();
    let selector = at(owner, "labelSelector");
    let mut seen: HashSet<&str> = entries(selector, "matchLabels")
        .map(|(key, _)| key)
        .collect();
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(&i) = places.get(key).filter(|_| seen.contains(key)) {
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.invalid(&path.index(i), &key.into(), detail);
        }
        seen.insert(key);
    }
    let mismatches: HashSet<&str> = texts(owner, "mismatchLabelKeys").collect();
    let match_path = path.child("matchLabelKeys");
    for (i, key) in keys
        .iter()
        .enumerate()
        .filter(|(_, key)| mismatches.contains(*key))
    {
        let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(&match_path.index(i), &(*key).into(), detail);
    }
}

/// How the pods of a workload spread.
pub(crate) fn topology_spread(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    let pair = |constraint| {
        (
            text(constraint, "topologyKey"),
            text(constraint, "whenUnsatisfiable"),
        )
    };
    let mut comes_again = repeated(list.iter().rev().map(pair));
    comes_again.reverse();
    for (i, constraint) in list.iter().enumerate() {
        let element = path.index(i);
        let skew = int(constraint, "maxSkew");
        if skew <= 0 {
            errors.invalid(&element.child("maxSkew"), &skew.into(), NOT_POSITIVE);
        }
        let (key, action) = pair(constraint);
        if key.is_empty() {
            errors.required(&element.child("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.not_supported(
                &element.child("whenUnsatisfiable"),
                &action.into(),
                &actions,
            );
        }
        if comes_again[i] {
            let pair = format!("{{{key}, {action}}}");
            errors.duplicate(
                &element.child("{topologyKey, whenUnsatisfiable}"),
                &pair.into(),
            );
        }
        min_domains(errors, &element.child("minDomains"), constraint, action);
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            optional_choice(errors, &element, constraint, name, &["Honor", "Ignore"]);
        }
        label_keys(errors, &element, constraint);
        label_selector(
            errors,
            &element.child("labelSelector"),
            at(constraint, "labelSelector"),
        );
    }
}

fn min_domains(errors: &mut Errors, path: &Path<'_>, constraint: &Value, action: &str) {
    let Some(minimum) = some_int(constraint, "minDomains") else {
        return;
    };
    if minimum <= 0 {
        errors.invalid(path, &minimum.into(), NOT_POSITIVE);
    }
    if action != "DoNotSchedule" {
        let detail =
            format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, &minimum.into(), &detail);
    }
}

/// The taints a pod puts up with.
pub(crate) fn tolerations(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    for (i, toleration) in list.iter().enumerate() {
        self::toleration(errors, &path.index(i), toleration);
    }
}

fn toleration(errors: &mut Errors, path: &Path<'_>, toleration: &Value) {
    let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
    let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
    let (operator_path, effect_path) = (path.child("operator"), path.child("effect"));
    if !key.is_empty() {
        complain(errors, &path.child("key"), key, names::qualified_name(key));
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.invalid(&operator_path, &operator.into(), detail);
    }
    if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.invalid(&effect_path, &effect.into(), detail);
    }
    match operator {
        "Equal" | "" => {
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                errors.invalid(&operator_path, &value.into(), &complaints.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.invalid(&operator_path, &value.into(), detail);
        }
        "Exists" => {}
        // The comparing operators exist behind a gate that is off by default.
        "Lt" | "Gt" => {
            let allowed = ["Equal", "Exists", "Lt", "Gt"];
            errors.not_supported(&operator_path, &operator.into(), &allowed);
        }
        _ => errors.not_supported(&operator_path, &operator.into(), &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !TAINT_EFFECTS.contains(&effect) {
        errors.not_supported(&effect_path, &effect.into(), &TAINT_EFFECTS);
    }
}

/// Tolerations of a running pod only grow; their seconds may change.
pub(crate) fn only_added_tolerations(
    errors: &mut Errors,
    path: &Path<'_>,
    new: &[Value],
    old: &[Value],
) {
    let without_seconds = |toleration: &Value| {
        let mut rest = toleration.clone();
        if let Some(map) = rest.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        rest
    };
    let kept: HashSet<Value> = new.iter().map(without_seconds).collect();
    if old
        .iter()
        .map(without_seconds)
        .any(|toleration| !kept.contains(&toleration))
    {
        return errors.forbidden(path, ONLY_SECONDS);
    }
    tolerations(errors, path, new);
}

/// The node affinity of a pod that waits for its gates may only narrow.
pub(crate) fn narrowed(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    let path = path.child(REQUIRED);
    let path = path.child("nodeSelectorTerms");
    let old_terms = items(at(old, REQUIRED), "nodeSelectorTerms");
    let new_terms = items(at(new, REQUIRED), "nodeSelectorTerms");
    if !old_terms.is_empty() && old_terms.len() != new_terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return errors.invalid(&path, &new_terms.into(), detail);
    }
    for (i, (new, old)) in new_terms.iter().zip(old_terms).enumerate() {
        if !only_grows(new, old) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(&path.index(i), new, detail);
        }
    }
}

fn only_grows(new: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    let was_empty = lists.iter().all(|list| items(old, list).is_empty());
    if was_empty {
        // An empty term matches nothing; anything added would widen it.
        return lists.iter().all(|list| items(new, list).is_empty());
    }
    lists.iter().all(|list| {
        let (new, old) = (items(new, list), items(old, list));
        new.len() >= old.len() && new.iter().zip(old).all(|(new, old)| same(new, old))
    })
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
