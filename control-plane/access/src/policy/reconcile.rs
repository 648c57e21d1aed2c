//! What a start does to an object of the bootstrap policy that may already be there.

use serde_json::{Map, Value};

use crate::rbac::{Rule, not_covered};

/// The annotation by which people keep an object as it is (`"false"`).
pub(super) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What has to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconciled {
    /// Nothing.
    Unchanged,
    /// Create the wanted object.
    Create,
    /// Write this object in the place of the existing one.
    Update(Value),
    /// Delete the existing object, then create this one: a binding's role cannot be changed.
    Recreate(Value),
}

/// Brings an object up to what is wanted without taking away what somebody added: missing labels, annotations,
/// rules, subjects and aggregation selectors are added. A wrong role reference is put right, and an
/// aggregation that is not wanted is removed. An object that opted out stays as it is.
pub fn reconcile(existing: Option<&Value>, wanted: &Value) -> Reconciled {
    let Some(existing) = existing else {
        return Reconciled::Create;
    };
    if existing["metadata"]["annotations"][AUTO_UPDATE] == "false" {
        return Reconciled::Unchanged;
    }
    let is_binding = wanted.get("roleRef").is_some();
    if is_binding && !same_role(&existing["roleRef"], &wanted["roleRef"]) {
        return Reconciled::Recreate(wanted.clone());
    }
    let mut result = existing.clone();
    for map in ["annotations", "labels"] {
        add_keys(&mut result["metadata"], map, &wanted["metadata"][map]);
    }
    if is_binding {
        append(&mut result, "subjects", missing_subjects(existing, wanted));
    } else {
        append(&mut result, "rules", missing_rules(existing, wanted));
        reconcile_aggregation(&mut result, wanted);
    }
    match result == *existing {
        true => Reconciled::Unchanged,
        false => Reconciled::Update(result),
    }
}

fn same_role(a: &Value, b: &Value) -> bool {
    same_texts(a, b, &["apiGroup", "kind", "name"])
}

/// Whether texts are the same, one that is not there being empty.
fn same_texts(a: &Value, b: &Value, fields: &[&str]) -> bool {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    fields.iter().all(|field| text(a, field) == text(b, field))
}

/// Adds what is not there; a value somebody changed stays.
fn add_keys(metadata: &mut Value, map: &str, wanted: &Value) {
    for (key, value) in wanted.as_object().into_iter().flatten() {
        if metadata[map].get(key).is_none() {
            metadata[map][key] = value.clone();
        }
    }
}

fn missing_rules(existing: &Value, wanted: &Value) -> Vec<Value> {
    let rules = |role: &Value| Rule::all_from_json(&role["rules"]);
    let missing = not_covered(&rules(existing), &rules(wanted));
    missing.iter().map(Rule::to_json).collect()
}

fn missing_subjects(existing: &Value, wanted: &Value) -> Vec<Value> {
    let same = |a: &Value, b: &Value| same_texts(a, b, &["kind", "apiGroup", "name", "namespace"]);
    let mut missing: Vec<Value> = Vec::new();
    for subject in items(&wanted["subjects"]) {
        let known = items(&existing["subjects"]).iter().chain(&missing);
        if !known.into_iter().any(|other| same(other, subject)) {
            missing.push(subject.clone());
        }
    }
    missing
}

fn reconcile_aggregation(result: &mut Value, wanted: &Value) {
    const RULE: &str = "aggregationRule";
    const SELECTORS: &str = "clusterRoleSelectors";
    if wanted[RULE].is_null() {
        if !result[RULE].is_null()
            && let Some(role) = result.as_object_mut()
        {
            role.remove(RULE);
        }
        return;
    }
    let existing = items(&result[RULE][SELECTORS]);
    let missing: Vec<Value> = items(&wanted[RULE][SELECTORS])
        .iter()
        .filter(|selector| !existing.iter().any(|other| same_selector(other, selector)))
        .cloned()
        .collect();
    if result[RULE].is_null() && !missing.is_empty() {
        result[RULE] = Value::Object(Map::new());
    }
    append(&mut result[RULE], SELECTORS, missing);
}

/// Whether two label selectors say the same, an absent part being an empty one.
fn same_selector(a: &Value, b: &Value) -> bool {
    let no_labels = Map::new();
    let labels = |s: &'_ Value| s["matchLabels"].as_object().unwrap_or(&no_labels).clone();
    labels(a) == labels(b) && items(&a["matchExpressions"]) == items(&b["matchExpressions"])
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn append(object: &mut Value, field: &str, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    match object[field].as_array_mut() {
        Some(items) => items.extend(more),
        None => object[field] = more.into(),
    }
}

#[cfg(test)]
mod tests;
