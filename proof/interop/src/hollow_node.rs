//! A node without a machine: a Node object, its heartbeat, and what a kubelet would report of its pods.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::kubectl::Kubectl;

/// A kubelet renews every ten seconds; node monitors lose patience after 40.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The node; its heart beats until it is dropped.
pub(crate) struct HollowNode {
    kubectl: Kubectl,
    name: &'static str,
    // Dropping the sender ends the heartbeat.
    stop: Option<Sender<()>>,
    heart: Option<JoinHandle<()>>,
}

/// What a scheduler sees of a node.
pub(crate) struct Shape {
    pub(crate) room: Value,
    pub(crate) labels: Value,
    pub(crate) taints: Value,
}

impl HollowNode {
    /// A node of a usual size.
    pub(crate) fn start(kubectl: &Kubectl, name: &'static str) -> Result<HollowNode> {
        let shape = Shape {
            room: json!({"cpu": "8", "memory": "16Gi", "pods": "110"}),
            labels: json!({}),
            taints: json!([]),
        };
        HollowNode::shaped(kubectl, name, shape)
    }

    /// Makes the objects and starts the heartbeat.
    pub(crate) fn shaped(
        kubectl: &Kubectl,
        name: &'static str,
        shape: Shape,
    ) -> Result<HollowNode> {
        kubectl.with_input("create -f -", &node(name, shape).to_string())?;
        kubectl.with_input("create -f -", &lease(name).to_string())?;
        let (stop, stopped) = channel();
        let heart_of = kubectl.clone();
        let heart = thread::spawn(move || {
            while stopped.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                // A beat that fails is a beat missed; the scenario sees the node go.
                let _ = heart_of.with_input(
                    "apply --server-side --force-conflicts -f -",
                    &lease(name).to_string(),
                );
            }
        });
        Ok(HollowNode {
            kubectl: kubectl.clone(),
            name,
            stop: Some(stop),
            heart: Some(heart),
        })
    }

    /// Does once what a kubelet does all the time: pods that start are made to run, pods that are to end are ended.
    pub(crate) fn tend(&self) -> Result<()> {
        let bound = format!("get pods -A --field-selector spec.nodeName={}", self.name);
        let pods = self.kubectl.json(&bound)?;
        for (index, pod) in pods["items"].as_array().into_iter().flatten().enumerate() {
            let of = |field: &str| {
                pod["metadata"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            let pod_is = format!("pod {} -n {}", of("name"), of("namespace"));
            if pod["metadata"]["deletionTimestamp"].is_string() {
                // The controller may have been quicker.
                let _ = self.kubectl.run(&format!(
                    "delete {pod_is} --force --grace-period=0 --wait=false"
                ));
            } else if pod["status"]["phase"] == "Pending" {
                self.report(&pod_is, &running(pod, index))?;
            } else if pod["status"]["phase"] == "Running" && pod["spec"]["restartPolicy"] == "Never"
            {
                self.report(&pod_is, &succeeded())?;
            }
        }
        Ok(())
    }

    fn report(&self, pod_is: &str, status: &Value) -> Result<()> {
        let mut args: Vec<&str> = vec!["patch"];
        args.extend(pod_is.split(' '));
        let patch = json!({ "status": status }).to_string();
        args.extend(["--subresource=status", "--type=strategic", "-p", &patch]);
        match self.kubectl.args(&args) {
            // Deleted since it was listed.
            Err(error) if format!("{error:#}").contains("NotFound") => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Drop for HollowNode {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(heart) = self.heart.take() {
            let _ = heart.join();
        }
    }
}

fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

fn running(pod: &Value, index: usize) -> Value {
    let address = format!("10.244.0.{}", index + 2);
    let started: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            json!({"name": container["name"], "image": container["image"], "imageID": "", "ready": true, "started": true,
                   "restartCount": 0, "state": {"running": {"startedAt": jiff::Timestamp::now().strftime("%FT%TZ").to_string()}}})
        })
        .collect();
    let well = ["Ready", "ContainersReady", "Initialized"]
        .map(|kind| json!({"type": kind, "status": "True"}));
    json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "containerStatuses": started,
           "conditions": well})
}

fn succeeded() -> Value {
    let over = ["Ready", "ContainersReady"]
        .map(|kind| json!({"type": kind, "status": "False", "reason": "PodCompleted"}));
    json!({"phase": "Succeeded", "conditions": over})
}

fn node(name: &str, shape: Shape) -> Value {
    let mut labels = shape.labels;
    labels["kubernetes.io/hostname"] = name.into();
    labels["kubernetes.io/os"] = "linux".into();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": shape.taints},
        "status": {
            "capacity": shape.room, "allocatable": shape.room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()},
    })
}
