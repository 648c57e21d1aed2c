//! May they: the authorizers in the order they are asked, and what feeds them.

mod meters;
mod webhook;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::chain::{self, Stage};
use access::node::{self, NodeAuthorizer};
use access::rbac::{self, Rbac};
use access::{Attributes, Decision};
use arc_swap::ArcSwap;
use kinds::resources::Resource;

use crate::connection::reload::Reload;
use crate::outward::egress::Egress;
use crate::reading::cache::{Follower, following};
use crate::settings::{Authorization, AuthorizationMode};
use crate::status::{ApiError, Result};
pub(crate) use meters::Meters;
use webhook::Webhook;

/// Who may do everything, whatever the authorizers say (upstream's privileged group).
const SUPERUSERS: &str = "system:masters";

/// The server's authorizer.
#[derive(Debug, Clone)]
pub(crate) struct Authorizer {
    chain: Arc<ArcSwap<Chain>>,
    /// Where the chain is read again, and how its webhooks are reached.
    file: Option<(PathBuf, Arc<Egress>)>,
    /// Roles and bindings, as of the last change anybody was told of.
    pub(crate) rbac: Arc<Rbac>,
    nodes: Arc<NodeAuthorizer>,
    /// What is counted.
    pub(crate) meters: Meters,
}

/// Who is asked, in order.
#[derive(Debug)]
struct Chain {
    stages: Vec<Asked>,
    waits: bool,
}

#[derive(Debug, Clone)]
enum Asked {
    Mode(AuthorizationMode),
    Webhook(Arc<Webhook>),
}

impl Chain {
    fn new(stages: Vec<Asked>) -> Chain {
        let waits = stages
            .iter()
            .any(|stage| matches!(stage, Asked::Webhook(_)));
        Chain { stages, waits }
    }

    fn of_modes(modes: &[AuthorizationMode]) -> Chain {
        Chain::new(modes.iter().copied().map(Asked::Mode).collect())
    }
}

/// What was decided, and what went wrong on the way.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) decision: Decision,
    pub(crate) wrong: Option<String>,
}

impl Authorizer {
    /// An authorizer that asks these in turn.
    #[cfg(test)]
    pub(crate) fn new(modes: &[AuthorizationMode]) -> Authorizer {
        Authorizer::of(Chain::of_modes(modes), None, Meters::default())
    }

    fn of(chain: Chain, file: Option<(PathBuf, Arc<Egress>)>, meters: Meters) -> Authorizer {
        Authorizer {
            chain: Arc::new(ArcSwap::from_pointee(chain)),
            file,
            rbac: Arc::default(),
            nodes: Arc::default(),
            meters,
        }
    }

    /// The authorizer that settings describe, by modes or by a file; says what is wrong with the file.
    pub(crate) fn open(
        settings: &Authorization,
        egress: &Arc<Egress>,
    ) -> std::result::Result<Authorizer, String> {
        let meters = Meters::default();
        Ok(match &settings.configuration_file {
            None => Authorizer::of(Chain::of_modes(&settings.modes), None, meters),
            Some(file) => {
                let chain = read(file, egress, None, &meters)?;
                let file = Some((file.clone(), Arc::clone(egress)));
                Authorizer::of(chain, file, meters)
            }
        })
    }

    /// What is read again when it changes. A file that cannot be used changes nothing.
    pub(crate) fn reload(&self, reload: &Reload) {
        let Some((file, egress)) = self.file.clone() else {
            return;
        };
        let (chain, meters) = (Arc::clone(&self.chain), self.meters.clone());
        reload.add("the chain of authorizers", vec![file.clone()], move || {
            let next = read(&file, &egress, Some(&chain.load()), &meters);
            meters.reloaded(next.is_ok());
            chain.store(Arc::new(next?));
            Ok(())
        });
    }

    /// Whether an authorizer is asked at all.
    pub(crate) fn has(&self, mode: AuthorizationMode) -> bool {
        let chain = self.chain.load();
        let is_mode = |stage: &Asked| matches!(stage, Asked::Mode(known) if *known == mode);
        chain.stages.iter().any(is_mode)
    }

    /// Decides on one question: the first who allows or denies; nobody's opinion is a no. Where webhooks are asked, this
    /// holds up its thread's other work: the door waits with [`Authorizer::answer`] instead.
    pub(crate) fn decide(&self, asked: &Attributes<'_>) -> Decision {
        let chain = self.chain.load();
        match chain.waits {
            false => self.walk(&chain, asked),
            true => tokio::task::block_in_place(|| {
                let answer = self.answer(asked);
                tokio::runtime::Handle::current().block_on(answer).decision
            }),
        }
    }

    fn walk(&self, chain: &Chain, asked: &Attributes<'_>) -> Decision {
        if asked.user.is_in(SUPERUSERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons = Vec::new();
        for stage in &chain.stages {
            let Asked::Mode(mode) = stage else { continue };
            match self.ask(*mode, asked) {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    /// As [`Authorizer::decide`], for those who can wait.
    pub(crate) async fn answer(&self, asked: &Attributes<'_>) -> Answer {
        let chain = self.chain.load_full();
        if !chain.waits || asked.user.is_in(SUPERUSERS) {
            return Answer {
                decision: self.walk(&chain, asked),
                wrong: None,
            };
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for stage in &chain.stages {
            let decision = match stage {
                Asked::Mode(mode) => self.ask(*mode, asked),
                Asked::Webhook(webhook) => {
                    let (decision, error) = webhook.ask(asked).await;
                    errors.extend(error);
                    if !matches!(decision, Decision::NoOpinion(_)) {
                        let name = &webhook.settings.name;
                        self.meters.decided(name, decision.is_allowed());
                    }
                    decision
                }
            };
            match decision {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => {
                    let wrong = (!errors.is_empty()).then(|| errors.join(", "));
                    return Answer { decision, wrong };
                }
            }
        }
        Answer {
            decision: Decision::NoOpinion(reasons.join("\n")),
            wrong: (!errors.is_empty()).then(|| errors.join(", ")),
        }
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
        // A file that is read again may bring it.
        let may_be_asked = self.file.is_some() || self.has(AuthorizationMode::Node);
        may_be_asked.then(|| following(move |ns, name, object| nodes.apply(kind, ns, name, object)))
    }
}

impl Answer {
    /// 403 for everything but a yes; 500 if nobody said yes and somebody could not be asked, as upstream has it.
    pub(crate) fn allowed(self, asked: &Attributes<'_>) -> Result<()> {
        match self.wrong {
            Some(wrong) if !self.decision.is_allowed() => Err(ApiError::internal(wrong)),
            _ => Authorizer::allowed(self.decision, asked),
        }
    }
}

// Webhooks that are the same as before stay, with what they have said.
fn read(
    file: &Path,
    egress: &Arc<Egress>,
    before: Option<&Chain>,
    meters: &Meters,
) -> std::result::Result<Chain, String> {
    let wrong = |why: String| format!("authorization config {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let known = AuthorizationMode::NAMES.map(|(name, _)| name);
    let is_file = |path: &Path| match std::fs::metadata(path) {
        Ok(found) => Ok(found.is_file()),
        Err(error) => Err(error.to_string()),
    };
    let found = chain::parse(&text, &known, &is_file).map_err(wrong)?;
    let mut stages = Vec::new();
    for stage in found {
        stages.push(match stage {
            Stage::BuiltIn(name) => {
                let known = AuthorizationMode::NAMES.iter().find(|(n, _)| *n == name);
                let mode = known.ok_or_else(|| wrong(format!("{name:?} is not known")))?;
                Asked::Mode(mode.1)
            }
            Stage::Webhook(settings) => {
                let same = before.into_iter().flat_map(|chain| &chain.stages);
                let same = { same }.find_map(|stage| match stage {
                    Asked::Webhook(known) if known.settings == settings => Some(Arc::clone(known)),
                    _ => None,
                });
                let name = settings.name.clone();
                let opened = || Webhook::open(settings, Arc::clone(egress), meters.clone());
                let webhook = same.map_or_else(|| opened().map(Arc::new), Ok);
                Asked::Webhook(webhook.map_err(|why| wrong(format!("webhook {name}: {why}")))?)
            }
        });
    }
    Ok(Chain::new(stages))
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
