//! The regions there are.

use serde_json::{Value, json};

/// Name, what people call it, its part of the world, its pair, and whether it has zones.
const REGIONS: [(&str, &str, &str, &str, bool); 19] = [
    // This machine, as `kyanite up` calls it.
    ("local", "Local", "Local", "local", true),
    ("eastus", "East US", "US", "westus", true),
    ("eastus2", "East US 2", "US", "centralus", true),
    ("westus", "West US", "US", "eastus", false),
    ("westus2", "West US 2", "US", "westcentralus", true),
    ("westus3", "West US 3", "US", "eastus", true),
    ("westcentralus", "West Central US", "US", "westus2", false),
    ("centralus", "Central US", "US", "eastus2", true),
    (
        "southcentralus",
        "South Central US",
        "US",
        "northcentralus",
        true,
    ),
    (
        "northcentralus",
        "North Central US",
        "US",
        "southcentralus",
        false,
    ),
    (
        "canadacentral",
        "Canada Central",
        "Canada",
        "canadaeast",
        true,
    ),
    ("northeurope", "North Europe", "Europe", "westeurope", true),
    ("westeurope", "West Europe", "Europe", "northeurope", true),
    ("uksouth", "UK South", "UK", "ukwest", true),
    (
        "germanywestcentral",
        "Germany West Central",
        "Germany",
        "germanynorth",
        true,
    ),
    (
        "swedencentral",
        "Sweden Central",
        "Sweden",
        "swedensouth",
        true,
    ),
    (
        "southeastasia",
        "Southeast Asia",
        "Asia Pacific",
        "eastasia",
        true,
    ),
    (
        "australiaeast",
        "Australia East",
        "Australia",
        "australiasoutheast",
        true,
    ),
    ("japaneast", "Japan East", "Japan", "japanwest", true),
];

/// A region's name as ids have it: `East US` is `eastus`.
pub(crate) fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_whitespace())
        .collect::<String>()
        .to_lowercase()
}

pub(crate) fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    REGIONS.iter().map(|region| region.0)
}

/// What people call the regions.
pub(crate) fn titles() -> Vec<&'static str> {
    REGIONS.iter().map(|region| region.1).collect()
}

/// The zones of each region that has some, as providers list them.
pub(crate) fn zone_mappings() -> Vec<Value> {
    let with_zones = REGIONS.iter().filter(|region| region.4);
    with_zones
        .map(|region| json!({"location": region.1, "zones": ["1", "2", "3"]}))
        .collect()
}

pub(crate) fn has_zones(name: &str) -> bool {
    REGIONS.iter().any(|region| region.0 == name && region.4)
}

/// The answer of `…/locations`.
pub(crate) fn list(subscription: &str) -> Vec<Value> {
    REGIONS
        .iter()
        .map(|region| item(subscription, region))
        .collect()
}

fn item(subscription: &str, region: &(&str, &str, &str, &str, bool)) -> Value {
    let (name, title, group, pair, zones) = *region;
    let id = |name: &str| format!("/subscriptions/{subscription}/locations/{name}");
    let mut item = json!({
        "id": id(name), "name": name, "type": "Region", "displayName": title,
        "regionalDisplayName": format!("({group}) {title}"),
        "metadata": {"regionType": "Physical", "regionCategory": "Recommended", "geography": group,
            "geographyGroup": group, "longitude": "0", "latitude": "0", "physicalLocation": "here",
            "pairedRegion": [{"name": pair, "id": id(pair)}]},
    });
    if zones {
        let zone =
            |n: u8| json!({"logicalZone": n.to_string(), "physicalZone": format!("{name}-az{n}")});
        item["availabilityZoneMappings"] = json!([zone(1), zone(2), zone(3)]);
    }
    item
}
