//! Resource quotas: what objects of a namespace use, and whether one more fits.
//!
//! A [`Measure`] knows what an object of one resource costs and in which of a quota's names it counts.
//! Admission [`charge`]s a write to the quotas it concerns; the controller [`recount`]s a namespace.

mod charge;
mod claims;
mod measure;
mod pods;
mod recount;

pub use charge::{Write, charge};
pub use measure::{GroupResource, Measure};
pub use pods::is_charged as pod_is_charged;
pub use recount::{gives_back, next_status, tracked_resources};

use kinds::pod_resources::{self, Amounts};
use kube_kit::selector::{Operator, Requirement};
use serde_json::Value;

/// A quota as admission sees it: what the controller has established.
#[derive(Debug, Clone)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// The bounds that are in force (`status.hard`).
    pub hard: Amounts,
    /// What is used of them (`status.used`).
    pub used: Amounts,
    scopes: Vec<Requirement>,
}

impl Quota {
    /// Reads a ResourceQuota.
    pub fn of(object: &Value) -> Quota {
        Quota {
            name: text(&object["metadata"]["name"]).to_owned(),
            hard: amounts_in(&object["status"]["hard"]),
            used: amounts_in(&object["status"]["used"]),
            scopes: scopes(&object["spec"]),
        }
    }
}

// Scopes listed by name are requirements that they hold. A requirement that cannot be read would not
// have passed validation.
fn scopes(spec: &Value) -> Vec<Requirement> {
    let named = items(&spec["scopes"])
        .filter_map(|scope| Requirement::new(text(scope), Operator::Exists, Vec::new()).ok());
    let selected = items(&spec["scopeSelector"]["matchExpressions"]).filter_map(|expression| {
        let operator = Operator::from_expression(text(&expression["operator"]))?;
        let values = items(&expression["values"]).map(|v| text(v).to_owned());
        Requirement::new(text(&expression["scopeName"]), operator, values.collect()).ok()
    });
    named.chain(selected).collect()
}

/// Amounts in a JSON object of quantities.
fn amounts_in(list: &Value) -> Amounts {
    let listed = list.as_object().into_iter().flatten();
    listed
        .filter_map(|(name, amount)| Some((name.clone(), pod_resources::parse(amount)?)))
        .collect()
}

/// Amounts as a JSON object of quantities.
pub fn amounts_to_value(amounts: &Amounts) -> Value {
    let pairs = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), Value::from(amount.to_string())));
    Value::Object(pairs.collect())
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(sum) => *sum += amount,
            None => {
                total.insert(name.clone(), amount.clone());
            }
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
