//! How fast the core decides, without any request: `cargo run --release -p scheduler --example core`.
//!
//! The rows are those of upstream's `scheduler_perf`, with its pods and nodes; the floor is what upstream's own CI demands of
//! its scheduler at 5,000 nodes, requests included.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people"
)]

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1 as api;
use scheduler::{Ask, Place, Placement, Pod, Preempted, Profile, Waiting};
use serde_json::{Value, json};

/// A row: its name, upstream's floor, pods that are there before, and the pods that are measured.
struct Row {
    name: &'static str,
    floor: u32,
    before: fn(usize) -> (usize, Value),
    measured: fn() -> Value,
}

const ROWS: [Row; 6] = [
    Row {
        name: "basic",
        floor: 270,
        before: |_| (0, json!({})),
        measured: || json!({}),
    },
    Row {
        name: "node affinity",
        floor: 220,
        before: |_| (0, json!({})),
        measured: node_affinity,
    },
    Row {
        name: "topology spread",
        floor: 85,
        before: |nodes| (nodes, json!({})),
        measured: spread,
    },
    Row {
        name: "anti-affinity",
        floor: 60,
        before: |_| (0, json!({})),
        measured: apart,
    },
    Row {
        name: "affinity",
        floor: 35,
        before: |nodes| (nodes, json!({})),
        measured: together,
    },
    Row {
        name: "preemption",
        floor: 160,
        before: |nodes| (4 * nodes, low()),
        measured: high,
    },
];

fn node_affinity() -> Value {
    json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone1", "zone2"] }] } ] } } } })
}

fn spread() -> Value {
    json!({ "topologySpreadConstraints": [{ "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "color": "blue" } } }] })
}

fn term(key: &str) -> Value {
    json!([{ "topologyKey": key, "labelSelector": { "matchLabels": { "color": "blue" } } }])
}

fn apart() -> Value {
    json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term("kubernetes.io/hostname") } } })
}

fn together() -> Value {
    json!({ "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": term("topology.kubernetes.io/zone") } } })
}

fn low() -> Value {
    json!({ "containers": [{ "name": "a", "resources": { "requests": { "cpu": "900m", "memory": "500Mi" } } }] })
}

fn high() -> Value {
    json!({ "priority": 10, "containers": [{ "name": "a", "resources": { "requests": { "cpu": "3", "memory": "500Mi" } } }] })
}

fn pod(spec: &Value) -> api::Pod {
    let mut pod = json!({ "metadata": { "namespace": "default", "labels": { "color": "blue" } },
        "spec": { "containers": [{ "name": "a", "image": "registry.k8s.io/pause:3.10", "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }] } });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn cluster(nodes: usize) -> Placement {
    let mut placement = Placement::new(vec![Profile::new("default-scheduler")], 7);
    for number in 0..nodes {
        let name = format!("node-{number}");
        let zone = format!("zone{}", number % 3 + 1);
        let node = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone } },
            "status": { "allocatable": { "cpu": "4", "memory": "32Gi", "pods": "110" } } });
        placement
            .cluster
            .set_node(&serde_json::from_value(node).unwrap());
    }
    placement
}

struct Run {
    placement: Placement,
    count: usize,
}

impl Run {
    fn put(&mut self, ask: &Arc<Ask>, priority: i32, row: usize) {
        self.count += 1;
        let uid = format!("uid-{}", self.count);
        let node = self.placement.cluster.name(row).to_owned();
        let pod = Pod {
            uid: &uid,
            namespace: "default",
            name: &uid,
            ask: Arc::clone(ask),
            priority,
            started: Some(0),
            is_ending: false,
            is_assumed: true,
        };
        self.placement.cluster.place(pod, &node);
    }

    /// One pod as the scheduler would place it; false if nothing can be done.
    fn one(&mut self, ask: &Arc<Ask>, priority: i32) -> bool {
        let waiting = Waiting {
            uid: "w".into(),
            namespace: "default".into(),
            name: "w".into(),
            ask: Arc::clone(ask),
            priority,
            may_preempt: true,
            ties: Arc::default(),
        };
        match self.placement.place(&waiting) {
            Place::Row(row) => self.put(ask, priority, row),
            Place::Nowhere(diagnosis) => {
                let Preempted::Node(row, victims) =
                    self.placement.preempt(&waiting, &diagnosis, &[])
                else {
                    return false;
                };
                victims
                    .iter()
                    .for_each(|uid| drop(self.placement.cluster.displace(uid)));
                self.put(ask, priority, row);
            }
            Place::NoNodes => return false,
        }
        true
    }
}

fn measure(row: &Row, nodes: usize) -> f64 {
    let mut run = Run {
        placement: cluster(nodes),
        count: 0,
    };
    let (count, spec) = (row.before)(nodes);
    let before = pod(&spec);
    let ask = Arc::new(Ask::of(&mut run.placement.cluster.symbols, &before, 0, &[]));
    for number in 0..count {
        run.put(&ask, 0, number % nodes);
    }
    let pod = pod(&(row.measured)());
    let priority = pod
        .spec
        .as_ref()
        .and_then(|s| s.priority)
        .unwrap_or_default();
    let most = if row.name == "anti-affinity" || row.name == "preemption" {
        nodes / 2
    } else {
        10 * nodes
    };
    let start = Instant::now();
    let mut placed = 0;
    while placed < most.min(10_000) && start.elapsed().as_secs() < 10 {
        // Each pod is read anew, as it would come from a watch.
        let ask = Arc::new(Ask::of(&mut run.placement.cluster.symbols, &pod, 0, &[]));
        if !run.one(&ask, priority) {
            break;
        }
        placed += 1;
    }
    f64::from(u32::try_from(placed).unwrap()) / start.elapsed().as_secs_f64()
}

fn main() {
    println!("| pods/s decided | 100 nodes | 1,000 | 5,000 | 20,000 | upstream's floor at 5,000 |");
    println!("|---|---|---|---|---|---|");
    for row in &ROWS {
        let figures = [100, 1000, 5000, 20_000].map(|nodes| format!("{:.0}", measure(row, nodes)));
        println!("| {} | {} | {} |", row.name, figures.join(" | "), row.floor);
    }
}
