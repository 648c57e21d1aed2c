//! NodeRestriction: a node's credential reaches that node's things and no others.
//!
//! What a node may ask for at all is the Node authorizer's; here it is decided what may stand in the
//! objects that a node writes.

mod certificates;
mod nodes;
mod pods;
mod tokens;

use access::User;
use futures::FutureExt as _;
use serde_json::Value;

use super::shape::{meta, text};
use super::{Attributes, Operation, Plugin};
use crate::api::Api;
use crate::status::Result;

/// The row of this plugin. Upstream decides in the first phase too: what counts is what the node sent.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "NodeRestriction",
    handles,
    mutate: Some(|api, attributes, object| admit(api, attributes, object).boxed()),
    validate: None,
};

const NODE_USER: &str = "system:node:";
const NODE_GROUP: &str = "system:nodes";
const NODE_LEASES: &str = "kube-node-lease";

/// A refusal, in upstream's words.
type Refusal = String;

/// A write by a node.
struct Request<'a> {
    /// The node that asks.
    node: &'a str,
    attributes: &'a Attributes<'a>,
    /// What it sent; null for a delete.
    object: &'a Value,
}

impl Request<'_> {
    /// The object as it is; null for a create.
    fn old(&self) -> &Value {
        self.attributes.old.unwrap_or(&Value::Null)
    }
}

fn handles(attributes: &Attributes<'_>) -> bool {
    attributes.operation != Operation::Connect && node_of(attributes.user()).is_some()
}

/// The node a user speaks for: both the name and the group must say so.
fn node_of(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(NODE_USER)?;
    user.is_in(NODE_GROUP).then_some(node)
}

async fn admit(api: &Api, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
    let object = &*object;
    let Some(node) = node_of(attributes.user()) else {
        return Ok(());
    };
    if node.is_empty() {
        let user = &attributes.user().name;
        let why = format!("could not determine node from user {user:?}");
        return Err(attributes.forbid(Some(object), &why));
    }
    let request = Request {
        node,
        attributes,
        object,
    };
    let resource = attributes.resource();
    let decision = match (resource.gv.group, resource.plural) {
        ("", "pods") => return pods::admit(api, &request).await,
        ("", "serviceaccounts") => return tokens::admit(api, &request).await,
        ("", "nodes") => nodes::admit(&request),
        ("", "persistentvolumeclaims") => claim(&request),
        ("coordination.k8s.io", "leases") => lease(&request),
        ("storage.k8s.io", "csinodes") => csi_node(&request),
        ("resource.k8s.io", "resourceslices") => resource_slice(&request),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::admit(&request),
        _ => Ok(()),
    };
    decision.map_err(|why| attributes.forbid(Some(object), &why))
}

// A create has no name of its own yet, so the object's counts.
fn is_named_as_node(request: &Request<'_>) -> bool {
    let name = match request.attributes.operation {
        Operation::Create => meta(request.object, "name"),
        _ => request.attributes.name,
    };
    name == request.node
}

fn lease(request: &Request<'_>) -> Result<(), Refusal> {
    if request.attributes.namespace() != NODE_LEASES {
        return Err(format!(
            "can only access leases in the {NODE_LEASES:?} system namespace"
        ));
    }
    match is_named_as_node(request) {
        true => Ok(()),
        false => Err("can only access node lease with the same name as the requesting node".into()),
    }
}

fn csi_node(request: &Request<'_>) -> Result<(), Refusal> {
    match is_named_as_node(request) {
        true => Ok(()),
        false => Err("can only access CSINode with the same name as the requesting node".into()),
    }
}

// The Node authorizer sees the other verbs; it cannot see into a new object or a collection.
fn resource_slice(request: &Request<'_>) -> Result<(), Refusal> {
    let (slice, verb) = match request.attributes.operation {
        Operation::Create => (request.object, "create"),
        Operation::Delete => (request.old(), "delete"),
        Operation::Update | Operation::Connect => return Ok(()),
    };
    match text(&slice["spec"]["nodeName"]) == request.node {
        true => Ok(()),
        false => Err(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )),
    }
}

/// What a node may change in the status of a claim, when it grows the volume.
const CLAIM_STATUS: [&str; 4] = [
    "capacity",
    "conditions",
    "allocatedResourceStatuses",
    "allocatedResources",
];

fn claim(request: &Request<'_>) -> Result<(), Refusal> {
    let attributes = request.attributes;
    if attributes.subresource != "status" {
        return Err("may only update PVC status".into());
    }
    if attributes.operation != Operation::Update {
        return Err(format!(
            "unexpected operation {:?}",
            attributes.operation.as_str()
        ));
    }
    let (old, new) = (fixed_part(request.old()), fixed_part(request.object));
    if old == new {
        return Ok(());
    }
    Err(format!(
        "node {:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
        request.node,
        changed_fields(&old, &new).join(", ")
    ))
}

fn fixed_part(claim: &Value) -> Value {
    let mut claim = claim.clone();
    if let Some(metadata) = claim["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    let emptied = claim
        .get_mut("status")
        .and_then(Value::as_object_mut)
        .is_some_and(|status| {
            CLAIM_STATUS
                .iter()
                .for_each(|field| drop(status.remove(*field)));
            status.is_empty()
        });
    if emptied && let Some(fields) = claim.as_object_mut() {
        fields.remove("status");
    }
    claim
}

fn changed_fields(old: &Value, new: &Value) -> Vec<String> {
    let mut changed = Vec::new();
    for part in ["metadata", "spec", "status"] {
        let keys = [old, new].into_iter().flat_map(|o| {
            o[part]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key)
        });
        for key in keys {
            let path = format!("{part}.{key}");
            if old[part].get(key) != new[part].get(key) && !changed.contains(&path) {
                changed.push(path);
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests;
