//! Network policies, IP addresses and Service networks.

use std::net::IpAddr;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, deep, has, int, items, some_int, text, texts};
use crate::validation::rules::{IMMUTABLE, complain, immutable, label_selector, required};

const SPEC: Path<'static> = Path::root("spec");

/// A new NetworkPolicy.
pub fn network_policy(object: &Value, errors: &mut Errors) {
    policy_spec(at(object, "spec"), &[], errors);
}

/// A changed NetworkPolicy; networks it already named are not judged again.
pub fn network_policy_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    let known = networks(at(old, "spec"));
    policy_spec(at(new, "spec"), &known, errors);
}

fn networks(spec: &Value) -> Vec<&str> {
    let peers = [("ingress", "from"), ("egress", "to")]
        .into_iter()
        .flat_map(|(rules, peers)| items(spec, rules).iter().flat_map(move |r| items(r, peers)));
    peers
        .map(|peer| at(peer, "ipBlock"))
        .flat_map(|block| texts(block, "except").chain([text(block, "cidr")]))
        .collect()
}

fn policy_spec(spec: &Value, known: &[&str], errors: &mut Errors) {
    label_selector(errors, &SPEC.child("podSelector"), at(spec, "podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = SPEC.child(direction);
        for (i, rule) in items(spec, direction).iter().enumerate() {
            let path = path.index(i);
            for (j, port) in items(rule, "ports").iter().enumerate() {
                policy_port(port, &path.child("ports").index(j), errors);
            }
            for (j, peer) in items(rule, peers).iter().enumerate() {
                policy_peer(peer, known, &path.child(peers).index(j), errors);
            }
        }
    }
    policy_types(spec, errors);
}

fn policy_types(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("policyTypes");
    if items(spec, "policyTypes").len() > 2 {
        let complaint = "may not specify more than two policyTypes";
        return errors.invalid(&path, at(spec, "policyTypes"), complaint);
    }
    for (i, ty) in texts(spec, "policyTypes").enumerate() {
        if !matches!(ty, "Ingress" | "Egress") {
            errors.not_supported(&path.index(i), &ty.into(), &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    let protocols = ["TCP", "UDP", "SCTP"];
    if has(port, "protocol") && !protocols.contains(&text(port, "protocol")) {
        errors.not_supported(&path.child("protocol"), at(port, "protocol"), &protocols);
    }
    let (end_path, end) = (path.child("endPort"), some_int(port, "endPort"));
    match (at(port, "port"), end) {
        (Value::Null, Some(end)) => errors.invalid(
            &end_path,
            &end.into(),
            "may not be specified when `port` is not specified",
        ),
        (Value::Null, None) => {}
        (Value::String(name), end) => {
            if let Some(end) = end {
                let complaint = "may not be specified when `port` is non-numeric";
                errors.invalid(&end_path, &end.into(), complaint);
            }
            complain(errors, &path.child("port"), name, names::port_name(name));
        }
        (_, end) => port_range(int(port, "port"), end, path, errors),
    }
}

fn port_range(first: i64, last: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    for complaint in names::port_number(first) {
        errors.invalid(&path.child("port"), &first.into(), &complaint);
    }
    let Some(last) = last else { return };
    if last < first {
        // Upstream shows the first port here.
        let complaint = "must be greater than or equal to `port`";
        errors.invalid(&path.child("endPort"), &first.into(), complaint);
    }
    for complaint in names::port_number(last) {
        errors.invalid(&path.child("endPort"), &last.into(), &complaint);
    }
}

fn policy_peer(peer: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let mut peers = 0;
    for selector in ["podSelector", "namespaceSelector"] {
        if has(peer, selector) {
            peers += 1;
            label_selector(errors, &path.child(selector), at(peer, selector));
        }
    }
    if has(peer, "ipBlock") {
        ip_block(at(peer, "ipBlock"), known, &path.child("ipBlock"), errors);
        if peers > 0 {
            errors.forbidden(path, "may not specify both ipBlock and another peer");
        }
    } else if peers == 0 {
        errors.required(path, "must specify a peer");
    }
}

fn ip_block(block: &Value, known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if !required(errors, path, block, "cidr") {
        return;
    }
    let judge = |range: &str| {
        if known.contains(&range) {
            Vec::new()
        } else {
            names::cidr(range)
        }
    };
    let range = text(block, "cidr");
    complain(errors, &path.child("cidr"), range, judge(range));
    let Some(net) = names::sloppy_cidr(range) else {
        return;
    };
    let path = path.child("except");
    for (i, except) in texts(block, "except").enumerate() {
        complain(errors, &path.index(i), except, judge(except));
        let is_inside = |inner: &ipnet::IpNet| {
            net.contains(&inner.network()) && net.prefix_len() < inner.prefix_len()
        };
        if names::sloppy_cidr(except).is_some_and(|inner| !is_inside(&inner)) {
            errors.invalid(
                &path.index(i),
                &except.into(),
                "must be a strict subset of `cidr`",
            );
        }
    }
}

/// An address traffic may be sent to: not unspecified, loopback or link-local.
pub fn endpoint_ip(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let Some(ip) = names::sloppy_ip(value) else {
        return errors.invalid(path, &value.into(), "must be a valid IP address");
    };
    let (is_link_local, is_link_local_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (
            v6.is_unicast_link_local(),
            v6.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let unspecified = format!("may not be unspecified ({value})");
    for (wrong, complaint) in [
        (ip.is_unspecified(), unspecified.as_str()),
        (
            ip.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            is_link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            is_link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ] {
        if wrong {
            errors.invalid(path, &value.into(), complaint);
        }
    }
}

/// A new IPAddress.
pub fn ip_address(object: &Value, errors: &mut Errors) {
    let parent = deep(object, &["spec", "parentRef"]);
    let path = SPEC.child("parentRef");
    if parent.is_null() {
        return errors.required(&path, "");
    }
    let group = text(parent, "group");
    if !group.is_empty() {
        complain(
            errors,
            &path.child("group"),
            group,
            names::dns1123_subdomain(group),
        );
    }
    for name in ["resource", "name"] {
        if required(errors, &path, parent, name) {
            let value = text(parent, name);
            complain(errors, &path.child(name), value, names::path_segment(value));
        }
    }
    let namespace = text(parent, "namespace");
    complain(
        errors,
        &path.child("namespace"),
        namespace,
        names::path_segment(namespace),
    );
}

/// A changed IPAddress.
pub fn ip_address_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    let parent = ["spec", "parentRef"];
    ip_address(new, errors);
    immutable(
        errors,
        &SPEC.child("parentRef"),
        deep(new, &parent),
        deep(old, &parent),
    );
}

/// A new ServiceCIDR.
pub fn service_cidr(object: &Value, errors: &mut Errors) {
    let path = SPEC.child("cidrs");
    let spec = at(object, "spec");
    match items(spec, "cidrs").len() {
        0 => return errors.required(&path, "at least one CIDR required"),
        1 | 2 => {}
        _ => return errors.invalid(&path, spec, "may only hold up to 2 values"),
    }
    for (i, range) in texts(spec, "cidrs").enumerate() {
        complain(errors, &path.index(i), range, names::canonical_cidr(range));
    }
    let families: Vec<_> = texts(spec, "cidrs")
        .filter_map(names::sloppy_cidr)
        .map(|net| net.addr().is_ipv4())
        .collect();
    if matches!(families[..], [first, second] if first == second) {
        errors.invalid(&path, at(spec, "cidrs"), "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
    }
}

/// A changed ServiceCIDR: only a second family may be added.
pub fn service_cidr_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return;
    }
    let path = SPEC.child("cidrs");
    let (list, before) = (
        items(at(new, "spec"), "cidrs"),
        items(at(old, "spec"), "cidrs"),
    );
    let is_growth = (before.len(), list.len()) == (1, 2);
    if !is_growth && before.len() != list.len() {
        return errors.invalid(&path, deep(new, &["spec", "cidrs"]), IMMUTABLE);
    }
    for (i, (range, known)) in list.iter().zip(before).enumerate() {
        if range != known {
            errors.invalid(&path.index(i), range, IMMUTABLE);
        }
    }
    if is_growth {
        service_cidr(new, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    fn with_peer(peer: Value) -> Value {
        json!({"spec": {"podSelector": {}, "ingress": [{"from": [peer]}]}})
    }

    fn with_port(port: Value) -> Value {
        json!({"spec": {"egress": [{"ports": [port]}]}})
    }

    #[test]
    fn network_policies_name_peers_and_ports() {
        let base = json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
        creates(
            network_policy,
            &base,
            &[
                (
                    with_peer(json!({"podSelector": {}, "namespaceSelector": {}})),
                    "",
                ),
                (
                    with_peer(json!({})),
                    "spec.ingress[0].from[0]: Required value: must specify a peer",
                ),
                (
                    with_peer(json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}})),
                    "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
                ),
                (
                    with_peer(
                        json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}),
                    ),
                    "",
                ),
                (
                    with_peer(json!({"ipBlock": {}})),
                    "spec.ingress[0].from[0].ipBlock.cidr: Required value",
                ),
                (
                    with_peer(json!({"ipBlock": {"cidr": "10.0.0.1/8"}})),
                    "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.1/8\": must not have bits set",
                ),
                (
                    with_peer(
                        json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}),
                    ),
                    "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
                ),
                (
                    with_peer(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}})),
                    "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value",
                ),
                (
                    with_port(json!({"protocol": "TCP", "port": 80, "endPort": 90})),
                    "",
                ),
                (
                    with_port(json!({"protocol": "ICMP"})),
                    "spec.egress[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
                ),
                (
                    with_port(json!({"port": 0})),
                    "spec.egress[0].ports[0].port: Invalid value: 0: must be between",
                ),
                (
                    with_port(json!({"port": 80, "endPort": 79})),
                    "spec.egress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
                ),
                (
                    with_port(json!({"port": "http", "endPort": 79})),
                    "spec.egress[0].ports[0].endPort: Invalid value: 79: may not be specified when `port` is non-numeric",
                ),
                (
                    with_port(json!({"endPort": 79})),
                    "spec.egress[0].ports[0].endPort: Invalid value: 79: may not be specified when `port` is not specified",
                ),
                (
                    json!({"spec": {"policyTypes": ["Both"]}}),
                    "spec.policyTypes[0]: Unsupported value: \"Both\": supported values: \"Ingress\", \"Egress\"",
                ),
                (
                    json!({"spec": {"policyTypes": ["Ingress", "Egress", "Egress"]}}),
                    "spec.policyTypes: Invalid value",
                ),
            ],
        );
        let sloppy = with_peer(json!({"ipBlock": {"cidr": "10.0.0.1/8"}}));
        updates(network_policy_update, "", &sloppy, &[]);
    }

    #[test]
    fn endpoints_are_real_destinations() {
        let path = Path::root("ip");
        let said =
            |ip: &str| crate::validation::cases::told(|e| endpoint_ip(ip, &path, e)).join("");
        assert_eq!(said("10.0.0.1"), "");
        for (ip, part) in [
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("::1", "loopback range (127.0.0.0/8, ::1/128)"),
            (
                "169.254.1.1",
                "link-local range (169.254.0.0/16, fe80::/10)",
            ),
            ("224.0.0.1", "link-local multicast range"),
            ("ff02::1", "link-local multicast range"),
            ("x", "must be a valid IP address"),
        ] {
            assert!(said(ip).contains(part), "{ip}: {}", said(ip));
        }
    }

    #[test]
    fn addresses_have_a_parent_that_stays() {
        let base =
            json!({"spec": {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}}});
        creates(
            ip_address,
            &base,
            &[
                (json!({"spec": null}), "spec.parentRef: Required value"),
                (
                    json!({"spec": {"parentRef": {"name": null}}}),
                    "spec.parentRef.name: Required value",
                ),
                (
                    json!({"spec": {"parentRef": {"resource": "a/b"}}}),
                    "spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'",
                ),
                (
                    json!({"spec": {"parentRef": {"group": "A"}}}),
                    "spec.parentRef.group: Invalid value",
                ),
            ],
        );
        updates(
            ip_address_update,
            "",
            &base,
            &[(
                json!({"spec": {"parentRef": {"name": "c"}}}),
                "spec.parentRef: Invalid value: {",
            )],
        );
    }

    #[test]
    fn service_networks_only_grow_by_a_family() {
        let base = json!({"spec": {"cidrs": ["10.0.0.0/16"]}});
        let cidrs = |list: &[&str]| json!({"spec": {"cidrs": list}});
        creates(
            service_cidr,
            &base,
            &[
                (
                    cidrs(&[]),
                    "spec.cidrs: Required value: at least one CIDR required",
                ),
                (cidrs(&["10.0.0.0/16", "fd00::/108"]), ""),
                (
                    cidrs(&["10.0.0.0/16", "10.1.0.0/16"]),
                    "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/16\"]: may specify no more than one IP for each IP family",
                ),
                (
                    cidrs(&["10.0.0.0/16", "fd00::/108", "10.1.0.0/16"]),
                    "spec.cidrs: Invalid value: {",
                ),
                (
                    cidrs(&["10.0.0.1/16"]),
                    "spec.cidrs[0]: Invalid value: \"10.0.0.1/16\": must not have bits set",
                ),
            ],
        );
        updates(
            service_cidr_update,
            "",
            &base,
            &[
                (cidrs(&["10.0.0.0/16", "fd00::/108"]), ""),
                (
                    cidrs(&["10.1.0.0/16"]),
                    "spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable",
                ),
                (
                    cidrs(&[]),
                    "spec.cidrs: Invalid value: []: field is immutable",
                ),
                (
                    cidrs(&["10.0.0.0/16", "x"]),
                    "spec.cidrs[1]: Invalid value: \"x\": must be a valid CIDR",
                ),
            ],
        );
    }
}
