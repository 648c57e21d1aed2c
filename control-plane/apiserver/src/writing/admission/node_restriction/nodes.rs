//! A node and its own Node object.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Refusal, Request};
use crate::writing::admission::Operation;
use crate::writing::admission::shape::{has, items, text};

/// Labels in Kubernetes' own domains that a kubelet sets (`kubelet/pkg/apis/well_known_labels.go`).
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Domains in which a kubelet may set any label.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Kubernetes' own domains.
const KUBERNETES_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Labels that isolate nodes from each other, which is why no node sets them.
const RESTRICTION_DOMAIN: &str = "node-restriction.kubernetes.io";

pub(super) fn admit(request: &Request<'_>) -> Result<(), Refusal> {
    let (node, asked) = (request.node, request.attributes.name);
    if asked != node {
        return Err(format!(
            "node {node:?} is not allowed to modify node {asked:?}"
        ));
    }
    match request.attributes.operation {
        Operation::Create => created(node, request.object),
        Operation::Update => changed(node, request.object, request.old()),
        Operation::Delete | Operation::Connect => Ok(()),
    }
}

fn created(node: &str, object: &Value) -> Result<(), Refusal> {
    if has(&object["spec"], "configSource") {
        return Err(format!(
            "node {node:?} is not allowed to create pods with a non-nil configSource"
        ));
    }
    let forbidden = forbidden_labels(object, &Value::Null);
    match forbidden.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "node {node:?} is not allowed to set the following labels: {forbidden}"
        )),
    }
}

fn changed(node: &str, new: &Value, old: &Value) -> Result<(), Refusal> {
    // Old kubelets drop a field they do not know; only a new source is an escalation.
    let source = &new["spec"]["configSource"];
    if !source.is_null() && *source != old["spec"]["configSource"] {
        return Err(format!(
            "node {node:?} is not allowed to update configSource to a new non-nil configSource"
        ));
    }
    if items(&new["spec"]["taints"]) != items(&old["spec"]["taints"]) {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    let owners = |object: &Value| items(&object["metadata"]["ownerReferences"]).to_vec();
    if owners(new) != owners(old) {
        return Err(format!(
            "node {node:?} is not allowed to modify ownerReferences"
        ));
    }
    let forbidden = forbidden_labels(new, old);
    match forbidden.is_empty() {
        true => Ok(()),
        false => Err(format!("is not allowed to modify labels: {forbidden}")),
    }
}

// Labels steer workloads, so a node sets few of those that mean something.
fn forbidden_labels(new: &Value, old: &Value) -> String {
    let (new, old) = (&new["metadata"]["labels"], &old["metadata"]["labels"]);
    let keys = [new, old]
        .into_iter()
        .flat_map(|labels| labels.as_object().into_iter().flatten().map(|(key, _)| key));
    let forbidden: BTreeSet<&str> = keys
        .filter(|key| new.get(key) != old.get(key) || text(&new[*key]) != text(&old[*key]))
        .map(String::as_str)
        .filter(|key| !may_set(key))
        .collect();
    forbidden.into_iter().collect::<Vec<_>>().join(", ")
}

fn may_set(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |parents: &[&str]| parents.iter().any(|parent| is_within(domain, parent));
    if is_within(domain, RESTRICTION_DOMAIN) {
        return false;
    }
    !within(&KUBERNETES_DOMAINS) || KUBELET_LABELS.contains(&label) || within(&KUBELET_DOMAINS)
}

fn is_within(domain: &str, parent: &str) -> bool {
    match domain.strip_suffix(parent) {
        Some(rest) => rest.is_empty() || rest.ends_with('.'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sets_only_labels_that_steer_nothing() {
        for (label, may) in [
            ("team", true),
            ("example.com/team", true),
            ("kubernetes.io/hostname", true),
            ("topology.kubernetes.io/zone", true),
            ("beta.kubernetes.io/arch", true),
            ("kubelet.kubernetes.io/anything", true),
            ("node.kubernetes.io/anything", true),
            ("own.node.kubernetes.io/anything", true),
            ("kubernetes.io/role", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("kubernetes.azure.com/mode", true),
            ("k8s.io/anything", false),
            ("own.k8s.io/anything", false),
            ("notk8s.io/anything", true),
            ("node-restriction.kubernetes.io/team", false),
            ("own.node-restriction.kubernetes.io/team", false),
        ] {
            assert_eq!(may_set(label), may, "{label}");
        }
    }
}
