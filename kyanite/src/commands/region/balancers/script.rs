//! What nftables is told inside a network. Pure.
//!
//! Where machines see the frontend's address (floating IP, as AKS has it), a packet is only sent on: at the network's
//! ingress, before it is routed, to the hardware address of a machine, which is what Azure does. Nothing is tracked but
//! which machine a client's port has, for as long as the rule's idle timeout says, so a connection stays with its machine
//! when others come and go. Otherwise the packet's destination is rewritten, and the kernel tracks the connection.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use ::cloud::{Distribution, Probe, Protocol, Rule};
use machines::{BRIDGE, HOST_LINK};

/// Our tables, in two families.
const SENT_ON: &str = "netdev kyanite_balancers";
const REWRITTEN: &str = "ip kyanite_balancers";

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

    fn protocol(&self) -> &'static str {
        match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    /// Its name among chains and maps.
    fn name(&self) -> String {
        let address = self.frontend.to_string().replace('.', "_");
        format!("{}_{}_{address}", self.protocol(), self.port)
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

    /// The addresses of the network itself that it answers for.
    pub(super) fn internal(&self) -> BTreeSet<Ipv4Addr> {
        let flows = self.flows.iter().filter(|flow| !flow.is_public);
        flows.map(|flow| flow.frontend).collect()
    }
}

/// A machine's mark: its address.
fn mark(address: Ipv4Addr) -> String {
    format!("{:#010x}", u32::from(address))
}

fn elements(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

/// A transaction that leaves nothing of ours.
pub(super) fn nothing() -> String {
    let tables = [SENT_ON, REWRITTEN];
    tables
        .map(|table| format!("add table {table}\ndelete table {table}\n"))
        .concat()
}

/// The transaction from what was told before to what is; everything anew where nothing is known to have been.
pub(super) fn script(before: Option<&Setting>, now: &Setting) -> String {
    let mut out = String::new();
    let has_host = !now.public().is_empty();
    // The cable's end, and what hangs on it, comes and goes with the first and the last of them.
    let before = before.filter(|before| before.public().is_empty() != has_host);
    if before.is_none() {
        out += &nothing();
    }
    let (sent, rewritten): (Vec<&Flow>, Vec<&Flow>) =
        now.flows.iter().partition(|flow| flow.is_floating);
    let is_gone =
        |old: &&Flow| old.is_floating && sent.iter().all(|flow| flow.name() != old.name());
    let gone = before.map_or(&[][..], |before| &before.flows).iter();
    let gone: Vec<&Flow> = gone.filter(is_gone).collect();
    if !sent.is_empty() || !gone.is_empty() {
        send_on(&mut out, &sent, &gone, has_host);
    }
    rewrite(&mut out, &rewritten, &now.attached);
    out
}

// Writing to a string cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

fn send_on(out: &mut String, flows: &[&Flow], gone: &[&Flow], has_host: bool) {
    let table = SENT_ON;
    line!(out, "add table {table}");
    line!(
        out,
        "add map {table} rules {{ type ipv4_addr . inet_proto . inet_service : verdict; }}"
    );
    line!(out, "flush map {table} rules");
    let host = has_host.then_some(("from_host", HOST_LINK));
    for (chain, device) in [("from_machines", BRIDGE)].into_iter().chain(host) {
        line!(
            out,
            "add chain {table} {chain} {{ type filter hook ingress device {device} priority 0; policy accept; }}"
        );
        line!(out, "flush chain {table} {chain}");
        line!(
            out,
            "add rule {table} {chain} ip daddr . ip protocol . th dport vmap @rules"
        );
    }
    for flow in flows {
        one(out, flow);
    }
    for flow in gone {
        let name = flow.name();
        line!(out, "flush chain {table} {name}");
        line!(out, "delete chain {table} {name}");
        line!(out, "delete map {table} members_{name}");
        line!(out, "delete map {table} flows_{name}");
    }
}

fn one(out: &mut String, flow: &Flow) {
    let (table, name) = (SENT_ON, flow.name());
    let idle = flow.idle.as_secs();
    line!(
        out,
        "add map {table} flows_{name} {{ type ipv4_addr . inet_service : mark; size 65535; flags dynamic,timeout; timeout {idle}s; }}"
    );
    line!(
        out,
        "add map {table} members_{name} {{ type mark : ipv4_addr; }}"
    );
    line!(out, "flush map {table} members_{name}");
    let members = elements(flow.members.iter().map(|a| format!("{} : {a}", mark(*a))));
    if !members.is_empty() {
        line!(out, "add element {table} members_{name} {{ {members} }}");
    }
    line!(out, "add chain {table} {name}");
    line!(out, "flush chain {table} {name}");
    let keep =
        format!("update @flows_{name} {{ ip saddr . th sport timeout {idle}s : meta mark }}");
    let send = format!("fwd ip to meta mark map @members_{name} device {BRIDGE}");
    line!(
        out,
        "add rule {table} {name} meta mark set ip saddr . th sport map @flows_{name}"
    );
    line!(out, "add rule {table} {name} meta mark != 0 {keep} {send}");
    if !flow.well.is_empty() {
        let well = flow.well.iter().enumerate();
        let well = elements(well.map(|(at, a)| format!("{at} : {}", mark(*a))));
        line!(
            out,
            "add rule {table} {name} meta mark set {} map {{ {well} }}",
            flow.hash()
        );
        line!(out, "add rule {table} {name} {keep} {send}");
    }
    // With nobody behind it a balancer says nothing.
    line!(out, "add rule {table} {name} drop");
    let to = format!("{} . {} . {}", flow.frontend, flow.protocol(), flow.port);
    line!(out, "add element {table} rules {{ {to} : goto {name} }}");
}

fn rewrite(out: &mut String, flows: &[&Flow], attached: &BTreeMap<Ipv4Addr, Ipv4Addr>) {
    let table = REWRITTEN;
    line!(out, "add table {table}\ndelete table {table}");
    if flows.is_empty() && attached.is_empty() {
        return;
    }
    line!(out, "add table {table}");
    line!(
        out,
        "add chain {table} enter {{ type nat hook prerouting priority -100; }}"
    );
    line!(
        out,
        "add chain {table} leave {{ type nat hook postrouting priority 100; }}"
    );
    // Between machines of one network the way back would not lead through here.
    line!(
        out,
        "add rule {table} leave iifname {BRIDGE} oifname {BRIDGE} ct status dnat masquerade"
    );
    for flow in flows {
        let packets = format!(
            "ip daddr {} {} dport {}",
            flow.frontend,
            flow.protocol(),
            flow.port
        );
        if flow.well.is_empty() {
            line!(out, "add rule {table} enter {packets} drop");
            continue;
        }
        let well = flow.well.iter().enumerate();
        let well = elements(well.map(|(at, a)| format!("{at} : {a} . {}", flow.backend_port)));
        let hash = flow
            .hash()
            .replace("th sport", &format!("{} sport", flow.protocol()));
        line!(
            out,
            "add rule {table} enter {packets} dnat ip addr . port to {hash} map {{ {well} }}"
        );
    }
    // After the rules: what a balancer leads elsewhere is not the machine's own.
    for (public, own) in attached {
        line!(
            out,
            "add rule {table} enter ip daddr {public} dnat to {own}"
        );
        line!(
            out,
            "add rule {table} leave oifname {HOST_LINK} ip saddr {own} snat to {public}"
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
        let text = script(None, &of(&[flow(80, &[4, 5, 6], &[4, 6])]));
        assert!(
            has(
                &text,
                "jhash ip saddr . th sport mod 2 map { 0 : 0x0ae00004, 1 : 0x0ae00006 }"
            ),
            "{text}"
        );
        assert!(has(&text, "0x0ae00005 : 10.224.0.5"), "{text}");
        assert!(
            has(&text, "{ 198.18.4.4 . tcp . 80 : goto tcp_80_198_18_4_4 }"),
            "{text}"
        );
        assert!(has(&text, "hook ingress device host0"), "{text}");
        let mut inside = flow(80, &[4], &[]);
        inside.is_public = false;
        let nobody = script(None, &of(&[inside]));
        assert!(
            !nobody.contains("jhash") && has(&nobody, " drop"),
            "{nobody}"
        );
        assert!(!nobody.contains("host0"), "{nobody}");
    }

    #[test]
    fn a_change_keeps_what_is_known_of_connections() {
        let (web, tls) = (flow(80, &[4, 5], &[4, 5]), flow(443, &[4], &[4]));
        let both = of(&[web, tls]);
        let first = script(None, &both);
        assert!(
            has(&first, "delete table netdev kyanite_balancers"),
            "{first}"
        );
        let less = flow(80, &[4, 5], &[5]);
        let second = script(Some(&both), &of(&[less]));
        assert!(!has(&second, "delete table netdev"), "{second}");
        assert!(
            !has(&second, "delete map netdev kyanite_balancers flows_tcp_80"),
            "{second}"
        );
        assert!(
            has(
                &second,
                "delete map netdev kyanite_balancers flows_tcp_443_198_18_4_4"
            ),
            "{second}"
        );
    }

    #[test]
    fn without_a_floating_address_packets_are_rewritten() {
        let mut flow = flow(80, &[4, 5], &[4, 5]);
        (flow.is_floating, flow.backend_port) = (false, 30080);
        let text = script(None, &of(&[flow.clone()]));
        let to = "ip daddr 198.18.4.4 tcp dport 80 dnat ip addr . port to jhash ip saddr . tcp sport mod 2 map \
                  { 0 : 10.224.0.4 . 30080, 1 : 10.224.0.5 . 30080 }";
        assert!(has(&text, to), "{text}");
        assert!(!text.contains("goto"), "{text}");
        flow.distribution = Distribution::Source;
        assert!(has(&script(None, &of(&[flow])), "jhash ip saddr mod 2"));
    }

    #[test]
    fn a_machine_may_have_an_address_of_its_own_and_without_any_nothing_is_left() {
        let mut own = Setting::default();
        let public = Ipv4Addr::new(198, 18, 4, 9);
        own.attached.insert(public, Ipv4Addr::new(10, 0, 0, 4));
        assert!(own.public().contains(&public));
        let text = script(None, &own);
        assert!(
            has(&text, "enter ip daddr 198.18.4.9 dnat to 10.0.0.4"),
            "{text}"
        );
        assert!(has(&text, "ip saddr 10.0.0.4 snat to 198.18.4.9"), "{text}");
        // Nobody hooks onto a cable that is not there.
        let empty = script(Some(&own), &Setting::default());
        assert!(
            empty.lines().all(|line| line.contains(" table ")),
            "{empty}"
        );
    }
}
