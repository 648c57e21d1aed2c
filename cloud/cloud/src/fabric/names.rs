//! Names that a virtual network knows: of the private zones that are linked to it, and of its machines. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::list;
use super::networks::{Card, Everything};
use crate::arm::id::Id;

/// For how many seconds names of machines hold.
const OF_MACHINES: u32 = 10;
/// How names end that Azure gives machines.
const INTERNAL: &str = "internal.cloudapp.net";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";

/// A zone of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub records: Vec<ZoneRecord>,
}

/// A record of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRecord {
    /// Its whole name; the first label may be `*`.
    pub name: String,
    /// For how many seconds it holds.
    pub ttl: u32,
    /// What it says.
    pub says: Says,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// An address.
    Address(Ipv4Addr),
    /// An address of the sixth version.
    Address6(Ipv6Addr),
    /// Another name for the same.
    Alias(String),
    /// Some text.
    Text(String),
}

/// How the names of a network's machines end: the same for its whole life, and nobody else's.
pub(crate) fn suffix(network: &str) -> String {
    let digest = Sha256::digest(network.to_lowercase().as_bytes());
    let own = digest.iter().take(26);
    let own: String = own
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect();
    format!("{own}.bx.{INTERNAL}")
}

/// The zones of a network.
pub(super) fn zones(all: &Everything, network: &str, cards: &[Card]) -> Vec<Zone> {
    let links = all.of("Microsoft.Network/privateDnsZones/virtualNetworkLinks");
    let linked = links.filter_map(|link| {
        let properties = &link.body["properties"];
        let to = properties["virtualNetwork"]["id"].as_str()?;
        to.eq_ignore_ascii_case(network).then_some(())?;
        let zone = Id::parse(link.id())?.parent()?.to_string();
        let name = zone.rsplit('/').next()?.to_lowercase();
        let mut records = records(all, &zone, &name);
        if properties["registrationEnabled"] == true {
            records.extend(machines(cards, &name));
        }
        Some(Zone { name, records })
    });
    let suffix = suffix(network);
    let own = Zone {
        records: machines(cards, &suffix).collect(),
        name: suffix,
    };
    // Machines need not know how their names end.
    let short = cards.iter().map(|card| {
        let name = card.node.name.to_lowercase();
        let records = vec![of_machine(name.clone(), card)];
        Zone { name, records }
    });
    linked.chain([own]).chain(short).collect()
}

fn machines<'c>(cards: &'c [Card], zone: &str) -> impl Iterator<Item = ZoneRecord> + use<'c> {
    let zone = zone.to_owned();
    cards.iter().map(move |card| {
        let name = format!("{}.{zone}", card.node.name.to_lowercase());
        of_machine(name, card)
    })
}

fn of_machine(name: String, card: &Card) -> ZoneRecord {
    ZoneRecord {
        name,
        ttl: OF_MACHINES,
        says: Says::Address(card.address),
    }
}

/// The records of a zone.
fn records(all: &Everything, zone: &str, name: &str) -> Vec<ZoneRecord> {
    let within = format!("{}/", zone.to_lowercase());
    let mut found = Vec::new();
    for kind in ["A", "AAAA", "CNAME", "TXT"] {
        for set in all.of(&format!("Microsoft.Network/privateDnsZones/{kind}")) {
            if !set.id().to_lowercase().starts_with(&within) {
                continue;
            }
            let own = set.body["name"].as_str().unwrap_or_default().to_lowercase();
            let own = match own.as_str() {
                "@" | "" => name.to_owned(),
                own => format!("{own}.{name}"),
            };
            let properties = &set.body["properties"];
            let ttl = properties["ttl"].as_u64().unwrap_or(3600);
            let ttl = u32::try_from(ttl).unwrap_or(u32::MAX);
            let all = says(kind, properties).into_iter().map(|says| ZoneRecord {
                name: own.clone(),
                ttl,
                says,
            });
            found.extend(all);
        }
    }
    found
}

fn says(kind: &str, properties: &Value) -> Vec<Says> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match kind {
        "A" => list(&properties["aRecords"])
            .iter()
            .filter_map(|one| one["ipv4Address"].as_str()?.parse().ok())
            .map(Says::Address)
            .collect(),
        "AAAA" => list(&properties["aaaaRecords"])
            .iter()
            .filter_map(|one| one["ipv6Address"].as_str()?.parse().ok())
            .map(Says::Address6)
            .collect(),
        "CNAME" => text(&properties["cnameRecord"]["cname"])
            .map(|name| Says::Alias(name.trim_end_matches('.').to_lowercase()))
            .into_iter()
            .collect(),
        _ => list(&properties["txtRecords"])
            .iter()
            .map(|one| {
                let parts = list(&one["value"]).iter().filter_map(Value::as_str);
                Says::Text(parts.collect())
            })
            .collect(),
    }
}
