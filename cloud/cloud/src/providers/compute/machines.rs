//! Virtual machines.

use serde_json::{Value, json};

use super::super::network::prefix;
use super::super::{Call, identity};
use super::{
    accepted, accepted_change, begin_action, disks, power_of, sizes, statuses, target, told,
};
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::id::Id;
use crate::arm::kind::Draft;
use crate::arm::operation;
use crate::chance::seven_digits;
use crate::exchange::Reply;
use crate::region::Node;
use crate::turn::Turn;

/// Which power state an action leads to.
const POWER: [(&str, &str); 7] = [
    ("start", "running"),
    ("restart", "running"),
    ("poweroff", "stopped"),
    ("deallocate", "deallocated"),
    ("redeploy", "running"),
    ("reimage", "running"),
    ("reapply", ""),
];

/// Decides on a machine: its size, its disks, its identity.
pub(super) fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let location = draft.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let size = draft.body["properties"]["hardwareProfile"]["vmSize"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    sizes::check(&size, &location)?;
    if draft.is_new() {
        sizes::check_quota(turn, &location, sizes::cores(&size))?;
    }
    check_unchanged(draft)?;
    identity::assign(turn, draft)?;
    let image = draft.body["properties"]["storageProfile"]["imageReference"].clone();
    // Whoever boots the machine gets it; nobody else does.
    let custom_data = draft.body["properties"]["osProfile"]["customData"].clone();
    complete_system(&mut draft.body["properties"]["osProfile"], &image);
    storage(turn, draft)?;
    let (own, made) = (
        draft.was("/properties/vmId"),
        draft.was("/properties/timeCreated"),
    );
    let properties = draft.properties();
    properties["vmId"] = if own.is_null() {
        json!(turn.chance.guid())
    } else {
        own
    };
    properties["timeCreated"] = if made.is_null() {
        json!(seven_digits(turn.now))
    } else {
        made
    };
    if draft.hidden["power"].is_null() {
        draft.hidden = json!({"power": "running", "customData": custom_data});
    }
    Ok(())
}

fn check_unchanged(draft: &Draft<'_>) -> Result<(), Fault> {
    for (pointer, name) in [
        (
            "/properties/osProfile/computerName",
            "osProfile.computerName",
        ),
        (
            "/properties/osProfile/adminUsername",
            "osProfile.adminUsername",
        ),
    ] {
        let (was, is) = (
            draft.was(pointer),
            draft.body.pointer(pointer).cloned().unwrap_or_default(),
        );
        if !was.is_null() && !is.is_null() && was != is {
            let message = format!("Changing property '{name}' is not allowed.");
            return Err(Fault::conflict("PropertyChangeNotAllowed", message).target(name));
        }
    }
    Ok(())
}

/// Fills in what a system's settings say when nobody does; passwords are not kept.
pub(super) fn complete_system(profile: &mut Value, image: &Value) {
    if !profile.is_object() {
        return;
    }
    let publisher = image["publisher"]
        .as_str()
        .unwrap_or_default()
        .to_lowercase();
    let is_windows = publisher.contains("windows");
    let had_password = document::take(profile, "/adminPassword").is_some();
    document::take(profile, "/customData");
    document::fill(
        profile,
        &json!({"secrets": [], "allowExtensionOperations": true, "requireGuestProvisionSignal": true}),
    );
    let defaults = match is_windows {
        true => {
            json!({"windowsConfiguration": {"provisionVMAgent": true, "enableAutomaticUpdates": true}})
        }
        false => {
            json!({"linuxConfiguration": {"disablePasswordAuthentication": !had_password, "provisionVMAgent": true}})
        }
    };
    document::fill(profile, &defaults);
}

/// The disk of the system is made with the machine; others are attached.
fn storage(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let (id, name) = (draft.id.clone(), draft.id.name().to_owned());
    let before = draft.was("/properties/storageProfile/dataDisks");
    let is_windows = draft.body["properties"]["osProfile"]["windowsConfiguration"].is_object();
    let system = if is_windows { "Windows" } else { "Linux" };
    let title = format!("{name}_OsDisk_1_{}", turn.chance.hex(32));
    let properties = draft.properties();
    document::fill(
        &mut properties["storageProfile"],
        &json!({"dataDisks": [], "osDisk": {}}),
    );
    if properties["storageProfile"].is_null() {
        properties["storageProfile"] = json!({"dataDisks": [], "osDisk": {}});
    }
    let disk = &mut properties["storageProfile"]["osDisk"];
    document::object(disk);
    document::fill(
        disk,
        &json!({"osType": system, "name": title, "createOption": "FromImage", "caching": "None",
        "deleteOption": "Detach", "diskSizeGB": if is_windows { 127 } else { 30 },
        "managedDisk": {"storageAccountType": "Premium_LRS"}}),
    );
    if !properties["storageProfile"]["imageReference"].is_null() {
        document::fill(
            &mut properties["storageProfile"]["imageReference"],
            &json!({"exactVersion": "22.04.202606100"}),
        );
    }
    let mut now = properties["storageProfile"]["dataDisks"].take();
    fresh_disks(turn, draft, &before, &mut now)?;
    let power = draft.hidden["power"]
        .as_str()
        .unwrap_or("running")
        .to_owned();
    let holder = disks::Holder {
        machine: &id.to_string(),
        power: &power,
    };
    let mut leaving = leaving(&draft.hidden);
    disks::attach(turn, &holder, &before, &mut now, &mut leaving)?;
    set_leaving(&mut draft.hidden, &leaving);
    draft.properties()["storageProfile"]["dataDisks"] = now;
    Ok(())
}

/// The disks that a machine has not let go of yet.
pub(super) fn leaving(hidden: &Value) -> Vec<String> {
    let all = hidden["leaving"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

pub(super) fn set_leaving(hidden: &mut Value, leaving: &[String]) {
    if !leaving.is_empty() {
        hidden["leaving"] = json!(leaving);
    } else if let Some(hidden) = hidden.as_object_mut() {
        hidden.remove("leaving");
    }
}

/// Disks that a machine brings into being: empty ones, and copies. One that it has already is that one.
fn fresh_disks(
    turn: &mut Turn<'_>,
    draft: &Draft<'_>,
    before: &Value,
    list: &mut Value,
) -> Result<(), Fault> {
    for disk in list.as_array_mut().into_iter().flatten() {
        let is_fresh = disk["createOption"] == "Empty" || disk["createOption"] == "Copy";
        if !is_fresh || disk["managedDisk"]["id"].is_string() {
            continue;
        }
        let mut had = before.as_array().into_iter().flatten();
        let had = had.find(|had| had["lun"] == disk["lun"] && had["name"] == disk["name"]);
        if let Some(had) = had.filter(|_| disk["name"].is_string()) {
            disk["managedDisk"] = had["managedDisk"].clone();
            continue;
        }
        fresh_disk(turn, draft, disk)?;
    }
    Ok(())
}

fn fresh_disk(turn: &mut Turn<'_>, draft: &Draft<'_>, disk: &mut Value) -> Result<(), Fault> {
    let place = disk["lun"].as_i64().unwrap_or(0);
    let title = format!(
        "{}_disk{}_{}",
        draft.id.name(),
        place + 2,
        turn.chance.hex(32)
    );
    let name = disk["name"].as_str().map_or(title, str::to_owned);
    let id = format!(
        "{}/providers/Microsoft.Compute/disks/{name}",
        draft.id.scope
    );
    if document::get(turn, &id).is_some() {
        let group = draft.id.group.as_deref().unwrap_or_default();
        let message = format!(
            "Disk {name} already exists in resource group {group}. Only CreateOption.Attach is supported."
        );
        return Err(Fault::conflict("ConflictingUserInput", message).target("disk.name"));
    }
    let source = disk["sourceResource"]["id"].as_str();
    let from = source.and_then(|id| document::get(turn, id));
    let of_source = from.map(|from| from.body["properties"]["diskSizeGB"].clone());
    let size = disk["diskSizeGB"].as_u64();
    let size = size.or_else(|| of_source?.as_u64()).unwrap_or(1);
    let creation = match source {
        Some(source) => json!({"createOption": "Copy", "sourceResourceId": source}),
        None => json!({"createOption": "Empty"}),
    };
    let kind = disk["managedDisk"]["storageAccountType"]
        .as_str()
        .unwrap_or("Premium_LRS")
        .to_owned();
    let machine = Document::new(turn, draft.body.clone());
    disks::make(turn, &id, &machine, (size, &kind), &creation);
    disk["name"] = json!(name);
    disk["managedDisk"] = json!({"id": id, "storageAccountType": kind});
    Ok(())
}

/// The system's disk is there once the machine is.
pub(super) fn finish(turn: &mut Turn<'_>, document: &mut Document) {
    let Some(id) = Id::parse(document.id()) else {
        return;
    };
    let disk = document.body["properties"]["storageProfile"]["osDisk"].clone();
    if disk["managedDisk"]["id"].is_string() || disk["diffDiskSettings"].is_object() {
        return;
    }
    let address = format!(
        "{}/providers/Microsoft.Compute/disks/{}",
        id.scope,
        disk["name"].as_str().unwrap_or_default()
    );
    let kind = disk["managedDisk"]["storageAccountType"]
        .as_str()
        .unwrap_or("Premium_LRS");
    let size = disk["diskSizeGB"].as_u64().unwrap_or(30);
    let creation = json!({"createOption": "FromImage"});
    disks::make(turn, &address, document, (size, kind), &creation);
    document.body["properties"]["storageProfile"]["osDisk"]["managedDisk"]["id"] = json!(address);
}

/// The machine as a region sees it: its first card's first address.
pub(super) fn node(turn: &Turn<'_>, document: &Document) -> Node {
    let properties = &document.body["properties"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let card = properties["networkProfile"]["networkInterfaces"][0]["id"].as_str();
    let card = card.and_then(|id| document::get(turn, id));
    let first =
        card.map(|card| card.body["properties"]["ipConfigurations"][0]["properties"].clone());
    let first = first.unwrap_or_default();
    let subnet = first["subnet"]["id"].as_str();
    let network = subnet
        .and_then(|id| Id::parse(id)?.parent())
        .map(|id| id.to_string());
    Node {
        id: document.id().to_owned(),
        name: text(&properties["osProfile"]["computerName"])
            .or_else(|| text(&document.body["name"]))
            .unwrap_or_default(),
        pool: String::new(),
        address: first["privateIPAddress"]
            .as_str()
            .and_then(|a| a.parse().ok()),
        subnet: subnet.and_then(|id| prefix(turn, id)),
        network,
        zone: text(&document.body["zones"][0]),
    }
}

/// What is known of a machine that runs.
pub(super) fn view(turn: &Turn<'_>, document: &Document) -> Value {
    let profile = &document.body["properties"];
    let now = seven_digits(turn.now);
    let ready = json!([{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Ready",
        "message": "Guest Agent is running", "time": now}]);
    let data = profile["storageProfile"]["dataDisks"].as_array();
    let disks = std::iter::once(&profile["storageProfile"]["osDisk"]);
    let disks = disks.chain(data.into_iter().flatten()).map(|disk| {
        json!({"name": disk["name"], "statuses": [{"code": "ProvisioningState/succeeded", "level": "Info",
            "displayStatus": "Provisioning succeeded", "time": document.created}]})
    });
    let mut view = json!({
        "computerName": profile["osProfile"]["computerName"], "hyperVGeneration": "V2",
        "disks": disks.collect::<Vec<_>>(),
        "statuses": statuses(power_of(document), document.state()),
    });
    if power_of(document) == "running" {
        view["osName"] = json!("ubuntu");
        view["osVersion"] = json!("24.04");
        view["vmAgent"] =
            json!({"vmAgentVersion": "2.14.0.1", "statuses": ready, "extensionHandlers": []});
    }
    let id = Id::parse(document.id());
    let extensions = id.map(|id| document::children(turn, &id, "extensions"));
    let mut extensions = extensions.unwrap_or_default();
    extensions.retain(|extension| extension.hidden["view"].is_object());
    if !extensions.is_empty() {
        let views = extensions.iter().map(|one| one.hidden["view"].clone());
        view["extensions"] = views.collect();
    }
    if let Some(zone) = document.body["zones"][0].as_str() {
        view["platformFaultDomain"] = json!(zone.parse::<u8>().unwrap_or(1) - 1);
        view["platformUpdateDomain"] = json!(0);
    }
    view
}

pub(super) fn instance_view(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, document) = target(turn, call)?;
    Ok(Reply::ok(view(turn, &document)))
}

/// The power state that the last word of a path leads to.
pub(super) fn power_after(call: &Call<'_>) -> &'static str {
    let word = call
        .path
        .rest
        .last()
        .map(|w| w.to_lowercase())
        .unwrap_or_default();
    POWER
        .iter()
        .find(|(name, _)| *name == word)
        .map_or("", |(_, power)| power)
}

pub(super) fn power(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut document) = target(turn, call)?;
    let location = document.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let operation = begin_action(turn, call, &id, Value::Null);
    document.hidden["acting"] = json!(operation);
    match power_after(call) {
        "" => document::put(turn, &document),
        power => set_power(turn, &mut document, power),
    }
    Ok(told(turn, call, &id, &location, &operation))
}

/// A machine's power state, which its disks follow.
fn set_power(turn: &mut Turn<'_>, machine: &mut Document, power: &str) {
    disks::follow_power(turn, machine, power);
    machine.hidden["power"] = json!(power);
    document::put(turn, machine);
}

/// A machine was seen to run, or not to. One that is off without being told to is stopped, not deallocated.
pub(super) fn seen(turn: &mut Turn<'_>, id: &str, runs: bool) {
    let Some(mut machine) = document::get(turn, id) else {
        return;
    };
    let acting = machine.hidden["acting"].as_str();
    if acting.is_some_and(|operation| operation::under_way(turn, operation).is_some()) {
        return;
    }
    match (power_of(&machine), runs) {
        ("running", false) => set_power(turn, &mut machine, "stopped"),
        ("stopped" | "deallocated", true) => set_power(turn, &mut machine, "running"),
        _ => {}
    }
}

/// How long an address of a console is good when nobody says: two hours.
const CONSOLE_MINUTES: i64 = 120;

/// `retrieveBootDiagnosticsData`: an address at which the console can be read for a while. There is no screen.
pub(super) fn console(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, _) = target(turn, call)?;
    let asked = call.asked.param("sasUriExpirationTimeInMinutes");
    let minutes = asked
        .and_then(|n| n.parse().ok())
        .unwrap_or(CONSOLE_MINUTES);
    let now = turn.now.as_millisecond();
    for (key, entry) in turn.under("console/") {
        if entry["until"].as_i64().unwrap_or(0) < now {
            turn.remove(key);
        }
    }
    let secret = turn.chance.hex(32);
    let until = now + minutes.clamp(1, 1440) * 60_000;
    turn.put(
        format!("console/{secret}"),
        json!({"machine": id.to_string(), "until": until}),
    );
    let origin = &turn.settings.origin;
    let address = format!("{origin}/bootdiagnostics/{secret}/serialconsole.log");
    Ok(Reply::ok(json!({ "serialConsoleLogBlobUri": address })))
}

/// The machine whose console an address is for.
pub(super) fn console_of(turn: &Turn<'_>, secret: &str) -> Option<Document> {
    let entry = turn.get(&format!("console/{secret}"))?;
    let is_good = entry["until"].as_i64()? >= turn.now.as_millisecond();
    document::get(turn, entry["machine"].as_str().filter(|_| is_good)?)
}

pub(super) fn generalize(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, document) = target(turn, call)?;
    match power_of(&document) {
        "running" => Err(Fault::conflict(
            "OperationNotAllowed",
            "The VM has to be stopped before it is generalized.",
        )),
        _ => Ok(Reply::empty(200)),
    }
}

/// `runCommand`: nothing runs in a hollow machine, and that is what it says.
pub(super) fn run_command(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, document) = target(turn, call)?;
    let location = document.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if power_of(&document) != "running" {
        let message = "The operation requires the VM to be running (or set to run).";
        return Err(Fault::conflict("OperationNotAllowed", message));
    }
    let output = json!({"value": [{"code": "ProvisioningState/succeeded", "level": "Info",
        "displayStatus": "Provisioning succeeded", "message": "Enable succeeded: \n[stdout]\n\n[stderr]\n"}]});
    Ok(accepted(turn, call, &id, &location, output))
}

/// `simulateEviction`: a spot machine is taken away as its policy says.
pub(super) fn evict(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, mut document) = target(turn, call)?;
    set_power(turn, &mut document, "deallocated");
    Ok(Reply::empty(204))
}

/// `attachDetachDataDisks`.
pub(super) fn attach_detach(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut document) = target(turn, call)?;
    let body = call.body()?;
    let before = document.body["properties"]["storageProfile"]["dataDisks"].clone();
    let mut now = if before.is_array() {
        before.clone()
    } else {
        json!([])
    };
    let list = now.as_array_mut().expect("it is an array");
    for gone in body["dataDisksToDetach"].as_array().into_iter().flatten() {
        let wanted = gone["diskId"].as_str().unwrap_or_default();
        list.retain(|disk| {
            !disk["managedDisk"]["id"]
                .as_str()
                .is_some_and(|id| id.eq_ignore_ascii_case(wanted))
        });
    }
    for new in body["dataDisksToAttach"].as_array().into_iter().flatten() {
        let next = (0..)
            .find(|lun| !list.iter().any(|disk| disk["lun"] == *lun))
            .unwrap_or(0);
        let mut disk = json!({"lun": next, "createOption": "Attach", "caching": "None", "deleteOption": "Detach",
            "managedDisk": {"id": new["diskId"]}, "name": new["diskId"].as_str().and_then(|id| id.rsplit('/').next())});
        document::overlay(&mut disk, new);
        document::take(&mut disk, "/diskId");
        list.push(disk);
    }
    let holder = disks::Holder {
        machine: &id.to_string(),
        power: power_of(&document),
    };
    let mut leaving = leaving(&document.hidden);
    disks::attach(turn, &holder, &before, &mut now, &mut leaving)?;
    set_leaving(&mut document.hidden, &leaving);
    document.body["properties"]["storageProfile"]["dataDisks"] = now;
    document.version += 1;
    document.body["etag"] = json!(format!("\"{}\"", document.version));
    let output = document.body["properties"]["storageProfile"].clone();
    Ok(accepted_change(turn, call, &id, &mut document, output))
}
