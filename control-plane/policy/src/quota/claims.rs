//! What claims of volumes and of devices use.

use kinds::pod_resources::{self, Amounts};
use kube_kit::quantity::Quantity;
use kube_kit::selector::Requirement;
use serde_json::Value;

use super::measure::count;
use super::{add, items, text};

const VOLUME_COUNT: &str = "count/persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
const BY_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

const DEVICE_COUNT: &str = "count/resourceclaims.resource.k8s.io";
const BY_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// How many devices `All` can mean at most.
const MOST_DEVICES: usize = 32;

/// Whether volume claims count under this name.
pub(super) fn tracks_volumes(name: &str) -> bool {
    let plain = name
        .split_once(BY_STORAGE_CLASS)
        .map_or(name, |(_, plain)| plain);
    name == VOLUME_COUNT || matches!(plain, VOLUMES | STORAGE)
}

/// Whether device claims count under this name.
pub(super) fn tracks_devices(name: &str) -> bool {
    name == DEVICE_COUNT || name.ends_with(BY_DEVICE_CLASS)
}

/// A claim and its storage, in all and for its class.
pub(super) fn volume_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([
        (VOLUME_COUNT.to_owned(), count(1)),
        (VOLUMES.to_owned(), count(1)),
    ]);
    let class = storage_class(claim);
    let of_class = |name: &str| format!("{class}{BY_STORAGE_CLASS}{name}");
    if !class.is_empty() {
        usage.insert(of_class(VOLUMES), count(1));
    }
    if let Some(storage) = storage(claim) {
        if !class.is_empty() {
            usage.insert(of_class(STORAGE), storage.clone());
        }
        usage.insert(STORAGE.to_owned(), storage);
    }
    usage
}

fn storage_class(claim: &Value) -> &str {
    let annotation = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotation
        .as_str()
        .unwrap_or_else(|| text(&claim["spec"]["storageClassName"]))
}

// Whole bytes of what is asked for, or of what an expansion under way has already taken.
fn storage(claim: &Value) -> Option<Quantity> {
    let asked = pod_resources::amounts(&claim["spec"], "requests").remove("storage")?;
    let taken = pod_resources::parse(&claim["status"]["allocatedResources"]["storage"]);
    let asked = whole(asked);
    Some(match taken {
        Some(taken) if taken > asked => whole(taken),
        _ => asked,
    })
}

fn whole(amount: Quantity) -> Quantity {
    const UNIT: i128 = 1_000_000_000;
    match amount.nanos() % UNIT {
        0 => amount,
        _ => Quantity::from_nanos(
            (amount.nanos().div_euclid(UNIT) + 1) * UNIT,
            amount.format(),
        ),
    }
}

/// Whether a volume claim is in a scope: the classes of attributes it has, wants or gets.
pub(super) fn in_scope(scope: &Requirement, claim: &Value) -> bool {
    if scope.key() != "VolumeAttributesClass" {
        return false;
    }
    let classes: Vec<&str> = [
        &claim["spec"]["volumeAttributesClassName"],
        &claim["status"]["currentVolumeAttributesClassName"],
        &claim["status"]["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ]
    .iter()
    .map(|class| text(class))
    .filter(|class| !class.is_empty())
    .collect();
    match classes.as_slice() {
        [] => scope.matches(None),
        classes => classes.iter().any(|class| scope.matches(Some(class))),
    }
}

/// A claim and its devices by class, at worst: of alternatives the dearest, of `All` the most.
pub(super) fn device_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([(DEVICE_COUNT.to_owned(), count(1))]);
    for request in items(&claim["spec"]["devices"]["requests"]) {
        let mut worst = Amounts::new();
        let alternatives = items(&request["firstAvailable"]);
        for wanted in alternatives.chain(Some(&request["exactly"]).filter(|e| e.is_object())) {
            let name = format!("{}{BY_DEVICE_CLASS}", text(&wanted["deviceClassName"]));
            let devices = count(devices(wanted));
            let most = worst.entry(name).or_insert(Quantity::ZERO);
            if *most < devices {
                *most = devices;
            }
        }
        add(&mut usage, &worst);
    }
    usage
}

fn devices(wanted: &Value) -> usize {
    match text(&wanted["allocationMode"]) {
        "ExactCount" => wanted["count"]
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .unwrap_or(0),
        "All" => MOST_DEVICES,
        _ => 0,
    }
}
