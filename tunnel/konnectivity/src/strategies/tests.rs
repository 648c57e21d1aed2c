#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

struct Agent {
    id: &'static str,
    identifiers: Identifiers,
    draining: bool,
    load: usize,
}

impl Candidate for Agent {
    fn agent_id(&self) -> &str {
        self.id
    }

    fn identifiers(&self) -> &Identifiers {
        &self.identifiers
    }

    fn draining(&self) -> bool {
        self.draining
    }

    fn load(&self) -> usize {
        self.load
    }
}

fn agent(id: &'static str, identifiers: &str, draining: bool, load: usize) -> Agent {
    Agent {
        id,
        identifiers: Identifiers::parse(identifiers),
        draining,
        load,
    }
}

fn chosen(strategies: &str, agents: &[Agent], address: &str, dice: &[usize]) -> Option<usize> {
    let strategies = Strategy::parse_list(strategies).unwrap();
    let mut dice = dice.iter().copied();
    let found = pick(&strategies, agents, address, |_| dice.next().unwrap())?;
    agents.iter().position(|agent| std::ptr::eq(agent, found))
}

#[test]
fn strategies_choose_as_upstreams_do() {
    let plain = [agent("a", "", false, 0), agent("b", "", false, 0)];
    let routes = [
        agent("a", "", false, 0),
        agent("b", "default-route=true", false, 0),
    ];
    let hosts = [
        agent("a", "host=node-1&ipv4=10.0.0.1", true, 0),
        agent("b", "ipv4=10.0.0.1&ipv6=fd00%3A%3A1", false, 0),
    ];
    let twice = [agent("a", "", false, 0), agent("a", "", false, 0)];
    let leaving = [agent("a", "", true, 0), agent("b", "", false, 9)];
    let all_leaving = [agent("a", "", true, 0)];
    let loads = [agent("a", "", false, 5), agent("b", "", false, 1)];
    type Case<'a> = (
        &'a str,
        &'a str,
        &'a [Agent],
        &'a str,
        &'a [usize],
        Option<usize>,
    );
    let cases: [Case<'_>; 13] = [
        ("nobody", "default", &[], "h:1", &[], None),
        ("chance", "default", &plain, "h:1", &[1, 1], Some(1)),
        (
            "the lighter of two",
            "default",
            &loads,
            "h:1",
            &[0, 1],
            Some(1),
        ),
        (
            "one agent's oldest stream",
            "default",
            &twice,
            "h:1",
            &[],
            Some(0),
        ),
        (
            "not one that is leaving",
            "default",
            &leaving,
            "h:1",
            &[],
            Some(1),
        ),
        (
            "unless all are",
            "default",
            &all_leaving,
            "h:1",
            &[],
            Some(0),
        ),
        (
            "a default route",
            "defaultRoute",
            &routes,
            "h:1",
            &[],
            Some(1),
        ),
        ("no default route", "defaultRoute", &plain, "h:1", &[], None),
        (
            "a host's name",
            "destHost",
            &hosts,
            "node-1:10250",
            &[],
            Some(0),
        ),
        (
            "a host that is not leaving",
            "destHost",
            &hosts,
            "10.0.0.1:1",
            &[],
            Some(1),
        ),
        (
            "an IPv6 host",
            "destHost",
            &hosts,
            "[fd00::1]:1",
            &[],
            Some(1),
        ),
        (
            "an unknown host",
            "destHost",
            &hosts,
            "10.0.0.2:1",
            &[],
            None,
        ),
        (
            "the next strategy",
            "destHost,,default",
            &plain,
            "h:1",
            &[0, 0],
            Some(0),
        ),
    ];
    for (name, strategies, agents, address, dice, expected) in cases {
        assert_eq!(
            chosen(strategies, agents, address, dice),
            expected,
            "{name}"
        );
    }
}

#[test]
fn hosts_are_cut_from_addresses_by_upstreams_rule() {
    for (address, host) in [
        ("node:1", "node"),
        ("node", "node"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("[fd00::1]:80", "fd00::1"),
        ("fd00::1", "fd00::1"),
    ] {
        assert_eq!(host_of(address), host, "{address}");
    }
}

#[test]
fn identifiers_are_read() {
    let found = Identifiers::parse("host=a%20b&host=c+d&cidr=10.0.0.0/8&default-route=T&x=y&%zz");
    assert_eq!(found.hosts, ["a b", "c d"]);
    assert_eq!(found.cidrs, ["10.0.0.0/8"]);
    assert!(found.default_route);
    assert!(!Identifiers::parse("default-route=yes&default-route=true").default_route);
    assert_eq!(
        Identifiers::unknown_key("host=a&uid=b"),
        Some("uid".to_owned())
    );
    assert_eq!(Identifiers::unknown_key("host=a"), None);
}

#[test]
fn an_unknown_strategy_is_refused() {
    assert!(Strategy::parse_list("default,destCIDR").is_err());
}

#[test]
fn agents_are_counted_by_strategy() {
    let agents = [
        agent("a", "host=x", false, 0),
        agent("a", "host=x", false, 0),
        agent("b", "default-route=1", false, 0),
    ];
    assert_eq!(count(Strategy::Default, &agents), 2);
    assert_eq!(count(Strategy::DestHost, &agents), 1);
    assert_eq!(count(Strategy::DefaultRoute, &agents), 1);
}
