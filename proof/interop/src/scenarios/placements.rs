//! Where pods go: one after the other, each with a single best node by the default plugins and their weights.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::hollow_node::{HollowNode, Shape};
use crate::kubectl::Kubectl;
use crate::wait::eventually;

const SPOT: &str = "kubernetes.azure.com/scalesetpriority";

/// Name, processors, zone, what else it is labelled, and the effect of its taint.
const NODES: [(&str, u32, &str, &str, &str); 5] = [
    ("big", 16, "a", "", ""),
    ("small", 2, "a", "ssd", ""),
    ("far", 8, "b", "", ""),
    ("last", 8, "b", "", "PreferNoSchedule"),
    ("rare", 8, "c", "", "NoSchedule"),
];

/// Where a pod goes, or what is said of why it goes nowhere.
enum Wanted {
    On(&'static str),
    Nowhere(&'static str),
}

/// A pod, and what happens to it after those above it.
struct Case {
    name: &'static str,
    app: &'static str,
    processors: u32,
    spec: fn() -> Value,
    wanted: Wanted,
}

use Wanted::{Nowhere, On};

#[rustfmt::skip]
const CASES: [Case; 11] = [
    Case { name: "plain", app: "web", processors: 1, spec: || json!({}), wanted: On("big") },
    Case { name: "selected", app: "cache", processors: 1, spec: || json!({"nodeSelector": {"disk": "ssd"}}), wanted: On("small") },
    Case { name: "preferring", app: "x", processors: 1, wanted: On("far"), spec: || json!({"affinity": {"nodeAffinity":
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": in_zone("b")}]}}}) },
    Case { name: "spot", app: "x", processors: 1, wanted: On("rare"), spec: || json!({"tolerations": [{"key": SPOT, "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [in_zone("c")]}}}}) },
    Case { name: "apart", app: "web", processors: 1, spec: || json!({"affinity": {"podAntiAffinity": beside("web")}}), wanted: On("far") },
    Case { name: "together", app: "x", processors: 1, spec: || json!({"affinity": {"podAffinity": beside("cache")}}), wanted: On("big") },
    Case { name: "first-of-three", app: "spread", processors: 1, spec: spread, wanted: On("big") },
    Case { name: "second-of-three", app: "spread", processors: 1, spec: spread, wanted: On("far") },
    Case { name: "third-of-three", app: "spread", processors: 1, spec: spread, wanted: Nowhere("4 node(s) didn't match pod topology spread constraints") },
    Case { name: "large", app: "x", processors: 12, spec: || json!({}), wanted: On("big") },
    Case { name: "too-large", app: "x", processors: 12, spec: || json!({}), wanted: Nowhere("4 Insufficient cpu") },
];

fn in_zone(zone: &str) -> Value {
    json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]})
}

fn beside(app: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": app}}}]})
}

fn spread() -> Value {
    json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "spread"}}}]})
}

/// Every pod in turn.
pub(crate) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    let kubectl = &cluster.kubectl;
    eventually("pods can be made", || {
        kubectl.run("get serviceaccount default")
    })?;
    let nodes: Result<Vec<HollowNode>> = NODES
        .iter()
        .map(|node| HollowNode::shaped(kubectl, node.0, shape(node)))
        .collect();
    let _beating = nodes?;
    CASES.iter().try_for_each(|case| placed(kubectl, case))
}

fn shape((_, processors, zone, disk, effect): &(&str, u32, &str, &str, &str)) -> Shape {
    let taints = match *effect {
        "" => json!([]),
        effect => json!([{"key": SPOT, "value": "spot", "effect": effect}]),
    };
    Shape {
        room: json!({"cpu": processors.to_string(), "memory": format!("{}Gi", processors * 2), "pods": "110"}),
        labels: json!({"topology.kubernetes.io/zone": zone, "disk": disk}),
        taints,
    }
}

fn placed(kubectl: &Kubectl, case: &Case) -> Result<()> {
    let mut spec = (case.spec)();
    spec["containers"] = json!([{"name": "main", "image": "example.com/app:1", "resources": {"requests":
        {"cpu": case.processors.to_string(), "memory": format!("{}Gi", case.processors * 2)}}}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": case.name, "labels": {"app": case.app}}});
    kubectl.with_input("create -f -", &pod.to_string())?;
    let name = case.name;
    match case.wanted {
        On(node) => eventually(&format!("{name} has a node"), || {
            kubectl.expect(&format!("get pod {name}"), "{.spec.nodeName}", node)
        }),
        Nowhere(reason) => {
            eventually(&format!("{name} is told why it waits"), || {
                let said = kubectl.run(&format!(
                    "get pod {name} -o jsonpath={{.status.conditions[?(@.type==\"PodScheduled\")].message}}"
                ))?;
                ensure!(said.contains(reason), "said: {said:?}");
                Ok(())
            })?;
            // What waits would take the next one's place.
            kubectl
                .run(&format!("delete pod {name} --force --grace-period=0"))
                .map(drop)
        }
    }
}
