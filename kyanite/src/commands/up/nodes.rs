//! The nodes of `kyanite up`: machines that boot, provision themselves and join.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client_runtime::{Connection, End, ObjectKey, Queue, Runtime};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use tokio::time::Instant;

use super::images;
use super::node_spec::{Cluster, Programs};
use super::site::Site;
use crate::addons;
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::join_tokens::{self, NODE_GROUP, Token};
use crate::stages::Stages;

/// How long nodes may take to be Ready, on a host that has much else to do.
const PATIENCE: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the token lives that a boot's nodes join with.
const TOKEN_LIFE: Duration = Duration::from_secs(3600);
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// The nodes that were asked for.
pub(super) struct Nodes {
    pub(super) site: Site,
    pub(super) cluster: Cluster,
    pub(super) programs: Programs,
    pub(super) count: usize,
}

impl Nodes {
    /// Boots every machine and waits until its node is Ready; one line for each.
    pub(super) async fn bring_up(&self, dir: &DataDir, stages: &mut Stages) -> Result<()> {
        let client = Client::connect(dir).await?;
        let token = Token::random(&mut rand::rng());
        let expires = join_tokens::expiry(jiff::Timestamp::now(), TOKEN_LIFE);
        let groups = [NODE_GROUP.to_owned()];
        let secret = token.to_secret(&groups, "nodes of `kyanite up`", expires);
        client.create(SECRETS, &secret).await?;
        self.boot_all(&token.text()).await?;
        stages.done("machines", &format!("{} booted", self.count));
        let settings = addons::Settings {
            image: images::OWN.to_owned(),
            cluster_dns: self.cluster.cluster_dns.to_string(),
        };
        addons::apply(&client, &settings).await?;
        stages.done("add-ons", "applied");
        self.wait_for_all(&client, stages).await
    }

    // All at once: a boot waits for the kernel more than it works.
    async fn boot_all(&self, token: &str) -> Result<()> {
        let mut boots = tokio::task::JoinSet::new();
        for number in 0..self.count {
            let spec = self.spec(number, token)?;
            let site = self.site.clone();
            boots.spawn_blocking(move || site.boot(&spec));
        }
        while let Some(booted) = boots.join_next().await {
            booted.map_err(|e| Failure::new(Code::Failure, format!("a boot broke off: {e}")))??;
        }
        Ok(())
    }

    fn spec(&self, number: usize, token: &str) -> Result<machines::Spec> {
        let address = self.site.address(number).ok_or_else(|| {
            Failure::new(Code::Usage, "the network has no address for so many nodes")
                .hint("ask for fewer with --nodes")
        })?;
        self.cluster.machine(number, address, token, &self.programs)
    }

    async fn wait_for_all(&self, client: &Client, stages: &mut Stages) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut waiting: Vec<usize> = (0..self.count).collect();
        while !waiting.is_empty() {
            let nodes = client.get("/api/v1/nodes").await?;
            let is_ready = |number: &usize| readiness(&nodes, &self.cluster.node_name(*number));
            let (ready, not_yet): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|n| is_ready(n) == Some(true));
            for number in ready {
                stages.done("node", &self.described(number));
            }
            waiting = not_yet;
            if let Some(number) = waiting.first()
                && Instant::now() > deadline
            {
                return Err(self.late(*number, is_ready(number)));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    fn described(&self, number: usize) -> String {
        let name = self.cluster.node_name(number);
        match self.cluster.zone(number) {
            Some(zone) => format!("{name} is Ready in zone {zone}"),
            None => format!("{name} is Ready"),
        }
    }

    fn late(&self, number: usize, known: Option<bool>) -> Failure {
        let name = self.cluster.node_name(number);
        let what = match known {
            None => "did not join",
            Some(_) => "joined but is not Ready",
        };
        let log = "/var/log/azure/aks-node-controller.log";
        Failure::new(Code::Unavailable, format!("the node {name} {what}")).hint(format!(
            "`kyanite machine exec {name} tail {log}` and `kubectl describe node {name}` say more"
        ))
    }
}

/// Whether a node is Ready; none if it is not there.
fn readiness(nodes: &Value, name: &str) -> Option<bool> {
    let mut items = nodes["items"].as_array()?.iter();
    let node = items.find(|node| node["metadata"]["name"] == name)?;
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    Some(conditions.any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Keeps the network's route table: pods of a node are reached through it.
pub(super) async fn keep_routes(
    (site, connection): (Site, Connection),
    shutdown: impl Future<Output = ()> + Send,
) -> std::result::Result<(), client_runtime::Error> {
    let start = |client, bare| routes(Arc::new(site), client, bare);
    client_runtime::lead(&connection, "kyanite-route-table", None, start, shutdown).await
}

fn routes(site: Arc<Site>, client: kube::Client, bare: kube::Client) -> Runtime<()> {
    let mut runtime = Runtime::new(Arc::new(()), client, bare, false);
    let nodes = runtime.whole::<Node>();
    let queue = Arc::new(Queue::new());
    client_runtime::enqueue_changes(&nodes, &queue);
    let known = nodes.clone();
    runtime.start_work(
        "route-table",
        queue,
        1,
        [nodes.completion()],
        move |key: ObjectKey| {
            let route = known.get(&key).and_then(|node| route_of(&node));
            let site = Arc::clone(&site);
            async move {
                if let Some((pods, node)) = route {
                    site.route(pods, node)
                        .map_err(|e| client_runtime::SyncError::Other(e.to_string()))?;
                }
                Ok(End::Done)
            }
        },
    );
    runtime
}

/// Where the pods of a node are reached, once it has both a range and an address.
fn route_of(node: &Node) -> Option<(Ipv4Net, Ipv4Addr)> {
    let pods = node.spec.as_ref()?.pod_cidr.as_ref()?.parse().ok()?;
    let mut addresses = node.status.as_ref()?.addresses.iter().flatten();
    let internal = addresses.find(|address| address.type_ == "InternalIP")?;
    Some((pods, internal.address.parse().ok()?))
}

/// Whether what nodes run is on this host.
pub(super) fn check() -> Result<()> {
    own_programs()?;
    containerd().map(drop)
}

/// Finds what nodes run on this host, and makes images of it.
pub(super) fn programs(dir: &DataDir) -> Result<Programs> {
    let (kyanite, cni) = own_programs()?;
    Ok(Programs {
        images: images::make(dir, &kyanite)?,
        containerd: containerd()?,
        kyanite,
        cni,
    })
}

// This program, and the pod network's plugin beside it.
fn own_programs() -> Result<(PathBuf, PathBuf)> {
    let kyanite = std::env::current_exe().map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("this program cannot find itself: {e}"),
        )
    })?;
    for name in ["kyanite-cni", "kyanite-pause", "kyanite-demo"] {
        let beside = kyanite.with_file_name(name);
        if !beside.exists() {
            let what = format!("nodes need {}, which is not there", beside.display());
            return Err(Failure::new(Code::NotFound, what)
                .hint("`make up` and `make install` put it there; `--nodes 0` starts the control plane alone"));
        }
    }
    let cni = kyanite.with_file_name("kyanite-cni");
    Ok((kyanite, cni))
}

// What is installed on this host is part of every machine; elsewhere it is shown to it.
fn containerd() -> Result<Option<PathBuf>> {
    let named = std::env::var_os("CONTAINERD_BIN").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let cached = cache.map(|cache| cache.join("kyanite/containerd"));
    let has_it = |directory: &PathBuf| directory.join("containerd").exists();
    if let Some(directory) = named.into_iter().chain(cached).find(has_it) {
        return Ok(Some(directory));
    }
    match Path::new("/usr/bin/containerd").exists() {
        true => Ok(None),
        false => Err(
            Failure::new(Code::NotFound, "nodes need containerd and runc")
                .hint("`make up` brings them; or install the packages containerd and runc"),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_ready_when_its_condition_says_so() {
        let node = |ready: &str| {
            json!({"items": [{"metadata": {"name": "a"}, "status": {"conditions": [
                {"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]}}]})
        };
        assert_eq!(readiness(&node("True"), "a"), Some(true));
        assert_eq!(readiness(&node("Unknown"), "a"), Some(false));
        assert_eq!(readiness(&node("True"), "b"), None);
    }

    #[test]
    fn a_route_needs_a_range_and_an_address() {
        let node = |spec: Value, addresses: Value| -> Node {
            serde_json::from_value(
                json!({"metadata": {}, "spec": spec, "status": {"addresses": addresses}}),
            )
            .unwrap()
        };
        let addresses = json!([{"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "10.224.0.4"}]);
        let whole = node(json!({"podCIDR": "10.244.1.0/24"}), addresses.clone());
        let route = route_of(&whole).unwrap();
        assert_eq!(route.0.to_string(), "10.244.1.0/24");
        assert_eq!(route.1, Ipv4Addr::new(10, 224, 0, 4));
        assert!(route_of(&node(json!({}), addresses)).is_none());
        assert!(route_of(&node(json!({"podCIDR": "10.244.1.0/24"}), json!([]))).is_none());
    }
}
