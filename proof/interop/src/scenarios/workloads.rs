//! Workloads from the object to pods on a node, and back to nothing.

use anyhow::{Result, ensure};

use crate::cluster::Cluster;
use crate::hollow_node::HollowNode;
use crate::kubectl::Kubectl;
use crate::wait::eventually;

const OTHERS: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "example.com/db:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "example.com/agent:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completions: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: once, image: "example.com/once:1"}]}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 2
  selector: {app: old}
  template:
    metadata: {labels: {app: old}}
    spec: {containers: [{name: old, image: "example.com/old:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  ttlSecondsAfterFinished: 1
  template:
    spec: {restartPolicy: Never, containers: [{name: one, image: "example.com/one:1"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: each-minute}
spec:
  schedule: "* * * * *"
  successfulJobsHistoryLimit: 1
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: tick, image: "example.com/tick:1"}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
"#;

/// Everything in turn, on a node that only exists in the API.
pub(crate) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    let kubectl = &cluster.kubectl;
    eventually("pods can be made", || {
        kubectl.run("get serviceaccount default")
    })?;
    let node = HollowNode::start(kubectl, "hollow")?;
    deployment_comes_up(kubectl, &node)?;
    others_come_up(kubectl, &node)?;
    clock_strikes(kubectl, &node)?;
    rolls_out_and_scales(kubectl, &node)?;
    evicts_within_the_budget(kubectl)?;
    garbage_goes(kubectl, &node)?;
    namespace_ends(kubectl, &node)
}

fn deployment_comes_up(kubectl: &Kubectl, node: &HollowNode) -> Result<()> {
    kubectl.run("create deployment web --image=example.com/web:1 --replicas=3 --port=80")?;
    kubectl.run("expose deployment web --port=80")?;
    eventually("three pods are bound", || {
        let nodes = kubectl.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}")?;
        ensure!(nodes == "hollow hollow hollow", "bound to: {nodes:?}");
        Ok(())
    })?;
    available(kubectl, node, "deployment web", "3")?;
    eventually("the service has three endpoints", || {
        let slices = kubectl.run(
            "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].conditions.ready}",
        )?;
        ensure!(slices == "true true true", "ready: {slices:?}");
        Ok(())
    })
}

fn available(kubectl: &Kubectl, node: &HollowNode, object: &str, wanted: &str) -> Result<()> {
    eventually(&format!("{object} is available"), || {
        node.tend()?;
        kubectl.expect(
            &format!("get {object}"),
            "{.status.availableReplicas}",
            wanted,
        )
    })
}

fn others_come_up(kubectl: &Kubectl, node: &HollowNode) -> Result<()> {
    kubectl.with_input("create -f -", OTHERS)?;
    available(kubectl, node, "statefulset db", "2")?;
    eventually("the daemon set is ready", || {
        node.tend()?;
        kubectl.expect("get daemonset agent", "{.status.numberReady}", "1")
    })?;
    eventually("the job is complete", || {
        node.tend()?;
        kubectl.expect("get job once", "{.status.succeeded}", "2")
    })?;
    kubectl.run("wait --for=condition=Complete --timeout=30s job/once")?;
    eventually("the replication controller has its pods", || {
        node.tend()?;
        kubectl.expect("get rc old", "{.status.readyReplicas}", "2")
    })?;
    eventually("the indexed job is complete and has gone", || {
        node.tend()?;
        kubectl.refused("get job indexed", "(NotFound)")
    })
}

// The longest wait there is: up to a minute until the clock strikes.
fn clock_strikes(kubectl: &Kubectl, node: &HollowNode) -> Result<()> {
    let mut last = Ok(());
    for _ in 0..2 {
        last = eventually("the cron job has run", || {
            node.tend()?;
            let ran =
                kubectl.run("get cronjob each-minute -o jsonpath={.status.lastSuccessfulTime}")?;
            ensure!(!ran.is_empty(), "it has not");
            Ok(())
        });
        if last.is_ok() {
            break;
        }
    }
    last?;
    kubectl.run("delete cronjob each-minute").map(drop)
}

fn rolls_out_and_scales(kubectl: &Kubectl, node: &HollowNode) -> Result<()> {
    kubectl.run("set image deployment web web=example.com/web:2")?;
    eventually("the new pods have replaced the old", || {
        node.tend()?;
        let path = "{.status.updatedReplicas} {.status.availableReplicas} {.status.replicas}";
        let found = kubectl.args(&[
            "get",
            "deployment",
            "web",
            "-o",
            &format!("jsonpath={path}"),
        ])?;
        ensure!(found == "3 3 3", "updated, available, all: {found}");
        Ok(())
    })?;
    kubectl.run("rollout status deployment web --timeout=30s")?;
    kubectl.run("rollout undo deployment web")?;
    kubectl.run("scale deployment web --replicas=2")?;
    available(kubectl, node, "deployment web", "2")?;
    eventually("the old image is back", || {
        node.tend()?;
        let images =
            kubectl.run("get pods -l app=web -o jsonpath={.items[*].spec.containers[*].image}")?;
        ensure!(
            images == "example.com/web:1 example.com/web:1",
            "images: {images:?}"
        );
        Ok(())
    })
}

fn evicts_within_the_budget(kubectl: &Kubectl) -> Result<()> {
    eventually("the budget is counted", || {
        kubectl.expect("get pdb web", "{.status.currentHealthy}", "2")
    })?;
    kubectl.run("cordon hollow")?;
    let drain = "drain hollow --pod-selector=app=web --ignore-daemonsets --timeout=3s";
    kubectl.refused(
        drain,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    )?;
    kubectl.run("uncordon hollow").map(drop)
}

fn garbage_goes(kubectl: &Kubectl, node: &HollowNode) -> Result<()> {
    kubectl.run("delete deployment web --cascade=foreground --wait=false")?;
    eventually("the deployment and its pods are gone", || {
        node.tend()?;
        let left = kubectl.run("get deployments,replicasets,pods -l app=web -o name")?;
        ensure!(left.is_empty(), "left: {left}");
        Ok(())
    })?;
    kubectl.run("delete statefulset db --cascade=orphan")?;
    let orphans = kubectl.run("get pods -l app=db -o name")?;
    ensure!(orphans.lines().count() == 2, "orphans: {orphans}");
    Ok(())
}

fn namespace_ends(kubectl: &Kubectl, node: &HollowNode) -> Result<()> {
    kubectl.run("create namespace brief")?;
    eventually("the namespace has an account", || {
        kubectl.run("get serviceaccount default -n brief")
    })?;
    kubectl.run("create deployment web -n brief --image=example.com/web:1 --replicas=2")?;
    kubectl.run("create configmap a -n brief")?;
    available(kubectl, node, "deployment web -n brief", "2")?;
    kubectl.run("delete namespace brief --wait=false")?;
    eventually("the namespace is gone", || {
        node.tend()?;
        kubectl.refused("get namespace brief", "(NotFound)")
    })
}
