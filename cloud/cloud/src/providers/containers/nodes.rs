//! A cluster's group of nodes: the scale sets, the network, the balancer and the identity that AKS makes there.

use serde_json::{Value, json};

use super::{pools as profiles, principal};
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::id::{self, Id};
use crate::arm::{group, operation, resource};
use crate::providers::compute;
use crate::region::Node;
use crate::turn::Turn;

/// Makes the group; it must be the cluster's alone.
pub(super) fn begin(
    turn: &mut Turn<'_>,
    subscription: &str,
    name: &str,
    location: &str,
    cluster: &str,
) -> Result<(), Fault> {
    if document::get(turn, &id::group(subscription, name)).is_some() {
        let message = format!(
            "The resource group {name} of the cluster's nodes exists already; it must be a new one."
        );
        return Err(
            Fault::bad("NodeResourceGroupAlreadyExists", message).target("nodeResourceGroup")
        );
    }
    let owner = cluster.rsplit('/').next().unwrap_or_default();
    let home = cluster.split('/').nth(4).unwrap_or_default();
    let body = json!({"managedBy": cluster,
        "tags": {"aks-managed-cluster-name": owner, "aks-managed-cluster-rg": home}});
    group::made(turn, None, subscription, name, location, &body);
    Ok(())
}

/// The group's id.
fn group_of(cluster: &Document) -> Option<String> {
    let id = Id::parse(cluster.id())?;
    let name = cluster.body["properties"]["nodeResourceGroup"].as_str()?;
    Some(id::group(&id.subscription?, name))
}

/// Removes the group with all in it.
pub(super) fn clear(turn: &mut Turn<'_>, cluster: &Document) {
    if let Some(group) = group_of(cluster) {
        group::clear(turn, &group);
    }
}

/// Writes a resource and does not wait for it.
fn make(turn: &mut Turn<'_>, id: &str, body: Value) -> Result<Document, Fault> {
    let parsed = Id::parse(id).expect("ids here are made of names");
    let kind = resource::kind_of(&parsed.namespace, &parsed.types)?;
    let before = document::get(turn, id);
    let stored = resource::store(turn, &parsed, kind, before, body, true)?;
    if let Some(operation) = &stored.operation {
        operation::complete(turn, operation);
    }
    Ok(document::get(turn, id).unwrap_or(stored.document))
}

fn drop(turn: &mut Turn<'_>, document: &Document) -> Result<(), Fault> {
    if let Some((id, kind)) = Id::parse(document.id()).and_then(|id| {
        let kind = crate::arm::kind::named(&id.kind())?;
        Some((id, kind))
    }) {
        resource::may_leave(turn, &id, kind, document, &std::collections::HashSet::new())?;
    }
    resource::remove(turn, document)
}

/// Brings the group to what the cluster says.
pub(super) fn sync(turn: &mut Turn<'_>, cluster: &mut Document) -> Result<(), Fault> {
    let Some(group) = group_of(cluster) else {
        return Ok(());
    };
    let location = cluster.body["location"].clone();
    let suffix = cluster.hidden["suffix"]
        .as_str()
        .unwrap_or("00000000")
        .to_owned();
    let name = cluster.body["name"].as_str().unwrap_or_default().to_owned();
    let kubelet = kubelet_identity(turn, cluster, &group, &name)?;
    let routed = cluster.body["properties"]["networkProfile"]["networkPlugin"] == "kubenet";
    let subnet = network(turn, &group, &location, (&suffix, routed))?;
    let pools = balancer(turn, cluster, &group)?;
    principal::ensure(turn, cluster, &group);
    let mut kept = Vec::new();
    let profiles = cluster.body["properties"]["agentPoolProfiles"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for profile in profiles
        .iter()
        .filter(|p| p["type"] == "VirtualMachineScaleSets")
    {
        let title = profile["name"].as_str().unwrap_or_default();
        let digits = match cluster.hidden["sets"][title].as_str() {
            Some(digits) => digits.to_owned(),
            None => turn.chance.digits(8),
        };
        document::object(&mut cluster.hidden["sets"]);
        cluster.hidden["sets"][title] = json!(digits);
        let set = format!("aks-{title}-{digits}-vmss");
        kept.push(set.clone());
        let id = format!("{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}");
        let (body, is_surged) = scale_set(cluster, profile, &set, &subnet, &pools, &kubelet);
        if is_surged {
            cluster.hidden["surged"] = json!(true);
        }
        if profiles::is_rolled(profile) {
            document::object(&mut cluster.hidden["rolling"]);
            cluster.hidden["rolling"][title] = json!(true);
        }
        make(turn, &id, body)?;
    }
    let sets = document::of_kind(turn, &group, "Microsoft.Compute/virtualMachineScaleSets");
    for set in sets
        .iter()
        .filter(|s| !kept.iter().any(|name| s.body["name"] == **name))
    {
        drop(turn, set)?;
    }
    Ok(())
}

fn kubelet_identity(
    turn: &mut Turn<'_>,
    cluster: &mut Document,
    group: &str,
    name: &str,
) -> Result<String, Fault> {
    let id = format!(
        "{group}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{name}-agentpool"
    );
    let identity = make(turn, &id, json!({"location": cluster.body["location"]}))?;
    let properties = &identity.body["properties"];
    cluster.body["properties"]["identityProfile"] = json!({"kubeletidentity": {
        "resourceId": id.replace("/resourceGroups/", "/resourcegroups/"), "clientId": properties["clientId"],
        "objectId": properties["principalId"]}});
    Ok(id)
}

fn network(
    turn: &mut Turn<'_>,
    group: &str,
    location: &Value,
    (suffix, is_routed): (&str, bool),
) -> Result<String, Fault> {
    let rules = format!(
        "{group}/providers/Microsoft.Network/networkSecurityGroups/aks-agentpool-{suffix}-nsg"
    );
    make(turn, &rules, json!({ "location": location }))?;
    let network = format!("{group}/providers/Microsoft.Network/virtualNetworks/aks-vnet-{suffix}");
    let subnet = format!("{network}/subnets/aks-subnet");
    if document::get(turn, &network).is_none() {
        let mut own =
            json!({"addressPrefix": "10.224.0.0/16", "networkSecurityGroup": {"id": rules}});
        if is_routed {
            let table = format!(
                "{group}/providers/Microsoft.Network/routeTables/{}",
                route_table(suffix)
            );
            make(turn, &table, json!({ "location": location }))?;
            own["routeTable"] = json!({ "id": table });
        }
        make(
            turn,
            &network,
            json!({"location": location, "properties": {
            "addressSpace": {"addressPrefixes": ["10.224.0.0/12"]},
            "subnets": [{"name": "aks-subnet", "properties": own}]}}),
        )?;
    }
    Ok(subnet)
}

/// The table that kubenet's routes are in.
pub(super) fn route_table(suffix: &str) -> String {
    format!("aks-agentpool-{suffix}-routetable")
}

/// The balancer that nodes reach the Internet through; gives its pools.
fn balancer(
    turn: &mut Turn<'_>,
    cluster: &mut Document,
    group: &str,
) -> Result<Vec<String>, Fault> {
    let own = format!("{group}/providers/Microsoft.Network/loadBalancers/kubernetes");
    let pools = vec![
        format!("{own}/backendAddressPools/aksOutboundBackendPool"),
        format!("{own}/backendAddressPools/kubernetes"),
    ];
    if cluster.body["properties"]["networkProfile"]["outboundType"] != "loadBalancer"
        || document::get(turn, &own).is_some()
    {
        return Ok(pools);
    }
    let location = cluster.body["location"].clone();
    let name = turn.chance.guid();
    let address = format!("{group}/providers/Microsoft.Network/publicIPAddresses/{name}");
    make(
        turn,
        &address,
        json!({"location": location, "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"}, "tags": {"aks-managed-type": "aks-slb-managed-outbound-ip"}}),
    )?;
    let front = format!("{own}/frontendIPConfigurations/{name}");
    make(
        turn,
        &own,
        json!({"location": location, "sku": {"name": "Standard"}, "properties": {
        "frontendIPConfigurations": [{"name": name, "properties": {"publicIPAddress": {"id": address}}}],
        "backendAddressPools": [{"name": "aksOutboundBackendPool"}, {"name": "kubernetes"}],
        "outboundRules": [{"name": "aksOutboundRule", "properties": {"protocol": "All", "idleTimeoutInMinutes": 30,
            "enableTcpReset": true, "allocatedOutboundPorts": 0, "backendAddressPool": {"id": pools[0]},
            "frontendIPConfigurations": [{"id": front}]}}]}}),
    )?;
    cluster.body["properties"]["networkProfile"]["loadBalancerProfile"]["effectiveOutboundIPs"] =
        json!([{"id": address}]);
    Ok(pools)
}

fn scale_set(
    cluster: &Document,
    profile: &Value,
    name: &str,
    subnet: &str,
    pools: &[String],
    kubelet: &str,
) -> (Value, bool) {
    let title = profile["name"].as_str().unwrap_or_default();
    let own = profile["vnetSubnetID"].as_str().unwrap_or(subnet);
    // A pool that is stopped has no machines; those of a cluster that is stopped are off, and stay.
    let is_off = profile["powerState"]["code"] == "Stopped" && cluster.hidden["stopped"] != true;
    let is_kept_off = cluster.hidden["stoppedPools"]
        .as_array()
        .is_some_and(|all| all.contains(&profile["name"]));
    let surge = profiles::surge(profile);
    let count = match is_off || is_kept_off {
        true => 0,
        false => profile["count"].as_u64().unwrap_or(0) + surge,
    };
    let ids: Vec<Value> = pools.iter().map(|id| json!({ "id": id })).collect();
    let version = profile["currentOrchestratorVersion"]
        .as_str()
        .unwrap_or_default();
    let image = profile["nodeImageVersion"].as_str().unwrap_or_default();
    let mut parts = image.splitn(3, '-').skip(1);
    let (sku, number) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let mut tags = json!({"aks-managed-poolName": title, "aks-managed-orchestrator": format!("Kubernetes:{version}"),
        "aks-managed-creationSource": "vmssclient-aks", "aks-managed-resourceNameSuffix": cluster.hidden["suffix"],
        "aks-managed-kubeletIdentityClientID": cluster.body["properties"]["identityProfile"]["kubeletidentity"]["clientId"],
        "aks-managed-ssh-access": "LocalUser", "compute.aks.billing": "linux"});
    document::overlay(&mut tags, &cluster.body["tags"]);
    document::overlay(&mut tags, &profile["tags"]);
    let mut body = json!({
        "location": cluster.body["location"], "tags": tags,
        "sku": {"name": profile["vmSize"], "tier": "Standard", "capacity": count},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {kubelet: {}}},
        "properties": {"singlePlacementGroup": false, "orchestrationMode": "Uniform", "overprovision": false,
            "upgradePolicy": {"mode": "Manual"},
            "virtualMachineProfile": {
                "osProfile": {"computerNamePrefix": name, "adminUsername": "azureuser",
                    "linuxConfiguration": {"disablePasswordAuthentication": true, "provisionVMAgent": true}},
                "storageProfile": {
                    "osDisk": {"osType": profile["osType"], "createOption": "FromImage", "caching": "ReadOnly",
                        "diskSizeGB": profile["osDiskSizeGB"], "managedDisk": {"storageAccountType": "Premium_LRS"}},
                    "imageReference": {"id": format!("/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/\
                        AKS-Ubuntu/providers/Microsoft.Compute/galleries/AKSUbuntu/images/{sku}/versions/{number}")}},
                "networkProfile": {"networkInterfaceConfigurations": [{"name": name, "properties": {"primary": true,
                    "enableAcceleratedNetworking": true, "enableIPForwarding": true, "ipConfigurations": [{"name": "ipconfig1",
                        "properties": {"primary": true, "subnet": {"id": own}, "privateIPAddressVersion": "IPv4",
                            "loadBalancerBackendAddressPools": ids}}]}}]},
                "extensionProfile": {"extensions": [{"name": "vmssCSE", "properties": {"publisher": "Microsoft.Azure.Extensions",
                    "type": "CustomScript", "typeHandlerVersion": "2.0", "autoUpgradeMinorVersion": true}}]},
                "priority": profile["scaleSetPriority"], "evictionPolicy": profile["scaleSetEvictionPolicy"]}},
    });
    if profile["availabilityZones"]
        .as_array()
        .is_some_and(|zones| !zones.is_empty())
    {
        body["zones"] = profile["availabilityZones"].clone();
    }
    (body, surge > 0)
}

/// Notes of every machine of a cluster that it is on or off.
pub(super) fn power(turn: &mut Turn<'_>, cluster: &Document, power: &str) {
    let pools = cluster.body["properties"]["agentPoolProfiles"].as_array();
    let names = pools
        .into_iter()
        .flatten()
        .filter_map(|p| p["name"].as_str());
    for mut machine in names
        .flat_map(|pool| machines(turn, cluster, pool))
        .collect::<Vec<_>>()
    {
        machine.hidden["power"] = json!(power);
        document::put(turn, &machine);
    }
}

/// The machines of a pool, with the scale set's name.
pub(super) fn machines(turn: &Turn<'_>, cluster: &Document, pool: &str) -> Vec<Document> {
    let Some((group, digits)) = group_of(cluster).zip(cluster.hidden["sets"][pool].as_str()) else {
        return Vec::new();
    };
    let set = Id::parse(&format!(
        "{group}/providers/Microsoft.Compute/virtualMachineScaleSets/aks-{pool}-{digits}-vmss"
    ));
    set.map(|set| document::children(turn, &set, "virtualMachines"))
        .unwrap_or_default()
}

/// The machines of all pools, for whom stands behind the cluster.
pub(crate) fn wanted(turn: &Turn<'_>, cluster: &Document) -> Vec<Node> {
    let pools = cluster.body["properties"]["agentPoolProfiles"].as_array();
    let names = pools
        .into_iter()
        .flatten()
        .filter_map(|p| p["name"].as_str());
    names
        .flat_map(|pool| {
            let all = machines(turn, cluster, pool).into_iter();
            all.map(move |machine| compute::instance_node(turn, &machine, pool))
        })
        .collect()
}
