//! How a security group's rules are asked without asking all of them: a few are asked in turn; of many only those whose
//! ports or addresses a packet has, which a map finds. Only first packets of connections come here. Pure.

use ::cloud::{SecurityRule, Spans};

/// Up to so many rules are asked in turn.
const FEW: usize = 16;
/// How much longer all parts together may be than the rules themselves, before asking in turn is better.
const LONGER: usize = 8;
/// TCP and UDP: what has ports.
const PORTED: [u8; 2] = [6, 17];

/// What a packet is looked at for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    From,
    To,
    ToPort,
}

impl Field {
    fn of(self, rule: &SecurityRule) -> &Spans {
        match self {
            Field::From => &rule.from,
            Field::To => &rule.to,
            Field::ToPort => &rule.to_ports,
        }
    }

    fn largest(self) -> u32 {
        match self {
            Field::From | Field::To => u32::MAX,
            Field::ToPort => u32::from(u16::MAX),
        }
    }

    /// Nftables' word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Field::From => "ip saddr",
            Field::To => "ip daddr",
            Field::ToPort => "th dport",
        }
    }
}

/// How rules are asked; numbers are theirs. Who is in no part is about nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    InTurn(Vec<usize>),
    By(Field, Vec<Part>),
}

/// The rules for a range of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) rules: Vec<usize>,
}

/// How a gate's rules are asked: about packets with ports, and about others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) with_ports: Asked,
    pub(super) without: Asked,
}

/// The way to ask these rules.
pub(super) fn plan(rules: &[SecurityRule]) -> Plan {
    let about = |fits: &dyn Fn(&SecurityRule) -> bool| -> Vec<usize> {
        let all = rules.iter().enumerate();
        let all = all.filter(|(_, rule)| {
            let sides = [&rule.from, &rule.to, &rule.from_ports, &rule.to_ports];
            sides.iter().all(|spans| !spans.is_empty()) && fits(rule)
        });
        all.map(|(number, _)| number).collect()
    };
    let ported = |rule: &SecurityRule| rule.protocol.is_none_or(|own| PORTED.contains(&own));
    let others = |rule: &SecurityRule| {
        rule.has_any_port() && rule.protocol.is_none_or(|own| !PORTED.contains(&own))
    };
    Plan {
        with_ports: asked(
            rules,
            about(&ported),
            &[Field::ToPort, Field::From, Field::To],
        ),
        without: asked(rules, about(&others), &[Field::From, Field::To]),
    }
}

fn asked(rules: &[SecurityRule], numbers: Vec<usize>, fields: &[Field]) -> Asked {
    if numbers.len() <= FEW {
        return Asked::InTurn(numbers);
    }
    let size = |parts: &Vec<Part>| parts.iter().map(|part| part.rules.len()).sum::<usize>();
    let ways = fields
        .iter()
        .map(|field| (*field, parts(rules, &numbers, *field)));
    // Which leaves the fewest to be asked, wherever a packet comes.
    let longest = |parts: &Vec<Part>| parts.iter().map(|part| part.rules.len()).max();
    let best = ways.min_by_key(|(_, parts)| (longest(parts), size(parts)));
    match best {
        Some((field, parts)) if size(&parts) <= LONGER * numbers.len() => Asked::By(field, parts),
        _ => Asked::InTurn(numbers),
    }
}

/// The ranges of a field in which the same rules are about packets.
fn parts(rules: &[SecurityRule], numbers: &[usize], field: Field) -> Vec<Part> {
    let ranges = numbers
        .iter()
        .flat_map(|number| field.of(&rules[*number]).ranges());
    let mut starts: Vec<u32> = ranges
        .flat_map(|(first, last)| [Some(*first), last.checked_add(1)])
        .flatten()
        .chain([0])
        .filter(|start| *start <= field.largest())
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let lasts = starts.iter().skip(1).map(|next| next - 1);
    let lasts: Vec<u32> = lasts.chain([field.largest()]).collect();
    let mut parts: Vec<Part> = Vec::new();
    for (first, last) in starts.into_iter().zip(lasts) {
        let mut own = Vec::new();
        for number in numbers {
            let rule = &rules[*number];
            if field.of(rule).contains(first) {
                own.push(*number);
                if is_about_all_but(rule, field) {
                    break;
                }
            }
        }
        match parts.last_mut() {
            Some(before) if before.rules == own && before.last.checked_add(1) == Some(first) => {
                before.last = last;
            }
            _ if own.is_empty() => {}
            _ => parts.push(Part {
                first,
                last,
                rules: own,
            }),
        }
    }
    parts
}

/// Whether a rule is about everything with its part of a field: nobody after it is asked.
fn is_about_all_but(rule: &SecurityRule, field: Field) -> bool {
    let is_all = |other: Field, all: &Spans| other == field || other.of(rule) == all;
    rule.protocol.is_none()
        && rule.from_ports == Spans::all_ports()
        && is_all(Field::ToPort, &Spans::all_ports())
        && is_all(Field::From, &Spans::all_addresses())
        && is_all(Field::To, &Spans::all_addresses())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ::cloud::{Packet, allows};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What a packet is told, by the way that nftables goes.
    fn goes(rules: &[SecurityRule], plan: &Plan, packet: &Packet) -> bool {
        let asked = match packet.ports {
            Some(_) => &plan.with_ports,
            None => &plan.without,
        };
        let numbers = match asked {
            Asked::InTurn(numbers) => numbers.as_slice(),
            Asked::By(field, parts) => {
                let value = match field {
                    Field::From => packet.from.into(),
                    Field::To => packet.to.into(),
                    Field::ToPort => packet.ports.map_or(0, |(_, to)| to.into()),
                };
                let mut part = parts
                    .iter()
                    .filter(|part| part.first <= value && value <= part.last);
                part.next().map_or(&[][..], |part| &part.rules)
            }
        };
        let mut own = numbers.iter().map(|number| &rules[*number]);
        own.find(|rule| rule.matches(packet))
            .is_some_and(|rule| rule.allows)
    }

    // Few addresses and ports, so that rules and packets meet.
    fn spans(largest: u32, all: Spans) -> impl Strategy<Value = Spans> {
        let range = (0..12u32, 0..5u32).prop_map(|(first, more)| (first, first + more));
        let some = vec(range, 0..3).prop_map(Spans::of);
        let edge = Just(Spans::of(vec![(largest - 3, largest)]));
        prop_oneof![3 => some, 1 => Just(all), 1 => edge]
    }

    fn rule() -> impl Strategy<Value = SecurityRule> {
        let addresses = || spans(u32::MAX, Spans::all_addresses());
        let ports =
            || prop_oneof![2 => Just(Spans::all_ports()), 2 => spans(65535, Spans::all_ports())];
        let protocol = prop::option::of(prop::sample::select(&[1u8, 6, 17, 50][..]));
        (
            any::<bool>(),
            protocol,
            addresses(),
            ports(),
            addresses(),
            ports(),
        )
            .prop_map(
                |(allows, protocol, from, from_ports, to, to_ports)| SecurityRule {
                    name: String::new(),
                    allows,
                    protocol,
                    from,
                    from_ports,
                    to,
                    to_ports,
                },
            )
    }

    fn packet() -> impl Strategy<Value = Packet> {
        let number = |largest: u32| prop_oneof![4 => 0..16u32, 1 => largest - 4..=largest];
        let port = move || number(65535).prop_map(|port| u16::try_from(port).unwrap_or(0));
        let protocol = prop::sample::select(&[1u8, 6, 17, 50, 51][..]);
        (protocol, number(u32::MAX), number(u32::MAX), port(), port()).prop_map(
            |(protocol, from, to, own, port)| Packet {
                protocol,
                from: Ipv4Addr::from(from),
                to: Ipv4Addr::from(to),
                ports: [6, 17].contains(&protocol).then_some((own, port)),
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn however_rules_are_asked_they_say_what_they_mean(
            rules in vec(rule(), 0..60),
            packets in vec(packet(), 40),
        ) {
            let plan = plan(&rules);
            for packet in &packets {
                prop_assert_eq!(goes(&rules, &plan, packet), allows(&rules, packet), "{:?}", packet);
            }
        }
    }

    #[test]
    fn of_a_thousand_rules_for_a_thousand_ports_one_is_asked() {
        let rule = |port: u32| SecurityRule {
            name: String::new(),
            allows: true,
            protocol: Some(6),
            from: Spans::all_addresses(),
            from_ports: Spans::all_ports(),
            to: Spans::all_addresses(),
            to_ports: Spans::of(vec![(port, port)]),
        };
        let rules: Vec<SecurityRule> = (1..=1000).map(rule).collect();
        let Asked::By(field, parts) = plan(&rules).with_ports else {
            panic!("one after the other");
        };
        assert_eq!((field, parts.len()), (Field::ToPort, 1000));
        assert!(parts.iter().all(|part| part.rules.len() == 1));
        assert_eq!(plan(&rules).without, Asked::InTurn(Vec::new()));
    }
}
