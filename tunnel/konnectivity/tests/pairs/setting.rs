//! A server with agents, as processes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use harness::{Pki, eventually_async as eventually};
use konnectivity::dialer::{DialError, Tunnel, Via, dial};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::programs::{Program, Role, Whose};

/// Which front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Grpc,
    Connect,
}

/// Who plays, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) server: Whose,
    pub(crate) agent: Whose,
    pub(crate) mode: Mode,
}

pub(crate) struct Agent {
    pub(crate) program: Program,
    health: u16,
}

pub(crate) struct Setting {
    plan: Plan,
    dir: tempfile::TempDir,
    pki: Pki,
    socket: PathBuf,
    pub(crate) server: Program,
    server_flags: Vec<String>,
    pub(crate) agents: Vec<Agent>,
    agent_port: u16,
    health: u16,
    logs: u32,
}

// Below the range the system gives out to clients, which would otherwise be there first.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 12_000 + (std::process::id() % 1000) as u16 * 20;
    loop {
        let port = start + NEXT.fetch_add(1, Ordering::Relaxed) % 700;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

impl Setting {
    /// A server that asks agents for certificates, and one agent that has one.
    pub(crate) async fn start(plan: Plan) -> Setting {
        let mut setting = Setting::server(plan, &[], true);
        setting.add_agent("a1", &[]);
        setting
    }

    /// Only the server.
    pub(crate) fn server(plan: Plan, more: &[String], certificates: bool) -> Setting {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new(dir.path(), "good", &[]);
        let (agent_port, health) = (port(), port());
        let socket = dir.path().join("socket");
        let mut flags = vec![
            flag("uds-name", socket.display()),
            flag("server-port", 0),
            flag("agent-port", agent_port),
            flag("agent-bind-address", "127.0.0.1"),
            flag("health-port", health),
            flag("admin-port", port()),
            flag("cluster-cert", pki.cert.display()),
            flag("cluster-key", pki.key.display()),
            flag(
                "mode",
                if plan.mode == Mode::Grpc {
                    "grpc"
                } else {
                    "http-connect"
                },
            ),
        ];
        if certificates {
            flags.push(flag("cluster-ca-cert", pki.ca.display()));
        }
        flags.extend_from_slice(more);
        let server = Program::start(
            plan.server,
            Role::Server,
            &flags,
            &dir.path().join("server.log"),
        );
        Setting {
            plan,
            dir,
            pki,
            socket,
            server,
            server_flags: flags,
            agents: Vec::new(),
            agent_port,
            health,
            logs: 0,
        }
    }

    /// Starts the server again, as another one.
    pub(crate) fn restart_server(&mut self) {
        let log = self.dir.path().join("server-again.log");
        self.server = Program::start(self.plan.server, Role::Server, &self.server_flags, &log);
    }

    pub(crate) fn add_agent(&mut self, id: &str, more: &[String]) {
        let ca = flag("ca-cert", self.pki.ca.display());
        let identity = [
            flag("agent-cert", self.pki.cert.display()),
            flag("agent-key", self.pki.key.display()),
        ];
        self.add_agent_with(id, ca, &[&identity, more].concat());
    }

    fn add_agent_with(&mut self, id: &str, ca: String, more: &[String]) {
        self.logs += 1;
        let health = port();
        let mut flags = vec![
            flag("agent-id", id),
            flag("proxy-server-port", self.agent_port),
            flag("health-server-port", health),
            flag("admin-server-port", port()),
            flag("sync-interval", "100ms"),
            flag("sync-interval-cap", "500ms"),
            ca,
        ];
        flags.extend_from_slice(more);
        let log = self.dir.path().join(format!("agent-{}.log", self.logs));
        let program = Program::start(self.plan.agent, Role::Agent, &flags, &log);
        self.agents.push(Agent { program, health });
    }

    /// An agent that trusts somebody else.
    pub(crate) fn add_stranger(&mut self) {
        let other = Pki::new(self.dir.path(), "other", &[]);
        self.add_agent_with("stranger", flag("ca-cert", other.ca.display()), &[]);
    }

    /// An agent with a token and no certificate.
    pub(crate) fn add_agent_with_token(&mut self, token: &str) {
        let path = self.dir.path().join(format!("token-{}", self.logs));
        std::fs::write(&path, token).unwrap();
        let ca = flag("ca-cert", self.pki.ca.display());
        let token = flag("service-account-token-path", path.display());
        self.add_agent_with("with-token", ca, &[token]);
    }

    fn via(&self) -> Via {
        match self.plan.mode {
            Mode::Grpc => Via::GrpcUds(self.socket.clone()),
            Mode::Connect => Via::ConnectUds(self.socket.clone()),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.plan.mode
    }

    pub(crate) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// One attempt.
    pub(crate) async fn try_dial(&self, address: impl ToString) -> Result<Tunnel, DialError> {
        dial(&self.via(), &address.to_string()).await
    }

    /// Dials until it works.
    pub(crate) async fn dial(&self, address: impl ToString) -> Tunnel {
        let address = address.to_string();
        eventually("a dial", async || self.try_dial(&address).await.ok()).await
    }

    /// How many agents the server has.
    pub(crate) async fn backends(&self) -> Option<i64> {
        metric(self.health, "server_ready_backend_connections").await
    }

    /// What the server says about its health.
    pub(crate) async fn health(&self, path: &str) -> Option<String> {
        get(self.health, path).await
    }

    /// How many connections the server believes to have.
    pub(crate) async fn established(&self) -> Option<i64> {
        metric(self.health, "server_established_connections").await
    }
}

impl Drop for Setting {
    #[allow(
        clippy::print_stderr,
        reason = "what the programs said explains a failure"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("server: {}", self.server.said());
            for agent in &self.agents {
                eprintln!("agent: {}", agent.program.said());
            }
        }
    }
}

impl Agent {
    /// What it says about its health.
    pub(crate) async fn health(&self, path: &str) -> Option<String> {
        get(self.health, path).await
    }

    /// How many connections to destinations it has.
    pub(crate) async fn endpoints(&self) -> Option<i64> {
        metric(self.health, "agent_open_endpoint_connections").await
    }
}

// The whole answer, header and all.
async fn get(port: u16, path: &str) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut page = String::new();
    socket.read_to_string(&mut page).await.ok()?;
    Some(page)
}

async fn metric(port: u16, name: &str) -> Option<i64> {
    let page = get(port, "/metrics").await?;
    let name = format!("konnectivity_network_proxy_{name} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&name))?;
    Some(value.trim().parse::<f64>().ok()? as i64)
}
