//! Cluster roles that are the sum of others.

use kube_kit::selector::{LabelSelector, SelectorError};
use serde_json::Value;

use super::Rule;

/// The rules an aggregated cluster role of this name should have: those of every other cluster role its
/// selectors choose, selector by selector, role by role in the order of names, each rule once.
pub fn aggregate<'a>(
    name: &str,
    selectors: &[Value],
    roles: impl IntoIterator<Item = &'a Value>,
) -> Result<Vec<Rule>, SelectorError> {
    let mut others: Vec<(&str, &Value)> = roles
        .into_iter()
        .filter_map(|role| Some((role["metadata"]["name"].as_str()?, role)))
        .filter(|(other, _)| *other != name)
        .collect();
    others.sort_by_key(|(other, _)| *other);
    let mut rules: Vec<Rule> = Vec::new();
    for selector in selectors {
        let selector = LabelSelector::from_object(selector)?;
        let chosen = others
            .iter()
            .filter(|(_, role)| selector.matches_labels(&role["metadata"]["labels"]));
        for rule in chosen.flat_map(|(_, role)| Rule::all_from_json(&role["rules"])) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests;
