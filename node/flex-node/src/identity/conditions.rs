//! What a cluster must be so that a machine from elsewhere can be its node. The judgement is pure.

use serde_json::Value;

use super::{Refused, arm, cluster_of, refused};
use crate::config::{Config, Join, Kubelet};
use crate::machine::Version;

/// How many minor versions a kubelet may be behind.
const BEHIND: u32 = 3;

/// Whether the cluster is fit, as Azure describes it; everything that is wrong at once.
pub async fn conditions(config: &Config) -> Result<String, Refused> {
    let cluster = cluster_of(config)?;
    let doing = format!("look at {}", cluster.id);
    let needs = "Azure Kubernetes Service Cluster User Role";
    let found: Option<Value> = arm(config)
        .await?
        .get(&cluster.id, "")
        .await
        .map_err(refused(&doing, needs))?;
    let remedy = "see `az aks show`, and check `azure.targetCluster.resourceId`";
    let found =
        found.ok_or_else(|| Refused::new(format!("{} is not there", cluster.id), remedy))?;
    match unfit(&found["properties"], config).as_slice() {
        [] => Ok(format!("{} can have this node", cluster.name)),
        wrong => Err(Refused::new(wrong.join("; "), remedy)),
    }
}

/// What is wrong with a cluster, each with what mends it.
fn unfit(cluster: &Value, config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    if cluster["powerState"]["code"] == "Stopped" {
        wrong.push("the cluster is stopped (`az aks start`)".to_owned());
    }
    // Clusters of a cloud of one's own believe its tokens anyway.
    let is_public = config.azure.manager.is_empty();
    let has_exec = !matches!(config.join, Join::BootstrapToken(_));
    if is_public && has_exec && !cluster["aadProfile"].is_object() {
        let what = "the cluster does not believe Entra ID's tokens (`az aks update --enable-aad --enable-azure-rbac`)";
        wrong.push(what.to_owned());
    }
    let network = &cluster["networkProfile"];
    if network["networkPlugin"] == "azure" && network["networkPluginMode"] != "overlay" {
        let what = "pods have addresses of the virtual network, which ends before this machine (networkPluginMode overlay is needed)";
        wrong.push(what.to_owned());
    }
    let server = cluster["currentKubernetesVersion"]
        .as_str()
        .and_then(Version::parse);
    if let (Kubelet::Upstream { version, .. }, Some(server)) = (&config.components.kubelet, server)
    {
        wrong.extend(Version::parse(version).and_then(|kubelet| skewed(kubelet, server)));
    }
    wrong
}

/// A kubelet is no newer than its API server, and at most three minor versions older.
fn skewed(kubelet: Version, server: Version) -> Option<String> {
    let (Version([_, own, _]), Version([_, theirs, _])) = (kubelet, server);
    match () {
        () if own > theirs => Some(format!(
            "kubelet {kubelet} is newer than the cluster, which runs {server}"
        )),
        () if own + BEHIND < theirs => Some(format!(
            "kubelet {kubelet} is too old for the cluster, which runs {server}"
        )),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use crate::config::read;

    fn config(version: &str, manager: &str) -> Config {
        let id = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
        let text = json!({"azure": {"tenantId": "t", "resourceManagerEndpoint": manager, "arc": {"enabled": true},
            "servicePrincipal": {"clientId": "c", "clientSecret": "s"},
            "targetCluster": {"resourceId": id, "location": "l"}}, "kubernetes": {"version": version}});
        read(&text.to_string(), &|_| Err(String::new()))
            .unwrap()
            .config
    }

    #[test]
    fn what_is_wrong_with_a_cluster_is_said_all_at_once() {
        let wrong = unfit(
            &json!({"powerState": {"code": "Stopped"}, "currentKubernetesVersion": "1.35.1",
                "networkProfile": {"networkPlugin": "azure"}}),
            &config("1.36.0", ""),
        );
        assert_eq!(wrong.len(), 4, "{wrong:#?}");
        let fit = json!({"powerState": {"code": "Running"}, "currentKubernetesVersion": "1.36.1", "aadProfile": {"managed": true},
            "networkProfile": {"networkPlugin": "azure", "networkPluginMode": "overlay"}});
        assert_eq!(unfit(&fit, &config("1.33.0", "")), [""; 0]);
        assert_eq!(
            unfit(&fit, &config("1.32.9", "")).len(),
            1,
            "four minor versions behind"
        );
        let ours = json!({"currentKubernetesVersion": "1.36.1"});
        assert_eq!(
            unfit(&ours, &config("1.36.0", "https://cloud.example")),
            [""; 0]
        );
    }
}
