//! The routes to the sink, each with processes of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use konnectivity::dialer::{self, Via};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

use super::sink::Use;
use crate::measure::Processes;
use crate::pki::Pki;
use crate::servers::{end, free_ports, spawn, until};

/// Whose konnectivity.
#[derive(Debug, Clone)]
pub(crate) enum Whose {
    /// The `kyanite` program.
    Ours(PathBuf),
    /// A directory with `proxy-server` and `proxy-agent`.
    Theirs(PathBuf),
}

/// How a konnectivity server is spoken to, over a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    HttpConnect,
    Grpc,
}

/// One way to the sink.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    Loopback,
    Relay,
    Tunnel(Whose, Front),
}

impl Way {
    /// Whether what is measured is not ours.
    pub(super) fn is_upstream(&self) -> bool {
        matches!(self, Way::Tunnel(Whose::Theirs(_), _))
    }

    pub(super) fn name(&self) -> String {
        match self {
            Way::Loopback => "loopback".into(),
            Way::Relay => "relay".into(),
            Way::Tunnel(whose, front) => {
                let whose = match whose {
                    Whose::Ours(_) => "ours",
                    Whose::Theirs(_) => "upstream",
                };
                format!("{whose}, {}", front.name())
            }
        }
    }
}

impl Front {
    pub(super) fn name(self) -> &'static str {
        match self {
            Front::HttpConnect => "HTTP",
            Front::Grpc => "gRPC",
        }
    }

    fn mode(self) -> &'static str {
        match self {
            Front::HttpConnect => "http-connect",
            Front::Grpc => "grpc",
        }
    }
}

/// Whether a directory has upstream's programs.
pub(super) fn are_there(programs: &Path) -> bool {
    ["proxy-server", "proxy-agent"]
        .iter()
        .all(|name| programs.join(name).is_file())
}

/// A connection to the sink.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A way that is open.
pub(super) struct Route {
    /// Server first, agent second; none on loopback.
    children: Vec<Child>,
    entrance: Entrance,
    sink: SocketAddr,
    /// The konnectivity server's, where there is one.
    pub(super) ports: Option<Ports>,
}

/// Where a konnectivity server listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) agents: u16,
    pub(super) health: u16,
}

enum Entrance {
    Direct,
    Socket(PathBuf),
    Tunnel(Via),
}

impl Route {
    /// Starts what the way needs, below this directory, and waits until it leads to the sink.
    pub(super) async fn open(way: &Way, dir: &Path, sink: SocketAddr) -> Result<Route> {
        let socket = dir.join("entrance.sock");
        Pki::make(dir)?;
        let mut ports = None;
        let (children, entrance) = match way {
            Way::Loopback => (Vec::new(), Entrance::Direct),
            Way::Relay => (relay(dir, &socket, sink)?, Entrance::Socket(socket)),
            Way::Tunnel(whose, front) => {
                let via = match front {
                    Front::HttpConnect => Via::ConnectUds(socket.clone()),
                    Front::Grpc => Via::GrpcUds(socket.clone()),
                };
                let (children, taken) = tunnel(whose, *front, dir, &socket)?;
                ports = Some(taken);
                (children, Entrance::Tunnel(via))
            }
        };
        let mut route = Route {
            children,
            entrance,
            sink,
            ports,
        };
        route.wait().await?;
        Ok(route)
    }

    async fn wait(&mut self) -> Result<()> {
        let Some(mut first) = self.children.pop() else {
            return Ok(());
        };
        let stands = until(&mut first, async || {
            self.connect(Use::Echo, 0).await.map(drop)
        })
        .await;
        self.children.push(first);
        stands.context("the tunnel does not come to stand")
    }

    /// A connection to the sink that is ready for its use.
    pub(super) async fn connect(&self, purpose: Use, bytes: u64) -> Result<Box<dyn Stream>> {
        let mut stream = self.dial().await?;
        let mut head = vec![purpose as u8];
        head.extend(bytes.to_be_bytes());
        stream.write_all(&head).await?;
        stream.flush().await?;
        ensure!(stream.read_u8().await? == 1, "the sink is not ready");
        Ok(stream)
    }

    async fn dial(&self) -> Result<Box<dyn Stream>> {
        Ok(match &self.entrance {
            Entrance::Direct => {
                let stream = TcpStream::connect(self.sink).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Entrance::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Entrance::Tunnel(via) => Box::new(dialer::dial(via, &self.sink.to_string()).await?),
        })
    }

    /// Everything between us and the sink.
    pub(super) fn processes(&self) -> Processes {
        Processes(self.children.iter().filter_map(Child::id).collect())
    }

    /// Each process alone: server, agent.
    pub(super) fn each(&self) -> Vec<Processes> {
        self.children
            .iter()
            .filter_map(Child::id)
            .map(|id| Processes(vec![id]))
            .collect()
    }

    /// Ends everything.
    pub(super) async fn close(mut self) -> Result<()> {
        for child in self.children.iter_mut().rev() {
            end(child).await?;
        }
        Ok(())
    }
}

fn relay(dir: &Path, socket: &Path, sink: SocketAddr) -> Result<Vec<Child>> {
    let [port, ..] = free_ports()?;
    let far = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
    let this = std::env::current_exe()?;
    let mut first = Command::new(&this);
    first.arg("relay-near").arg(socket).arg(&far).arg(dir);
    let mut second = Command::new(&this);
    second.args(["relay-far", &far, &sink.to_string()]).arg(dir);
    Ok(vec![
        spawn(first, &dir.join("near.log"))?,
        spawn(second, &dir.join("far.log"))?,
    ])
}

fn tunnel(whose: &Whose, front: Front, dir: &Path, socket: &Path) -> Result<(Vec<Child>, Ports)> {
    let [agent_port, server_admin, server_health] = free_ports()?;
    let [agent_admin, agent_health, _] = free_ports()?;
    let file = |name: &str| dir.join(name).display().to_string();
    let server = [
        ("uds-name", socket.display().to_string()),
        ("mode", front.mode().into()),
        ("server-port", "0".into()),
        ("agent-port", agent_port.to_string()),
        ("admin-port", server_admin.to_string()),
        ("health-port", server_health.to_string()),
        ("cluster-cert", file("server.crt")),
        ("cluster-key", file("server.key")),
        ("cluster-ca-cert", file("ca.crt")),
    ];
    let agent = [
        ("proxy-server-host", "127.0.0.1".into()),
        ("proxy-server-port", agent_port.to_string()),
        ("admin-server-port", agent_admin.to_string()),
        ("health-server-port", agent_health.to_string()),
        ("ca-cert", file("ca.crt")),
        ("agent-cert", file("client.crt")),
        ("agent-key", file("client.key")),
    ];
    let mut server_command = command(whose, "server");
    server_command.args(server.map(|(name, value)| format!("--{name}={value}")));
    let mut agent_command = command(whose, "agent");
    agent_command.args(agent.map(|(name, value)| format!("--{name}={value}")));
    let children = vec![
        spawn(server_command, &dir.join("server.log"))?,
        spawn(agent_command, &dir.join("agent.log"))?,
    ];
    let ports = Ports {
        agents: agent_port,
        health: server_health,
    };
    Ok((children, ports))
}

fn command(whose: &Whose, role: &str) -> Command {
    match whose {
        Whose::Ours(program) => {
            let mut command = Command::new(program);
            command.arg(format!("konnectivity-{role}"));
            command
        }
        // By default it writes two lines for each packet, which would only make ours look better.
        Whose::Theirs(programs) => {
            let mut command = Command::new(programs.join(format!("proxy-{role}")));
            command.arg("--v=0");
            command
        }
    }
}
