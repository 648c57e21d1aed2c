//! Upstream's golden files, as they are.

use std::path::PathBuf;

use serde_json::Value;

/// In the order in which the policy is made.
const FILES: &[&str] = &[
    "cluster-roles",
    "controller-roles",
    "cluster-role-bindings",
    "controller-role-bindings",
    "namespace-roles",
    "namespace-role-bindings",
];

/// Every object of the bootstrap policy; none (and a word about it) where the fixtures are not at hand.
pub(crate) fn policy() -> Option<Vec<Value>> {
    let Some(fixtures) = std::env::var_os("KYANITE_FIXTURES").map(PathBuf::from) else {
        eprintln!("SKIPPED: KYANITE_FIXTURES not set; no golden policy to compare with");
        return None;
    };
    let objects = FILES.iter().flat_map(|file| {
        let path = fixtures.join(format!("kubernetes-1.36/rbac/{file}.yaml"));
        let list: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        list["items"].as_array().unwrap().clone()
    });
    Some(objects.collect())
}
