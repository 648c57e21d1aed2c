//! Scale sets: as many machines as their capacity says.

use serde_json::{Value, json};

use super::super::network::{lease, release};
use super::super::{Call, identity};
use super::{accepted, disks, machines, power_of, sizes, statuses, target};
use crate::arm::document::{self, Document};
use crate::arm::fault::{self, Fault};
use crate::arm::id::Id;
use crate::arm::kind::Draft;
use crate::arm::operation::{self, Begin, Verb};
use crate::chance::seven_digits;
use crate::exchange::Reply;
use crate::turn::Turn;

const INSTANCES: &str = "virtualMachines";
const LARGEST: u64 = 1000;

/// Decides on a scale set, and on the machines that come and go with its capacity.
pub(super) fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let location = draft.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // Whoever boots the machines gets it; nobody else does.
    let custom_data =
        draft.body["properties"]["virtualMachineProfile"]["osProfile"]["customData"].clone();
    document::object(&mut draft.hidden);
    if custom_data.is_string() {
        draft.hidden["customData"] = custom_data;
    }
    complete(turn, draft);
    identity::assign(turn, draft)?;
    let (own, made) = (
        draft.was("/properties/uniqueId"),
        draft.was("/properties/timeCreated"),
    );
    let properties = draft.properties();
    properties["uniqueId"] = if own.is_null() {
        json!(turn.chance.guid())
    } else {
        own
    };
    properties["timeCreated"] = if made.is_null() {
        json!(seven_digits(turn.now))
    } else {
        made
    };
    if draft.body["properties"]["orchestrationMode"] == "Flexible" {
        return Ok(());
    }
    let size = draft.body["sku"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    sizes::check(&size, &location)?;
    let wanted = draft.body["sku"]["capacity"].as_u64().unwrap_or(0);
    if wanted > LARGEST {
        let message = format!(
            "Value '{wanted}' of parameter 'sku.capacity' is out of range. The value must be between \
            '0' and '{LARGEST}', inclusive."
        );
        return Err(Fault::bad("InvalidParameter", message).target("sku.capacity"));
    }
    let present = document::children(turn, draft.id, INSTANCES);
    let have = present.len() as u64;
    if wanted > have {
        sizes::check_quota(turn, &location, (wanted - have) * sizes::cores(&size))?;
        grow(turn, draft, &present, wanted - have)
    } else {
        shrink(turn, present, have - wanted)
    }
}

fn complete(turn: &Turn<'_>, draft: &mut Draft<'_>) {
    let is_new = draft.is_new();
    if draft.body["sku"].is_object() {
        document::fill(
            &mut draft.body["sku"],
            &json!({"tier": "Standard", "capacity": 0}),
        );
    }
    let image =
        draft.body["properties"]["virtualMachineProfile"]["storageProfile"]["imageReference"]
            .clone();
    let now = seven_digits(turn.now);
    let properties = draft.properties();
    document::fill(
        properties,
        &json!({"singlePlacementGroup": true, "orchestrationMode": "Uniform",
        "overprovision": true, "doNotRunExtensionsOnOverprovisionedVMs": false, "platformFaultDomainCount": 5,
        "upgradePolicy": {"mode": "Manual"}}),
    );
    let profile = &mut properties["virtualMachineProfile"];
    if !profile.is_object() {
        return;
    }
    machines::complete_system(&mut profile["osProfile"], &image);
    let is_windows = profile["osProfile"]["windowsConfiguration"].is_object();
    document::object(&mut profile["storageProfile"]);
    document::fill(
        &mut profile["storageProfile"],
        &json!({"osDisk": {"osType": if is_windows { "Windows" } else { "Linux" },
        "createOption": "FromImage", "caching": "None", "managedDisk": {"storageAccountType": "Premium_LRS"},
        "diskSizeGB": if is_windows { 127 } else { 30 }}}),
    );
    if is_new {
        profile["timeCreated"] = json!(now);
    }
    for card in profile["networkProfile"]["networkInterfaceConfigurations"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        document::fill(
            &mut card["properties"],
            &json!({"enableAcceleratedNetworking": false,
            "disableTcpStateTracking": false, "dnsSettings": {"dnsServers": []}, "enableIPForwarding": false}),
        );
        for address in card["properties"]["ipConfigurations"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            document::fill(
                &mut address["properties"],
                &json!({"privateIPAddressVersion": "IPv4"}),
            );
        }
    }
}

/// The subnet of the first configuration of the first card.
fn subnet(model: &Value) -> Option<String> {
    let profile = &model["properties"]["virtualMachineProfile"];
    let card = &profile["networkProfile"]["networkInterfaceConfigurations"][0];
    card["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"]
        .as_str()
        .map(str::to_owned)
}

fn number(instance: &Document) -> u64 {
    instance.body["instanceId"]
        .as_str()
        .and_then(|id| id.parse().ok())
        .unwrap_or(0)
}

fn grow(
    turn: &mut Turn<'_>,
    draft: &mut Draft<'_>,
    present: &[Document],
    more: u64,
) -> Result<(), Fault> {
    // Numbers are never used again in the life of a set.
    let highest = present.iter().map(|i| number(i) + 1).max().unwrap_or(0);
    let first = draft.hidden["next"].as_u64().unwrap_or(0).max(highest);
    let ids: Vec<u64> = (first..first + more).collect();
    draft.hidden["next"] = json!(first + more);
    let holders: Vec<String> = ids
        .iter()
        .map(|n| format!("{}/{INSTANCES}/{n}", draft.id))
        .collect();
    let addresses = match subnet(&draft.body) {
        Some(subnet) => lease(turn, &subnet, &holders)?,
        None => Vec::new(),
    };
    for (at, id) in ids.iter().enumerate() {
        let address = addresses.get(at).map(ToString::to_string);
        let body = instance(turn, draft, *id);
        let mut document = Document::new(turn, body);
        document.hidden =
            json!({"power": "running", "address": address, "subnet": subnet(&draft.body)});
        document::put(turn, &document);
    }
    Ok(())
}

/// Six digits of base 36, as computer names end.
fn suffix(number: u64) -> String {
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |place: u32| digits[(number / 36u64.pow(place) % 36) as usize] as char;
    (0..6).rev().map(digit).collect()
}

fn instance(turn: &mut Turn<'_>, draft: &Draft<'_>, number: u64) -> Value {
    let (set, model) = (draft.id.name(), &draft.body);
    let profile = &model["properties"]["virtualMachineProfile"];
    let prefix = profile["osProfile"]["computerNamePrefix"]
        .as_str()
        .unwrap_or(set);
    let mut system = profile["osProfile"].clone();
    document::take(&mut system, "/computerNamePrefix");
    document::object(&mut system);
    system["computerName"] = json!(format!("{prefix}{}", suffix(number)));
    let own = format!("{}/{INSTANCES}/{number}", draft.id);
    let disk = format!("{set}_{set}_{number}_OS__1_{}", turn.chance.hex(32));
    let mut storage = profile["storageProfile"].clone();
    document::object(&mut storage);
    document::fill(
        &mut storage,
        &json!({"dataDisks": [], "osDisk": {"name": disk}}),
    );
    let cards = profile["networkProfile"]["networkInterfaceConfigurations"].as_array();
    let cards: Vec<Value> = cards.into_iter().flatten().map(|card| {
        json!({"id": format!("{own}/networkInterfaces/{}", card["name"].as_str().unwrap_or_default())})
    }).collect();
    let mut body = json!({
        "id": own, "name": format!("{set}_{number}"), "type": "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        "location": model["location"], "instanceId": number.to_string(),
        "sku": {"name": model["sku"]["name"], "tier": model["sku"]["tier"]}, "etag": "\"1\"",
        "properties": {"latestModelApplied": true, "modelDefinitionApplied": "VirtualMachineScaleSet",
            "networkProfileConfiguration": profile["networkProfile"], "provisioningState": "Creating",
            "hardwareProfile": {"vmSize": model["sku"]["name"]}, "vmId": turn.chance.guid(), "storageProfile": storage,
            "osProfile": system, "networkProfile": {"networkInterfaces": cards},
            "timeCreated": seven_digits(turn.now)},
    });
    for field in ["tags", "identity"] {
        if !model[field].is_null() {
            body[field] = model[field].clone();
        }
    }
    // Zones are used in turn.
    if let Some(zones) = model["zones"].as_array().filter(|zones| !zones.is_empty()) {
        let at = usize::try_from(number).unwrap_or(0) % zones.len();
        body["zones"] = json!([zones[at]]);
    }
    body
}

fn shrink(turn: &mut Turn<'_>, mut present: Vec<Document>, fewer: u64) -> Result<(), Fault> {
    present.sort_by_key(number);
    for instance in present
        .iter()
        .rev()
        .take(usize::try_from(fewer).unwrap_or(usize::MAX))
    {
        drop_instance(turn, instance)?;
    }
    Ok(())
}

/// Takes a machine out of its set, which is smaller then.
pub(in crate::providers) fn take_instance(
    turn: &mut Turn<'_>,
    instance: &Document,
) -> Result<(), Fault> {
    drop_instance(turn, instance)?;
    if let Some(id) = Id::parse(instance.id()) {
        lower(turn, &id, 1);
    }
    Ok(())
}

fn drop_instance(turn: &mut Turn<'_>, instance: &Document) -> Result<(), Fault> {
    disks::release(turn, instance);
    if let Some(subnet) = instance.hidden["subnet"].as_str() {
        release(turn, subnet, instance.id());
    }
    turn.remove(crate::arm::id::key(instance.id()));
    Ok(())
}

/// The machines are there once the set is.
pub(super) fn finish(turn: &mut Turn<'_>, document: &mut Document) {
    let Some(id) = Id::parse(document.id()) else {
        return;
    };
    for mut instance in document::children(turn, &id, INSTANCES) {
        if instance.state() != "Succeeded" {
            instance.body["properties"]["provisioningState"] = json!("Succeeded");
            document::put(turn, &instance);
        }
    }
}

pub(super) fn leave(turn: &mut Turn<'_>, id: &Id, _: &Document) -> Result<(), Fault> {
    for instance in document::children(turn, id, INSTANCES) {
        if let Some(subnet) = instance.hidden["subnet"].as_str() {
            release(turn, subnet, instance.id());
        }
    }
    Ok(())
}

fn check_number(name: &str) -> Result<(), Fault> {
    match name.parse::<u64>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::bad(
            "InvalidParameter",
            "Virtual Machine Scale Set VM instanceId must be a number.",
        )
        .target("instanceId")),
    }
}

/// A machine of a set is changed, never made, by a write of its own.
pub(super) fn decide_instance(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    check_number(draft.id.name())?;
    if draft.is_new() {
        return Err(fault::no_resource(draft.id));
    }
    let set = draft
        .id
        .parent()
        .map(|set| set.name().to_owned())
        .unwrap_or_default();
    draft.body["name"] = json!(format!("{set}_{}", draft.id.name()));
    let before = draft.was("/properties/storageProfile/dataDisks");
    let mut now = draft.body["properties"]["storageProfile"]["dataDisks"].take();
    let own = draft.id.to_string();
    let power = draft.hidden["power"]
        .as_str()
        .unwrap_or("running")
        .to_owned();
    let holder = disks::Holder {
        machine: &own,
        power: &power,
    };
    let mut leaving = machines::leaving(&draft.hidden);
    disks::attach(turn, &holder, &before, &mut now, &mut leaving)?;
    machines::set_leaving(&mut draft.hidden, &leaving);
    draft.properties()["storageProfile"]["dataDisks"] = now;
    Ok(())
}

pub(super) fn leave_instance(
    turn: &mut Turn<'_>,
    id: &Id,
    document: &Document,
) -> Result<(), Fault> {
    if let Some(subnet) = document.hidden["subnet"].as_str() {
        release(turn, subnet, document.id());
    }
    lower(turn, id, 1);
    Ok(())
}

fn lower(turn: &mut Turn<'_>, instance: &Id, by: u64) {
    let set = instance
        .parent()
        .and_then(|set| document::get(turn, &set.to_string()));
    if let Some(mut set) = set {
        let now = set.body["sku"]["capacity"]
            .as_u64()
            .unwrap_or(0)
            .saturating_sub(by);
        set.body["sku"]["capacity"] = json!(now);
        document::put(turn, &set);
    }
}

/// GET of one machine; a name that is no number is no machine's.
pub(super) fn one_instance(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    check_number(&call.names[1])?;
    let (_, mut document) = target(turn, call)?;
    if call
        .asked
        .param("$expand")
        .is_some_and(|e| e.to_lowercase().contains("instanceview"))
    {
        document.body["properties"]["instanceView"] = machines::view(turn, &document);
    }
    Ok(Reply::ok(document.body))
}

pub(super) fn one_instance_view(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    check_number(&call.names[1])?;
    let (_, document) = target(turn, call)?;
    let mut view = machines::view(turn, &document);
    document::fill(
        &mut view,
        &json!({"placementGroupId": document.body["properties"]["vmId"], "platformUpdateDomain": 0,
        "platformFaultDomain": 0}),
    );
    Ok(Reply::ok(view))
}

pub(super) fn instance_view(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, document) = target(turn, call)?;
    let all = document::children(turn, &id, INSTANCES);
    let done = all
        .iter()
        .filter(|instance| instance.state() == "Succeeded")
        .count();
    let summary = json!([{"code": "ProvisioningState/succeeded", "count": done}]);
    let own = statuses("running", document.state());
    Ok(Reply::ok(
        json!({"virtualMachine": {"statusesSummary": summary}, "statuses": [own[0]], "extensions": []}),
    ))
}

pub(super) fn skus(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, document) = target(turn, call)?;
    Ok(Reply::list(vec![
        json!({"resourceType": "Microsoft.Compute/virtualMachineScaleSets", "sku": document.body["sku"],
        "capacity": {"minimum": 0, "maximum": LARGEST, "defaultCapacity": 1, "scaleType": "Automatic"}}),
    ]))
}

/// The machines that an action names; all of them where it names none or `*`.
fn chosen(turn: &Turn<'_>, id: &Id, body: &Value) -> Result<Vec<Document>, Fault> {
    let names: Vec<&str> = body["instanceIds"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let all = document::children(turn, id, INSTANCES);
    if names.is_empty() || names.contains(&"*") {
        return Ok(all);
    }
    for name in &names {
        if !all
            .iter()
            .any(|instance| instance.body["instanceId"] == **name)
        {
            let message = format!(
                "The provided instanceId {name} is not an active Virtual Machine Scale Set VM instanceId."
            );
            return Err(Fault::bad("InvalidParameter", message).target("instanceIds"));
        }
    }
    let named = |instance: &Document| {
        instance.body["instanceId"]
            .as_str()
            .is_some_and(|id| names.contains(&id))
    };
    Ok(all.into_iter().filter(named).collect())
}

pub(super) fn power(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, document) = target(turn, call)?;
    let word = call
        .path
        .rest
        .last()
        .map(|w| w.to_lowercase())
        .unwrap_or_default();
    let power = match word.as_str() {
        "reimageall" => "running",
        _ => machines::power_after(call),
    };
    for mut instance in chosen(turn, &id, &call.body()?)? {
        if power.is_empty() {
            instance.body["properties"]["latestModelApplied"] = json!(true);
        } else {
            instance.hidden["power"] = json!(power);
        }
        document::put(turn, &instance);
    }
    let location = document.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    Ok(accepted(turn, call, &id, &location, Value::Null))
}

pub(super) fn power_one(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    machines::power(turn, call)
}

/// `simulateEviction` of a spot machine: it goes, or is off, as its set says.
pub(super) fn evict(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut instance) = target(turn, call)?;
    let set = id
        .parent()
        .and_then(|set| document::get(turn, &set.to_string()));
    let profile = set.map(|set| set.body["properties"]["virtualMachineProfile"].clone());
    let profile = profile.unwrap_or_default();
    if profile["priority"] != "Spot" {
        let message = "The VM is not a Spot VM; only those can be evicted.";
        return Err(Fault::conflict("OperationNotAllowed", message));
    }
    if profile["evictionPolicy"] == "Deallocate" {
        instance.hidden["power"] = json!("deallocated");
        let mut begin = Begin::new(Verb::Action, instance.id(), 100);
        begin.action = json!({"word": "deallocate", "input": {}});
        operation::begin(turn, begin);
    } else {
        let begin = Begin::new(Verb::Delete, instance.id(), 100);
        instance.operation = Some(operation::begin(turn, begin));
        instance.body["properties"]["provisioningState"] = json!("Deleting");
        leave_instance(turn, &id, &instance)?;
    }
    document::put(turn, &instance);
    Ok(Reply::empty(204))
}

pub(super) fn delete_instances(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, document) = target(turn, call)?;
    let chosen = chosen(turn, &id, &call.body()?)?;
    for instance in &chosen {
        drop_instance(turn, instance)?;
    }
    lower(turn, &id.child(INSTANCES, "x"), chosen.len() as u64);
    let location = document.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    Ok(accepted(turn, call, &id, &location, Value::Null))
}

/// The cards of a machine of a set: they are made out of its model.
fn cards_of(instance: &Document) -> Vec<Value> {
    let model = &instance.body["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"];
    let all = model.as_array().into_iter().flatten();
    all.map(|card| {
        let name = card["name"].as_str().unwrap_or_default();
        let own = format!("{}/networkInterfaces/{name}", instance.id());
        let mut properties = card["properties"].clone();
        properties["provisioningState"] = json!("Succeeded");
        properties["virtualMachine"] = json!({"id": instance.id()});
        for address in properties["ipConfigurations"].as_array_mut().into_iter().flatten() {
            let title = address["name"].as_str().unwrap_or_default().to_owned();
            address["id"] = json!(format!("{own}/ipConfigurations/{title}"));
            document::fill(&mut address["properties"], &json!({"provisioningState": "Succeeded",
                "privateIPAddress": instance.hidden["address"], "privateIPAllocationMethod": "Dynamic", "primary": true}));
        }
        json!({"name": name, "id": own, "properties": properties})
    }).collect()
}

pub(super) fn cards(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (_, instance) = target(turn, call)?;
    Ok(Reply::list(cards_of(&instance)))
}

pub(super) fn card(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let card = call.target();
    let instance = card.parent().expect("a card belongs to a machine");
    let found =
        document::get(turn, &instance.to_string()).ok_or_else(|| fault::no_resource(&instance))?;
    let named = |c: &Value| {
        c["name"]
            .as_str()
            .is_some_and(|n| n.eq_ignore_ascii_case(card.name()))
    };
    let card_found = cards_of(&found).into_iter().find(named);
    card_found
        .map(Reply::ok)
        .ok_or_else(|| fault::no_resource(&card))
}

pub(super) fn all_cards(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, _) = target(turn, call)?;
    let all = document::children(turn, &id, INSTANCES);
    let running = all.iter().filter(|instance| !power_of(instance).is_empty());
    Ok(Reply::list(running.flat_map(cards_of).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computer_names_count_in_base_36() {
        for (number, expected) in [(0, "000000"), (9, "000009"), (10, "00000a"), (36, "000010")] {
            assert_eq!(suffix(number), expected);
        }
    }
}
