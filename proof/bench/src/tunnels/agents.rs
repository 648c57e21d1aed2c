//! A server with many agents: what it costs to have them connected.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use konnectivity::agent::{Agent, AgentConfig, Proxies};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::tls::ClientFiles;

use super::routes::Route;

/// How long agents may take to connect: upstream's server needs its time for handshakes.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// Before memory is read: background work comes to rest.
const SETTLE: Duration = Duration::from_secs(2);
/// How many agents are connected, in the words both servers have for it.
const CONNECTED: &str =
    "konnectivity_network_proxy_server_grpc_connections{service_method=\"Connect\"} ";

/// Resident bytes of the route's server with so many agents, its own among them. They run in this process.
pub(super) async fn measure(route: &Route, dir: &Path, agents: u32) -> Result<Option<u64>> {
    let (Some(ports), Some(server)) = (route.ports, route.each().into_iter().next()) else {
        return Ok(None);
    };
    let mut running = JoinSet::new();
    for number in 1..agents {
        let agent = Agent::bind(config(dir, number, ports.agents)).await?;
        running.spawn(agent.run(std::future::pending()));
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        let connected = connected(ports.health).await?;
        if connected >= agents {
            break;
        }
        if Instant::now() > deadline {
            bail!("only {connected} of {agents} agents are connected");
        }
        sleep(POLL).await;
    }
    sleep(SETTLE).await;
    let resident = server.resident()?;
    running.shutdown().await;
    Ok(Some(resident))
}

fn config(dir: &Path, number: u32, port: u16) -> AgentConfig {
    AgentConfig {
        agent_id: format!("agent-{number}"),
        identifiers: format!("host=node-{number}"),
        server_host: "127.0.0.1".to_owned(),
        server_port: port,
        proxies: Proxies::default(),
        tls: ClientFiles {
            ca: dir.join("ca.crt"),
            identity: Some((dir.join("client.crt"), dir.join("client.key"))),
            alpn: Vec::new(),
        },
        token: None,
        health: None,
        admin: None,
        sync_interval: Duration::from_secs(1),
        sync_interval_cap: Duration::from_secs(10),
        sync_forever: false,
        keepalive: Duration::from_secs(3600),
        leases: None,
    }
}

async fn connected(port: u16) -> Result<u32> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(ask.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    let line = page.lines().find_map(|line| line.strip_prefix(CONNECTED));
    line.unwrap_or("0").trim().parse().context("its metrics")
}
