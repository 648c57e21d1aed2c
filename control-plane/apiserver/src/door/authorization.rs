//! May they: the authorizers in the order they are asked, and what feeds them.

use std::sync::Arc;

use access::node::{self, NodeAuthorizer};
use access::rbac::{self, Rbac};
use access::{Attributes, Decision};
use kinds::resources::Resource;

use crate::reading::cache::{Follower, following};
use crate::settings::AuthorizationMode;
use crate::status::{ApiError, Result};

/// Who may do everything, whatever the authorizers say (upstream's privileged group).
const SUPERUSERS: &str = "system:masters";

/// The server's authorizer.
#[derive(Debug, Clone)]
pub(crate) struct Authorizer {
    modes: Vec<AuthorizationMode>,
    /// Roles and bindings, as of the last change anybody was told of.
    pub(crate) rbac: Arc<Rbac>,
    nodes: Arc<NodeAuthorizer>,
}

impl Authorizer {
    /// An authorizer that asks these in turn.
    pub(crate) fn new(modes: &[AuthorizationMode]) -> Authorizer {
        Authorizer {
            modes: modes.to_vec(),
            rbac: Arc::default(),
            nodes: Arc::default(),
        }
    }

    /// Whether an authorizer is asked at all.
    pub(crate) fn has(&self, mode: AuthorizationMode) -> bool {
        self.modes.contains(&mode)
    }

    /// Decides on one question: the first who allows or denies; nobody's opinion is a no.
    pub(crate) fn decide(&self, asked: &Attributes<'_>) -> Decision {
        if asked.user.is_in(SUPERUSERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons = Vec::new();
        for mode in &self.modes {
            match self.ask(*mode, asked) {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    /// As [`Authorizer::decide`], and 403 for everything but a yes.
    pub(crate) fn check(&self, asked: &Attributes<'_>) -> Result<()> {
        Authorizer::allowed(self.decide(asked), asked)
    }

    /// 403 for everything but a yes.
    pub(crate) fn allowed(decision: Decision, asked: &Attributes<'_>) -> Result<()> {
        match decision {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => {
                Err(ApiError::not_allowed(asked, &reason))
            }
        }
    }

    fn ask(&self, mode: AuthorizationMode, asked: &Attributes<'_>) -> Decision {
        match mode {
            AuthorizationMode::Node => self.nodes.authorize(asked),
            AuthorizationMode::Rbac => self.rbac.authorize(asked),
            AuthorizationMode::AlwaysAllow => Decision::Allow(String::new()),
            AuthorizationMode::AlwaysDeny => Decision::NoOpinion("Everything is forbidden.".into()),
        }
    }

    /// Who keeps up with a kind's objects on behalf of the authorizers.
    pub(crate) fn follower(&self, resource: &Resource) -> Option<Arc<dyn Follower>> {
        let (group, kind) = (resource.gv.group, resource.kind);
        if let Some((_, _, kind)) = ROLES.iter().find(|row| (row.0, row.1) == (group, kind)) {
            let (rbac, kind) = (Arc::clone(&self.rbac), *kind);
            return Some(following(move |ns, name, object| {
                rbac.apply(kind, ns, name, object)
            }));
        }
        let (_, _, kind) = TIES.iter().find(|row| (row.0, row.1) == (group, kind))?;
        let (nodes, kind) = (Arc::clone(&self.nodes), *kind);
        self.has(AuthorizationMode::Node)
            .then(|| following(move |ns, name, object| nodes.apply(kind, ns, name, object)))
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// What RBAC decides by.
const ROLES: [(&str, &str, rbac::Kind); 4] = [
    (RBAC, "Role", rbac::Kind::Role),
    (RBAC, "ClusterRole", rbac::Kind::ClusterRole),
    (RBAC, "RoleBinding", rbac::Kind::RoleBinding),
    (RBAC, "ClusterRoleBinding", rbac::Kind::ClusterRoleBinding),
];

/// What ties objects to nodes.
const TIES: [(&str, &str, node::Kind); 5] = [
    ("", "Pod", node::Kind::Pod),
    ("", "PersistentVolume", node::Kind::PersistentVolume),
    (
        "storage.k8s.io",
        "VolumeAttachment",
        node::Kind::VolumeAttachment,
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        node::Kind::ResourceSlice,
    ),
    (
        "certificates.k8s.io",
        "PodCertificateRequest",
        node::Kind::PodCertificateRequest,
    ),
];
