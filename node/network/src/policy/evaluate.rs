//! The words of the API, for one connection: plain, slow, and right.

use std::net::IpAddr;

use super::model::{Key, Peer, Pod, Policy, Ports, Rule, World, matches};
use crate::services::model::Protocol;

/// Somebody opens a connection; addresses are those after translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// From where.
    pub from: IpAddr,
    /// To where.
    pub to: IpAddr,
    /// By which transport.
    pub protocol: Protocol,
    /// To which port.
    pub port: u16,
}

/// Whether it is allowed, and by whom or why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is.
    pub allowed: bool,
    /// What the client's policies say, then what the server's say.
    pub reasons: Vec<Reason>,
}

/// What one side's policies say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No policy is about this side.
    NotIsolated(Side),
    /// A policy allows it, by its rule of this number.
    Allowed(Side, Key, usize),
    /// These policies are about this side, and none allows it.
    Denied(Side, Vec<Key>),
    /// A pod can always talk to itself.
    Itself,
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who connects.
    Egress,
    /// Who is connected to.
    Ingress,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |side: &Side| match side {
            Side::Egress => "egress of the client",
            Side::Ingress => "ingress of the server",
        };
        match self {
            Reason::Itself => write!(f, "a pod may always connect to itself"),
            Reason::NotIsolated(side) => write!(
                f,
                "{}: no policy selects it, so everything is allowed",
                of(side)
            ),
            Reason::Allowed(side, (namespace, name), rule) => {
                write!(
                    f,
                    "{}: allowed by policy {namespace}/{name}, rule {}",
                    of(side),
                    rule + 1
                )
            }
            Reason::Denied(side, policies) => {
                let names: Vec<String> = policies
                    .iter()
                    .map(|(ns, name)| format!("{ns}/{name}"))
                    .collect();
                write!(
                    f,
                    "{}: denied, because {} select it and no rule of theirs allows this",
                    of(side),
                    names.join(", ")
                )
            }
        }
    }
}

impl World {
    /// Whether a connection is allowed. Nodes may always reach their own pods; that is not asked here.
    pub fn evaluate(&self, attempt: &Attempt) -> Verdict {
        if attempt.from == attempt.to {
            return Verdict {
                allowed: true,
                reasons: vec![Reason::Itself],
            };
        }
        let reasons = [
            (Side::Egress, attempt.from, attempt.to),
            (Side::Ingress, attempt.to, attempt.from),
        ]
        .map(|(side, own, other)| self.judge(side, own, other, attempt));
        let allowed = !reasons
            .iter()
            .any(|reason| matches!(reason, Reason::Denied(..)));
        Verdict {
            allowed,
            reasons: reasons.into(),
        }
    }

    fn judge(&self, side: Side, own: IpAddr, other: IpAddr, attempt: &Attempt) -> Reason {
        let Some((key, pod)) = self.pod_at(own) else {
            return Reason::NotIsolated(side);
        };
        let mut about = Vec::new();
        for (name, policy) in self
            .policies
            .iter()
            .filter(|((namespace, _), _)| *namespace == key.0)
        {
            let Some(rules) =
                rules_of(policy, side).filter(|_| matches(&policy.selector, &pod.labels))
            else {
                continue;
            };
            let allowing = rules
                .iter()
                .position(|rule| self.allows(&name.0, rule, other, attempt));
            if let Some(rule) = allowing {
                return Reason::Allowed(side, name.clone(), rule);
            }
            about.push(name.clone());
        }
        match about.is_empty() {
            true => Reason::NotIsolated(side),
            false => Reason::Denied(side, about),
        }
    }

    fn allows(&self, namespace: &str, rule: &Rule, other: IpAddr, attempt: &Attempt) -> bool {
        let is_peer = |peer: &Peer| match peer {
            Peer::Block(net, except) => {
                net.contains(&other) && !except.iter().any(|net| net.contains(&other))
            }
            Peer::Pods { .. } => self
                .pod_at(other)
                .is_some_and(|(key, pod)| self.is_peer(namespace, peer, key, pod)),
        };
        let is_port = |ports: &Ports| match ports {
            Ports::All(protocol) => *protocol == attempt.protocol,
            Ports::Range(protocol, first, last) => {
                *protocol == attempt.protocol && (*first..=*last).contains(&attempt.port)
            }
            Ports::Named(protocol, name) => self.pod_at(attempt.to).is_some_and(|(_, pod)| {
                let wanted = (name, *protocol, attempt.port);
                *protocol == attempt.protocol
                    && pod
                        .ports
                        .iter()
                        .any(|(n, p, port)| (n, *p, *port) == wanted)
            }),
        };
        (rule.peers.is_empty() || rule.peers.iter().any(is_peer))
            && (rule.ports.is_empty() || rule.ports.iter().any(is_port))
    }

    fn pod_at(&self, address: IpAddr) -> Option<(&Key, &Pod)> {
        self.pods
            .iter()
            .find(|(_, pod)| pod.has_network && pod.addresses.contains(&address))
    }
}

/// What a policy says about a side; nothing if it is not about it.
pub(super) fn rules_of(policy: &Policy, side: Side) -> Option<&Vec<Rule>> {
    match side {
        Side::Egress => policy.egress.as_ref(),
        Side::Ingress => policy.ingress.as_ref(),
    }
}
