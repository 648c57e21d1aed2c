//! Who a cluster's controllers are to this cloud, and the azure.json that tells them.
//!
//! A managed identity has no secret, and a control plane is on no machine that could ask a metadata service for its
//! token: so each cluster has an application of its own, which may do in its group of nodes what AKS' identity may.

use serde_json::{Value, json};

use crate::arm::access;
use crate::arm::document::{self, Document};
use crate::arm::id::Id;
use crate::entra::directory;
use crate::turn::Turn;

/// The built-in role of who may change all but who may do what.
const CONTRIBUTOR: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";

/// Makes a cluster's application, once.
pub(super) fn ensure(turn: &mut Turn<'_>, cluster: &mut Document, group: &str) {
    if cluster.hidden["controllers"].is_object() {
        return;
    }
    let name = json!(format!(
        "{}-controllers",
        cluster.body["name"].as_str().unwrap_or_default()
    ));
    let mut application = directory::add_application(turn, &json!({ "displayName": name }));
    // Nobody is there to renew it.
    let asked = json!({"displayName": "cluster", "endDateTime": "2299-12-31T00:00:00Z"});
    let secret = directory::add_secret(turn, &mut application, &asked);
    let app_id = application["appId"].as_str().unwrap_or_default();
    let principal = directory::add_service_principal(turn, app_id, &name);
    let own = principal["id"].as_str().unwrap_or_default();
    access::assign(turn, own, group, CONTRIBUTOR);
    document::object(&mut cluster.hidden);
    cluster.hidden["controllers"] = json!({"object": application["id"], "client": app_id,
        "secret": secret["secretText"]});
}

/// The application goes with its cluster.
pub(super) fn remove(turn: &mut Turn<'_>, cluster: &Document) {
    if let Some(object) = cluster.hidden["controllers"]["object"].as_str() {
        directory::remove(turn, "applications", object);
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
        "subscriptionId": subscription, "aadClientId": own["client"], "aadClientSecret": own["secret"],
        "resourceGroup": group, "location": cluster.body["location"], "vmType": "vmss", "loadBalancerSku": "standard",
        "vnetName": network.as_ref().map_or(format!("aks-vnet-{suffix}"), |id| id.name().to_owned()),
        "vnetResourceGroup": network_group.unwrap_or_default(),
        "subnetName": subnet.map_or("aks-subnet".to_owned(), |id| id.name().to_owned()),
        "securityGroupName": format!("aks-agentpool-{suffix}-nsg"),
        "loadBalancerBackendPoolConfigurationType": properties["networkProfile"]["loadBalancerProfile"]["backendPoolType"],
    });
    document::without_nulls(&mut config);
    Some(config)
}
