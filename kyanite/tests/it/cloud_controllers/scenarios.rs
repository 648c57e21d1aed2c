//! More of what upstream's own list of scenarios asks for.

use super::*;

#[test]
fn a_machine_of_a_flexible_set_is_known_by_its_own_id() {
    let mut stage = Stage::new();
    let name = stage.azure.make_flexible_set("aks-flex");
    stage.add_node(&name, "10.244.7.0/24", "True");
    stage.run_manager(json!({}));
    let node = stage.node_becomes(&name, "it is initialised", |node| {
        !has_taint(node, UNINITIALIZED) && routed(node)
    });
    let id = node["spec"]["providerID"].as_str().unwrap();
    assert!(
        id.contains("/providers/Microsoft.Compute/virtualMachines/"),
        "{id}"
    );
    let address = &node["status"]["addresses"][0];
    assert_eq!(address["type"], "InternalIP");
    stage.add_service("web", json!({}), json!({}));
    stage.address_of("web");
}

#[test]
fn an_address_that_somebody_made_is_used_and_left() {
    let stage = Stage::with_nodes(json!({}));
    let own = json!({"location": "eastus", "sku": {"name": "Standard"}, "properties": {"publicIPAllocationMethod": "Static"}});
    let made = stage
        .azure
        .put("Microsoft.Network/publicIPAddresses/own", own);
    stage.add_service("web", json!({"azure-pip-name": "own"}), json!({}));
    assert_eq!(
        stage.address_of("web"),
        made["properties"]["ipAddress"].as_str().unwrap()
    );
    assert_eq!(stage.public_addresses().len(), 1);
    stage.delete_service("web");
    stage.service_goes("web");
    let left = stage.public_addresses();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["name"], "own");
    assert_eq!(
        stage.azure.list("Microsoft.Network/loadBalancers"),
        Vec::<Value>::new()
    );
}

#[test]
fn local_services_are_probed_where_their_nodes_tell_of_them() {
    let stage = Stage::with_nodes(json!({"loadBalancerBackendPoolConfigurationType": "nodeIP"}));
    let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32123});
    stage.add_service("local", json!({}), spec);
    stage.address_of("local");
    let balancer = stage.balancer("kubernetes");
    let probe = &list(&balancer["probes"])[0]["properties"];
    assert_eq!(
        (&probe["protocol"], &probe["port"], &probe["requestPath"]),
        (&json!("Http"), &json!(32123), &json!("/healthz"))
    );
    // A node that is to get no connections leaves the pool.
    let members = |stage: &Stage| {
        let pool = stage.balancer("kubernetes")["backendAddressPools"][0]["properties"].clone();
        list(&pool["loadBalancerBackendAddresses"]).len()
    };
    eventually("both nodes are in the pool", || {
        let count = members(&stage);
        (count == 2).then_some(()).ok_or(format!("{count} are"))
    });
    let patch = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}}});
    let request = http::Request::patch("/api/v1/nodes/aks-np-vmss000001")
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    assert_eq!(stage.server.send(request).0, 200);
    eventually("one has left", || {
        let count = members(&stage);
        (count == 1).then_some(()).ok_or(format!("{count} are"))
    });
}
