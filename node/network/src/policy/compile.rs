//! Policies as rules for the pods of one node.
//!
//! What applies to a pod becomes a list of allowances, with selectors turned into addresses and names of ports into
//! numbers. Equal lists are one chain and equal lists of addresses one set, each named for its content: a chain or set
//! never changes, pods only move from one to another, each by one element of a map.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::evaluate::{Side, rules_of};
use super::model::{Key, Peer, Pod, Ports, Rule, World, matches};
use crate::services::model::{Family, Protocol};

/// Something that is allowed: with whom (anybody where nothing is said), and on which ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allowance {
    /// Addresses of the other side.
    pub peers: Option<Vec<IpNet>>,
    /// Ports of the side that is connected to.
    pub ports: Option<Vec<(Protocol, u16, u16)>>,
}

/// What applies to a pod in one direction.
pub type Profile = BTreeSet<Allowance>;

/// The rules of one family on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Pods whose connections are judged.
    pub egress: BTreeMap<IpAddr, Profile>,
    /// Pods that are connected to.
    pub ingress: BTreeMap<IpAddr, Profile>,
}

impl World {
    /// The rules for a node's pods.
    pub fn compile(&self, node: &str, family: Family) -> Rules {
        let mut rules = Rules::default();
        let here = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.node == node && pod.has_network);
        for (key, pod) in here {
            let addresses = pod.addresses.iter().filter(|ip| Family::of(**ip) == family);
            for address in addresses {
                let profile = |side| self.profile(key, pod, side, family);
                rules
                    .egress
                    .extend(profile(Side::Egress).map(|profile| (*address, profile)));
                rules
                    .ingress
                    .extend(profile(Side::Ingress).map(|profile| (*address, profile)));
            }
        }
        rules
    }

    // Nothing if no policy is about this side of the pod.
    fn profile(
        &self,
        (namespace, _): &Key,
        pod: &Pod,
        side: Side,
        family: Family,
    ) -> Option<Profile> {
        let mut profile = None;
        for ((own, _), policy) in self
            .policies
            .iter()
            .filter(|((own, _), _)| own == namespace)
        {
            let Some(rules) =
                rules_of(policy, side).filter(|_| matches(&policy.selector, &pod.labels))
            else {
                continue;
            };
            let profile = profile.get_or_insert_with(Profile::new);
            for rule in rules {
                profile.extend(match side {
                    Side::Ingress => self.incoming(own, rule, pod, family),
                    Side::Egress => self.outgoing(own, rule, family),
                });
            }
        }
        profile
    }

    // Names of ports are those of the pod itself.
    fn incoming(&self, namespace: &str, rule: &Rule, pod: &Pod, family: Family) -> Vec<Allowance> {
        let ports = (!rule.ports.is_empty())
            .then(|| ranges(rule.ports.iter().flat_map(|p| resolved(p, pod))));
        allowance(self.nets(namespace, rule, family, |_| true), ports)
            .into_iter()
            .collect()
    }

    // Names of ports are those of each peer: pods that call different numbers so are allowed apart.
    fn outgoing(&self, namespace: &str, rule: &Rule, family: Family) -> Vec<Allowance> {
        let anybody = |_: &Pod| true;
        if rule.ports.is_empty() {
            return allowance(self.nets(namespace, rule, family, anybody), None)
                .into_iter()
                .collect();
        }
        let numbers = rule
            .ports
            .iter()
            .filter(|ports| !matches!(ports, Ports::Named(..)));
        let numbers = ranges(numbers.flat_map(|ports| resolved(ports, &Pod::default())));
        let mut all: Vec<Allowance> =
            allowance(self.nets(namespace, rule, family, anybody), Some(numbers))
                .into_iter()
                .collect();
        for ports in rule
            .ports
            .iter()
            .filter(|ports| matches!(ports, Ports::Named(..)))
        {
            let known: BTreeSet<(Protocol, u16, u16)> = self
                .pods
                .values()
                .flat_map(|pod| resolved(ports, pod))
                .collect();
            for number in known {
                let has = |pod: &Pod| resolved(ports, pod).contains(&number);
                let nets = self.pods_of(namespace, rule, family, has);
                all.extend(allowance(Some(nets), Some(vec![number])));
            }
        }
        all
    }

    // Nothing means anybody.
    fn nets(
        &self,
        namespace: &str,
        rule: &Rule,
        family: Family,
        is: impl Fn(&Pod) -> bool,
    ) -> Option<Vec<IpNet>> {
        if rule.peers.is_empty() {
            return None;
        }
        let mut nets = Vec::new();
        for peer in &rule.peers {
            match peer {
                Peer::Block(net, except) => nets.extend(without(*net, except)),
                Peer::Pods { .. } => {
                    let pods = self
                        .pods
                        .iter()
                        .filter(|(key, pod)| self.is_peer(namespace, peer, key, pod) && is(pod));
                    nets.extend(
                        pods.flat_map(|(_, pod)| &pod.addresses)
                            .map(|ip| IpNet::from(*ip)),
                    );
                }
            }
        }
        nets.retain(|net| Family::of_net(net) == family);
        let mut nets = IpNet::aggregate(&nets);
        nets.sort_unstable();
        Some(nets)
    }

    // Addresses of pods that a rule is about, whether it names them by labels or by their address.
    fn pods_of(
        &self,
        namespace: &str,
        rule: &Rule,
        family: Family,
        is: impl Fn(&Pod) -> bool,
    ) -> Vec<IpNet> {
        let mut nets = Vec::new();
        for (key, pod) in self
            .pods
            .iter()
            .filter(|(_, pod)| pod.has_network && is(pod))
        {
            for ip in pod.addresses.iter().filter(|ip| Family::of(**ip) == family) {
                let is_peer = |peer: &Peer| match peer {
                    Peer::Block(net, except) => {
                        net.contains(ip) && !except.iter().any(|net| net.contains(ip))
                    }
                    Peer::Pods { .. } => self.is_peer(namespace, peer, key, pod),
                };
                if rule.peers.is_empty() || rule.peers.iter().any(is_peer) {
                    nets.push(IpNet::from(*ip));
                }
            }
        }
        let mut nets = IpNet::aggregate(&nets);
        nets.sort_unstable();
        nets
    }
}

// With nobody, or on no port, is not allowed at all.
fn allowance(
    peers: Option<Vec<IpNet>>,
    ports: Option<Vec<(Protocol, u16, u16)>>,
) -> Option<Allowance> {
    let is_void =
        peers.as_ref().is_some_and(Vec::is_empty) || ports.as_ref().is_some_and(Vec::is_empty);
    (!is_void).then_some(Allowance { peers, ports })
}

fn resolved(ports: &Ports, pod: &Pod) -> Vec<(Protocol, u16, u16)> {
    match ports {
        Ports::All(protocol) => vec![(*protocol, 0, u16::MAX)],
        Ports::Range(protocol, first, last) => vec![(*protocol, *first, *last)],
        Ports::Named(protocol, name) => {
            let mine = pod
                .ports
                .iter()
                .filter(|(n, p, _)| n == name && p == protocol);
            mine.map(|(_, protocol, port)| (*protocol, *port, *port))
                .collect()
        }
    }
}

fn ranges(all: impl Iterator<Item = (Protocol, u16, u16)>) -> Vec<(Protocol, u16, u16)> {
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// A range without some of its parts, as ranges: halves are taken apart until each is wholly in or out.
fn without(net: IpNet, except: &[IpNet]) -> Vec<IpNet> {
    if except.iter().any(|hole| hole.contains(&net)) {
        return Vec::new();
    }
    if !except.iter().any(|hole| net.contains(hole)) {
        return vec![net];
    }
    let halves = net.subnets(net.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| without(half, except)).collect()
}

impl Rules {
    /// What the rules say to a connection, as the kernel would follow them.
    pub fn allow(&self, from: IpAddr, to: IpAddr, protocol: Protocol, port: u16) -> bool {
        let admits = |profile: &Profile, other: IpAddr| {
            profile.iter().any(|allowance| {
                let peers = allowance.peers.as_ref();
                let ports = allowance.ports.as_ref();
                peers.is_none_or(|nets| nets.iter().any(|net| net.contains(&other)))
                    && ports.is_none_or(|all| {
                        all.iter()
                            .any(|(p, a, b)| *p == protocol && (*a..=*b).contains(&port))
                    })
            })
        };
        from == to
            || (self
                .egress
                .get(&from)
                .is_none_or(|profile| admits(profile, to))
                && self
                    .ingress
                    .get(&to)
                    .is_none_or(|profile| admits(profile, from)))
    }
}
