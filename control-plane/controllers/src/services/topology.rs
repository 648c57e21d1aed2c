//! Hints for whom an endpoint is meant: those in its zone, or on its node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForNode, ForZone};

use crate::workloads::node_view::NodeView;

const MODE: [&str; 2] = [
    "service.kubernetes.io/topology-mode",
    "service.kubernetes.io/topology-aware-hints",
];
/// Labels of nodes that serve no such traffic.
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
/// How much more than its share an endpoint may get (upstream's `overloadThreshold`).
const OVERLOAD: f64 = 0.2;

/// Gives each endpoint its hints, as the service asks for.
pub(super) fn give_hints(
    service: &Service,
    nodes: &[Arc<NodeView>],
    endpoints: &mut [&mut Endpoint],
) {
    let spec = service.spec.as_ref();
    let distribution = spec.and_then(|spec| spec.traffic_distribution.as_deref());
    let annotations = service.metadata.annotations.as_ref();
    let mode = MODE
        .iter()
        .find_map(|key| annotations?.get(*key))
        .map(String::as_str);
    match (mode, distribution) {
        (Some("Auto" | "auto"), _) => share_out(nodes, endpoints),
        (_, Some("PreferClose" | "PreferSameZone")) => near(endpoints, false),
        (_, Some("PreferSameNode")) => near(endpoints, true),
        _ => {}
    }
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .is_some_and(|c| c.ready == Some(true))
}

fn near(endpoints: &mut [&mut Endpoint], same_node: bool) {
    for endpoint in endpoints.iter_mut().filter(|one| is_ready(one)) {
        let Some(zone) = endpoint.zone.clone() else {
            continue;
        };
        let node = endpoint.node_name.clone().filter(|_| same_node);
        endpoint.hints = Some(EndpointHints {
            for_zones: Some(vec![ForZone { name: zone }]),
            for_nodes: node.map(|name| vec![ForNode { name }]),
        });
    }
}

// Endpoints are shared out among the zones by their processors; nothing is said when that would overload some.
fn share_out(nodes: &[Arc<NodeView>], endpoints: &mut [&mut Endpoint]) {
    let mut ready: Vec<&mut &mut Endpoint> =
        endpoints.iter_mut().filter(|one| is_ready(one)).collect();
    let Some(shares) = shares(nodes, ready.len()) else {
        return;
    };
    if ready.iter().any(|endpoint| endpoint.zone.is_none()) {
        return;
    }
    let mut given: BTreeMap<String, usize> = BTreeMap::new();
    let mut spare = Vec::new();
    for endpoint in &mut ready {
        let zone = endpoint.zone.clone().unwrap_or_default();
        let most = shares.get(&zone).map_or(0, |share| share.1);
        match given.get(&zone).copied().unwrap_or(0) < most {
            true => hint(endpoint, &zone, &mut given),
            false => spare.push(endpoint),
        }
    }
    for (zone, (least, _)) in &shares {
        while given.get(zone).copied().unwrap_or(0) < *least
            && let Some(endpoint) = spare.pop()
        {
            hint(endpoint, zone, &mut given);
        }
    }
    for endpoint in spare {
        let zone = endpoint.zone.clone().unwrap_or_default();
        hint(endpoint, &zone, &mut given);
    }
}

fn hint(endpoint: &mut Endpoint, zone: &str, given: &mut BTreeMap<String, usize>) {
    *given.entry(zone.to_owned()).or_default() += 1;
    endpoint.hints = Some(EndpointHints {
        for_zones: Some(vec![ForZone {
            name: zone.to_owned(),
        }]),
        for_nodes: None,
    });
}

// The fewest and the most endpoints of each zone.
fn shares(nodes: &[Arc<NodeView>], endpoints: usize) -> Option<BTreeMap<String, (usize, usize)>> {
    let mut cpu: BTreeMap<String, i64> = BTreeMap::new();
    let serving = nodes
        .iter()
        .filter(|node| node.is_ready && !is_control_plane(node));
    for node in serving {
        let (zone, millis) = (node.zone()?, node.millicpu);
        if millis == 0 {
            return None;
        }
        *cpu.entry(zone.to_owned()).or_default() += millis;
    }
    if cpu.len() < 2 || endpoints < cpu.len() {
        return None;
    }
    let total: i64 = cpu.values().sum();
    let count = endpoints as f64;
    let share = |millis: i64| {
        let wanted = millis as f64 / total as f64 * count;
        (
            (wanted / (1.0 + OVERLOAD)).ceil() as usize,
            wanted.ceil() as usize,
        )
    };
    let shares: BTreeMap<String, (usize, usize)> = cpu
        .into_iter()
        .map(|(zone, millis)| (zone, share(millis)))
        .collect();
    let least: usize = shares.values().map(|share| share.0).sum();
    (least <= endpoints).then_some(shares)
}

fn is_control_plane(node: &NodeView) -> bool {
    CONTROL_PLANE
        .iter()
        .any(|label| node.labels.contains_key(*label))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::discovery::v1::EndpointConditions;
    use serde_json::json;

    use super::*;

    fn endpoint(zone: &str, ready: bool) -> Endpoint {
        Endpoint {
            zone: Some(zone.into()),
            node_name: Some(format!("node-{zone}")),
            conditions: Some(EndpointConditions {
                ready: Some(ready),
                ..EndpointConditions::default()
            }),
            ..Endpoint::default()
        }
    }

    fn zones(endpoint: &Endpoint) -> Option<String> {
        Some(
            endpoint
                .hints
                .as_ref()?
                .for_zones
                .as_ref()?
                .first()?
                .name
                .clone(),
        )
    }

    #[test]
    fn ready_endpoints_are_for_those_near_them() {
        let service = |how: &str| -> Service {
            serde_json::from_value(json!({ "spec": { "trafficDistribution": how } })).unwrap()
        };
        let (mut a, mut b) = (endpoint("a", true), endpoint("b", false));
        give_hints(&service("PreferClose"), &[], &mut [&mut a, &mut b]);
        assert_eq!((zones(&a).as_deref(), zones(&b)), (Some("a"), None));
        assert_eq!(a.hints.as_ref().unwrap().for_nodes, None);
        give_hints(&service("PreferSameNode"), &[], &mut [&mut a]);
        assert_eq!(a.hints.unwrap().for_nodes.unwrap()[0].name, "node-a");
    }

    #[test]
    fn zones_share_endpoints_by_their_processors() {
        let node = |zone: &str, millicpu| {
            let labels = BTreeMap::from([("topology.kubernetes.io/zone".into(), zone.into())]);
            Arc::new(NodeView {
                labels,
                millicpu,
                is_ready: true,
                ..NodeView::default()
            })
        };
        let nodes = [node("a", 4000), node("b", 4000)];
        let service = json!({ "metadata": { "annotations": { "service.kubernetes.io/topology-mode": "Auto" } } });
        let service: Service = serde_json::from_value(service).unwrap();
        let mut all: Vec<Endpoint> = vec![endpoint("a", true); 4];
        let mut borrowed: Vec<&mut Endpoint> = all.iter_mut().collect();
        give_hints(&service, &nodes, &mut borrowed);
        let of = |zone: &str| {
            all.iter()
                .filter(|e| zones(e).as_deref() == Some(zone))
                .count()
        };
        assert_eq!((of("a"), of("b")), (2, 2));
        let mut one = [endpoint("a", true)];
        let mut borrowed: Vec<&mut Endpoint> = one.iter_mut().collect();
        give_hints(&service, &nodes, &mut borrowed);
        assert_eq!(one[0].hints, None, "too few to share");
    }
}
