//! What a service loses when it changes its type: values the server filled in for the old type and
//! the client left alone (upstream's `dropTypeDependentFields`). What the client changed along with
//! the type stays, for validation to refuse.

use serde_json::{Map, Value};

use crate::validation::reading::{at, int, items, same, text};

/// Whether services with this spec have a use for a field.
type Use = fn(&Value) -> bool;

/// Fields of the spec, and which services have a use for them.
const DEPENDENT: &[(&[&str], Use)] = &[
    (&["clusterIP", "clusterIPs"], has_address),
    (&["ipFamilies"], has_address),
    (&["ipFamilyPolicy"], has_address),
    (&["healthCheckNodePort"], has_health_check_port),
    (&["allocateLoadBalancerNodePorts"], is_balanced),
    (&["loadBalancerClass"], is_balanced),
    (&["externalTrafficPolicy"], is_reached_from_outside),
];

/// Clears what no longer applies to `new`.
pub(crate) fn drop_dependent_fields(new: &mut Value, old: &Value) {
    follow_first_address(new, old);
    let (before, after) = (at(old, "spec").clone(), at(new, "spec").clone());
    if !is_balanced(&after)
        && let Some(Value::Object(status)) = new.get_mut("status")
    {
        status.insert("loadBalancer".to_owned(), Value::Object(Map::new()));
    }
    let Some(Value::Object(spec)) = new.get_mut("spec") else {
        return;
    };
    if !has_address(&after) {
        spec.remove("internalTrafficPolicy");
    }
    for (fields, is_used) in DEPENDENT {
        let is_unchanged = |field: &&str| same(at(&before, field), at(&after, field));
        if is_used(&before) && !is_used(&after) && fields.iter().all(is_unchanged) {
            for field in *fields {
                spec.remove(*field);
            }
        }
    }
    if has_node_ports(&before) && !has_node_ports(&after) && adds_no_node_port(&before, &after) {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            if let Value::Object(port) = port {
                port.remove("nodePort");
            }
        }
    }
}

// A client that knows only `clusterIP` means the list too (upstream's `NormalizeClusterIPs`).
fn follow_first_address(new: &mut Value, old: &Value) {
    let before = at(old, "spec");
    let Some(Value::Object(spec)) = new.get_mut("spec") else {
        return;
    };
    let address = spec.get("clusterIP").cloned().unwrap_or_default();
    let list = spec.get("clusterIPs").cloned().unwrap_or_default();
    if address == *at(before, "clusterIP") || !same(&list, at(before, "clusterIPs")) {
        return;
    }
    if address.as_str().is_none_or(str::is_empty) {
        spec.remove("clusterIPs");
    } else {
        spec.insert("clusterIPs".to_owned(), Value::Array(vec![address]));
    }
}

fn adds_no_node_port(before: &Value, after: &Value) -> bool {
    let ports = |spec: &Value| -> Vec<i64> {
        let ports = items(spec, "ports").iter();
        ports.map(|port| int(port, "nodePort")).collect()
    };
    let known = ports(before);
    let mut wanted = ports(after).into_iter();
    wanted.all(|port| port == 0 || known.contains(&port))
}

fn has_address(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn is_balanced(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer"
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn has_health_check_port(spec: &Value) -> bool {
    is_balanced(spec) && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_reached_from_outside(spec: &Value) -> bool {
    let has_external_ips = !items(spec, "externalIPs").is_empty();
    has_node_ports(spec) || (text(spec, "type") == "ClusterIP" && has_external_ips)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn balanced() -> Value {
        json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 30001, "allocateLoadBalancerNodePorts": true,
            "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "nodePort": 30000}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Value {
        let old = balanced();
        let mut new = old.clone();
        change(&mut new["spec"]);
        drop_dependent_fields(&mut new, &old);
        new
    }

    #[test]
    fn a_service_that_stays_inside_gives_up_what_made_it_reachable() {
        let new = changed(|spec| spec["type"] = "ClusterIP".into());
        assert_eq!(
            new,
            json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                "ports": [{"port": 80}]}, "status": {"loadBalancer": {}}})
        );
    }

    #[test]
    fn an_alias_gives_up_its_address_too() {
        let new = changed(|spec| spec["type"] = "ExternalName".into());
        let left = json!({"type": "ExternalName", "ports": [{"port": 80}]});
        assert_eq!(new["spec"], left);
    }

    #[test]
    fn what_the_client_changed_stays_for_validation() {
        let new = changed(|spec| {
            spec["type"] = "ClusterIP".into();
            spec["externalTrafficPolicy"] = "Cluster".into();
            spec["ports"][0]["nodePort"] = 30009.into();
        });
        assert_eq!(new["spec"]["externalTrafficPolicy"], "Cluster");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30009);
    }

    #[test]
    fn the_list_of_addresses_follows_the_first() {
        let new = changed(|spec| spec["clusterIP"] = "10.0.0.6".into());
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.6"]));
        let new = changed(|spec| spec["clusterIP"] = "".into());
        assert!(new["spec"].get("clusterIPs").is_none());
    }

    #[test]
    fn without_a_change_of_type_nothing_goes() {
        assert_eq!(changed(|_| {}), balanced());
        let new = changed(|spec| spec["externalTrafficPolicy"] = "Cluster".into());
        assert!(new["spec"].get("healthCheckNodePort").is_none());
        assert_eq!(new["spec"]["externalTrafficPolicy"], "Cluster");
    }
}
