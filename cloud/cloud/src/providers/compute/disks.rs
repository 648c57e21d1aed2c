//! Disks and snapshots, and who has them attached.

use serde_json::{Value, json};

use super::super::Call;
use super::{accepted, target};
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::id::Id;
use crate::arm::kind::Draft;
use crate::chance::seven_digits;
use crate::exchange::Reply;
use crate::turn::Turn;

/// Sizes up to which a disk has this many operations and megabytes in a second (standard disks).
const SPEEDS: [(u64, u64, u64); 4] = [
    (4096, 500, 60),
    (8192, 1300, 300),
    (16384, 2000, 500),
    (65536, 2000, 500),
];
const LARGEST: u64 = 65_536;

/// Decides on a disk or a snapshot: what it is made of, how large and how quick it is.
pub(super) fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let source = source(turn, draft)?;
    let properties = draft.properties();
    let from_source = source
        .as_ref()
        .map(|s| s.body["properties"]["diskSizeGB"].as_u64().unwrap_or(0));
    let asked = properties["diskSizeGB"].as_u64();
    let size = asked.or(from_source).unwrap_or(0);
    if size == 0 || size > LARGEST {
        let message = format!(
            "Value '{size}' of parameter 'disk.diskSizeGB' is out of range. The value must be between \
            '1' and '{LARGEST}', inclusive."
        );
        return Err(Fault::bad("InvalidParameter", message).target("disk.diskSizeGB"));
    }
    let was = draft.was("/properties/diskSizeGB").as_u64().unwrap_or(0);
    if size < was {
        let message = "Shrinking of disk size is not supported due to data loss.";
        return Err(Fault::bad("OperationNotAllowed", message));
    }
    let unique = source.map(|s| s.body["properties"]["uniqueId"].clone());
    let (own, made) = (
        draft.was("/properties/uniqueId"),
        draft.was("/properties/timeCreated"),
    );
    let tier = draft.body["sku"]["name"]
        .as_str()
        .unwrap_or_default()
        .split('_')
        .next()
        .unwrap_or_default()
        .to_owned();
    draft.body["sku"]["tier"] = json!(tier);
    let is_disk = draft.kind.collection() == "disks";
    let properties = draft.properties();
    properties["diskSizeGB"] = json!(size);
    properties["diskSizeBytes"] = json!(size << 30);
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
    if let Some(unique) = unique {
        properties["creationData"]["sourceUniqueId"] = unique;
    }
    if is_disk {
        let row = SPEEDS.iter().find(|(limit, ..)| size <= *limit);
        let (_, operations, megabytes) = row.copied().unwrap_or(SPEEDS[0]);
        document::fill(
            properties,
            &json!({"diskIOPSReadWrite": operations, "diskMBpsReadWrite": megabytes}),
        );
    }
    Ok(())
}

fn source(turn: &Turn<'_>, draft: &Draft<'_>) -> Result<Option<Document>, Fault> {
    let creation = &draft.body["properties"]["creationData"];
    let wanted = match creation["createOption"].as_str() {
        Some("Copy" | "CopyStart" | "Restore") => creation["sourceResourceId"].as_str(),
        _ => None,
    };
    let Some(id) = wanted else {
        return Ok(None);
    };
    match document::get(turn, id) {
        Some(found) => Ok(Some(found)),
        None => {
            let message = format!("Disk {id} referenced by {} was not found.", draft.id.name());
            Err(Fault::new(404, "ResourceNotFound", message))
        }
    }
}

/// A disk that somebody has cannot go.
pub(super) fn leave(_: &mut Turn<'_>, _: &Id, document: &Document) -> Result<(), Fault> {
    match document.body["managedBy"].as_str() {
        Some(owner) => {
            let name = document.body["name"].as_str().unwrap_or_default();
            let message = format!("Disk {name} is attached to VM {owner}.");
            Err(Fault::conflict("OperationNotAllowed", message))
        }
        None => Ok(()),
    }
}

/// Makes a disk for a machine, attached to it.
pub(super) fn make(turn: &mut Turn<'_>, id: &str, machine: &Document, size: u64, sku: &str) {
    if document::get(turn, id).is_some() {
        return;
    }
    let Some(parsed) = Id::parse(id) else {
        return;
    };
    let mut body = json!({
        "id": id, "name": parsed.name(), "type": "Microsoft.Compute/disks", "location": machine.body["location"],
        "managedBy": machine.id(), "sku": {"name": sku, "tier": sku.split('_').next().unwrap_or_default()},
        "properties": {"creationData": {"createOption": "FromImage"}, "diskSizeGB": size, "diskSizeBytes": size << 30,
            "diskState": "Attached", "provisioningState": "Succeeded", "uniqueId": turn.chance.guid(),
            "timeCreated": seven_digits(turn.now), "networkAccessPolicy": "AllowAll", "publicNetworkAccess": "Enabled",
            "encryption": {"type": "EncryptionAtRestWithPlatformKey"}, "diskIOPSReadWrite": 500, "diskMBpsReadWrite": 60},
    });
    if !machine.body["zones"].is_null() {
        body["zones"] = machine.body["zones"].clone();
    }
    let document = Document::new(turn, body);
    document::put(turn, &document);
}

/// Attaches what a machine has now and did not have, detaches what it had and has no more.
pub(super) fn attach(
    turn: &mut Turn<'_>,
    machine: &str,
    before: &Value,
    now: &mut Value,
) -> Result<(), Fault> {
    if let Some(list) = now.as_array_mut() {
        list.retain(|disk| disk["toBeDetached"] != true);
    }
    let ids = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|disk| disk["managedDisk"]["id"].as_str())
            .map(str::to_owned)
            .collect()
    };
    check_places(now)?;
    let (had, has) = (ids(before), ids(now));
    let missing =
        |all: &[String], id: &str| !all.iter().any(|other| other.eq_ignore_ascii_case(id));
    for gone in had.iter().filter(|id| missing(&has, id)) {
        hold(turn, gone, None)?;
    }
    for new in has.iter().filter(|id| missing(&had, id)) {
        hold(turn, new, Some(machine))?;
    }
    Ok(())
}

fn check_places(disks: &Value) -> Result<(), Fault> {
    let mut seen = Vec::new();
    for disk in disks.as_array().into_iter().flatten() {
        let place = disk["lun"].as_i64().unwrap_or(0);
        if seen.contains(&place) {
            let message = format!("A disk at LUN {place} already exists.");
            return Err(Fault::bad("InvalidParameter", message).target("dataDisk.lun"));
        }
        seen.push(place);
    }
    Ok(())
}

/// Gives a disk an owner, or takes it away.
fn hold(turn: &mut Turn<'_>, disk: &str, owner: Option<&str>) -> Result<(), Fault> {
    let Some(mut document) = document::get(turn, disk) else {
        if owner.is_none() {
            return Ok(());
        }
        let message = format!("Disk {disk} was not found.");
        return Err(Fault::new(404, "NotFound", message));
    };
    let present = document.body["managedBy"].as_str().map(str::to_owned);
    match (owner, present) {
        (Some(owner), Some(other)) if !other.eq_ignore_ascii_case(owner) => {
            let message = format!(
                "Disk '{disk}' cannot be attached as the disk is already owned by VM '{other}'."
            );
            return Err(Fault::conflict("ConflictingUserInput", message).target("disk"));
        }
        (Some(owner), _) => {
            document.body["managedBy"] = json!(owner);
            document.body["properties"]["diskState"] = json!("Attached");
        }
        (None, _) => {
            document::take(&mut document.body, "/managedBy");
            document.body["properties"]["diskState"] = json!("Unattached");
        }
    }
    document::put(turn, &document);
    Ok(())
}

/// Lets go of every disk of a machine that goes; those that go with it go too.
pub(super) fn release(turn: &mut Turn<'_>, machine: &Value) -> Result<(), Fault> {
    let storage = &machine["properties"]["storageProfile"];
    let system = std::iter::once(&storage["osDisk"]);
    let data = storage["dataDisks"].as_array().into_iter().flatten();
    for disk in system.chain(data) {
        let Some(id) = disk["managedDisk"]["id"].as_str() else {
            continue;
        };
        hold(turn, id, None)?;
        if disk["deleteOption"] == "Delete" {
            turn.remove(crate::arm::id::key(id));
        }
    }
    Ok(())
}

/// `beginGetAccess`: an address for the bytes.
pub(super) fn grant(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut document) = target(turn, call)?;
    let location = document.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let signature = turn.chance.hex(32);
    let address = format!(
        "{}/blobs/{}?sr=b&sig={signature}",
        turn.settings.origin,
        id.name()
    );
    if document.body["properties"]["diskState"] == "Unattached" {
        document.body["properties"]["diskState"] = json!("ActiveSAS");
    }
    document::put(turn, &document);
    Ok(accepted(
        turn,
        call,
        &id,
        &location,
        json!({"accessSAS": address}),
    ))
}

/// `endGetAccess`.
pub(super) fn revoke(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (id, mut document) = target(turn, call)?;
    let location = document.body["location"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if document.body["properties"]["diskState"] == "ActiveSAS" {
        document.body["properties"]["diskState"] = json!("Unattached");
    }
    document::put(turn, &document);
    Ok(accepted(turn, call, &id, &location, Value::Null))
}
