//! One API server takes over the etcd of another.

use anyhow::{Result, ensure};

use super::store::{same, state};
use crate::cluster::{Cluster, Whose};
use crate::kubectl::Kubectl;

const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: entry, labels: {set: entries}}
data: {name: entry}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "example.com/web:1", resources: {requests: {cpu: 100m, memory: 1Gi}}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hidden}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "example.com/c:1"}]}}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {}, policyTypes: [Ingress]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: interop}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: slow}
provisioner: example.com/slow
"#;

const KINDS: &str = "configmaps,deployments,services,secrets,cronjobs,networkpolicies,clusterroles,storageclasses,\
    namespaces,flowschemas,prioritylevelconfigurations,priorityclasses,clusterrolebindings,servicecidrs,ipaddresses";

/// The first server writes, the second reads and changes, the first takes back.
pub(crate) fn run(cluster: &mut Cluster<'_>, (first, second): (Whose, Whose)) -> Result<()> {
    cluster.kubectl.with_input("create -f -", OBJECTS)?;
    let (before, described) = (state(&cluster.kubectl)?, specs(&cluster.kubectl)?);
    cluster.replace_api_server(second)?;
    same(&before, &cluster.kubectl, "the second server took over")?;
    same_specs(
        &described,
        &specs(&cluster.kubectl)?,
        "the second server took over",
    )?;
    change(&cluster.kubectl)?;
    let described = specs(&cluster.kubectl)?;
    cluster.replace_api_server(first)?;
    same_specs(
        &described,
        &specs(&cluster.kubectl)?,
        "the first server took back",
    )
}

fn change(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("scale deployment web --replicas=4")?;
    kubectl.run("label service web changed=yes")?;
    kubectl.run("delete cronjob nightly")?;
    kubectl.with_input("apply --server-side --force-conflicts -f -", OBJECTS)?;
    kubectl
        .run("create configmap second --from-literal=a=b")
        .map(drop)
}

// Everything that only its author may change, one object per line.
fn specs(kubectl: &Kubectl) -> Result<Vec<String>> {
    let list = kubectl.json(&format!("get {KINDS} -A"))?;
    let mut lines: Vec<String> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|o| !kept_by_servers(o))
        .map(|object| {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"].take();
            object["metadata"]["managedFields"].take();
            object["status"].take();
            object.to_string()
        })
        .collect();
    lines.sort();
    Ok(lines)
}

// Each server writes its own view of these when it starts.
fn kept_by_servers(object: &serde_json::Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    object["metadata"]["namespace"] == "kube-system" || name.starts_with("system:")
}

fn same_specs(before: &[String], after: &[String], event: &str) -> Result<()> {
    let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
    let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
    ensure!(
        lost.is_empty() && new.is_empty(),
        "after {event}: only before {lost:?}, only after {new:?}"
    );
    Ok(())
}
