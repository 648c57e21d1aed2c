//! What nftables is told of a network's cards, inside that network. Pure.
//!
//! ```text
//! arriving   which card's subnet has ways of its own: a mark
//! through    a connection that is known ─► on; else the sender's gates, then the receiver's
//! to_here, from_here   the same for what machines and the network itself say to each other
//! ```
//!
//! A card is known by its hardware address when it sends, and by its own as the next hop when it gets something: that is
//! true of pods behind it, of packets that a route table sends through it, and of frontends that a balancer sends it.
//! What a gate lets through returns to where it was asked; what it does not is dropped. Known connections are never asked
//! about again: a change of rules leaves them alone, as Azure's do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ::cloud::{Card, Gate, Hop, SecurityRule, Spans};
use ipnet::Ipv4Net;
use machines::{BRIDGE, METADATA, PLATFORM, Way, Ways, hardware_address};
use sha2::{Digest as _, Sha256};

use super::elements;
use super::gates::{Asked, Field, Plan, plan};

/// Our table.
const TABLE: &str = "ip kyanite_network";

/// A transaction that leaves nothing of ours.
pub(super) fn nothing() -> String {
    format!("add table {TABLE}\ndelete table {TABLE}\n")
}

/// A cable to another network, through which only what its own addresses sent may come.
pub(super) struct Beside {
    pub(super) link: String,
    pub(super) space: Vec<Ipv4Net>,
}

/// The mark of what comes from a subnet: no machine's address, which is the mark of what a balancer sends.
fn mark(subnet: &str) -> u32 {
    let digest = Sha256::digest(subnet.as_bytes());
    u32::from_be_bytes([0, digest[0], digest[1], digest[2]]).max(1)
}

/// The ways of packets from subnets that have route tables.
pub(super) fn ways(cards: &[Card]) -> Ways {
    let own = cards.iter().filter_map(|card| {
        let routes = card.routes.as_deref()?;
        let way = |hop: &Hop| match hop {
            Hop::Machine(address) => Way::Machine(*address),
            Hop::Usual => Way::Usual,
            Hop::Nowhere => Way::Nowhere,
        };
        let routes = routes.iter().map(|(to, hop)| (*to, way(hop)));
        Some((mark(&card.subnet), routes.collect()))
    });
    own.collect()
}

// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

/// The transaction that makes a network do what its cards' documents say.
pub(super) fn script(cards: &[Card], beside: &[Beside], public: &BTreeSet<Ipv4Addr>) -> String {
    let mut text = Text {
        out: nothing(),
        gates: BTreeMap::new(),
        chains: BTreeMap::new(),
    };
    line!(text.out, "add table {TABLE}");
    let entering = cards.iter().map(|card| (card, &card.inbound));
    let entering = entering.filter_map(|(card, gates)| {
        let chain = text.chain(gates)?;
        Some(format!("{} : jump {chain}", card.address))
    });
    let entering: Vec<String> = entering.collect();
    let leaving = cards.iter().map(|card| (card, &card.outbound));
    let leaving = leaving.filter_map(|(card, gates)| {
        let chain = text.chain(gates)?;
        Some(format!("{} : jump {chain}", hardware(card.address)))
    });
    let leaving: Vec<String> = leaving.collect();
    let mut out = text.out;
    let has_ways = cards.iter().filter(|card| card.routes.is_some());
    let subnets = has_ways.map(|card| {
        let mark = mark(&card.subnet);
        format!("{} : {mark:#x}", hardware(card.address))
    });
    map(&mut out, "entering", "ipv4_addr : verdict", entering);
    map(&mut out, "leaving", "ether_addr : verdict", leaving);
    map(
        &mut out,
        "subnets",
        "ether_addr : mark",
        subnets.collect::<Vec<_>>(),
    );
    still(&mut out, cards);
    line!(out, "add set {TABLE} public {{ type ipv4_addr; }}");
    fill(
        &mut out,
        "public",
        public.iter().map(ToString::to_string).collect(),
    );
    for (chain, hook, priority) in [
        ("arriving", "prerouting", -150),
        ("through", "forward", 0),
        ("to_here", "input", 0),
        ("from_here", "output", 0),
    ] {
        line!(
            out,
            "add chain {TABLE} {chain} {{ type filter hook {hook} priority {priority}; policy accept; }}"
        );
    }
    for rule in rules(beside) {
        line!(out, "add rule {TABLE} {rule}");
    }
    out
}

/// What every packet comes by.
fn rules(beside: &[Beside]) -> Vec<String> {
    let known = "ct state established,related accept";
    let mut rules = vec![
        "arriving meta mark set ether saddr map @subnets".to_owned(),
        format!("through {known}"),
        format!("to_here {known}"),
        format!("from_here {known}"),
    ];
    rules.extend(beside.iter().map(|cable| {
        let own = elements(cable.space.iter().map(ToString::to_string));
        format!(
            "through iifname \"{}\" ip saddr != {{ {own} }} drop",
            cable.link
        )
    }));
    rules.extend([
        "through ether saddr @still_sends ether saddr . ip saddr != @own_sends drop".to_owned(),
        "through ct mark 0 rt ip nexthop @still_gets rt ip nexthop . ip daddr != @own_gets drop"
            .to_owned(),
        "through ether saddr vmap @leaving".to_owned(),
        // Whoever goes to a public address comes from the Internet, in Azure; here it keeps its own, and is let in.
        format!("through iifname {BRIDGE} ct original ip daddr @public accept"),
        "through rt ip nexthop vmap @entering".to_owned(),
        // Groups are about what machines say to each other and to the world, not to the platform below them.
        format!("to_here ip daddr {{ {METADATA}, {PLATFORM} }} accept"),
        "to_here ether saddr vmap @leaving".to_owned(),
        "from_here rt ip nexthop vmap @entering".to_owned(),
    ]);
    rules
}

/// Cards that neither get nor send what is not their own.
fn still(out: &mut String, cards: &[Card]) {
    let all = || cards.iter().filter(|card| !card.forwards);
    let addresses = || all().map(|card| card.address);
    let hardware = || all().map(|card| (hardware(card.address), card.address));
    for (name, kind, own) in [
        (
            "still_gets",
            "ipv4_addr",
            addresses().map(|a| a.to_string()).collect::<Vec<_>>(),
        ),
        (
            "own_gets",
            "ipv4_addr . ipv4_addr",
            addresses().map(|a| format!("{a} . {a}")).collect(),
        ),
        (
            "still_sends",
            "ether_addr",
            hardware().map(|(card, _)| card).collect(),
        ),
        (
            "own_sends",
            "ether_addr . ipv4_addr",
            hardware()
                .map(|(card, address)| format!("{card} . {address}"))
                .collect(),
        ),
    ] {
        line!(out, "add set {TABLE} {name} {{ type {kind}; }}");
        fill(out, name, own);
    }
}

fn map(out: &mut String, name: &str, kind: &str, own: Vec<String>) {
    line!(out, "add map {TABLE} {name} {{ type {kind}; }}");
    fill(out, name, own);
}

fn fill(out: &mut String, name: &str, own: Vec<String>) {
    let own: BTreeSet<String> = own.into_iter().collect();
    if !own.is_empty() {
        let own = elements(own.into_iter());
        line!(out, "add element {TABLE} {name} {{ {own} }}");
    }
}

fn hardware(address: Ipv4Addr) -> String {
    let bytes = hardware_address(address).map(|byte| format!("{byte:02x}"));
    bytes.join(":")
}

/// Gates that were written already, and chains that lead through several of them.
struct Text {
    out: String,
    gates: BTreeMap<usize, String>,
    chains: BTreeMap<Vec<String>, String>,
}

impl Text {
    /// The chain that leads through these gates; none where there are none.
    fn chain(&mut self, gates: &[Arc<Gate>]) -> Option<String> {
        let own: Vec<String> = gates.iter().map(|gate| self.gate(gate)).collect();
        if own.is_empty() {
            return None;
        }
        if let Some(known) = self.chains.get(&own) {
            return Some(known.clone());
        }
        let name = format!("card{}", self.chains.len());
        line!(self.out, "add chain {TABLE} {name}");
        for gate in &own {
            line!(self.out, "add rule {TABLE} {name} jump {gate}");
        }
        self.chains.insert(own, name.clone());
        Some(name)
    }

    fn gate(&mut self, gate: &Arc<Gate>) -> String {
        // A group that several cards have is one and the same.
        let key = Arc::as_ptr(gate) as usize;
        if let Some(known) = self.gates.get(&key) {
            return known.clone();
        }
        let name = format!("gate{}", self.gates.len());
        self.gates.insert(key, name.clone());
        let Plan {
            with_ports,
            without,
        } = plan(&gate.rules);
        let out = &mut self.out;
        for (end, asked) in [("ports", with_ports), ("rest", without)] {
            ask(out, &format!("{name}_{end}"), &gate.rules, &asked);
        }
        line!(out, "add chain {TABLE} {name}");
        line!(
            out,
            "add rule {TABLE} {name} meta l4proto {{ tcp, udp }} goto {name}_ports"
        );
        line!(out, "add rule {TABLE} {name} goto {name}_rest");
        name
    }
}

/// A chain that asks rules; whoever no rule lets through is dropped.
fn ask(out: &mut String, name: &str, rules: &[SecurityRule], asked: &Asked) {
    match asked {
        Asked::InTurn(numbers) => {
            line!(out, "add chain {TABLE} {name}");
            for rule in numbers.iter().map(|number| &rules[*number]) {
                line!(out, "add rule {TABLE} {name} {}", words(rule));
            }
        }
        Asked::By(field, parts) => {
            let mut chains: BTreeMap<&[usize], String> = BTreeMap::new();
            for part in parts {
                let next = format!("{name}_{}", chains.len());
                if !chains.contains_key(part.rules.as_slice()) {
                    ask(out, &next, rules, &Asked::InTurn(part.rules.clone()));
                    chains.insert(&part.rules, next);
                }
            }
            let ways = parts.iter().map(|part| {
                let range = range(*field, part.first, part.last);
                format!("{range} : goto {}", chains[part.rules.as_slice()])
            });
            let ways = elements(ways);
            line!(out, "add chain {TABLE} {name}");
            line!(
                out,
                "add rule {TABLE} {name} {} vmap {{ {ways} }}",
                field.word()
            );
        }
    }
    line!(out, "add rule {TABLE} {name} drop");
}

/// A rule as nftables says it.
fn words(rule: &SecurityRule) -> String {
    let mut words = Vec::new();
    words.extend(rule.protocol.map(|number| format!("meta l4proto {number}")));
    let sides = [
        (Field::From.word(), Field::From, &rule.from),
        (Field::To.word(), Field::To, &rule.to),
        ("th sport", Field::ToPort, &rule.from_ports),
        (Field::ToPort.word(), Field::ToPort, &rule.to_ports),
    ];
    for (word, field, spans) in sides {
        let all = match field {
            Field::ToPort => Spans::all_ports(),
            Field::From | Field::To => Spans::all_addresses(),
        };
        if *spans != all {
            let ranges = spans.ranges().iter();
            let ranges = elements(ranges.map(|(first, last)| range(field, *first, *last)));
            words.push(format!("{word} {{ {ranges} }}"));
        }
    }
    words.push(if rule.allows { "return" } else { "drop" }.to_owned());
    words.join(" ")
}

fn range(field: Field, first: u32, last: u32) -> String {
    let one = |number: u32| match field {
        Field::ToPort => number.to_string(),
        Field::From | Field::To => Ipv4Addr::from(number).to_string(),
    };
    match first == last {
        true => one(first),
        false => format!("{}-{}", one(first), one(last)),
    }
}
