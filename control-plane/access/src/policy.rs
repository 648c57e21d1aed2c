//! The roles and bindings every cluster starts with, and how they are kept.
//!
//! The table in `data/policy.tbl` says what upstream's bootstrap policy says with the default feature gates.
//! At every start each object is reconciled: what is missing is added, what people added stays.

mod reconcile;
mod table;

use serde_json::Value;

pub use reconcile::{Reconciled, reconcile};

use crate::rbac::Rule;

const TABLE: &str = include_str!("../data/policy.tbl");

/// Every object of the bootstrap policy, in the order in which they are to be made: roles before the bindings
/// that name them.
pub fn objects() -> Vec<Value> {
    table::parse(TABLE)
}

/// The rules of a cluster role of the bootstrap policy; none for a name it does not have.
pub fn rules_of(cluster_role: &str) -> Option<Vec<Rule>> {
    let roles = objects();
    let role = roles
        .iter()
        .find(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == cluster_role)?;
    Some(Rule::all_from_json(&role["rules"]))
}
