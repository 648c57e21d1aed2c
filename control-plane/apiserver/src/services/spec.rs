//! What a service asks for: addresses, families and ports in its spec. Pure.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use kinds::field::{Errors, Path};
use serde_json::{Value, json};

use crate::status::Result;

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

// A headless service without a selector may have endpoints of both families, whatever the cluster has.
pub(super) fn set_families(service: &mut Value, address: &str) {
    let selector = service["spec"].get("selector").and_then(Value::as_object);
    let open = address == "None" && selector.is_none_or(serde_json::Map::is_empty);
    let spec = &mut service["spec"];
    if open
        && spec.get("ipFamilyPolicy").is_none_or(Value::is_null)
        && spec.get("ipFamilies").is_none_or(Value::is_null)
    {
        spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
        spec["ipFamilyPolicy"] = "RequireDualStack".into();
        return;
    }
    if address != "None" || spec.get("ipFamilies").is_none_or(Value::is_null) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
        spec["ipFamilyPolicy"] = "SingleStack".into();
    }
}

pub(super) fn check_families(service: &Value) -> Result<(), Errors> {
    let mut errors = Errors::default();
    let spec = Path::root("spec");
    if service["spec"]["ipFamilyPolicy"] == "RequireDualStack" {
        let path = spec.child("ipFamilyPolicy");
        errors.invalid(
            &path,
            &"RequireDualStack".into(),
            "this cluster is not configured for dual-stack services",
        );
    }
    let families = service["spec"]["ipFamilies"]
        .as_array()
        .into_iter()
        .flatten();
    for (index, family) in families.enumerate() {
        if family != "IPv4" {
            let path = spec.child("ipFamilies");
            errors.invalid(&path.index(index), family, "not configured on this cluster");
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
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

pub(super) fn cluster_ips(service: &Value) -> Vec<Ipv4Addr> {
    let ips = service["spec"]["clusterIPs"]
        .as_array()
        .into_iter()
        .flatten();
    ips.filter_map(|ip| ip.as_str()?.parse().ok()).collect()
}

pub(super) fn host_count(cidr: Ipv4Net) -> u32 {
    // Without the network and the broadcast address.
    (1u32 << (32 - u32::from(cidr.prefix_len()))).saturating_sub(2)
}

pub(super) fn nth(cidr: Ipv4Net, offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(cidr.network()).saturating_add(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

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
