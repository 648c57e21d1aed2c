//! What this region does not do for a cluster or a pool, and would otherwise pass over in silence. Pure.

use ::cloud::Trouble;
use serde_json::Value;

/// When a field is refused.
enum When {
    /// It says anything at all.
    Said,
    /// It says one of these.
    Is(&'static [&'static str]),
    /// It says something else than one of these.
    IsNot(&'static [&'static str]),
}

use When::{Is, IsNot, Said};

const TRUE: When = Is(&["true"]);

/// Fields of a cluster's properties; `*` is any field of an object.
const OF_CLUSTERS: &[(&str, When)] = &[
    ("aadProfile", Said),
    ("addonProfiles/*/enabled", TRUE),
    ("apiServerAccessProfile/enablePrivateCluster", TRUE),
    ("apiServerAccessProfile/authorizedIPRanges", Said),
    ("apiServerAccessProfile/enableVnetIntegration", TRUE),
    ("autoUpgradeProfile/upgradeChannel", IsNot(&["none"])),
    ("azureMonitorProfile/metrics/enabled", TRUE),
    ("bootstrapProfile/artifactSource", Is(&["Cache"])),
    ("diskEncryptionSetID", Said),
    ("enableRBAC", Is(&["false"])),
    ("hostedSystemProfile/enabled", TRUE),
    ("httpProxyConfig", Said),
    ("ingressProfile/webAppRouting/enabled", TRUE),
    ("metricsProfile/costAnalysis/enabled", TRUE),
    ("networkProfile/advancedNetworking/enabled", TRUE),
    ("networkProfile/ipFamilies/1", Said),
    ("networkProfile/networkDataplane", IsNot(&["azure"])),
    ("networkProfile/networkPlugin", Is(&["none"])),
    ("networkProfile/networkPolicy", IsNot(&["none"])),
    ("nodeProvisioningProfile/mode", Is(&["Auto"])),
    ("publicNetworkAccess", Is(&["Disabled"])),
    ("securityProfile/azureKeyVaultKms/enabled", TRUE),
    ("securityProfile/customCATrustCertificates", Said),
    ("securityProfile/defender/securityMonitoring/enabled", TRUE),
    ("securityProfile/imageCleaner/enabled", TRUE),
    ("securityProfile/workloadIdentity/enabled", TRUE),
    ("serviceMeshProfile/mode", Is(&["Istio"])),
    ("storageProfile/blobCSIDriver/enabled", TRUE),
    ("windowsProfile", Said),
    ("workloadAutoScalerProfile/keda/enabled", TRUE),
    (
        "workloadAutoScalerProfile/verticalPodAutoscaler/enabled",
        TRUE,
    ),
];

/// Fields of a pool.
const OF_POOLS: &[(&str, When)] = &[
    ("osType", IsNot(&["Linux"])),
    ("type", IsNot(&["VirtualMachineScaleSets"])),
    ("osSKU", IsNot(&["Ubuntu", "Ubuntu2204", "Ubuntu2404"])),
    ("enableAutoScaling", TRUE),
    ("enableEncryptionAtHost", TRUE),
    ("enableFIPS", TRUE),
    ("enableNodePublicIP", TRUE),
    ("enableUltraSSD", TRUE),
    ("gpuInstanceProfile", Said),
    ("hostGroupID", Said),
    ("kubeletConfig", Said),
    ("linuxOSConfig", Said),
    ("localDNSProfile/mode", Is(&["Required"])),
    ("mode", Is(&["Gateway"])),
    ("podSubnetID", Said),
    ("scaleDownMode", IsNot(&["Delete"])),
    ("securityProfile/enableSecureBoot", TRUE),
    ("securityProfile/enableVTPM", TRUE),
    ("upgradeSettings/undrainableNodeBehavior", Is(&["Cordon"])),
    ("upgradeStrategy", IsNot(&["Rolling"])),
    ("workloadRuntime", IsNot(&["OCIContainer"])),
];

/// What is asked for that this region does not do: the first such field, by its name.
pub(super) fn objection(body: &Value) -> Option<Trouble> {
    let properties = &body["properties"];
    if body["sku"]["name"] == "Automatic" {
        return Some(trouble("sku.name", "Automatic"));
    }
    let of_cluster = find(properties, OF_CLUSTERS)
        .map(|(path, value)| trouble(&format!("properties.{path}"), &value));
    of_cluster.or_else(|| {
        let mut pools = properties["agentPoolProfiles"].as_array()?.iter();
        pools.find_map(|pool| {
            let (path, value) = find(pool, OF_POOLS)?;
            let name = pool["name"].as_str().unwrap_or_default();
            Some(trouble(&format!("{path} of the pool {name}"), &value))
        })
    })
}

fn trouble(field: &str, value: &str) -> Trouble {
    let message = format!("This region does not do what {field} asks for: {value}.");
    Trouble::new("FeatureNotSupported", message)
}

/// The first refused field, and what it says.
fn find(object: &Value, table: &[(&str, When)]) -> Option<(String, String)> {
    table.iter().find_map(|(path, when)| {
        let words: Vec<&str> = path.split('/').collect();
        let found = reached(object, &words).into_iter();
        let mut found = found.filter(|(_, value)| is_refused(value, when));
        found.next().map(|(path, value)| (path, text(value)))
    })
}

/// Everything that a path leads to, with the path that did.
fn reached<'v>(value: &'v Value, path: &[&str]) -> Vec<(String, &'v Value)> {
    let Some((first, rest)) = path.split_first() else {
        return vec![(String::new(), value)];
    };
    let next: Vec<(&str, &Value)> = match (value, *first) {
        (Value::Object(fields), "*") => fields.iter().map(|(k, v)| (k.as_str(), v)).collect(),
        (Value::Array(all), index) => {
            let at = index.parse::<usize>().ok().and_then(|at| all.get(at));
            at.into_iter().map(|value| (index, value)).collect()
        }
        (value, name) => value.get(name).into_iter().map(|v| (name, v)).collect(),
    };
    let deeper = next.into_iter().flat_map(|(name, value)| {
        let below = reached(value, rest).into_iter();
        below.map(move |(path, value)| match path.as_str() {
            "" => (name.to_owned(), value),
            path => (format!("{name}.{path}"), value),
        })
    });
    deeper.collect()
}

fn is_refused(value: &Value, when: &When) -> bool {
    let says_nothing = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    let is_one_of = |known: &[&str]| {
        known
            .iter()
            .any(|one| one.eq_ignore_ascii_case(&text(value)))
    };
    !says_nothing
        && match when {
            Said => true,
            Is(known) => is_one_of(known),
            IsNot(known) => !is_one_of(known),
        }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_this_region_does_not_do_is_refused_by_name() {
        let usual = json!({"properties": {"enableRBAC": true, "networkProfile": {"networkPlugin": "azure", "networkPolicy":
            "none", "ipFamilies": ["IPv4"]}, "addonProfiles": {"a": {"enabled": false}}, "windowsProfile": {},
            "agentPoolProfiles": [{"name": "p", "osType": "Linux", "osSKU": "Ubuntu", "type": "VirtualMachineScaleSets"}]}});
        assert!(objection(&usual).is_none());
        for (pointer, value, named) in [
            (
                "/properties/aadProfile",
                json!({"managed": true}),
                "aadProfile",
            ),
            (
                "/properties/addonProfiles",
                json!({"a": {"enabled": false}, "omsagent": {"enabled": true}}),
                "addonProfiles.omsagent.enabled",
            ),
            (
                "/properties/networkProfile",
                json!({"ipFamilies": ["IPv4", "IPv6"]}),
                "networkProfile.ipFamilies.1",
            ),
            ("/properties/enableRBAC", json!(false), "enableRBAC"),
            (
                "/properties/agentPoolProfiles/0/osType",
                json!("Windows"),
                "osType of the pool p",
            ),
            (
                "/properties/agentPoolProfiles/0/type",
                json!("VirtualMachines"),
                "type of the pool p",
            ),
        ] {
            let mut body = usual.clone();
            match body.pointer_mut(pointer) {
                Some(place) => *place = value,
                None => {
                    let name = pointer.trim_start_matches("/properties/");
                    body["properties"][name] = value;
                }
            }
            let message = objection(&body).map(|trouble| trouble.message);
            assert!(
                message.as_ref().is_some_and(|said| said.contains(named)),
                "{pointer}: {message:?}"
            );
        }
    }
}
