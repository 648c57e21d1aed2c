//! Who may come in: rules of the security group for all Services at once.
//!
//! Services that let the same people in at the same ports share a rule, which has the addresses of all of them. A range
//! that cannot be read closes the door: nobody else comes in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use azure::models::{Part, SecurityGroup};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::names::{self, Family};
use super::wish::Wish;
use crate::parts::settle;

/// Azure's limits of one group.
const MOST_RULES: usize = 1000;
const MOST_PREFIXES: usize = 4000;
/// Priorities of ours: who comes in from the lower end up, who stays out from the upper end down.
const PRIORITIES: std::ops::RangeInclusive<i64> = 500..=4095;

/// Who may reach a Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Access {
    allow: Vec<(Group, BTreeSet<String>)>,
    deny: Vec<(Family, BTreeSet<String>)>,
    /// Ranges that cannot be read.
    pub(crate) invalid: Vec<String>,
}

/// What Services share a rule for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    family: Family,
    protocol: &'static str,
    /// One tag, or ranges.
    sources: Vec<String>,
    ports: Vec<String>,
}

struct Ranges {
    nets: Vec<IpNet>,
    invalid: Vec<String>,
}

/// Reads ranges; one with bits behind its length is no range.
fn ranges(texts: &[String]) -> Ranges {
    let mut nets = Vec::new();
    let mut invalid = Vec::new();
    for text in texts {
        match text.trim().parse::<IpNet>() {
            Ok(net) if net.trunc() == net => nets.push(net),
            _ => invalid.push(text.clone()),
        }
    }
    Ranges {
        nets: IpNet::aggregate(&nets),
        invalid,
    }
}

/// Who may reach a Service at these addresses, of which those of nodes count where its connections arrive there.
pub(crate) fn access(wish: &Wish, addresses: &[IpAddr], nodes: &[IpAddr]) -> Access {
    let mut access = Access::default();
    if wish.options.no_security_rule {
        return access;
    }
    let texts = wish
        .ranges
        .as_ref()
        .or(wish.options.allowed_ranges.as_ref());
    let Ranges { nets, invalid } = ranges(texts.map_or(&[][..], Vec::as_slice));
    let tags = &wish.options.allowed_tags;
    let has_all = nets.iter().any(|net| net.prefix_len() == 0);
    let is_open = tags.is_empty()
        && invalid.is_empty()
        && (has_all || (nets.is_empty() && !wish.options.internal));
    let denies = !invalid.is_empty() || (wish.options.deny_others && !nets.is_empty() && !is_open);
    access.invalid = invalid;
    for family in &wish.families {
        let floats = !wish.options.no_floating_ip;
        let at = if floats { addresses } else { nodes };
        let at: BTreeSet<String> = at
            .iter()
            .filter(|ip| Family::of(ip) == *family)
            .map(ToString::to_string)
            .collect();
        if at.is_empty() {
            continue;
        }
        let mut sources: Vec<Vec<String>> = tags.iter().map(|tag| vec![tag.clone()]).collect();
        let own = nets.iter().filter(|net| Family::of(&net.addr()) == *family);
        let mut own: Vec<String> = own.map(ToString::to_string).collect();
        own.sort();
        match is_open {
            true => sources = vec![vec!["Internet".into()]],
            false if own.is_empty() => {}
            false => sources.push(own),
        }
        for (protocol, ports) in ports(wish, floats) {
            access.allow.extend(sources.iter().map(|sources| {
                let group = Group {
                    family: *family,
                    protocol,
                    sources: sources.clone(),
                    ports: ports.clone(),
                };
                (group, at.clone())
            }));
        }
        if denies {
            access.deny.push((*family, at));
        }
    }
    access
}

/// Ports by protocol, in the order of their texts as upstream's names have them.
fn ports(wish: &Wish, floats: bool) -> BTreeMap<&'static str, Vec<String>> {
    let mut all: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for port in &wish.ports {
        let protocol = match port.protocol.as_str() {
            "TCP" => "Tcp",
            "UDP" => "Udp",
            _ => "*",
        };
        let number = if floats { port.port } else { port.node_port };
        all.entry(protocol).or_default().insert(number.to_string());
    }
    all.into_iter()
        .map(|(protocol, ports)| (protocol, ports.into_iter().collect()))
        .collect()
}

/// Brings a security group to what all Services together need; gives whether that changes anything. Addresses of
/// Services that are not decided about (`kept`) stay where they are.
pub(crate) fn plan(
    group: &mut SecurityGroup,
    accesses: &[Access],
    kept: &[IpAddr],
) -> Result<bool, String> {
    let mut wanted = wanted(accesses);
    keep(&mut wanted, group, kept);
    if group
        .rules
        .iter()
        .filter(|rule| !names::is_security_rule(&rule.name))
        .count()
        + wanted.len()
        > MOST_RULES
    {
        return Err(format!(
            "the security group would have more than {MOST_RULES} rules"
        ));
    }
    for field in ["sourceAddressPrefixes", "destinationAddressPrefixes"] {
        let count = |rule: &Value| rule[field].as_array().map_or(0, Vec::len);
        let total: usize = wanted.values().map(count).sum();
        if total > MOST_PREFIXES {
            return Err(format!(
                "the security group would have more than {MOST_PREFIXES} {field}"
            ));
        }
    }
    prioritise(&mut wanted, group)?;
    let wanted = wanted.into_iter().map(|(name, rule)| Part::new(name, rule));
    Ok(settle(&mut group.rules, wanted.collect(), |rule| {
        names::is_security_rule(&rule.name)
    }))
}

/// Rules by name, without their priorities.
fn wanted(accesses: &[Access]) -> BTreeMap<String, Value> {
    let mut allow: BTreeMap<Group, BTreeSet<String>> = BTreeMap::new();
    let mut deny: BTreeMap<Family, BTreeSet<String>> = BTreeMap::new();
    for access in accesses {
        for (group, at) in &access.allow {
            allow
                .entry(group.clone())
                .or_default()
                .extend(at.iter().cloned());
        }
        for (family, at) in &access.deny {
            deny.entry(*family).or_default().extend(at.iter().cloned());
        }
    }
    let allowed = allow.into_iter().map(|(group, at)| {
        let name = names::allow(group.family, group.protocol, &group.sources, &group.ports);
        let mut rule = rule("Allow", group.protocol, &at);
        // A tag is no range.
        let is_tag = group.sources.len() == 1 && group.sources[0].parse::<IpNet>().is_err();
        match is_tag {
            true => rule["sourceAddressPrefix"] = json!(group.sources[0]),
            false => rule["sourceAddressPrefixes"] = json!(group.sources),
        }
        rule["destinationPortRanges"] = json!(group.ports);
        (name, rule)
    });
    let denied = deny.into_iter().map(|(family, at)| {
        let mut rule = rule("Deny", "*", &at);
        rule["sourceAddressPrefix"] = json!("*");
        rule["destinationPortRange"] = json!("*");
        (names::deny(family), rule)
    });
    allowed.chain(denied).collect()
}

fn rule(access: &str, protocol: &str, at: &BTreeSet<String>) -> Value {
    json!({"access": access, "direction": "Inbound", "protocol": protocol, "sourcePortRange": "*",
        "destinationAddressPrefixes": at})
}

fn destinations(rule: &Value) -> BTreeSet<String> {
    let many = rule["destinationAddressPrefixes"]
        .as_array()
        .into_iter()
        .flatten();
    let one = rule.get("destinationAddressPrefix").into_iter();
    let all = many.chain(one).filter_map(Value::as_str);
    all.filter(|text| !text.is_empty())
        .map(str::to_owned)
        .collect()
}

fn keep(wanted: &mut BTreeMap<String, Value>, group: &SecurityGroup, kept: &[IpAddr]) {
    let kept: BTreeSet<String> = kept.iter().map(ToString::to_string).collect();
    for present in group
        .rules
        .iter()
        .filter(|rule| names::is_security_rule(&rule.name))
    {
        let own: BTreeSet<String> = destinations(&present.properties)
            .intersection(&kept)
            .cloned()
            .collect();
        if own.is_empty() {
            continue;
        }
        let rule = wanted.entry(present.name.clone()).or_insert_with(|| {
            let mut rule = present.properties.clone();
            rule["destinationAddressPrefixes"] = json!([]);
            rule
        });
        let mut all = destinations(rule);
        all.extend(own);
        rule["destinationAddressPrefixes"] = json!(all);
    }
}

fn prioritise(wanted: &mut BTreeMap<String, Value>, group: &SecurityGroup) -> Result<(), String> {
    let of = |rule: &Part| rule.properties["priority"].as_i64();
    let present = |name: &str| {
        group
            .rules
            .iter()
            .find(|rule| rule.name.eq_ignore_ascii_case(name))
    };
    let inbound = group
        .rules
        .iter()
        .filter(|rule| rule.text("/direction") == "Inbound");
    let stays = inbound
        .filter(|rule| !names::is_security_rule(&rule.name) || wanted.contains_key(&rule.name));
    let mut taken: BTreeSet<i64> = stays.filter_map(of).collect();
    for (name, rule) in wanted.iter_mut() {
        let own = present(name).and_then(of);
        let is_free = |priority: &i64| !taken.contains(priority);
        let priority = own.or_else(|| match rule["access"] == "Deny" {
            true => PRIORITIES.rev().find(is_free),
            false => PRIORITIES.clone().find(is_free),
        });
        let priority = priority.ok_or("the security group has no priority left")?;
        taken.insert(priority);
        rule["priority"] = json!(priority);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::wish::tests::wish;
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Rules in short: access, protocol, sources, ports, destinations.
    fn shown(group: &SecurityGroup) -> Vec<String> {
        let text = |rule: &Part, one: &str, many: &str| {
            let many = rule.properties[many]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let many = many
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(",");
            if many.is_empty() {
                rule.properties[one].as_str().unwrap_or_default().to_owned()
            } else {
                many
            }
        };
        let row = |rule: &Part| {
            format!(
                "{} {} {} {} {} {}",
                rule.properties["priority"],
                rule.text("/access"),
                rule.text("/protocol"),
                text(rule, "sourceAddressPrefix", "sourceAddressPrefixes"),
                text(rule, "destinationPortRange", "destinationPortRanges"),
                text(
                    rule,
                    "destinationAddressPrefix",
                    "destinationAddressPrefixes"
                )
            )
        };
        let mut rows: Vec<String> = group.rules.iter().map(row).collect();
        rows.sort();
        rows
    }

    fn planned(annotations: Value, spec: Value) -> Vec<String> {
        let mut group = SecurityGroup::default();
        let one = wish(1, annotations, spec);
        let access = access(&one, &[ip("20.0.0.1")], &[ip("10.0.0.4"), ip("10.0.0.5")]);
        plan(&mut group, &[access], &[]).unwrap();
        shown(&group)
    }

    #[test]
    fn who_comes_in() {
        let none = || json!({});
        let internal = || json!({"azure-load-balancer-internal": "true"});
        let ranges = |ranges: &[&str]| json!({"loadBalancerSourceRanges": ranges});
        let denied = "4095 Deny * * * 20.0.0.1";
        #[rustfmt::skip]
        let cases: Vec<(Value, Value, Vec<&str>)> = vec![
            (none(), none(), vec!["500 Allow Tcp Internet 80 20.0.0.1"]),
            (internal(), none(), vec![]),
            (internal(), ranges(&["0.0.0.0/0"]), vec!["500 Allow Tcp Internet 80 20.0.0.1"]),
            (none(), ranges(&["10.0.0.0/9", "10.128.0.0/9", "1.2.3.4/32"]), vec!["500 Allow Tcp 1.2.3.4/32,10.0.0.0/8 80 20.0.0.1"]),
            (json!({"load-balancer-source-ranges": "1.0.0.0/8"}), none(), vec!["500 Allow Tcp 1.0.0.0/8 80 20.0.0.1"]),
            (json!({"azure-allowed-ip-ranges": "1.0.0.0/8"}), none(), vec!["500 Allow Tcp 1.0.0.0/8 80 20.0.0.1"]),
            (none(), ranges(&["10.0.0.1/8"]), vec![denied]),
            (none(), ranges(&["10.0.0.1/8", "1.0.0.0/8"]), vec![denied, "500 Allow Tcp 1.0.0.0/8 80 20.0.0.1"]),
            (none(), ranges(&["rubbish"]), vec![denied]),
            (json!({"azure-deny-all-except-load-balancer-source-ranges": "true"}), ranges(&["1.0.0.0/8"]), vec![denied, "500 Allow Tcp 1.0.0.0/8 80 20.0.0.1"]),
            (json!({"azure-deny-all-except-load-balancer-source-ranges": "true"}), none(), vec!["500 Allow Tcp Internet 80 20.0.0.1"]),
            (json!({"azure-allowed-service-tags": "AzureCloud,Storage"}), none(), vec!["500 Allow Tcp Storage 80 20.0.0.1", "501 Allow Tcp AzureCloud 80 20.0.0.1"]),
            (json!({"azure-disable-load-balancer-nsg-rule": "true"}), none(), vec![]),
            (json!({"azure-disable-load-balancer-floating-ip": "true"}), none(), vec!["500 Allow Tcp Internet 30001 10.0.0.4,10.0.0.5"]),
            (none(), json!({"ports": [{"port": 80, "protocol": "TCP"}, {"port": 9, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
                vec!["500 Allow Udp Internet 53 20.0.0.1", "501 Allow Tcp Internet 80,9 20.0.0.1"]),
        ];
        for (annotations, spec, expected) in cases {
            let said = format!("{annotations} {spec}");
            let mut got: Vec<String> = planned(annotations, spec)
                .iter()
                .map(|row| row[4..].to_owned())
                .collect();
            let mut expected: Vec<&str> = expected.iter().map(|row| &row[4..]).collect();
            got.sort();
            expected.sort();
            assert_eq!(got, expected, "{said}");
        }
    }

    #[test]
    fn services_share_rules_and_priorities_stay() {
        let mut group = SecurityGroup::default();
        group.rules.push(Part::new(
            "ssh",
            json!({"priority": 500, "direction": "Inbound", "access": "Allow"}),
        ));
        let open =
            |number: u32, at: &str| access(&wish(number, json!({}), json!({})), &[ip(at)], &[]);
        assert!(plan(&mut group, &[open(1, "20.0.0.1"), open(2, "20.0.0.2")], &[]).unwrap());
        assert_eq!(group.rules.len(), 2);
        assert_eq!(group.rules[1].properties["priority"], 501);
        assert!(
            !plan(&mut group, &[open(2, "20.0.0.2"), open(1, "20.0.0.1")], &[]).unwrap(),
            "a second time"
        );
        assert!(
            !plan(&mut group, &[open(2, "20.0.0.2")], &[ip("20.0.0.1")]).unwrap(),
            "kept"
        );
        assert!(plan(&mut group, &[open(2, "20.0.0.2")], &[]).unwrap());
        assert_eq!(
            destinations(&group.rules[1].properties),
            BTreeSet::from(["20.0.0.2".to_owned()])
        );
        assert!(plan(&mut group, &[], &[]).unwrap());
        assert_eq!(group.rules.len(), 1);
    }

    #[test]
    fn a_group_that_is_full_is_said() {
        let mut group = SecurityGroup::default();
        for number in 0..1000 {
            group.rules.push(Part::new(
                format!("r{number}"),
                json!({"priority": number + 500, "direction": "Inbound"}),
            ));
        }
        let open = access(&wish(1, json!({}), json!({})), &[ip("20.0.0.1")], &[]);
        assert!(plan(&mut group, &[open], &[]).unwrap_err().contains("1000"));
    }
}
