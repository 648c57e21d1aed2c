//! The bootstrap policy against upstream's golden files.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::PathBuf;

use serde_json::Value;

const FILES: &[&str] = &[
    "cluster-roles",
    "controller-roles",
    "cluster-role-bindings",
    "controller-role-bindings",
    "namespace-roles",
    "namespace-role-bindings",
];

#[test]
fn the_policy_equals_the_golden_files() {
    let Some(fixtures) = std::env::var_os("KYANITE_FIXTURES").map(PathBuf::from) else {
        eprintln!("SKIPPED: KYANITE_FIXTURES not set; no golden policy to compare with");
        return;
    };
    let mut golden: Vec<Value> = Vec::new();
    for file in FILES {
        let path = fixtures.join(format!("kubernetes-1.36/rbac/{file}.yaml"));
        let list: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        golden.extend(list["items"].as_array().unwrap().iter().cloned());
    }
    let ours = access::policy::objects();
    for (ours, golden) in ours.iter().zip(&golden) {
        assert_eq!(ours, golden);
    }
    assert_eq!(ours.len(), golden.len());
}
