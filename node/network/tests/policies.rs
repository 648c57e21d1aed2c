//! The rules that policies become say what the words of the API say.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;

use network::policy::compile::Rules;
use network::policy::evaluate::Attempt;
use network::policy::model::{Pod, Policy, World};
use network::policy::transition;
use network::{Family, Protocol};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

fn world(random: &mut StdRng) -> World {
    let mut world = World::default();
    for namespace in NAMESPACES {
        let team = if random.random() { "x" } else { "y" };
        let labels = [("kubernetes.io/metadata.name", namespace), ("team", team)];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        world.namespaces.insert(namespace.into(), labels);
    }
    for i in 0..12u8 {
        let namespace = NAMESPACES[random.random_range(0..3)];
        let pod = json!({
            "metadata": { "labels": { "app": app(random), "tier": app(random) } },
            "spec": {
                "nodeName": if i % 2 == 0 { "n1" } else { "n2" }, "hostNetwork": random.random_ratio(1, 12),
                "containers": [{ "name": "c", "ports": [
                    { "name": "http", "containerPort": 80 + u16::from(i % 3) },
                    { "name": "dns", "containerPort": 53, "protocol": "UDP" },
                ] }],
            },
            "status": {
                "phase": if random.random_ratio(1, 12) { "Succeeded" } else { "Running" },
                "podIPs": [{ "ip": format!("10.244.0.{i}") }, { "ip": format!("fd00::{i:x}") }],
            },
        });
        let pod = Pod::of(&serde_json::from_value(pod).unwrap());
        world.pods.insert((namespace.into(), format!("p{i}")), pod);
    }
    for i in 0..random.random_range(0..6) {
        let policy = json!({ "spec": policy(random) });
        let policy = Policy::of(&serde_json::from_value(policy).unwrap());
        let namespace = NAMESPACES[random.random_range(0..3)];
        world
            .policies
            .insert((namespace.into(), format!("q{i}")), policy);
    }
    world
}

fn app(random: &mut StdRng) -> &'static str {
    ["web", "db", "job"][random.random_range(0..3)]
}

fn policy(random: &mut StdRng) -> Value {
    let types = [
        json!(null),
        json!(["Ingress"]),
        json!(["Egress"]),
        json!(["Ingress", "Egress"]),
    ];
    let types = types[random.random_range(0..4)].clone();
    let mut rules = |side: &str| -> Vec<Value> {
        (0..random.random_range(0..3))
            .map(|_| rule(random, side))
            .collect()
    };
    let (ingress, egress) = (rules("from"), rules("to"));
    json!({ "podSelector": selector(random), "policyTypes": types, "ingress": ingress, "egress": egress })
}

fn selector(random: &mut StdRng) -> Value {
    match random.random_range(0..5) {
        0 | 1 => json!({}),
        2 => json!({ "matchLabels": { "app": app(random) } }),
        3 => {
            json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": [app(random), app(random)] }] })
        }
        _ => {
            json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": [app(random)] },
                                          { "key": "missing", "operator": "DoesNotExist" }] })
        }
    }
}

fn rule(random: &mut StdRng, side: &str) -> Value {
    let peers: Vec<Value> = (0..random.random_range(0..3))
        .map(|_| peer(random))
        .collect();
    let ports: Vec<Value> = (0..random.random_range(0..3))
        .map(|_| port(random))
        .collect();
    json!({ side: peers, "ports": ports })
}

fn peer(random: &mut StdRng) -> Value {
    match random.random_range(0..6) {
        0 => json!({ "podSelector": selector(random) }),
        1 => json!({ "namespaceSelector": { "matchLabels": { "team": "x" } } }),
        2 => json!({ "namespaceSelector": {}, "podSelector": selector(random) }),
        3 => {
            json!({ "ipBlock": { "cidr": "10.244.0.0/29", "except": ["10.244.0.4/31", "10.244.0.4/32"] } })
        }
        4 => json!({ "ipBlock": { "cidr": "fd00::/64", "except": ["fd00::8/125"] } }),
        _ => json!({ "ipBlock": { "cidr": "192.168.0.0/16" } }),
    }
}

fn port(random: &mut StdRng) -> Value {
    match random.random_range(0..6) {
        0 => json!({}),
        1 => json!({ "port": 80 }),
        2 => json!({ "port": 79, "endPort": 81, "protocol": "TCP" }),
        3 => json!({ "port": "http" }),
        4 => json!({ "port": "dns", "protocol": "UDP" }),
        _ => json!({ "port": "nothing" }),
    }
}

fn addresses() -> Vec<IpAddr> {
    let pods = (0..12u8).flat_map(|i| [format!("10.244.0.{i}"), format!("fd00::{i:x}")]);
    let others = ["192.168.1.1", "8.8.8.8", "2001:db8::1"].map(String::from);
    pods.chain(others)
        .map(|text| text.parse().unwrap())
        .collect()
}

#[test]
fn rules_say_what_the_words_say() {
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut pairs, mut denied) = (0, 0);
    while pairs < 20_000 {
        let world = world(&mut random);
        let compiled: Vec<[Rules; 2]> = ["n1", "n2"]
            .iter()
            .map(|node| Family::BOTH.map(|family| world.compile(node, family)))
            .collect();
        for _ in 0..400 {
            let all = addresses();
            let (from, to) = (
                all[random.random_range(0..all.len())],
                all[random.random_range(0..all.len())],
            );
            if Family::of(from) != Family::of(to) {
                continue;
            }
            let protocol = if random.random() {
                Protocol::Tcp
            } else {
                Protocol::Udp
            };
            let port = [53, 79, 80, 81, 82, 443][random.random_range(0..6)];
            let verdict = world.evaluate(&Attempt {
                from,
                to,
                protocol,
                port,
            });
            let followed = compiled
                .iter()
                .all(|rules| rules[Family::of(from) as usize].allow(from, to, protocol, port));
            assert_eq!(
                followed, verdict.allowed,
                "seed {seed}: {from} to {to} {protocol:?} {port}: {verdict:?}\n{world:#?}"
            );
            pairs += 1;
            denied += usize::from(!verdict.allowed);
        }
    }
    assert!(
        denied > pairs / 20,
        "only {denied} of {pairs} were denied: too little was tried"
    );
}

#[test]
fn the_way_between_two_rule_sets_touches_what_differs() {
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..50 {
        let (before, after) = (world(&mut random), world(&mut random));
        let (before, after) = (
            before.compile("n1", Family::V4),
            after.compile("n1", Family::V4),
        );
        assert_eq!(transition(Family::V4, Some(&before), &before), "");
        let there = transition(Family::V4, Some(&before), &after);
        let count =
            |text: &str, verb: &str| text.lines().filter(|line| line.starts_with(verb)).count();
        let back = transition(Family::V4, Some(&after), &before);
        assert_eq!(count(&there, "add chain"), count(&back, "delete chain"));
        assert_eq!(count(&there, "add set"), count(&back, "delete set"));
    }
}

#[test]
fn an_answer_names_the_policy() {
    let mut world = World::default();
    for (i, name) in ["client", "server"].into_iter().enumerate() {
        let pod = json!({
            "metadata": { "labels": { "app": name } }, "spec": { "nodeName": "n1", "containers": [] },
            "status": { "podIPs": [{ "ip": format!("10.244.0.{i}") }] },
        });
        world.pods.insert(
            ("a".into(), name.into()),
            Pod::of(&serde_json::from_value(pod).unwrap()),
        );
    }
    let deny = json!({ "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } });
    let deny = Policy::of(&serde_json::from_value(deny).unwrap());
    world
        .policies
        .insert(("a".into(), "default-deny".into()), deny);
    let attempt = Attempt {
        from: "10.244.0.0".parse().unwrap(),
        to: "10.244.0.1".parse().unwrap(),
        protocol: Protocol::Tcp,
        port: 80,
    };
    let said = |world: &World| -> Vec<String> {
        world
            .evaluate(&attempt)
            .reasons
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        said(&world),
        [
            "egress of the client: no policy selects it, so everything is allowed",
            "ingress of the server: denied, because a/default-deny select it and no rule of theirs allows this",
        ]
    );
    let allow = json!({ "spec": { "podSelector": {}, "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "client" } } }] }] } });
    let allow = Policy::of(&serde_json::from_value(allow).unwrap());
    world
        .policies
        .insert(("a".into(), "let-client".into()), allow);
    assert_eq!(
        said(&world)[1],
        "ingress of the server: allowed by policy a/let-client, rule 1"
    );
}
