//! Security groups, as whoever drops packets needs them: rules in the order in which they decide, with addresses in the
//! place of words. [`allows`] is what they mean; whoever does it otherwise is compared with it. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::list;
use super::spans::Spans;

/// The platform's own address: what it asks machines comes from there.
const PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
/// What is nowhere in the Internet: private addresses, those of links, of this machine, of many at once.
const NOT_INTERNET: [(Ipv4Addr, u8); 8] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (PLATFORM, 32),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];
/// What rules call protocols, and their numbers.
const PROTOCOLS: [(&str, u8); 5] = [
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("esp", 50),
    ("ah", 51),
];

/// The first packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Its protocol's number.
    pub protocol: u8,
    /// Who sends it.
    pub from: Ipv4Addr,
    /// Who gets it.
    pub to: Ipv4Addr,
    /// The ports of both; TCP and UDP have them.
    pub ports: Option<(u16, u16)>,
}

/// A rule of a security group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityRule {
    /// Its name.
    pub name: String,
    /// Whether it lets packets through.
    pub allows: bool,
    /// The number of the only protocol that it is about.
    pub protocol: Option<u8>,
    /// Senders.
    pub from: Spans,
    /// Their ports.
    pub from_ports: Spans,
    /// Receivers.
    pub to: Spans,
    /// Their ports.
    pub to_ports: Spans,
}

impl SecurityRule {
    /// Whether it is about any port: of protocols without ports it says something only then.
    pub fn has_any_port(&self) -> bool {
        self.from_ports == Spans::all_ports() && self.to_ports == Spans::all_ports()
    }

    /// Whether it decides about a packet.
    pub fn matches(&self, packet: &Packet) -> bool {
        let has_ports = match packet.ports {
            Some((from, to)) => {
                self.from_ports.contains(from.into()) && self.to_ports.contains(to.into())
            }
            None => self.has_any_port(),
        };
        has_ports
            && self.protocol.is_none_or(|own| own == packet.protocol)
            && self.from.contains(packet.from.into())
            && self.to.contains(packet.to.into())
    }
}

/// Whether rules let a connection begin: the first that is about it decides, and where none is, it does not.
pub fn allows(rules: &[SecurityRule], packet: &Packet) -> bool {
    let decides = rules.iter().find(|rule| rule.matches(packet));
    decides.is_some_and(|rule| rule.allows)
}

/// What words in rules stand for, in one network.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// The network's own addresses and those of its peers.
    pub(super) network: Spans,
    /// Members of application security groups, by the groups' ids in lower case.
    pub(super) applications: BTreeMap<String, Vec<Ipv4Addr>>,
}

impl Words {
    /// Addresses, or a service tag. Of services that are not here there are no addresses, so their tags mean nobody.
    fn addresses(&self, text: &str) -> Spans {
        if let Ok(net) = text.parse::<Ipv4Net>() {
            return Spans::of_nets([&net]);
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return one(address);
        }
        match text.to_lowercase().replace('_', "").as_str() {
            "*" => Spans::all_addresses(),
            "virtualnetwork" => self.network.clone(),
            "azureloadbalancer" => one(PLATFORM),
            "internet" => {
                let nets = NOT_INTERNET.map(|(first, length)| Ipv4Net::new_assert(first, length));
                Spans::of_nets(&nets).and(&self.network).other_addresses()
            }
            _ => Spans::default(),
        }
    }

    /// Everything that one side of a rule names.
    fn side(&self, rule: &Value, side: &str) -> Spans {
        let all =
            said(rule, &format!("{side}AddressPrefix"), "es").map(|text| self.addresses(text));
        let groups = list(&rule[format!("{side}ApplicationSecurityGroups")]).iter();
        let groups = groups.filter_map(|group| group["id"].as_str());
        let members = groups.filter_map(|id| self.applications.get(&id.to_lowercase()));
        let members = members.flatten().map(|address| one(*address));
        all.chain(members)
            .fold(Spans::default(), |all, more| all.and(&more))
    }

    /// A group's rules of a direction.
    pub(super) fn rules(&self, group: &Value, direction: &str) -> Vec<SecurityRule> {
        let properties = &group["properties"];
        let own = list(&properties["securityRules"]).iter();
        let mut all: Vec<&Value> = own
            .chain(list(&properties["defaultSecurityRules"]))
            .filter(|rule| is_word(&rule["properties"]["direction"], direction))
            .collect();
        all.sort_by_key(|rule| rule["properties"]["priority"].as_u64());
        all.into_iter().map(|rule| self.rule(rule)).collect()
    }

    fn rule(&self, rule: &Value) -> SecurityRule {
        let own = &rule["properties"];
        let protocol = own["protocol"].as_str().unwrap_or("*").to_lowercase();
        let protocol = PROTOCOLS.iter().find(|(name, _)| *name == protocol);
        SecurityRule {
            name: rule["name"].as_str().unwrap_or_default().to_owned(),
            allows: is_word(&own["access"], "Allow"),
            protocol: protocol.map(|(_, number)| *number),
            from: self.side(own, "source"),
            from_ports: ports(own, "sourcePortRange"),
            to: self.side(own, "destination"),
            to_ports: ports(own, "destinationPortRange"),
        }
    }
}

fn one(address: Ipv4Addr) -> Spans {
    Spans::of(vec![(address.into(), address.into())])
}

fn is_word(value: &Value, word: &str) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.eq_ignore_ascii_case(word))
}

/// What a field says, and the field for several of its kind.
fn said<'v>(rule: &'v Value, field: &str, plural: &str) -> impl Iterator<Item = &'v str> + use<'v> {
    let many = list(&rule[format!("{field}{plural}")]).iter();
    let one = rule[field].as_str().into_iter();
    one.chain(many.filter_map(Value::as_str))
        .filter(|text| !text.is_empty())
}

fn ports(rule: &Value, field: &str) -> Spans {
    let range = |text: &str| {
        if text == "*" {
            return Some((0, u32::from(u16::MAX)));
        }
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().map(u32::from);
        Some((port(from)?, port(to)?))
    };
    Spans::of(said(rule, field, "s").filter_map(range).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words() -> Words {
        let net: Ipv4Net = "10.0.0.0/16".parse().expect("a network");
        Words {
            network: Spans::of_nets([&net]),
            applications: BTreeMap::from([(
                "/asg/web".to_owned(),
                vec![Ipv4Addr::new(10, 0, 0, 4)],
            )]),
        }
    }

    fn packet(from: [u8; 4], to: [u8; 4], port: u16) -> Packet {
        Packet {
            protocol: 6,
            from: from.into(),
            to: to.into(),
            ports: Some((40000, port)),
        }
    }

    /// A group as ARM keeps it, with the rules that every group has.
    fn group(rules: &Value) -> Value {
        let rule = |(access, from, to, direction, priority): (&str, &str, &str, &str, u32)| {
            json!({"properties": {"access": access, "sourceAddressPrefix": from, "destinationAddressPrefix": to,
                "direction": direction, "priority": priority, "protocol": "*", "sourcePortRange": "*",
                "destinationPortRange": "*"}})
        };
        let net = "VirtualNetwork";
        json!({"properties": {"securityRules": rules, "defaultSecurityRules": [
            rule(("Deny", "*", "*", "Inbound", 65500)),
            rule(("Allow", "AzureLoadBalancer", "*", "Inbound", 65001)),
            rule(("Allow", net, net, "Inbound", 65000)),
            rule(("Allow", net, net, "Outbound", 65000)),
            rule(("Allow", "*", "Internet", "Outbound", 65001)),
            rule(("Deny", "*", "*", "Outbound", 65500)),
        ]}})
    }

    #[test]
    fn the_rules_that_every_group_has() {
        let group = group(&json!([]));
        let (own, peer) = ([10, 0, 0, 4], [10, 0, 1, 9]);
        let cases = [
            ("Inbound", peer, own, true),
            ("Inbound", [168, 63, 129, 16], own, true),
            ("Inbound", [198, 18, 4, 1], own, false),
            ("Inbound", [10, 7, 0, 4], own, false),
            ("Outbound", own, peer, true),
            ("Outbound", own, [198, 18, 4, 1], true),
            ("Outbound", own, [192, 168, 0, 1], false),
        ];
        for (direction, from, to, wanted) in cases {
            let rules = words().rules(&group, direction);
            let found = allows(&rules, &packet(from, to, 80));
            assert_eq!(found, wanted, "{direction} {from:?} {to:?}");
        }
    }

    #[test]
    fn priorities_decide_and_rules_may_name_several_of_everything() {
        let rule = |name: &str, priority: u32, access: &str, more: Value| {
            let mut properties = json!({"access": access, "priority": priority, "direction": "Inbound", "protocol": "Tcp",
                "sourcePortRange": "*", "destinationPortRange": "*", "sourceAddressPrefix": "*", "destinationAddressPrefix": "*"});
            crate::arm::document::overlay(&mut properties, &more);
            json!({"name": name, "properties": properties})
        };
        let rules = json!([
            rule(
                "later",
                300,
                "Deny",
                json!({"destinationPortRange": "8080"})
            ),
            rule(
                "first",
                200,
                "Allow",
                json!({"destinationPortRange": "", "destinationPortRanges": ["80", "8000-8100"],
                "sourceAddressPrefix": "", "sourceAddressPrefixes": ["198.18.4.1", "198.18.8.0/24"]})
            ),
            rule(
                "others",
                400,
                "Allow",
                json!({"sourceAddressPrefix": "Storage.EastUS"})
            ),
            rule(
                "ours",
                500,
                "Allow",
                json!({"destinationPortRange": "443", "destinationAddressPrefix": "",
                "destinationApplicationSecurityGroups": [{"id": "/ASG/web"}]})
            ),
        ]);
        let rules = words().rules(&group(&rules), "Inbound");
        let own = [10, 0, 0, 4];
        let cases = [
            ([198, 18, 4, 1], own, 8080, true),
            ([198, 18, 4, 2], own, 8080, false),
            ([198, 18, 8, 200], own, 80, true),
            ([198, 18, 8, 200], own, 81, false),
            ([198, 18, 4, 2], own, 443, true),
            ([198, 18, 4, 2], [10, 0, 0, 5], 443, false),
            ([10, 0, 3, 3], own, 22, true),
        ];
        for (from, to, port, wanted) in cases {
            assert_eq!(
                allows(&rules, &packet(from, to, port)),
                wanted,
                "{from:?} {port}"
            );
        }
        let ping = Packet {
            protocol: 1,
            from: [198, 18, 4, 1].into(),
            to: own.into(),
            ports: None,
        };
        assert!(!allows(&rules, &ping), "rules for ports are not about it");
    }
}
