//! A whole control plane at work: pods are bound, a Deployment makes its pods, garbage goes. Nodes are objects only.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use crate::client::{Client, Stream, Write};
use crate::load::{CONNECTIONS, FURNISH, IN_FLIGHT, SETTLE, connections, limited, write_all};
use crate::report::{Better, middle, ratio};
use crate::sample;
use crate::section::{Section, with_unit};
use crate::servers::{Extent, Kind, Server};

const NAMESPACE: &str = "work";

/// How much of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Few nodes, many, and more than upstream is asked for.
    nodes: [u32; 3],
    pods: u32,
    replicas: u32,
    dependents: u32,
}

/// What the goals are stated for.
pub(crate) const FULL: Size = Size {
    nodes: [100, 1_000, 5_000],
    pods: 4_000,
    replicas: 1_000,
    dependents: 10_000,
};

/// A look at whether everything works.
pub(crate) const QUICK: Size = Size {
    nodes: [10, 100, 500],
    pods: 400,
    replicas: 100,
    dependents: 1_000,
};

/// Everything measured of one control plane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measures {
    idle_memory: f64,
    bound_few: f64,
    bound_many: f64,
    /// Of ours only.
    bound_most: Option<f64>,
    deployment: f64,
    garbage: f64,
    full_memory: f64,
}

/// Runs everything against one kind of control plane.
pub(crate) async fn run(kind: &Kind, dir: &Path, size: Size, say: fn(&str)) -> Result<Measures> {
    let [few, many, most] = size.nodes;
    let mut measures = Measures::default();
    say("pods bound to few nodes");
    let server = kind.start(dir, Extent::Whole).await?;
    sleep(SETTLE).await;
    measures.idle_memory = mib(&server)?;
    measures.bound_few = bound_per_second(&server, few, size.pods / 4).await?;
    server.stop().await?;

    say("pods bound to many nodes");
    let server = kind.start(dir, Extent::Whole).await?;
    measures.bound_many = bound_per_second(&server, many, size.pods).await?;
    say("a deployment");
    measures.deployment = limited(deployment(&server, size.replicas))
        .await?
        .as_secs_f64();
    sleep(SETTLE).await;
    measures.full_memory = mib(&server)?;
    say("garbage");
    measures.garbage = limited(garbage(&server, size.dependents))
        .await?
        .as_secs_f64();
    server.stop().await?;

    if matches!(kind, Kind::Ours(_)) {
        say("pods bound to most nodes");
        let server = kind.start(dir, Extent::Whole).await?;
        measures.bound_most = Some(bound_per_second(&server, most, size.pods).await?);
        server.stop().await?;
    }
    Ok(measures)
}

fn mib(server: &Server) -> Result<f64> {
    Ok(server.processes().resident()? as f64 / (1024.0 * 1024.0))
}

async fn bound_per_second(server: &Server, nodes: u32, pods: u32) -> Result<f64> {
    let took = limited(bind(server, nodes, pods)).await?;
    Ok(f64::from(pods) / took.as_secs_f64())
}

// From the first pod's creation until the last one has its node.
async fn bind(server: &Server, nodes: u32, pods: u32) -> Result<Duration> {
    let clients = connections(&server.access, CONNECTIONS).await?;
    clients[0].write(&sample::namespace(NAMESPACE)).await?;
    for part in [sample::node, sample::node_status] {
        let writes: Vec<Write> = (0..nodes).map(part).collect();
        write_all(&server.processes(), &clients, IN_FLIGHT, &writes).await?;
    }
    sleep(FURNISH).await;
    let mut watch = Follow::pods(&clients[0]).await?;
    let writes: Vec<Write> = (0..pods).map(|n| sample::small_pod(NAMESPACE, n)).collect();
    let start = Instant::now();
    let processes = server.processes();
    let (_, ()) = tokio::try_join!(
        write_all(&processes, &clients, IN_FLIGHT, &writes),
        watch.until(pods as usize, |pod| pod.spec.node_name.is_some()),
    )?;
    Ok(start.elapsed())
}

// Until the last of its pods has been created.
async fn deployment(server: &Server, replicas: u32) -> Result<Duration> {
    let client = Client::connect(&server.access).await?;
    let mut watch = Follow::pods(&client).await?;
    let start = Instant::now();
    client
        .write(&sample::deployment(NAMESPACE, "wide", replicas))
        .await?;
    watch
        .until(replicas as usize, |pod| {
            pod.metadata.name.starts_with("wide-")
        })
        .await?;
    Ok(start.elapsed())
}

// From the deletion of an owner until the last of what it owned is gone.
async fn garbage(server: &Server, dependents: u32) -> Result<Duration> {
    const PLACE: &str = "heap";
    let clients = connections(&server.access, CONNECTIONS).await?;
    clients[0].write(&sample::namespace(PLACE)).await?;
    let owner = clients[0].write(&sample::config_map(PLACE, 99_999)).await?;
    let owner: Object = serde_json::from_slice(&owner)?;
    let uid = owner
        .metadata
        .uid
        .as_deref()
        .context("an object without uid")?;
    let writes: Vec<Write> = (0..dependents)
        .map(|n| sample::owned(PLACE, n, &owner.metadata.name, uid))
        .collect();
    write_all(&server.processes(), &clients, IN_FLIGHT, &writes).await?;
    sleep(SETTLE).await;
    let start = Instant::now();
    clients[0]
        .write(&sample::delete(&sample::config_map_path(PLACE, 99_999)))
        .await?;
    let left = format!(
        "{}?limit=1&labelSelector=app%3Downed",
        sample::config_maps(PLACE)
    );
    loop {
        let list: List = serde_json::from_slice(&clients[0].get(&left).await?)?;
        if list.items.is_empty() {
            return Ok(start.elapsed());
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<Object>,
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
}

#[derive(Deserialize)]
struct Event {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    name: String,
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "nodeName")]
    node_name: Option<String>,
}

/// A watch of pods.
struct Follow {
    stream: Stream,
    rest: Vec<u8>,
}

impl Follow {
    async fn pods(client: &Client) -> Result<Follow> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let list: List = serde_json::from_slice(&client.get(&format!("{path}?limit=1")).await?)?;
        let from = list.metadata.resource_version;
        let stream = client
            .open(&format!("{path}?watch=true&resourceVersion={from}"))
            .await?;
        Ok(Follow {
            stream,
            rest: Vec::new(),
        })
    }

    /// Returns when so many pods have been seen of which this is true.
    async fn until(&mut self, number: usize, is: fn(&Object) -> bool) -> Result<()> {
        let mut seen = HashSet::new();
        while seen.len() < number {
            for part in self.stream.next().await?.split_inclusive(|b| *b == b'\n') {
                self.rest.extend_from_slice(part);
                if !self.rest.ends_with(b"\n") {
                    continue;
                }
                let event: Event = serde_json::from_slice(&self.rest)
                    .with_context(|| String::from_utf8_lossy(&self.rest).into_owned())?;
                self.rest.clear();
                if is(&event.object) {
                    seen.insert(event.object.metadata.name);
                }
            }
        }
        Ok(())
    }
}

/// One line of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    better: Better,
    value: fn(&Measures) -> Option<f64>,
    goal: Goal,
}

enum Goal {
    /// So many times better than upstream.
    Times(f64),
    /// A value of its own, to be reached or not to be passed.
    Itself(f64),
}

#[rustfmt::skip]
const ROWS: [Row; 7] = [
    Row { name: "control plane, memory idle", unit: "MiB", better: Better::Less, value: |m| Some(m.idle_memory), goal: Goal::Itself(30.0) },
    Row { name: "pods bound, few nodes", unit: "/s", better: Better::More, value: |m| Some(m.bound_few), goal: Goal::Times(20.0) },
    Row { name: "pods bound, many nodes", unit: "/s", better: Better::More, value: |m| Some(m.bound_many), goal: Goal::Times(20.0) },
    Row { name: "  most nodes", unit: "/s", better: Better::More, value: |m| m.bound_most, goal: Goal::Itself(400.0) },
    Row { name: "deployment, all pods created", unit: "s", better: Better::Less, value: |m| Some(m.deployment), goal: Goal::Times(10.0) },
    Row { name: "garbage collected", unit: "s", better: Better::Less, value: |m| Some(m.garbage), goal: Goal::Times(10.0) },
    Row { name: "control plane, memory at work", unit: "MiB", better: Better::Less, value: |m| Some(m.full_memory), goal: Goal::Itself(100.0) },
];

impl Row {
    fn cells(&self, ours: &[Measures], theirs: &[Measures]) -> Vec<String> {
        let ours = self.middle(ours);
        let theirs = self.middle(theirs);
        let times = ours
            .zip(theirs)
            .map(|(ours, theirs)| ratio(self.better, ours, theirs));
        let (goal, reached) = match self.goal {
            Goal::Times(goal) => (format!("{goal}x"), times.map(|times| times >= goal)),
            Goal::Itself(goal) => {
                let reached = ours.map(|ours| ratio(self.better, ours, goal) >= 1.0);
                (with_unit(goal, self.unit), reached)
            }
        };
        let shown =
            |value: Option<f64>| value.map_or_else(String::new, |v| with_unit(v, self.unit));
        let verdict = reached.map_or("", |reached| if reached { "met" } else { "missed" });
        vec![
            self.name.to_owned(),
            shown(ours),
            shown(theirs),
            times.map_or_else(String::new, |times| format!("{times:.1}x")),
            goal,
            verdict.to_owned(),
        ]
    }

    fn middle(&self, rounds: &[Measures]) -> Option<f64> {
        middle(rounds.iter().filter_map(self.value))
    }
}

/// The table of a control plane at work.
pub(crate) fn section(size: Size, ours: &[Measures], theirs: &[Measures]) -> Section {
    let header = ["control plane", "ours", "upstream", "ratio", "goal", ""];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    lines.extend(ROWS.iter().map(|row| row.cells(ours, theirs)));
    let rows = ROWS.iter().map(|row| {
        json!({"measure": row.name.trim(), "unit": row.unit, "ours": row.middle(ours), "upstream": row.middle(theirs)})
    });
    let [few, many, most] = size.nodes;
    Section {
        key: "workloads",
        json: json!({"rows": rows.collect::<Vec<_>>()}),
        lines,
        method: vec![format!(
            "Control plane: ours is one process (`up --nodes 0`), upstream's are etcd, kube-apiserver, kube-controller-manager and \
             kube-scheduler, whose own limits on requests are lifted. Nodes are objects: {few}, {many} and {most}; {} pods on the few and {} \
             otherwise, created by {IN_FLIGHT} at once, from the first creation to the last binding. Then a Deployment of {} replicas until \
             its last pod is created; memory with all of that; {} ConfigMaps whose owner is deleted, until the last has gone.",
            size.pods / 4,
            size.pods,
            size.replicas,
            size.dependents
        )],
        bars: Vec::new(),
    }
}
