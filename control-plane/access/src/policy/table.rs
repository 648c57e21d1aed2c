//! The policy table: one line per object, below it one indented line per rule or subject.
//!
//! ```text
//! ClusterRole name
//!  label key                            the object has the label key=true
//!  sum key                              the rules are those of the roles with the label key=true
//!  groups resources verbs [names]       a rule; lists have commas, `core` is the group without a name
//!  paths paths verbs                    a rule for paths
//! RoleBinding namespace/name Role name
//!  User name | Group name | ServiceAccount namespace/name
//! ```

use serde_json::{Value, json};

const API_GROUP: &str = "rbac.authorization.k8s.io";

/// Reads a table. It is part of the program, so a line that says nothing is a mistake of ours.
pub(super) fn parse(table: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    for line in table.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.strip_prefix(' '), objects.last_mut()) {
            (Some(detail), Some(object)) => add(object, &words(detail)),
            _ => objects.push(head(&words(line))),
        }
    }
    objects
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn head(words: &[&str]) -> Value {
    let (kind, name) = match words {
        [kind, name, ..] => (*kind, *name),
        _ => panic!("policy table: an object needs a kind and a name: {words:?}"),
    };
    let mut object = json!({
        "apiVersion": format!("{API_GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "annotations": {super::reconcile::AUTO_UPDATE: "true"},
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "name": name,
        },
    });
    if let Some((namespace, name)) = name.split_once('/') {
        object["metadata"]["namespace"] = namespace.into();
        object["metadata"]["name"] = name.into();
    }
    match words[2..] {
        [] => object["rules"] = Value::Null,
        [kind, name] => {
            object["roleRef"] = json!({"apiGroup": API_GROUP, "kind": kind, "name": name});
        }
        _ => panic!("policy table: a binding names one role: {words:?}"),
    }
    object
}

fn add(object: &mut Value, words: &[&str]) {
    match *words {
        ["label", key] => object["metadata"]["labels"][key] = "true".into(),
        ["sum", key] => push(
            &mut object["aggregationRule"]["clusterRoleSelectors"],
            json!({"matchLabels": {key: "true"}}),
        ),
        ["paths", paths, verbs] => push(
            &mut object["rules"],
            json!({"nonResourceURLs": list(paths), "verbs": list(verbs)}),
        ),
        ["ServiceAccount", account] => {
            let (namespace, name) = account.split_once('/').unwrap_or(("", account));
            let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
            push(&mut object["subjects"], subject);
        }
        [kind @ ("User" | "Group"), name] => push(
            &mut object["subjects"],
            json!({"apiGroup": API_GROUP, "kind": kind, "name": name}),
        ),
        [groups, resources, verbs, ref names @ ..] => {
            let mut rule = json!({"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)});
            if let Some(names) = names.first() {
                rule["resourceNames"] = list(names);
            }
            push(&mut object["rules"], rule);
        }
        _ => panic!("policy table: neither a rule nor a subject: {words:?}"),
    }
}

fn list(text: &str) -> Value {
    let unnamed = |item| if item == "core" { "" } else { item };
    text.split(',').map(unnamed).collect()
}

/// Appends to a list that may not be there yet.
fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

#[cfg(test)]
mod tests;
