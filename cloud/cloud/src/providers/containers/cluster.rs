//! Managed clusters: defaults, rules, and which state a write leads to.

use serde_json::{Value, json};

use super::super::identity;
use super::pools::{self, Cluster};
use super::{nodes, releases};
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::id::Id;
use crate::arm::kind::Draft;
use crate::turn::Turn;

pub(super) const DEFAULTS: &str = r#"{"sku":{"name":"Base","tier":"Free"},"properties":{"kubernetesVersion":"",
    "agentPoolProfiles":[],
    "enableRBAC":true,"supportPlan":"KubernetesOfficial","maxAgentPools":100,"powerState":{"code":"Running"},
    "disableLocalAccounts":false,
    "networkProfile":{"networkPolicy":"none","networkDataplane":"azure","loadBalancerSku":"standard",
        "serviceCidr":"10.0.0.0/16","dnsServiceIP":"10.0.0.10","outboundType":"loadBalancer","ipFamilies":["IPv4"],
        "podLinkLocalAccess":"IMDS"},
    "autoUpgradeProfile":{"nodeOSUpgradeChannel":"NodeImage"},"securityProfile":{},
    "storageProfile":{"diskCSIDriver":{"enabled":true},"fileCSIDriver":{"enabled":true},"snapshotController":{"enabled":true}},
    "oidcIssuerProfile":{"enabled":true},"workloadAutoScalerProfile":{},"metricsProfile":{"costAnalysis":{"enabled":false}},
    "nodeProvisioningProfile":{"mode":"Manual","defaultNodePools":"Auto"},"bootstrapProfile":{"artifactSource":"Direct"}}}"#;

/// Decides on a write of a cluster or of one of its pools.
pub(super) fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    check_free(draft)?;
    check_name(draft.id.name())?;
    if draft.is_new() {
        begin(turn, draft)?;
    }
    identity::assign(turn, draft)?;
    let version = version(draft)?;
    network(draft)?;
    let before = draft.was("/properties/agentPoolProfiles");
    let change = pools_of(draft, &before, version)?;
    draft.body["type"] = json!("Microsoft.ContainerService/ManagedClusters");
    if let Some(trouble) = turn.settings.region.objection(draft.kind.name, &draft.body) {
        return Err(Fault::bad(&trouble.code, trouble.message));
    }
    say(draft, change);
    Ok(())
}

/// A cluster does one thing at a time, and nothing while it is stopped.
fn check_free(draft: &Draft<'_>) -> Result<(), Fault> {
    let Some(before) = draft.before else {
        return Ok(());
    };
    if before.operation.is_some() {
        let message = format!(
            "Operation is not allowed because there's an in progress {} operation on the managed cluster \
             {}. Please wait for it to finish before starting a new operation. Another operation is in progress. See \
             https://aka.ms/aks-pending-operation for more details.",
            before.state(),
            draft.id.name()
        );
        return Err(Fault::conflict("OperationNotAllowed", message));
    }
    match before.body["properties"]["powerState"]["code"] == "Stopped" {
        true => Err(Fault::conflict(
            "OperationNotAllowed",
            "managed cluster is in stopped state; only start and delete are allowed.",
        )),
        false => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), Fault> {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    match name.chars().all(inner) && edge(name.chars().next()) && edge(name.chars().last()) {
        true => Ok(()),
        false => Err(Fault::bad(
            "InvalidParameter",
            format!("The value of parameter resourceName '{name}' is invalid. It can contain letters, digits, \
                underscores and hyphens, and must start and end with a letter or digit."),
        )
        .target("resourceName")),
    }
}

/// What a cluster gets once and for all.
fn begin(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let id = draft.id.clone();
    let (group, name) = (id.group.clone().unwrap_or_default(), id.name().to_owned());
    let location = draft.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let subscription = id.subscription.clone().unwrap_or_default();
    let spelled = id
        .to_string()
        .replace("/resourceGroups/", "/resourcegroups/");
    draft.body["id"] = json!(spelled);
    let properties = draft.properties();
    let subdomain = properties["fqdnSubdomain"].as_str().map(str::to_owned);
    let prefix = properties["dnsPrefix"].as_str().map(str::to_owned);
    let Some(prefix) = prefix.or(subdomain) else {
        return Err(Fault::bad(
            "InvalidParameter",
            "Required parameter dnsPrefix is missing (null).",
        )
        .target("dnsPrefix"));
    };
    let host = format!("{}-{}", prefix.to_lowercase(), turn.chance.small(8));
    properties["fqdn"] = json!(format!("{host}.hcp.{location}.azmk8s.io"));
    properties["azurePortalFQDN"] = json!(format!("{host}.portal.hcp.{location}.azmk8s.io"));
    if properties["apiServerAccessProfile"]["enablePrivateCluster"] == true {
        let zone = turn.chance.guid();
        properties["privateFQDN"] =
            json!(format!("{host}.{zone}.privatelink.{location}.azmk8s.io"));
    }
    properties["resourceUID"] = json!(turn.chance.hex(24));
    if properties["oidcIssuerProfile"]["enabled"] == true {
        let issuer = format!(
            "https://{location}.oic.prod-aks.azure.com/{}/{}/",
            turn.settings.tenant,
            turn.chance.guid()
        );
        properties["oidcIssuerProfile"]["issuerURL"] = json!(issuer);
    }
    if properties["servicePrincipalProfile"].is_null() {
        properties["servicePrincipalProfile"] = json!({"clientId": "msi"});
    }
    document::take(properties, "/servicePrincipalProfile/secret");
    let mut nodes: String = format!("MC_{group}_{name}_{location}");
    nodes.truncate(80);
    document::fill(properties, &json!({ "nodeResourceGroup": nodes }));
    let nodes = properties["nodeResourceGroup"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    nodes::begin(turn, &subscription, &nodes, &location, &spelled)?;
    draft.hidden = json!({"suffix": turn.chance.digits(8)});
    Ok(())
}

/// The version of the control plane: never lower, never more than one minor at a time.
fn version(draft: &mut Draft<'_>) -> Result<releases::Version, Fault> {
    let location = draft.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let asked = draft.body["properties"]["kubernetesVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let was = draft.was("/properties/kubernetesVersion");
    let current = draft.was("/properties/currentKubernetesVersion");
    if let (Some(was), Some(current)) = (was.as_str(), current.as_str().and_then(releases::resolve))
        && (asked.is_empty() || asked == was)
    {
        draft.properties()["kubernetesVersion"] = json!(was);
        draft.properties()["currentKubernetesVersion"] = json!(current.to_string());
        return Ok(current);
    }
    let version = releases::check(&asked, &location)?;
    if let Some(current) = current.as_str().and_then(releases::resolve) {
        if version < current {
            let message = format!(
                "Downgrading the Kubernetes version from {current} to {version} is not allowed."
            );
            return Err(Fault::bad("OperationNotAllowed", message));
        }
        if version.0 > current.0 + 1 {
            let message = format!(
                "Upgrading Kubernetes version {current} to {version} is not allowed. Available \
                upgrades: {:?}. Please see https://aka.ms/aks-supported-k8s-ver for version details.",
                releases::upgrades(current)
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            );
            return Err(Fault::bad("OperationNotAllowed", message));
        }
    }
    let alias = if asked.is_empty() {
        releases::default_alias()
    } else {
        asked
    };
    draft.properties()["kubernetesVersion"] = json!(alias);
    draft.properties()["currentKubernetesVersion"] = json!(version.to_string());
    Ok(version)
}

/// The network of a cluster: since 2025 an overlay unless something else is asked for.
fn network(draft: &mut Draft<'_>) -> Result<(), Fault> {
    let profile = &mut draft.body["properties"]["networkProfile"];
    if profile["networkPlugin"].is_null() {
        document::fill(
            profile,
            &json!({"networkPlugin": "azure", "networkPluginMode": "overlay"}),
        );
    }
    let has_pods =
        profile["networkPluginMode"] == "overlay" || profile["networkPlugin"] == "kubenet";
    if has_pods {
        document::fill(profile, &json!({"podCidr": "10.244.0.0/16"}));
        profile["podCidrs"] = json!([profile["podCidr"]]);
    }
    profile["serviceCidrs"] = json!([profile["serviceCidr"]]);
    if profile["outboundType"] == "loadBalancer" {
        document::fill(
            profile,
            &json!({"loadBalancerProfile": {"managedOutboundIPs": {"count": 1},
            "backendPoolType": "nodeIPConfiguration"}}),
        );
    }
    let net = |field: &str| {
        profile[field]
            .as_str()
            .and_then(|text| text.parse::<ipnet::Ipv4Net>().ok())
    };
    let (Some(services), pods) = (net("serviceCidr"), net("podCidr")) else {
        return Err(Fault::bad("InvalidParameter", "serviceCidr is no network.")
            .target("networkProfile.serviceCidr"));
    };
    if pods.is_some_and(|pods| {
        pods.contains(&services.network()) || services.contains(&pods.network())
    }) {
        let message = "The specified podCidr overlaps with the specified serviceCidr.";
        return Err(
            Fault::bad("PodCidrOverlapServiceCidr", message).target("networkProfile.podCidr")
        );
    }
    let dns: Option<std::net::Ipv4Addr> = profile["dnsServiceIP"]
        .as_str()
        .and_then(|text| text.parse().ok());
    match dns.is_some_and(|dns| services.contains(&dns) && dns != services.network()) {
        true => Ok(()),
        false => Err(Fault::bad(
            "InvalidParameter",
            "dnsServiceIP has to lie in serviceCidr and not be its first address.",
        )
        .target("networkProfile.dnsServiceIP")),
    }
}

/// What a write changes about pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Created,
    Scaled,
    Upgraded,
    Stopped,
    Started,
    Other,
}

fn pools_of(
    draft: &mut Draft<'_>,
    before: &Value,
    version: releases::Version,
) -> Result<Change, Fault> {
    let location = draft.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let alias = draft.body["properties"]["kubernetesVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let plugin = &draft.body["properties"]["networkProfile"];
    let max_pods = match (
        plugin["networkPlugin"].as_str(),
        plugin["networkPluginMode"].as_str(),
    ) {
        (_, Some("overlay")) => 250,
        (Some("kubenet"), _) => 110,
        (Some("none"), _) => 250,
        _ => 30,
    };
    let cluster = Cluster {
        location: &location,
        version: &alias,
        resolved: version,
        max_pods,
    };
    let was_version = draft.was("/properties/currentKubernetesVersion");
    let mut change = match draft.is_new() {
        true => Change::Created,
        false if was_version != json!(version.to_string()) => Change::Upgraded,
        false => Change::Other,
    };
    let list = draft.body["properties"]["agentPoolProfiles"].as_array_mut();
    let mut has_system = false;
    for pool in list.into_iter().flatten() {
        let own = before
            .as_array()
            .into_iter()
            .flatten()
            .find(|b| b["name"] == pool["name"]);
        pools::decide(&cluster, pool, own)?;
        has_system |= pool["mode"] == "System";
        // An upgrade that did not come to its end goes on with the next write.
        let name = pool["name"].as_str().unwrap_or_default();
        let is_half_done = draft
            .before
            .is_some_and(|b| b.hidden["rolling"][name] == true);
        let state = match is_half_done {
            true => Some(Change::Upgraded),
            false => pool_change(pool, own),
        };
        if change == Change::Other {
            change = state.unwrap_or(change);
        }
        pool["provisioningState"] = match state {
            None => own.map_or(json!("Creating"), |own| own["provisioningState"].clone()),
            Some(state) => json!(word(state, own.is_none())),
        };
    }
    match has_system || draft.body["sku"]["name"] == "Automatic" {
        true => Ok(change),
        false => Err(Fault::bad(
            "InvalidParameter",
            "There has to be at least one system agent pool.",
        )
        .target("agentPoolProfile.mode")),
    }
}

fn pool_change(pool: &Value, before: Option<&Value>) -> Option<Change> {
    let Some(before) = before else {
        return Some(Change::Other);
    };
    let differs = |field: &str| pool[field] != before[field];
    match (&pool["powerState"]["code"], &before["powerState"]["code"]) {
        (now, was) if now == "Stopped" && was != "Stopped" => Some(Change::Stopped),
        (now, was) if now == "Running" && was == "Stopped" => Some(Change::Started),
        _ if differs("currentOrchestratorVersion") => Some(Change::Upgraded),
        _ if differs("count") => Some(Change::Scaled),
        _ if pool != before => Some(Change::Other),
        _ => None,
    }
}

fn word(change: Change, is_new: bool) -> &'static str {
    match change {
        _ if is_new => "Creating",
        Change::Created => "Creating",
        Change::Scaled => "Scaling",
        Change::Upgraded => "Upgrading",
        Change::Stopped => "Stopping",
        Change::Started => "Starting",
        Change::Other => "Updating",
    }
}

/// What the operation says of itself while it runs.
fn say(draft: &mut Draft<'_>, change: Change) {
    let pools = draft.body["properties"]["agentPoolProfiles"].as_array();
    let nodes: u64 = pools
        .into_iter()
        .flatten()
        .filter_map(|pool| pool["count"].as_u64())
        .sum();
    let counted = |verb: &str, done: u64| format!("{verb}: {done}/{nodes} nodes completed");
    let phases: Vec<(u64, String)> = match change {
        Change::Created => vec![
            (100, "ProvisioningControlPlane".into()),
            (400, "ProvisioningNetworkResources".into()),
            (600, "CreatingAgentPools".into()),
            (700, counted("CreatingAgentPools", nodes / 3)),
            (1000, counted("CreatingAgentPools", nodes)),
            (1200, "ReconcilingAddons".into()),
            (1400, "ReconcilingDNS".into()),
        ],
        Change::Upgraded => vec![
            (100, "UpgradingAgentPools".into()),
            (200, "RollingUpgradeCreatingSurgeNodes".into()),
            (
                400,
                format!(
                    "{}; 0 errors",
                    counted("RollingUpgradeUpgradingNodes", nodes / 2)
                ),
            ),
            (900, "RollingUpgradeRemovingSurgeNodes".into()),
        ],
        _ => vec![(100, counted("CreatingAgentPool", nodes / 2))],
    };
    draft.phases = phases;
    draft.state = Some(word(change, draft.is_new()));
    draft.milliseconds = if change == Change::Created { 1500 } else { 800 };
}

/// When an operation is about to end, the nodes' group is brought to what the cluster says.
pub(super) fn finish(turn: &mut Turn<'_>, document: &mut Document) {
    let stopped = document.body["properties"]["powerState"]["code"] == "Stopped";
    let was_stopped = document.hidden["stopped"] == true;
    if stopped != was_stopped {
        power_pools(document, stopped);
    }
    document.hidden["stopped"] = json!(stopped);
    sync(turn, document);
    if stopped != was_stopped {
        nodes::power(
            turn,
            document,
            if stopped { "deallocated" } else { "running" },
        );
    }
}

/// Pools stop and start with their cluster; those that were stopped before stay so.
fn power_pools(document: &mut Document, stopped: bool) {
    let pools = document.body["properties"]["agentPoolProfiles"].as_array_mut();
    let mut stayed = document.hidden["stoppedPools"].take();
    if stopped {
        stayed = json!([]);
    }
    for pool in pools.into_iter().flatten() {
        let name = pool["name"].clone();
        let listed = stayed.as_array().is_some_and(|all| all.contains(&name));
        match (stopped, pool["powerState"]["code"] == "Stopped") {
            (true, true) => {
                if let Some(all) = stayed.as_array_mut() {
                    all.push(name);
                }
            }
            (true, false) => pool["powerState"] = json!({"code": "Stopped"}),
            (false, _) if !listed => pool["powerState"] = json!({"code": "Running"}),
            (false, _) => {}
        }
    }
    document.hidden["stoppedPools"] = if stopped { stayed } else { json!([]) };
}

fn sync(turn: &mut Turn<'_>, document: &mut Document) {
    if let Err(fault) = nodes::sync(turn, document) {
        document.body["properties"]["provisioningState"] = json!("Failed");
        document.body["properties"]["status"] = json!({"provisioningError": fault.error()});
    }
}

/// When an operation has ended, machines that were there for its time only are no more.
pub(super) fn settled(turn: &mut Turn<'_>, document: &mut Document) {
    let is_well = document.state() == "Succeeded";
    if is_well {
        document.hidden["rolling"] = json!({});
    }
    if document.hidden["surged"] == true {
        document.hidden["surged"] = json!(false);
        sync(turn, document);
    }
}

/// A cluster always may go, and its nodes with it; but for the one that this cloud is a part of.
pub(super) fn leave(_: &mut Turn<'_>, _: &Id, document: &Document) -> Result<(), Fault> {
    check_own(document)
}

/// Refuses what would end the cluster that this cloud runs beside.
pub(super) fn check_own(document: &Document) -> Result<(), Fault> {
    match document.hidden["adopted"] == true {
        true => Err(Fault::conflict(
            "OperationNotAllowed",
            "This cluster was started with `kyanite up` and this cloud is a part of it: stop it with `kyanite down`.",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::arena::{Arena, SUBSCRIPTION};
    use crate::arm::operation;

    const CLUSTER: &str =
        "/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";

    fn with_cluster() -> Arena {
        let mut arena = Arena::new();
        arena.group("g");
        let body = json!({"location": "eastus", "identity": {"type": "SystemAssigned"}, "properties": {"dnsPrefix": "c",
            "agentPoolProfiles": [{"name": "p", "count": 3, "mode": "System", "vmSize": ""}]}});
        assert_eq!(arena.done("PUT", CLUSTER, body).0, 201);
        arena
    }

    fn shown(arena: &mut Arena) -> Value {
        let shown = arena.ask("GET", CLUSTER, Value::Null);
        shown.document()["properties"].clone()
    }

    /// Numbers and power of the machines.
    fn machines(arena: &mut Arena) -> Vec<(u64, String)> {
        let own = format!("{SUBSCRIPTION}{CLUSTER}");
        let all = arena.turn(|turn| {
            let cluster = document::get(turn, &own).unwrap();
            nodes::machines(turn, &cluster, "p")
        });
        let mut all: Vec<(u64, String)> = all
            .iter()
            .map(|one| {
                let number = one.body["instanceId"].as_str().unwrap().parse().unwrap();
                (number, one.hidden["power"].as_str().unwrap().to_owned())
            })
            .collect();
        all.sort();
        all
    }

    fn numbers(arena: &mut Arena) -> Vec<u64> {
        machines(arena)
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn machines_of_a_cluster_that_stops_are_off_and_the_same_when_it_starts() {
        let mut arena = with_cluster();
        let power = |power: &str| (0..3).map(|n| (n, power.to_owned())).collect::<Vec<_>>();
        assert_eq!(machines(&mut arena), power("running"));
        assert_eq!(
            arena
                .done("POST", &format!("{CLUSTER}/stop"), Value::Null)
                .0,
            202
        );
        assert_eq!(machines(&mut arena), power("deallocated"));
        assert_eq!(
            shown(&mut arena)["agentPoolProfiles"][0]["powerState"]["code"],
            "Stopped"
        );
        // Once more is no different.
        assert_eq!(
            arena
                .done("POST", &format!("{CLUSTER}/stop"), Value::Null)
                .0,
            204
        );
        let refused = arena.done(
            "POST",
            &format!("{CLUSTER}/runCommand"),
            json!({"command": "x"}),
        );
        assert_eq!(refused, (409, "OperationNotAllowed".into()));
        assert_eq!(
            arena
                .done("POST", &format!("{CLUSTER}/start"), Value::Null)
                .0,
            202
        );
        assert_eq!(machines(&mut arena), power("running"));
        assert_eq!(
            shown(&mut arena)["agentPoolProfiles"][0]["powerState"]["code"],
            "Running"
        );
    }

    #[test]
    fn an_upgrade_has_one_more_machine_while_it_goes_on_and_goes_on_after_it_failed() {
        let mut arena = with_cluster();
        let begin = |arena: &mut Arena| {
            let path = format!("{CLUSTER}/agentPools/p/upgradeNodeImageVersion");
            assert_eq!(arena.ask("POST", &path, Value::Null).status, 202);
            let is_due =
                |(key, entry): (&String, &Value)| operation::due(key, entry).map(|_| key.clone());
            let key = arena.state.0.iter().find_map(is_due).unwrap();
            let id = key.trim_start_matches("op/").to_owned();
            // What a region is asked for: the one that stands in for others is among it.
            arena.turn(|turn| crate::arm::orders::needs(turn, &id));
            let mut operation = arena.turn(|turn| turn.get(&key)).unwrap();
            if operation["laid"] != true {
                arena.turn(|turn| {
                    let own = format!("{SUBSCRIPTION}{CLUSTER}");
                    let mut cluster = document::get(turn, &own).unwrap();
                    operation::lay(turn, &mut cluster, &Value::Null);
                    document::put(turn, &cluster);
                    operation["laid"] = json!(true);
                    turn.put(key.clone(), operation.clone());
                });
            }
            id
        };
        let before = shown(&mut arena)["agentPoolProfiles"][0]["nodeImageVersion"].clone();
        let id = begin(&mut arena);
        assert_eq!(numbers(&mut arena), [0, 1, 2, 3]);
        arena.turn(|turn| operation::fail(turn, &id, json!({"code": "UpgradeFailed"})));
        assert_eq!(numbers(&mut arena), [0, 1, 2]);
        let failed = shown(&mut arena);
        assert_eq!(failed["provisioningState"], "Failed");
        assert_eq!(
            failed["agentPoolProfiles"][0]["provisioningState"],
            "Failed"
        );
        assert_eq!(
            failed["status"]["provisioningError"]["code"],
            "UpgradeFailed"
        );

        let id = begin(&mut arena);
        assert_eq!(
            numbers(&mut arena),
            [0, 1, 2, 4],
            "it goes on, with another one"
        );
        arena.turn(|turn| operation::complete(turn, &id));
        assert_eq!(numbers(&mut arena), [0, 1, 2]);
        let done = shown(&mut arena);
        assert_eq!(
            done["agentPoolProfiles"][0]["provisioningState"],
            "Succeeded"
        );
        assert_eq!(done["status"], Value::Null);
        assert_ne!(done["agentPoolProfiles"][0]["nodeImageVersion"], before);
        let id = begin(&mut arena);
        assert_eq!(numbers(&mut arena), [0, 1, 2], "there is nothing newer");
        arena.turn(|turn| operation::complete(turn, &id));
    }

    #[test]
    fn a_spot_machine_that_is_evicted_is_gone_and_its_set_is_smaller() {
        let mut arena = with_cluster();
        let pool = json!({"properties": {"count": 1, "scaleSetPriority": "Spot", "vmSize": ""}});
        let path = format!("{CLUSTER}/agentPools/s");
        assert_eq!(arena.done("PUT", &path, pool).0, 201);
        let first = |arena: &mut Arena, pool: &str| {
            let own = format!("{SUBSCRIPTION}{CLUSTER}");
            let all = arena.turn(|turn| {
                let cluster = document::get(turn, &own).unwrap();
                nodes::machines(turn, &cluster, pool)
            });
            all.first().map(|one| one.id().to_owned())
        };
        let evict = |arena: &mut Arena, id: &str| {
            let path = id.strip_prefix(SUBSCRIPTION).unwrap();
            arena.done("POST", &format!("{path}/simulateEviction"), Value::Null)
        };
        let plain = first(&mut arena, "p").unwrap();
        assert_eq!(evict(&mut arena, &plain).0, 409);
        let spot = first(&mut arena, "s").unwrap();
        assert_eq!(evict(&mut arena, &spot).0, 204);
        assert_eq!(first(&mut arena, "s"), None);
        let set = spot.split("/virtualMachines/").next().unwrap();
        let shown = arena.ask("GET", set.strip_prefix(SUBSCRIPTION).unwrap(), Value::Null);
        assert_eq!(shown.document()["sku"]["capacity"], 0);
    }

    #[test]
    fn routes_of_a_cluster_with_kubenet_are_in_a_table_of_its_subnet() {
        let mut arena = Arena::new();
        arena.group("g");
        let body = json!({"location": "eastus", "identity": {"type": "SystemAssigned"}, "properties": {"dnsPrefix": "c",
            "networkProfile": {"networkPlugin": "kubenet"},
            "agentPoolProfiles": [{"name": "p", "count": 1, "mode": "System", "vmSize": ""}]}});
        assert_eq!(arena.done("PUT", CLUSTER, body).0, 201);
        let own = format!("{SUBSCRIPTION}{CLUSTER}");
        let config = arena
            .turn(|turn| super::super::cloud_config(turn, &own))
            .unwrap();
        let table = config["routeTableName"].as_str().unwrap();
        let path = format!(
            "/resourceGroups/MC_g_c_eastus/providers/Microsoft.Network/routeTables/{table}"
        );
        let found = arena.ask("GET", &path, Value::Null);
        let subnets = &found.document()["properties"]["subnets"];
        assert_eq!(
            subnets.as_array().map(Vec::len),
            Some(1),
            "{}",
            found.document()
        );
    }
}
