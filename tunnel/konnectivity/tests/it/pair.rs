//! A server with one agent.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::{Pki, eventually_async as eventually, free_port};
use konnectivity::agent::{Agent, AgentConfig, Proxies};
use konnectivity::dialer::{DialError, TcpProxy, Tunnel, Via, dial};
use konnectivity::server::{AgentsFrom, FrontEnd, Mode, Server, ServerConfig};
use konnectivity::{Listen, Strategy};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wire::tls::{ClientFiles, Clients, Policy, ServerFiles};

/// What the certificates are for, beside loopback.
pub(crate) const NAMES: &[&str] = &["konnectivity.test"];

/// How a front end is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    GrpcUds,
    GrpcTcp,
    ConnectUds,
    ConnectTcp,
}

pub(crate) const FRONTS: [Front; 4] = [
    Front::GrpcUds,
    Front::GrpcTcp,
    Front::ConnectUds,
    Front::ConnectTcp,
];

/// A process's worth of something that stops when told.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }

    /// Tells it to stop, and does not wait.
    pub(crate) fn tell_to_stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

pub(crate) struct Pair {
    _dir: tempfile::TempDir,
    pub(crate) via: Via,
    pub(crate) server: Running,
    pub(crate) agent: Running,
    pub(crate) agent_config: AgentConfig,
}

fn stoppable() -> (oneshot::Sender<()>, impl Future<Output = ()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    (stop, async move {
        let _ = stopped.await;
    })
}

pub(crate) async fn start_agent(config: AgentConfig) -> Running {
    let agent = Agent::bind(config).await.unwrap();
    let (stop, stopped) = stoppable();
    Running {
        stop: Some(stop),
        task: tokio::spawn(agent.run(stopped)),
    }
}

fn loopback() -> Listen {
    Listen {
        host: "127.0.0.1".to_owned(),
        port: 0,
    }
}

fn files(pki: &Pki) -> ServerFiles {
    ServerFiles {
        cert: pki.cert.clone(),
        key: pki.key.clone(),
        clients: Clients::Of(pki.ca.clone()),
        policy: Policy::default(),
    }
}

fn proxy(pki: &Pki, port: u16) -> TcpProxy {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&pki.ca).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(&pki.cert).unwrap()],
            PrivateKeyDer::from_pem_file(&pki.key).unwrap(),
        )
        .unwrap();
    TcpProxy {
        address: format!("127.0.0.1:{port}"),
        server_name: "localhost".try_into().unwrap(),
        tls: Arc::new(tls),
    }
}

/// A server, and how it is reached from both sides.
pub(crate) struct ServerSide {
    pub(crate) running: Running,
    pub(crate) via: Via,
    pub(crate) agent_port: u16,
}

/// Starts one of `count` servers.
pub(crate) async fn start_server(
    front: Front,
    pki: &Pki,
    dir: &Path,
    (id, count): (&str, u32),
) -> ServerSide {
    start_server_as(front, pki, dir, (id, count), |_| {}).await
}

/// As [`start_server`], with settings of the test's choice.
pub(crate) async fn start_server_as(
    front: Front,
    pki: &Pki,
    dir: &Path,
    (id, count): (&str, u32),
    change: impl FnOnce(&mut ServerConfig),
) -> ServerSide {
    let socket = dir.join(format!("socket-{id}"));
    let port = free_port();
    let tcp = FrontEnd::Tcp {
        listen: Listen { port, ..loopback() },
        tls: files(pki),
    };
    let uds = FrontEnd::Uds {
        path: socket.clone(),
        replace: true,
    };
    let (mode, front_end, via) = match front {
        Front::GrpcUds => (Mode::Grpc, uds, Via::GrpcUds(socket)),
        Front::GrpcTcp => (Mode::Grpc, tcp, Via::GrpcTcp(proxy(pki, port))),
        Front::ConnectUds => (Mode::HttpConnect, uds, Via::ConnectUds(socket)),
        Front::ConnectTcp => (Mode::HttpConnect, tcp, Via::ConnectTcp(proxy(pki, port))),
    };
    let mut config = ServerConfig {
        server_id: id.to_owned(),
        server_count: count,
        mode,
        front: front_end,
        agents: loopback(),
        agents_from: AgentsFrom::anywhere(),
        agent_tls: files(pki),
        health: None,
        admin: None,
        strategies: vec![Strategy::Default],
        keepalive: Duration::from_secs(30),
        dial_timeout: None,
        graceful: Duration::ZERO,
        tokens: None,
        leases: None,
    };
    change(&mut config);
    let server = Server::bind(config).await.unwrap();
    let agent_port = server.agent_port().unwrap();
    let (stop, stopped) = stoppable();
    let running = Running {
        stop: Some(stop),
        task: tokio::spawn(server.run(stopped)),
    };
    ServerSide {
        running,
        via,
        agent_port,
    }
}

/// An agent for the servers behind a port.
pub(crate) fn agent_config(pki: Pki, server_port: u16) -> AgentConfig {
    AgentConfig {
        agent_id: "a1".to_owned(),
        identifiers: String::new(),
        server_host: "127.0.0.1".to_owned(),
        server_port,
        proxies: Proxies::default(),
        tls: ClientFiles {
            ca: pki.ca,
            identity: Some((pki.cert, pki.key)),
            alpn: Vec::new(),
        },
        token: None,
        health: None,
        admin: None,
        sync_interval: Duration::from_millis(100),
        sync_interval_cap: Duration::from_secs(1),
        sync_forever: false,
        keepalive: Duration::from_secs(60),
        leases: None,
    }
}

impl Pair {
    pub(crate) async fn start(front: Front) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new(dir.path(), "one", NAMES);
        let server = start_server(front, &pki, dir.path(), ("s1", 1)).await;
        let agent_config = agent_config(pki, server.agent_port);
        Pair {
            _dir: dir,
            via: server.via,
            server: server.running,
            agent: start_agent(agent_config.clone()).await,
            agent_config,
        }
    }

    /// Dials, once there is an agent to dial through.
    pub(crate) async fn dial(&self, address: impl ToString) -> Tunnel {
        dial_soon(&self.via, address).await
    }
}

/// Dials, once there is an agent to dial through.
pub(crate) async fn dial_soon(via: &Via, address: impl ToString) -> Tunnel {
    let address = address.to_string();
    eventually("an agent to dial through", async || {
        match dial(via, &address).await {
            Ok(tunnel) => Some(tunnel),
            Err(error) if is_too_early(&error) => None,
            Err(error) => panic!("{address}: {error}"),
        }
    })
    .await
}

fn is_too_early(error: &DialError) -> bool {
    error.to_string().contains("No agent available")
}
