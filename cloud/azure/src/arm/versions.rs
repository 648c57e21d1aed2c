//! Which version of the API each type is asked for.

/// Types by how their paths go on after the provider, the most special first, and the version.
const VERSIONS: &[(&str, &str, &str)] = &[
    // Cards of a set's machines are served by Compute in one old version only.
    ("microsoft.compute", "networkinterfaces", "2018-10-01"),
    ("microsoft.compute", "publicipaddresses", "2018-10-01"),
    ("microsoft.compute", "disks", "2025-01-02"),
    ("microsoft.compute", "snapshots", "2025-01-02"),
    ("microsoft.compute", "", "2025-04-01"),
    ("microsoft.network", "", "2025-05-01"),
    ("microsoft.hybridcompute", "", "2024-07-10"),
    ("microsoft.containerservice", "", "2025-10-01"),
    ("microsoft.authorization", "", "2022-04-01"),
    ("", "", "2021-04-01"),
];

fn words(path: &str) -> Vec<String> {
    path.split('/').map(str::to_lowercase).collect()
}

/// The types of a path, after its provider; a whole provider has none.
fn types(words: &[String]) -> (&str, Vec<&str>) {
    let Some(at) = words.iter().rposition(|word| word == "providers") else {
        return ("", Vec::new());
    };
    let provider = words.get(at + 1).map_or("", String::as_str);
    let types = words.iter().skip(at + 2).step_by(2);
    (provider, types.map(String::as_str).collect())
}

/// The version for a path.
pub(super) fn of(path: &str) -> &'static str {
    let words = words(path);
    let (provider, types) = types(&words);
    // A provider itself is a resource of the subscription.
    let provider = if types.is_empty() { "" } else { provider };
    let fits = |row: &&(&str, &str, &str)| {
        (row.0.is_empty() || row.0 == provider) && (row.1.is_empty() || types.contains(&row.1))
    };
    let found = VERSIONS.iter().find(fits);
    found.expect("the last row fits everything").2
}

/// Requests that share limits: those of one type, such as `loadbalancers`.
pub(super) fn family(path: &str) -> String {
    let words = words(path);
    let (_, types) = types(&words);
    // Polls of operations are a family of their own.
    let first = types.first().copied().unwrap_or("subscription");
    match types.get(1) {
        Some(second) if first == "locations" => (*second).to_owned(),
        Some(second) if first == "virtualnetworks" => (*second).to_owned(),
        _ => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_version() {
        let at = "/subscriptions/s/resourceGroups/g/providers";
        let cases = [
            (
                "/Microsoft.Network/loadBalancers/l",
                "2025-05-01",
                "loadbalancers",
            ),
            (
                "/Microsoft.Compute/virtualMachines",
                "2025-04-01",
                "virtualmachines",
            ),
            (
                "/microsoft.compute/virtualMachineScaleSets/x/virtualMachines/1/networkInterfaces",
                "2018-10-01",
                "virtualmachinescalesets",
            ),
            ("/Microsoft.Compute/disks/d", "2025-01-02", "disks"),
            (
                "/Microsoft.Network/virtualNetworks/v/subnets/s",
                "2025-05-01",
                "subnets",
            ),
            ("/Microsoft.Compute", "2021-04-01", "subscription"),
        ];
        for (path, version, kind) in cases {
            let path = format!("{at}{path}");
            assert_eq!(
                (of(&path), family(&path).as_str()),
                (version, kind),
                "{path}"
            );
        }
        let poll = "/subscriptions/s/providers/Microsoft.Network/locations/eastus/operations/o";
        assert_eq!(family(poll), "operations");
    }
}
