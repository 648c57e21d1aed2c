//! A control plane put together from programs of either side. Whoever uses it cannot tell them apart.

mod commands;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::kubectl::Kubectl;
use crate::pki::Pki;
use crate::process::Process;
use crate::programs::Programs;
use crate::wait::eventually;

/// Who made a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Theirs,
}

/// Which parts there are, and whose each is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// The API server.
    pub(crate) api_server: Whose,
    /// Ours is inside our API server, theirs is etcd.
    pub(crate) store: Whose,
    /// Runs the controllers.
    pub(crate) manager: Option<Whose>,
    /// Binds pods to nodes.
    pub(crate) scheduler: Option<Whose>,
    /// Makes this machine a node, where a scenario needs one.
    pub(crate) kubelet: Whose,
    /// Carries what the API server has to say to nodes: a konnectivity server and its agent.
    pub(crate) tunnel: Option<Whose>,
}

impl Plan {
    /// An API server on the store it comes with.
    pub(crate) fn server(whose: Whose) -> Plan {
        Plan {
            api_server: whose,
            store: whose,
            manager: None,
            scheduler: None,
            kubelet: Whose::Theirs,
            tunnel: None,
        }
    }
}

/// A running control plane. The parts end in this order: clients before servers.
pub(crate) struct Cluster<'a> {
    _scheduler: Option<Process>,
    manager: Option<Process>,
    api_server: Option<Process>,
    tunnel: Option<Tunnel>,
    etcd: Option<Process>,
    kubelet: Whose,
    /// As administrator.
    pub(crate) kubectl: Kubectl,
    pub(crate) programs: &'a Programs,
    pub(crate) pki: Pki,
    pub(crate) dir: &'a Path,
    pub(crate) ports: Ports,
}

struct Tunnel {
    // The agent ends first.
    agent: Option<Process>,
    server: Process,
}

/// Where the parts listen, on loopback.
pub(crate) struct Ports {
    pub(crate) api_server: u16,
    etcd: u16,
    etcd_peer: u16,
    manager: u16,
    scheduler: u16,
    /// The konnectivity server's for agents, admin and health; the agent's for admin and health.
    tunnel: [u16; 5],
    /// For one more program that a scenario starts.
    pub(crate) other: u16,
    /// For a cloud beside the cluster.
    pub(crate) cloud: u16,
}

impl<'a> Cluster<'a> {
    /// Starts what the plan names, below this empty directory.
    pub(crate) fn start(plan: Plan, programs: &'a Programs, dir: &'a Path) -> Result<Cluster<'a>> {
        let ports = Ports::free()?;
        let pki = Pki::make(dir.join("pki"))?;
        let kubeconfig = pki.kubeconfig("admin", ports.api_server)?;
        let kubectl = Kubectl::new(programs.kubectl(), kubeconfig, dir);
        let mut cluster = Cluster {
            _scheduler: None,
            manager: None,
            api_server: None,
            tunnel: None,
            etcd: None,
            kubelet: plan.kubelet,
            kubectl,
            programs,
            pki,
            dir,
            ports,
        };
        if plan.store == Whose::Theirs {
            cluster.start_etcd()?;
        }
        cluster.tunnel = plan
            .tunnel
            .map(|whose| cluster.start_tunnel(whose))
            .transpose()?;
        cluster.start_api_server(plan.api_server)?;
        cluster.manager = plan
            .manager
            .map(|whose| cluster.start_manager(whose))
            .transpose()?;
        cluster._scheduler = plan
            .scheduler
            .map(|whose| cluster.start_scheduler(whose))
            .transpose()?;
        Ok(cluster)
    }

    /// Ends the API server and starts one on the same store, at the same address.
    pub(crate) fn replace_api_server(&mut self, whose: Whose) -> Result<()> {
        self.api_server = None;
        self.start_api_server(whose)
    }

    /// Ends the store and starts it again on its data; nothing when it lives in the API server.
    pub(crate) fn restart_store(&mut self) -> Result<()> {
        if self.etcd.take().is_some() {
            self.start_etcd()?;
        }
        Ok(())
    }

    /// Fails when a part has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        let parts = [
            &mut self._scheduler,
            &mut self.manager,
            &mut self.api_server,
            &mut self.etcd,
        ];
        parts.into_iter().flatten().try_for_each(Process::check)?;
        match &mut self.tunnel {
            Some(tunnel) => tunnel.server.check(),
            None => Ok(()),
        }
    }

    /// Ends the agent of the tunnel: nothing leads to the nodes any more.
    pub(crate) fn cut_tunnel(&mut self) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.agent = None;
        }
    }

    fn start_etcd(&mut self) -> Result<()> {
        let mut command = Command::new(self.programs.upstream("etcd")?);
        command.args(commands::etcd(self));
        let mut process = Process::start("etcd", self.dir, &mut command)?;
        eventually("etcd listens", || {
            process.check()?;
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports.etcd)).context("etcd")
        })?;
        self.etcd = Some(process);
        Ok(())
    }

    fn start_tunnel(&self, whose: Whose) -> Result<Tunnel> {
        let mut command = self.role(whose, "konnectivity-server", "proxy-server")?;
        command.args(commands::tunnel_server(self));
        let mut server = Process::start("konnectivity-server", self.dir, &mut command)?;
        commands::write_egress(self)?;
        let mut command = self.role(whose, "konnectivity-agent", "proxy-agent")?;
        command.args(commands::tunnel_agent(self));
        let agent = Process::start("konnectivity-agent", self.dir, &mut command)?;
        let health = self.ports.tunnel[2];
        eventually("the tunnel stands", || {
            server.check()?;
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, health))?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            ensure!(answer.contains(" 200 "), "its health is {answer:?}");
            Ok(())
        })?;
        Ok(Tunnel {
            agent: Some(agent),
            server,
        })
    }

    fn start_api_server(&mut self, whose: Whose) -> Result<()> {
        let mut command = self.role(whose, "apiserver", "kube-apiserver")?;
        command.args(commands::api_server(self, self.etcd.is_none()));
        let mut process = Process::start("api-server", self.dir, &mut command)?;
        eventually("the API server is ready", || {
            process.check()?;
            self.kubectl.run("get --raw /readyz")
        })?;
        self.api_server = Some(process);
        Ok(())
    }

    fn start_manager(&self, whose: Whose) -> Result<Process> {
        let mut command = self.role(whose, "controller-manager", "kube-controller-manager")?;
        command.args(commands::manager(self)?);
        Process::start("controller-manager", self.dir, &mut command)
    }

    fn start_scheduler(&self, whose: Whose) -> Result<Process> {
        let mut command = self.role(whose, "scheduler", "kube-scheduler")?;
        command.args(commands::scheduler(self)?);
        Process::start("scheduler", self.dir, &mut command)
    }

    /// The kubelet of the plan, with nothing said to it yet.
    pub(crate) fn kubelet(&self) -> Result<Command> {
        self.role(self.kubelet, "kubelet", "kubelet")
    }

    // Our programs are one, with the role as its first word.
    pub(crate) fn role(&self, whose: Whose, ours: &str, theirs: &str) -> Result<Command> {
        let mut command = match whose {
            Whose::Ours => Command::new(self.programs.kyanite()),
            Whose::Theirs => Command::new(self.programs.upstream(theirs)?),
        };
        if whose == Whose::Ours {
            command.arg(ours);
        }
        command.env("HOME", self.dir);
        Ok(command)
    }

    /// A directory of its own for one more program.
    pub(crate) fn subdirectory(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

impl Ports {
    // Held together so that they differ; free again when this returns.
    fn free() -> Result<Ports> {
        let held = (0..12)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .collect::<std::io::Result<Vec<_>>>()?;
        let port = |n: usize| held[n].local_addr().map(|address| address.port());
        Ok(Ports {
            api_server: port(0)?,
            etcd: port(1)?,
            etcd_peer: port(2)?,
            manager: port(3)?,
            scheduler: port(4)?,
            other: port(5)?,
            cloud: port(11)?,
            tunnel: [port(6)?, port(7)?, port(8)?, port(9)?, port(10)?],
        })
    }
}
