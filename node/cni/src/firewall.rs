//! A network's packet rules: what pods send out of the cluster gets the node's address, and ports of the node lead to
//! pods. They are a table of their own in nftables, made anew as a whole from the books whenever they say otherwise:
//! so there is nothing to leak, and what somebody else took away comes back.

mod encoding;

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::conf::{PortMapping, Protocol};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::netlink::Socket;

/// What a network's rules need to know besides its pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    /// Whether what leaves the cluster gets the node's address.
    pub(crate) masquerade: bool,
    /// Addresses of this node's pods.
    pub(crate) pods: Vec<IpNet>,
    /// Ranges that see pods' own addresses.
    pub(crate) inside: Vec<IpNet>,
}

/// Where a rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Chain {
    Guard,
    Arriving,
    Own,
    Leaving,
}

/// Chains: name, kind, hook and priority, as netfilter counts them.
const CHAINS: [(Chain, &str, &str, u32, i32); 4] = [
    (Chain::Guard, "guard", "filter", 0, -300),
    (Chain::Arriving, "hostports", "nat", 0, -100),
    (Chain::Own, "hostports-of-node", "nat", 3, -100),
    (Chain::Leaving, "masquerade", "nat", 4, 100),
];

/// What a packet must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    From(IpNet),
    To(IpNet),
    ToThisNode,
    ByCable,
    Port(Protocol, u16),
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Leave,
    Drop,
    Masquerade,
    Lead(IpAddr, u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    chain: Chain,
    tests: Vec<Test>,
    verdict: Verdict,
}

fn rule(chain: Chain, tests: &[Test], verdict: Verdict) -> Rule {
    Rule {
        chain,
        tests: tests.to_vec(),
        verdict,
    }
}

/// Addresses that are never somewhere else, by family.
const NOBODYS: [&[&str]; 2] = [
    &["224.0.0.0/4", "255.255.255.255/32"],
    &["ff00::/8", "fe80::/10"],
];

/// The rules of a family that follow from the books.
fn rules(ledger: &Ledger, is_4: bool) -> Vec<Rule> {
    let of_family = |net: &&IpNet| net.addr().is_ipv4() == is_4;
    let mut rules = hostports(ledger, is_4);
    let base = &ledger.base;
    if base.masquerade && base.pods.iter().any(|net| of_family(&net)) {
        let nobodys = NOBODYS[usize::from(!is_4)]
            .iter()
            .filter_map(|t| t.parse().ok());
        let nobodys: Vec<IpNet> = nobodys.collect();
        let inside = base.pods.iter().chain(&base.inside).filter(of_family);
        for to in inside.chain(&nobodys) {
            rules.push(rule(Chain::Leaving, &[Test::To(*to)], Verdict::Leave));
        }
        for from in base.pods.iter().filter(of_family) {
            rules.push(rule(
                Chain::Leaving,
                &[Test::From(*from)],
                Verdict::Masquerade,
            ));
        }
    }
    rules
}

fn hostports(ledger: &Ledger, is_4: bool) -> Vec<Rule> {
    let mut pods: Vec<_> = ledger.attachments.values().collect();
    pods.sort_by_key(|pod| std::cmp::Reverse(pod.order));
    let mut rules = Vec::new();
    let loopback = IpNet::from(IpAddr::from([127, 0, 0, 0]));
    let loopback = IpNet::new(loopback.addr(), 8).unwrap_or(loopback);
    for pod in pods.iter().filter(|pod| !pod.ports.is_empty()) {
        let mut addresses = pod.addresses.iter();
        let Some(address) = addresses.find(|address| address.is_ipv4() == is_4) else {
            continue;
        };
        let ports = pod.ports.iter().filter(|port| serves(port, is_4));
        for port in ports {
            let mut tests = vec![Test::ToThisNode];
            tests.extend(own_address(port).map(|ip| Test::To(ip.into())));
            tests.push(Test::Port(port.protocol, port.host_port));
            let lead = Verdict::Lead(*address, port.container_port);
            rules.push(rule(Chain::Arriving, &tests, lead));
            rules.push(rule(Chain::Own, &tests, lead));
        }
        // A pod that reaches itself by a port of the node must not see its own address as the sender's.
        let alone = IpNet::from(*address);
        let itself = [Test::From(alone), Test::To(alone)];
        rules.push(rule(Chain::Leaving, &itself, Verdict::Masquerade));
        if is_4 {
            let local = [Test::From(loopback), Test::To(alone)];
            rules.push(rule(Chain::Leaving, &local, Verdict::Masquerade));
        }
    }
    if is_4 && !rules.is_empty() {
        // Ports of the loopback are served by letting loopback addresses be routed; nobody outside may use that.
        let outside = [Test::ByCable, Test::To(loopback)];
        rules.push(rule(Chain::Guard, &outside, Verdict::Drop));
    }
    rules
}

fn own_address(port: &PortMapping) -> Option<IpAddr> {
    port.host_ip.filter(|address| !address.is_unspecified())
}

// `0.0.0.0` and `::` are any address of their family, nothing is any of both.
fn serves(port: &PortMapping, is_4: bool) -> bool {
    port.host_ip.is_none_or(|address| address.is_ipv4() == is_4)
}

/// Makes the rules of a table follow the books; does nothing but ask when they do.
pub(crate) fn follow(table: &str, ledger: &Ledger) -> Result<(), Error> {
    let socket = Socket::netfilter().map_err(Error::kernel("talk to netfilter"))?;
    for is_4 in [true, false] {
        let rules = rules(ledger, is_4);
        let table = Table {
            name: table.to_owned(),
            is_4,
        };
        replace(&socket, &table, &rules)
            .map_err(Error::kernel(format!("set the rules `{}`", table.name)))?;
    }
    Ok(())
}

/// Whether the rules are those that follow from the books.
pub(crate) fn follows(table: &str, ledger: &Ledger) -> Result<bool, Error> {
    let socket = Socket::netfilter().map_err(Error::kernel("talk to netfilter"))?;
    let mut all = true;
    for is_4 in [true, false] {
        let rules = rules(ledger, is_4);
        let table = Table {
            name: table.to_owned(),
            is_4,
        };
        let there = encoding::mark(&socket, &table).map_err(Error::kernel("read the rules"))?;
        all &= there == wanted_mark(&rules);
    }
    Ok(all)
}

struct Table {
    name: String,
    is_4: bool,
}

fn wanted_mark(rules: &[Rule]) -> Option<String> {
    (!rules.is_empty()).then(|| digest(rules))
}

fn replace(socket: &Socket, table: &Table, rules: &[Rule]) -> io::Result<()> {
    let (wanted, there) = (wanted_mark(rules), encoding::mark(socket, table)?);
    match wanted {
        _ if wanted == there => Ok(()),
        Some(mark) => socket.batch(&encoding::replacement(table, rules, &mark)),
        None => socket.batch(&encoding::removal(table)),
    }
}

// Stands in the table as its comment: a table with the same comment has the same rules.
fn digest(rules: &[Rule]) -> String {
    let hash = Sha256::digest(format!("{rules:?}"));
    hash[..12].iter().fold("rules ".to_owned(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
