//! Add-ons: what every cluster of ours runs as workloads. Their manifests are part of the program and are applied at
//! each start, as a manager of their own: what somebody else adds to the objects stays.

use serde_json::Value;

use crate::client::Client;
use crate::exit::{Code, Failure, Result};

/// Every add-on and its manifest.
const ADDONS: [(&str, &str); 1] = [("dns", include_str!("addons/dns.yaml"))];

/// Where objects of a kind are kept; `{}` is the namespace.
const COLLECTIONS: [(&str, &str); 6] = [
    ("ServiceAccount", "/api/v1/namespaces/{}/serviceaccounts"),
    ("ConfigMap", "/api/v1/namespaces/{}/configmaps"),
    ("Service", "/api/v1/namespaces/{}/services"),
    ("Deployment", "/apis/apps/v1/namespaces/{}/deployments"),
    (
        "ClusterRole",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ),
    (
        "ClusterRoleBinding",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
];

/// What manifests leave open.
pub(crate) struct Settings {
    /// The image with this program in it.
    pub(crate) image: String,
    /// The address of the cluster's DNS.
    pub(crate) cluster_dns: String,
}

/// Brings every add-on to the state its manifest describes.
pub(crate) async fn apply(client: &Client, settings: &Settings) -> Result<()> {
    for (name, manifest) in ADDONS {
        for object in objects_of(name, manifest, settings)? {
            client.apply(&path_of(name, &object)?, &object).await?;
        }
    }
    Ok(())
}

fn objects_of(name: &str, manifest: &str, settings: &Settings) -> Result<Vec<Value>> {
    let text = manifest
        .replace("$IMAGE", &settings.image)
        .replace("$CLUSTER_DNS", &settings.cluster_dns);
    let read = |document: &str| {
        let parsed = objects::yaml::parse(document.as_bytes());
        parsed.map(|parsed| parsed.value).map_err(|e| {
            Failure::new(
                Code::Failure,
                format!("the manifest of the add-on {name}: {e}"),
            )
        })
    };
    text.split("\n---\n").map(read).collect()
}

fn path_of(name: &str, object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let collection = COLLECTIONS.iter().find(|(known, _)| *known == kind);
    let (_, collection) = collection.ok_or_else(|| {
        let what = format!("the add-on {name} has a {kind}, which has no place here");
        Failure::new(Code::Failure, what)
    })?;
    let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let collection = collection.replace("{}", meta("namespace"));
    Ok(format!("{collection}/{}", meta("name")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_manifest_can_be_read_and_every_object_has_a_place() {
        let settings = Settings {
            image: "kyanite.local/kyanite:1".into(),
            cluster_dns: "10.0.0.10".into(),
        };
        for (name, manifest) in ADDONS {
            let objects = objects_of(name, manifest, &settings).unwrap();
            assert!(!objects.is_empty());
            for object in objects {
                assert!(path_of(name, &object).unwrap().starts_with("/api"));
                assert!(!object.to_string().contains('$'), "{object}");
            }
        }
    }
}
