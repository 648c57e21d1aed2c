//! Changes one after the other lead where everything at once leads.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use network::Family;
use network::services::layout::{Key, Reach, Settings, Value};
use network::services::model::{Endpoint, Port, Protocol, Service, ServiceName, Slice, SlicePort};
use network::services::{Change, Place, Proxy, full, incremental};
use proptest::prelude::*;

fn ip(range: u8, i: u8, v6: bool) -> IpAddr {
    match v6 {
        false => IpAddr::from([10, range, 0, i]),
        true => IpAddr::from([0xfd00, 0, 0, range.into(), 0, 0, 0, i.into()]),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Service(u8, Option<Service>),
    Slice(u8, u8, Option<Slice>),
    Moved(Option<String>),
}

fn service() -> impl Strategy<Value = Service> {
    let ports = prop::collection::vec((0..3u8, any::<bool>(), any::<bool>()), 1..3);
    let addresses = (
        0..8u8,
        any::<bool>(),
        prop::collection::vec(0..3u8, 0..2),
        prop::collection::vec(0..3u8, 0..2),
    );
    let rest = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (ports, addresses, rest).prop_map(|(ports, (own, dual, external, balancer), rest)| {
        let (affinity, internal_local, external_local, guarded) = rest;
        let families = if dual { 2 } else { 1 };
        let mut ports: Vec<Port> = ports
            .into_iter()
            .map(|(name, udp, node)| Port {
                name: format!("p{name}").into(),
                protocol: if udp { Protocol::Udp } else { Protocol::Tcp },
                port: 80 + u16::from(name),
                // Services of the same address would not share a node port; here they may.
                node_port: node.then_some(30000 + u16::from(name)),
            })
            .collect();
        ports.dedup_by_key(|port| port.name.clone());
        Service {
            cluster_ips: (0..families).map(|f| ip(0, own, f == 1)).collect(),
            external_ips: external.into_iter().map(|i| ip(1, i, i == 2)).collect(),
            balancer_ips: balancer.into_iter().map(|i| ip(2, i, i == 2)).collect(),
            source_ranges: if guarded {
                vec!["192.168.0.0/16".parse().unwrap()]
            } else {
                vec![]
            },
            affinity: affinity.then_some(600),
            internal_local,
            external_local,
            health_check_port: None,
            ports,
        }
    })
}

fn slice(of: u8) -> impl Strategy<Value = Slice> {
    let endpoint = (0..9u8, 0..4u8, any::<bool>(), any::<bool>());
    let endpoints = prop::collection::vec(endpoint, 0..6);
    (endpoints, any::<bool>(), 0..3u8).prop_map(move |(endpoints, v6, ports)| Slice {
        service: ServiceName::new("ns", &format!("s{of}")),
        ports: (0..=ports)
            .flat_map(|i| {
                [Protocol::Tcp, Protocol::Udp].map(|protocol| SlicePort {
                    name: format!("p{i}").into(),
                    protocol,
                    port: 8080 + u16::from(i),
                })
            })
            .collect(),
        endpoints: endpoints
            .into_iter()
            .map(|(i, state, here, hinted)| Endpoint {
                address: ip(244, i, v6),
                ready: state < 2,
                serving: state != 3,
                terminating: state == 2,
                node: Some(if here { "n1".into() } else { "n2".into() }),
                zone_hints: if hinted { vec!["z1".into()] } else { vec![] },
                node_hints: vec![],
            })
            .collect(),
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5u8, prop::option::weighted(0.8, service())).prop_map(|(i, s)| Step::Service(i, s)),
        6 => (0..5u8, 0..3u8).prop_flat_map(|(i, n)| {
            prop::option::weighted(0.8, slice(i)).prop_map(move |s| Step::Slice(i, n, s))
        }),
        1 => prop::option::of(Just("z1".to_owned())).prop_map(Step::Moved),
    ]
}

fn take(proxy: &mut Proxy, step: &Step) {
    match step.clone() {
        Step::Service(i, service) => {
            proxy.service(&ServiceName::new("ns", &format!("s{i}")), service)
        }
        Step::Slice(i, n, slice) => {
            proxy.slice(&ServiceName::new("ns", &format!("s{i}-{n}")), slice)
        }
        Step::Moved(zone) => proxy.moved(Place {
            node: "n1".into(),
            zone,
        }),
    }
}

fn empty() -> Proxy {
    Proxy::new(Place {
        node: "n1".into(),
        zone: None,
    })
}

/// What the kernel would hold after these changes; they must fit what it held before.
fn apply(kernel: &mut BTreeMap<Key, Value>, changes: &[Change]) {
    for change in changes {
        let held = match change.after {
            Some(value) => kernel.insert(change.key, value),
            None => kernel.remove(&change.key),
        };
        assert_eq!(held, change.before, "{change:?}");
    }
}

/// The same whatever the order of endpoints: slots as the set of their targets.
fn essence(content: Vec<(Key, Value)>) -> BTreeSet<String> {
    let mut slots: BTreeMap<(Reach, String), BTreeSet<Value>> = BTreeMap::new();
    let mut rest = BTreeSet::new();
    for (key, value) in &content {
        match key {
            Key::Slot(reach, front, _) => {
                let slot = slots.entry((*reach, format!("{front:?}"))).or_default();
                slot.insert(*value);
            }
            _ => {
                rest.insert(format!("{key:?} {value:?}"));
            }
        }
    }
    rest.extend(slots.into_iter().map(|slot| format!("{slot:?}")));
    rest
}

/// A chain that draws numbers finds an endpoint under each, and nothing lies where no number leads.
fn every_slot_is_drawn(content: &[(Key, Value)]) {
    let slots = content.iter().filter_map(|(key, _)| match key {
        Key::Slot(reach, front, i) => Some((*reach, *front, *i)),
        _ => None,
    });
    let drawn = content
        .iter()
        .filter_map(|(key, value)| match (key, value) {
            (Key::Dispatch(reach, front), Value::Goto(pick)) => Some((*reach, *front, pick.of)),
            _ => None,
        });
    let drawn = drawn.flat_map(|(reach, front, of)| (0..of).map(move |i| (reach, front, i)));
    assert_eq!(
        slots.collect::<BTreeSet<_>>(),
        drawn.collect::<BTreeSet<_>>()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changes_one_by_one_equal_everything_at_once(steps in prop::collection::vec(step(), 1..40), pace in 1..5usize) {
        let mut proxy = empty();
        let mut kernel = [BTreeMap::new(), BTreeMap::new()];
        for (i, step) in steps.iter().enumerate() {
            take(&mut proxy, step);
            if i % pace == 0 {
                let changes = proxy.changes();
                apply(&mut kernel[0], &changes[0]);
                apply(&mut kernel[1], &changes[1]);
            }
        }
        let changes = proxy.changes();
        apply(&mut kernel[0], &changes[0]);
        apply(&mut kernel[1], &changes[1]);

        let mut latest: BTreeMap<String, &Step> = BTreeMap::new();
        for step in &steps {
            let name = match step {
                Step::Service(i, _) => format!("s{i}"),
                Step::Slice(i, n, _) => format!("s{i}-{n}"),
                Step::Moved(_) => String::new(),
            };
            latest.insert(name, step);
        }
        let mut fresh = empty();
        latest.values().for_each(|step| take(&mut fresh, step));
        fresh.changes();
        for family in Family::BOTH {
            let held = kernel[family as usize].clone();
            every_slot_is_drawn(&proxy.content(family));
            prop_assert_eq!(essence(held.clone().into_iter().collect()), essence(fresh.content(family)));
            prop_assert_eq!(held.into_iter().collect::<Vec<_>>(), proxy.content(family));
        }
    }
}

#[test]
fn one_endpoint_more_or_less_touches_its_own_elements_only() {
    let mut proxy = empty();
    for i in 0..200u8 {
        let port = Port {
            name: "p".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: None,
        };
        let service = Service {
            cluster_ips: vec![ip(0, i, false)],
            external_ips: vec![],
            balancer_ips: vec![],
            source_ranges: vec![],
            affinity: None,
            internal_local: false,
            external_local: false,
            health_check_port: None,
            ports: vec![port],
        };
        proxy.service(&ServiceName::new("ns", &format!("s{i}")), Some(service));
        endpoints(&mut proxy, i, &[1, 2, 3, 4]);
    }
    proxy.changes();
    endpoints(&mut proxy, 7, &[1, 2, 3, 4, 5]);
    let more = proxy.changes();
    // Its verdict, its new slot, and the first chain of five.
    assert_eq!(more[0].len(), 3, "{more:?}");
    endpoints(&mut proxy, 7, &[2, 3, 4, 5]);
    let less = proxy.changes();
    // Its verdict, the slot that the last one moves to, the one it leaves, and the chain that nobody needs.
    assert_eq!(less[0].len(), 4, "{less:?}");
    let script = incremental(Family::V4, &Settings::default(), &less[0]);
    assert!(script.len() < 1000, "{script}");
    let all = full(
        Family::V4,
        &Settings::default(),
        &proxy.content(Family::V4),
        &[],
    );
    assert!(all.len() > 20 * script.len());
}

fn endpoints(proxy: &mut Proxy, of: u8, list: &[u8]) {
    let endpoint = |i: &u8| Endpoint {
        address: ip(244, *i, false),
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        zone_hints: vec![],
        node_hints: vec![],
    };
    let slice = Slice {
        service: ServiceName::new("ns", &format!("s{of}")),
        ports: vec![SlicePort {
            name: "p".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }],
        endpoints: list.iter().map(endpoint).collect(),
    };
    proxy.slice(&ServiceName::new("ns", &format!("s{of}")), Some(slice));
}
