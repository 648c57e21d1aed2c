//! The node authorizer: a kubelet reaches what its pods need, and nothing else.
//!
//! Some resources are tied to the node that asks, by name or by what the pods on it refer to; each has a check
//! below. All others follow the rules of the cluster role `system:node`, which is bound to nobody.
//! Creates cannot be tied here (the object is not known yet): admission looks at those.

mod graph;
mod references;

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use kube_kit::selector::{FieldSelector, quoted};
use serde_json::Value;

use crate::rbac::Rule;
use crate::{Attributes, Decision, ResourceTarget, Target, User, policy};
use graph::Graph;
use references::{Thing, ThingKind};

/// The kinds of objects that tie others to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ties everything it refers to.
    Pod,
    /// Ties itself and its secrets to the pods of its claim.
    PersistentVolume,
    /// Ties itself.
    VolumeAttachment,
    /// Ties itself.
    ResourceSlice,
    /// Ties itself.
    PodCertificateRequest,
}

/// The node's name if the user is a node (upstream's node identifier): empty for a node without one.
pub fn name_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix("system:node:")?;
    user.is_in("system:nodes").then_some(name)
}

/// Decides about requests of nodes.
#[derive(Debug)]
pub struct NodeAuthorizer {
    graph: RwLock<Graph>,
    rules: Vec<Rule>,
    pod_certificates: bool,
}

impl Default for NodeAuthorizer {
    fn default() -> NodeAuthorizer {
        NodeAuthorizer {
            graph: RwLock::default(),
            rules: policy::rules_of("system:node").expect("the bootstrap policy has system:node"),
            pod_certificates: false,
        }
    }
}

/// Why a check does not allow a request.
type Refusal = Cow<'static, str>;

/// A node's request for a resource.
struct Request<'a> {
    node: &'a str,
    verb: &'a str,
    target: &'a ResourceTarget<'a>,
}

impl NodeAuthorizer {
    /// With the feature PodCertificateRequest, which 1.36 leaves off.
    pub fn with_pod_certificates(self) -> NodeAuthorizer {
        NodeAuthorizer {
            pod_certificates: true,
            ..self
        }
    }

    /// Takes in an object as it is now, or that it is gone.
    pub fn apply(&self, kind: Kind, namespace: &str, name: &str, object: Option<&Value>) {
        let change = graph::Change::of(kind, namespace, name, object);
        let mut graph = self.graph.write().unwrap_or_else(PoisonError::into_inner);
        graph.apply(change);
    }

    /// Decides. It only ever says yes or nothing, and nothing about users who are not nodes.
    pub fn authorize(&self, asked: &Attributes) -> Decision {
        let Some(node) = name_of(asked.user) else {
            return Decision::NoOpinion(String::new());
        };
        if node.is_empty() {
            let user = quoted(&asked.user.name);
            return Decision::NoOpinion(format!("unknown node for user {user}"));
        }
        let checked = match &asked.target {
            Target::Resource(target) => self.check(&Request {
                node,
                verb: asked.verb,
                target,
            }),
            Target::Path(_) => None,
        };
        match checked.unwrap_or_else(|| self.check_rules(asked)) {
            Ok(()) => Decision::Allow(String::new()),
            Err(refusal) => Decision::NoOpinion(refusal.into_owned()),
        }
    }

    fn check_rules(&self, asked: &Attributes) -> Result<(), Refusal> {
        match self.rules.iter().any(|rule| rule.allows(asked)) {
            true => Ok(()),
            false => refuse(""),
        }
    }

    /// The check of a resource that is tied to nodes; none for other resources.
    fn check(&self, request: &Request) -> Option<Result<(), Refusal>> {
        let target = request.target;
        Some(match (target.group, target.resource) {
            ("", "secrets") => self.check_read(request, ThingKind::Secret),
            ("", "configmaps") => self.check_read(request, ThingKind::ConfigMap),
            ("", "persistentvolumeclaims") => self.check_claim(request),
            ("", "persistentvolumes") => self.check_get(request, ThingKind::Volume),
            ("resource.k8s.io", "resourceclaims") => {
                self.check_get(request, ThingKind::ResourceClaim)
            }
            ("storage.k8s.io", "volumeattachments") => {
                self.check_get(request, ThingKind::VolumeAttachment)
            }
            ("", "serviceaccounts") => self.check_service_account(request),
            ("coordination.k8s.io", "leases") => check_lease(request),
            ("storage.k8s.io", "csinodes") => check_csi_node(request),
            ("resource.k8s.io", "resourceslices") => self.check_slice(request),
            ("", "nodes") => check_node(request),
            ("", "pods") => self.check_pod(request),
            ("certificates.k8s.io", "podcertificaterequests") => {
                self.check_pod_certificate(request)
            }
            _ => return None,
        })
    }

    /// Whether the named object is tied to the node.
    fn check_tied(&self, request: &Request, kind: ThingKind) -> Result<(), Refusal> {
        let target = request.target;
        if target.name.is_empty() {
            return refuse("No Object name found");
        }
        let thing = Thing::new(kind, target.namespace, target.name);
        let graph = self.graph.read().unwrap_or_else(PoisonError::into_inner);
        if graph.ties(&thing, request.node) {
            return Ok(());
        }
        Err(Cow::Owned(format!(
            "no relationship found between node '{}' and this object",
            request.node
        )))
    }

    fn check_get(&self, request: &Request, kind: ThingKind) -> Result<(), Refusal> {
        match (request.verb, request.target.subresource) {
            ("get", "") => self.check_tied(request, kind),
            ("get", _) => refuse("cannot get subresource"),
            _ => refuse("can only get individual resources of this type"),
        }
    }

    fn check_read(&self, request: &Request, kind: ThingKind) -> Result<(), Refusal> {
        if !["get", "list", "watch"].contains(&request.verb) {
            return refuse("can only read resources of this type");
        }
        if !request.target.subresource.is_empty() {
            return refuse("cannot read subresource");
        }
        if request.target.namespace.is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.check_tied(request, kind)
    }

    fn check_claim(&self, request: &Request) -> Result<(), Refusal> {
        match (request.target.subresource, request.verb) {
            ("status", "update" | "patch") => self.check_tied(request, ThingKind::VolumeClaim),
            ("status", _) => refuse("can only get/update/patch this type"),
            _ => self.check_get(request, ThingKind::VolumeClaim),
        }
    }

    fn check_service_account(&self, request: &Request) -> Result<(), Refusal> {
        let target = request.target;
        if request.verb == "get" && target.subresource.is_empty() {
            return self.check_read(request, ThingKind::ServiceAccount);
        }
        if request.verb != "create" || target.name.is_empty() {
            return refuse("can only create tokens for individual service accounts");
        }
        if target.subresource != "token" {
            return refuse("can only create token subresource of serviceaccount");
        }
        self.check_tied(request, ThingKind::ServiceAccount)
    }

    fn check_slice(&self, request: &Request) -> Result<(), Refusal> {
        if !request.target.subresource.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match request.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.check_tied(request, ThingKind::Slice),
            "watch" | "list" | "deletecollection" if selects_own(request) => Ok(()),
            "watch" | "list" | "deletecollection" => refuse(
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn check_pod(&self, request: &Request) -> Result<(), Refusal> {
        match (request.target.subresource, request.verb) {
            ("", "get") => self.check_get(request, ThingKind::Pod),
            ("", "list" | "watch") if selects_own(request) => Ok(()),
            ("", "list" | "watch") if request.target.name.is_empty() => {
                refuse("can only list/watch pods with spec.nodeName field selector")
            }
            ("", "list" | "watch") => self.check_tied(request, ThingKind::Pod),
            ("", "create" | "delete") => Ok(()),
            ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => refuse(""),
        }
    }

    fn check_pod_certificate(&self, request: &Request) -> Result<(), Refusal> {
        if !self.pod_certificates {
            return refuse("");
        }
        if !request.target.subresource.is_empty() {
            return refuse("nodes may not access the status subresource of PodCertificateRequests");
        }
        match request.verb {
            "create" => Ok(()),
            "get" => self.check_tied(request, ThingKind::PodCertificateRequest),
            "list" | "watch" if selects_own(request) => Ok(()),
            "list" | "watch" => {
                refuse("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Err(format!("nodes may not {verb} podcertificaterequests").into()),
        }
    }
}

fn refuse(reason: &'static str) -> Result<(), Refusal> {
    Err(Cow::Borrowed(reason))
}

fn check_lease(request: &Request) -> Result<(), Refusal> {
    if !writes_one(request.verb) {
        return refuse("can only get, create, update, patch, or delete a node lease");
    }
    if request.target.namespace != "kube-node-lease" {
        return refuse("can only access leases in the \"kube-node-lease\" system namespace");
    }
    if request.verb != "create" && request.target.name != request.node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn check_csi_node(request: &Request) -> Result<(), Refusal> {
    if !writes_one(request.verb) {
        return refuse("can only get, create, update, patch, or delete a CSINode");
    }
    if !request.target.subresource.is_empty() {
        return refuse("cannot authorize CSINode subresources");
    }
    if request.verb != "create" && request.target.name != request.node {
        return refuse("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

fn writes_one(verb: &str) -> bool {
    ["get", "create", "update", "patch", "delete"].contains(&verb)
}

fn check_node(request: &Request) -> Result<(), Refusal> {
    let node = request.node;
    match (
        request.target.subresource,
        request.verb,
        request.target.name,
    ) {
        ("", "create" | "update" | "patch", _) | ("status", "update" | "patch", _) => Ok(()),
        ("", "get" | "list" | "watch", name) if name == node => Ok(()),
        ("", "get" | "list" | "watch", "") => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object").into())
        }
        ("", "get" | "list" | "watch", name) => {
            Err(format!("node '{node}' cannot read '{name}', only its own Node object").into())
        }
        _ => refuse(""),
    }
}

/// Whether the field selector restricts the request to objects of the node that asks.
fn selects_own(request: &Request) -> bool {
    let selector = FieldSelector::parse(request.target.field_selector);
    selector.is_ok_and(|selector| {
        let mut terms = selector.terms().iter();
        terms.any(|t| t.field == "spec.nodeName" && !t.negated && t.value == request.node)
    })
}

#[cfg(test)]
mod tests;
