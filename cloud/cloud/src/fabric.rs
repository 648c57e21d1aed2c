//! What carries packets needs to know. Here of load balancers: each rule with the address it is for, the machines behind
//! it and how to find out whether they are well. Pure, but for the door it looks through.
//!
//! ```text
//! networks   cards, peers and ways         security   rules of security groups, and what they mean
//! names      what networks call things
//! ```

pub(crate) mod names;
mod networks;
mod security;
mod spans;

pub use names::{Says, Zone, ZoneRecord};
pub use networks::{Card, Gate, Hop, Peer, Routes, VirtualNetwork};
pub use security::{Packet, SecurityRule, allows};
pub use spans::Spans;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use crate::Error;
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::door::Door;
use crate::providers::compute;
use crate::providers::containers::{self, Adopted};
use crate::region::Node;
use crate::turn::Turn;

/// A protocol that is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Every protocol, and every port of those that have some.
    All,
}

/// What packets of one client have in common that go to the same machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// Both addresses, and with Azure's third kind the protocol: the same, as a rule has one protocol.
    Source,
}

/// How a machine is asked whether it is well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probe {
    /// For HTTP: the path that must be answered with 200. Otherwise the port only has to be open.
    pub path: Option<String>,
    /// The machine's port.
    pub port: u16,
    /// How often.
    pub interval: Duration,
    /// How many answers of a kind change what is thought of it.
    pub threshold: u32,
}

/// A rule of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its resource id.
    pub id: String,
    /// The address that it is for.
    pub frontend: Ipv4Addr,
    /// Whether that is an address of the Internet, not one of the machines' network.
    pub is_public: bool,
    /// Which packets.
    pub protocol: Protocol,
    /// The port that it is for; none, where it is for all.
    pub frontend_port: u16,
    /// The port of the machines; none, where it is the same.
    pub backend_port: u16,
    /// Whether machines see the frontend's address rather than their own.
    pub is_floating: bool,
    /// Which packets stay together.
    pub distribution: Distribution,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How machines are asked; without one all of them are well.
    pub probe: Option<Probe>,
    /// The machines.
    pub backends: Vec<Node>,
}

/// A cloud's load balancers, for whoever carries packets; and what its clusters need to ask for them.
#[derive(Debug, Clone)]
pub struct Fabric(pub(crate) Arc<Door>);

impl Fabric {
    /// Every rule of every load balancer, as it is now.
    pub fn rules(&self) -> Vec<Rule> {
        self.0.look(|turn| rules(turn))
    }

    /// Public addresses that are a machine's own, with that machine.
    pub fn attached(&self) -> Vec<(Ipv4Addr, Node)> {
        self.0.look(|turn| attached(turn))
    }

    /// Every virtual network, as it is now.
    pub fn networks(&self) -> Vec<VirtualNetwork> {
        self.0.look(|turn| networks::networks(turn))
    }

    /// Tells when resources have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Makes a cluster known that runs already, or what has become of it; gives its resource id.
    pub async fn adopt(&self, adopted: &Adopted) -> Result<String, Error> {
        let decided = self.0.decide(|turn| {
            let outcome = containers::adopt(turn, adopted);
            if outcome.is_err() {
                turn.forget();
            }
            outcome
        });
        let refused = |fault: Fault| Error::Refused(fault.message);
        decided.await.map_err(refused)?.map_err(refused)
    }

    /// The machines of a cluster.
    pub fn machines(&self, cluster: &str) -> Vec<Node> {
        let found = |turn: &Turn<'_>| {
            let cluster = document::get(turn, cluster)?;
            Some(containers::machines(turn, &cluster))
        };
        self.0.look(|turn| found(turn)).unwrap_or_default()
    }

    /// The azure.json of a cluster's cloud controllers.
    pub fn cloud_config(&self, cluster: &str) -> Option<Value> {
        self.0.look(|turn| containers::cloud_config(turn, cluster))
    }
}

/// Pools by their ids in lower case.
type Pools = BTreeMap<String, Vec<Node>>;

fn rules(turn: &Turn<'_>) -> Vec<Rule> {
    let scope = format!("/subscriptions/{}", turn.settings.subscription);
    let balancers = document::of_kind(turn, &scope, "Microsoft.Network/loadBalancers");
    let has_rules = |d: &&Document| !list(&d.body["properties"]["loadBalancingRules"]).is_empty();
    let balancers: Vec<&Document> = balancers.iter().filter(has_rules).collect();
    if balancers.is_empty() {
        return Vec::new();
    }
    let (nodes, cards) = machines(turn, &scope);
    let address = |id: &str| address(turn, id);
    let of = |balancer: &&Document| {
        let pools = with_addresses(&balancer.body, &nodes, cards.clone());
        of_balancer(&balancer.body, address, &pools)
    };
    balancers.iter().flat_map(of).collect()
}

/// The address that a public address has just now.
fn address(turn: &Turn<'_>, id: &str) -> Option<Ipv4Addr> {
    let found = document::get(turn, id)?;
    found.body["properties"]["ipAddress"].as_str()?.parse().ok()
}

fn attached(turn: &Turn<'_>) -> Vec<(Ipv4Addr, Node)> {
    let scope = format!("/subscriptions/{}", turn.settings.subscription);
    let machines = document::of_kind(turn, &scope, "Microsoft.Compute/virtualMachines");
    let own = |machine: &Document| {
        let card = &machine.body["properties"]["networkProfile"]["networkInterfaces"][0];
        let card = document::get(turn, card["id"].as_str()?)?;
        let first = &card.body["properties"]["ipConfigurations"][0]["properties"];
        let address = address(turn, first["publicIPAddress"]["id"].as_str()?)?;
        Some((address, compute::machine_node(turn, machine)))
    };
    machines.iter().filter_map(own).collect()
}

/// Every machine, and those whose cards are in pools.
fn machines(turn: &Turn<'_>, scope: &str) -> (Vec<Node>, Pools) {
    let (mut nodes, mut pools) = (Vec::new(), Pools::new());
    let mut add = |node: Node, cards: &Value| {
        for pool in pools_of(cards) {
            pools.entry(pool).or_default().push(node.clone());
        }
        nodes.push(node);
    };
    let sets = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";
    for one in document::of_kind(turn, scope, sets) {
        let model = &one.body["properties"]["networkProfileConfiguration"];
        add(
            compute::instance_node(turn, &one, ""),
            &model["networkInterfaceConfigurations"],
        );
    }
    for one in document::of_kind(turn, scope, "Microsoft.Compute/virtualMachines") {
        let used = &one.body["properties"]["networkProfile"]["networkInterfaces"];
        let cards = list(used)
            .iter()
            .filter_map(|card| document::get(turn, card["id"].as_str()?));
        let cards: Value = cards.map(|card| card.body).collect();
        add(compute::machine_node(turn, &one), &cards);
    }
    (nodes, pools)
}

/// The pools that the first address of the first card is in.
fn pools_of(cards: &Value) -> Vec<String> {
    let own = &cards[0]["properties"]["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"];
    let ids = list(own).iter().filter_map(|pool| pool["id"].as_str());
    ids.map(str::to_lowercase).collect()
}

/// Adds the machines that a balancer's pools name by their addresses.
fn with_addresses(balancer: &Value, nodes: &[Node], mut pools: Pools) -> Pools {
    for pool in list(&balancer["properties"]["backendAddressPools"]) {
        let Some(id) = pool["id"].as_str() else {
            continue;
        };
        let network = pool["properties"]["virtualNetwork"]["id"].as_str();
        for member in list(&pool["properties"]["loadBalancerBackendAddresses"]) {
            let member = &member["properties"];
            let address: Option<Ipv4Addr> =
                member["ipAddress"].as_str().and_then(|a| a.parse().ok());
            let network = member["virtualNetwork"]["id"].as_str().or(network);
            let is_it = |node: &&Node| {
                let own = node.network.as_deref().unwrap_or_default();
                node.address == address && network.is_none_or(|id| id.eq_ignore_ascii_case(own))
            };
            let found = nodes.iter().find(|node| address.is_some() && is_it(node));
            pools
                .entry(id.to_lowercase())
                .or_default()
                .extend(found.cloned());
        }
    }
    pools
}

/// The rules of one balancer. A rule that leads nowhere, or that is not carried here, is none: IPv6.
fn of_balancer(
    body: &Value,
    address: impl Fn(&str) -> Option<Ipv4Addr>,
    pools: &Pools,
) -> Vec<Rule> {
    let properties = &body["properties"];
    let part = |field: &str, reference: &Value| -> Option<Value> {
        let id = reference["id"].as_str()?;
        let found = list(&properties[field]).iter();
        found
            .clone()
            .find(|part| {
                part["id"]
                    .as_str()
                    .is_some_and(|own| own.eq_ignore_ascii_case(id))
            })
            .cloned()
    };
    let rule = |rule: &Value| {
        let own = &rule["properties"];
        let protocol = match own["protocol"].as_str()?.to_lowercase().as_str() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "all" => Protocol::All,
            _ => return None,
        };
        let port = |value: &Value| match protocol {
            Protocol::All => (value == 0).then_some(0),
            _ => port(value),
        };
        let front = part("frontendIPConfigurations", &own["frontendIPConfiguration"])?;
        let front = &front["properties"];
        let public = front["publicIPAddress"]["id"].as_str();
        let frontend = match public {
            Some(id) => address(id),
            None => front["privateIPAddress"]
                .as_str()
                .and_then(|a| a.parse().ok()),
        };
        let pool = own["backendAddressPool"]["id"].as_str().unwrap_or_default();
        let source = own["loadDistribution"]
            .as_str()
            .is_some_and(|d| d != "Default");
        Some(Rule {
            id: rule["id"].as_str().unwrap_or_default().to_owned(),
            frontend: frontend?,
            is_public: public.is_some(),
            protocol,
            frontend_port: port(&own["frontendPort"])?,
            backend_port: port(&own["backendPort"])?,
            is_floating: own["enableFloatingIP"] == true,
            distribution: if source {
                Distribution::Source
            } else {
                Distribution::FiveTuple
            },
            idle: Duration::from_secs(own["idleTimeoutInMinutes"].as_u64().unwrap_or(4) * 60),
            probe: part("probes", &own["probe"]).and_then(|probe| probe_of(&probe["properties"])),
            backends: pools.get(&pool.to_lowercase()).cloned().unwrap_or_default(),
        })
    };
    list(&properties["loadBalancingRules"])
        .iter()
        .filter_map(rule)
        .collect()
}

fn probe_of(probe: &Value) -> Option<Probe> {
    let number = |field: &str| probe[field].as_u64().filter(|n| *n > 0);
    // With HTTPS too only the port is tried: what its certificate says is not ours to judge.
    let is_http = probe["protocol"]
        .as_str()
        .is_some_and(|p| p.eq_ignore_ascii_case("http"));
    Some(Probe {
        path: is_http.then(|| probe["requestPath"].as_str().unwrap_or("/").to_owned()),
        port: port(&probe["port"])?,
        interval: Duration::from_secs(number("intervalInSeconds").unwrap_or(15)),
        threshold: number("probeThreshold")
            .and_then(|n| n.try_into().ok())
            .unwrap_or(1),
    })
}

fn port(value: &Value) -> Option<u16> {
    value
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(number: u8) -> Node {
        Node {
            id: format!("/s/virtualMachines/{number}"),
            name: format!("n{number}"),
            pool: String::new(),
            address: Some(Ipv4Addr::new(10, 224, 0, number)),
            subnet: None,
            network: Some("/subscriptions/s/net".into()),
            zone: None,
        }
    }

    fn balancer(rule: &Value, front: &Value, probe: &Value) -> Value {
        let mut properties = json!({"protocol": "Tcp", "frontendPort": 80, "backendPort": 80, "enableFloatingIP": true,
            "loadDistribution": "Default", "idleTimeoutInMinutes": 5, "frontendIPConfiguration": {"id": "/LB/fronts/f"},
            "backendAddressPool": {"id": "/LB/pools/P"}, "probe": {"id": "/lb/probes/p"}});
        document::overlay(&mut properties, rule);
        json!({"properties": {
            "frontendIPConfigurations": [{"id": "/lb/fronts/f", "properties": front}],
            "backendAddressPools": [{"id": "/lb/pools/p", "properties": {}}],
            "loadBalancingRules": [{"id": "/lb/rules/r", "properties": properties}],
            "probes": [{"id": "/lb/probes/p", "properties": probe}]}})
    }

    fn of(rule: &Value, front: &Value, probe: &Value) -> Vec<Rule> {
        let address = |id: &str| (id == "/ip").then(|| Ipv4Addr::new(198, 18, 4, 4));
        let pools = Pools::from([("/lb/pools/p".to_owned(), vec![node(4), node(5)])]);
        of_balancer(&balancer(rule, front, probe), address, &pools)
    }

    #[test]
    fn a_rule_knows_its_address_its_machines_and_its_probe() {
        let public = json!({"publicIPAddress": {"id": "/ip"}});
        let tcp =
            json!({"protocol": "Tcp", "port": 30080, "intervalInSeconds": 5, "probeThreshold": 2});
        let found = of(&json!({}), &public, &tcp);
        let [rule] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(rule.frontend, Ipv4Addr::new(198, 18, 4, 4));
        assert!(rule.is_public && rule.is_floating);
        assert_eq!(rule.idle, Duration::from_secs(300));
        assert_eq!(rule.distribution, Distribution::FiveTuple);
        assert_eq!(rule.backends.len(), 2);
        let probe = rule.probe.as_ref().expect("it has one");
        assert_eq!(
            (probe.port, probe.threshold, &probe.path),
            (30080, 2, &None)
        );
    }

    #[test]
    fn what_rules_say_and_what_becomes_of_it() {
        let public = json!({"publicIPAddress": {"id": "/ip"}});
        let internal = json!({"privateIPAddress": "10.224.0.100"});
        let http = json!({"protocol": "Http", "port": 1, "requestPath": "/healthz"});
        let one = |rule: Value, front: &Value| of(&rule, front, &http).pop();
        let inside = one(json!({}), &internal).expect("a rule");
        assert_eq!(
            (inside.frontend, inside.is_public),
            (Ipv4Addr::new(10, 224, 0, 100), false)
        );
        assert_eq!(
            inside.probe.and_then(|probe| probe.path).as_deref(),
            Some("/healthz")
        );
        let sticky = one(
            json!({"loadDistribution": "SourceIP", "protocol": "Udp"}),
            &public,
        )
        .expect("a rule");
        assert_eq!(
            (sticky.distribution, sticky.protocol),
            (Distribution::Source, Protocol::Udp)
        );
        for nowhere in [
            json!({"protocol": "All"}),
            json!({"frontendPort": 0}),
            json!({"frontendIPConfiguration": {"id": "/lb/fronts/other"}}),
        ] {
            assert_eq!(one(nowhere.clone(), &public), None, "{nowhere}");
        }
        let every = json!({"protocol": "All", "frontendPort": 0, "backendPort": 0});
        let every = one(every, &internal).expect("a rule");
        assert_eq!((every.protocol, every.frontend_port), (Protocol::All, 0));
        assert_eq!(
            one(json!({}), &json!({"publicIPAddress": {"id": "/gone"}})),
            None
        );
        assert_eq!(
            one(json!({"probe": {"id": "/none"}}), &public)
                .expect("a rule")
                .probe,
            None
        );
        assert_eq!(
            one(json!({"backendAddressPool": {"id": "/x"}}), &public)
                .expect("a rule")
                .backends,
            []
        );
    }

    #[test]
    fn pools_may_name_machines_by_their_addresses() {
        let member = |address: &str| json!({"properties": {"ipAddress": address}});
        let pool = |network: &str| {
            json!({"properties": {"backendAddressPools": [{"id": "/LB/p", "properties": {
                "virtualNetwork": {"id": network},
                "loadBalancerBackendAddresses": [member("10.224.0.5"), member("10.9.9.9")]}}]}})
        };
        let nodes = [node(4), node(5)];
        let found = with_addresses(&pool("/SUBSCRIPTIONS/s/net"), &nodes, Pools::new());
        assert_eq!(found["/lb/p"], [node(5)]);
        let other = with_addresses(&pool("/subscriptions/s/other"), &nodes, Pools::new());
        assert!(other["/lb/p"].is_empty());
    }
}
