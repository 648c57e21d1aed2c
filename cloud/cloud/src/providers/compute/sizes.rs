//! Which sizes of machines there are, how many of them, and of which images.

use serde_json::{Value, json};

use super::super::Call;
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::region;
use crate::exchange::Reply;
use crate::turn::Turn;

/// Name, family, cores, memory in GiB, disks, cards, cache in GiB (0: no ephemeral disk), processor.
type Size = (
    &'static str,
    &'static str,
    u32,
    f32,
    u32,
    u32,
    u32,
    &'static str,
);

const SIZES: [Size; 26] = [
    ("Standard_B1s", "standardBSFamily", 1, 1.0, 2, 2, 0, "x64"),
    ("Standard_B2s", "standardBSFamily", 2, 4.0, 4, 3, 0, "x64"),
    ("Standard_B2ms", "standardBSFamily", 2, 8.0, 4, 3, 0, "x64"),
    ("Standard_B4ms", "standardBSFamily", 4, 16.0, 8, 4, 0, "x64"),
    (
        "Standard_DS1_v2",
        "standardDSv2Family",
        1,
        3.5,
        4,
        2,
        43,
        "x64",
    ),
    (
        "Standard_DS2_v2",
        "standardDSv2Family",
        2,
        7.0,
        8,
        2,
        86,
        "x64",
    ),
    (
        "Standard_DS3_v2",
        "standardDSv2Family",
        4,
        14.0,
        16,
        4,
        172,
        "x64",
    ),
    (
        "Standard_D2s_v3",
        "standardDSv3Family",
        2,
        8.0,
        4,
        2,
        50,
        "x64",
    ),
    (
        "Standard_D4s_v3",
        "standardDSv3Family",
        4,
        16.0,
        8,
        2,
        100,
        "x64",
    ),
    (
        "Standard_D8s_v3",
        "standardDSv3Family",
        8,
        32.0,
        16,
        4,
        200,
        "x64",
    ),
    (
        "Standard_D2s_v5",
        "standardDSv5Family",
        2,
        8.0,
        4,
        2,
        0,
        "x64",
    ),
    (
        "Standard_D4s_v5",
        "standardDSv5Family",
        4,
        16.0,
        8,
        2,
        0,
        "x64",
    ),
    (
        "Standard_D8s_v5",
        "standardDSv5Family",
        8,
        32.0,
        16,
        4,
        0,
        "x64",
    ),
    (
        "Standard_D16s_v5",
        "standardDSv5Family",
        16,
        64.0,
        32,
        8,
        0,
        "x64",
    ),
    (
        "Standard_D2ds_v5",
        "standardDDSv5Family",
        2,
        8.0,
        4,
        2,
        75,
        "x64",
    ),
    (
        "Standard_D4ds_v5",
        "standardDDSv5Family",
        4,
        16.0,
        8,
        2,
        150,
        "x64",
    ),
    (
        "Standard_D8ds_v5",
        "standardDDSv5Family",
        8,
        32.0,
        16,
        4,
        300,
        "x64",
    ),
    (
        "Standard_D8d_v5",
        "standardDDv5Family",
        8,
        32.0,
        16,
        4,
        300,
        "x64",
    ),
    (
        "Standard_D2as_v5",
        "standardDASv5Family",
        2,
        8.0,
        4,
        2,
        0,
        "x64",
    ),
    (
        "Standard_D4as_v5",
        "standardDASv5Family",
        4,
        16.0,
        8,
        2,
        0,
        "x64",
    ),
    (
        "Standard_D2ps_v5",
        "standardDPSv5Family",
        2,
        8.0,
        4,
        2,
        0,
        "Arm64",
    ),
    (
        "Standard_D4ps_v5",
        "standardDPSv5Family",
        4,
        16.0,
        8,
        2,
        0,
        "Arm64",
    ),
    (
        "Standard_E2s_v5",
        "standardESv5Family",
        2,
        16.0,
        4,
        2,
        0,
        "x64",
    ),
    (
        "Standard_E4s_v5",
        "standardESv5Family",
        4,
        32.0,
        8,
        2,
        0,
        "x64",
    ),
    (
        "Standard_F2s_v2",
        "standardFSv2Family",
        2,
        4.0,
        4,
        2,
        32,
        "x64",
    ),
    (
        "Standard_F4s_v2",
        "standardFSv2Family",
        4,
        8.0,
        8,
        2,
        64,
        "x64",
    ),
];

/// How many cores a region gives.
const CORES: u64 = 20_000;

fn find(name: &str) -> Option<&'static Size> {
    SIZES.iter().find(|size| size.0.eq_ignore_ascii_case(name))
}

/// Refuses a size that there is not.
pub(in crate::providers) fn check(name: &str, location: &str) -> Result<(), Fault> {
    if find(name).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = SIZES.iter().map(|size| size.0).collect();
    let message = format!(
        "The value {name} provided for the VM size is not valid. The valid sizes in the current region '{location}' \
         are: {}. Find out more on the valid VM sizes in each region at https://aka.ms/azure-regionservices.",
        known.join(",")
    );
    Err(Fault::bad("InvalidParameter", message).target("vmSize"))
}

/// Whether a disk for the system fits into a size's cache.
pub(in crate::providers) fn cache_gib(name: &str) -> u32 {
    find(name).map_or(0, |size| size.6)
}

pub(in crate::providers) fn cores(name: &str) -> u64 {
    find(name).map_or(2, |size| u64::from(size.2))
}

pub(in crate::providers) fn is_arm(name: &str) -> bool {
    find(name).is_some_and(|size| size.7 == "Arm64")
}

/// Refuses what a region has no cores for.
pub(in crate::providers) fn check_quota(
    turn: &Turn<'_>,
    location: &str,
    more: u64,
) -> Result<(), Fault> {
    // Only what is large is worth counting.
    if more <= CORES / 20 {
        return Ok(());
    }
    let used = used(turn, location);
    match used + more > CORES {
        true => {
            let message = format!(
                "Operation could not be completed as it results in exceeding approved Total Regional Cores quota. \
                 Additional details - Deployment Model: Resource Manager, Location: {location}, Current Limit: {CORES}, \
                 Current Usage: {used}, Additional Required: {more}, (Minimum) New Limit Required: {}.",
                used + more
            );
            Err(Fault::conflict("OperationNotAllowed", message)
                .detail("QuotaExceeded", "Total Regional Cores"))
        }
        false => Ok(()),
    }
}

fn used(turn: &Turn<'_>, location: &str) -> u64 {
    let scope = format!("/subscriptions/{}", turn.settings.subscription);
    let here = |body: &Value| body["location"] == location;
    let machines = document::of_kind(turn, &scope, "Microsoft.Compute/virtualMachines");
    let machines = machines.iter().filter(|m| here(&m.body));
    let sets = document::of_kind(turn, &scope, "Microsoft.Compute/virtualMachineScaleSets");
    let sets = sets.iter().filter(|s| here(&s.body));
    let of_machines: u64 = machines
        .map(|m| {
            cores(
                m.body["properties"]["hardwareProfile"]["vmSize"]
                    .as_str()
                    .unwrap_or_default(),
            )
        })
        .sum();
    let of_sets: u64 = sets
        .map(|s| {
            cores(s.body["sku"]["name"].as_str().unwrap_or_default())
                * s.body["sku"]["capacity"].as_u64().unwrap_or(0)
        })
        .sum();
    of_machines + of_sets
}

/// `…/usages`.
pub(super) fn usages(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let location = region::plain(&call.names[0]);
    let used = used(turn, &location);
    let row = |value: &str, title: &str, used: u64, limit: u64| json!({"unit": "Count", "currentValue": used, "limit": limit, "name": {"value": value, "localizedValue": title}});
    let mut rows = vec![
        row("cores", "Total Regional vCPUs", used, CORES),
        row("virtualMachines", "Virtual Machines", 0, 25_000),
        row(
            "virtualMachineScaleSets",
            "Virtual Machine Scale Sets",
            0,
            2_500,
        ),
        row("lowPriorityCores", "Total Regional Spot vCPUs", 0, CORES),
    ];
    let mut families: Vec<&str> = SIZES.iter().map(|size| size.1).collect();
    families.dedup();
    rows.extend(
        families
            .into_iter()
            .map(|family| row(family, family, 0, CORES)),
    );
    Ok(Reply::list(rows))
}

/// `…/vmSizes`.
pub(super) fn list(_: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    let shown = SIZES.iter().map(|(name, _, cores, memory, disks, _, cache, _)| {
        json!({"name": name, "numberOfCores": cores, "memoryInMB": (memory * 1024.0) as u32, "osDiskSizeInMB": 1_047_552,
            "resourceDiskSizeInMB": cache * 1024, "maxDataDiskCount": disks})
    });
    Ok(Reply::list(shown.collect()))
}

/// `…/skus`, of one region or of all.
pub(super) fn skus(_: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let filter = call.asked.param("$filter").unwrap_or_default();
    let wanted = filter.split('\'').nth(1).map(region::plain);
    let regions =
        region::names().filter(|name| wanted.as_deref().is_none_or(|wanted| wanted == *name));
    let shown = regions.flat_map(|region| SIZES.iter().map(move |size| sku(size, region)));
    Ok(Reply::list(shown.collect()))
}

fn sku(size: &Size, location: &str) -> Value {
    let (name, family, cores, memory, disks, cards, cache, processor) = size;
    let zones: &[&str] = if region::has_zones(location) {
        &["1", "2", "3"]
    } else {
        &[]
    };
    let ephemeral = if *cache > 0 { "True" } else { "False" };
    let capability = |name: &str, value: String| json!({"name": name, "value": value});
    json!({
        "resourceType": "virtualMachines", "name": name, "tier": "Standard", "size": name.trim_start_matches("Standard_"),
        "family": family, "locations": [location], "restrictions": [],
        "locationInfo": [{"location": location, "zones": zones, "zoneDetails": []}],
        "capabilities": [
            capability("vCPUs", cores.to_string()), capability("vCPUsAvailable", cores.to_string()),
            capability("MemoryGB", memory.to_string()), capability("MaxDataDiskCount", disks.to_string()),
            capability("MaxNetworkInterfaces", cards.to_string()), capability("MaxResourceVolumeMB", (cache * 1024).to_string()),
            capability("CachedDiskBytes", (u64::from(*cache) << 30).to_string()), capability("PremiumIO", "True".into()),
            capability("EphemeralOSDiskSupported", ephemeral.into()), capability("HyperVGenerations", "V1,V2".into()),
            capability("CpuArchitectureType", (*processor).into()), capability("AcceleratedNetworkingEnabled", "True".into()),
            capability("EncryptionAtHostSupported", "True".into()), capability("UltraSSDAvailable", "False".into()),
            capability("LowPriorityCapable", "True".into()), capability("OSVhdSizeMB", "1047552".into()),
        ],
    })
}

const IMAGE_VERSION: &str = "22.04.202606100";

/// The versions of an image: a bare array, as Azure answers.
pub(super) fn image_versions(_: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    Ok(Reply::ok(
        json!([{"location": call.names[0], "name": IMAGE_VERSION,
        "id": format!("{}/providers/Microsoft.Compute/{}/{IMAGE_VERSION}", call.path.scope, call.path.rest.join("/"))}]),
    ))
}

pub(super) fn image_version(_: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let is_windows = call.names[1].to_lowercase().contains("windows");
    let system = if is_windows { "Windows" } else { "Linux" };
    Ok(Reply::ok(
        json!({"location": call.names[0], "name": call.names[4],
        "id": format!("{}/providers/Microsoft.Compute/{}", call.path.scope, call.path.rest.join("/")),
        "properties": {"hyperVGeneration": "V2", "architecture": "x64", "replicaType": "Managed",
            "osDiskImage": {"operatingSystem": system, "sizeInGb": 30}, "dataDiskImages": [],
            "automaticOSUpgradeProperties": {"automaticOSUpgradeSupported": true},
            "disallowed": {"vmDiskType": "None"},
            "features": [{"name": "SecurityType", "value": "TrustedLaunchSupported"},
                {"name": "IsAcceleratedNetworkSupported", "value": "True"}]}}),
    ))
}
