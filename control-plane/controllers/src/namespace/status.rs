//! What people are told of a namespace that is being emptied: five conditions in its status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::emptying::Outcome;

/// A condition, its reason and message while all is well.
const WELL: [(&str, &str, &str); 5] = [
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (
        "NamespaceContentRemaining",
        "ContentRemoved",
        "All content successfully removed",
    ),
    (
        "NamespaceFinalizersRemaining",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
];

/// Writes the outcome of a round into a namespace; whether that changes it.
pub(super) fn update(namespace: &mut Value, outcome: &Outcome, now: Timestamp) -> bool {
    let conditions = &mut namespace["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let conditions = conditions.as_array_mut().expect("made one just now");
    let mut changed = false;
    for (kind, reason, message) in WELL {
        let (status, reason, message) = match trouble(kind, outcome) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        changed |= set(conditions, kind, [status, reason, &message], now);
    }
    changed
}

fn set(conditions: &mut Vec<Value>, kind: &str, told: [&str; 3], now: Timestamp) -> bool {
    let [status, reason, message] = told;
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut condition = json!({ "type": kind, "status": status, "reason": reason,
        "message": message, "lastTransitionTime": now });
    let Some(known) = conditions.iter_mut().find(|c| c["type"] == kind) else {
        conditions.push(condition);
        return true;
    };
    if known["status"] == status {
        condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
    }
    let changed = *known != condition;
    *known = condition;
    changed
}

fn trouble(kind: &str, outcome: &Outcome) -> Option<(&'static str, String)> {
    match kind {
        "NamespaceDeletionDiscoveryFailure" => {
            let failure = outcome.discovery_failure.clone();
            failure.map(|message| ("DiscoveryFailed", message))
        }
        "NamespaceDeletionContentFailure" => content_failure(&outcome.content_failures),
        // Upstream says nothing of what is left while pods are.
        _ if outcome.stopped_at_pods => None,
        "NamespaceContentRemaining" => {
            let list = list(&outcome.remaining, "has")?;
            let message = format!("Some resources are remaining: {list}");
            Some(("SomeResourcesRemain", message))
        }
        "NamespaceFinalizersRemaining" => {
            let list = list(&outcome.finalizers, "in")?;
            let message = format!("Some content in the namespace has finalizers remaining: {list}");
            Some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

fn content_failure(failures: &[String]) -> Option<(&'static str, String)> {
    if failures.is_empty() {
        return None;
    }
    let mut sorted = failures.to_vec();
    sorted.sort();
    let message = format!(
        "Failed to delete all resource types, {} remaining: {}",
        failures.len(),
        sorted.join(", ")
    );
    Some(("ContentDeletionFailed", message))
}

fn list(numbers: &BTreeMap<String, usize>, relation: &str) -> Option<String> {
    let each = numbers
        .iter()
        .map(|(name, number)| format!("{name} {relation} {number} resource instances"));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == kind).unwrap()
    }

    #[test]
    fn conditions_tell_what_is_left_in_upstreams_words() {
        let mut namespace = json!({ "status": { "phase": "Terminating" } });
        let noon = at("2026-01-01T12:00:00Z");
        let mut outcome = Outcome::default();
        outcome.remaining.insert("configmaps.".into(), 2);
        outcome.remaining.insert("deployments.apps".into(), 1);
        outcome.finalizers.insert("example.com/hold".into(), 2);
        outcome.content_failures = vec!["b".into(), "a".into()];
        assert!(update(&mut namespace, &outcome, noon));
        for (kind, status, reason, message) in [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "NamespaceDeletionContentFailure",
                "True",
                "ContentDeletionFailed",
                "Failed to delete all resource types, 2 remaining: a, b",
            ),
            (
                "NamespaceContentRemaining",
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 2 resource instances, deployments.apps has 1 resource instances",
            ),
            (
                "NamespaceFinalizersRemaining",
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances",
            ),
        ] {
            let told = condition(&namespace, kind);
            assert_eq!(
                [&told["status"], &told["reason"], &told["message"]],
                [status, reason, message]
            );
            assert_eq!(told["lastTransitionTime"], "2026-01-01T12:00:00Z");
        }
    }

    #[test]
    fn a_condition_changes_its_time_with_its_status_alone() {
        let mut namespace = json!({ "status": {} });
        let mut outcome = Outcome::default();
        outcome.remaining.insert("configmaps.".into(), 2);
        update(&mut namespace, &outcome, at("2026-01-01T12:00:00Z"));
        assert!(
            !update(&mut namespace, &outcome, at("2026-01-01T13:00:00Z")),
            "as before"
        );
        outcome.remaining.insert("configmaps.".into(), 1);
        assert!(update(&mut namespace, &outcome, at("2026-01-01T14:00:00Z")));
        let time = |namespace: &Value| {
            condition(namespace, "NamespaceContentRemaining")["lastTransitionTime"].clone()
        };
        assert_eq!(time(&namespace), "2026-01-01T12:00:00Z");
        assert!(update(
            &mut namespace,
            &Outcome::default(),
            at("2026-01-01T15:00:00Z")
        ));
        assert_eq!(time(&namespace), "2026-01-01T15:00:00Z");
    }
}
