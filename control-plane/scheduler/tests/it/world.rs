//! Clusters as documents, and the scheduler's mind fed with them.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as api;
use scheduler::{Ask, Place, Placement, Pod, Profile, Waiting};
use serde_json::{Value, json};

/// Nodes, pods on nodes, and namespaces: documents only.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Value>,
    /// With the name of their node.
    pub(crate) pods: Vec<(Value, String)>,
    pub(crate) namespaces: Vec<Value>,
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(crate) fn uid(pod: &Value) -> String {
    format!(
        "{}/{}",
        pod["metadata"]["namespace"].as_str().unwrap_or_default(),
        name(pod)
    )
}

/// A node with labels, taints and the usual resources.
pub(crate) fn node(name: &str, labels: &Value, more: &Value) -> Value {
    let mut node = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "spec": {},
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" } },
    });
    merge(&mut node["metadata"]["labels"], labels);
    merge(&mut node, more);
    node
}

/// A pod that asks for some CPU.
pub(crate) fn pod(name: &str, cpu: &str, more: &Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "labels": {} },
        "spec": { "containers": [{ "name": "a", "image": "web", "resources": { "requests": { "cpu": cpu } } }] },
    });
    merge(&mut pod, more);
    pod
}

pub(crate) fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// The mind of the scheduler.
pub(crate) struct Mind(pub(crate) Placement);

impl Mind {
    pub(crate) fn new(profile: Profile) -> Mind {
        Mind(Placement::new(vec![profile], 42))
    }

    pub(crate) fn of(world: &World) -> Mind {
        let mut mind = Mind::new(Profile::new("default-scheduler"));
        world.namespaces.iter().for_each(|n| mind.namespace(n));
        world.nodes.iter().for_each(|n| mind.node(n));
        world
            .pods
            .iter()
            .for_each(|(pod, node)| mind.put(pod, node));
        mind
    }

    pub(crate) fn namespace(&mut self, namespace: &Value) {
        let labels = &namespace["metadata"]["labels"];
        let labels: std::collections::BTreeMap<String, String> =
            serde_json::from_value(labels.clone()).unwrap_or_default();
        self.0.cluster.set_namespace(name(namespace), &labels);
    }

    pub(crate) fn node(&mut self, node: &Value) {
        let node: api::Node = serde_json::from_value(node.clone()).unwrap();
        self.0.cluster.set_node(&node);
    }

    pub(crate) fn ask(&mut self, pod: &Value) -> Arc<Ask> {
        let pod: api::Pod = serde_json::from_value(pod.clone()).unwrap();
        Arc::new(Ask::of(&mut self.0.cluster.symbols, &pod, 0, &[]))
    }

    pub(crate) fn put(&mut self, pod: &Value, node: &str) {
        let ask = self.ask(pod);
        let uid = uid(pod);
        let started = pod["status"]["startTime"].as_str();
        let started = started.map(|t| t.parse::<jiff::Timestamp>().unwrap().as_nanosecond());
        let placed = Pod {
            uid: &uid,
            namespace: "default",
            name: name(pod),
            ask,
            priority: priority(pod),
            started,
            is_ending: pod["metadata"]["deletionTimestamp"].is_string(),
            is_assumed: false,
        };
        self.0.cluster.place(placed, node);
    }

    pub(crate) fn take(&mut self, pod: &Value) {
        self.0.cluster.displace(&uid(pod));
    }

    pub(crate) fn waiting(&mut self, pod: &Value) -> Waiting {
        Waiting {
            uid: uid(pod).into(),
            namespace: "default".into(),
            name: name(pod).into(),
            ask: self.ask(pod),
            priority: priority(pod),
            may_preempt: pod["spec"]["preemptionPolicy"] != "Never",
            ties: Arc::default(),
        }
    }

    /// The node of a pod, or the sentence why it has none.
    pub(crate) fn place(&mut self, pod: &Value) -> Result<String, String> {
        let waiting = self.waiting(pod);
        match self.0.place(&waiting) {
            Place::Row(row) => Ok(self.0.cluster.name(row).to_owned()),
            Place::NoNodes => Err("no nodes".into()),
            Place::Nowhere(diagnosis) => Err(diagnosis.sentence(&self.0.cluster)),
        }
    }
}

pub(crate) fn priority(pod: &Value) -> i32 {
    let priority = pod["spec"]["priority"].as_i64().unwrap_or_default();
    i32::try_from(priority).unwrap()
}
