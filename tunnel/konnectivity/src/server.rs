//! The server: agents on one side, the API server on the other.

mod agents;
mod backend;
mod connect;
mod leases;
mod proxy;
mod registry;
mod standstill;
mod tokens;

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::tls::{Reloading, ServerFiles, TlsError, too_slow};

use crate::listen::{Listen, Phases, accept_loop};
use crate::metrics::{Method, ServerMetrics};
use crate::monitor;
use crate::strategies::Strategy;

#[cfg(test)]
pub(crate) use backend::{Backend, PendingDial};
pub use leases::LeaseSettings;
pub use registry::ConnectedAgent;
use registry::Registry;
pub use tokens::{NODE_NAME, Node, Reviewed, Reviewer, TokenSettings};

/// How long a dial may take when nothing else is said: less than the API server waits, so that it
/// hears a reason.
const DIAL_TIMEOUT: Duration = Duration::from_secs(25);
/// How long a handshake or a request's header may take.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// What the API server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Upstream's `ProxyService`.
    Grpc,
    /// HTTP/1.1 CONNECT.
    HttpConnect,
}

/// Where the API server comes in.
#[derive(Debug, Clone)]
pub enum FrontEnd {
    /// A Unix socket, without TLS.
    Uds {
        /// The socket's path.
        path: PathBuf,
        /// Whether a socket that is already there is removed first.
        replace: bool,
    },
    /// A port, with TLS.
    Tcp {
        /// Host and port.
        listen: Listen,
        /// Certificates.
        tls: ServerFiles,
    },
}

/// The addresses whose connections the agents' port takes.
#[derive(Clone)]
pub struct AgentsFrom(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl AgentsFrom {
    /// Those for which `may_knock` holds.
    pub fn only(may_knock: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> AgentsFrom {
        AgentsFrom(Arc::new(may_knock))
    }

    /// All.
    pub fn anywhere() -> AgentsFrom {
        AgentsFrom::only(|_| true)
    }
}

impl std::fmt::Debug for AgentsFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentsFrom")
    }
}

/// Everything a server is told.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// This server's name among its like.
    pub server_id: String,
    /// How many servers there are.
    pub server_count: u32,
    /// What the API server speaks.
    pub mode: Mode,
    /// Where it comes in.
    pub front: FrontEnd,
    /// Where agents come in.
    pub agents: Listen,
    /// From where they may come: others are hung up on before TLS.
    pub agents_from: AgentsFrom,
    /// Certificates for agents.
    pub agent_tls: ServerFiles,
    /// `/healthz`, `/readyz`, `/metrics`.
    pub health: Option<Listen>,
    /// `/metrics`, for this host only.
    pub admin: Option<Listen>,
    /// How agents are chosen, in order.
    pub strategies: Vec<Strategy>,
    /// After how much silence agents are asked whether they are there.
    pub keepalive: Duration,
    /// How long a dial may take.
    pub dial_timeout: Option<Duration>,
    /// How long open connections may go on after the end was asked for.
    pub graceful: Duration,
    /// Agents prove themselves with a service account's token.
    pub tokens: Option<TokenSettings>,
    /// This server publishes a lease for agents to count.
    pub leases: Option<LeaseSettings>,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A port or socket is not to be had.
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

/// What all connections of a server share.
pub(crate) struct Shared {
    server_id: String,
    server_count: u32,
    registry: Registry,
    metrics: Arc<ServerMetrics>,
    keepalive: Duration,
    dial_timeout: Duration,
    tokens: Option<tokens::Tokens>,
    closing: AtomicBool,
}

enum Front {
    Uds(UnixListener, PathBuf),
    Tcp(TcpListener, Arc<Reloading>),
}

/// The agents of a server.
#[derive(Clone)]
pub struct Roster(Weak<Shared>);

impl Roster {
    /// Those that are connected now.
    pub fn agents(&self) -> Vec<ConnectedAgent> {
        let shared = self.0.upgrade();
        shared.map_or_else(Vec::new, |shared| shared.registry.all())
    }
}

impl std::fmt::Debug for Roster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Roster")
    }
}

/// A server that has its ports.
pub struct Server {
    shared: Arc<Shared>,
    mode: Mode,
    front: Front,
    agents: TcpListener,
    agents_from: AgentsFrom,
    agent_tls: Arc<Reloading>,
    health: Option<TcpListener>,
    admin: Option<TcpListener>,
    graceful: Duration,
    leases: Option<LeaseSettings>,
}

async fn bind(listen: &Listen) -> Result<TcpListener, ServerError> {
    listen.bind().await.map_err(|source| ServerError::Listen {
        place: listen.to_string(),
        source,
    })
}

async fn bind_optional(listen: Option<&Listen>) -> Result<Option<TcpListener>, ServerError> {
    match listen {
        Some(listen) => bind(listen).await.map(Some),
        None => Ok(None),
    }
}

impl Server {
    /// Reads the certificates and takes the ports.
    pub async fn bind(config: ServerConfig) -> Result<Server, ServerError> {
        let metrics = Arc::new(ServerMetrics::default());
        let front = match config.front {
            FrontEnd::Uds { path, replace } => Front::Uds(bind_socket(&path, replace)?, path),
            FrontEnd::Tcp { listen, tls } => {
                let alpn: &[u8] = match config.mode {
                    Mode::Grpc => b"h2",
                    Mode::HttpConnect => b"http/1.1",
                };
                Front::Tcp(bind(&listen).await?, Arc::new(Reloading::new(tls, alpn)?))
            }
        };
        Ok(Server {
            mode: config.mode,
            front,
            agents: bind(&config.agents).await?,
            agents_from: config.agents_from,
            agent_tls: Arc::new(Reloading::new(config.agent_tls, b"h2")?),
            health: bind_optional(config.health.as_ref()).await?,
            admin: bind_optional(config.admin.as_ref()).await?,
            graceful: config.graceful,
            leases: config.leases,
            shared: Arc::new(Shared {
                server_id: config.server_id,
                server_count: config.server_count,
                registry: Registry::new(config.strategies),
                metrics,
                keepalive: config.keepalive,
                dial_timeout: config.dial_timeout.unwrap_or(DIAL_TIMEOUT),
                tokens: config.tokens.map(tokens::Tokens::new),
                closing: AtomicBool::new(false),
            }),
        })
    }

    /// The port agents connect to.
    pub fn agent_port(&self) -> io::Result<u16> {
        Ok(self.agents.local_addr()?.port())
    }

    /// Where one can look up who is connected, for as long as it serves.
    pub fn roster(&self) -> Roster {
        Roster(Arc::downgrade(&self.shared))
    }

    /// Serves until `stop`, then lets open connections finish for as long as was configured.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (close, closing) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        let (shared, graceful) = (Arc::clone(&self.shared), self.graceful);
        let socket = match &self.front {
            Front::Uds(_, path) => Some(path.clone()),
            Front::Tcp(..) => None,
        };
        let (mut front, rest) = self.start(Phases { closing, ended });
        stop.await;
        shared.closing.store(true, Ordering::Relaxed);
        close.send_replace(true);
        shared.registry.leave();
        // With no time given, or when it is over, what is left is cut. A task fails only by a panic,
        // which was reported where it happened.
        let finished =
            !graceful.is_zero() && tokio::time::timeout(graceful, &mut front).await.is_ok();
        end.send_replace(true);
        for task in rest.into_iter().chain((!finished).then_some(front)) {
            let _ = task.await;
        }
        if let Some(path) = socket {
            let _ = std::fs::remove_file(path);
        }
    }

    // The front end's task, and all others. Those stay until the very end: open connections need
    // the agents.
    fn start(self, phases: Phases) -> (JoinHandle<()>, Vec<JoinHandle<()>>) {
        let ended = phases.ended.clone();
        let until_end = Phases {
            closing: ended.clone(),
            ended: ended.clone(),
        };
        let shared = || Arc::clone(&self.shared);
        let port = agents::Port {
            listener: self.agents,
            from: self.agents_from,
            tls: self.agent_tls,
        };
        let agents = port.accept(shared(), until_end.clone());
        let mut others = vec![tokio::spawn(agents)];
        for (listener, health) in [(self.health, true), (self.admin, false)] {
            let monitor = monitor_loop(listener, health, shared(), until_end.clone());
            others.push(tokio::spawn(monitor));
        }
        if let Some(settings) = self.leases {
            let (id, metrics) = (
                self.shared.server_id.clone(),
                Arc::clone(&self.shared.metrics),
            );
            others.push(tokio::spawn(leases::publish(settings, id, metrics, ended)));
        }
        let front = front_loop(self.mode, self.front, shared(), phases);
        (tokio::spawn(front), others)
    }
}

// Upstream makes the socket under umask 0007; the mode is set here, so that no other thread's files
// are touched by a changed umask.
fn bind_socket(path: &PathBuf, replace: bool) -> Result<UnixListener, ServerError> {
    let failed = |source| ServerError::Listen {
        place: path.display().to_string(),
        source,
    };
    if replace
        && let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(failed(error));
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let mode = std::fs::Permissions::from_mode(0o770);
    std::fs::set_permissions(path, mode).map_err(failed)?;
    Ok(listener)
}

async fn front_loop(mode: Mode, front: Front, shared: Arc<Shared>, phases: Phases) {
    match front {
        Front::Uds(listener, _) => {
            accept_loop(listener, phases, |socket| {
                let shared = Arc::clone(&shared);
                async move {
                    match mode {
                        Mode::Grpc => proxy::serve(socket, shared).await,
                        Mode::HttpConnect => connect::serve(socket, shared).await,
                    }
                }
            })
            .await;
        }
        Front::Tcp(listener, tls) => {
            accept_loop(listener, phases, |socket| {
                let shared = Arc::clone(&shared);
                let acceptor = tokio_rustls::TlsAcceptor::from(tls.current());
                async move {
                    let handshake = acceptor.accept(socket);
                    let socket = match tokio::time::timeout(GREETING_TIMEOUT, handshake).await {
                        Ok(Ok(socket)) => socket,
                        Ok(Err(error)) => return refused("client", &error),
                        Err(_) => return refused("client", &too_slow()),
                    };
                    match mode {
                        Mode::Grpc => proxy::serve(socket, shared).await,
                        Mode::HttpConnect => connect::serve(socket, shared).await,
                    }
                }
            })
            .await;
        }
    }
}

fn refused(who: &str, error: &io::Error) {
    tracing::info!(who, %error, "TLS handshake failed");
}

async fn monitor_loop(
    listener: Option<TcpListener>,
    health: bool,
    shared: Arc<Shared>,
    phases: Phases,
) {
    let Some(listener) = listener else { return };
    accept_loop(listener, phases, |socket| {
        let shared = Arc::clone(&shared);
        monitor::serve(socket, move |path, _| shared.page(path, health))
    })
    .await;
}

impl Shared {
    fn page(&self, path: &str, health: bool) -> monitor::Page {
        match path {
            "/metrics" => monitor::Page::metrics(self.metrics.page(&self.registry.counts())),
            "/healthz" if health => monitor::Page::ok("ok"),
            "/readyz" | "/ready" if health => {
                if self.closing.load(Ordering::Relaxed) {
                    monitor::Page::status(500, registry::SHUTTING_DOWN)
                } else if self.registry.is_ready() {
                    monitor::Page::ok("ok")
                } else {
                    monitor::Page::status(500, "no connection to any proxy agent")
                }
            }
            _ => monitor::Page::status(404, "404 page not found"),
        }
    }

    fn counted(&self, method: Method) -> crate::metrics::Held<'_> {
        self.metrics.grpc(method).hold()
    }
}
