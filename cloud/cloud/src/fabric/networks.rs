//! Virtual networks, as whoever carries packets needs them: their machines' cards, what these let in and out, which ways
//! packets take, and which networks they reach. Pure, but for the turn it looks through.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::list;
use super::names::{self, Zone};
use super::security::{SecurityRule, Words};
use super::spans::Spans;
use crate::arm::document::Document;
use crate::arm::id::{self, Id};
use crate::providers::compute;
use crate::region::Node;
use crate::turn::Turn;

/// Addresses that every network has without any route.
const EVERYWHERE: [Ipv4Addr; 2] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(169, 254, 169, 254),
];

/// A virtual network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualNetwork {
    /// Its resource id, in lower case.
    pub id: String,
    /// Its addresses.
    pub space: Vec<Ipv4Net>,
    /// Its machines' cards.
    pub cards: Vec<Card>,
    /// The networks that it reaches.
    pub peers: Vec<Peer>,
    /// The names that it knows.
    pub zones: Vec<Zone>,
}

/// Another network that packets go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its resource id, in lower case.
    pub network: String,
    /// Its addresses.
    pub space: Vec<Ipv4Net>,
    /// Whether packets may come from there that others sent.
    pub takes_forwarded: bool,
}

/// A machine's card in a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Whose it is.
    pub node: Node,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its subnet's resource id, in lower case.
    pub subnet: String,
    /// What packets to it must get through, in this order.
    pub inbound: Vec<Arc<Gate>>,
    /// What packets from it must get through, in this order.
    pub outbound: Vec<Arc<Gate>>,
    /// The ways of packets from it, where a route table says so.
    pub routes: Option<Arc<Routes>>,
    /// Whether it gets and sends what is not its own.
    pub forwards: bool,
}

/// One direction of a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The group's resource id, in lower case.
    pub group: String,
    /// Its rules, in the order in which they decide.
    pub rules: Vec<SecurityRule>,
}

/// Ways by where packets go; the longest range decides.
pub type Routes = BTreeMap<Ipv4Net, Hop>;

/// Where a packet goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// To the card that has this address.
    Machine(Ipv4Addr),
    /// Where it would go without a route table.
    Usual,
    /// Nowhere.
    Nowhere,
}

/// Every resource of the subscription, by its type and its id in lower case.
pub(super) struct Everything(BTreeMap<String, BTreeMap<String, Document>>);

impl Everything {
    fn read(turn: &Turn<'_>) -> Everything {
        let scope = format!("/subscriptions/{}", turn.settings.subscription);
        let mut all: BTreeMap<String, BTreeMap<String, Document>> = BTreeMap::new();
        for (_, entry) in turn.under(&format!("{}/", id::key(&scope))) {
            let document = Document::read(entry);
            if let Some(id) = Id::parse(document.id()) {
                let kind = all.entry(id.kind().to_lowercase()).or_default();
                kind.insert(document.id().to_lowercase(), document);
            }
        }
        Everything(all)
    }

    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = &Document> {
        let kind = self.0.get(&kind.to_lowercase());
        kind.into_iter().flat_map(BTreeMap::values)
    }

    fn find(&self, kind: &str, id: &str) -> Option<&Document> {
        self.0.get(&kind.to_lowercase())?.get(&id.to_lowercase())
    }
}

/// A card as its documents have it.
struct Raw {
    node: Node,
    address: Ipv4Addr,
    subnet: String,
    group: Option<String>,
    forwards: bool,
}

pub(super) fn networks(turn: &Turn<'_>) -> Vec<VirtualNetwork> {
    let all = Everything::read(turn);
    let cards = cards(turn, &all);
    let networks = all.of("Microsoft.Network/virtualNetworks");
    networks
        .map(|network| Reader::new(&all, network, &cards).network())
        .collect()
}

fn cards(turn: &Turn<'_>, all: &Everything) -> Vec<Raw> {
    let mut found = Vec::new();
    for machine in all.of("Microsoft.Compute/virtualMachines") {
        let card = &machine.body["properties"]["networkProfile"]["networkInterfaces"][0];
        let card = card["id"].as_str();
        let card = card.and_then(|id| all.find("Microsoft.Network/networkInterfaces", id));
        found.extend(card.and_then(|card| {
            let forwards = card.body["properties"]["enableIPForwarding"] == true;
            raw(compute::machine_node(turn, machine), &card.body, forwards)
        }));
    }
    for one in all.of("Microsoft.Compute/virtualMachineScaleSets/virtualMachines") {
        let model = &one.body["properties"]["networkProfileConfiguration"];
        let card = &model["networkInterfaceConfigurations"][0];
        let node = compute::instance_node(turn, one, "");
        // Nodes have pods behind them.
        let mut own = raw(node, card, true);
        if let (Some(own), Some(subnet)) = (&mut own, one.hidden["subnet"].as_str()) {
            own.subnet = subnet.to_lowercase();
        }
        found.extend(own);
    }
    found
}

fn raw(node: Node, card: &Value, forwards: bool) -> Option<Raw> {
    let properties = &card["properties"];
    let subnet = &properties["ipConfigurations"][0]["properties"]["subnet"]["id"];
    Some(Raw {
        address: node.address?,
        node,
        subnet: subnet.as_str().unwrap_or_default().to_lowercase(),
        group: lower(&properties["networkSecurityGroup"]["id"]),
        forwards,
    })
}

fn lower(value: &Value) -> Option<String> {
    value.as_str().map(str::to_lowercase)
}

fn nets(values: &Value) -> Vec<Ipv4Net> {
    let texts = list(values).iter().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Whoever reads one network.
struct Reader<'a> {
    all: &'a Everything,
    body: &'a Value,
    id: String,
    space: Vec<Ipv4Net>,
    peers: Vec<Peer>,
    /// The pods of clusters whose nodes are in it: an overlay that only it knows.
    pods: Vec<Ipv4Net>,
    words: Words,
    cards: Vec<&'a Raw>,
}

impl<'a> Reader<'a> {
    fn new(all: &'a Everything, network: &'a Document, cards: &'a [Raw]) -> Reader<'a> {
        let id = network.id().to_lowercase();
        let within = format!("{id}/subnets/");
        let cards: Vec<&Raw> = cards
            .iter()
            .filter(|card| card.subnet.starts_with(&within))
            .collect();
        let space = nets(&network.body["properties"]["addressSpace"]["addressPrefixes"]);
        let peers = peers(all, network);
        let pods = pods(all, &cards);
        let known = peers.iter().flat_map(|peer| &peer.space);
        let words = Words {
            network: Spans::of_nets(space.iter().chain(known).chain(&pods)),
            applications: applications(all),
        };
        Reader {
            all,
            body: &network.body,
            id,
            space,
            peers,
            pods,
            words,
            cards,
        }
    }

    fn network(self) -> VirtualNetwork {
        let mut gates = BTreeMap::new();
        let mut routes = BTreeMap::new();
        let cards = self.cards.iter();
        let cards = cards.map(|raw| self.card(raw, &mut gates, &mut routes));
        let cards: Vec<Card> = cards.collect();
        VirtualNetwork {
            zones: names::zones(self.all, &self.id, &cards),
            cards,
            id: self.id.clone(),
            space: self.space.clone(),
            peers: self.peers.clone(),
        }
    }

    fn card(
        &self,
        raw: &Raw,
        gates: &mut BTreeMap<(String, &'static str), Arc<Gate>>,
        routes: &mut BTreeMap<String, Option<Arc<Routes>>>,
    ) -> Card {
        let subnets = list(&self.body["properties"]["subnets"]).iter();
        let mut subnets = subnets.filter(|subnet| lower(&subnet["id"]) == Some(raw.subnet.clone()));
        let subnet = subnets.next().map(|subnet| &subnet["properties"]);
        let group = subnet.and_then(|subnet| lower(&subnet["networkSecurityGroup"]["id"]));
        let mut gate = |group: &Option<String>, direction: &'static str| {
            let group = group.clone()?;
            let found = self.all.find(GROUP, &group)?;
            let gate = gates.entry((group.clone(), direction)).or_insert_with(|| {
                let rules = self.words.rules(&found.body, direction);
                Arc::new(Gate { group, rules })
            });
            Some(Arc::clone(gate))
        };
        let inbound = [gate(&group, "Inbound"), gate(&raw.group, "Inbound")];
        let outbound = [gate(&raw.group, "Outbound"), gate(&group, "Outbound")];
        let table = subnet.and_then(|subnet| subnet["routeTable"]["id"].as_str());
        let routes = routes
            .entry(raw.subnet.clone())
            .or_insert_with(|| table.and_then(|id| self.routes(id)));
        Card {
            node: raw.node.clone(),
            address: raw.address,
            subnet: raw.subnet.clone(),
            inbound: inbound.into_iter().flatten().collect(),
            outbound: outbound.into_iter().flatten().collect(),
            routes: routes.clone(),
            forwards: raw.forwards,
        }
    }

    /// The routes of a table, beside those that every subnet has: which of all is the longest decides.
    fn routes(&self, table: &str) -> Option<Arc<Routes>> {
        let table = self.all.find("Microsoft.Network/routeTables", table)?;
        let peers = self.peers.iter().flat_map(|peer| &peer.space);
        let usual = self.space.iter().chain(peers).chain(&self.pods).copied();
        let usual = usual.chain(EVERYWHERE.map(Ipv4Net::from));
        let mut routes: Routes = usual.map(|net| (net, Hop::Usual)).collect();
        let own = list(&table.body["properties"]["routes"]).iter();
        routes.extend(own.filter_map(|route| self.route(&route["properties"])));
        Some(Arc::new(routes))
    }

    fn route(&self, route: &Value) -> Option<(Ipv4Net, Hop)> {
        let to = route["addressPrefix"].as_str()?.parse().ok()?;
        let hop = match route["nextHopType"].as_str()?.to_lowercase().as_str() {
            "vnetlocal" | "internet" => Hop::Usual,
            "virtualappliance" => {
                let next: Ipv4Addr = route["nextHopIpAddress"].as_str()?.parse().ok()?;
                let is_here = self.space.iter().any(|net| net.contains(&next));
                match is_here {
                    true => Hop::Machine(next),
                    // Packets for one machine cannot be told to go by another one of a network beside.
                    false => Hop::Nowhere,
                }
            }
            // There are no gateways.
            _ => Hop::Nowhere,
        };
        Some((to, hop))
    }
}

const GROUP: &str = "Microsoft.Network/networkSecurityGroups";

/// The networks that a network reaches: those that want it, too.
fn peers(all: &Everything, network: &Document) -> Vec<Peer> {
    let own = network.id();
    let peerings = list(&network.body["properties"]["virtualNetworkPeerings"]).iter();
    let connected = peerings.filter_map(|peering| {
        let properties = &peering["properties"];
        let remote = properties["remoteVirtualNetwork"]["id"].as_str()?;
        let remote = all.find("Microsoft.Network/virtualNetworks", remote)?;
        let back = list(&remote.body["properties"]["virtualNetworkPeerings"]).iter();
        let back = back.map(|back| &back["properties"]).find(|back| {
            let id = back["remoteVirtualNetwork"]["id"].as_str();
            id.is_some_and(|id| id.eq_ignore_ascii_case(own))
        })?;
        let is_open = |peering: &Value| peering["allowVirtualNetworkAccess"] != false;
        (is_open(properties) && is_open(back)).then(|| Peer {
            network: remote.id().to_lowercase(),
            space: nets(&remote.body["properties"]["addressSpace"]["addressPrefixes"]),
            takes_forwarded: properties["allowForwardedTraffic"] == true,
        })
    });
    connected.collect()
}

/// Members of application security groups.
fn applications(all: &Everything) -> BTreeMap<String, Vec<Ipv4Addr>> {
    let mut members: BTreeMap<String, Vec<Ipv4Addr>> = BTreeMap::new();
    for card in all.of("Microsoft.Network/networkInterfaces") {
        for configuration in list(&card.body["properties"]["ipConfigurations"]) {
            let properties = &configuration["properties"];
            let address = properties["privateIPAddress"].as_str();
            let Some(address) = address.and_then(|text| text.parse().ok()) else {
                continue;
            };
            for group in list(&properties["applicationSecurityGroups"]) {
                let group = lower(&group["id"]).unwrap_or_default();
                members.entry(group).or_default().push(address);
            }
        }
    }
    members
}

/// The ranges of pods behind a network's nodes.
fn pods(all: &Everything, cards: &[&Raw]) -> Vec<Ipv4Net> {
    let clusters = all.of("Microsoft.ContainerService/managedClusters");
    let its = clusters.filter_map(|cluster| {
        let properties = &cluster.body["properties"];
        let group = properties["nodeResourceGroup"].as_str()?;
        let group = format!("/resourcegroups/{}/", group.to_lowercase());
        let is_its = |card: &&Raw| card.node.id.to_lowercase().contains(&group);
        cards.iter().any(is_its).then_some(())?;
        properties["networkProfile"]["podCidr"]
            .as_str()?
            .parse()
            .ok()
    });
    its.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::names::Says;
    use super::*;
    use crate::arena::Arena;

    const N: &str = "/resourceGroups/g/providers/Microsoft.Network";
    const C: &str = "/resourceGroups/g/providers/Microsoft.Compute";

    struct World {
        arena: Arena,
        scope: String,
    }

    impl World {
        fn new() -> World {
            let mut arena = Arena::new();
            arena.group("g");
            let scope = format!("/subscriptions/{}", arena.settings.subscription);
            World { arena, scope }
        }

        fn put(&mut self, path: &str, mut body: Value) {
            if !path.contains("virtualNetworkPeerings") && !path.contains("/A/") {
                body["location"] = json!("eastus");
            }
            let (status, code) = self.arena.done("PUT", path, body);
            assert!(status < 300, "{path}: {status} {code}");
        }

        fn id(&self, path: &str) -> Value {
            json!({"id": format!("{}{path}", self.scope)})
        }

        fn networks(&mut self) -> Vec<VirtualNetwork> {
            self.arena.turn(|turn| networks(turn))
        }

        fn machine(&mut self, name: &str, subnet: &str) {
            let subnet = self.id(&format!("{N}/virtualNetworks/{subnet}"));
            let group = self.id(&format!("{N}/networkSecurityGroups/own"));
            self.put(
                &format!("{N}/networkInterfaces/{name}"),
                json!({"properties": {"networkSecurityGroup": group,
                    "ipConfigurations": [{"name": "one", "properties": {"subnet": subnet}}]}}),
            );
            let card = self.id(&format!("{N}/networkInterfaces/{name}"));
            self.put(
                &format!("{C}/virtualMachines/{name}"),
                json!({"properties": {"hardwareProfile": {"vmSize": "Standard_D2s_v3"},
                    "networkProfile": {"networkInterfaces": [card]}}}),
            );
        }
    }

    fn world() -> World {
        let mut world = World::new();
        for group in ["own", "all"] {
            world.put(&format!("{N}/networkSecurityGroups/{group}"), json!({}));
        }
        let route = |to: &str, kind: &str, next: Option<&str>| {
            json!({"name": to.replace('/', "-"), "properties":
            {"addressPrefix": to, "nextHopType": kind, "nextHopIpAddress": next}})
        };
        let routes = json!([
            route("10.1.2.0/24", "VirtualAppliance", Some("10.1.0.9")),
            route("0.0.0.0/0", "None", None),
            route("10.9.0.0/16", "VirtualAppliance", Some("10.2.0.9")),
        ]);
        world.put(
            &format!("{N}/routeTables/r"),
            json!({"properties": {"routes": routes}}),
        );
        let (group, table) = (
            world.id(&format!("{N}/networkSecurityGroups/all")),
            world.id(&format!("{N}/routeTables/r")),
        );
        for (name, number) in [("v1", 1), ("v2", 2)] {
            let space = format!("10.{number}.0.0/16");
            let subnet = json!({"addressPrefix": format!("10.{number}.0.0/24"), "networkSecurityGroup": group,
                "routeTable": table});
            world.put(
                &format!("{N}/virtualNetworks/{name}"),
                json!({"properties": {"addressSpace": {"addressPrefixes": [space]},
                    "subnets": [{"name": "s", "properties": subnet}]}}),
            );
        }
        world.machine("m", "v1/subnets/s");
        world
    }

    fn peer(world: &mut World, from: &str, to: &str) {
        let remote = world.id(&format!("{N}/virtualNetworks/{to}"));
        world.put(
            &format!("{N}/virtualNetworks/{from}/virtualNetworkPeerings/{to}"),
            json!({"properties": {"remoteVirtualNetwork": remote}}),
        );
    }

    #[test]
    fn a_card_has_its_subnets_gates_and_its_own_and_the_ways_of_its_subnet() {
        let mut world = world();
        let networks = world.networks();
        let [card] = networks[0].cards.as_slice() else {
            panic!("{networks:?}");
        };
        assert_eq!(card.address, Ipv4Addr::new(10, 1, 0, 4));
        let names = |gates: &[Arc<Gate>]| -> Vec<String> {
            let last = |gate: &Arc<Gate>| gate.group.rsplit('/').next().map(str::to_owned);
            gates.iter().filter_map(last).collect()
        };
        assert_eq!(names(&card.inbound), ["all", "own"]);
        assert_eq!(names(&card.outbound), ["own", "all"]);
        assert_eq!(card.inbound[0].rules.len(), 3, "those that all have");
        let routes = card.routes.as_deref().expect("routes");
        let way = |to: &str| routes.get(&to.parse::<Ipv4Net>().expect("a network"));
        let next = Hop::Machine(Ipv4Addr::new(10, 1, 0, 9));
        assert_eq!(way("10.1.2.0/24"), Some(&next));
        assert_eq!(way("10.1.0.0/16"), Some(&Hop::Usual));
        assert_eq!(way("0.0.0.0/0"), Some(&Hop::Nowhere));
        assert_eq!(
            way("10.9.0.0/16"),
            Some(&Hop::Nowhere),
            "in no network of ours"
        );
        assert!(!card.forwards);
    }

    #[test]
    fn networks_reach_each_other_when_both_want_to() {
        let mut world = world();
        peer(&mut world, "v1", "v2");
        assert!(
            world
                .networks()
                .iter()
                .all(|network| network.peers.is_empty())
        );
        peer(&mut world, "v2", "v1");
        let networks = world.networks();
        let reached = &networks[0].peers[0];
        assert!(
            reached.network.ends_with("/virtualnetworks/v2"),
            "{reached:?}"
        );
        assert_eq!(reached.space, ["10.2.0.0/16".parse().expect("a network")]);
        assert!(!reached.takes_forwarded);
        let ours = &networks[0].cards[0].inbound[0].rules[0];
        assert!(ours.from.contains(Ipv4Addr::new(10, 2, 3, 4).into()));
        let state = |world: &mut World| {
            let path = format!("{N}/virtualNetworks/v1/virtualNetworkPeerings/v2");
            let reply = world.arena.ask("GET", &path, Value::Null);
            reply.document()["properties"]["peeringState"].clone()
        };
        assert_eq!(state(&mut world), "Connected");
        let back = format!("{N}/virtualNetworks/v2/virtualNetworkPeerings/v1");
        world.arena.done("DELETE", &back, Value::Null);
        assert_eq!(state(&mut world), "Disconnected");
        assert!(world.networks()[0].peers.is_empty());
    }

    #[test]
    fn zones_are_known_where_they_are_linked_and_machines_everywhere() {
        let mut world = world();
        let network = world.id(&format!("{N}/virtualNetworks/v1"));
        world.put(&format!("{N}/privateDnsZones/corp.example"), json!({}));
        world.put(
            &format!("{N}/privateDnsZones/corp.example/A/db"),
            json!({"properties": {"ttl": 60, "aRecords": [{"ipv4Address": "10.1.0.7"}]}}),
        );
        world.put(
            &format!("{N}/privateDnsZones/corp.example/virtualNetworkLinks/l"),
            json!({"properties": {"virtualNetwork": network, "registrationEnabled": true}}),
        );
        let networks = world.networks();
        let find = |network: &VirtualNetwork, name: &str| {
            let all = network.zones.iter().flat_map(|zone| &zone.records);
            all.clone()
                .find(|record| record.name == name)
                .map(|record| record.says.clone())
        };
        let address = |last: u8| Some(Says::Address(Ipv4Addr::new(10, 1, 0, last)));
        for (name, says) in [
            ("db.corp.example", address(7)),
            ("m.corp.example", address(4)),
            ("m", address(4)),
        ] {
            assert_eq!(find(&networks[0], name), says, "{name}");
            assert_eq!(find(&networks[1], name), None, "{name}");
        }
    }
}
