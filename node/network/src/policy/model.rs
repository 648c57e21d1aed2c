//! What is kept of pods, namespaces and policies.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Selects;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_kit::selector::LabelSelector;

use crate::services::model::Protocol;

/// Labels.
pub type Labels = BTreeMap<String, String>;
/// A namespace and a name in it.
pub type Key = (String, String);

/// Everything that decides who may talk to whom.
#[derive(Debug, Clone, Default)]
pub struct World {
    /// Labels of namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// Pods.
    pub pods: BTreeMap<Key, Pod>,
    /// Policies.
    pub policies: BTreeMap<Key, Policy>,
}

/// What is kept of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Where it runs.
    pub node: String,
    /// Whether its addresses are its own, and it still runs: others are no peers, and nobody guards them.
    pub has_network: bool,
    /// Names of its ports.
    pub ports: Vec<(String, Protocol, u16)>,
}

impl Pod {
    /// What is kept of a pod.
    pub fn of(pod: &core::Pod) -> Pod {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let phase = status.and_then(|s| s.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let on_host = spec.and_then(|s| s.host_network).unwrap_or_default();
        let ips = status
            .and_then(|s| s.pod_ips.as_ref())
            .into_iter()
            .flatten();
        let containers = spec.iter().flat_map(|spec| {
            let sidecars = spec.init_containers.iter().flatten();
            let sidecars = sidecars.filter(|c| c.restart_policy.as_deref() == Some("Always"));
            spec.containers.iter().chain(sidecars)
        });
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        Pod {
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            addresses: ips.filter_map(|ip| ip.ip.parse().ok()).collect(),
            node: spec.and_then(|s| s.node_name.clone()).unwrap_or_default(),
            has_network: !ended && !on_host,
            ports: ports.filter_map(named_port).collect(),
        }
    }
}

fn named_port(port: &core::ContainerPort) -> Option<(String, Protocol, u16)> {
    let protocol = Protocol::parse(port.protocol.as_deref())?;
    Some((
        port.name.clone()?,
        protocol,
        u16::try_from(port.container_port).ok()?,
    ))
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which pods of its namespace it is about.
    pub selector: LabelSelector,
    /// Who may connect to them; nothing where it says nothing about that.
    pub ingress: Option<Vec<Rule>>,
    /// To whom they may connect.
    pub egress: Option<Vec<Rule>>,
}

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// With whom; anybody when empty.
    pub peers: Vec<Peer>,
    /// On which ports; any when empty.
    pub ports: Vec<Ports>,
}

/// Who is on the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Addresses, but for some.
    Block(IpNet, Vec<IpNet>),
    /// Pods: of some namespaces (the policy's own where none are named), with some labels.
    Pods {
        /// Which namespaces.
        namespaces: Option<LabelSelector>,
        /// Which pods in them.
        pods: LabelSelector,
    },
}

/// Ports of the side that is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// All of a transport.
    All(Protocol),
    /// Some of it.
    Range(Protocol, u16, u16),
    /// Whatever the pod calls so.
    Named(Protocol, String),
}

impl Policy {
    /// What is kept of a policy. A part that cannot be understood allows nothing.
    pub fn of(policy: &networking::NetworkPolicy) -> Policy {
        let spec = policy.spec.clone().unwrap_or_default();
        let types = spec.policy_types.clone().unwrap_or_default();
        let says = |kind: &str| types.iter().any(|t| t == kind);
        // Without types a policy is about ingress, and about egress if it has rules for it.
        let egress = says("Egress")
            || (types.is_empty() && spec.egress.as_ref().is_some_and(|e| !e.is_empty()));
        let ingress = says("Ingress") || types.is_empty();
        let rules = |peers: &Option<Vec<networking::NetworkPolicyPeer>>,
                     ports: &Option<Vec<networking::NetworkPolicyPort>>| {
            rule(peers.as_deref(), ports.as_deref())
        };
        let incoming = spec
            .ingress
            .iter()
            .flatten()
            .filter_map(|r| rules(&r.from, &r.ports))
            .collect();
        let outgoing = spec
            .egress
            .iter()
            .flatten()
            .filter_map(|r| rules(&r.to, &r.ports))
            .collect();
        Policy {
            selector: spec
                .pod_selector
                .as_ref()
                .map_or_else(LabelSelector::everything, selector),
            ingress: ingress.then_some(incoming),
            egress: egress.then_some(outgoing),
        }
    }
}

fn selector(selects: &Selects) -> LabelSelector {
    let object = serde_json::to_value(selects).unwrap_or_default();
    LabelSelector::from_object(&object).unwrap_or_else(|_| LabelSelector::nothing())
}

// A list in which nothing is understood is not an empty list, which would allow everything.
fn rule(
    peers: Option<&[networking::NetworkPolicyPeer]>,
    ports: Option<&[networking::NetworkPolicyPort]>,
) -> Option<Rule> {
    let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
    let rule = Rule {
        peers: peers.iter().filter_map(peer).collect(),
        ports: ports.iter().filter_map(port).collect(),
    };
    let is_understood =
        rule.peers.is_empty() == peers.is_empty() && rule.ports.is_empty() == ports.is_empty();
    is_understood.then_some(rule)
}

fn peer(peer: &networking::NetworkPolicyPeer) -> Option<Peer> {
    if let Some(block) = &peer.ip_block {
        let except = block
            .except
            .iter()
            .flatten()
            .filter_map(|net| net.parse().ok())
            .collect();
        return Some(Peer::Block(
            block.cidr.parse::<IpNet>().ok()?.trunc(),
            except,
        ));
    }
    Some(Peer::Pods {
        namespaces: peer.namespace_selector.as_ref().map(selector),
        pods: peer
            .pod_selector
            .as_ref()
            .map_or_else(LabelSelector::everything, selector),
    })
}

fn port(port: &networking::NetworkPolicyPort) -> Option<Ports> {
    let protocol = Protocol::parse(port.protocol.as_deref())?;
    let number = |n: i32| u16::try_from(n).ok();
    Some(match &port.port {
        None => Ports::All(protocol),
        Some(IntOrString::String(name)) => Ports::Named(protocol, name.clone()),
        Some(IntOrString::Int(first)) => {
            let last = port.end_port.unwrap_or(*first);
            Ports::Range(protocol, number(*first)?, number(last)?)
        }
    })
}

impl World {
    /// Whether a peer of a policy in a namespace is a pod.
    pub(super) fn is_peer(
        &self,
        policy_namespace: &str,
        peer: &Peer,
        (namespace, _): &Key,
        pod: &Pod,
    ) -> bool {
        let Peer::Pods { namespaces, pods } = peer else {
            return false;
        };
        let in_scope = match namespaces {
            None => namespace == policy_namespace,
            Some(selector) => self
                .namespaces
                .get(namespace)
                .is_some_and(|labels| matches(selector, labels)),
        };
        in_scope && pod.has_network && matches(pods, &pod.labels)
    }
}

/// Whether a selector selects these labels.
pub(super) fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}
