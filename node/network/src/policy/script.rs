//! Policies as text for `nft`: the way from one set of rules to another.
//!
//! ```text
//! forward ─► established: pass ─► egress: pod's address ─► out-… ─► ingress: pod's address ─► in-…
//! ```
//!
//! A chain ends with a drop; what it allows it returns, so that the other direction is asked too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};
use std::net::IpAddr;

use ipnet::IpNet;

use super::compile::{Allowance, Profile, Rules};
use super::evaluate::Side;
use crate::services::model::{Family, Protocol};

/// The table of policies, in either family.
pub const TABLE: &str = "kyanite-policy";

/// How many elements one command names.
const BATCH: usize = 1000;

/// What makes `after` of `before`, as one transaction; without a before the table is made anew.
pub fn transition(family: Family, before: Option<&Rules>, after: &Rules) -> String {
    let mut text = String::new();
    let words = format!("{} {TABLE}", family.table_family());
    if before.is_none() {
        text.push_str(&skeleton(family, &words));
    }
    let (old, new) = (
        before.map(Content::of).unwrap_or_default(),
        Content::of(after),
    );
    for (name, nets) in new
        .sets
        .iter()
        .filter(|(name, _)| !old.sets.contains_key(*name))
    {
        let _ = writeln!(
            text,
            "add set {words} {name} {{ type {}; flags interval; }}",
            address_type(family)
        );
        for batch in nets.chunks(BATCH) {
            let list: Vec<String> = batch.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "add element {words} {name} {{ {} }}", list.join(", "));
        }
    }
    for (name, rules) in new
        .chains
        .iter()
        .filter(|(name, _)| !old.chains.contains_key(*name))
    {
        let _ = writeln!(text, "add chain {words} {name}");
        for rule in rules {
            let _ = writeln!(
                text,
                "add rule {words} {name} {}",
                rule.replace("FAMILY", family.table_family())
            );
        }
    }
    for (map, old, new) in [
        ("egress", &old.egress, &new.egress),
        ("ingress", &old.ingress, &new.ingress),
    ] {
        let gone = old.iter().filter(|(ip, chain)| new.get(*ip) != Some(chain));
        elements(&mut text, &words, "delete", map, gone);
        let come = new.iter().filter(|(ip, chain)| old.get(*ip) != Some(chain));
        elements(&mut text, &words, "add", map, come);
    }
    pods(&mut text, &words, &old, &new);
    for name in old
        .chains
        .keys()
        .filter(|name| !new.chains.contains_key(*name))
    {
        let _ = writeln!(
            text,
            "flush chain {words} {name}\ndelete chain {words} {name}"
        );
    }
    for name in old.sets.keys().filter(|name| !new.sets.contains_key(*name)) {
        let _ = writeln!(text, "delete set {words} {name}");
    }
    text
}

fn elements<'a>(
    text: &mut String,
    words: &str,
    verb: &str,
    map: &str,
    all: impl Iterator<Item = (&'a IpAddr, &'a String)>,
) {
    let all: Vec<String> = all
        .map(|(ip, chain)| format!("{ip} : jump {chain}"))
        .collect();
    for batch in all.chunks(BATCH) {
        let _ = writeln!(
            text,
            "{verb} element {words} {map} {{ {} }}",
            batch.join(", ")
        );
    }
}

// A pod that reaches itself through a Service comes by here with its own address on both sides.
fn pods(text: &mut String, words: &str, old: &Content, new: &Content) {
    let (old, new) = (old.pods(), new.pods());
    for (verb, some) in [
        ("delete", old.difference(&new)),
        ("add", new.difference(&old)),
    ] {
        let list: Vec<String> = some.map(|ip| format!("{ip} . {ip}")).collect();
        for batch in list.chunks(BATCH) {
            let _ = writeln!(
                text,
                "{verb} element {words} itself {{ {} }}",
                batch.join(", ")
            );
        }
    }
}

fn address_type(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    }
}

fn skeleton(family: Family, words: &str) -> String {
    let (ip, address) = (family.table_family(), address_type(family));
    format!(
        "add table {words}\ndelete table {words}\nadd table {words}\n\
         add set {words} itself {{ type {address} . {address}; }}\n\
         add map {words} egress {{ type {address} : verdict; }}\n\
         add map {words} ingress {{ type {address} : verdict; }}\n\
         add chain {words} pods {{ type filter hook forward priority -10; }}\n\
         add rule {words} pods ct state established,related accept\n\
         add rule {words} pods {ip} saddr . {ip} daddr @itself accept\n\
         add rule {words} pods {ip} saddr vmap @egress\n\
         add rule {words} pods {ip} daddr vmap @ingress\n"
    )
}

/// Sets and chains by names that stand for what is in them, and who uses which.
#[derive(Debug, Default)]
struct Content {
    sets: BTreeMap<String, Vec<IpNet>>,
    chains: BTreeMap<String, Vec<String>>,
    egress: BTreeMap<IpAddr, String>,
    ingress: BTreeMap<IpAddr, String>,
}

impl Content {
    fn of(rules: &Rules) -> Content {
        let mut content = Content::default();
        for (ip, profile) in &rules.egress {
            let chain = content.chain(Side::Egress, profile);
            content.egress.insert(*ip, chain);
        }
        for (ip, profile) in &rules.ingress {
            let chain = content.chain(Side::Ingress, profile);
            content.ingress.insert(*ip, chain);
        }
        content
    }

    fn pods(&self) -> BTreeSet<IpAddr> {
        self.egress
            .keys()
            .chain(self.ingress.keys())
            .copied()
            .collect()
    }

    fn chain(&mut self, side: Side, profile: &Profile) -> String {
        let (prefix, other) = match side {
            Side::Egress => ("out", "daddr"),
            Side::Ingress => ("in", "saddr"),
        };
        let name = named(prefix, profile);
        if !self.chains.contains_key(&name) {
            let mut rules: Vec<String> =
                profile.iter().flat_map(|a| self.rules(other, a)).collect();
            rules.push("drop".into());
            self.chains.insert(name.clone(), rules);
        }
        name
    }

    fn rules(&mut self, other: &str, allowance: &Allowance) -> Vec<String> {
        let peers = match &allowance.peers {
            None => String::new(),
            Some(nets) => {
                let name = named("peers", nets);
                let rule = format!("FAMILY {other} @{name} ");
                self.sets.entry(name).or_insert_with(|| nets.clone());
                rule
            }
        };
        match &allowance.ports {
            None => vec![format!("{peers}return")],
            Some(ports) => ports
                .iter()
                .map(|range| format!("{peers}{} return", port(range)))
                .collect(),
        }
    }
}

fn port((protocol, first, last): &(Protocol, u16, u16)) -> String {
    let name = protocol.name();
    match (first, last) {
        (0, &u16::MAX) => format!("meta l4proto {name}"),
        (first, last) if first == last => format!("{name} dport {first}"),
        _ => format!("{name} dport {first}-{last}"),
    }
}

// The same within one run of this program, which is all that is asked: a new one makes the table anew.
fn named(prefix: &str, content: &impl std::hash::Hash) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("{prefix}-{:016x}", hasher.finish())
}
