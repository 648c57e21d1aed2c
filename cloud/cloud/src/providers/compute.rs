//! Microsoft.Compute: machines, scale sets and disks. In a hollow region states change by the clock and nothing boots.

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
use crate::region::Node;
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
        leave: Some(machines::leave),
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachines/extensions",
        tag: Tag::None,
        ..OWN
    },
    Kind {
        name: "Microsoft.Compute/virtualMachines/runCommands",
        tag: Tag::None,
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
    let mut begin = Begin::new(Verb::Action, &id.to_string(), 300);
    begin.output = output;
    let word = call.path.rest.last().map(|word| word.to_lowercase());
    begin.action = json!({"word": word, "input": call.body().unwrap_or_default()});
    let operation = operation::begin(turn, begin);
    let words = ("operations", "operations");
    let (status, result) =
        operation::addresses(turn, id, words, &operation, location, call.version());
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

/// Adds the instance view that `$expand` asks for.
pub(super) fn expand(turn: &Turn<'_>, kind: &Kind, wanted: &str, document: &mut Document) {
    if !wanted.to_lowercase().contains("instanceview") || kind.collection() != "virtualMachines" {
        return;
    }
    let view = machines::view(turn, document);
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
