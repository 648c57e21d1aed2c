use super::*;
use crate::ledger::Attachment;

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn ledger(pods: &[(&str, u64, &[PortMapping])]) -> Ledger {
    let mut ledger = Ledger {
        base: Base {
            masquerade: true,
            pods: vec![net("10.244.0.0/24"), net("fd00::/64")],
            inside: vec![net("10.244.0.0/16")],
        },
        ..Ledger::default()
    };
    for (address, order, ports) in pods {
        let pod = Attachment {
            addresses: vec![address.parse().expect("an address")],
            order: *order,
            ports: ports.to_vec(),
            ..Attachment::default()
        };
        ledger.attachments.insert((*address).to_owned(), pod);
    }
    ledger
}

fn port(host_port: u16, host_ip: Option<&str>) -> PortMapping {
    PortMapping {
        host_port,
        container_port: 80,
        protocol: Protocol::Tcp,
        host_ip: host_ip.map(|ip| ip.parse().expect("an address")),
    }
}

#[test]
fn what_stays_in_the_cluster_is_left_alone_before_the_rest_is_masqueraded() {
    let rules = rules(&ledger(&[]), true);
    let last = rules.last().expect("a rule");
    assert_eq!(last.verdict, Verdict::Masquerade);
    assert_eq!(last.tests, [Test::From(net("10.244.0.0/24"))]);
    let left: Vec<Test> = rules[..rules.len() - 1]
        .iter()
        .flat_map(|rule| rule.tests.clone())
        .collect();
    assert!(left.contains(&Test::To(net("10.244.0.0/16"))));
    assert!(left.contains(&Test::To(net("224.0.0.0/4"))));
}

#[test]
fn families_do_not_mix() {
    for is_4 in [true, false] {
        for rule in rules(&ledger(&[("10.244.0.2", 1, &[port(8080, None)])]), is_4) {
            for test in rule.tests {
                if let Test::From(net) | Test::To(net) = test {
                    assert_eq!(net.addr().is_ipv4(), is_4);
                }
            }
        }
    }
}

#[test]
fn of_two_pods_with_a_port_the_later_one_comes_first() {
    let ports = [port(8080, None)];
    let books = ledger(&[("10.244.0.2", 2, &ports), ("10.244.0.3", 1, &ports)]);
    let leads: Vec<Verdict> = rules(&books, true)
        .into_iter()
        .filter(|rule| rule.chain == Chain::Arriving)
        .map(|rule| rule.verdict)
        .collect();
    let to = |text: &str| Verdict::Lead(text.parse().expect("an address"), 80);
    assert_eq!(leads, [to("10.244.0.2"), to("10.244.0.3")]);
}

#[test]
fn ports_of_an_address_are_of_that_address_alone() {
    for (host_ip, four, six) in [
        (None, 1, 1),
        (Some("0.0.0.0"), 1, 0),
        (Some("::"), 0, 1),
        (Some("192.0.2.1"), 1, 0),
    ] {
        let mut books = ledger(&[("10.244.0.2", 1, &[port(8080, host_ip)])]);
        let pod = books.attachments.values_mut().next().expect("a pod");
        pod.addresses.push("fd00::2".parse().expect("an address"));
        for (is_4, expected) in [(true, four), (false, six)] {
            let rules = rules(&books, is_4);
            let leads = rules.iter().filter(|rule| rule.chain == Chain::Arriving);
            assert_eq!(leads.count(), expected, "{host_ip:?} {is_4}");
        }
    }
}

#[test]
fn the_mark_changes_with_the_rules() {
    let one = rules(&ledger(&[]), true);
    let two = rules(&ledger(&[("10.244.0.2", 1, &[port(1, None)])]), true);
    assert_eq!(digest(&one), digest(&one.clone()));
    assert_ne!(digest(&one), digest(&two));
}
