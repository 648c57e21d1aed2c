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
use crate::region;
use crate::turn::Turn;

/// Sizes up to which a disk has this many operations and megabytes in a second (standard disks).
const SPEEDS: [(u64, u64, u64); 4] = [
    (4096, 500, 60),
    (8192, 1300, 300),
    (16384, 2000, 500),
    (65536, 2000, 500),
];
const LARGEST: u64 = 65_536;
/// How something is made of something else.
const COPIES: [&str; 3] = ["Copy", "CopyStart", "Restore"];

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
        Some(option) if COPIES.contains(&option) => creation["sourceResourceId"].as_str(),
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
    match owners(document).first() {
        Some(owner) => {
            let name = document.body["name"].as_str().unwrap_or_default();
            let message = format!("Disk {name} is attached to VM {owner}.");
            Err(Fault::conflict("OperationNotAllowed", message))
        }
        None => Ok(()),
    }
}

/// Makes a disk for a machine, attached to it, of what it is made of.
pub(super) fn make(
    turn: &mut Turn<'_>,
    id: &str,
    machine: &Document,
    (size, sku): (u64, &str),
    creation: &Value,
) {
    if document::get(turn, id).is_some() {
        return;
    }
    let Some(parsed) = Id::parse(id) else {
        return;
    };
    let mut body = json!({
        "id": id, "name": parsed.name(), "type": "Microsoft.Compute/disks", "location": machine.body["location"],
        "managedBy": machine.id(), "sku": {"name": sku, "tier": sku.split('_').next().unwrap_or_default()},
        "properties": {"creationData": creation, "diskSizeGB": size, "diskSizeBytes": size << 30,
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

/// Who attaches disks, and the state that they have with it.
pub(super) struct Holder<'h> {
    pub(super) machine: &'h str,
    /// Its power state.
    pub(super) power: &'h str,
}

impl Holder<'_> {
    fn state(&self) -> &'static str {
        state_with(self.power)
    }
}

fn state_with(power: &str) -> &'static str {
    match power {
        "deallocated" => "Reserved",
        _ => "Attached",
    }
}

/// Attaches what a machine has now and did not have. What it had and has no more is `leaving`: it is the machine's
/// until that has let go of it.
pub(super) fn attach(
    turn: &mut Turn<'_>,
    holder: &Holder<'_>,
    before: &Value,
    now: &mut Value,
    leaving: &mut Vec<String>,
) -> Result<(), Fault> {
    if let Some(list) = now.as_array_mut() {
        list.retain(|disk| disk["toBeDetached"] != true);
    }
    check_places(now)?;
    let (had, has) = (ids(before), ids(now));
    let is_in = |all: &[String], id: &str| all.iter().any(|other| other.eq_ignore_ascii_case(id));
    leaving.retain(|id| !is_in(&has, id));
    leaving.extend(had.iter().filter(|id| !is_in(&has, id)).cloned());
    for new in &has {
        take(turn, new, holder)?;
    }
    for entry in now.as_array_mut().into_iter().flatten() {
        describe(turn, entry);
    }
    Ok(())
}

fn ids(disks: &Value) -> Vec<String> {
    let all = disks.as_array().into_iter().flatten();
    all.filter_map(|disk| disk["managedDisk"]["id"].as_str())
        .map(str::to_owned)
        .collect()
}

/// What a machine says of a disk that it has.
fn describe(turn: &Turn<'_>, entry: &mut Value) {
    let id = entry["managedDisk"]["id"].as_str().unwrap_or_default();
    if let Some(disk) = document::get(turn, id) {
        document::fill(
            entry,
            &json!({"name": disk.body["name"], "createOption": "Attach", "caching": "None", "toBeDetached": false,
            "deleteOption": "Detach", "managedDisk": {"storageAccountType": disk.body["sku"]["name"]}}),
        );
        entry["diskSizeGB"] = disk.body["properties"]["diskSizeGB"].clone();
    }
}

/// What a machine had and has no more is nobody's, once it has really let go.
pub(super) fn let_go(turn: &mut Turn<'_>, machine: &mut Document) {
    if machine.state() == "Failed" {
        return;
    }
    let leaving = machine.hidden["leaving"].take();
    if let Some(hidden) = machine.hidden.as_object_mut() {
        hidden.remove("leaving");
    }
    for id in leaving.as_array().into_iter().flatten() {
        give_back(turn, id.as_str().unwrap_or_default(), machine.id());
    }
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

/// The machines that have a disk; more than one where it is shared.
fn owners(disk: &Document) -> Vec<String> {
    let shared = disk.body["managedByExtended"]
        .as_array()
        .into_iter()
        .flatten();
    let all = std::iter::once(&disk.body["managedBy"]).chain(shared);
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn shares(disk: &Document) -> usize {
    let most = disk.body["properties"]["maxShares"].as_u64().unwrap_or(1);
    usize::try_from(most).unwrap_or(1).max(1)
}

fn set_owners(disk: &mut Document, owners: &[String], state: &str) {
    document::take(&mut disk.body, "/managedBy");
    document::take(&mut disk.body, "/managedByExtended");
    match (owners, shares(disk)) {
        ([], _) => {}
        ([owner], 1) => disk.body["managedBy"] = json!(owner),
        (all, _) => disk.body["managedByExtended"] = json!(all),
    }
    let state = if owners.is_empty() {
        "Unattached"
    } else {
        state
    };
    disk.body["properties"]["diskState"] = json!(state);
}

/// Gives a disk to a machine.
fn take(turn: &mut Turn<'_>, id: &str, holder: &Holder<'_>) -> Result<(), Fault> {
    let Some(mut disk) = document::get(turn, id) else {
        let message = format!("Disk {id} was not found.");
        return Err(Fault::new(404, "NotFound", message));
    };
    let mut owners = owners(&disk);
    owners.retain(|owner| !owner.eq_ignore_ascii_case(holder.machine));
    if owners.len() >= shares(&disk) {
        return Err(refused(turn, id, &owners[0], holder.machine));
    }
    owners.push(holder.machine.to_owned());
    set_owners(&mut disk, &owners, holder.state());
    document::put(turn, &disk);
    Ok(())
}

/// Why a disk that another machine has cannot be had.
fn refused(turn: &Turn<'_>, disk: &str, owner: &str, machine: &str) -> Fault {
    let leaving = document::get(turn, owner).map(|owner| owner.hidden["leaving"].clone());
    let leaving = leaving.unwrap_or_default();
    let mut leaving = leaving.as_array().into_iter().flatten();
    let is_leaving = leaving.any(|id| id.as_str().is_some_and(|id| id.eq_ignore_ascii_case(disk)));
    let last = |id: &str| id.rsplit('/').next().unwrap_or_default().to_owned();
    match is_leaving {
        true => Fault::conflict(
            "AttachDiskWhileBeingDetached",
            format!(
                "Cannot attach data disk '{}' to VM '{}' because the disk is currently being detached or the last \
                 detach operation failed. Please wait until the disk is completely detached and then try again or \
                 delete/detach the disk explicitly again.",
                last(disk),
                last(machine)
            ),
        ),
        false => Fault::conflict(
            "ConflictingUserInput",
            format!("Disk '{disk}' cannot be attached as the disk is already owned by VM '{owner}'."),
        ),
    }
    .target("disk")
}

/// Takes a disk from a machine.
fn give_back(turn: &mut Turn<'_>, id: &str, machine: &str) {
    if let Some(mut disk) = document::get(turn, id) {
        let mut owners = owners(&disk);
        owners.retain(|owner| !owner.eq_ignore_ascii_case(machine));
        let state = disk.body["properties"]["diskState"].clone();
        set_owners(&mut disk, &owners, state.as_str().unwrap_or("Attached"));
        document::put(turn, &disk);
    }
}

/// The system's disk of a machine, and its data disks.
fn all_of(machine: &Document) -> Vec<Value> {
    let storage = &machine.body["properties"]["storageProfile"];
    let data = storage["dataDisks"].as_array().into_iter().flatten();
    std::iter::once(&storage["osDisk"])
        .chain(data)
        .cloned()
        .collect()
}

/// Disks of a machine that is not allocated wait for it.
pub(super) fn follow_power(turn: &mut Turn<'_>, machine: &Document, power: &str) {
    for id in ids(&Value::Array(all_of(machine))) {
        if let Some(mut disk) = document::get(turn, &id) {
            disk.body["properties"]["diskState"] = json!(state_with(power));
            document::put(turn, &disk);
        }
    }
}

/// Lets go of every disk of a machine that is gone; those that go with it are gone too.
pub(super) fn release(turn: &mut Turn<'_>, machine: &Document) {
    let mut leaving = machine.clone();
    let_go(turn, &mut leaving);
    for disk in all_of(machine) {
        let Some(id) = disk["managedDisk"]["id"].as_str() else {
            continue;
        };
        give_back(turn, id, machine.id());
        if disk["deleteOption"] == "Delete" {
            turn.remove(crate::arm::id::key(id));
        }
    }
}

/// A disk or a snapshot, for whom stands behind it.
pub(super) fn described(disk: &Document) -> region::Disk {
    let properties = &disk.body["properties"];
    let creation = &properties["creationData"];
    let option = creation["createOption"].as_str().unwrap_or_default();
    region::Disk {
        id: disk.id().to_owned(),
        lun: 0,
        bytes: properties["diskSizeBytes"].as_u64().unwrap_or(0),
        source: COPIES
            .contains(&option)
            .then(|| creation["sourceResourceId"].as_str().map(str::to_owned))
            .flatten(),
        is_system: option == "FromImage",
        goes_with_machine: false,
    }
}

/// The data disks of a machine.
pub(super) fn of_machine(turn: &Turn<'_>, machine: &Document) -> Vec<region::Disk> {
    let data = &machine.body["properties"]["storageProfile"]["dataDisks"];
    let all = data.as_array().into_iter().flatten();
    all.filter_map(|entry| {
        let disk = document::get(turn, entry["managedDisk"]["id"].as_str()?)?;
        Some(region::Disk {
            lun: entry["lun"]
                .as_u64()
                .and_then(|lun| lun.try_into().ok())
                .unwrap_or(0),
            goes_with_machine: entry["deleteOption"] == "Delete",
            ..described(&disk)
        })
    })
    .collect()
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
