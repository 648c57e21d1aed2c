//! Stand-in nodes: Node objects that look alive, because their Leases are renewed.
//!
//! The suite begins only with a node that is ready and can be scheduled to; specs that run no pod ask for
//! no more than that.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

const NAMES: [&str; 2] = ["stand-in-1", "stand-in-2"];
// As often as the kubelet does.
const RENEWAL: Duration = Duration::from_secs(10);
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Makes the nodes and their Leases.
pub(crate) async fn make(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    for (index, name) in NAMES.into_iter().enumerate() {
        let create = async {
            let made = nodes
                .create(&PostParams::default(), &object(node(name))?)
                .await?;
            let owner = made.metadata.uid.unwrap_or_default();
            let status = Patch::Merge(status(index, Timestamp::now()));
            nodes
                .patch_status(name, &PatchParams::default(), &status)
                .await?;
            // Admission taints a new node as not ready, until upstream's node lifecycle controller has seen that it
            // is; the suite may look earlier, and refuses a cluster without a node to schedule to.
            let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
            nodes
                .patch(name, &PatchParams::default(), &untainted)
                .await?;
            let lease = object(lease(name, &owner, Timestamp::now()))?;
            leases.create(&PostParams::default(), &lease).await?;
            anyhow::Ok(())
        };
        create
            .await
            .with_context(|| format!("cannot make the stand-in node {name}"))?;
    }
    Ok(())
}

/// Renews the Leases for ever. One that cannot be renewed is tried again in time: the node monitor
/// waits for four renewals.
pub(crate) async fn renew(client: Client) {
    let leases: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    let mut ticks = interval(RENEWAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for name in NAMES {
            let renewed = json!({"spec": {"renewTime": micro_time(Timestamp::now())}});
            let _ = leases
                .patch(name, &PatchParams::default(), &Patch::Merge(renewed))
                .await;
        }
    }
}

fn object<K: DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {"podCIDR": null},
    })
}

// Addresses of the range that is kept for documentation: nobody is to be reached there.
fn status(index: usize, now: Timestamp) -> Value {
    let size = json!({"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    json!({"status": {
        "capacity": size, "allocatable": size,
        "addresses": [
            {"type": "InternalIP", "address": format!("192.0.2.{}", index + 11)},
            {"type": "Hostname", "address": NAMES[index]},
        ],
        "conditions": conditions(now),
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.0",
            "bootID": "", "containerRuntimeVersion": "none://0", "kernelVersion": "", "kubeProxyVersion": "",
            "machineID": "", "osImage": "", "systemUUID": "",
        },
    }})
}

fn conditions(now: Timestamp) -> Vec<Value> {
    let rows = [
        ("MemoryPressure", "False", "StandsIn"),
        ("DiskPressure", "False", "StandsIn"),
        ("PIDPressure", "False", "StandsIn"),
        ("Ready", "True", "StandsIn"),
    ];
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |(kind, status, reason)| {
        json!({"type": kind, "status": status, "reason": reason, "message": "stands in for a node",
            "lastHeartbeatTime": time, "lastTransitionTime": time})
    };
    rows.map(condition).to_vec()
}

fn lease(name: &str, owner: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner},
        ]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_time(now)},
    })
}

fn micro_time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_objects_are_what_the_api_calls_nodes_and_leases() {
        let now: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        let mut whole = node(NAMES[1]);
        whole["status"] = status(1, now)["status"].clone();
        let node: Node = object(whole).unwrap();
        let status = node.status.unwrap();
        let ready = |c: &k8s_openapi::api::core::v1::NodeCondition| {
            c.type_ == "Ready" && c.status == "True"
        };
        assert!(status.conditions.unwrap().iter().any(ready));
        assert_eq!(status.addresses.unwrap()[0].address, "192.0.2.12");
        let lease: Lease = object(lease(NAMES[1], "u", now)).unwrap();
        assert_eq!(lease.spec.unwrap().renew_time.unwrap().0, now);
    }
}
