//! cloud-node-manager: one node's own view of its machine, from the metadata service or from Resource Manager.

use std::sync::Arc;
use std::time::Duration;

use azure::imds::Imds;
use client_runtime::{
    Actor, Answer, Cache, Connection, End, Error, Queue, Runtime, SyncError, Synced,
};
use kube::Api;

use super::initialise::{UNINITIALIZED, apply};
use super::instances::Instances;
use super::machine::{self, Metadata};
use super::{NodeView, set_condition};

/// What the manager is told.
pub struct NodeManager {
    /// How the API server is reached.
    pub connection: Connection,
    /// The node.
    pub node: String,
    /// Where its machine is asked about.
    pub provider: Provider,
    /// Whether no pod may come before there are routes.
    pub wait_routes: bool,
    /// How often it is looked at again.
    pub frequency: Duration,
    /// Whether the older labels are written, too.
    pub beta_labels: bool,
}

/// Where a machine is asked about.
pub struct Provider(Kind);

enum Kind {
    Metadata(Imds),
    Manager(Instances),
}

impl Provider {
    /// The machine's own metadata service.
    pub fn metadata_service(imds: Imds) -> Provider {
        Provider(Kind::Metadata(imds))
    }

    /// Resource Manager.
    pub fn resource_manager(arm: azure::Arm, cloud: Arc<azure::CloudConfig>) -> Provider {
        Provider(Kind::Manager(Instances::new(arm, cloud)))
    }

    async fn metadata(&self, node: &NodeView) -> Result<Metadata, String> {
        match &self.0 {
            Kind::Metadata(imds) => of_service(imds, node).await,
            Kind::Manager(instances) => {
                let found = instances.metadata(node).await.map_err(|e| e.to_string())?;
                found.ok_or_else(|| format!("Azure knows no machine of node {}", node.name))
            }
        }
    }
}

async fn of_service(imds: &Imds, node: &NodeView) -> Result<Metadata, String> {
    let instance = imds.instance().await.map_err(|e| e.to_string())?;
    let mut balanced = Vec::new();
    if !machine::has_public_address(&instance) {
        match imds.balanced().await {
            Ok(found) => balanced = found,
            // A machine behind no load balancer is told so with 404; no reason to keep its node waiting.
            Err(error) => tracing::debug!(%error, "no load balancer is known to lead here"),
        }
    }
    let mut found = machine::of_metadata_service(&instance, &node.name, &balanced)?;
    keep_external(&mut found, node);
    Ok(found)
}

/// What a node shows as its public address stays when nobody can say what it is.
fn keep_external(found: &mut Metadata, node: &NodeView) {
    let is_external = |(kind, _): &&(String, String)| kind == "ExternalIP";
    if !found.addresses.iter().any(|address| is_external(&address)) {
        let shown = node.addresses.iter().filter(is_external).cloned();
        found.addresses.extend(shown);
    }
}

const AGENT: &str = "cloud-node-manager/kyanite";

/// Keeps one node's view of its machine until `shutdown` completes.
pub async fn run(
    manager: NodeManager,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let connection = manager.connection.clone();
    let start = |client, bare| assemble(manager, client, bare);
    client_runtime::lead(&connection, AGENT, None, start, shutdown).await
}

fn assemble(
    manager: NodeManager,
    client: kube::Client,
    bare: kube::Client,
) -> Runtime<NodeManager> {
    let fields = format!("metadata.name={}", manager.node);
    let mut runtime = Runtime::new(Arc::new(manager), client, bare, false);
    let nodes: Cache<NodeView> = runtime.watch(Api::all(runtime.client()), &fields, NodeView::of);
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    nodes.on_change(move |change| {
        let is_new = change.before.is_none();
        if change
            .after
            .is_some_and(|node| is_new || node.has_taint(UNINITIALIZED))
        {
            noticed.add(change.key.clone());
        }
    });
    let (config, actor, known) = (
        Arc::clone(&runtime.config),
        runtime.root.clone(),
        nodes.clone(),
    );
    let complete = [nodes.completion()];
    runtime.start_work("cloud-node-manager", queue, 1, complete, move |key| {
        let (config, actor, node) = (Arc::clone(&config), actor.clone(), known.get(&key));
        async move { sync(&config, &actor, node).await }
    });
    runtime
}

async fn sync(config: &NodeManager, actor: &Actor, node: Option<Arc<NodeView>>) -> Synced {
    let Some(node) = node.filter(|node| !node.deleting) else {
        return Ok(End::Done);
    };
    if config.wait_routes && node.has_taint(UNINITIALIZED) {
        await_routes(actor, &node).await?;
    }
    let found = config.provider.metadata(&node).await;
    let machine = found.map_err(SyncError::Other)?;
    apply(actor, &node, &machine, config.beta_labels).await?;
    Ok(End::After(config.frequency))
}

/// Keeps pods away until the controller of routes has been there.
async fn await_routes(actor: &Actor, node: &NodeView) -> Answer<()> {
    match &node.network_unavailable {
        Some(_) => Ok(()),
        None => {
            let (reason, message) = ("NodeInitialization", "Waiting for cloud routes");
            set_condition(actor, &node.name, "True", reason, message).await
        }
    }
}
