//! What nftables is told of load balancers, inside a network. Pure.
//!
//! Where machines see the frontend's address (floating IP, as AKS has it), a packet is only sent on, as it came: it gets
//! the mark of a machine that a hash chooses, and packets with that mark go to that machine ([`ways`]). The kernel tracks
//! the connection for as long as the rule's idle timeout says, and its mark with it, so a connection stays with its
//! machine when others come and go. Otherwise the packet's destination is rewritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use ::cloud::{Distribution, Probe, Protocol, Rule};
use ipnet::Ipv4Net;
use machines::{HOST_LINK, Way, Ways};

use super::elements;

/// Our table.
const TABLE: &str = "ip kyanite_balancers";

/// A rule, and who is behind it just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flow {
    frontend: Ipv4Addr,
    is_public: bool,
    protocol: Protocol,
    port: u16,
    backend_port: u16,
    is_floating: bool,
    distribution: Distribution,
    idle: Duration,
    /// All machines: connections stay where they are.
    members: Vec<Ipv4Addr>,
    /// Those that get new ones.
    well: Vec<Ipv4Addr>,
}

impl Flow {
    pub(super) fn of(rule: &Rule, is_well: impl Fn(Ipv4Addr, &Probe) -> bool) -> Flow {
        let mut members: Vec<Ipv4Addr> = rule
            .backends
            .iter()
            .filter_map(|node| node.address)
            .collect();
        members.sort_unstable();
        members.dedup();
        let well = |address: &&Ipv4Addr| {
            rule.probe
                .as_ref()
                .is_none_or(|probe| is_well(**address, probe))
        };
        Flow {
            frontend: rule.frontend,
            is_public: rule.is_public,
            protocol: rule.protocol,
            port: rule.frontend_port,
            backend_port: rule.backend_port,
            is_floating: rule.is_floating,
            distribution: rule.distribution,
            idle: rule.idle,
            well: members.iter().filter(well).copied().collect(),
            members,
        }
    }

    /// Its name among chains and maps.
    fn name(&self) -> String {
        let address = self.frontend.to_string().replace('.', "_");
        format!("{}_{}_{address}", word(self.protocol), self.port)
    }

    /// The hash that chooses: of what changes from connection to connection, as the rest is the rule's own.
    fn hash(&self) -> String {
        let of = match self.distribution {
            Distribution::FiveTuple => "ip saddr . th sport",
            Distribution::Source => "ip saddr",
        };
        format!("jhash {of} mod {}", self.well.len())
    }
}

/// What the kernel is told of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) flows: Vec<Flow>,
    /// Public addresses that are one machine's, with that machine's own.
    pub(super) attached: BTreeMap<Ipv4Addr, Ipv4Addr>,
}

impl Setting {
    /// The addresses that the host reaches.
    pub(super) fn public(&self) -> BTreeSet<Ipv4Addr> {
        let flows = self.flows.iter().filter(|flow| flow.is_public);
        let flows = flows.map(|flow| flow.frontend);
        flows.chain(self.attached.keys().copied()).collect()
    }
}

/// A machine's mark: its address.
fn mark(address: Ipv4Addr) -> String {
    format!("{:#010x}", u32::from(address))
}

/// A transaction that leaves nothing of ours.
pub(super) fn nothing() -> String {
    format!("add table {TABLE}\ndelete table {TABLE}\n")
}

/// The ways of packets that a balancer sends on as they came.
pub(super) fn ways(setting: &Setting) -> Ways {
    let flows = setting.flows.iter().filter(|flow| flow.is_floating);
    let machines = flows.flat_map(|flow| &flow.members);
    let to = |machine: &Ipv4Addr| BTreeMap::from([(Ipv4Net::default(), Way::Machine(*machine))]);
    machines
        .map(|machine| (u32::from(*machine), to(machine)))
        .collect()
}

// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

/// The transaction that makes a network do this. Connections that are known stay where they are.
pub(super) fn script(now: &Setting) -> String {
    let mut out = nothing();
    if now.flows.is_empty() && now.attached.is_empty() {
        return out;
    }
    line!(out, "add table {TABLE}");
    let (sent, rewritten): (Vec<&Flow>, Vec<&Flow>) =
        now.flows.iter().partition(|flow| flow.is_floating);
    send_on(&mut out, &sent);
    rewrite(&mut out, &rewritten, &now.attached);
    out
}

fn send_on(out: &mut String, flows: &[&Flow]) {
    let kind = "ipv4_addr . inet_proto . inet_service : verdict";
    line!(out, "add map {TABLE} rules {{ type {kind}; }}");
    line!(out, "add map {TABLE} every {{ type ipv4_addr : verdict; }}");
    line!(
        out,
        "add chain {TABLE} choose {{ type filter hook prerouting priority -149; policy accept; }}"
    );
    // What has been chosen stays, in the direction of the machine.
    line!(
        out,
        "add rule {TABLE} choose ct direction original ct mark != 0 meta mark set ct mark accept"
    );
    line!(
        out,
        "add rule {TABLE} choose ct state new ip daddr . ip protocol . th dport vmap @rules"
    );
    // Rules for one port come before those for all.
    line!(
        out,
        "add rule {TABLE} choose ct state new ip daddr vmap @every"
    );
    let idle = |flow: &&Flow| Some((idle_word(flow.protocol)?, flow.idle));
    for (word, idle) in flows.iter().filter_map(idle).collect::<BTreeSet<_>>() {
        let (name, seconds) = (idle_name(word, idle), idle.as_secs());
        let states = match word {
            "tcp" => format!("established : {seconds}"),
            _ => format!("unreplied : {seconds}, replied : {seconds}"),
        };
        line!(
            out,
            "table {TABLE} {{\n ct timeout {name} {{\n  protocol {word}\n  l3proto ip\n  policy = {{ {states} }}\n }}\n}}"
        );
    }
    for flow in flows {
        one(out, flow);
    }
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::All => "all",
    }
}

/// The protocol whose idle connections are forgotten.
fn idle_word(protocol: Protocol) -> Option<&'static str> {
    (protocol != Protocol::All).then_some(word(protocol))
}

fn idle_name(word: &str, idle: Duration) -> String {
    format!("idle_{word}_{}", idle.as_secs())
}

fn one(out: &mut String, flow: &Flow) {
    let name = flow.name();
    line!(out, "add chain {TABLE} {name}");
    if flow.well.is_empty() {
        // With nobody behind it a balancer says nothing.
        line!(out, "add rule {TABLE} {name} drop");
    } else {
        let well = flow.well.iter().enumerate();
        let well = elements(well.map(|(at, a)| format!("{at} : {}", mark(*a))));
        let hash = flow.hash();
        line!(
            out,
            "add rule {TABLE} {name} meta mark set {hash} map {{ {well} }}"
        );
        let idle = idle_word(flow.protocol).map(|word| idle_name(word, flow.idle));
        let idle = idle.map(|idle| format!(" ct timeout set \"{idle}\""));
        let idle = idle.unwrap_or_default();
        line!(out, "add rule {TABLE} {name} ct mark set meta mark{idle}");
    }
    let (to, port) = (flow.frontend, flow.port);
    match flow.protocol {
        Protocol::All => line!(out, "add element {TABLE} every {{ {to} : goto {name} }}"),
        protocol => {
            let to = format!("{to} . {} . {port}", word(protocol));
            line!(out, "add element {TABLE} rules {{ {to} : goto {name} }}");
        }
    }
}

fn rewrite(out: &mut String, flows: &[&Flow], attached: &BTreeMap<Ipv4Addr, Ipv4Addr>) {
    line!(
        out,
        "add chain {TABLE} enter {{ type nat hook prerouting priority -100; }}"
    );
    line!(
        out,
        "add chain {TABLE} leave {{ type nat hook postrouting priority 100; }}"
    );
    let (one, every): (Vec<&Flow>, Vec<&Flow>) = flows
        .iter()
        .partition(|flow| flow.protocol != Protocol::All);
    for flow in one.into_iter().chain(every) {
        let (word, frontend) = (word(flow.protocol), flow.frontend);
        let is_all = flow.protocol == Protocol::All;
        let packets = match is_all {
            true => format!("ip daddr {frontend}"),
            false => format!("ip daddr {frontend} {word} dport {}", flow.port),
        };
        if flow.well.is_empty() {
            line!(out, "add rule {TABLE} enter {packets} drop");
            continue;
        }
        let well = flow.well.iter().enumerate();
        let well = elements(well.map(|(at, a)| match is_all {
            true => format!("{at} : {a}"),
            false => format!("{at} : {a} . {}", flow.backend_port),
        }));
        let (to, hash) = match is_all {
            true => ("to", flow.hash()),
            false => (
                "ip addr . port to",
                flow.hash().replace("th sport", &format!("{word} sport")),
            ),
        };
        line!(
            out,
            "add rule {TABLE} enter {packets} dnat {to} {hash} map {{ {well} }}"
        );
    }
    // After the rules: what a balancer leads elsewhere is not the machine's own.
    for (public, own) in attached {
        line!(
            out,
            "add rule {TABLE} enter ip daddr {public} dnat to {own}"
        );
        line!(
            out,
            "add rule {TABLE} leave oifname {HOST_LINK} ip saddr {own} snat to {public}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16, members: &[u8], well: &[u8]) -> Flow {
        let address = |n: &u8| Ipv4Addr::new(10, 224, 0, *n);
        Flow {
            frontend: Ipv4Addr::new(198, 18, 4, 4),
            is_public: true,
            protocol: Protocol::Tcp,
            port,
            backend_port: port,
            is_floating: true,
            distribution: Distribution::FiveTuple,
            idle: Duration::from_secs(240),
            members: members.iter().map(address).collect(),
            well: well.iter().map(address).collect(),
        }
    }

    fn of(flows: &[Flow]) -> Setting {
        Setting {
            flows: flows.to_vec(),
            attached: BTreeMap::new(),
        }
    }

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|own| own.contains(line))
    }

    #[test]
    fn only_machines_that_are_well_get_new_connections_and_all_keep_theirs() {
        let setting = of(&[flow(80, &[4, 5, 6], &[4, 6])]);
        let text = script(&setting);
        assert!(
            has(
                &text,
                "jhash ip saddr . th sport mod 2 map { 0 : 0x0ae00004, 1 : 0x0ae00006 }"
            ),
            "{text}"
        );
        assert!(
            has(&text, "{ 198.18.4.4 . tcp . 80 : goto tcp_80_198_18_4_4 }"),
            "{text}"
        );
        assert!(has(&text, "ct timeout set \"idle_tcp_240\""), "{text}");
        let marks: Vec<u32> = ways(&setting).into_keys().collect();
        assert_eq!(marks, [0x0ae0_0004, 0x0ae0_0005, 0x0ae0_0006]);
        let nobody = script(&of(&[flow(80, &[4], &[])]));
        assert!(
            !nobody.contains("jhash") && has(&nobody, " drop"),
            "{nobody}"
        );
    }

    #[test]
    fn without_a_floating_address_packets_are_rewritten() {
        let mut flow = flow(80, &[4, 5], &[4, 5]);
        (flow.is_floating, flow.backend_port) = (false, 30080);
        let text = script(&of(&[flow.clone()]));
        let to = "ip daddr 198.18.4.4 tcp dport 80 dnat ip addr . port to jhash ip saddr . tcp sport mod 2 map \
                  { 0 : 10.224.0.4 . 30080, 1 : 10.224.0.5 . 30080 }";
        assert!(has(&text, to), "{text}");
        assert!(!text.contains("goto"), "{text}");
        assert!(ways(&of(&[flow.clone()])).is_empty());
        flow.distribution = Distribution::Source;
        assert!(has(&script(&of(&[flow])), "jhash ip saddr mod 2"));
    }

    #[test]
    fn a_rule_for_all_ports_comes_after_those_for_one() {
        let mut every = flow(0, &[4, 5], &[4, 5]);
        every.protocol = Protocol::All;
        let text = script(&of(&[every.clone(), flow(80, &[4], &[4])]));
        assert!(
            has(&text, "every { 198.18.4.4 : goto all_0_198_18_4_4 }"),
            "{text}"
        );
        assert!(
            has(&text, "all_0_198_18_4_4 ct mark set meta mark"),
            "{text}"
        );
        every.is_floating = false;
        let text = script(&of(&[every, flow(80, &[4], &[4])]));
        let to = "ip daddr 198.18.4.4 dnat to jhash ip saddr . th sport mod 2 map { 0 : 10.224.0.4, 1 : 10.224.0.5 }";
        assert!(has(&text, to), "{text}");
    }

    #[test]
    fn a_machine_may_have_an_address_of_its_own_and_without_any_nothing_is_left() {
        let mut own = Setting::default();
        let public = Ipv4Addr::new(198, 18, 4, 9);
        own.attached.insert(public, Ipv4Addr::new(10, 0, 0, 4));
        assert!(own.public().contains(&public));
        let text = script(&own);
        assert!(
            has(&text, "enter ip daddr 198.18.4.9 dnat to 10.0.0.4"),
            "{text}"
        );
        assert!(has(&text, "ip saddr 10.0.0.4 snat to 198.18.4.9"), "{text}");
        assert_eq!(script(&Setting::default()), nothing());
    }
}
