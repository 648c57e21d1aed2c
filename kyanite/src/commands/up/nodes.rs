//! The nodes of `kyanite up`: machines that boot, provision themselves and join.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::images::built_in;
use client_runtime::{Connection, End, ObjectKey, Queue, Runtime};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::beside::Beside;
use super::node_spec::{Cluster, Programs, Welcome};
use super::node_style;
use super::site::Site;
use crate::addons::choice::Choice;
use crate::addons::{ADDONS, readiness as addon_readiness};
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::join_tokens::{self, NODE_GROUP, Token};
use crate::pki::Authority;
use crate::pools::{Machine, Pool, Pools};
use crate::stages::{Audience, Stages};

/// How long nodes may take to be Ready, on a host that has much else to do.
const PATIENCE: Duration = Duration::from_secs(240);
/// After how long a machine that runs but is no node is started again.
const SOON: Duration = Duration::from_secs(30);
/// How long add-ons may take once their nodes are Ready.
const ADDON_PATIENCE: Duration = Duration::from_secs(120);
const NODES: &str = "/api/v1/nodes";
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the token lives that a boot's nodes join with.
const TOKEN_LIFE: Duration = Duration::from_secs(3600);
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// What is asked of whoever looks after machines.
#[derive(Debug)]
pub(crate) enum Wish {
    /// These pools, from now on.
    Pools(Pools),
    /// That these machines are no more, whatever becomes of their nodes: the cloud has none of them any longer.
    Forget(Vec<String>),
    /// That machines run which do not, and that there are so many in all, if that has changed.
    Repair(Option<u64>),
}

/// What is asked for, and whom to tell what was done.
pub(crate) type Wanted = (Wish, oneshot::Sender<Result<Value>>);

/// A machine with its pool.
type Member<'a> = (&'a Pool, &'a Machine);

/// What nodes of a cluster are made of.
pub(super) struct Nodes {
    pub(super) site: Site,
    pub(super) cluster: Cluster,
    pub(super) programs: Programs,
    pub(super) pools: Pools,
    /// The cloud beside it, if there is one: it has a say in which machines there are.
    pub(super) cloud: Option<Beside>,
    /// Whether the API server reaches them through tunnels that an add-on opens.
    pub(super) has_tunnels: bool,
}

/// Machines that were just started, and the nodes as they were before.
struct Boots {
    names: Vec<String>,
    before: Value,
}

impl Boots {
    /// Whether a node is Ready; none if it is not there. What a machine said before it was started does not count.
    fn is_ready(&self, nodes: &Value, name: &str) -> Option<bool> {
        let boot = |nodes| find(nodes, name).map(|node| &node["status"]["nodeInfo"]["bootID"]);
        let is_old = self.names.iter().any(|started| started == name)
            && boot(&self.before).is_some_and(|before| Some(before) == boot(nodes));
        readiness(nodes, name).map(|ready| ready && !is_old)
    }
}

impl Nodes {
    /// Boots every machine, waits until its node is Ready and until add-ons work; gives the nodes.
    pub(super) async fn bring_up(&self, dir: &DataDir, stages: &mut Stages) -> Result<Vec<Value>> {
        let client = Client::connect(dir).await?;
        self.bring(&client, stages).await?;
        self.wait_for_addons(&client, stages).await?;
        self.listed(&client).await
    }

    /// Does what later requests want, one after the other, for ever.
    pub(super) async fn keep(mut self, dir: &DataDir, mut wanted: mpsc::Receiver<Wanted>) {
        while let Some((wish, reply)) = wanted.recv().await {
            // Whoever asked may have gone.
            let _ = reply.send(self.fulfil(wish, dir).await);
        }
        std::future::pending().await
    }

    async fn fulfil(&mut self, wish: Wish, dir: &DataDir) -> Result<Value> {
        let client = Client::connect(dir).await?;
        let mut stages = Stages::new(Audience::Log);
        match wish {
            Wish::Repair(count) => {
                if let Some(count) = count {
                    self.grow(count.try_into().unwrap_or(usize::MAX)).await?;
                    self.pools.write(dir)?;
                }
                self.repair(&client, &mut stages).await
            }
            Wish::Forget(names) => {
                self.pools.forget(&names);
                self.pools.write(dir)?;
                self.remove_machines(names).await?;
                Ok(json!({"ready": true}))
            }
            Wish::Pools(pools) => {
                // Before it is written down what they are made of: whoever is interrupted here begins again.
                self.unmake(&client, &pools).await?;
                let before = std::mem::replace(&mut self.pools, pools);
                self.pools.write(dir)?;
                node_style::follow(&client, &before, &self.pools).await?;
                self.bring(&client, &mut stages).await?;
                Ok(json!({"ready": true}))
            }
        }
    }

    /// Gets machines until there are so many; the cloud says which.
    async fn grow(&mut self, count: usize) -> Result<()> {
        let before = self.pools.machines().count();
        self.pools.grow(count);
        match &self.cloud {
            Some(cloud) if self.pools.machines().count() > before => {
                self.pools = cloud.settle(self.pools.clone()).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes away machines that are to be made anew of something else.
    async fn unmake(&self, client: &Client, wanted: &Pools) -> Result<()> {
        let is_stale = |name: &String| {
            let (own, wanted) = (self.pools.find(name), wanted.find(name));
            own.zip(wanted)
                .is_some_and(|(own, wanted)| own.is_stale(wanted))
        };
        let stale: Vec<String> = self.pools.names().into_iter().filter(is_stale).collect();
        // The machine first: one that still ran would make its node again, as it was.
        self.remove_machines(stale.clone()).await?;
        delete_nodes(client, &stale).await
    }

    // Takes away the machines of no pool, boots the others and waits for their nodes.
    async fn bring(&self, client: &Client, stages: &mut Stages) -> Result<()> {
        self.remove_others(client).await?;
        let boots = self.boot(client).await?;
        stages.done("machines", &format!("{} booted", boots.names.len()));
        self.wait_for(client, &boots, Instant::now() + PATIENCE, stages)
            .await
    }

    // First what is off is switched on. What runs and is no node after a while is started again, once.
    async fn repair(&self, client: &Client, stages: &mut Stages) -> Result<Value> {
        let mut boots = self.boot(client).await?;
        let soon = Instant::now() + SOON;
        let come = self.wait_for(client, &boots, soon, stages).await;
        if come.is_err() {
            let nodes = client.get(NODES).await?;
            let is_lost = |member: &Member<'_>| {
                let name = name_of(*member);
                readiness(&nodes, &name) != Some(true) && !boots.names.contains(&name)
            };
            let lost: Vec<_> = self.pools.machines().filter(is_lost).collect();
            let again = self.restart(client, &lost).await?;
            boots.names.extend(again.names);
            self.wait_for(client, &boots, Instant::now() + PATIENCE, stages)
                .await?;
        }
        let booted = boots.names;
        self.wait_for_addons(client, stages).await?;
        Ok(json!({"booted": booted, "nodes": self.listed(client).await?}))
    }

    async fn boot(&self, client: &Client) -> Result<Boots> {
        let all: Vec<_> = self.pools.machines().collect();
        self.each(client, &all, |site, spec| site.boot(spec)).await
    }

    async fn restart(&self, client: &Client, members: &[Member<'_>]) -> Result<Boots> {
        self.each(client, members, |site, spec| {
            site.restart(spec).map(|()| true)
        })
        .await
    }

    // All at once: a boot waits for the kernel more than it works.
    async fn each(
        &self,
        client: &Client,
        members: &[Member<'_>],
        work: fn(&Site, &machines::Spec) -> Result<bool>,
    ) -> Result<Boots> {
        let before = client.get(NODES).await?;
        let authority = self.cluster.pki.authority(Authority::Cluster).cert;
        let welcome = Welcome {
            token: self.token(client).await?,
            authority: std::fs::read(&authority)
                .map_err(|e| Failure::file("read", &authority, &e))?,
        };
        let mut boots = JoinSet::new();
        for member in members {
            let spec = self
                .cluster
                .machine(&self.pools, *member, &welcome, &self.programs)?;
            let site = self.site.clone();
            boots.spawn_blocking(move || work(&site, &spec).map(|done| done.then_some(spec.name)));
        }
        let mut names: Vec<String> = finished(boots).await?.into_iter().flatten().collect();
        names.sort();
        Ok(Boots { names, before })
    }

    async fn remove_others(&self, client: &Client) -> Result<()> {
        let wanted = self.pools.names();
        let mut others = self.site.machines()?;
        others.retain(|name| !wanted.contains(name));
        self.remove(client, others).await
    }

    // The node first: nothing is given to it while its machine goes.
    async fn remove(&self, client: &Client, names: Vec<String>) -> Result<()> {
        delete_nodes(client, &names).await?;
        self.remove_machines(names).await
    }

    async fn remove_machines(&self, names: Vec<String>) -> Result<()> {
        let there = self.site.machines()?;
        let mut removals = JoinSet::new();
        for name in names.into_iter().filter(|name| there.contains(name)) {
            let site = self.site.clone();
            removals.spawn_blocking(move || site.remove(&name));
        }
        finished(removals).await.map(drop)
    }

    async fn token(&self, client: &Client) -> Result<String> {
        let token = Token::random(&mut rand::rng());
        let expires = join_tokens::expiry(jiff::Timestamp::now(), TOKEN_LIFE);
        let groups = [NODE_GROUP.to_owned()];
        let secret = token.to_secret(&groups, "nodes of `kyanite up`", expires);
        client.create(SECRETS, &secret).await?;
        Ok(token.text())
    }

    async fn wait_for(
        &self,
        client: &Client,
        boots: &Boots,
        deadline: Instant,
        stages: &mut Stages,
    ) -> Result<()> {
        let mut waiting: Vec<_> = self.pools.machines().collect();
        loop {
            let nodes = client.get(NODES).await?;
            let is_ready = |member: &Member<'_>| boots.is_ready(&nodes, &name_of(*member));
            let (ready, not_yet): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|n| is_ready(n) == Some(true));
            for member in ready {
                stages.done("node", &described(member));
            }
            waiting = not_yet;
            let Some(first) = waiting.first() else {
                return Ok(());
            };
            let name = name_of(*first);
            if Instant::now() > deadline {
                return Err(late(&name, is_ready(first)));
            }
            let state = match is_ready(first) {
                None => "provisions itself".to_owned(),
                Some(_) => why_not_ready(&nodes, &name).unwrap_or("has joined".to_owned()),
            };
            stages.waiting(&format!("{} to come; {name}: {state}", waiting.len()));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    // An add-on that does not come is worth a word, but the cluster is there.
    async fn wait_for_addons(&self, client: &Client, stages: &mut Stages) -> Result<()> {
        let deadline = Instant::now() + ADDON_PATIENCE;
        let said = Choice::read(client).await?;
        let (mut ready, mut missing) = (Vec::new(), Vec::new());
        for addon in ADDONS
            .iter()
            .filter(|addon| said.has(addon, self.has_tunnels))
        {
            stages.waiting(&format!("the add-on {}", addon.name));
            while Instant::now() < deadline
                && !addon_readiness::of(client, addon).await?.is_enough(addon)
            {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            match Instant::now() < deadline {
                true => ready.push(addon.name),
                false => missing.push(addon.name),
            }
        }
        let text = match missing.as_slice() {
            [] => ready.join(", "),
            missing => format!("{} not ready yet: see `kyanite doctor`", missing.join(", ")),
        };
        stages.done("add-ons", &text);
        Ok(())
    }

    /// Every node, for the table at the end.
    async fn listed(&self, client: &Client) -> Result<Vec<Value>> {
        let nodes = client.get(NODES).await?;
        let names = self.pools.names();
        Ok(names.iter().map(|name| row(&nodes, name)).collect())
    }
}

async fn delete_nodes(client: &Client, names: &[String]) -> Result<()> {
    for name in names {
        match client.delete(&format!("{NODES}/{name}")).await {
            Err(failure) if failure.code != Code::NotFound => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

async fn finished<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let broken = |e| Failure::new(Code::Failure, format!("work on a machine broke off: {e}"));
        all.push(ended.map_err(broken)??);
    }
    Ok(all)
}

fn name_of((pool, machine): Member<'_>) -> String {
    pool.node_name(machine.number)
}

fn described((pool, machine): Member<'_>) -> String {
    let name = pool.node_name(machine.number);
    match pool.zone(machine.number) {
        Some(zone) => format!("{name} is Ready in zone {zone}"),
        None => format!("{name} is Ready"),
    }
}

fn late(name: &str, known: Option<bool>) -> Failure {
    let what = match known {
        None => "did not join",
        Some(_) => "joined but is not Ready",
    };
    Failure::new(Code::Unavailable, format!("the node {name} {what}"))
        .hint("`kyanite doctor` says what is wrong with it")
}

fn find<'a>(nodes: &'a Value, name: &str) -> Option<&'a Value> {
    let mut items = nodes["items"].as_array()?.iter();
    items.find(|node| node["metadata"]["name"] == name)
}

fn ready_condition(node: &Value) -> Option<&Value> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == "Ready")
}

// The kubelet says it in its condition.
fn why_not_ready(nodes: &Value, name: &str) -> Option<String> {
    let message = ready_condition(find(nodes, name)?)?["message"].as_str()?;
    Some(message.chars().take(80).collect())
}

// A node as people see it in a list.
fn row(nodes: &Value, name: &str) -> Value {
    let node = find(nodes, name).unwrap_or(&Value::Null);
    let labels = &node["metadata"]["labels"];
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let address = addresses.find(|address| address["type"] == "InternalIP");
    let status = match readiness(nodes, name) {
        None => "missing",
        Some(true) => "Ready",
        Some(false) => "NotReady",
    };
    json!({"name": name, "status": status, "zone": labels["topology.kubernetes.io/zone"],
        "address": address.map(|address| &address["address"]), "pods": node["spec"]["podCIDR"]})
}

/// Whether a node is Ready; none if it is not there.
fn readiness(nodes: &Value, name: &str) -> Option<bool> {
    let node = find(nodes, name)?;
    Some(ready_condition(node).is_some_and(|ready| ready["status"] == "True"))
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
    if built_in::nft().is_none() {
        let failure = Failure::new(
            Code::NotFound,
            "nodes need nft, which writes rules of nftables",
        );
        return Err(failure.hint("`make up` brings it; or install the package nftables"));
    }
    containerd().map(drop)
}

/// Finds what nodes run on this host, and makes images of it.
pub(super) fn programs(dir: &DataDir) -> Result<Programs> {
    let (kyanite, cni) = own_programs()?;
    Ok(Programs {
        images: images(dir, &kyanite)?,
        containerd: containerd()?,
        tools: tools(),
        kyanite,
        cni,
    })
}

// Whoever runs a command in a cluster expects these; it works without, but not with them.
fn tools() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECTL").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let find = |name: &str| {
        let mut all = places.iter().map(|place| place.join(name));
        all.find(|program| program.is_file())
    };
    let kubectl = named.filter(|at| at.is_file()).or_else(|| find("kubectl"));
    kubectl.into_iter().chain(find("helm")).collect()
}

// Nobody needs to pull what nodes have from the start.
fn images(dir: &DataDir, kyanite: &Path) -> Result<PathBuf> {
    let beside = kyanite.parent().unwrap_or(Path::new("/"));
    let made = built_in::provide(beside, &dir.images());
    made.map_err(|e| {
        Failure::from(e).hint("`make up` builds the programs that images are made of")
    })?;
    Ok(dir.images())
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
    fn what_a_machine_said_before_it_was_started_does_not_count() {
        let nodes = |boot: &str| {
            json!({"items": [{"metadata": {"name": "a"}, "status": {"nodeInfo": {"bootID": boot},
                "conditions": [{"type": "Ready", "status": "True"}]}}]})
        };
        let boots = |names: &[&str]| Boots {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            before: nodes("first"),
        };
        assert_eq!(boots(&["a"]).is_ready(&nodes("first"), "a"), Some(false));
        assert_eq!(boots(&["a"]).is_ready(&nodes("second"), "a"), Some(true));
        assert_eq!(boots(&[]).is_ready(&nodes("first"), "a"), Some(true));
        assert_eq!(boots(&["b"]).is_ready(&nodes("first"), "b"), None);
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
