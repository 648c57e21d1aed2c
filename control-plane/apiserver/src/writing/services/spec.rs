//! What a service asks for: addresses, families and ports in its spec. Pure.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use kinds::field::{Errors, Path};
use serde_json::Value;

/// The first and last node port (upstream's `--service-node-port-range`).
pub(super) const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// Ports kept for explicit requests until the rest is used up: min(max(16, size/32), 128).
const NODE_PORT_BAND: u16 = 86;

pub(super) fn port_error(errors: &mut Errors, index: usize, value: u64, why: &str) {
    let spec = Path::root("spec");
    let ports = spec.child("ports");
    errors.invalid(&ports.index(index).child("nodePort"), &value.into(), why);
}

pub(super) fn pick_port(taken: &HashSet<u16>, own: &HashSet<u16>) -> Option<u16> {
    let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
    let free = |p: &u16| !taken.contains(p) && !own.contains(p);
    (0..16)
        .map(|_| rand::random_range(first + NODE_PORT_BAND..=last))
        .chain(first + NODE_PORT_BAND..=last)
        .chain(first..first + NODE_PORT_BAND)
        .find(free)
}

// Upstream's patchAllocatedValues: an update that leaves allocated values out keeps them.
pub(super) fn carry_allocated(new: &mut Value, old: &Value) {
    let external = |s: &Value| s["spec"]["type"] == "ExternalName";
    // What the new type has no use for was dropped by the kind's strategy.
    if external(new) {
        return;
    }
    if !external(old)
        && new["spec"]["clusterIP"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    {
        for field in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old["spec"].get(field) {
                new["spec"][field] = value.clone();
            }
        }
    }
    if !needs_node_ports(new) {
        return;
    }
    let same = |a: &Value, b: &Value| a["port"] == b["port"] && a["protocol"] == b["protocol"];
    for port in ports_mut(new) {
        if port["nodePort"].as_u64().unwrap_or(0) == 0
            && let Some(before) = old["spec"]["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|p| same(p, port))
            && before["nodePort"].as_u64().unwrap_or(0) != 0
        {
            port["nodePort"] = before["nodePort"].clone();
        }
    }
}

pub(super) fn needs_node_ports(service: &Value) -> bool {
    match service["spec"]["type"].as_str() {
        Some("NodePort") => true,
        Some("LoadBalancer") => {
            service["spec"]["allocateLoadBalancerNodePorts"].as_bool() != Some(false)
        }
        _ => false,
    }
}

// Not by index: that would make a null of ports that are not there.
pub(super) fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let ports = service
        .pointer_mut("/spec/ports")
        .and_then(Value::as_array_mut);
    ports.into_iter().flatten()
}

pub(super) fn needs_health_check_port(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

pub(super) fn health_check_port(service: &Value) -> Option<u16> {
    let port = service["spec"]["healthCheckNodePort"].as_u64()?;
    u16::try_from(port).ok().filter(|p| *p != 0)
}

pub(super) fn node_ports(service: &Value) -> Vec<u16> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|p| p["nodePort"].as_u64())
        .filter_map(|p| u16::try_from(p).ok())
        .filter(|p| *p != 0)
        .chain(health_check_port(service))
        .collect()
}

/// The addresses a service asks for, in the order of its families; none where it leaves the choice to us.
pub(super) fn asked_ips(service: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let listed = service["spec"]["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten();
    let mut asked: Vec<String> = listed.filter_map(text).collect();
    let one = text(&service["spec"]["clusterIP"]).filter(|ip| !ip.is_empty());
    if let (true, Some(one)) = (asked.is_empty(), one) {
        asked.push(one);
    }
    asked
}

pub(super) fn cluster_ips(service: &Value) -> Vec<IpAddr> {
    let ips = service["spec"]["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten();
    ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
}

/// How many addresses of a range can be given: without the network and, in IPv4, the broadcast address; no more than can be
/// tried in turn.
pub(super) fn host_count(range: IpNet) -> u32 {
    let bits = range.max_prefix_len() - range.prefix_len();
    1u32.checked_shl(u32::from(bits))
        .map_or(u32::MAX - 2, |all| all.saturating_sub(2))
}

pub(super) fn nth(range: IpNet, offset: u32) -> IpAddr {
    match range {
        IpNet::V4(range) => (u32::from(range.network()).saturating_add(offset))
            .to_be_bytes()
            .into(),
        IpNet::V6(range) => {
            let first = u128::from(range.network());
            first
                .saturating_add(u128::from(offset))
                .to_be_bytes()
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_counted_in_both_families() {
        let cases = [
            ("10.0.0.0/16", 65_534, "10.0.1.0"),
            ("10.0.0.0/30", 2, "10.0.1.0"),
            ("fd00::/112", 65_534, "fd00::100"),
            ("fd00::/64", u32::MAX - 2, "fd00::100"),
        ];
        for (range, hosts, address) in cases {
            let range: IpNet = range.parse().expect("a range");
            assert_eq!(host_count(range), hosts, "{range}");
            assert_eq!(nth(range, 256).to_string(), address, "{range}");
        }
    }

    #[test]
    fn an_update_that_leaves_values_out_keeps_them() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30081}]}});
        let mut new =
            json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}});
        carry_allocated(&mut new, &old);
        assert_eq!(new["spec"]["clusterIP"], "10.0.0.9");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30081);
    }
}
