//! Who is behind a load balancer: nodes, by their addresses or by their machines' cards.

use azure::CloudConfig;
use azure::models::Part;
use serde_json::{Value, json};

use super::names::Family;
use crate::nodes::NodeView;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";
/// Labels of nodes of the control plane; a value that counts, or any.
const CONTROL_PLANE: [(&str, Option<&str>); 3] = [
    ("node-role.kubernetes.io/control-plane", None),
    ("node-role.kubernetes.io/master", None),
    ("kubernetes.io/role", Some("master")),
];

/// Whether a node gets connections of load balancers. Whether it is ready plays no part: probes find that out sooner.
pub(crate) fn is_eligible(node: &NodeView, cloud: &CloudConfig) -> bool {
    let is_control_plane = CONTROL_PLANE.iter().any(|(label, value)| {
        let own = node.labels.get(*label);
        own.is_some_and(|own| value.is_none_or(|value| own == value))
    });
    let leaves = node.deleting || node.has_taint(LEAVING);
    let is_excluded = node.labels.contains_key(EXCLUDED)
        || (cloud.exclude_master_from_standard_lb && is_control_plane);
    node.is_managed() && node.group().is_none() && !leaves && !is_excluded
}

/// Whether pools have addresses of nodes rather than cards of machines.
pub(crate) fn is_by_address(cloud: &CloudConfig) -> bool {
    cloud
        .load_balancer_backend_pool_configuration_type
        .eq_ignore_ascii_case("nodeIP")
}

/// Whether the pools of a kind of load balancer are somebody else's.
pub(crate) fn is_preconfigured(cloud: &CloudConfig, internal: bool) -> bool {
    let own = if internal { "internal" } else { "external" };
    let said = cloud
        .pre_configured_backend_pool_load_balancer_types
        .to_lowercase();
    said == "all" || said == own
}

/// A pool with the addresses of these nodes; nothing where it has them. An empty list empties no pool: it is more likely
/// that nodes are not known than that there are none.
pub(crate) fn with_addresses(
    pool: &Part,
    nodes: &[&NodeView],
    family: Family,
    network: &str,
) -> Option<Part> {
    let member = |node: &&&NodeView| {
        let ip = node.internal_ips().find(|ip| Family::of(ip) == family)?;
        Some(json!({"name": node.name, "properties": {"ipAddress": ip.to_string()}}))
    };
    let mut wanted: Vec<Value> = nodes.iter().filter_map(|node| member(&node)).collect();
    wanted.sort_by_key(|one| one["name"].to_string());
    if wanted.is_empty() {
        return None;
    }
    let bare = |one: &Value| (one["name"].clone(), one["properties"]["ipAddress"].clone());
    let present = pool.properties["loadBalancerBackendAddresses"].as_array();
    let mut present: Vec<_> = present.into_iter().flatten().map(bare).collect();
    present.sort_by_key(|(name, _)| name.to_string());
    if present == wanted.iter().map(bare).collect::<Vec<_>>() {
        return None;
    }
    let mut pool = pool.clone();
    pool.properties["virtualNetwork"] = json!({"id": network});
    pool.properties["loadBalancerBackendAddresses"] = json!(wanted);
    Some(pool)
}

/// Puts a machine's first card into exactly these of our pools; others' pools stay. Gives whether that changes anything.
pub(crate) fn join(
    cards: &mut [Part],
    wanted: &[(Family, String)],
    is_ours: impl Fn(&str) -> bool,
) -> bool {
    let first = cards
        .iter()
        .position(|card| card.properties["primary"] == true);
    let Some(card) = cards.get_mut(first.unwrap_or(0)) else {
        return false;
    };
    let Some(configurations) = card.properties["ipConfigurations"].as_array_mut() else {
        return false;
    };
    let mut changed = false;
    for family in [Family::V4, Family::V6] {
        let of_family = |one: &&mut Value| {
            let own = one["properties"]["privateIPAddressVersion"].as_str();
            own.unwrap_or("IPv4") == family.name()
        };
        let Some(configuration) = configurations.iter_mut().find(of_family) else {
            continue;
        };
        let own = wanted
            .iter()
            .filter(|(own, _)| *own == family)
            .map(|(_, id)| id.as_str());
        let pools = &mut configuration["properties"]["loadBalancerBackendAddressPools"];
        changed |= set_pools(pools, &own.collect::<Vec<_>>(), &is_ours);
    }
    changed
}

fn set_pools(pools: &mut Value, wanted: &[&str], is_ours: &impl Fn(&str) -> bool) -> bool {
    let present: Vec<Value> = pools.as_array().cloned().unwrap_or_default();
    let id = |pool: &Value| pool["id"].as_str().unwrap_or_default().to_owned();
    let is_wanted = |pool: &Value| {
        wanted
            .iter()
            .any(|wanted| azure::id::same(wanted, &id(pool)))
    };
    let stays = present
        .iter()
        .filter(|pool| is_wanted(pool) || !is_ours(&id(pool)));
    let mut now: Vec<Value> = stays.cloned().collect();
    for wanted in wanted {
        if !now.iter().any(|pool| azure::id::same(&id(pool), wanted)) {
            now.push(json!({ "id": wanted }));
        }
    }
    let changed = now != present;
    if changed {
        *pools = Value::Array(now);
    }
    changed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use k8s_openapi::api::core::v1::Taint;

    fn node(name: &str, ip: &str) -> NodeView {
        NodeView {
            name: name.into(),
            addresses: vec![("InternalIP".into(), ip.into())],
            ..NodeView::default()
        }
    }

    #[test]
    fn who_gets_connections() {
        let cloud = CloudConfig::default();
        assert!(is_eligible(&node("a", "10.0.0.4"), &cloud));
        for (label, value) in [
            (EXCLUDED, ""),
            ("kubernetes.azure.com/managed", "false"),
            ("kubernetes.azure.com/resource-group", "other"),
            ("node-role.kubernetes.io/control-plane", ""),
            ("kubernetes.io/role", "master"),
        ] {
            let mut one = node("a", "10.0.0.4");
            one.labels.insert(label.into(), value.into());
            assert!(!is_eligible(&one, &cloud), "{label}");
        }
        let mut going = node("a", "10.0.0.4");
        going.taints.push(Taint {
            key: LEAVING.into(),
            ..Taint::default()
        });
        assert!(!is_eligible(&going, &cloud));
    }

    #[test]
    fn pools_of_addresses_follow_nodes_and_are_never_emptied() {
        let (one, two) = (node("a", "10.0.0.4"), node("b", "10.0.0.5"));
        let pool = Part::new("kubernetes", json!({}));
        let full = with_addresses(&pool, &[&two, &one], Family::V4, "/net").unwrap();
        let names: Vec<&Value> = full.properties["loadBalancerBackendAddresses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| &m["name"])
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(
            with_addresses(&full, &[&one, &two], Family::V4, "/net"),
            None
        );
        assert!(with_addresses(&full, &[&one], Family::V4, "/net").is_some());
        assert_eq!(with_addresses(&full, &[], Family::V4, "/net"), None);
        assert_eq!(with_addresses(&pool, &[&one], Family::V6, "/net"), None);
    }

    #[test]
    fn cards_join_our_pools_and_keep_others() {
        let card = |pools: Value| {
            Part::new(
                "c",
                json!({"primary": true, "ipConfigurations": [{"name": "i", "properties": {"loadBalancerBackendAddressPools": pools}}]}),
            )
        };
        let pools = |card: &Part| {
            card.properties["ipConfigurations"][0]["properties"]["loadBalancerBackendAddressPools"]
                .clone()
        };
        let ours = |id: &str| id.starts_with("/ours/");
        let wanted = [(Family::V4, "/ours/new".to_owned())];
        let mut cards = [card(json!([{"id": "/theirs"}, {"id": "/ours/old"}]))];
        assert!(join(&mut cards, &wanted, ours));
        assert_eq!(
            pools(&cards[0]),
            json!([{"id": "/theirs"}, {"id": "/ours/new"}])
        );
        assert!(!join(&mut cards, &wanted, ours), "a second time");
        let mut none = [card(Value::Null)];
        assert!(!join(&mut none, &[], ours));
        assert!(join(&mut none, &wanted, ours));
        assert!(join(&mut none, &[], ours));
        assert_eq!(pools(&none[0]), json!([]));
        assert!(!join(&mut [], &wanted, ours));
    }
}
