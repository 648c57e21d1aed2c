//! Pools of nodes: defaults and rules.

use serde_json::{Value, json};

use super::super::compute::sizes;
use super::releases::{self, NEWEST_IMAGE, NODE_IMAGE};
use crate::arm::document;
use crate::arm::fault::Fault;

pub(super) const DEFAULTS: &str = r#"{"count":1,"kubeletDiskType":"OS","type":"VirtualMachineScaleSets",
    "scaleDownMode":"Delete","powerState":{"code":"Running"},"enableNodePublicIP":false,"mode":"User","osType":"Linux",
    "osSKU":"Ubuntu","upgradeSettings":{"maxSurge":"10%","maxUnavailable":"0"},"enableFIPS":false,
    "upgradeStrategy":"Rolling","enableEncryptionAtHost":false,"enableUltraSSD":false,"workloadRuntime":"OCIContainer",
    "securityProfile":{"sshAccess":"LocalUser","enableVTPM":false,"enableSecureBoot":false}}"#;

/// The size that nodes get which ask for none.
const SIZE: &str = "Standard_D8ds_v5";
const SPOT: &str = "kubernetes.azure.com/scalesetpriority";

/// What cannot change once a pool is there.
const FIXED: [&str; 6] = [
    "vmSize",
    "osType",
    "maxPods",
    "availabilityZones",
    "vnetSubnetID",
    "type",
];

/// What a pool takes from its cluster.
pub(super) struct Cluster<'c> {
    pub(super) location: &'c str,
    pub(super) version: &'c str,
    pub(super) resolved: releases::Version,
    pub(super) max_pods: u64,
}

fn refused(code: &str, field: &str, message: String) -> Fault {
    Fault::bad(code, message).target(&format!("agentPoolProfile.{field}"))
}

/// Completes a pool and holds it to the rules.
pub(super) fn decide(
    cluster: &Cluster<'_>,
    pool: &mut Value,
    before: Option<&Value>,
) -> Result<(), Fault> {
    if let Some(before) = before {
        // An empty text is "you choose"; once chosen it stays.
        for field in ["vmSize", "orchestratorVersion"] {
            if pool[field] == "" {
                pool[field] = before[field].clone();
            }
        }
        document::fill(pool, before);
        check_fixed(pool, before)?;
    }
    let name = pool["name"].as_str().unwrap_or_default().to_owned();
    check_name(&name, pool["osType"] == "Windows")?;
    if pool["type"] == "FlexNodes" {
        return Ok(());
    }
    if pool["vmSize"].as_str().unwrap_or_default().is_empty() {
        pool["vmSize"] = json!(SIZE);
    }
    let size = pool["vmSize"].as_str().unwrap_or_default().to_owned();
    sizes::check(&size, cluster.location)?;
    disk(pool, &size);
    version(cluster, pool, before)?;
    upgrade_settings(pool)?;
    // Nodes that are made anew get the newest image.
    if before.is_some_and(|b| b["currentOrchestratorVersion"] != pool["currentOrchestratorVersion"])
    {
        pool["nodeImageVersion"] = json!(newest_image(pool));
    }
    if pool["maxPods"].as_u64().unwrap_or(0) == 0 {
        pool["maxPods"] = json!(cluster.max_pods);
    }
    if pool["osType"] == "Windows" && pool["osSKU"] == "Ubuntu" {
        pool["osSKU"] = json!("Windows2022");
    }
    if pool["nodeImageVersion"].is_null() {
        pool["nodeImageVersion"] = json!(image(&size, NODE_IMAGE));
    }
    spot(pool)?;
    counts(pool)?;
    system(pool)
}

fn image(size: &str, version: &str) -> String {
    let sku = if sizes::is_arm(size) {
        "2404gen2arm64containerd"
    } else {
        "2404gen2containerd"
    };
    format!("AKSUbuntu-{sku}-{version}")
}

/// The newest image there is for a pool's nodes.
pub(super) fn newest_image(pool: &Value) -> String {
    image(pool["vmSize"].as_str().unwrap_or_default(), NEWEST_IMAGE)
}

/// A count, or a part of a pool's machines, rounded up.
fn share(setting: &Value, count: u64) -> Option<u64> {
    let text = match setting {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Some(0),
    };
    match text.strip_suffix('%') {
        Some(part) => {
            let part: u64 = part.trim().parse().ok()?;
            Some((count * part).div_ceil(100))
        }
        None => text.parse().ok(),
    }
}

/// Whether the machines of a pool are being replaced.
pub(super) fn is_rolled(pool: &Value) -> bool {
    let states = ["Upgrading", "UpgradingNodeImageVersion"];
    states
        .iter()
        .any(|state| pool["provisioningState"] == **state)
}

/// How many machines a pool has more while it is upgraded; none otherwise.
pub(super) fn surge(pool: &Value) -> u64 {
    let count = pool["count"].as_u64().unwrap_or(0);
    let is_off = pool["powerState"]["code"] == "Stopped";
    if !is_rolled(pool) || count == 0 || is_off {
        return 0;
    }
    let settings = &pool["upgradeSettings"];
    let unavailable = share(&settings["maxUnavailable"], count).unwrap_or(0);
    match share(&settings["maxSurge"], count).unwrap_or(1) {
        // One at least: nodes go only when there is another for their pods, unless some may be missing.
        0 if unavailable == 0 => 1,
        surge => surge.min(count),
    }
}

fn upgrade_settings(pool: &Value) -> Result<(), Fault> {
    let settings = &pool["upgradeSettings"];
    for field in ["maxSurge", "maxUnavailable"] {
        if share(&settings[field], 100).is_none() {
            let message = format!(
                "The value of parameter agentPoolProfile.upgradeSettings.{field} is invalid: it has to be a number or \
                 a percentage."
            );
            return Err(refused(
                "InvalidParameter",
                &format!("upgradeSettings.{field}"),
                message,
            ));
        }
    }
    let bounds = [
        // Azure wants five at least; whoever rehearses has no time to lose.
        ("drainTimeoutInMinutes", 1, 1440),
        ("nodeSoakDurationInMinutes", 0, 30),
    ];
    for (field, least, most) in bounds {
        let fits = settings[field]
            .as_u64()
            .is_none_or(|n| (least..=most).contains(&n));
        if !fits {
            let message = format!(
                "The value of parameter agentPoolProfile.upgradeSettings.{field} is invalid: it has to be between \
                 {least} and {most}."
            );
            return Err(refused(
                "InvalidParameter",
                &format!("upgradeSettings.{field}"),
                message,
            ));
        }
    }
    Ok(())
}

fn check_name(name: &str, is_windows: bool) -> Result<(), Fault> {
    let longest = if is_windows { 6 } else { 12 };
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_lowercase());
    let goes_on = chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    match starts && goes_on && name.len() <= longest {
        true => Ok(()),
        false => Err(refused(
            "InvalidParameter",
            "name",
            format!(
                "The value of parameter agentPoolProfile.name is \
            invalid. Error details: Invalid agent pool name '{name}': it must start with a lower-case letter and have \
            only lower-case letters and digits, at most {longest} characters."
            ),
        )),
    }
}

fn check_fixed(pool: &Value, before: &Value) -> Result<(), Fault> {
    for field in FIXED {
        let (is, was) = (&pool[field], &before[field]);
        let says_nothing = is.is_null() || *is == "" || *is == 0;
        if !was.is_null() && !says_nothing && is != was {
            let message = format!("Changing property 'properties.{field}' is not allowed.");
            return Err(refused("PropertyChangeNotAllowed", field, message));
        }
    }
    Ok(())
}

/// The disk of the system: in the cache of the machine where it fits.
fn disk(pool: &mut Value, size: &str) {
    let cache = u64::from(sizes::cache_gib(size));
    if pool["osDiskType"].is_null() {
        let asked = pool["osDiskSizeGB"].as_u64().unwrap_or(0);
        let fits = cache >= 128 && asked <= cache;
        pool["osDiskType"] = json!(if fits { "Ephemeral" } else { "Managed" });
    }
    if pool["osDiskSizeGB"].as_u64().unwrap_or(0) == 0 {
        let is_ephemeral = pool["osDiskType"] == "Ephemeral";
        pool["osDiskSizeGB"] = json!(if is_ephemeral { cache.min(300) } else { 128 });
    }
}

fn version(cluster: &Cluster<'_>, pool: &mut Value, before: Option<&Value>) -> Result<(), Fault> {
    let asked = pool["orchestratorVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let asked = if asked.is_empty() {
        cluster.version.to_owned()
    } else {
        asked
    };
    let was = before.and_then(|b| b["orchestratorVersion"].as_str());
    let kept = before
        .and_then(|b| b["currentOrchestratorVersion"].as_str())
        .filter(|_| was == Some(&asked));
    let resolved = match kept {
        Some(kept) => kept.to_owned(),
        None => {
            let version = releases::check(&asked, cluster.location)?;
            if version > cluster.resolved {
                let message = format!(
                    "Node pool version {version} and control plane version {} are incompatible. Node \
                    pool version cannot be newer than the control plane's.",
                    cluster.resolved
                );
                return Err(refused(
                    "NodePoolMcVersionIncompatible",
                    "orchestratorVersion",
                    message,
                ));
            }
            if version.0 + 3 < cluster.resolved.0 {
                let message = format!(
                    "Node pool version {version} and control plane version {} are incompatible. Minor \
                    version of node pool is more than three behind.",
                    cluster.resolved
                );
                return Err(refused(
                    "NodePoolMcVersionIncompatible",
                    "orchestratorVersion",
                    message,
                ));
            }
            version.to_string()
        }
    };
    pool["orchestratorVersion"] = json!(asked);
    pool["currentOrchestratorVersion"] = json!(resolved);
    Ok(())
}

fn spot(pool: &mut Value) -> Result<(), Fault> {
    if pool["scaleSetPriority"] != "Spot" {
        return Ok(());
    }
    if pool["mode"] == "System" {
        let message = "A system pool cannot have spot machines.".to_owned();
        return Err(refused("InvalidParameter", "scaleSetPriority", message));
    }
    document::fill(
        pool,
        &json!({"scaleSetEvictionPolicy": "Delete", "spotMaxPrice": -1.0, "nodeLabels": {},
        "nodeTaints": []}),
    );
    pool["nodeLabels"][SPOT] = json!("spot");
    let taint = json!(format!("{SPOT}=spot:NoSchedule"));
    if let Some(taints) = pool["nodeTaints"].as_array_mut()
        && !taints.contains(&taint)
    {
        taints.push(taint);
    }
    Ok(())
}

fn counts(pool: &Value) -> Result<(), Fault> {
    let count = pool["count"].as_u64().unwrap_or(0);
    if count > 1000 {
        let message = format!(
            "The value of parameter agentPoolProfile.count is invalid: {count} is more than 1000."
        );
        return Err(refused("InvalidParameter", "count", message));
    }
    if pool["enableAutoScaling"] != true {
        return Ok(());
    }
    let bound = |field: &str| pool[field].as_u64();
    let (Some(least), Some(most)) = (bound("minCount"), bound("maxCount")) else {
        let message =
            "minCount and maxCount are required when enableAutoScaling is true.".to_owned();
        return Err(refused("InvalidParameter", "minCount", message));
    };
    match (least..=most).contains(&count) {
        true => Ok(()),
        false => Err(refused(
            "InvalidParameter",
            "count",
            format!(
                "The node count {count} of the pool with autoscaling \
            has to be between minCount {least} and maxCount {most}."
            ),
        )),
    }
}

fn system(pool: &Value) -> Result<(), Fault> {
    if pool["mode"] != "System" {
        return Ok(());
    }
    if pool["osType"] == "Windows" {
        return Err(refused(
            "InvalidParameter",
            "mode",
            "A system pool has to run Linux.".into(),
        ));
    }
    if pool["count"].as_u64().unwrap_or(0) == 0 && pool["powerState"]["code"] != "Stopped" {
        return Err(refused(
            "InvalidParameter",
            "count",
            "A system pool has to have at least one node.".into(),
        ));
    }
    let taints = pool["nodeTaints"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let mut foreign = taints.filter(|taint| {
        *taint != "CriticalAddonsOnly=true:NoSchedule" && taint.ends_with("NoSchedule")
    });
    match foreign.next() {
        Some(taint) => Err(refused(
            "SystemPoolHasRestrictedTaint",
            "nodeTaints",
            format!(
                "System pool has restricted \
            taint '{taint}'. Only CriticalAddonsOnly=true:NoSchedule is allowed."
            ),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster<'static> {
        Cluster {
            location: "eastus",
            version: "1.35",
            resolved: releases::Version(35, 5),
            max_pods: 250,
        }
    }

    fn decided(mut pool: Value) -> Result<Value, String> {
        let defaults: Value = serde_json::from_str(DEFAULTS).unwrap();
        document::fill(&mut pool, &defaults);
        decide(&cluster(), &mut pool, None)
            .map(|()| pool)
            .map_err(|fault| fault.code)
    }

    #[test]
    fn pools_are_completed_as_aks_completes_them() {
        let pool = decided(
            json!({"name": "nodepool1", "count": 3, "vmSize": "Standard_D2s_v3", "mode": "System"}),
        )
        .unwrap();
        assert_eq!(pool["osDiskSizeGB"], 128);
        assert_eq!(pool["osDiskType"], "Managed");
        assert_eq!(pool["maxPods"], 250);
        assert_eq!(pool["currentOrchestratorVersion"], "1.35.5");
        let spot =
            decided(json!({"name": "spot", "scaleSetPriority": "Spot", "nodeTaints": []})).unwrap();
        assert_eq!(
            spot["nodeTaints"][0],
            "kubernetes.azure.com/scalesetpriority=spot:NoSchedule"
        );
        assert_eq!(spot["osDiskType"], "Ephemeral");
    }

    #[test]
    fn pools_that_are_upgraded_have_more_machines_meanwhile() {
        for (count, surge_setting, unavailable, expected) in [
            (3, json!("10%"), "0", 1),
            (20, json!("10%"), "0", 2),
            (21, json!("10%"), "0", 3),
            (3, json!("33%"), "0", 1),
            (4, json!(2), "0", 2),
            (2, json!("5"), "0", 2),
            (3, json!("0"), "0", 1),
            (3, json!("0"), "1", 0),
            (0, json!("1"), "0", 0),
            (3, Value::Null, "0", 1),
        ] {
            let mut pool = json!({"count": count, "provisioningState": "Upgrading",
                "upgradeSettings": {"maxSurge": surge_setting, "maxUnavailable": unavailable}});
            assert_eq!(surge(&pool), expected, "{pool}");
            pool["provisioningState"] = json!("Scaling");
            assert_eq!(surge(&pool), 0);
        }
    }

    #[test]
    fn pools_against_the_rules_are_refused() {
        for (pool, code) in [
            (json!({"name": "Upper"}), "InvalidParameter"),
            (json!({"name": "averyverylongname"}), "InvalidParameter"),
            (
                json!({"name": "winpool", "osType": "Windows"}),
                "InvalidParameter",
            ),
            (
                json!({"name": "p", "vmSize": "Standard_Nothing"}),
                "InvalidParameter",
            ),
            (
                json!({"name": "p", "orchestratorVersion": "1.36"}),
                "NodePoolMcVersionIncompatible",
            ),
            (
                json!({"name": "p", "orchestratorVersion": "1.2"}),
                "K8sVersionNotSupported",
            ),
            (
                json!({"name": "p", "mode": "System", "nodeTaints": ["a=b:NoSchedule"]}),
                "SystemPoolHasRestrictedTaint",
            ),
            (
                json!({"name": "p", "upgradeSettings": {"maxSurge": "many"}}),
                "InvalidParameter",
            ),
            (
                json!({"name": "p", "upgradeSettings": {"nodeSoakDurationInMinutes": 31}}),
                "InvalidParameter",
            ),
            (
                json!({"name": "p", "mode": "System", "scaleSetPriority": "Spot"}),
                "InvalidParameter",
            ),
            (
                json!({"name": "p", "enableAutoScaling": true, "minCount": 2, "maxCount": 3, "count": 1}),
                "InvalidParameter",
            ),
        ] {
            assert_eq!(decided(pool.clone()).unwrap_err(), code, "{pool}");
        }
    }

    #[test]
    fn what_is_fixed_cannot_be_changed() {
        let before = decided(json!({"name": "p", "vmSize": "Standard_D2s_v3"})).unwrap();
        let mut same = json!({"name": "p", "vmSize": "", "count": 5});
        decide(&cluster(), &mut same, Some(&before)).unwrap();
        assert_eq!(same["vmSize"], "Standard_D2s_v3");
        let mut other = json!({"name": "p", "vmSize": "Standard_D4s_v3"});
        assert_eq!(
            decide(&cluster(), &mut other, Some(&before))
                .unwrap_err()
                .code,
            "PropertyChangeNotAllowed"
        );
        let mut more = json!({"name": "p", "count": 5});
        decide(&cluster(), &mut more, Some(&before)).unwrap();
        assert_eq!(more["vmSize"], "Standard_D2s_v3");
    }
}
