//! What runs beside the API server, as clients of it: the objects nodes need to join, the controllers, the scheduler.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client_runtime::{Answers, Inside};
use controllers::{Config, Connection, KeyPairFiles, Selection};
use futures::future::BoxFuture;
use ipnet::{IpNet, Ipv4Net};
use rustls_pki_types::CertificateDer;
use tokio::sync::{oneshot, watch};

use super::site::Site;
use super::{cloud_controllers, nodes, tunnels};
use crate::addons;
use crate::cli::Up;
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::join_tokens;
use crate::pki::{Authority, Pki};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// What providers use among themselves: room for 16,384 nodes on paper.
const SHARED_ADDRESSES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);
/// How long to wait before something that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs everything until `stop` is set. Says when it has begun: whoever hears that may ask for an agent's token at once,
/// so it is after a first attempt to let nodes join.
pub(super) async fn run(
    dir: DataDir,
    agents: bool,
    begun: oneshot::Sender<()>,
    (roles, board): (Vec<Role>, Board),
    mut stop: watch::Receiver<bool>,
    rotated: watch::Receiver<()>,
) {
    let stopped = stop.clone();
    let mut joined = let_nodes_join(&dir, agents).await;
    // Whoever waited for it may have gone.
    let _ = begun.send(());
    let join = async {
        while let Err(failure) = joined {
            tracing::warn!(%failure, "nodes cannot join yet");
            tokio::time::sleep(PAUSE).await;
            joined = let_nodes_join(&dir, agents).await;
        }
    };
    let until_joined = async {
        tokio::select! {
            () = join => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    };
    let roles = roles.into_iter();
    let running =
        roles.map(|role| role.keep_running(board.clone(), stopped.clone(), rotated.clone()));
    tokio::join!(until_joined, futures::future::join_all(running));
}

// Whoever changed or replaced an object meant it: only missing ones are made.
async fn let_nodes_join(dir: &DataDir, agents: bool) -> Result<()> {
    let client = Client::connect(dir).await?;
    let bindings = join_tokens::bindings().map(|binding| (BINDINGS.to_owned(), binding));
    let account = agents.then(tunnels::account);
    for (collection, object) in bindings.chain(account) {
        match client.create(&collection, &object).await {
            Err(failure) if failure.code != Code::Conflict => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// Every role of a data directory's cluster, as the flags ask for them.
pub(super) fn plan(
    server: &Arc<dyn Inside>,
    pki: &Pki,
    up: &Up,
    site: Option<&Site>,
    kept: Option<addons::Settings>,
) -> Result<Vec<Role>> {
    let controllers = controllers(server, pki, up)?;
    let hollow = hollow_nodes(server, pki, up, &controllers);
    let connection = |leaf| connection(server, pki, leaf);
    let scheduler = || scheduler::Config::new(connection("scheduler"));
    let routes = |site: &Site| (site.clone(), connection("controller-manager"));
    let roles = [
        Some(Role::new(
            "controller-manager",
            controllers,
            controllers::run,
        )),
        up.scheduler
            .then(|| Role::new("scheduler", scheduler(), scheduler::run)),
        hollow.map(|config| Role::new("hollow nodes", config, hollow::run)),
        site.map(|site| Role::new("route table", routes(site), nodes::keep_routes)),
        kept.map(|kept| Role::new("add-ons", (connection("admin"), kept), addons::run)),
    ];
    Ok(roles.into_iter().flatten().collect())
}

/// The role that follows the cloud that this cluster is in, if it is in one.
pub(super) fn of_cloud(
    server: &Arc<dyn Inside>,
    pki: &Pki,
    up: &Up,
    dir: &DataDir,
) -> Option<Role> {
    let file = azure_json(up, dir)?;
    let connection = connection(server, pki, "admin");
    Some(cloud_controllers::role(
        file,
        connection,
        super::cluster_cidr(up),
    ))
}

/// Where it says which cloud this cluster is in, if it is to be in one.
pub(super) fn azure_json(up: &Up, dir: &DataDir) -> Option<PathBuf> {
    let own = up.beside.cloud.then(|| cloud_controllers::file(dir));
    up.beside.cloud_config.clone().or(own)
}

/// What the controllers of a data directory's cluster are told.
fn controllers(server: &Arc<dyn Inside>, pki: &Pki, up: &Up) -> Result<Config> {
    let ca = pki.authority(Authority::Cluster);
    let connection = connection(server, pki, "controller-manager");
    up.node_controllers.warn();
    let services = up.serving.service_cluster_ip_range.all();
    let ipam = up.node_controllers.ipam(true, pod_ranges(up), services);
    Ok(Config {
        selection: selection(&up.controllers)?,
        node_lifecycle: up.node_controllers.lifecycle(),
        node_ipam: ipam.map_err(|cause| Failure::new(Code::Usage, cause))?,
        terminated_pod_gc_threshold: up.node_controllers.terminated_pod_gc_threshold,
        root_ca: Some(ca.cert.clone()),
        signing: Some(KeyPairFiles {
            cert: ca.cert,
            key: ca.key,
        }),
        service_account_key: Some(pki.service_account_key()),
        ..Config::new(connection)
    })
}

/// The hollow nodes of a data directory's cluster, if it has any. They act as the admin, who may act for any node.
fn hollow_nodes(
    server: &Arc<dyn Inside>,
    pki: &Pki,
    up: &Up,
    controllers: &Config,
) -> Option<hollow::Config> {
    (up.hollow.hollow > 0).then(|| hollow::Config {
        connection: connection(server, pki, "admin"),
        count: up.hollow.hollow,
        region: super::LOCATION.to_owned(),
        zones: up.nodes.zones.clone(),
        has_pod_ranges: controllers.node_ipam.is_some(),
    })
}

fn connection(server: &Arc<dyn Inside>, pki: &Pki, leaf: &str) -> Connection {
    Connection::Inside {
        server: Arc::clone(server),
        cert: pki.leaf(leaf).cert,
    }
}

/// The API server, as roles of the same process ask it.
#[derive(Debug)]
pub(super) struct SameProcess(pub(super) apiserver::Inside);

impl Inside for SameProcess {
    fn caller(&self, chain: Vec<CertificateDer<'static>>) -> Answers {
        let caller = self.0.caller(chain);
        Arc::new(move |request| Box::pin(caller.clone().ask(request)))
    }
}

// The usual range has room for 256 nodes.
fn pod_ranges(up: &Up) -> Vec<IpNet> {
    vec![IpNet::V4(match up.hollow.hollow {
        0..=200 => super::CLUSTER_CIDR,
        _ => SHARED_ADDRESSES,
    })]
}

// Where upstream leaves some off unless named, `*` is all here: this cluster has nobody else to do their work.
fn selection(names: &[String]) -> Result<Selection> {
    match names {
        [all] if all == "*" => Ok(Selection::everything()),
        names => {
            let named = names
                .iter()
                .map(String::as_str)
                .filter(|name| !name.is_empty());
            controllers::select(named).map_err(|cause| Failure::new(Code::Usage, cause))
        }
    }
}

/// Which roles run.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<BTreeSet<&'static str>>>);

impl Board {
    /// Whether a role of this name runs.
    pub(super) fn shows(&self, name: &str) -> bool {
        self.roles().contains(name)
    }

    fn set(&self, name: &'static str, runs: bool) {
        match runs {
            true => self.roles().insert(name),
            false => self.roles().remove(name),
        };
    }

    fn roles(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes when a role is to stop.
type Until = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
type Running = BoxFuture<'static, std::result::Result<(), client_runtime::Error>>;

/// A client of the API server that runs as long as it does: it is built anew and run until it is told to stop.
pub(super) struct Role {
    name: &'static str,
    run: Box<dyn Fn(Until) -> Running + Send + Sync>,
}

impl Role {
    /// A role that `run` builds from a copy of its configuration each time.
    pub(super) fn new<C, F>(
        name: &'static str,
        config: C,
        run: impl Fn(C, Until) -> F + Send + Sync + 'static,
    ) -> Role
    where
        C: Clone + Send + Sync + 'static,
        F: Future<Output = std::result::Result<(), client_runtime::Error>> + Send + 'static,
    {
        Role {
            name,
            run: Box::new(move |until| Box::pin(run(config.clone(), until))),
        }
    }

    // Roles read their client certificate when they start, so new certificates start them anew.
    async fn keep_running(
        self,
        board: Board,
        mut stop: watch::Receiver<bool>,
        mut rotated: watch::Receiver<()>,
    ) {
        let name = self.name;
        while !*stop.borrow() {
            let (mut until, mut anew) = (stop.clone(), rotated.clone());
            rotated.mark_unchanged();
            anew.mark_unchanged();
            let changed = async move {
                tokio::select! {
                    _ = until.wait_for(|stop| *stop) => {}
                    Ok(()) = anew.changed() => tracing::info!(role = name, "starts anew with new certificates"),
                }
            };
            board.set(name, true);
            let ended = (self.run)(Box::pin(changed)).await;
            board.set(name, false);
            if let Err(error) = ended {
                tracing::error!(role = name, %error, "failed and starts anew");
                tokio::select! {
                    _ = stop.wait_for(|stop| *stop) => {}
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }
}
