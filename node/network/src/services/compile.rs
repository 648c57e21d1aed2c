//! A Service and its endpoints as elements of the rule set.

use std::net::IpAddr;

use ipnet::IpNet;

use super::layout::{Front, Key, Pick, Reach, Sources, Value};
use super::model::{Family, Port, Service};
use super::topology::{Choice, Target};

/// What one port of a Service puts into the table of a family.
pub(super) fn compile(service: &Service, port: &Port, choice: &Choice, family: Family) -> Elements {
    let mut elements = Elements {
        affinity: service.affinity,
        all: Vec::new(),
    };
    let of_family = |ips: &[IpAddr]| -> Vec<IpAddr> {
        let ips = ips.iter().copied();
        ips.filter(|ip| Family::of(*ip) == family).collect()
    };
    for ip in of_family(&service.cluster_ips) {
        elements.put(Key::ClusterAddress(ip), Value::Present);
        elements.internal(
            service,
            Front::Address(ip, port.protocol, port.port),
            choice,
        );
    }
    for ip in of_family(&service.external_ips) {
        elements.external(
            service,
            Front::Address(ip, port.protocol, port.port),
            choice,
        );
    }
    for ip in of_family(&service.balancer_ips) {
        let front = Front::Address(ip, port.protocol, port.port);
        elements.guard(service, front, ip);
        elements.external(service, front, choice);
    }
    if let Some(number) = port.node_port {
        elements.external(service, Front::Node(port.protocol, number), choice);
    }
    for ip in &choice.here {
        elements.put(Key::Hairpin(*ip), Value::Present);
    }
    elements
}

/// Elements as they come together.
pub(super) struct Elements {
    affinity: Option<u32>,
    pub(super) all: Vec<(Key, Value)>,
}

impl Elements {
    fn put(&mut self, key: Key, value: Value) {
        self.all.push((key, value));
    }

    // A front without any endpoint needs nothing: its address alone is reason to refuse.
    fn internal(&mut self, service: &Service, front: Front, choice: &Choice) {
        let targets = if service.internal_local {
            &choice.local
        } else {
            &choice.cluster
        };
        if !targets.is_empty() {
            self.pick(front, Sources::Internal, targets);
        } else if !choice.is_empty() {
            self.put(Key::Dispatch(Reach::Cluster, front), Value::Drop);
        }
    }

    fn external(&mut self, service: &Service, front: Front, choice: &Choice) {
        if choice.is_empty() {
            self.put(Key::Refused(front), Value::Present);
            return;
        }
        if !service.external_local {
            self.pick(front, Sources::Always, &choice.cluster);
            return;
        }
        self.pick(front, Sources::Node, &choice.cluster);
        if choice.local.is_empty() {
            self.put(Key::Dispatch(Reach::Outside, front), Value::Drop);
        } else {
            self.pick(front, Sources::Kept, &choice.local);
        }
    }

    fn pick(&mut self, front: Front, sources: Sources, targets: &[Target]) {
        // Nobody needs more endpoints than a port has numbers; the rest is not reached from here.
        let of = u16::try_from(targets.len()).unwrap_or(u16::MAX);
        if of == 0 {
            return;
        }
        let pick = Pick {
            nodes: matches!(front, Front::Node(..)),
            protocol: front.protocol(),
            sources,
            sticky: self.affinity.is_some(),
            of,
        };
        self.put(Key::Picks(pick), Value::Present);
        self.put(Key::Dispatch(pick.reach(), front), Value::Goto(pick));
        for (i, target) in (0..of).zip(targets) {
            self.put(Key::Slot(pick.reach(), front, i), Value::To(*target));
        }
        if let Some(seconds) = self.affinity {
            self.put(Key::Remembers(seconds), Value::Present);
            self.put(Key::Affinity(front), Value::Remember(seconds));
        }
    }

    fn guard(&mut self, service: &Service, front: Front, ip: IpAddr) {
        if service.source_ranges.is_empty() {
            return;
        }
        self.put(Key::Guarded(front), Value::Present);
        let of_family = |net: &&IpNet| Family::of_net(net) == Family::of(ip);
        let nets = service
            .source_ranges
            .iter()
            .filter(of_family)
            .copied()
            .collect();
        // Ranges inside one another cannot stand beside one another.
        for net in IpNet::aggregate(&nets) {
            self.put(Key::Admitted(front, net), Value::Present);
        }
    }
}
