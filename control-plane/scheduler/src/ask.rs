//! What a pod asks of a node and of its neighbours, without its name: pods of one template ask the same.

mod requests;
mod terms;

use k8s_openapi::api::core::v1 as api;

pub use requests::{Requests, amount, nanos};
pub use terms::{Preference, Spread, Term, WhenUnsatisfiable};

use crate::selector::{NodeTerm, Selector};
use crate::symbols::{Labels, Sym, Symbols};

/// Everything that decides where a pod may run; equal for pods that are equal to every plugin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Its namespace.
    pub namespace: Sym,
    /// Its labels.
    pub labels: Labels,
    /// Which profile places it.
    pub profile: usize,
    /// What it needs of resources.
    pub requests: Requests,
    /// Which taints it bears.
    pub tolerations: Box<[Toleration]>,
    /// Labels that its node must have.
    pub node_selector: Box<[(Sym, Sym)]>,
    /// One of these must match its node.
    pub required_nodes: Option<Box<[NodeTerm]>>,
    /// The only nodes that these terms can mean.
    pub named_nodes: Option<Box<[Sym]>>,
    /// What it would rather have, by weight.
    pub preferred_nodes: Box<[(i32, NodeTerm)]>,
    /// It must run near pods that match all of these.
    pub affinity: Box<[Term]>,
    /// It must not run near pods that match any of these.
    pub anti_affinity: Box<[Term]>,
    /// Near whom it would rather run, or not.
    pub preferred_pods: Box<[Preference]>,
    /// How evenly pods like it are to be spread.
    pub spread: Box<[Spread]>,
    /// Ports of the node that it takes.
    pub ports: Box<[HostPort]>,
    /// Images it runs, one for each use.
    pub images: Box<[Sym]>,
}

/// A taint that a pod bears.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: Option<Sym>,
    /// `None` where any value is borne.
    value: Option<Sym>,
    effect: Option<Effect>,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing new is placed.
    NoSchedule,
    /// Nothing new is placed if there is another node.
    PreferNoSchedule,
    /// Nothing new is placed, and what is there goes.
    NoExecute,
}

impl Effect {
    /// By its name in the API.
    pub fn of(name: &str) -> Option<Effect> {
        match name {
            "NoSchedule" => Some(Effect::NoSchedule),
            "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
            "NoExecute" => Some(Effect::NoExecute),
            _ => None,
        }
    }

    /// Whether it keeps pods away altogether.
    pub fn is_hard(self) -> bool {
        self != Effect::PreferNoSchedule
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    /// Its key.
    pub key: Sym,
    /// Its value.
    pub value: Sym,
    /// What it does.
    pub effect: Effect,
}

impl Toleration {
    fn of(symbols: &mut Symbols, toleration: &api::Toleration) -> Toleration {
        let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let value = match toleration.operator.as_deref() {
            Some("Exists") => None,
            _ => Some(symbols.of(toleration.value.as_deref().unwrap_or_default())),
        };
        Toleration {
            key: named(&toleration.key).map(|key| symbols.of(&key)),
            value,
            effect: named(&toleration.effect).and_then(|effect| Effect::of(&effect)),
        }
    }

    /// Whether this taint is borne.
    pub fn bears(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.is_none_or(|key| key == taint.key)
            && self.value.is_none_or(|value| value == taint.value)
    }
}

/// A port of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// The address; `0.0.0.0` means all.
    pub address: Sym,
    /// TCP, UDP or SCTP.
    pub protocol: Sym,
    /// The number.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be taken on one node; `any` is the address that means all.
    pub fn collides(&self, other: &HostPort, any: Sym) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || self.address == any || other.address == any)
    }
}

/// The address that means every address.
pub const ANY_ADDRESS: &str = "0.0.0.0";

impl Ask {
    /// What this pod asks for. `defaults` are spread constraints for pods that have none of their own.
    pub fn of(symbols: &mut Symbols, pod: &api::Pod, profile: usize, defaults: &[Spread]) -> Ask {
        let empty = api::PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let namespace = symbols.of(pod.metadata.namespace.as_deref().unwrap_or_default());
        let labels = Labels::of(symbols, pod.metadata.labels.iter().flatten());
        let affinity = spec.affinity.as_ref();
        let node_affinity = affinity.and_then(|a| a.node_affinity.as_ref());
        let required_nodes = required_nodes(symbols, node_affinity);
        let mut owner = terms::Owner {
            symbols: &mut *symbols,
            namespace,
            labels: &labels,
        };
        let (near, far) = owner.required(affinity);
        let preferred_pods = owner.preferred(affinity);
        let own = spec.topology_spread_constraints.as_deref();
        let spread = match own.unwrap_or_default() {
            [] => defaults.into(),
            own => own.iter().map(|c| owner.spread(c)).collect(),
        };
        Ask {
            namespace,
            profile,
            requests: Requests::of(symbols, pod),
            tolerations: tolerations(symbols, spec),
            node_selector: pairs(symbols, spec),
            named_nodes: required_nodes.as_deref().and_then(named_nodes),
            required_nodes,
            preferred_nodes: preferred_nodes(symbols, node_affinity),
            affinity: near,
            anti_affinity: far,
            preferred_pods,
            spread,
            ports: ports(symbols, spec),
            images: images(symbols, spec),
            labels,
        }
    }

    /// Whether a taint is borne.
    pub fn bears(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| t.bears(taint))
    }

    /// How many taints that only advise against a node it does not bear.
    pub fn unwelcome(&self, taints: &[Taint]) -> i32 {
        let soft = taints.iter().filter(|taint| !taint.effect.is_hard());
        let count = soft.filter(|taint| !self.bears(taint)).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Whether it bears all taints that keep pods away.
    pub fn bears_hard(&self, taints: &[Taint]) -> bool {
        let mut hard = taints.iter().filter(|taint| taint.effect.is_hard());
        hard.all(|taint| self.bears(taint))
    }

    /// Whether a node of this name and these labels is one it selects.
    pub fn selects(&self, symbols: &Symbols, name: Sym, labels: &Labels) -> bool {
        let mut pairs = self.node_selector.iter();
        let terms = self.required_nodes.as_deref();
        pairs.all(|&(key, value)| labels.get(key) == Some(value))
            && terms.is_none_or(|all| all.iter().any(|t| t.matches(symbols, name, labels)))
    }

    /// The weights of what it would rather have that this node has.
    pub fn preference(&self, symbols: &Symbols, name: Sym, labels: &Labels) -> i32 {
        let terms = self.preferred_nodes.iter();
        let matching = terms.filter(|(_, term)| term.matches(symbols, name, labels));
        matching.map(|(weight, _)| weight).sum()
    }

    /// Whether it says anything about other pods, so that they matter to it or it to them.
    pub fn has_terms(&self) -> bool {
        !(self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred_pods.is_empty())
    }
}

fn required_nodes(
    symbols: &mut Symbols,
    affinity: Option<&api::NodeAffinity>,
) -> Option<Box<[NodeTerm]>> {
    let required = affinity?
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let terms = required.node_selector_terms.iter();
    Some(terms.map(|term| NodeTerm::of(symbols, term)).collect())
}

/// What is required of a node, if anything is, and what is preferred by how much.
pub type NodeTerms = (Option<Box<[NodeTerm]>>, Box<[(i32, NodeTerm)]>);

/// Required and preferred terms of a node affinity that is not a pod's own.
pub fn node_affinity(symbols: &mut Symbols, affinity: Option<&api::NodeAffinity>) -> NodeTerms {
    (
        required_nodes(symbols, affinity),
        preferred_nodes(symbols, affinity),
    )
}

fn named_nodes(terms: &[NodeTerm]) -> Option<Box<[Sym]>> {
    let named: Option<Vec<Vec<Sym>>> = terms.iter().map(NodeTerm::named).collect();
    let named = named?.concat();
    (!named.is_empty()).then(|| named.into())
}

fn preferred_nodes(
    symbols: &mut Symbols,
    affinity: Option<&api::NodeAffinity>,
) -> Box<[(i32, NodeTerm)]> {
    let preferred = affinity.and_then(|a| {
        a.preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let terms = preferred.into_iter().flatten();
    terms
        .map(|term| (term.weight, NodeTerm::of(symbols, &term.preference)))
        .collect()
}

fn tolerations(symbols: &mut Symbols, spec: &api::PodSpec) -> Box<[Toleration]> {
    let all = spec.tolerations.iter().flatten();
    all.map(|t| Toleration::of(symbols, t)).collect()
}

fn pairs(symbols: &mut Symbols, spec: &api::PodSpec) -> Box<[(Sym, Sym)]> {
    let all = spec.node_selector.iter().flatten();
    all.map(|(k, v)| (symbols.of(k), symbols.of(v))).collect()
}

// Of containers that run all along: init containers that end have given their ports back.
fn ports(symbols: &mut Symbols, spec: &api::PodSpec) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = sidecars.chain(&spec.containers).flat_map(|c| &c.ports);
    let named = |text: &Option<String>, default: &str| match text.as_deref() {
        None | Some("") => default.to_owned(),
        Some(text) => text.to_owned(),
    };
    ports
        .flatten()
        .filter_map(|port| {
            Some(HostPort {
                port: port.host_port.filter(|port| *port > 0)?,
                address: symbols.of(&named(&port.host_ip, ANY_ADDRESS)),
                protocol: symbols.of(&named(&port.protocol, "TCP")),
            })
        })
        .collect()
}

fn images(symbols: &mut Symbols, spec: &api::PodSpec) -> Box<[Sym]> {
    let containers = spec.init_containers.iter().flatten();
    let containers = containers.chain(&spec.containers);
    let images = containers.filter_map(|c| c.image.as_deref());
    let volumes = spec.volumes.iter().flatten();
    let volumes = volumes.filter_map(|v| v.image.as_ref()?.reference.as_deref());
    let all = images.chain(volumes);
    all.map(|image| symbols.of(&with_tag(image))).collect()
}

/// An image's name with its tag, as nodes report it (upstream's `normalizedImageName`).
pub fn with_tag(image: &str) -> String {
    match image.rfind(':') > image.rfind('/') {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

/// Pods a selector means, as a spread constraint of the profile's own (`defaultConstraints`).
pub fn default_spread(
    symbols: &mut Symbols,
    constraint: &api::TopologySpreadConstraint,
    selector: &Selector,
) -> Spread {
    terms::default_spread(symbols, constraint, selector.clone())
}
