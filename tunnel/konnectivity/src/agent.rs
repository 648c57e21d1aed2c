//! The agent: connects to servers, and to destinations when they ask.

mod endpoint;
mod leases;
mod proxies;
mod servers;
mod session;
mod sync;
mod way;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use wire::tls::{ClientFiles, TlsError};

use crate::listen::{Listen, Phases, accept_loop};
use crate::metrics::AgentMetrics;
use crate::monitor;

pub use leases::{CountSource, LeaseCounting};
pub use proxies::Proxies;
use servers::Servers;
#[cfg(test)]
pub(crate) use session::{Effect, Session};

/// How long open connections may go on after the end was asked for.
const DRAIN: Duration = Duration::from_secs(20);

/// Everything an agent is told.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// This agent's name among its like.
    pub agent_id: String,
    /// What it can reach, as a URL query.
    pub identifiers: String,
    /// The servers' address, one for all.
    pub server_host: String,
    /// Its port.
    pub server_port: u16,
    /// What is on the way to it.
    pub proxies: Proxies,
    /// Certificates.
    pub tls: ClientFiles,
    /// The file of the service account's token, where servers ask for one.
    pub token: Option<PathBuf>,
    /// `/healthz`, `/readyz`, `/metrics`.
    pub health: Option<Listen>,
    /// `/metrics`, for this host only.
    pub admin: Option<Listen>,
    /// How often the servers are counted, and the wait after a failure at first.
    pub sync_interval: Duration,
    /// The longest wait after failures.
    pub sync_interval_cap: Duration,
    /// Whether further servers are looked for even when all are connected.
    pub sync_forever: bool,
    /// After how much silence servers are asked whether they are there.
    pub keepalive: Duration,
    /// Servers are counted by their leases.
    pub leases: Option<LeaseCounting>,
}

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A port is not to be had.
    #[error("cannot listen on {place}: {source}")]
    Listen {
        /// Where.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// Certificates are not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// An agent that has its ports.
pub struct Agent {
    config: AgentConfig,
    health: Option<TcpListener>,
    admin: Option<TcpListener>,
    metrics: Arc<AgentMetrics>,
}

async fn bind(listen: Option<&Listen>) -> Result<Option<TcpListener>, AgentError> {
    let Some(listen) = listen else {
        return Ok(None);
    };
    let bound = listen.bind().await.map_err(|source| AgentError::Listen {
        place: listen.to_string(),
        source,
    })?;
    Ok(Some(bound))
}

impl Agent {
    /// Checks the certificates and takes the ports.
    pub async fn bind(config: AgentConfig) -> Result<Agent, AgentError> {
        config.tls.load()?;
        Ok(Agent {
            health: bind(config.health.as_ref()).await?,
            admin: bind(config.admin.as_ref()).await?,
            metrics: Arc::new(AgentMetrics::default()),
            config,
        })
    }

    /// Serves until `stop`; then tells the servers that it is leaving, and lets open connections
    /// finish for a while.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (drain, draining) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let phases = Phases {
            closing: ended.clone(),
            ended: ended.clone(),
        };
        let servers = Arc::new(Servers::new(Arc::clone(&self.metrics)));
        let health_port = self
            .health
            .as_ref()
            .and_then(|l| l.local_addr().ok())
            .map(|a| a.port());
        let monitors = [
            tokio::spawn(health_loop(
                self.health,
                Arc::clone(&servers),
                draining.clone(),
                phases.clone(),
            )),
            tokio::spawn(admin_loop(self.admin, health_port, phases)),
        ];
        let context = sync::Context {
            config: Arc::new(self.config),
            servers: Arc::clone(&servers),
            draining,
        };
        let mut syncing = tokio::spawn(sync::run(context, ended));
        stop.await;
        drain.send_replace(true);
        let _ = tokio::time::timeout(DRAIN, servers.idle()).await;
        end.send_replace(true);
        let _ = (&mut syncing).await;
        for task in monitors {
            let _ = task.await;
        }
    }
}

async fn health_loop(
    listener: Option<TcpListener>,
    servers: Arc<Servers>,
    draining: watch::Receiver<bool>,
    phases: Phases,
) {
    let Some(listener) = listener else { return };
    accept_loop(listener, phases, |socket| {
        let (servers, draining) = (Arc::clone(&servers), draining.clone());
        monitor::serve(socket, move |path, query| {
            let ready = servers.connected() && !*draining.borrow();
            health_page(path, query, ready, &servers)
        })
    })
    .await;
}

fn health_page(path: &str, query: &str, ready: bool, servers: &Servers) -> monitor::Page {
    let verbose = query
        .split('&')
        .any(|item| item.split('=').next() == Some("verbose"));
    match path {
        "/metrics" => monitor::Page::metrics(servers.metrics.page()),
        "/healthz" => monitor::Page::ok("ok"),
        "/readyz" | "/ready" if ready && !verbose => monitor::Page::ok("ok"),
        "/readyz" | "/ready" if ready => {
            monitor::Page::ok("[+]ping ok\n[+]server-connected ok\ncheck passed\n")
        }
        "/readyz" | "/ready" => monitor::Page::status(
            503,
            "[+]ping ok\n[-]server-connected failed: no servers connected\n",
        ),
        _ => monitor::Page::status(404, "404 page not found"),
    }
}

async fn admin_loop(listener: Option<TcpListener>, health: Option<u16>, phases: Phases) {
    let Some(listener) = listener else { return };
    accept_loop(listener, phases, |socket| {
        let host = socket
            .local_addr()
            .map(|a| a.ip().to_string())
            .unwrap_or_default();
        monitor::serve(socket, move |path, _| match (path, health) {
            ("/metrics", Some(port)) => {
                monitor::Page::moved(format!("http://{host}:{port}/metrics"))
            }
            _ => monitor::Page::status(404, "404 page not found"),
        })
    })
    .await;
}
