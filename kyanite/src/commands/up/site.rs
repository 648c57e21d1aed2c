//! The network that a cluster's machines are on, and the machines themselves, as this host has them.
//!
//! The network is a namespace of its own: nothing of the host's network is changed, and two clusters may use the
//! same addresses. The API server listens in it on the gateway's address, beside its own port on the host.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ::apiserver::Nearby;
use futures::future::BoxFuture;
use ipnet::Ipv4Net;
use machines::{Driver as _, Launcher, Namespaces, Network, PowerOff, Spec, State};
use tokio::net::{TcpListener, TcpStream};

use crate::commands::machine::LAUNCHER;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};

/// The network's name among those of a data directory.
pub(super) const NETWORK: &str = "cluster";
/// Where nodes find the API server: AKS' port for it.
pub(super) const API_PORT: u16 = 443;
/// How long a machine may take to shut down before its plug is pulled.
const GRACE: Duration = Duration::from_secs(5);

/// How long a connection to a node may take to come about.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster's network and its machines.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    driver: std::sync::Arc<Namespaces>,
    network: Network,
}

impl Site {
    /// Makes the network, or finds it as it was left.
    pub(super) fn open(dir: &DataDir, subnet: Ipv4Net) -> Result<Site> {
        check(dir)?;
        let driver = driver(dir)?;
        let network = driver.create_network(NETWORK, subnet)?;
        Ok(Site {
            driver: std::sync::Arc::new(driver),
            network,
        })
    }

    /// Where machines reach the API server.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        self.network.gateway()
    }

    /// Listens inside the network.
    pub(super) fn listen(&self, port: u16) -> Result<TcpListener> {
        let address = SocketAddr::from((self.gateway(), port));
        let bind = || std::net::TcpListener::bind(address);
        let listener = self.network.inside(bind)?.and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        listener.map_err(|e| {
            Failure::new(
                Code::Failure,
                format!("cannot listen on {address} in the cluster's network: {e}"),
            )
        })
    }

    /// Sends a range of pods to its node.
    pub(super) fn route(&self, pods: Ipv4Net, node: Ipv4Addr) -> Result<()> {
        Ok(self.network.route(pods, node)?)
    }

    /// Does something with sockets inside the network: a socket belongs to the network it was made in.
    pub(super) async fn inside<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T> {
        let runtime = tokio::runtime::Handle::current();
        let enter = || self.network.inside(|| runtime.block_on(work));
        Ok(tokio::task::block_in_place(enter)?)
    }

    /// Starts a machine again, whatever it does now.
    pub(super) fn restart(&self, spec: &Spec) -> Result<()> {
        self.driver.power_off(&spec.name, PowerOff::Button(GRACE))?;
        self.boot(spec).map(drop)
    }

    /// Starts a machine, unless it runs; says whether it did.
    pub(super) fn boot(&self, spec: &Spec) -> Result<bool> {
        match self.driver.state(&spec.name) {
            Ok(State::Running) => return Ok(false),
            // Its supervisor was killed, and with it whoever would let it reboot.
            Ok(State::Orphaned) => self.driver.power_off(&spec.name, PowerOff::Plug)?,
            _ => {}
        }
        self.driver.boot(spec)?;
        Ok(true)
    }

    /// The names of all machines there are.
    pub(super) fn machines(&self) -> Result<Vec<String>> {
        let all = self.driver.list()?.into_iter();
        Ok(all.map(|machine| machine.name).collect())
    }

    /// Forgets a machine with its disk.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        Ok(self.driver.remove(name)?)
    }
}

impl Nearby for Site {
    // A socket belongs to the network it was made in, whoever uses it then.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, std::io::Result<TcpStream>> {
        let network = self.network.clone();
        let dial = move || {
            let connect = || std::net::TcpStream::connect_timeout(&address, DIAL_TIMEOUT);
            let stream = network.inside(connect).map_err(std::io::Error::other)??;
            stream.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(stream)
        };
        Box::pin(async move {
            let dialed = tokio::task::spawn_blocking(dial).await;
            TcpStream::from_std(dialed.map_err(std::io::Error::other)??)
        })
    }
}

/// Whether this host can run machines.
pub(super) fn check(dir: &DataDir) -> Result<()> {
    match driver(dir)?.missing() {
        missing if missing.is_empty() => Ok(()),
        missing => Err(Failure::from(machines::Error::Host(missing)).hint(
            "`kyanite up --nodes 0` starts the control plane alone, `--hollow 3` gives it nodes on paper",
        )),
    }
}

/// Shuts down every machine of a data directory and takes its networks away; their disks stay.
pub(crate) fn shut_down(dir: &DataDir) -> Result<usize> {
    let mut count = 0;
    for (_, driver) in drivers(dir)? {
        count += shut_down_all(&driver)?;
    }
    Ok(count)
}

fn shut_down_all(driver: &Namespaces) -> Result<usize> {
    let mut running = driver.list()?;
    running.retain(|machine| machine.state != State::Off);
    let stopped = std::thread::scope(|scope| {
        let off = |name: &str| driver.power_off(name, PowerOff::Button(GRACE));
        let threads: Vec<_> = running
            .iter()
            .map(|machine| scope.spawn(move || off(&machine.name)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(stopped) => stopped,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    });
    stopped?;
    driver.sweep()?;
    driver.close_networks()?;
    Ok(running.len())
}

/// Forgets every machine of a data directory with its disk.
pub(crate) fn remove_all(dir: &DataDir) -> Result<()> {
    for (_, driver) in drivers(dir)? {
        for machine in driver.list()? {
            driver.remove(&machine.name)?;
        }
        driver.sweep()?;
        driver.close_networks()?;
    }
    Ok(())
}

/// Whoever has machines in a data directory, and where: the cluster, and each virtual network of the cloud.
pub(crate) fn drivers(dir: &DataDir) -> Result<Vec<(PathBuf, Namespaces)>> {
    let networks = std::fs::read_dir(dir.path().join("vms"));
    let networks = networks.into_iter().flatten().flatten();
    let all = networks
        .map(|entry| entry.path())
        .chain([machines_directory(dir)]);
    let there = all.filter(|directory| directory.exists());
    there
        .map(|directory| {
            let driver = Namespaces::new(&directory, Launcher::this_program(&[LAUNCHER]))?;
            Ok((directory, driver))
        })
        .collect()
}

fn driver(dir: &DataDir) -> Result<Namespaces> {
    Ok(Namespaces::new(
        &machines_directory(dir),
        Launcher::this_program(&[LAUNCHER]),
    )?)
}

fn machines_directory(dir: &DataDir) -> std::path::PathBuf {
    dir.path().join("machines")
}
