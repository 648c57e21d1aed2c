//! What a stricter level means for pods that already run: they stay, and the person is told.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::{Standard, violations};

/// Pods looked at, at most (upstream's `defaultNamespaceMaxPodsToCheck`).
const MOST_PODS: usize = 3000;

/// Warnings about pods of a namespace that a new standard would not let in. `in_time` is asked after
/// each pod; once it says no, the rest is not looked at, and the warnings say so.
pub fn existing_pod_warnings(
    namespace: &str,
    standard: Standard,
    pods: &[Value],
    mut in_time: impl FnMut() -> bool,
) -> Vec<String> {
    let mut checked = 0;
    // By reasons: the first pod's name and how many there are.
    let mut found: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for pod in one_of_each_controller_first(pods)
        .into_iter()
        .take(MOST_PODS)
    {
        checked += 1;
        note(&mut found, standard, pod);
        if !in_time() {
            break;
        }
    }
    let mut warnings = Vec::new();
    if checked < pods.len() {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {} existing pods",
            pods.len()
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{standard}\""
        ));
    }
    let mut lines: Vec<String> = found.iter().map(line).collect();
    lines.sort();
    warnings.extend(lines);
    warnings
}

fn note<'a>(found: &mut BTreeMap<String, (&'a str, usize)>, standard: Standard, pod: &'a Value) {
    let violations = violations(standard, pod);
    if violations.is_empty() {
        return;
    }
    let reasons: Vec<&str> = violations.iter().map(|v| v.reason).collect();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let (first, count) = found.entry(reasons.join(", ")).or_insert((name, 0));
    *first = name.min(first);
    *count += 1;
}

fn line((reasons, (name, count)): (&String, &(&str, usize))) -> String {
    match count {
        1 => format!("{name}: {reasons}"),
        2 => format!("{name} (and 1 other pod): {reasons}"),
        many => format!("{name} (and {} other pods): {reasons}", many - 1),
    }
}

// Pods of one controller are alike, so one of each is looked at before the others.
fn one_of_each_controller_first(pods: &[Value]) -> Vec<&Value> {
    let mut seen = HashSet::new();
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for pod in pods {
        let owners = pod["metadata"]["ownerReferences"].as_array();
        let controller = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true)
            .and_then(|owner| owner["uid"].as_str());
        match controller.is_none_or(|uid| seen.insert(uid)) {
            true => first.push(pod),
            false => others.push(pod),
        }
    }
    first.extend(others);
    first
}
