//! Nobody grants what they do not hold: which permissions are missing, and how that is said.

use std::collections::{BTreeSet, HashMap};

use kube_kit::selector::quoted;

use super::rule::{Rule, quoted_list};
use crate::User;

/// The single permissions among `wanted` that none of the `held` rules covers.
pub fn not_covered(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted
        .iter()
        .flat_map(Rule::broken_down)
        .filter(|single| !held.iter().any(|rule| rule.covers(single)))
        .collect()
}

/// What a user is told who would grant more than they hold. The errors are those of bindings whose role could
/// not be found ([`super::Unresolved::in_request_for`]).
pub fn escalation_message(user: &User, uncovered: &[Rule], resolution_errors: &[String]) -> String {
    let missing: BTreeSet<String> = compact(uncovered).iter().map(Rule::to_string).collect();
    let missing: Vec<String> = missing.into_iter().collect();
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&user.name),
        quoted_list(&user.groups),
        missing.join("\n")
    );
    if !resolution_errors.is_empty() {
        let errors = one_error(resolution_errors.iter().cloned());
        message.push_str(&format!("; resolution errors: [{errors}]"));
    }
    message
}

/// Several errors as one text: alone as it is, more as `[a, b]`, each once.
pub(super) fn one_error(errors: impl Iterator<Item = String>) -> String {
    let mut unique: Vec<String> = Vec::new();
    for error in errors {
        if !unique.contains(&error) {
            unique.push(error);
        }
    }
    match unique.len() {
        1 => unique.remove(0),
        _ => format!("[{}]", unique.join(", ")),
    }
}

/// Rules of one resource (and name) that differ only in verbs become one; others stay as they are.
fn compact(rules: &[Rule]) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    let mut place: HashMap<Rule, usize> = HashMap::new();
    for rule in rules {
        let simple = rule.api_groups.len() == 1
            && rule.resources.len() == 1
            && rule.resource_names.len() <= 1
            && rule.non_resource_urls.is_empty();
        if !simple {
            compacted.push(rule.clone());
            continue;
        }
        let key = Rule {
            verbs: Vec::new(),
            ..rule.clone()
        };
        match place.get(&key) {
            Some(&at) => compacted[at].verbs.extend(rule.verbs.iter().cloned()),
            None => {
                place.insert(key, compacted.len());
                compacted.push(rule.clone());
            }
        }
    }
    compacted
}

#[cfg(test)]
mod tests;
