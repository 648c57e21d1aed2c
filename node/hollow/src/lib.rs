//! Hollow nodes: nodes that register, renew their leases and run pods on paper.
//!
//! Any number of them is one small role that shares one watch of pods and one of nodes. What a kubelet would decide
//! about a pod is [`pods`]; what it says of its node is [`node`]; the rest sends it.

mod addresses;
mod heartbeat;
mod node;
mod pods;
mod residents;
mod running;

use std::sync::Arc;

use client_runtime::{Connection, Error, Runtime};

/// How hollow nodes are.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the API server is reached; as somebody who may act for every node.
    pub connection: Connection,
    /// How many there are.
    pub count: usize,
    /// The region they are in.
    pub region: String,
    /// The zones of it that they are spread over.
    pub zones: Vec<String>,
    /// Whether pods wait until their node has a range of addresses; else they get the address of the node.
    pub has_pod_ranges: bool,
}

/// Who we are to the API server.
const AGENT: &str = "kubelet/hollow";

/// Runs the nodes until `shutdown` completes.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let config = Arc::new(config);
    let start = |client, bare| assemble(&config, client, bare);
    client_runtime::lead(&config.connection, AGENT, None, start, shutdown).await
}

fn assemble(config: &Arc<Config>, client: kube::Client, bare: kube::Client) -> Runtime<Config> {
    let mut runtime = Runtime::new(Arc::clone(config), client, bare, false);
    let nodes = heartbeat::start(&mut runtime);
    running::start(&mut runtime, &nodes);
    runtime
}
