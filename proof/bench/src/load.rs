//! The load: bounded in number and time, the same for every server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use futures::stream::{self, TryStreamExt as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::client::{Client, Stream, Write};
use crate::measure::{Cost, Processes, median};
use crate::roles;
use crate::sample;
use crate::servers::{Extent, Kind, Server};

const PHASE_LIMIT: Duration = Duration::from_secs(180);
/// Before memory is read: collectors and background work come to rest.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

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
    pub(crate) authorized_gets: u32,
    pub(crate) roles: u32,
    pub(crate) bindings: u32,
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
    authorized_gets: 10_000,
    roles: 1_000,
    bindings: 10_000,
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
    authorized_gets: 1_000,
    roles: 100,
    bindings: 1_000,
};

pub(crate) const IN_FLIGHT: usize = 64;
/// Authorized gets in flight: few enough that fairness lets all of them through.
pub(crate) const READS_IN_FLIGHT: usize = 16;
/// What controllers need to put their own objects into new namespaces.
pub(crate) const FURNISH: Duration = Duration::from_secs(1);
/// Connections that the requests in flight, or watchers, share.
pub(crate) const CONNECTIONS: usize = 8;

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
    /// Every watcher on a connection of its own, and several on each.
    pub(crate) fan_out: Cost,
    pub(crate) fan_out_shared: Cost,
    /// After the phases above, with all they left behind.
    pub(crate) loaded_memory: u64,
    pub(crate) cluster: Cost,
    pub(crate) cluster_memory: u64,
    /// The mean sizes as JSON, with everything the server adds.
    pub(crate) node_bytes: usize,
    pub(crate) pod_bytes: usize,
    /// Gets by a user who holds a role, with few other roles and with many.
    pub(crate) authorized: Cost,
    pub(crate) authorized_among_many: Cost,
}

/// Runs everything against one kind of server, each part on fresh data.
pub(crate) async fn run(kind: &Kind, dir: &Path, size: Size, say: fn(&str)) -> Result<Measures> {
    say("start");
    let mut starts = Vec::new();
    for _ in 0..size.starts {
        let server = kind.start(dir, Extent::ApiServer).await?;
        starts.push(server.ready_after);
        server.stop().await?;
    }
    let server = kind.start(dir, Extent::ApiServer).await?;
    let mut measures = single_objects(&server, size, say).await?;
    measures.ready = median(starts);
    server.stop().await?;
    let server = kind.start(dir, Extent::ApiServer).await?;
    let (cluster, [_, node_bytes, _, pod_bytes]) = limited(cluster(&server, size, say)).await?;
    sleep(SETTLE).await;
    measures.cluster = cluster;
    measures.node_bytes = node_bytes;
    measures.pod_bytes = pod_bytes;
    measures.cluster_memory = server.processes().resident()?;
    server.stop().await?;
    let server = kind.start(dir, Extent::ApiServer).await?;
    [measures.authorized, measures.authorized_among_many] = authorized(&server, size, say).await?;
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
    sleep(FURNISH).await;
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
    let apart = connections(&server.access, size.watchers as usize).await?;
    let fan_out = limited(fan_out(&processes, &apart, &client, 0, size)).await?;
    drop(apart);
    let fan_out_shared = limited(self::fan_out(&processes, &clients, &client, 1, size)).await?;
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
        fan_out_shared,
        loaded_memory: processes.resident()?,
        cluster: Cost::default(),
        cluster_memory: 0,
        node_bytes: 0,
        pod_bytes: 0,
        authorized: Cost::default(),
        authorized_among_many: Cost::default(),
    })
}

/// A phase that must be done within a bounded time.
pub(crate) async fn limited<T>(phase: impl Future<Output = Result<T>>) -> Result<T> {
    let outcome = timeout(PHASE_LIMIT, phase).await;
    outcome.with_context(|| format!("not done after {PHASE_LIMIT:?}"))?
}

/// So many connections.
pub(crate) async fn connections(access: &Access, number: usize) -> Result<Vec<Client>> {
    try_join_all((0..number).map(|_| Client::connect(access))).await
}

/// What the server calls itself.
pub(crate) async fn version(client: &Client) -> Result<String> {
    let version: serde_json::Value = serde_json::from_slice(&client.get("/version").await?)?;
    Ok(version["gitVersion"].as_str().unwrap_or("unknown").into())
}

fn config_maps(namespace: &str, number: u32) -> Vec<Write> {
    (0..number)
        .map(|n| sample::config_map(namespace, n))
        .collect()
}

/// Writes all of these, so many at once; also gives the number of bytes answered.
pub(crate) async fn write_all(
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
            let answer = client.write(write).await?;
            answered.set(answered.get() + answer.len());
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

// The wall time is the median's; CPU ticks are too coarse for one list, so that is the mean's. The
// client keeps nothing while the clock runs; one more list is counted afterwards.
async fn lists(processes: &Processes, client: &Client, size: Size) -> Result<(Cost, usize)> {
    let path = sample::config_maps("together");
    let (mut times, mut lengths) = (Vec::new(), Vec::new());
    let work = async {
        for _ in 0..size.lists {
            let start = Instant::now();
            lengths.push(client.drain(&path).await?);
            times.push(start.elapsed());
        }
        Ok(())
    };
    let (cost, ()) = processes.cost(size.lists, work).await?;
    let whole = client.get(&path).await?;
    let listed = items(&whole)?;
    // A controller may have put a ConfigMap with the CA into the namespace.
    let others = listed.checked_sub(size.creates_together as usize);
    ensure!(others.is_some_and(|others| others <= 1), "{listed} listed");
    let is_same = lengths.iter().all(|length| *length == whole.len());
    ensure!(is_same, "lists of {lengths:?} and {} bytes", whole.len());
    let wall = median(times) * size.lists;
    Ok((Cost { wall, ..cost }, whole.len()))
}

fn items(list: &[u8]) -> Result<usize> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<IgnoredAny>,
    }
    Ok(serde_json::from_slice::<List>(list)?.items.len())
}

// One writer who updates one object, and watchers spread over connections.
async fn fan_out(
    processes: &Processes,
    clients: &[Client],
    writer: &Client,
    object: u32,
    size: Size,
) -> Result<Cost> {
    let created = sample::config_map("watched", object);
    let created: serde_json::Value = serde_json::from_slice(&writer.write(&created).await?)?;
    let from = created["metadata"]["resourceVersion"].as_str();
    let path = format!(
        "{}?watch=true&resourceVersion={}",
        sample::config_maps("watched"),
        from.context("an object without a resource version")?
    );
    let spread = clients.iter().cycle().take(size.watchers as usize);
    let streams = try_join_all(spread.map(|client| client.open(&path))).await?;
    let watchers: Vec<_> = streams
        .into_iter()
        .map(|stream| tokio::spawn(events(stream, size.updates)))
        .collect();
    let work = async {
        for generation in 1..=size.updates {
            let update = sample::config_map_update("watched", object, generation);
            writer.write(&update).await?;
        }
        for watcher in watchers {
            watcher.await??;
        }
        Ok(())
    };
    Ok(processes.cost(size.updates, work).await?.0)
}

async fn events(mut stream: Stream, expected: u32) -> Result<()> {
    let (mut line, mut seen) = (Vec::new(), 0);
    while seen < expected {
        for part in stream.next().await?.split_inclusive(|b| *b == b'\n') {
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

// Also gives the mean size of the answers of each part.
async fn cluster(server: &Server, size: Size, say: fn(&str)) -> Result<(Cost, [usize; 4])> {
    let processes = server.processes();
    let clients = connections(&server.access, CONNECTIONS).await?;
    clients[0].write(&sample::namespace("work")).await?;
    sleep(FURNISH).await;
    // Refused where a controller has made it.
    let _ = clients[0].write(&sample::account("work")).await;
    say("nodes and pods");
    // One after the other: an object must be there before its status is patched.
    let parts: [Vec<Write>; 4] = [
        (0..size.nodes).map(sample::node).collect(),
        (0..size.nodes).map(sample::node_status).collect(),
        (0..size.pods).map(|n| sample::pod("work", n)).collect(),
        (0..size.pods)
            .map(|n| sample::pod_status("work", n))
            .collect(),
    ];
    let mut total = Cost::default();
    let mut means = [0; 4];
    for (writes, mean) in parts.iter().zip(&mut means) {
        let (cost, bytes) = write_all(&processes, &clients, IN_FLIGHT, writes).await?;
        total = total + cost;
        *mean = bytes / writes.len();
    }
    Ok((total, means))
}

async fn authorized(server: &Server, size: Size, say: fn(&str)) -> Result<[Cost; 2]> {
    let processes = server.processes();
    let admins = connections(&server.access, CONNECTIONS).await?;
    let readers = connections(&server.reader, CONNECTIONS).await?;
    let create =
        async |writes: &[Write]| limited(write_all(&processes, &admins, IN_FLIGHT, writes)).await;
    create(&roles::namespaces()).await?;
    create(&config_maps(roles::READ, size.creates_alone)).await?;
    create(&roles::of_reader()).await?;
    sleep(SETTLE).await;
    say("authorized gets");
    let alone = limited(reads(&processes, &readers, size)).await?;
    say("roles and bindings");
    create(&roles::roles(size.roles)).await?;
    create(&roles::bindings(size.bindings, size.roles)).await?;
    sleep(SETTLE).await;
    say("authorized gets among many roles");
    Ok([alone, limited(reads(&processes, &readers, size)).await?])
}

async fn reads(processes: &Processes, clients: &[Client], size: Size) -> Result<Cost> {
    let numbers = (0..size.authorized_gets)
        .zip(clients.iter().cycle())
        .map(Ok);
    let work =
        stream::iter(numbers).try_for_each_concurrent(READS_IN_FLIGHT, async |(number, client)| {
            let path = sample::config_map_path(roles::READ, number % size.creates_alone);
            client.get(&path).await.map(drop)
        });
    Ok(processes.cost(size.authorized_gets, work).await?.0)
}
