//! Who a cluster's controllers are to this cloud, and the azure.json that tells them.
//!
//! They are the cluster's own identity, as in AKS. A control plane is on no machine whose metadata service would give it
//! that identity's tokens, so the platform knows a secret of it, which nobody else is shown.

use serde_json::{Value, json};

use super::nodes::route_table;
use crate::arm::access;
use crate::arm::document::{self, Document};
use crate::arm::id::Id;
use crate::entra::directory;
use crate::turn::Turn;

/// The built-in role of who may change all but who may do what: what AKS gives the identity in the nodes' group.
const CONTRIBUTOR: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";

/// The principal that a cluster is: its application, its own identity, or the first that it was given.
fn principal_of(turn: &Turn<'_>, cluster: &Document) -> Option<Value> {
    let application = cluster.body["properties"]["servicePrincipalProfile"]["clientId"].as_str();
    if let Some(id) = application.filter(|id| *id != "msi") {
        return directory::by_app_id(turn, id)?.1;
    }
    let identity = &cluster.body["identity"];
    let given = identity["userAssignedIdentities"].as_object();
    let given = given
        .into_iter()
        .flatten()
        .map(|(_, one)| &one["principalId"]);
    let mut all = std::iter::once(&identity["principalId"]).chain(given);
    let id = all.find_map(Value::as_str)?;
    turn.get(&directory::key("servicePrincipals", id))
}

/// Gives a cluster's principal what it needs, once for each that it is.
pub(super) fn ensure(turn: &mut Turn<'_>, cluster: &mut Document, group: &str) {
    let Some(principal) = principal_of(turn, cluster) else {
        return;
    };
    if cluster.hidden["controllers"]["client"] == principal["appId"] {
        return;
    }
    remove(turn, cluster);
    let id = principal["id"].as_str().unwrap_or_default();
    let secret = directory::add_platform_secret(turn, id, cluster.id());
    access::assign(turn, id, group, CONTRIBUTOR);
    document::object(&mut cluster.hidden);
    cluster.hidden["controllers"] =
        json!({"principal": id, "client": principal["appId"], "secret": secret});
}

/// The secret goes with its cluster: others may have the same identity.
pub(super) fn remove(turn: &mut Turn<'_>, cluster: &Document) {
    if let Some(principal) = cluster.hidden["controllers"]["principal"].as_str() {
        directory::remove_platform_secret(turn, principal, cluster.id());
    }
}

/// What a cluster's controllers are told of this cloud.
pub(crate) fn cloud_config(turn: &Turn<'_>, cluster: &str) -> Option<Value> {
    let cluster = document::get(turn, cluster)?;
    let own = cluster.hidden["controllers"].as_object()?;
    let subscription = Id::parse(cluster.id())?.subscription?;
    let properties = &cluster.body["properties"];
    let group = properties["nodeResourceGroup"].as_str()?;
    let suffix = cluster.hidden["suffix"].as_str().unwrap_or("00000000");
    // A cluster whose pools are on a network of somebody's own has its Services there, too.
    let subnet = properties["agentPoolProfiles"][0]["vnetSubnetID"].as_str();
    let subnet = subnet.and_then(Id::parse);
    let network = subnet.as_ref().and_then(Id::parent);
    let network_group = network.as_ref().and_then(|id| id.group.clone());
    let mut config = json!({
        "cloud": "AzurePublicCloud", "resourceManagerEndpoint": turn.settings.origin, "tenantId": turn.settings.tenant,
        "subscriptionId": subscription, "aadClientId": own.get("client"), "aadClientSecret": own.get("secret"),
        "resourceGroup": group, "location": cluster.body["location"], "vmType": "vmss", "loadBalancerSku": "standard",
        "vnetName": network.as_ref().map_or(format!("aks-vnet-{suffix}"), |id| id.name().to_owned()),
        "vnetResourceGroup": network_group.unwrap_or_default(),
        "subnetName": subnet.map_or("aks-subnet".to_owned(), |id| id.name().to_owned()),
        "securityGroupName": format!("aks-agentpool-{suffix}-nsg"),
        "routeTableName": (properties["networkProfile"]["networkPlugin"] == "kubenet").then(|| route_table(suffix)),
        "loadBalancerBackendPoolConfigurationType": properties["networkProfile"]["loadBalancerProfile"]["backendPoolType"],
    });
    document::without_nulls(&mut config);
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, SUBSCRIPTION, caller};

    const CLUSTER: &str =
        "/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";

    #[test]
    fn controllers_are_the_cluster_and_may_change_the_group_of_its_nodes_only() {
        let mut arena = Arena::new();
        arena.group("g");
        let body = json!({"location": "eastus", "identity": {"type": "SystemAssigned"}, "properties": {"dnsPrefix": "c",
            "agentPoolProfiles": [{"name": "p", "count": 1, "mode": "System", "vmSize": ""}]}});
        assert_eq!(arena.done("PUT", CLUSTER, body).0, 201);
        let own = format!("{SUBSCRIPTION}{CLUSTER}");
        let config = arena.turn(|turn| cloud_config(turn, &own)).unwrap();
        assert_eq!(config["resourceGroup"], "MC_g_c_eastus");
        let shown = arena.ask("GET", CLUSTER, Value::Null);
        let id = shown.document()["identity"]["principalId"]
            .as_str()
            .unwrap()
            .to_owned();
        let principal = arena.turn(|turn| turn.get(&directory::key("servicePrincipals", &id)));
        let principal = principal.unwrap();
        assert_eq!(config["aadClientId"], principal["appId"]);
        assert!(directory::is_platforms(
            &principal,
            config["aadClientSecret"].as_str().unwrap()
        ));
        assert!(!directory::is_platforms(&principal, "x"));
        // Another write of the same cluster changes nothing about it.
        let again = json!({"location": "eastus", "tags": {"a": "b"}, "properties": {}});
        assert_eq!(arena.done("PUT", CLUSTER, again).0, 200);
        assert_eq!(arena.turn(|turn| cloud_config(turn, &own)), Some(config));

        let owner = std::mem::replace(&mut arena.caller, caller(&id));
        let address = "providers/Microsoft.Network/publicIPAddresses/a";
        let mut puts = |group: &str| {
            let path = format!("/resourceGroups/{group}/{address}");
            arena.done("PUT", &path, json!({"location": "eastus"})).0
        };
        assert_eq!((puts("MC_g_c_eastus"), puts("g")), (201, 403));
        arena.caller = owner;
        assert_eq!(arena.done("DELETE", CLUSTER, Value::Null).0, 202);
        let left = arena.state.0.keys().filter(|key| key.contains(&id));
        assert_eq!(left.collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
