//! The versions of Kubernetes there are.

use serde_json::{Value, json};

use super::super::Call;
use crate::arm::fault::Fault;
use crate::exchange::Reply;
use crate::turn::Turn;

/// A minor version: its patches, oldest first; whether a cluster gets it that asks for none; whether it is a preview.
struct Minor(u32, &'static [u32], bool, bool);

const MINORS: [Minor; 5] = [
    Minor(33, &[7, 8], false, false),
    Minor(34, &[4, 8], false, false),
    Minor(35, &[4, 5], true, false),
    Minor(36, &[0, 1, 4], false, false),
    Minor(37, &[0], false, true),
];

/// The image that new nodes run.
pub(super) const NODE_IMAGE: &str = "202606.08.1";
/// One that came after it: what nodes are upgraded to.
pub(super) const NEWEST_IMAGE: &str = "202606.15.0";

/// A version: minor and patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}.{}", self.0, self.1)
    }
}

fn all() -> impl Iterator<Item = Version> {
    MINORS
        .iter()
        .flat_map(|minor| minor.1.iter().map(move |patch| Version(minor.0, *patch)))
}

/// The version that is meant: nothing is the default, a minor is its newest patch.
pub(super) fn resolve(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        _ if text.is_empty() => newest(MINORS.iter().find(|minor| minor.2)?.0),
        (Some(Ok(1)), Some(Ok(minor)), None, _) => newest(minor),
        (Some(Ok(1)), Some(Ok(minor)), Some(Ok(patch)), None) => {
            all().find(|v| *v == Version(minor, patch))
        }
        _ => None,
    }
}

fn newest(minor: u32) -> Option<Version> {
    all().filter(|version| version.0 == minor).max()
}

/// What a request that names no version gets: the alias of the default minor.
pub(super) fn default_alias() -> String {
    let minor = MINORS
        .iter()
        .find(|minor| minor.2)
        .map_or(35, |minor| minor.0);
    format!("1.{minor}")
}

/// Refuses a version that there is not.
pub(super) fn check(text: &str, location: &str) -> Result<Version, Fault> {
    resolve(text).ok_or_else(|| {
        let message = format!(
            "Managed cluster version {text} is not supported in this region. Please use \
             [az aks get-versions --location {location}] command to get the supported version list in this region. For \
             more information, please check https://aka.ms/supported-version-list"
        );
        Fault::bad("K8sVersionNotSupported", message)
    })
}

/// Where a version can be upgraded to: newer patches, and the next minor.
pub(super) fn upgrades(from: Version) -> Vec<Version> {
    let fits = |to: &Version| *to > from && (to.0 == from.0 || to.0 == from.0 + 1);
    all().filter(fits).collect()
}

pub(super) fn is_preview(version: Version) -> bool {
    MINORS.iter().any(|minor| minor.0 == version.0 && minor.3)
}

/// `…/kubernetesVersions`; the list is called `values`.
pub(super) fn versions(_: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    let shown: Vec<Value> = MINORS.iter().rev().map(minor).collect();
    Ok(Reply::ok(json!({ "values": shown })))
}

fn minor(minor: &Minor) -> Value {
    let patches: serde_json::Map<String, Value> = minor
        .1
        .iter()
        .map(|patch| {
            let version = Version(minor.0, *patch);
            let upgrades: Vec<String> = upgrades(version).iter().map(ToString::to_string).collect();
            (version.to_string(), json!({ "upgrades": upgrades }))
        })
        .collect();
    let mut shown = json!({"version": format!("1.{}", minor.0), "patchVersions": patches,
        "capabilities": {"supportPlan": ["KubernetesOfficial", "AKSLongTermSupport"]}});
    if minor.2 {
        shown["isDefault"] = json!(true);
    }
    if minor.3 {
        shown["isPreview"] = json!(true);
    }
    shown
}

pub(super) fn node_images(_: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    let skus = ["2404gen2containerd", "2204gen2containerd"];
    let row = |sku: &&str| {
        json!({"os": "AKSUbuntu", "sku": sku, "version": NEWEST_IMAGE,
        "fullName": format!("AKSUbuntu-{sku}-{NEWEST_IMAGE}")})
    };
    Ok(Reply::list(skus.iter().map(row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_resolve_as_they_are_asked_for() {
        for (text, expected) in [
            ("", Some(Version(35, 5))),
            ("1.34", Some(Version(34, 8))),
            ("1.34.4", Some(Version(34, 4))),
            ("1.34.5", None),
            ("1.20", None),
            ("latest", None),
            ("1.34.4.1", None),
        ] {
            assert_eq!(resolve(text), expected, "{text}");
        }
        assert_eq!(
            upgrades(Version(34, 4)),
            [Version(34, 8), Version(35, 4), Version(35, 5)]
        );
    }
}
