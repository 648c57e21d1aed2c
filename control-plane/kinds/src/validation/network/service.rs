//! Services: ports, addresses, families, traffic policies, load balancers.
//!
//! Addresses and node ports are given out before validation; what is in range and free is the
//! allocator's to say.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::networking::endpoint_ip;
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{
    at, deep, has, int, items, repeated, same, same_text, some_int, text, texts,
};
use crate::validation::rules::{self, complain, one_of, required, unique};
use crate::validation::values::port as number_or_name;

const SPEC: Path<'static> = Path::root("spec");
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const FAMILY_POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const AFFINITY_SECONDS_MAX: i64 = 86400;
const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const NOT_EXTERNAL: &str = "may not be set for ExternalName services";
const FIXED: &str = "may not change once set";

/// A new Service.
pub fn create(object: &Value, errors: &mut Errors) {
    check(object, &Value::Null, errors);
}

/// A changed Service, or its status.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return load_balancer_status(new, old, errors);
    }
    let (spec, old_spec) = (at(new, "spec"), at(old, "spec"));
    if text(spec, "type") != "ExternalName" && text(old_spec, "type") != "ExternalName" {
        cluster_ips_update(spec, old_spec, errors);
        families_update(spec, old_spec, errors);
    }
    balancer_class_update(spec, old_spec, errors);
    if needs_health_check(spec)
        && needs_health_check(old_spec)
        && int(spec, "healthCheckNodePort") != int(old_spec, "healthCheckNodePort")
    {
        errors.forbidden(&SPEC.child("healthCheckNodePort"), rules::IMMUTABLE);
    }
    check(new, old, errors);
}

fn check(object: &Value, old: &Value, errors: &mut Errors) {
    let (spec, old_spec) = (at(object, "spec"), at(old, "spec"));
    topology_annotations(object, errors);
    shape_of_type(spec, errors);
    ports(spec, errors);
    rules::labels(errors, &SPEC, spec, "selector");
    session_affinity(spec, errors);
    cluster_ips(spec, old_spec, errors);
    external_ips(spec, old_spec, errors);
    if required(errors, &SPEC, spec, "type") {
        one_of(errors, &SPEC, spec, "type", TYPES);
    }
    port_numbers(spec, errors);
    source_ranges(object, old, errors);
    balancer_fields(spec, errors);
    traffic(spec, errors);
}

fn is_headless(spec: &Value) -> bool {
    matches!(items(spec, "clusterIPs"), [only] if only == "None")
}

fn topology_annotations(object: &Value, errors: &mut Errors) {
    let annotations = deep(object, &["metadata", "annotations"]);
    let (hints, mode) = (
        at(annotations, TOPOLOGY_HINTS),
        at(annotations, TOPOLOGY_MODE),
    );
    if !hints.is_null() && !mode.is_null() && hints != mode {
        let path = Path::root("metadata");
        let complaint = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.invalid(
            &path.child("annotations").key(TOPOLOGY_MODE),
            mode,
            &complaint,
        );
    }
}

fn shape_of_type(spec: &Value, errors: &mut Errors) {
    let ty = text(spec, "type");
    if items(spec, "ports").is_empty() && !is_headless(spec) && ty != "ExternalName" {
        errors.required(&SPEC.child("ports"), "");
    }
    match ty {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let complaint = format!("may not be set to 'None' for {ty} services");
            errors.invalid(
                &SPEC.child("clusterIPs").index(0),
                &"None".into(),
                &complaint,
            );
        }
        "ExternalName" => external_name(spec, errors),
        _ => {}
    }
}

fn external_name(spec: &Value, errors: &mut Errors) {
    for list in ["clusterIPs", "ipFamilies"] {
        if !items(spec, list).is_empty() {
            errors.forbidden(&SPEC.child(list), NOT_EXTERNAL);
        }
    }
    if has(spec, "ipFamilyPolicy") {
        errors.forbidden(&SPEC.child("ipFamilyPolicy"), NOT_EXTERNAL);
    }
    let name = text(spec, "externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.required(&SPEC.child("externalName"), "");
    } else {
        complain(
            errors,
            &SPEC.child("externalName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
}

fn ports(spec: &Value, errors: &mut Errors) {
    let (path, list) = (SPEC.child("ports"), items(spec, "ports"));
    let same_name = same_text(list, "name");
    for (i, item) in list.iter().enumerate() {
        port(item, list.len() > 1, same_name[i], &path.index(i), errors);
    }
}

fn port(
    port: &Value,
    needs_name: bool,
    has_name_of_another: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(port, "name");
    if needs_name && name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !name.is_empty() {
        complain(
            errors,
            &path.child("name"),
            name,
            names::dns1123_label(name),
        );
        if has_name_of_another {
            errors.duplicate(&path.child("name"), &name.into());
        }
    }
    port_number(port, "port", path, errors);
    protocol(port, path, errors);
    number_or_name(errors, &path.child("targetPort"), at(port, "targetPort"));
    if let Some(protocol) = at(port, "appProtocol").as_str() {
        let path = path.child("appProtocol");
        complain(errors, &path, protocol, names::qualified_name(protocol));
    }
}

/// The port number of a required field.
pub fn port_number(object: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let number = int(object, name);
    for complaint in names::port_number(number) {
        errors.invalid(&path.child(name), &number.into(), &complaint);
    }
}

/// A protocol a port must have.
pub fn protocol(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    if required(errors, path, object, "protocol") {
        one_of(errors, path, object, "protocol", PROTOCOLS);
    }
}

fn session_affinity(spec: &Value, errors: &mut Errors) {
    if !required(errors, &SPEC, spec, "sessionAffinity")
        || !one_of(
            errors,
            &SPEC,
            spec,
            "sessionAffinity",
            &["ClientIP", "None"],
        )
    {
        return;
    }
    let path = SPEC.child("sessionAffinityConfig");
    let config = at(spec, "sessionAffinityConfig");
    if text(spec, "sessionAffinity") == "None" {
        if !config.is_null() {
            errors.forbidden(&path, "must not be set when session affinity is None");
        }
        return;
    }
    let why = "when session affinity type is ClientIP";
    let client = path.child("clientIP");
    let timeout = client.child("timeoutSeconds");
    match deep(config, &["clientIP", "timeoutSeconds"]).as_i64() {
        _ if config.is_null() => errors.required(&path, why),
        _ if !has(config, "clientIP") => errors.required(&client, why),
        None => errors.required(&timeout, why),
        Some(seconds) if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) => errors.invalid(
            &timeout,
            &seconds.into(),
            &format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}"),
        ),
        Some(_) => {}
    }
}

fn cluster_ips(spec: &Value, old: &Value, errors: &mut Errors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let (first, list) = (text(spec, "clusterIP"), items(spec, "clusterIPs"));
    match list.first() {
        None if !first.is_empty() => errors.required(&path, ""),
        Some(_) if first.is_empty() => errors.invalid(
            &path,
            at(spec, "clusterIPs"),
            "must be empty when `clusterIP` is not specified",
        ),
        Some(other) if other != first => {
            errors.invalid(
                &path,
                at(spec, "clusterIPs"),
                "first value must match `clusterIP`",
            );
        }
        _ => {}
    }
    families(spec, errors);
    if cluster_ip_syntax(spec, old, errors) {
        cluster_ip_families(spec, errors);
    }
}

fn families(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("ipFamilies");
    for (i, family) in texts(spec, "ipFamilies").enumerate() {
        if !matches!(family, "IPv4" | "IPv6") {
            errors.not_supported(&path.index(i), &family.into(), &["IPv4", "IPv6"]);
        }
    }
    unique(
        errors,
        &path,
        items(spec, "ipFamilies"),
        None,
        ToString::to_string,
    );
    if has(spec, "ipFamilyPolicy") {
        one_of(errors, &SPEC, spec, "ipFamilyPolicy", FAMILY_POLICIES);
    }
}

// Whether every address is one; the families are only compared then.
fn cluster_ip_syntax(spec: &Value, old: &Value, errors: &mut Errors) -> bool {
    let (path, list) = (SPEC.child("clusterIPs"), at(spec, "clusterIPs"));
    let known: HashSet<&str> = texts(old, "clusterIPs").collect();
    let mut all_valid = true;
    for (i, ip) in texts(spec, "clusterIPs").enumerate() {
        if i == 0 && ip == "None" {
            if items(spec, "clusterIPs").len() > 1 {
                all_valid = false;
                errors.invalid(&path, list, "'None' must be the first and only value");
            }
            continue;
        }
        let complaints = if known.contains(ip) {
            Vec::new()
        } else {
            names::ip(ip)
        };
        all_valid &= complaints.is_empty();
        complain(errors, &path.index(i), ip, complaints);
    }
    if items(spec, "clusterIPs").len() > 2 {
        errors.invalid(&path, list, "may only hold up to 2 values");
    }
    all_valid
}

fn cluster_ip_families(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("clusterIPs");
    let are_v6: Vec<_> = texts(spec, "clusterIPs")
        .map(|ip| names::is_ipv6(ip).unwrap_or_default())
        .collect();
    let has_both = are_v6.contains(&true) && are_v6.contains(&false);
    if are_v6.len() > 1 && !has_both {
        let complaint = "may specify no more than one IP for each IP family";
        errors.invalid(&path, at(spec, "clusterIPs"), complaint);
    }
    if is_headless(spec) {
        return;
    }
    let pairs = texts(spec, "clusterIPs")
        .zip(texts(spec, "ipFamilies"))
        .zip(are_v6);
    for (i, ((ip, family), is_v6)) in pairs.enumerate() {
        if matches!((family, is_v6), ("IPv4", true) | ("IPv6", false)) {
            let complaint = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.invalid(&path.index(i), &ip.into(), &complaint);
        }
    }
}

fn external_ips(spec: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("externalIPs");
    for (i, ip) in texts(spec, "externalIPs").enumerate() {
        let is_known = texts(old, "externalIPs").any(|known| known == ip);
        let complaints = if is_known { Vec::new() } else { names::ip(ip) };
        if complaints.is_empty() {
            endpoint_ip(ip, &path.index(i), errors);
        }
        complain(errors, &path.index(i), ip, complaints);
    }
}

fn port_numbers(spec: &Value, errors: &mut Errors) {
    let (path, list) = (SPEC.child("ports"), items(spec, "ports"));
    let same = |number| {
        repeated(
            list.iter()
                .map(|port| (text(port, "protocol"), int(port, number))),
        )
    };
    let (same_node_port, same_port) = (same("nodePort"), same("port"));
    for (i, port) in list.iter().enumerate() {
        let (path, number) = (path.index(i), int(port, "nodePort"));
        if number != 0 && text(spec, "type") == "ClusterIP" {
            let complaint = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(&path.child("nodePort"), complaint);
        }
        if number != 0 && same_node_port[i] {
            errors.duplicate(&path.child("nodePort"), &number.into());
        }
        if same_port[i] {
            let key = json!({"protocol": text(port, "protocol"), "port": int(port, "port"), "targetPort": 0});
            errors.duplicate(&path, &key);
        }
    }
}

fn source_ranges(object: &Value, old: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    let is_balanced = text(spec, "type") == "LoadBalancer";
    let annotation = |o| at(deep(o, &["metadata", "annotations"]), SOURCE_RANGES);
    if !items(spec, "loadBalancerSourceRanges").is_empty() {
        // Upstream spells this path with a capital letter.
        let path = SPEC.child("LoadBalancerSourceRanges");
        if !is_balanced {
            errors.forbidden(&path, ONLY_BALANCED);
        }
        let known = texts(at(old, "spec"), "loadBalancerSourceRanges");
        let known: HashSet<&str> = known.map(str::trim).collect();
        for (i, range) in texts(spec, "loadBalancerSourceRanges")
            .map(str::trim)
            .enumerate()
        {
            if !known.contains(range) {
                complain(errors, &path.index(i), range, names::cidr(range));
            }
        }
    } else if let Some(ranges) = annotation(object).as_str() {
        let metadata = Path::root("metadata");
        let annotations = metadata.child("annotations");
        let path = annotations.key(SOURCE_RANGES);
        if !is_balanced {
            errors.forbidden(&path, ONLY_BALANCED);
        }
        if !ranges.trim().is_empty() && annotation(old) != ranges {
            for range in ranges.split(',').map(str::trim) {
                complain(errors, &path, range, names::cidr(range));
            }
        }
    }
}

fn balancer_fields(spec: &Value, errors: &mut Errors) {
    let is_balanced = text(spec, "type") == "LoadBalancer";
    let allocates = has(spec, "allocateLoadBalancerNodePorts");
    if allocates && !is_balanced {
        errors.forbidden(&SPEC.child("allocateLoadBalancerNodePorts"), ONLY_BALANCED);
    } else if is_balanced && !allocates {
        errors.required(&Path::root("allocateLoadBalancerNodePorts"), "");
    }
    let path = SPEC.child("loadBalancerClass");
    match at(spec, "loadBalancerClass").as_str() {
        Some(_) if !is_balanced => errors.forbidden(&path, ONLY_BALANCED),
        Some(class) => complain(errors, &path, class, names::qualified_name(class)),
        None => {}
    }
}

fn balancer_class_update(spec: &Value, old: &Value, errors: &mut Errors) {
    let (class, before) = (at(spec, "loadBalancerClass"), at(old, "loadBalancerClass"));
    let both = text(spec, "type") == "LoadBalancer" && text(old, "type") == "LoadBalancer";
    if both && class != before {
        errors.invalid(&SPEC.child("loadBalancerClass"), class, FIXED);
    }
}

fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_externally_accessible(spec: &Value) -> bool {
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !items(spec, "externalIPs").is_empty(),
        _ => false,
    }
}

fn traffic(spec: &Value, errors: &mut Errors) {
    let policy = text(spec, "externalTrafficPolicy");
    if is_externally_accessible(spec) {
        if required(errors, &SPEC, spec, "externalTrafficPolicy") {
            one_of(
                errors,
                &SPEC,
                spec,
                "externalTrafficPolicy",
                &["Cluster", "Local"],
            );
        }
    } else if !policy.is_empty() {
        errors.invalid(
            &SPEC.child("externalTrafficPolicy"),
            &policy.into(),
            "may only be set for externally-accessible services",
        );
    }
    health_check_port(spec, errors);
    if has(spec, "internalTrafficPolicy") {
        one_of(
            errors,
            &SPEC,
            spec,
            "internalTrafficPolicy",
            &["Cluster", "Local"],
        );
    } else if matches!(
        text(spec, "type"),
        "NodePort" | "LoadBalancer" | "ClusterIP"
    ) {
        errors.required(&SPEC.child("internalTrafficPolicy"), "");
    }
    if has(spec, "trafficDistribution") {
        one_of(errors, &SPEC, spec, "trafficDistribution", DISTRIBUTIONS);
    }
}

// A missing port is no error here: the allocator gives one out.
fn health_check_port(spec: &Value, errors: &mut Errors) {
    let Some(port) = some_int(spec, "healthCheckNodePort").filter(|port| *port != 0) else {
        return;
    };
    let path = SPEC.child("healthCheckNodePort");
    if needs_health_check(spec) {
        for complaint in names::port_number(port) {
            errors.invalid(&path, &port.into(), &complaint);
        }
    } else {
        errors.invalid(
            &path,
            &port.into(),
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    }
}

fn cluster_ips_update(spec: &Value, old: &Value, errors: &mut Errors) {
    if is_headless(spec) && is_headless(old) {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let (new, before) = (items(spec, "clusterIPs"), items(old, "clusterIPs"));
    let list = Value::from(new);
    if new.len() == before.len() {
        for (i, _) in new
            .iter()
            .zip(before)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
        {
            errors.invalid(&path.index(i), &list, FIXED);
        }
        return;
    }
    if new.is_empty() {
        errors.invalid(&path.index(0), &list, "primary clusterIP can not be unset");
    } else if !before.is_empty() && new[0] != before[0] {
        errors.invalid(&path.index(0), &list, FIXED);
    }
    let released = before.len() > new.len() && new.len() == 1;
    if released && text(spec, "ipFamilyPolicy") != "SingleStack" {
        errors.invalid(
            &SPEC.child("ipFamilyPolicy"),
            at(spec, "ipFamilyPolicy"),
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        );
    }
}

fn families_update(spec: &Value, old: &Value, errors: &mut Errors) {
    if is_headless(spec) || is_headless(old) {
        return;
    }
    let list = SPEC.child("ipFamilies");
    let path = list.index(0);
    let (new, before) = (items(spec, "ipFamilies"), items(old, "ipFamilies"));
    if new.len() == before.len() {
        if !same(at(spec, "ipFamilies"), at(old, "ipFamilies")) {
            errors.invalid(&path, at(spec, "ipFamilies"), FIXED);
        }
        return;
    }
    if before.len() > new.len() && items(spec, "clusterIPs").is_empty() {
        errors.invalid(
            &path,
            at(spec, "ipFamilies"),
            "primary ipFamily can not be unset",
        );
    }
    if let (Some(first), Some(old_first)) = (new.first(), before.first())
        && first != old_first
    {
        errors.invalid(&path, at(spec, "clusterIPs"), FIXED);
    }
    let released = before.len() > new.len() && new.len() == 1;
    if released && text(spec, "ipFamilyPolicy") != "SingleStack" {
        errors.invalid(
            &SPEC.child("ipFamilyPolicy"),
            at(spec, "ipFamilyPolicy"),
            "must be set to 'SingleStack' when releasing the secondary ipFamily",
        );
    }
}

fn load_balancer_status(new: &Value, old: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let balancer = status.child("loadBalancer");
    let path = balancer.child("ingress");
    let ingress = |o| items(deep(o, &["status", "loadBalancer"]), "ingress");
    if text(at(new, "spec"), "type") != "LoadBalancer" && !ingress(new).is_empty() {
        return errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for (i, entry) in ingress(new).iter().enumerate() {
        let path = path.index(i);
        let ip = text(entry, "ip");
        if !ip.is_empty() && !ingress(old).iter().any(|known| text(known, "ip") == ip) {
            complain(errors, &path.child("ip"), ip, names::ip(ip));
        }
        match (has(entry, "ipMode"), ip.is_empty()) {
            (false, false) => {
                errors.required(&path.child("ipMode"), "must be specified when `ip` is set");
            }
            (true, true) => {
                let complaint = "may not be specified when `ip` is not set";
                errors.forbidden(&path.child("ipMode"), complaint);
            }
            (true, false) => {
                one_of(errors, &path, entry, "ipMode", &["Proxy", "VIP"]);
            }
            (false, true) => {}
        }
        balancer_hostname(text(entry, "hostname"), &path.child("hostname"), errors);
    }
}

/// The host name a load balancer reports: a DNS name, not an address.
pub fn balancer_hostname(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return;
    }
    complain(errors, path, name, names::dns1123_subdomain(name));
    if names::sloppy_ip(name).is_some() {
        errors.invalid(path, &name.into(), "must be a DNS name, not an IP address");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::cases::{creates, updates};

    fn service() -> Value {
        json!({"spec": {
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
        }})
    }

    fn balancer() -> Value {
        crate::validation::cases::with(
            &service(),
            &json!({"spec": {
                "type": "LoadBalancer", "allocateLoadBalancerNodePorts": true, "externalTrafficPolicy": "Cluster",
            }}),
        )
    }

    #[test]
    fn ports_are_named_numbered_and_distinct() {
        let port = |patch: Value| json!({"spec": {"ports": [patch]}});
        let two = |name: &str, number: i64| {
            json!({"spec": {"ports": [
                {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80},
                {"name": name, "port": number, "protocol": "TCP", "targetPort": "http"},
            ]}})
        };
        creates(
            create,
            &service(),
            &[
                (
                    json!({"spec": {"ports": null}}),
                    "spec.ports: Required value",
                ),
                (
                    port(json!({"port": 0, "protocol": "TCP", "targetPort": 1})),
                    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                ),
                (
                    port(json!({"port": 1, "protocol": "ICMP", "targetPort": 1})),
                    "spec.ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ),
                (
                    port(json!({"port": 1, "protocol": "TCP", "targetPort": "A"})),
                    "spec.ports[0].targetPort: Invalid value: \"A\": must contain only",
                ),
                (
                    port(
                        json!({"port": 1, "protocol": "TCP", "targetPort": 1, "appProtocol": "a b"}),
                    ),
                    "spec.ports[0].appProtocol: Invalid value",
                ),
                (
                    port(json!({"port": 1, "protocol": "TCP", "targetPort": 1, "nodePort": 30000})),
                    "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                ),
                (two("b", 81), ""),
                (two("", 81), "spec.ports[1].name: Required value"),
                (two("a", 81), "spec.ports[1].name: Duplicate value: \"a\""),
                (two("b", 80), "spec.ports[1]: Duplicate value: {"),
            ],
        );
    }

    #[test]
    fn types_decide_which_fields_may_be_set() {
        creates(
            create,
            &service(),
            &[
                (
                    json!({"spec": {"type": "Else"}}),
                    "spec.type: Unsupported value: \"Else\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
                ),
                (
                    json!({"spec": {"type": "NodePort", "externalTrafficPolicy": "Cluster", "clusterIP": "None", "clusterIPs": ["None"]}}),
                    "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
                ),
                (
                    json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}),
                    "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                ),
                (
                    json!({"spec": {"type": "ExternalName", "externalName": "a.b.", "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null}}),
                    "",
                ),
                (
                    json!({"spec": {"type": "ExternalName", "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null}}),
                    "spec.externalName: Required value",
                ),
                (
                    json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": null}}),
                    "",
                ),
                (
                    json!({"spec": {"loadBalancerClass": "a/b"}}),
                    "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ),
                (
                    json!({"spec": {"allocateLoadBalancerNodePorts": true}}),
                    "spec.allocateLoadBalancerNodePorts: Forbidden",
                ),
                (
                    json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
                    "spec.LoadBalancerSourceRanges: Forbidden",
                ),
                (
                    json!({"spec": {"externalTrafficPolicy": "Local"}}),
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
                ),
                (
                    json!({"spec": {"healthCheckNodePort": 3}}),
                    "spec.healthCheckNodePort: Invalid value: 3: may only be set when",
                ),
                (
                    json!({"spec": {"internalTrafficPolicy": null}}),
                    "spec.internalTrafficPolicy: Required value",
                ),
                (
                    json!({"spec": {"trafficDistribution": "Near"}}),
                    "spec.trafficDistribution: Unsupported value: \"Near\": supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"",
                ),
            ],
        );
        creates(
            create,
            &balancer(),
            &[
                (
                    json!({"spec": {"allocateLoadBalancerNodePorts": null}}),
                    "allocateLoadBalancerNodePorts: Required value",
                ),
                (
                    json!({"spec": {"externalTrafficPolicy": null}}),
                    "spec.externalTrafficPolicy: Required value",
                ),
                (
                    json!({"spec": {"loadBalancerSourceRanges": [" 10.0.0.0/8 "]}}),
                    "",
                ),
                (
                    json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.1/8"]}}),
                    "spec.LoadBalancerSourceRanges[0]: Invalid value: \"10.0.0.1/8\": must not have bits set",
                ),
                (
                    json!({"metadata": {"annotations": {SOURCE_RANGES: "x"}}}),
                    "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: \"x\"",
                ),
                (json!({"spec": {"loadBalancerClass": "a/b"}}), ""),
            ],
        );
    }

    #[test]
    fn affinity_needs_a_timeout() {
        let client = |config: Value| json!({"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}});
        creates(
            create,
            &service(),
            &[
                (
                    json!({"spec": {"sessionAffinity": "Cookie"}}),
                    "spec.sessionAffinity: Unsupported value: \"Cookie\": supported values: \"ClientIP\", \"None\"",
                ),
                (
                    json!({"spec": {"sessionAffinity": "ClientIP"}}),
                    "spec.sessionAffinityConfig: Required value: when session affinity type is ClientIP",
                ),
                (
                    client(json!({"clientIP": {}})),
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Required value",
                ),
                (
                    client(json!({"clientIP": {"timeoutSeconds": 86401}})),
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400",
                ),
                (client(json!({"clientIP": {"timeoutSeconds": 10800}})), ""),
                (
                    json!({"spec": {"sessionAffinityConfig": {}}}),
                    "spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None",
                ),
            ],
        );
    }

    #[test]
    fn addresses_fit_their_families() {
        let ips = |ips: Value, families: Value| json!({"spec": {"clusterIP": ips[0], "clusterIPs": ips, "ipFamilies": families, "ipFamilyPolicy": "PreferDualStack"}});
        creates(
            create,
            &service(),
            &[
                (
                    json!({"spec": {"clusterIP": "10.0.0.2"}}),
                    "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: first value must match `clusterIP`",
                ),
                (
                    json!({"spec": {"clusterIP": null}}),
                    "spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: must be empty when",
                ),
                (
                    json!({"spec": {"clusterIPs": null}}),
                    "spec.clusterIPs: Required value",
                ),
                (
                    ips(json!(["x"]), json!([])),
                    "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address",
                ),
                (
                    ips(json!(["10.0.0.1", "10.0.0.2"]), json!([])),
                    "spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for each IP family",
                ),
                (
                    ips(json!(["10.0.0.1", "fd00::1"]), json!(["IPv4", "IPv6"])),
                    "",
                ),
                (
                    ips(json!(["10.0.0.1"]), json!(["IPv6"])),
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
                ),
                (
                    ips(json!(["10.0.0.1"]), json!(["IPv4", "IPv4"])),
                    "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
                ),
                (
                    ips(json!(["10.0.0.1"]), json!(["IPv5"])),
                    "spec.ipFamilies[0]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
                ),
                (
                    ips(json!(["None", "10.0.0.1"]), json!([])),
                    "spec.clusterIPs: Invalid value: [\"None\",\"10.0.0.1\"]: 'None' must be the first and only value",
                ),
                (
                    json!({"spec": {"ipFamilyPolicy": "Both"}}),
                    "spec.ipFamilyPolicy: Unsupported value: \"Both\"",
                ),
                (
                    json!({"spec": {"externalIPs": ["127.0.0.1"], "externalTrafficPolicy": "Cluster"}}),
                    "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range",
                ),
                (
                    json!({"spec": {"externalIPs": ["010.0.0.1"], "externalTrafficPolicy": "Cluster"}}),
                    "spec.externalIPs[0]: Invalid value: \"010.0.0.1\": must not have leading 0s",
                ),
                (
                    json!({"spec": {"externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Cluster"}}),
                    "",
                ),
            ],
        );
    }

    #[test]
    fn given_addresses_stay_unless_the_type_leaves() {
        updates(
            update,
            "",
            &service(),
            &[
                (
                    json!({"spec": {"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}}),
                    "spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set",
                ),
                (
                    json!({"spec": {"clusterIP": null, "clusterIPs": null}}),
                    "spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset",
                ),
                (
                    json!({"spec": {"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}}),
                    "",
                ),
                (
                    json!({"spec": {"ipFamilies": ["IPv6"]}}),
                    "spec.ipFamilies[0]: Invalid value: [\"IPv6\"]: may not change once set",
                ),
                (
                    json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": null, "clusterIPs": null, "ipFamilies": null, "ipFamilyPolicy": null}}),
                    "",
                ),
            ],
        );
        let local = crate::validation::cases::with(
            &balancer(),
            &json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}}),
        );
        updates(
            update,
            "",
            &local,
            &[
                (
                    json!({"spec": {"healthCheckNodePort": 31001}}),
                    "spec.healthCheckNodePort: Forbidden: field is immutable",
                ),
                (
                    json!({"spec": {"loadBalancerClass": "a/b"}}),
                    "spec.loadBalancerClass: Invalid value: \"a/b\": may not change once set",
                ),
            ],
        );
    }

    #[test]
    fn only_balanced_services_report_ingress() {
        let ingress = |entry: Value| json!({"status": {"loadBalancer": {"ingress": [entry]}}});
        updates(
            update,
            "status",
            &balancer(),
            &[
                (ingress(json!({"ip": "192.0.2.1", "ipMode": "VIP"})), ""),
                (
                    ingress(json!({"ip": "192.0.2.1"})),
                    "status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
                ),
                (
                    ingress(json!({"ip": "x", "ipMode": "VIP"})),
                    "status.loadBalancer.ingress[0].ip: Invalid value: \"x\"",
                ),
                (
                    ingress(json!({"hostname": "a.b", "ipMode": "VIP"})),
                    "status.loadBalancer.ingress[0].ipMode: Forbidden: may not be specified when `ip` is not set",
                ),
                (
                    ingress(json!({"hostname": "192.0.2.1"})),
                    "status.loadBalancer.ingress[0].hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address",
                ),
            ],
        );
        updates(
            update,
            "status",
            &service(),
            &[(
                ingress(json!({"hostname": "a.b"})),
                "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
            )],
        );
    }
}
