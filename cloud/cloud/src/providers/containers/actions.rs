//! What can be done with a cluster besides writing it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::Call;
use super::{cluster, nodes, pools, releases};
use crate::arm::document::{self, Document};
use crate::arm::fault::{self, Fault};
use crate::arm::id::Id;
use crate::arm::kind::Goes;
use crate::arm::operation::{self, Begin, Verb};
use crate::exchange::Reply;
use crate::providers::compute;
use crate::settings::ClusterAccess;
use crate::turn::Turn;

pub(super) fn nothing(_: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    Ok(Reply::list(Vec::new()))
}

/// The cluster that a path begins with.
fn cluster(turn: &Turn<'_>, call: &Call<'_>) -> Result<(Id, Document), Fault> {
    let mut path = call.path.clone();
    path.rest.truncate(2);
    let id = path.id().expect("a route of a cluster names it");
    let found = document::get(turn, &id.to_string());
    Ok((id.clone(), found.ok_or_else(|| fault::no_resource(&id))?))
}

fn pool<'d>(cluster: &'d Document, name: &str) -> Result<&'d Value, Fault> {
    let mut all = cluster.body["properties"]["agentPoolProfiles"]
        .as_array()
        .into_iter()
        .flatten();
    let found = all.find(|pool| is_named(pool, name));
    found.ok_or_else(|| {
        let message = format!("Could not find the agentpool {name} in the managed cluster.");
        Fault::new(404, "NotFound", message).flat()
    })
}

/// Begins an operation on a cluster, whatever it will be at the end.
fn begin(
    turn: &mut Turn<'_>,
    call: &Call<'_>,
    id: &Id,
    mut cluster: Document,
    state: &str,
    then: Value,
) -> Result<Reply, Fault> {
    if cluster.operation.is_some() {
        let message = format!(
            "Operation is not allowed because there's an in progress {} operation on the managed \
            cluster {}. Another operation is in progress.",
            cluster.state(),
            id.name()
        );
        return Err(Fault::conflict("OperationNotAllowed", message).flat());
    }
    let mut begin = Begin::new(Verb::Action, cluster.id(), 800);
    begin.then = then;
    let operation = operation::begin(turn, begin);
    cluster.operation = Some(operation.clone());
    cluster.body["properties"]["provisioningState"] = json!(state);
    let location = cluster.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    document::put(turn, &cluster);
    let words = ("operations", "operationresults");
    let (status, result) =
        operation::addresses(turn, id, words, &operation, &location, call.version());
    Ok(operation::headers(
        turn,
        Reply::empty(202),
        Goes::Both,
        &status,
        &result,
    ))
}

pub(super) fn stop(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, found) = cluster(turn, call)?;
    cluster::check_own(&found).map_err(Fault::flat)?;
    match found.body["properties"]["powerState"]["code"] == "Stopped" {
        true => Ok(Reply::empty(204)),
        false => begin(
            turn,
            call,
            &id,
            found,
            "Stopping",
            json!({"properties": {"powerState": {"code": "Stopped"}}}),
        ),
    }
}

pub(super) fn start(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, found) = cluster(turn, call)?;
    match found.body["properties"]["powerState"]["code"] == "Running" {
        true => Ok(Reply::empty(204)),
        false => begin(
            turn,
            call,
            &id,
            found,
            "Starting",
            json!({"properties": {"powerState": {"code": "Running"}}}),
        ),
    }
}

/// Ends what is under way; the cluster is what it was then, and says `Canceled`.
pub(super) fn abort(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, mut found) = cluster(turn, call)?;
    let Some(operation) = found.operation.take() else {
        let message = "There is no ongoing operation that could be aborted.";
        return Err(Fault::bad("OperationNotAllowed", message).flat());
    };
    operation::cancel(
        turn,
        &operation,
        "Canceled",
        "The operation was aborted by the user.",
    );
    found.body["properties"]["provisioningState"] = json!("Canceled");
    for pool in found.body["properties"]["agentPoolProfiles"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if pool["provisioningState"] != "Succeeded" {
            pool["provisioningState"] = json!("Canceled");
        }
    }
    operation::settled(turn, &mut found);
    document::put(turn, &found);
    Ok(Reply::empty(204))
}

pub(super) fn rotate(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, found) = cluster(turn, call)?;
    check_running(&found)?;
    if found.hidden["adopted"] == true {
        let message = "This cluster was started with `kyanite up` and this cloud is a part of it: rotate its certificates \
            with `kyanite certs rotate`.";
        return Err(Fault::conflict("OperationNotAllowed", message).flat());
    }
    let word = call.path.rest.last().map(|word| word.to_lowercase());
    let state = match word.as_deref() {
        Some("rotateserviceaccountsigningkeys") => "RotatingServiceAccountSigningKeys",
        _ => "RotatingClusterCertificates",
    };
    begin(turn, call, &id, found, state, Value::Null)
}

/// Nothing but starting and deleting is done with a cluster that is stopped.
fn check_running(cluster: &Document) -> Result<(), Fault> {
    match cluster.body["properties"]["powerState"]["code"] == "Stopped" {
        true => Err(Fault::conflict(
            "OperationNotAllowed",
            "managed cluster is in stopped state; only start and delete are allowed.",
        )
        .flat()),
        false => Ok(()),
    }
}

pub(super) fn reset(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, found) = cluster(turn, call)?;
    let body = call.body()?;
    let then = match body["clientId"].as_str() {
        Some(client) => json!({"properties": {"servicePrincipalProfile": {"clientId": client}}}),
        None => json!({"properties": {"aadProfile": body}}),
    };
    begin(turn, call, &id, found, "Updating", then)
}

pub(super) fn upgrade_image(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut found) = cluster(turn, call)?;
    check_running(&found)?;
    let own = pool(&found, &call.names[1])?;
    let (name, newest) = (
        own["name"].as_str().unwrap_or_default(),
        pools::newest_image(own),
    );
    let state = "UpgradingNodeImageVersion";
    // There is nothing to do but for an upgrade that did not come to its end.
    if own["nodeImageVersion"] == *newest && found.hidden["rolling"][name] != true {
        return begin(turn, call, &id, found, state, Value::Null);
    }
    let all = found.body["properties"]["agentPoolProfiles"].as_array_mut();
    let named = |pool: &&mut Value| is_named(pool, &call.names[1]);
    if let Some(pool) = all.into_iter().flatten().find(named) {
        pool["nodeImageVersion"] = json!(newest);
        pool["provisioningState"] = json!(state);
    }
    begin(turn, call, &id, found, state, Value::Null)
}

fn is_named(pool: &Value, name: &str) -> bool {
    let own = pool["name"].as_str();
    own.is_some_and(|own| own.eq_ignore_ascii_case(name))
}

/// Takes named machines out of a pool, and lowers its count by as many.
pub(super) fn delete_machines(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut found) = cluster(turn, call)?;
    let body = call.body()?;
    let names: Vec<&str> = body["machineNames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let all = nodes::machines(turn, &found, &call.names[1]);
    for name in &names {
        let machine = all
            .iter()
            .find(|m| m.body["properties"]["osProfile"]["computerName"] == **name);
        let Some(machine) = machine else {
            let message = format!(
                "Machine {name} of the agentpool {} was not found.",
                call.names[1]
            );
            return Err(Fault::new(404, "NotFound", message).flat());
        };
        compute::drop_instance(turn, machine)?;
    }
    for pool in found.body["properties"]["agentPoolProfiles"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if pool["name"] == *call.names[1] {
            let fewer = pool["count"]
                .as_u64()
                .unwrap_or(0)
                .saturating_sub(names.len() as u64);
            pool["count"] = json!(fewer);
        }
    }
    begin(turn, call, &id, found, "Updating", Value::Null)
}

fn machine_shown(cluster: &Document, pool: &str, machine: &Document) -> Value {
    let name = machine.body["properties"]["osProfile"]["computerName"]
        .as_str()
        .unwrap_or_default();
    json!({
        "id": format!("{}/agentPools/{pool}/machines/{name}", cluster.id()), "name": name,
        "type": "Microsoft.ContainerService/managedClusters/agentPools/machines", "zones": machine.body["zones"],
        "properties": {"resourceId": machine.id(), "provisioningState": machine.state(),
            "network": {"ipAddresses": [{"family": "IPv4", "ip": machine.hidden["address"]}]}},
    })
}

pub(super) fn machines(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    pool(&found, &call.names[1])?;
    let all = nodes::machines(turn, &found, &call.names[1]);
    Ok(Reply::list(
        all.iter()
            .map(|m| machine_shown(&found, &call.names[1], m))
            .collect(),
    ))
}

pub(super) fn machine(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    let all = nodes::machines(turn, &found, &call.names[1]);
    let wanted = &call.names[2];
    let machine = all
        .iter()
        .find(|m| m.body["properties"]["osProfile"]["computerName"] == **wanted);
    match machine {
        Some(machine) => Ok(Reply::ok(machine_shown(&found, &call.names[1], machine))),
        None => Err(Fault::new(404, "NotFound", format!("Machine {wanted} was not found.")).flat()),
    }
}

fn offered(from: releases::Version) -> Vec<Value> {
    let one = |to: &releases::Version| match releases::is_preview(*to) {
        true => json!({"kubernetesVersion": to.to_string(), "isPreview": true}),
        false => json!({"kubernetesVersion": to.to_string()}),
    };
    releases::upgrades(from).iter().map(one).collect()
}

fn current(value: &Value) -> releases::Version {
    value
        .as_str()
        .and_then(releases::resolve)
        .unwrap_or(releases::Version(0, 0))
}

pub(super) fn upgrades(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    let properties = &found.body["properties"];
    let version = &properties["currentKubernetesVersion"];
    let pools: Vec<Value> = properties["agentPoolProfiles"].as_array().into_iter().flatten().map(|pool| {
        json!({"kubernetesVersion": pool["currentOrchestratorVersion"], "name": pool["name"], "osType": pool["osType"]})
    }).collect();
    Ok(Reply::ok(json!({
        "id": format!("{}/upgradeprofiles/default", found.id()), "name": "default",
        "type": "Microsoft.ContainerService/managedClusters/upgradeprofiles",
        "properties": {"controlPlaneProfile": {"kubernetesVersion": version, "osType": "Linux",
            "upgrades": offered(current(version))}, "agentPoolProfiles": pools},
    })))
}

pub(super) fn pool_upgrades(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    let pool = pool(&found, &call.names[1])?;
    let highest = current(&found.body["properties"]["currentKubernetesVersion"]);
    let all = releases::upgrades(current(&pool["currentOrchestratorVersion"]));
    let shown: Vec<Value> = all
        .iter()
        .filter(|v| **v <= highest)
        .map(|v| json!({"kubernetesVersion": v.to_string()}))
        .collect();
    Ok(Reply::ok(json!({
        "id": format!("{}/agentPools/{}/upgradeProfiles/default", found.id(), call.names[1]), "name": "default",
        "type": "Microsoft.ContainerService/managedClusters/agentPools/upgradeProfiles",
        "properties": {"kubernetesVersion": pool["currentOrchestratorVersion"], "osType": pool["osType"],
            "upgrades": shown, "latestNodeImageVersion": pools::newest_image(pool)},
    })))
}

pub(super) fn pool_versions(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    let highest = current(&found.body["properties"]["currentKubernetesVersion"]);
    Ok(Reply::ok(
        json!({"id": format!("{}/availableAgentPoolVersions/default", found.id()), "name": "default",
        "type": "Microsoft.ContainerService/managedClusters/availableAgentpoolVersions",
        "properties": {"agentPoolVersions": [{"kubernetesVersion": highest.to_string(), "default": true}]}}),
    ))
}

pub(super) fn user_credential(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    credential(turn, call, "clusterUser")
}

pub(super) fn admin_credential(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    if found.body["properties"]["disableLocalAccounts"] == true {
        let message = "Getting static credential is not allowed because this cluster is set to disable local accounts.";
        return Err(Fault::bad("BadRequest", message).flat());
    }
    credential(turn, call, "clusterAdmin")
}

/// A kubeconfig, named as AKS names things in it.
fn credential(turn: &mut Turn<'_>, call: &Call<'_>, who: &str) -> Result<Reply, Fault> {
    let (id, found) = cluster(turn, call)?;
    let name = found.body["name"].as_str().unwrap_or_default();
    let user = format!("{who}_{}_{name}", id.group.as_deref().unwrap_or_default());
    let properties = &found.body["properties"];
    let fqdn = properties["privateFQDN"]
        .as_str()
        .or_else(|| properties["fqdn"].as_str())
        .unwrap_or_default();
    let access: Option<ClusterAccess> = serde_json::from_value(found.hidden["access"].clone()).ok();
    let access = access.as_ref();
    let server = access.map_or_else(
        || format!("https://{fqdn}:443"),
        |access| access.server.clone(),
    );
    let is_entra = properties["aadProfile"].is_object() && who == "clusterUser";
    let account = match (is_entra, access) {
        (true, _) => {
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "kubelogin",
            "args": ["get-token", "--environment", "AzurePublicCloud", "--server-id",
                "6dae42f8-4368-4678-94ff-3960e28e3630", "--client-id", "80faf920-1908-4b52-b5ef-a8e7bedfc67a",
                "--tenant-id", turn.settings.tenant, "--login", "devicecode"],
            "env": null, "provideClusterInfo": false}})
        }
        (false, Some(access)) => {
            json!({"client-certificate-data": access.certificate, "client-key-data": access.key})
        }
        (false, None) => {
            json!({"token": crate::entra::directory::digest(&format!("{user}{}", found.id()))})
        }
    };
    let mut entry = json!({ "server": server });
    if let Some(access) = access {
        entry["certificate-authority-data"] = json!(access.authority);
    }
    // JSON is YAML, and every client reads it as such.
    let config = json!({"apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": name,
        "clusters": [{"name": name, "cluster": entry}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "users": [{"name": user, "user": account}]});
    Ok(Reply::ok(
        json!({"kubeconfigs": [{"name": who, "value": STANDARD.encode(config.to_string())}]}),
    ))
}

/// `runCommand`: begins what [`command_result`] tells of. Nothing runs in a hollow cluster, and that is what it says.
pub(super) fn run_command(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, found) = cluster(turn, call)?;
    check_running(&found)?;
    if found.body["properties"]["apiServerAccessProfile"]["disableRunCommand"] == true {
        let message = "The run command is disabled for this managed cluster.";
        return Err(Fault::bad("RunCommandDisabled", message).flat());
    }
    let mut input = call.body()?;
    // az finds its own with `\w+`.
    let id = turn.chance.hex(32);
    document::object(&mut input);
    input["id"] = json!(id);
    let mut begin = Begin::new(Verb::Action, found.id(), 100);
    let reason = format!("the cluster is hollow; not run: {}", input["command"]);
    begin.output = json!({"exitCode": 0, "logs": "", "reason": reason});
    begin.action = json!({"word": "runcommand", "input": input});
    let operation = operation::begin(turn, begin);
    turn.put(format!("command/{id}"), json!({ "operation": operation }));
    let address = format!(
        "{}{}/commandResults/{id}?api-version={}",
        turn.settings.origin,
        found.id(),
        call.version()
    );
    Ok(running(&id).with("location", &address))
}

fn running(id: &str) -> Reply {
    let body = json!({"id": id, "properties": {"provisioningState": "Running"}});
    Reply::json(202, body).with("retry-after-ms", "100")
}

pub(super) fn command_result(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = &call.names[1];
    let found = turn.get(&format!("command/{id}"));
    let operation = found.and_then(|found| turn.get(&operation::key(found["operation"].as_str()?)));
    let Some(operation) = operation else {
        return Err(Fault::new(404, "NotFound", "The command was not found.").flat());
    };
    let mut properties = operation["output"].clone();
    document::object(&mut properties);
    match operation["status"].as_str() {
        Some("InProgress") => return Ok(running(id)),
        Some("Succeeded") => {}
        // One that says `Failed` would be no answer to az, which then says nothing of the reason.
        _ => {
            let reason = &operation["error"]["message"];
            properties = json!({"exitCode": 1, "logs": reason, "reason": reason});
        }
    }
    properties["provisioningState"] = json!("Succeeded");
    properties["startedAt"] = operation["start"].clone();
    properties["finishedAt"] = operation["end"].clone();
    Ok(Reply::ok(json!({"id": id, "properties": properties})))
}
