//! How far an add-on's workloads are.

use serde_json::Value;

use super::{Addon, LABEL};
use crate::client::Client;
use crate::exit::Result;
use crate::manifest::collection;

/// How many pods an add-on wants, and how many of them are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) wanted: u64,
    pub(crate) ready: u64,
}

impl Readiness {
    /// Whether one can rely on it: nothing is missing, or what there is does the work for all.
    pub(crate) fn is_enough(self, addon: &Addon) -> bool {
        let is_everywhere = addon.manifest.contains("kind: DaemonSet");
        self.wanted > 0 && (self.ready >= self.wanted || self.ready > 0 && !is_everywhere)
    }

    fn of(object: &Value) -> Readiness {
        let status = |field: &str| object["status"][field].as_u64();
        // What a controller has not looked at yet says nothing of itself.
        let seen = object["status"]["observedGeneration"].as_u64();
        if seen < object["metadata"]["generation"].as_u64() {
            return Readiness {
                wanted: 1,
                ready: 0,
            };
        }
        let of_deployment = || object["spec"]["replicas"].as_u64();
        Readiness {
            wanted: status("desiredNumberScheduled")
                .or_else(of_deployment)
                .unwrap_or(1),
            ready: status("numberReady")
                .or_else(|| status("readyReplicas"))
                .unwrap_or(0),
        }
    }
}

/// How far an add-on is; all nothing when there is none of it.
pub(crate) async fn of(client: &Client, addon: &Addon) -> Result<Readiness> {
    let mut all = Readiness::default();
    for kind in ["DaemonSet", "Deployment"] {
        let all_of_kind = collection(kind, "").unwrap_or_default();
        let path = format!("{all_of_kind}?labelSelector={LABEL}%3D{}", addon.name);
        let list = client.get(&path).await?;
        for object in list["items"].as_array().into_iter().flatten() {
            let one = Readiness::of(object);
            all.wanted += one.wanted;
            all.ready += one.ready;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::super::find;
    use super::*;

    #[test]
    fn what_is_ready_is_read_from_either_kind_once_its_controller_has_seen_it() {
        let of = |wanted, ready| Readiness { wanted, ready };
        for (object, expected) in [
            (
                json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": {"observedGeneration": 2, "readyReplicas": 1}}),
                of(2, 1),
            ),
            (
                json!({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": {"observedGeneration": 1, "readyReplicas": 2}}),
                of(1, 0),
            ),
            (
                json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "numberReady": 3}}),
                of(3, 3),
            ),
            (
                json!({"metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": {}}),
                of(1, 0),
            ),
        ] {
            assert_eq!(Readiness::of(&object), expected, "{object}");
        }
    }

    #[test]
    fn one_server_of_names_is_enough_but_every_node_needs_its_proxy() {
        let half = Readiness {
            wanted: 2,
            ready: 1,
        };
        assert!(half.is_enough(find("dns").unwrap()));
        assert!(!half.is_enough(find("kube-proxy").unwrap()));
        assert!(!Readiness::default().is_enough(find("dns").unwrap()));
    }
}
