//! The cloud's front door, hollow: how quick its answers are, what writes cost among few and many resources, what it
//! takes of memory.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::access::Access;
use crate::client::{Client, JSON, Write};
use crate::measure::Processes;
use crate::section::{Section, with_unit};

/// How much of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Among how many resources a write is measured; reads are among the middle number.
    resources: [usize; 3],
    writes: usize,
    gets: usize,
    tokens: usize,
    machines: usize,
    starts: usize,
}

/// What the goals are stated for.
pub(crate) const FULL: Size = Size {
    resources: [100, 10_000, 100_000],
    writes: 200,
    gets: 5_000,
    tokens: 4_000,
    machines: 1_000,
    starts: 5,
};

/// A look at whether everything works.
pub(crate) const QUICK: Size = Size {
    resources: [100, 1_000, 5_000],
    writes: 50,
    gets: 500,
    tokens: 200,
    machines: 100,
    starts: 2,
};

const VERSION: &str = "api-version=2024-11-01";
const IN_FLIGHT: usize = 32;
const CONNECTIONS: usize = 8;
/// A template's loop has at most 800 turns, and a group at most this many of its resources here.
const LOOP: usize = 500;
const PATIENCE: Duration = Duration::from_secs(300);

/// What was measured.
pub(crate) struct Cloud {
    size: Size,
    start: Duration,
    /// Of GETs one after the other.
    p50: Duration,
    p99: Duration,
    per_second: f64,
    tokens_per_second: f64,
    memory: u64,
    /// The middle one of writes, among each number of resources.
    writes: [Duration; 3],
    machines: Duration,
}

struct Running {
    child: Child,
    known: Value,
    access: Access,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    async fn start(kyanite: &Path, dir: &Path) -> Result<(Running, Duration)> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let begin = Instant::now();
        let child = Command::new(kyanite)
            .args([
                "cloud",
                "--pace",
                "0",
                "--port",
                &port.port().to_string(),
                "--data-dir",
            ])
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut guard = Guard(Some(child));
        let took = loop {
            if answers(dir, port).await.is_ok() {
                break begin.elapsed();
            }
            ensure!(begin.elapsed() < PATIENCE, "the cloud does not open");
            sleep(Duration::from_millis(2)).await;
        };
        let text = std::fs::read_to_string(dir.join("azure/kyanite.json"))?;
        let running = Running {
            child: guard.0.take().context("it was started")?,
            known: serde_json::from_str(&text)?,
            access: access(dir, port)?,
        };
        Ok((running, took))
    }

    fn credential(&self, name: &str) -> &str {
        self.known["credentials"][name].as_str().unwrap_or_default()
    }

    async fn token(&self, client: &Client) -> Result<String> {
        let origin = self.known["origin"].as_str().unwrap_or_default();
        let body = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}&scope={origin}/.default",
            self.credential("client_id"),
            self.credential("client_secret").replace('~', "%7E")
        );
        let write = Write {
            method: "POST",
            path: format!("/{}/oauth2/v2.0/token", self.credential("tenant")),
            content_type: "application/x-www-form-urlencoded",
            body: body.into_bytes(),
        };
        let answer: Value = serde_json::from_slice(&client.write(&write).await?)?;
        let token = answer["access_token"].as_str();
        Ok(token.context("no token was given")?.to_owned())
    }

    async fn clients(&self) -> Result<Vec<Client>> {
        let first = Client::connect(&self.access).await?;
        let token = self.token(&first).await?;
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            all.push(Client::connect(&self.access).await?.with_bearer(&token));
        }
        Ok(all)
    }
}

/// Ends what was started where the rest goes wrong.
struct Guard(Option<Child>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn access(dir: &Path, address: SocketAddr) -> Result<Access> {
    Access::trusting(address, &std::fs::read(dir.join("pki/ca.crt"))?)
}

async fn answers(dir: &Path, address: SocketAddr) -> Result<()> {
    ensure!(dir.join("azure/kyanite.json").exists(), "not yet");
    let client = Client::connect(&access(dir, address)?).await?;
    client.get("/healthz").await.map(drop)
}

/// Measures a cloud whose state is below `dir`, which should be on a disk.
pub(crate) async fn measure(
    kyanite: &Path,
    dir: &Path,
    size: Size,
    say: fn(&str),
) -> Result<Cloud> {
    let place = tempfile::tempdir_in(dir)?;
    say("cold start");
    let start = cold_start(kyanite, place.path(), size.starts).await?;
    let (cloud, _) = Running::start(kyanite, place.path()).await?;
    let clients = cloud.clients().await?;
    let subscription = format!("/subscriptions/{}", cloud.credential("subscription"));
    say("writes among few");
    let mut made = fill(&clients[0], &subscription, 0, size.resources[0]).await?;
    let few = writes(&clients[0], &subscription, size.writes, "few").await?;
    made = fill(&clients[0], &subscription, made, size.resources[1]).await?;
    say("reads");
    let (p50, p99) = alone(&clients[0], &subscription, size.gets, made).await?;
    let per_second = together(&clients, &subscription, size.gets * 2, made).await?;
    let memory = Processes(vec![cloud.child.id()]).resident()?;
    let some = writes(&clients[0], &subscription, size.writes, "some").await?;
    say("tokens");
    let tokens_per_second = tokens(&cloud, &clients, size.tokens).await?;
    say("machines");
    let machines = machines(&clients[0], &subscription, size.machines).await?;
    say("writes among many");
    fill(&clients[0], &subscription, made, size.resources[2]).await?;
    let many = writes(&clients[0], &subscription, size.writes, "many").await?;
    Ok(Cloud {
        size,
        start,
        p50,
        p99,
        per_second,
        tokens_per_second,
        memory,
        writes: [few, some, many],
        machines,
    })
}

async fn cold_start(kyanite: &Path, dir: &Path, starts: usize) -> Result<Duration> {
    // The first start makes keys; who starts a cloud again has them.
    Running::start(kyanite, dir).await?;
    let mut times = Vec::new();
    for _ in 0..starts {
        times.push(Running::start(kyanite, dir).await?.1);
    }
    Ok(crate::measure::median(times))
}

fn put(path: String, body: &Value) -> Write {
    Write {
        method: "PUT",
        path: format!("{path}?{VERSION}"),
        content_type: JSON,
        body: body.to_string().into_bytes(),
    }
}

async fn group(client: &Client, subscription: &str, name: &str) -> Result<()> {
    let path = format!("{subscription}/resourceGroups/{name}");
    client
        .write(&put(path, &json!({"location": "eastus"})))
        .await
        .map(drop)
}

/// Where the resource of a number is.
fn table(subscription: &str, number: usize) -> String {
    let (group, at) = (number / LOOP, number % LOOP);
    format!(
        "{subscription}/resourceGroups/fill-{group}/providers/Microsoft.Network/routeTables/t{at}"
    )
}

/// Makes resources until there are so many: a template for each group, whose loop makes them.
async fn fill(client: &Client, subscription: &str, from: usize, wanted: usize) -> Result<usize> {
    let mut made = from;
    while made < wanted {
        let name = format!("fill-{}", made / LOOP);
        group(client, subscription, &name).await?;
        let count = LOOP.min(wanted.next_multiple_of(LOOP) - made);
        let loops = json!({"name": "loop", "count": count});
        let resource = json!({"type": "Microsoft.Network/routeTables", "apiVersion": "2024-01-01", "name": "[format('t{0}', copyIndex())]",
            "location": "eastus", "copy": loops, "tags": {"purpose": "bench", "owner": "nobody"},
            "properties": {"disableBgpRoutePropagation": true, "routes": [{"name": "r",
                "properties": {"addressPrefix": "10.0.0.0/8", "nextHopType": "VnetLocal"}}]}});
        let body =
            json!({"properties": {"mode": "Incremental", "template": {"resources": [resource]}}});
        let path = format!(
            "{subscription}/resourceGroups/{name}/providers/Microsoft.Resources/deployments/d"
        );
        client.write(&put(path.clone(), &body)).await?;
        succeeded(client, &path).await?;
        made += count;
    }
    Ok(made)
}

/// Waits until a resource is ready.
async fn succeeded(client: &Client, path: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        let now: Value = serde_json::from_slice(&client.get(&format!("{path}?{VERSION}")).await?)?;
        match now["properties"]["provisioningState"].as_str() {
            Some("Succeeded") => return Ok(()),
            Some("Failed") => bail!("{path}: {}", now["properties"]["error"]),
            _ if begin.elapsed() > PATIENCE => bail!("{path} is not ready in time"),
            _ => sleep(Duration::from_millis(2)).await,
        }
    }
}

/// The middle time of writes one after the other, until each is answered.
async fn writes(client: &Client, subscription: &str, count: usize, name: &str) -> Result<Duration> {
    let own = format!("writes-{name}");
    group(client, subscription, &own).await?;
    let mut times = Vec::new();
    for number in 0..count {
        let path = format!(
            "{subscription}/resourceGroups/{own}/providers/Microsoft.Network/routeTables/w{number}"
        );
        let write = put(path, &json!({"location": "eastus", "properties": {}}));
        let begin = Instant::now();
        client.write(&write).await?;
        times.push(begin.elapsed());
    }
    Ok(crate::measure::median(times))
}

fn any(number: usize, of: usize) -> usize {
    number.wrapping_mul(7_919) % of
}

async fn alone(
    client: &Client,
    subscription: &str,
    count: usize,
    of: usize,
) -> Result<(Duration, Duration)> {
    let mut times = Vec::new();
    for number in 0..count {
        let path = format!("{}?{VERSION}", table(subscription, any(number, of)));
        let begin = Instant::now();
        client.drain(&path).await?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

async fn together(clients: &[Client], subscription: &str, count: usize, of: usize) -> Result<f64> {
    let begin = Instant::now();
    let gets = (0..count).map(|number| {
        let client = &clients[number % clients.len()];
        let path = format!("{}?{VERSION}", table(subscription, any(number, of)));
        async move { client.drain(&path).await.map(drop) }
    });
    stream::iter(gets)
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

async fn tokens(cloud: &Running, clients: &[Client], count: usize) -> Result<f64> {
    let begin = Instant::now();
    let given = (0..count).map(|number| {
        let client = &clients[number % clients.len()];
        async move { cloud.token(client).await.map(drop) }
    });
    stream::iter(given)
        .buffer_unordered(IN_FLIGHT)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

/// A scale set of so many machines, until it and they are ready.
async fn machines(client: &Client, subscription: &str, count: usize) -> Result<Duration> {
    group(client, subscription, "machines").await?;
    let base = format!("{subscription}/resourceGroups/machines/providers");
    let network = format!("{base}/Microsoft.Network/virtualNetworks/v");
    let subnets = json!([{"name": "s", "properties": {"addressPrefix": "10.0.0.0/16"}}]);
    let body = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": subnets}});
    client.write(&put(network.clone(), &body)).await?;
    succeeded(client, &network).await?;
    let address =
        json!([{"name": "i", "properties": {"subnet": {"id": format!("{network}/subnets/s")}}}]);
    let card = json!({"name": "n", "properties": {"primary": true, "ipConfigurations": address}});
    let body = json!({"location": "eastus", "sku": {"name": "Standard_D2s_v5", "capacity": count}, "properties": {
        "orchestrationMode": "Uniform", "virtualMachineProfile": {"osProfile": {"computerNamePrefix": "w"},
            "networkProfile": {"networkInterfaceConfigurations": [card]}}}});
    let set = format!("{base}/Microsoft.Compute/virtualMachineScaleSets/w");
    let begin = Instant::now();
    client.write(&put(set.clone(), &body)).await?;
    succeeded(client, &set).await?;
    let last = format!("{set}/virtualMachines/{}?{VERSION}", count - 1);
    client.get(&last).await?;
    Ok(begin.elapsed())
}

impl Cloud {
    /// The table of the cloud.
    pub(crate) fn section(&self) -> Section {
        let header = ["the cloud", "ours", "goal", ""].map(str::to_owned);
        let mut lines = vec![header.to_vec()];
        for (name, value, unit, goal) in self.below() {
            let verdict = if value < goal { "met" } else { "missed" };
            lines.push(vec![
                name,
                with_unit(value, unit),
                format!("< {goal} {unit}"),
                verdict.into(),
            ]);
        }
        for (name, value, goal) in self.above() {
            let verdict = if value >= goal { "met" } else { "missed" };
            lines.push(vec![
                name,
                with_unit(value, "/s"),
                format!("≥ {goal}/s"),
                verdict.into(),
            ]);
        }
        Section {
            key: "cloud",
            lines,
            method: vec![self.method()],
            bars: Vec::new(),
            json: self.json(),
        }
    }

    fn below(&self) -> Vec<(String, f64, &'static str, f64)> {
        let [few, some, many] = self.size.resources;
        let first = millis(self.writes[0]);
        vec![
            (
                format!("GET, 99 of 100, among {some} resources"),
                millis(self.p99),
                "ms",
                2.0,
            ),
            ("  the middle one".into(), millis(self.p50), "ms", 2.0),
            (
                format!("resident with {some} resources"),
                self.memory as f64 / f64::from(1 << 20),
                "MiB",
                60.0,
            ),
            (
                format!("a scale set of {} machines", self.size.machines),
                self.machines.as_secs_f64(),
                "s",
                5.0,
            ),
            ("cold start".into(), self.start.as_secs_f64(), "s", 0.2),
            (format!("a write among {few}"), first, "ms", 50.0),
            (
                format!("  among {some}, to that"),
                millis(self.writes[1]) / first,
                "times",
                1.5,
            ),
            (
                format!("  among {many}, to that"),
                millis(self.writes[2]) / first,
                "times",
                1.5,
            ),
        ]
    }

    fn above(&self) -> Vec<(String, f64, f64)> {
        vec![
            ("GETs".into(), self.per_second, 5_000.0),
            ("tokens".into(), self.tokens_per_second, 2_000.0),
        ]
    }

    fn method(&self) -> String {
        format!(
            "The cloud: hollow, no throttling, HTTP/2 over TLS from one thread of this machine. GETs one after the other for their \
             times, {IN_FLIGHT} in flight over {CONNECTIONS} connections for their rate. Writes are PUTs of new route tables, one after \
             the other, the middle one of {}, with everything on the disk when it is answered. Cold start: the middle one of {}, until \
             /healthz answers, with keys and state of an earlier start.",
            self.size.writes, self.size.starts
        )
    }

    fn json(&self) -> Value {
        json!({"getP50Millis": millis(self.p50), "getP99Millis": millis(self.p99), "getsPerSecond": self.per_second,
            "tokensPerSecond": self.tokens_per_second, "residentBytes": self.memory, "startMillis": millis(self.start),
            "writeMillis": self.writes.map(millis), "scaleSetMillis": millis(self.machines)})
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
