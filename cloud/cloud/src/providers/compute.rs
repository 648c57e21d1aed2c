//! Microsoft.Compute: machines, scale sets and disks. In a hollow region states change by the clock and nothing boots.

mod agent;
mod disks;
mod machines;
mod scale_sets;
pub(super) mod sizes;

use serde_json::{Value, json};

pub(super) use self::scale_sets::take_instance as drop_instance;
use super::{Call, Provider, Route, get, post};
use crate::arm::document::{self, Document};
use crate::arm::fault::{self, Fault};
use crate::arm::id::Id;
use crate::arm::kind::{Goes, Kind, PLAIN, Tag, only};
use crate::arm::operation::{self, Begin, Verb};
use crate::exchange::Reply;
use crate::region::{Disk, Node};
use crate::turn::Turn;

const OWN: Kind = Kind {
    write: Goes::Async,
    delete: Goes::Both,
    tag: Tag::Number,
    milliseconds: 400,
    operations: ("operations", "operations"),
    longest: 80,
    ..PLAIN
};

const DISK: Kind = Kind {
    put: (202, 202),
    write: Goes::Both,
    tag: Tag::None,
    milliseconds: 150,
    states: ("Updating", "Updating"),
    operations: ("DiskOperations", "DiskOperations"),
    sparse: true,
    ..OWN
};

const AT_ONCE: Kind = Kind {
    write: Goes::AtOnce,
    delete: Goes::AtOnce,
    tag: Tag::None,
    ..OWN
};

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.Compute",
    versions: &[
        "2025-04-01",
        "2025-01-02",
        "2024-11-01",
        "2024-07-01",
        "2022-11-01",
    ],
    kinds: &[KINDS],
    routes: ROUTES,
    more: &[
        "locations",
        "locations/usages",
        "locations/vmSizes",
        "locations/publishers",
        "locations/operations",
        "skus",
        "operations",
    ],
};

const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Compute/virtualMachines",
        sparse: true,
        required: &["/properties/hardwareProfile/vmSize"],
        read_only: &[
            "/properties/vmId",
            "/properties/timeCreated",
            "/properties/instanceView",
        ],
        references: &[
            "properties/networkProfile/networkInterfaces/[]/id",
            "properties/availabilitySet/id",
            "properties/virtualMachineScaleSet/id",
            "identity/userAssignedIdentities/{}",
        ],
        decide: Some(machines::decide),
        finish: Some(machines::finish),
        settled: Some(disks::let_go),
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachines/extensions",
        tag: Tag::None,
        decide: Some(agent::decide_extension),
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachines/runCommands",
        tag: Tag::None,
        decide: Some(agent::decide_command),
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachineScaleSets",
        sparse: true,
        read_only: &["/properties/uniqueId", "/properties/timeCreated"],
        references: &["identity/userAssignedIdentities/{}"],
        decide: Some(scale_sets::decide),
        finish: Some(scale_sets::finish),
        leave: Some(scale_sets::leave),
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
        sparse: true,
        put: (200, 200),
        read_only: &[
            "/properties/vmId",
            "/properties/timeCreated",
            "/properties/instanceView",
            "/properties/networkProfile",
        ],
        decide: Some(scale_sets::decide_instance),
        settled: Some(disks::let_go),
        leave: Some(scale_sets::leave_instance),
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachineScaleSets/extensions",
        has_location: false,
        tag: Tag::None,
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/disks",
        required: &["/properties/creationData/createOption"],
        defaults: r#"{"sku":{"name":"Standard_LRS"},"properties":{"encryption":{"type":"EncryptionAtRestWithPlatformKey"},
            "networkAccessPolicy":"AllowAll","publicNetworkAccess":"Enabled","diskState":"Unattached"}}"#,
        read_only: &[
            "/managedBy",
            "/managedByExtended",
            "/properties/diskState",
            "/properties/uniqueId",
            "/properties/timeCreated",
            "/properties/diskSizeBytes",
        ],
        decide: Some(disks::decide),
        leave: Some(disks::leave),
        ..DISK
    },
    Kind {
        name: "Microsoft.Compute/snapshots",
        required: &["/properties/creationData/createOption"],
        defaults: r#"{"sku":{"name":"Standard_LRS"},"properties":{"encryption":{"type":"EncryptionAtRestWithPlatformKey"},
            "networkAccessPolicy":"AllowAll","publicNetworkAccess":"Enabled","diskState":"Unattached","incremental":false,
            "snapshotAccessState":"Available"}}"#,
        read_only: &[
            "/properties/uniqueId",
            "/properties/timeCreated",
            "/properties/diskSizeBytes",
        ],
        decide: Some(disks::decide),
        ..DISK
    },
    Kind {
        name: "Microsoft.Compute/availabilitySets",
        put: (200, 200),
        defaults: r#"{"sku":{"name":"Classic"},"properties":{"platformUpdateDomainCount":5,"platformFaultDomainCount":3,
            "virtualMachines":[]}}"#,
        shows: &[("virtualMachines", "/virtualMachines/", true)],
        guarded: true,
        decide: Some(without_state),
        ..AT_ONCE
    },
    only("Microsoft.Compute/images", OWN),
    Kind {
        name: "Microsoft.Compute/sshPublicKeys",
        decide: Some(without_state),
        ..AT_ONCE
    },
    only("Microsoft.Compute/proximityPlacementGroups", AT_ONCE),
    only("Microsoft.Compute/diskEncryptionSets", OWN),
    only("Microsoft.Compute/galleries", OWN),
    only("Microsoft.Compute/galleries/images", OWN),
    only("Microsoft.Compute/galleries/images/versions", OWN),
];

const ROUTES: &[Route] = &[
    get("skus", sizes::skus),
    get("locations/{}/vmSizes", sizes::list),
    get("locations/{}/usages", sizes::usages),
    get(
        "locations/{}/publishers/{}/artifacttypes/vmimage/offers/{}/skus/{}/versions",
        sizes::image_versions,
    ),
    get(
        "locations/{}/publishers/{}/artifacttypes/vmimage/offers/{}/skus/{}/versions/{}",
        sizes::image_version,
    ),
    get("virtualMachines/{}/instanceView", machines::instance_view),
    post("virtualMachines/{}/start", machines::power),
    post("virtualMachines/{}/restart", machines::power),
    post("virtualMachines/{}/powerOff", machines::power),
    post("virtualMachines/{}/deallocate", machines::power),
    post("virtualMachines/{}/redeploy", machines::power),
    post("virtualMachines/{}/reimage", machines::power),
    post("virtualMachines/{}/reapply", machines::power),
    post("virtualMachines/{}/generalize", machines::generalize),
    post("virtualMachines/{}/runCommand", machines::run_command),
    post("virtualMachines/{}/simulateEviction", machines::evict),
    post(
        "virtualMachines/{}/attachDetachDataDisks",
        machines::attach_detach,
    ),
    post(
        "virtualMachines/{}/retrieveBootDiagnosticsData",
        machines::console,
    ),
    get(
        "virtualMachineScaleSets/{}/instanceView",
        scale_sets::instance_view,
    ),
    get("virtualMachineScaleSets/{}/skus", scale_sets::skus),
    get(
        "virtualMachineScaleSets/{}/virtualMachines/{}/instanceView",
        scale_sets::one_instance_view,
    ),
    get(
        "virtualMachineScaleSets/{}/virtualMachines/{}",
        scale_sets::one_instance,
    ),
    get(
        "virtualMachineScaleSets/{}/virtualMachines/{}/networkInterfaces",
        scale_sets::cards,
    ),
    get(
        "virtualMachineScaleSets/{}/virtualMachines/{}/networkInterfaces/{}",
        scale_sets::card,
    ),
    get(
        "virtualMachineScaleSets/{}/networkInterfaces",
        scale_sets::all_cards,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/start",
        scale_sets::power_one,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/restart",
        scale_sets::power_one,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/powerOff",
        scale_sets::power_one,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/deallocate",
        scale_sets::power_one,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/reimage",
        scale_sets::power_one,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/runCommand",
        machines::run_command,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/simulateEviction",
        scale_sets::evict,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/attachDetachDataDisks",
        machines::attach_detach,
    ),
    post(
        "virtualMachineScaleSets/{}/virtualMachines/{}/retrieveBootDiagnosticsData",
        machines::console,
    ),
    post("virtualMachineScaleSets/{}/start", scale_sets::power),
    post("virtualMachineScaleSets/{}/restart", scale_sets::power),
    post("virtualMachineScaleSets/{}/poweroff", scale_sets::power),
    post("virtualMachineScaleSets/{}/deallocate", scale_sets::power),
    post("virtualMachineScaleSets/{}/reimage", scale_sets::power),
    post("virtualMachineScaleSets/{}/reimageall", scale_sets::power),
    post(
        "virtualMachineScaleSets/{}/manualupgrade",
        scale_sets::power,
    ),
    post(
        "virtualMachineScaleSets/{}/delete",
        scale_sets::delete_instances,
    ),
    post("disks/{}/beginGetAccess", disks::grant),
    post("disks/{}/endGetAccess", disks::revoke),
    post("snapshots/{}/beginGetAccess", disks::grant),
    post("snapshots/{}/endGetAccess", disks::revoke),
];

fn without_state(_: &mut Turn<'_>, draft: &mut crate::arm::kind::Draft<'_>) -> Result<(), Fault> {
    document::take(draft.properties(), "/provisioningState");
    Ok(())
}

/// The resource an action is posted to.
fn target(turn: &Turn<'_>, call: &Call<'_>) -> Result<(Id, Document), Fault> {
    let id = call.target();
    let found = document::get(turn, &id.to_string());
    Ok((id.clone(), found.ok_or_else(|| fault::no_resource(&id))?))
}

/// Answers an action that takes a while.
fn accepted(turn: &mut Turn<'_>, call: &Call<'_>, id: &Id, location: &str, output: Value) -> Reply {
    let operation = begin_action(turn, call, id, output);
    told(turn, call, id, location, &operation)
}

fn begin_action(turn: &mut Turn<'_>, call: &Call<'_>, id: &Id, output: Value) -> String {
    let mut begin = Begin::new(Verb::Action, &id.to_string(), 300);
    begin.output = output;
    let word = call.path.rest.last().map(|word| word.to_lowercase());
    begin.action = json!({"word": word, "input": call.body().unwrap_or_default()});
    operation::begin(turn, begin)
}

/// Answers an action that changes its resource: no other operation works on it meanwhile.
fn accepted_change(
    turn: &mut Turn<'_>,
    call: &Call<'_>,
    id: &Id,
    document: &mut Document,
    output: Value,
) -> Reply {
    operation::supersede(turn, document);
    let operation = begin_action(turn, call, id, output);
    document.operation = Some(operation.clone());
    document.body["properties"]["provisioningState"] = json!("Updating");
    document::put(turn, document);
    let location = document.body["location"].as_str().unwrap_or_default();
    told(turn, call, id, location, &operation)
}

fn told(turn: &Turn<'_>, call: &Call<'_>, id: &Id, location: &str, operation: &str) -> Reply {
    let words = ("operations", "operations");
    let (status, result) =
        operation::addresses(turn, id, words, operation, location, call.version());
    operation::headers(turn, Reply::empty(202), Goes::Both, &status, &result)
}

/// The states of a machine, as an instance view lists them.
fn statuses(power: &str, provisioning: &str) -> Value {
    let (state, title) = match provisioning {
        "Creating" => ("creating", "Creating"),
        "Updating" => ("updating", "Updating"),
        "Deleting" => ("deleting", "Deleting"),
        "Failed" => ("failed", "Provisioning failed"),
        _ => ("succeeded", "Provisioning succeeded"),
    };
    json!([
        {"code": format!("ProvisioningState/{state}"), "level": "Info", "displayStatus": title},
        {"code": format!("PowerState/{power}"), "level": "Info", "displayStatus": format!("VM {power}")},
    ])
}

fn power_of(document: &Document) -> &str {
    document.hidden["power"].as_str().unwrap_or("running")
}

/// The machines of a machine, of one in a scale set, or of a whole set.
pub(super) fn nodes(turn: &Turn<'_>, kind: &Kind, document: &Document) -> Vec<Node> {
    match kind.path() {
        "virtualMachines" => vec![machines::node(turn, document)],
        "virtualMachines/extensions" | "virtualMachines/runCommands" => {
            let machine = Id::parse(document.id()).and_then(|id| id.parent());
            let machine = machine.and_then(|id| document::get(turn, &id.to_string()));
            machine
                .iter()
                .map(|its| machines::node(turn, its))
                .collect()
        }
        "virtualMachineScaleSets/virtualMachines" => vec![instance_node(turn, document, "")],
        "virtualMachineScaleSets" => {
            let id = Id::parse(document.id());
            let all = id.map(|id| document::children(turn, &id, "virtualMachines"));
            let all = all.unwrap_or_default();
            all.iter().map(|one| instance_node(turn, one, "")).collect()
        }
        _ => Vec::new(),
    }
}

/// A machine of its own.
pub(crate) fn machine_node(turn: &Turn<'_>, machine: &Document) -> Node {
    machines::node(turn, machine)
}

/// A machine of a scale set, in a pool of a cluster or in none.
pub(crate) fn instance_node(turn: &Turn<'_>, instance: &Document, pool: &str) -> Node {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let subnet = instance.hidden["subnet"].as_str();
    Node {
        id: instance.id().to_owned(),
        name: text(&instance.body["properties"]["osProfile"]["computerName"]).unwrap_or_default(),
        pool: pool.to_owned(),
        address: instance.hidden["address"]
            .as_str()
            .and_then(|a| a.parse().ok()),
        subnet: subnet.and_then(|subnet| super::network::prefix(turn, subnet)),
        network: subnet
            .and_then(|id| Id::parse(id)?.parent())
            .map(|id| id.to_string()),
        zone: text(&instance.body["zones"][0]),
    }
}

/// The disks of a machine, or what a disk or a snapshot is itself.
pub(super) fn disks_of(turn: &Turn<'_>, kind: &Kind, document: &Document) -> Vec<Disk> {
    match kind.collection() {
        "virtualMachines" => disks::of_machine(turn, document),
        "disks" | "snapshots" => vec![disks::described(document)],
        _ => Vec::new(),
    }
}

/// A machine that is gone has let go of its disks.
pub(super) fn removed(turn: &mut Turn<'_>, kind: &Kind, document: &Document) {
    if kind.collection() == "virtualMachines" {
        disks::release(turn, document);
    }
}

/// A machine was seen to run, or not to: that is its power state, whoever turned it on or off.
pub(crate) fn seen(turn: &mut Turn<'_>, id: &str, runs: bool) {
    machines::seen(turn, id, runs);
}

/// The machine whose console an address is for.
pub(crate) fn console_of(turn: &Turn<'_>, secret: &str) -> Option<Node> {
    let machine = machines::console_of(turn, secret)?;
    let kind = Id::parse(machine.id()).and_then(|id| crate::arm::kind::named(&id.kind()))?;
    nodes(turn, kind, &machine).pop()
}

/// Adds the instance view that `$expand` asks for.
pub(super) fn expand(turn: &Turn<'_>, kind: &Kind, wanted: &str, document: &mut Document) {
    if !wanted.to_lowercase().contains("instanceview") {
        return;
    }
    let view = match kind.collection() {
        "virtualMachines" => machines::view(turn, document),
        "extensions" | "runCommands" => document.hidden["view"].clone(),
        _ => return,
    };
    document.body["properties"]["instanceView"] = view;
}

/// The machines of a scale set, where a list asks for those.
pub(super) fn of_scale_set(filter: &str, all: Vec<Value>) -> Vec<Value> {
    let wanted = filter.rsplit('\'').nth(1).unwrap_or_default();
    if !filter.to_lowercase().contains("virtualmachinescaleset/id") {
        return all;
    }
    let its = |machine: &Value| {
        let set = machine["properties"]["virtualMachineScaleSet"]["id"].as_str();
        set.is_some_and(|id| id.eq_ignore_ascii_case(wanted))
    };
    all.into_iter().filter(its).collect()
}

#[cfg(test)]
mod tests;
