//! A node and pods.

use serde_json::Value;

use super::Request;
use crate::api::Api;
use crate::status::{ApiError, Result};
use crate::writing::admission::shape::{is_mirror, items, meta, text};
use crate::writing::admission::{Operation, lookup, pod_references};

pub(super) async fn admit(api: &Api, request: &Request<'_>) -> Result<()> {
    let attributes = request.attributes;
    let decision = match (attributes.subresource, attributes.operation) {
        ("", Operation::Create) => {
            let nodes = lookup::resource("", "v1", "nodes");
            check_mirror(request).map_err(|why| attributes.forbid(Some(request.object), &why))?;
            let node = lookup::get(api, nodes, "", request.node).await?;
            let node = node.ok_or_else(|| ApiError::not_listed(nodes, request.node))?;
            check_owner_uid(request, &node).and_then(|()| check_references(request))
        }
        ("eviction", Operation::Create) => {
            let pods = attributes.resource();
            let pod = lookup::get(api, pods, attributes.namespace(), attributes.name).await?;
            let pod = pod.ok_or_else(|| ApiError::not_listed(pods, attributes.name))?;
            check_eviction(request, &pod)
        }
        _ => without_lookup(request),
    };
    decision.map_err(|why| attributes.forbid(Some(request.object), &why))
}

/// What can be decided from the request alone.
pub(super) fn without_lookup(request: &Request<'_>) -> Result<(), String> {
    let node = request.node;
    let operation = request.attributes.operation;
    match (request.attributes.subresource, operation) {
        ("", Operation::Delete) if is_on(request.old(), node) => Ok(()),
        ("", Operation::Delete) => Err(format!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        )),
        ("", _) => Err(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            operation.as_str()
        )),
        ("status", Operation::Update) => check_status(request),
        ("status", _) => Err(format!("unexpected operation {:?}", operation.as_str())),
        ("eviction", _) => Err(format!("unexpected operation {}", operation.as_str())),
        (other, _) => Err(format!(
            "unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"
        )),
    }
}

fn is_on(pod: &Value, node: &str) -> bool {
    text(&pod["spec"]["nodeName"]) == node
}

/// A node only creates the pictures of pods it runs anyway, and owns them.
pub(super) fn check_mirror(request: &Request<'_>) -> Result<(), String> {
    let (node, pod) = (request.node, request.object);
    if !is_mirror(pod) {
        return Err(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
        ));
    }
    if !is_on(pod, node) {
        return Err(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let own = format!("node {node:?} can only create pods with an owner reference set to itself");
    let owner = match items(&pod["metadata"]["ownerReferences"]) {
        [] => return Err(own),
        [owner] => owner,
        _ => {
            return Err(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return Err(own);
    }
    if owner["controller"] != true {
        return Err(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return Err(format!(
            "node {node:?} must not set blockOwnerDeletion on an owner reference"
        ));
    }
    Ok(())
}

pub(super) fn check_owner_uid(request: &Request<'_>, node: &Value) -> Result<(), String> {
    let owner = &request.object["metadata"]["ownerReferences"][0];
    let (said, real) = (text(&owner["uid"]), meta(node, "uid"));
    match said == real {
        true => Ok(()),
        false => Err(format!(
            "node {} UID mismatch: expected {said} got {real}",
            request.node
        )),
    }
}

pub(super) fn check_references(request: &Request<'_>) -> Result<(), String> {
    match pod_references::api_reference(request.object) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => Err(format!(
            "node {:?} can not create pods that reference {what}",
            request.node
        )),
        Err(why) => Err(format!(
            "error checking mirror pod for API references: {why}"
        )),
    }
}

pub(super) fn check_eviction(request: &Request<'_>, pod: &Value) -> Result<(), String> {
    match is_on(pod, request.node) {
        true => Ok(()),
        false => Err(format!(
            "node {} can only evict pods with spec.nodeName set to itself",
            request.node
        )),
    }
}

fn check_status(request: &Request<'_>) -> Result<(), String> {
    let (node, old, new) = (request.node, request.old(), request.object);
    if !is_on(old, node) {
        return Err(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        ));
    }
    if labels(old) != labels(new) {
        return Err(format!(
            "node {node:?} cannot update labels through pod status"
        ));
    }
    let claims = |pod: &Value| items(&pod["status"]["resourceClaimStatuses"]).to_vec();
    if claims(old) != claims(new) {
        return Err(format!(
            "node {node:?} cannot update resource claim statues"
        ));
    }
    let extended = |pod: &Value| pod["status"]["extendedResourceClaimStatus"].clone();
    if extended(old) != extended(new) {
        return Err(format!(
            "node {node:?} cannot update extended resource claim status"
        ));
    }
    Ok(())
}

fn labels(pod: &Value) -> Vec<(&String, &Value)> {
    let labels = pod["metadata"]["labels"].as_object();
    let mut labels: Vec<_> = labels.into_iter().flatten().collect();
    labels.sort_unstable_by_key(|(key, _)| *key);
    labels
}
