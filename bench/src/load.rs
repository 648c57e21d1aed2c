//! The load: bounded in number and time, the same for every server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use futures::stream::{self, TryStreamExt as _};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::client::{Client, Write};
use crate::measure::{Cost, Processes, median};
use crate::sample;
use crate::servers::{Kind, Server};

const PHASE_LIMIT: Duration = Duration::from_secs(180);
/// Before memory is read: collectors and background work come to rest.
const SETTLE: Duration = Duration::from_secs(3);

/// How much of each; the names are those of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) starts: u32,
    pub(crate) creates_alone: u32,
    pub(crate) creates_together: u32,
    pub(crate) gets: u32,
    pub(crate) lists: u32,
    pub(crate) watchers: u32,
    pub(crate) updates: u32,
    pub(crate) nodes: u32,
    pub(crate) pods: u32,
}

/// What the goals are stated for.
pub(crate) const FULL: Size = Size {
    starts: 3,
    creates_alone: 1_000,
    creates_together: 10_000,
    gets: 3_000,
    lists: 5,
    watchers: 100,
    updates: 500,
    nodes: 1_000,
    pods: 5_000,
};

/// A look at whether everything works; its ratios mean little.
pub(crate) const QUICK: Size = Size {
    starts: 1,
    creates_alone: 100,
    creates_together: 1_000,
    gets: 300,
    lists: 3,
    watchers: 20,
    updates: 50,
    nodes: 100,
    pods: 500,
};

const IN_FLIGHT: usize = 64;
const CONNECTIONS: usize = 8;

/// Everything measured of one server.
#[derive(Debug, Clone)]
pub(crate) struct Measures {
    pub(crate) version: String,
    pub(crate) ready: Duration,
    pub(crate) idle_memory: u64,
    pub(crate) create_alone: Cost,
    pub(crate) create_together: Cost,
    pub(crate) get: Cost,
    pub(crate) list: Cost,
    pub(crate) list_bytes: usize,
    pub(crate) fan_out: Cost,
    /// After the phases above, with all they left behind.
    pub(crate) loaded_memory: u64,
    pub(crate) cluster: Cost,
    pub(crate) cluster_memory: u64,
    /// The mean size of a pod as JSON.
    pub(crate) pod_bytes: usize,
}

/// Runs everything against one kind of server, each part on fresh data.
pub(crate) async fn run(kind: &Kind, dir: &Path, size: Size, say: fn(&str)) -> Result<Measures> {
    say("start");
    let mut starts = Vec::new();
    for _ in 0..size.starts {
        let server = kind.start(dir).await?;
        starts.push(server.ready_after);
        server.stop().await?;
    }
    let server = kind.start(dir).await?;
    let mut measures = single_objects(&server, size, say).await?;
    measures.ready = median(starts);
    server.stop().await?;
    let server = kind.start(dir).await?;
    let (cluster, pod_bytes) = limited(cluster(&server, size, say)).await?;
    sleep(SETTLE).await;
    measures.cluster = cluster;
    measures.pod_bytes = pod_bytes;
    measures.cluster_memory = server.processes().resident()?;
    server.stop().await?;
    Ok(measures)
}

async fn single_objects(server: &Server, size: Size, say: fn(&str)) -> Result<Measures> {
    let processes = server.processes();
    let client = Client::connect(&server.access).await?;
    sleep(SETTLE).await;
    let idle_memory = processes.resident()?;
    let clients = connections(&server.access, CONNECTIONS).await?;
    for namespace in ["alone", "together", "watched"] {
        client.write(&sample::namespace(namespace)).await?;
    }
    say("creates with one client");
    let creates = config_maps("alone", size.creates_alone);
    let create_alone = limited(write_all(&processes, &clients[..1], 1, &creates)).await?;
    say("creates with 64 clients");
    let creates = config_maps("together", size.creates_together);
    let create_together = limited(write_all(&processes, &clients, IN_FLIGHT, &creates)).await?;
    say("gets");
    let get = limited(gets(&processes, &client, size)).await?;
    say("lists");
    let (list, list_bytes) = limited(lists(&processes, &client, size)).await?;
    say("watchers");
    let fan_out = limited(fan_out(&processes, &server.access, &client, size)).await?;
    sleep(SETTLE).await;
    Ok(Measures {
        version: version(&client).await?,
        ready: server.ready_after,
        idle_memory,
        create_alone: create_alone.0,
        create_together: create_together.0,
        get,
        list,
        list_bytes,
        fan_out,
        loaded_memory: processes.resident()?,
        cluster: Cost::default(),
        cluster_memory: 0,
        pod_bytes: 0,
    })
}

async fn limited<T>(phase: impl Future<Output = Result<T>>) -> Result<T> {
    let outcome = timeout(PHASE_LIMIT, phase).await;
    outcome.with_context(|| format!("not done after {PHASE_LIMIT:?}"))?
}

async fn connections(access: &Access, number: usize) -> Result<Vec<Client>> {
    try_join_all((0..number).map(|_| Client::connect(access))).await
}

async fn version(client: &Client) -> Result<String> {
    let version: serde_json::Value = serde_json::from_slice(&client.get("/version").await?)?;
    Ok(version["gitVersion"].as_str().unwrap_or("unknown").into())
}

fn config_maps(namespace: &str, number: u32) -> Vec<Write> {
    (0..number)
        .map(|n| sample::config_map(namespace, n))
        .collect()
}

// Also gives the number of bytes answered.
async fn write_all(
    processes: &Processes,
    clients: &[Client],
    in_flight: usize,
    writes: &[Write],
) -> Result<(Cost, usize)> {
    let answered = std::cell::Cell::new(0);
    let pairs = writes.iter().zip(clients.iter().cycle()).map(Ok);
    let work = stream::iter(pairs).try_for_each_concurrent(in_flight, |(write, client)| {
        let answered = &answered;
        async move {
            answered.set(answered.get() + client.write(write).await?.len());
            Ok(())
        }
    });
    let (cost, ()) = processes.cost(count(writes), work).await?;
    Ok((cost, answered.get()))
}

fn count(writes: &[Write]) -> u32 {
    u32::try_from(writes.len()).expect("the sizes are u32")
}

async fn gets(processes: &Processes, client: &Client, size: Size) -> Result<Cost> {
    let work = async {
        for number in 0..size.gets {
            let path = sample::config_map_path("alone", number % size.creates_alone);
            client.get(&path).await?;
        }
        Ok(())
    };
    Ok(processes.cost(size.gets, work).await?.0)
}

// The wall time is the median's; CPU ticks are too coarse for one list, so that is the mean's.
async fn lists(processes: &Processes, client: &Client, size: Size) -> Result<(Cost, usize)> {
    let mut times = Vec::new();
    let path = sample::config_maps("together");
    let work = async {
        let mut last = Bytes::new();
        for _ in 0..size.lists {
            let start = Instant::now();
            last = client.get(&path).await?;
            times.push(start.elapsed());
        }
        Ok(last)
    };
    let (cost, last) = processes.cost(size.lists, work).await?;
    let listed = items(&last)?;
    ensure!(listed == size.creates_together as usize, "{listed} listed");
    let wall = median(times) * size.lists;
    Ok((Cost { wall, ..cost }, last.len()))
}

fn items(list: &[u8]) -> Result<usize> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<IgnoredAny>,
    }
    Ok(serde_json::from_slice::<List>(list)?.items.len())
}

// One writer, and every watcher on a connection of its own, as controllers and kubelets are.
async fn fan_out(
    processes: &Processes,
    access: &Access,
    writer: &Client,
    size: Size,
) -> Result<Cost> {
    let created = writer.write(&sample::config_map("watched", 0)).await?;
    let created: serde_json::Value = serde_json::from_slice(&created)?;
    let from = created["metadata"]["resourceVersion"].as_str();
    let path = format!(
        "{}?watch=true&resourceVersion={}",
        sample::config_maps("watched"),
        from.context("an object without a resource version")?
    );
    let clients = connections(access, size.watchers as usize).await?;
    let streams = try_join_all(clients.iter().map(|client| client.open(&path))).await?;
    let watchers: Vec<_> = streams
        .into_iter()
        .map(|stream| tokio::spawn(events(stream, size.updates)))
        .collect();
    let work = async {
        for generation in 1..=size.updates {
            let update = sample::config_map_update("watched", 0, generation);
            writer.write(&update).await?;
        }
        for watcher in watchers {
            watcher.await??;
        }
        Ok(())
    };
    Ok(processes.cost(size.updates, work).await?.0)
}

async fn events(mut stream: Incoming, expected: u32) -> Result<()> {
    let (mut line, mut seen) = (Vec::new(), 0);
    while seen < expected {
        let frame = stream.frame().await.context("a watch ended early")??;
        for part in frame
            .data_ref()
            .map_or(&[][..], |data| data)
            .split_inclusive(|b| *b == b'\n')
        {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") {
                let is_update = line.starts_with(br#"{"type":"MODIFIED""#);
                ensure!(is_update, "{}", String::from_utf8_lossy(&line));
                seen += 1;
                line.clear();
            }
        }
    }
    Ok(())
}

async fn cluster(server: &Server, size: Size, say: fn(&str)) -> Result<(Cost, usize)> {
    let processes = server.processes();
    let clients = connections(&server.access, CONNECTIONS).await?;
    clients[0].write(&sample::namespace("work")).await?;
    say("nodes and pods");
    let mut nodes: Vec<Write> = (0..size.nodes).map(sample::node).collect();
    nodes.extend((0..size.nodes).map(sample::node_status));
    let pods: Vec<Write> = (0..size.pods).map(|n| sample::pod("work", n)).collect();
    let statuses: Vec<Write> = (0..size.pods)
        .map(|n| sample::pod_status("work", n))
        .collect();
    let mut total = Cost::default();
    let mut answered = 0;
    for writes in [&nodes[..], &pods, &statuses] {
        let (cost, bytes) = write_all(&processes, &clients, IN_FLIGHT, writes).await?;
        total = total + cost;
        answered = bytes;
    }
    Ok((total, answered / statuses.len()))
}
