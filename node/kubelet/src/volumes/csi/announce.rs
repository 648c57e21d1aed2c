//! Drivers in the API: the node's CSINode and its labels.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::registry::{Announcements, DriverOnNode};
use crate::volumes::cause;

/// How often a write is tried that another one came before.
const TRIES: usize = 5;

/// Tells the API server.
pub struct NodeAnnouncements {
    client: Client,
    node: String,
}

impl NodeAnnouncements {
    /// About the node of this name.
    pub fn new(client: Client, node: &str) -> NodeAnnouncements {
        NodeAnnouncements {
            client,
            node: node.to_owned(),
        }
    }

    /// Makes the node's object, if there is none. Drivers that were there before are taken off when they are gone.
    pub async fn begin(&self) -> Result<(), String> {
        self.change(|_| {}).await
    }

    async fn change(&self, change: impl Fn(&mut Vec<CSINodeDriver>)) -> Result<(), String> {
        let api: Api<CSINode> = Api::all(self.client.clone());
        let mut last = String::new();
        for _ in 0..TRIES {
            let found = api.get_opt(&self.node).await.map_err(|e| cause(&e))?;
            let is_new = found.is_none();
            let mut object = match found {
                Some(object) => object,
                None => self.empty().await?,
            };
            change(&mut object.spec.drivers);
            let params = PostParams::default();
            let written = match is_new {
                true => api.create(&params, &object).await,
                false => api.replace(&self.node, &params, &object).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(error) => last = cause(&error),
            }
        }
        Err(last)
    }

    async fn empty(&self) -> Result<CSINode, String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(&self.node).await.map_err(|e| cause(&e))?;
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.node.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        };
        Ok(CSINode {
            metadata: ObjectMeta {
                name: Some(self.node.clone()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: CSINodeSpec::default(),
        })
    }
}

#[async_trait]
impl Announcements for NodeAnnouncements {
    async fn added(&self, driver: &DriverOnNode) -> Result<(), String> {
        if !driver.topology.is_empty() {
            let nodes: Api<Node> = Api::all(self.client.clone());
            let labels = json!({"metadata": {"labels": driver.topology}});
            let patch = Patch::Merge(labels);
            let patched = nodes
                .patch(&self.node, &PatchParams::default(), &patch)
                .await;
            patched.map_err(|e| cause(&e))?;
        }
        self.change(|drivers| {
            drivers.retain(|other| other.name != driver.name);
            drivers.push(CSINodeDriver {
                name: driver.name.clone(),
                node_id: driver.node_id.clone(),
                topology_keys: Some(driver.topology.keys().cloned().collect()),
                allocatable: driver
                    .limit
                    .map(|count| VolumeNodeResources { count: Some(count) }),
            });
        })
        .await
    }

    async fn removed(&self, name: &str) -> Result<(), String> {
        self.change(|drivers| drivers.retain(|other| other.name != name))
            .await
    }
}
