//! What a pod is tied to besides nodes and pods: claims of storage, and the services and owners whose pods are spread by
//! default.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::ask::{Ask, Spread, default_spread};
use crate::profile::{Plugin, Profile};
use crate::selector::Selector;
use crate::symbols::{Sym, Symbols};

/// The ties of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ties {
    /// Names of its claims.
    pub claims: Box<[String]>,
    /// Kind and name of its controller.
    pub owner: Option<(String, String)>,
}

impl Ties {
    /// What this pod is tied to.
    pub fn of(pod: &api::Pod) -> Ties {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let volumes = pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten());
        let claims = volumes.filter_map(|volume| match &volume.persistent_volume_claim {
            Some(claim) => Some(claim.claim_name.clone()),
            None => volume
                .ephemeral
                .as_ref()
                .map(|_| format!("{name}-{}", volume.name)),
        });
        let owners = pod.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        Ties {
            claims: claims.collect(),
            owner: controllers
                .next()
                .map(|owner| (owner.kind.clone(), owner.name.clone())),
        }
    }
}

/// Kinds whose pods are spread by default, by the selectors they have.
pub const OWNERS: [&str; 3] = ["ReplicaSet", "StatefulSet", "ReplicationController"];

/// Kind, namespace and name of an owner.
type OwnerKey = (&'static str, String, String);

/// Everything that pods are tied to.
#[derive(Debug, Default)]
pub struct Known {
    /// Whether a claim is bound, by `namespace/name`.
    claims: HashMap<String, bool>,
    services: HashMap<String, (Sym, Selector)>,
    owners: HashMap<OwnerKey, Selector>,
}

impl Known {
    /// A claim is bound or not, or gone.
    pub fn set_claim(&mut self, key: String, is_bound: Option<bool>) {
        match is_bound {
            Some(is_bound) => self.claims.insert(key, is_bound),
            None => self.claims.remove(&key),
        };
    }

    /// A service selects these pods, or is gone.
    pub fn set_service(
        &mut self,
        symbols: &mut Symbols,
        namespace: &str,
        name: &str,
        selects: Option<&LabelSelector>,
    ) {
        let key = format!("{namespace}/{name}");
        self.services.remove(&key);
        let Some(selector) = selects else { return };
        // A service without a selector has its endpoints made by somebody else.
        if selector.match_labels.iter().flatten().next().is_some() {
            let known = Selector::of(symbols, Some(selector), &[]);
            self.services.insert(key, (symbols.of(namespace), known));
        }
    }

    /// An owner selects these pods, or is gone.
    pub fn set_owner(
        &mut self,
        symbols: &mut Symbols,
        kind: &'static str,
        (namespace, name): (&str, &str),
        selects: Option<&LabelSelector>,
    ) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        match selects {
            Some(selector) => {
                let known = Selector::of(symbols, Some(selector), &[]);
                self.owners.insert(key, known);
            }
            None => drop(self.owners.remove(&key)),
        }
    }

    /// Why a pod's claims hold it back, in upstream's words (`VolumeBinding`'s `PreFilter`).
    pub fn held_back(&self, namespace: &str, ties: &Ties) -> Option<String> {
        for claim in &ties.claims {
            match self.claims.get(&format!("{namespace}/{claim}")) {
                Some(true) => {}
                Some(false) => {
                    return Some("pod has unbound immediate PersistentVolumeClaims".into());
                }
                None => return Some(format!("persistentvolumeclaim \"{claim}\" not found")),
            }
        }
        None
    }

    /// How a pod without constraints of its own is spread: like the others of its services and its owner.
    pub fn default_spread(
        &self,
        symbols: &mut Symbols,
        profile: &Profile,
        namespace: &str,
        ask: &Ask,
        ties: &Ties,
    ) -> Vec<Spread> {
        if !ask.spread.is_empty() || profile.weight(Plugin::PodTopologySpread) == 0 {
            return Vec::new();
        }
        let Some(selector) = self.selector(symbols, namespace, ask, ties) else {
            return Vec::new();
        };
        let system = system_constraints();
        let constraints = profile.default_spread.as_ref().unwrap_or(&system);
        let is_system = profile.default_spread.is_none();
        constraints
            .iter()
            .map(|constraint| Spread {
                is_system_default: is_system,
                ..default_spread(symbols, constraint, &selector)
            })
            .collect()
    }

    // Upstream's `DefaultSelector`: every service that selects the pod, and its owner, together.
    fn selector(
        &self,
        symbols: &Symbols,
        namespace: &str,
        ask: &Ask,
        ties: &Ties,
    ) -> Option<Selector> {
        let services = self.services.values();
        let services = services.filter(|(of, selector)| {
            *of == ask.namespace && selector.matches(symbols, &ask.labels)
        });
        let services = services.map(|(_, selector)| selector.clone());
        let owner = ties.owner.as_ref().and_then(|(kind, name)| {
            let kind = OWNERS.iter().find(|known| *known == kind)?;
            let key = (*kind, namespace.to_owned(), name.clone());
            self.owners.get(&key).cloned()
        });
        services.chain(owner).reduce(Selector::and)
    }
}

/// The defaults of the system: over nodes, and over zones (upstream's `systemDefaultConstraints`).
fn system_constraints() -> Vec<api::TopologySpreadConstraint> {
    [
        ("kubernetes.io/hostname", 3),
        ("topology.kubernetes.io/zone", 5),
    ]
    .into_iter()
    .map(|(key, max_skew)| api::TopologySpreadConstraint {
        topology_key: key.into(),
        max_skew,
        when_unsatisfiable: "ScheduleAnyway".into(),
        ..api::TopologySpreadConstraint::default()
    })
    .collect()
}
