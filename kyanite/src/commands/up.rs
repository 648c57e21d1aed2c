//! `kyanite up`: a control plane and its nodes, in the background or not.

mod background;
mod beside;
pub(super) mod cloud_controllers;
pub(super) mod entra;
mod node_spec;
mod node_style;
mod nodes;
mod roles;
pub(super) mod site;
mod tunnels;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::apiserver::settings::{
    Callers, Components, Egress as WayOut, Encryption, KeyPairFiles, Outbound,
};
use ::apiserver::{Config, Egress, Server};
use ::images::built_in;
use ::store::Embedded;
use ::store::embedded::Options as EmbeddedOptions;
use client_runtime::Inside;
use ipnet::Ipv4Net;
use konnectivity::server::Reviewer;
use tokio::sync::{mpsc, watch};

use self::beside::Beside;
use self::node_spec::Cluster;
use self::nodes::Nodes;
pub(crate) use self::nodes::{Wanted, Wish};
use self::roles::{Board, SameProcess};
use self::site::Site;
use super::{access, serve};
use crate::admin::{self, Door};
use crate::cli::Up;
use crate::datadir::{DEFAULT_NAME, DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::pki::{Authority, Pki, ServerNames};
use crate::pools::{self, Pool, Pools};
use crate::printer::Printer;
use crate::stages::{Audience, Stages};
use crate::{addons, kubeconfig, logging, pki};

pub(super) use self::background::background;

/// Where pods' addresses come from: each node has a part of it.
const CLUSTER_CIDR: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16);
/// The region that nodes say they are in.
const LOCATION: &str = "local";
/// How many nodes there are where nobody says how many.
const DEFAULT_NODES: u16 = 2;
/// How many pods a node takes.
const MAX_PODS: u16 = 110;
/// Where clients look for an API server first.
const USUAL_PORT: u16 = 6443;
/// What connects az.
const AZ_ENV: &str = "eval \"$(kyanite az-env)\"";

/// Serves in this process until told to stop.
pub(super) async fn foreground(up: Up, printer: Printer) -> Result<()> {
    let report = up.report;
    let outcome = serve(up, printer).await;
    if let (Err(failure), true) = (&outcome, report) {
        Printer::new(crate::cli::Output::Json).failure(failure);
    }
    outcome
}

async fn serve(mut up: Up, printer: Printer) -> Result<()> {
    let audience = if up.report {
        Audience::Parent
    } else {
        Audience::Printer(printer)
    };
    let mut stages = Stages::new(audience);
    let dir = DataDir::find(&up.place)?;
    match up.report {
        true => logging::start_in(&up.serving.logging, &dir.log())?,
        false => logging::start(&up.serving.logging)?,
    }
    serve::allow_many_files();
    dir.prepare()?;
    let Some(_lock) = take_lock(&dir).await? else {
        return Err(runs_already(&dir)?);
    };
    let users_file = kubeconfig::users_file(up.kubeconfig.as_deref())?;
    kubeconfig::check(&users_file, dir.name(), kubeconfig::of(&dir).as_ref())?;
    let remembered = dir.left_behind().and_then(|state| state.previous_context);
    dir.clear_state();
    let wanted = wanted_port(&up, &dir);
    let listener = serve::listen(SocketAddr::new(up.bind_address, wanted)).await?;
    let port = listener.local_addr().map_or(wanted, |a| a.port());
    let mut listeners = vec![listener];
    let (ground, on_paper) = open_site(&mut up, &dir, &mut stages)?;
    let (pools, site) = ground.unzip();
    up.way_to_nodes.settle(site.is_some());
    if let Some(site) = &site {
        listeners.push(site.listen(site::API_PORT)?);
    }
    let pki = Pki::at(dir.pki(), std::time::SystemTime::now());
    pki.ensure(&names(&up, site.as_ref()))?;
    stages.done("certificates", &dir.pki().display().to_string());
    let store = Embedded::open(dir.store(), EmbeddedOptions::default())?;
    stages.done("store", &format!("revision {}", store.revision_now()));
    let local = SocketAddr::new(serve::reachable(up.bind_address), port);
    let shown = SocketAddr::new(shown_address(&up), port);
    // Pods and nodes are told where they find it, which is not where this host does.
    let advertise = site.as_ref().map_or(shown, |site| {
        SocketAddr::from((site.gateway(), site::API_PORT))
    });
    let board = Board::default();
    let given = (store.clone(), advertise, site.as_ref());
    let config = config(&up, &dir, &pki, given, board.clone())?;
    let server = Server::build(config, listeners).await?;
    let tunnels = open_tunnels(&up, &dir, &pki, site.as_ref(), server.tokens()).await?;
    let agents_at = tunnels.as_ref().map(|(_, address)| *address);
    let url = format!("https://{local}");
    let nodes = pools
        .zip(site)
        .map(|(pools, site)| nodes_of(&up, &dir, &pki, pools, site))
        .transpose()?;
    let kept = nodes.as_ref().map(|nodes| addon_settings(nodes, agents_at));
    let site = nodes.as_ref().map(|nodes| &nodes.site);
    let same: Arc<dyn Inside> = Arc::new(SameProcess(server.inside()));
    let mut roles = roles::plan(&same, &pki, &up, site, kept)?;
    if let Some(nodes) = &nodes {
        nodes.pools.write(&dir)?;
    }
    let cloud = Beside::of(&up, &dir, &url).await?;
    roles.extend(cloud.iter().map(Beside::role));
    let nodes = nodes.map(|nodes| Nodes {
        cloud: cloud.clone(),
        ..nodes
    });
    roles.extend(roles::of_cloud(&same, &pki, &up, &dir));
    let shown = format!("https://{shown}");
    stages.done("api server", &shown);
    let mut state = write_kubeconfigs(&users_file, &dir, &shown, &pki, remembered)?;
    state.machines = nodes
        .as_ref()
        .map_or(0, |nodes| nodes.pools.machines().count());
    state.on_paper = on_paper;
    state.konnectivity = agents_at.map(|address| address.to_string());
    if let Some(address) = &state.konnectivity {
        stages.done("konnectivity", &format!("agents connect to {address}"));
    }
    let rotated = watch::Sender::new(());
    let (ask_for, wanted) = mpsc::channel(1);
    let door = Door {
        store: store.clone(),
        reload: server.reload(),
        rotated: rotated.clone(),
        machines: nodes.is_some().then_some(ask_for),
        tunnels: tunnels.as_ref().map(|(tunnels, _)| tunnels.roster()),
    };
    let door = admin::open(&dir.socket(), door)?;
    let stop = watch::Sender::new(false);
    let (ready, served) = server.run(async {
        serve::told_to_stop().await;
        stop.send_replace(true);
    });
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let served = async {
        let outcome = served.await;
        // Also when it never got ready, or ended by itself.
        stop.send_replace(true);
        drop(end);
        outcome
    };
    // After the API server, whose last requests may still travel.
    let tunnels = async {
        if let Some((tunnels, _)) = tunnels {
            tunnels.run(async { ended.await.unwrap_or_default() }).await;
        }
    };
    let beside = async {
        if ready.await.is_err() {
            return;
        }
        tell_where_it_is(&mut stages, &dir, &state);
        let agents = state.konnectivity.is_some();
        let (stopped, rotated) = (stop.subscribe(), rotated.subscribe());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let roles = roles::run(dir.clone(), agents, begun, (roles, board), stopped, rotated);
        let nodes = async {
            if has_begun.await.is_ok() {
                stages.done("controllers", "started");
                if let Some(origin) = opened(cloud).await {
                    stages.done("cloud", &format!("{origin}; {AZ_ENV} connects az"));
                    state.cloud = Some(origin);
                    remember(&dir, &state);
                }
                bring_up(nodes, &dir, stages, (stop.subscribe(), wanted)).await;
            }
        };
        tokio::join!(roles, nodes);
    };
    let (outcome, (), ()) = tokio::join!(served, beside, tunnels);
    door.abort();
    store.close();
    // What this server wrote about itself stays, for the `down` that takes it out of the kubeconfig.
    let _ = std::fs::remove_file(dir.socket());
    Ok(outcome?)
}

/// Pools and their network.
type Ground = (Pools, Site);

/// The pools that are asked for or were before, and their network. Where nobody says how many and this host cannot run
/// machines, there are as many nodes on paper, and why.
fn open_site(
    up: &mut Up,
    dir: &DataDir,
    stages: &mut Stages,
) -> Result<(Option<Ground>, Option<String>)> {
    let kept = Pools::read(dir)?.filter(|_| up.nodes.nodes.is_none());
    match up.nodes.nodes {
        Some(0) => return Ok((None, None)),
        Some(_) => {}
        None if up.hollow.hollow > 0 => return Ok((None, None)),
        None if kept.is_some() => {}
        None => {
            if let Err(failure) = can_run_machines(dir) {
                up.hollow.hollow = DEFAULT_NODES.into();
                let why = failure.message;
                stages.done("nodes", &format!("on paper, they run no containers: {why}"));
                return Ok((None, Some(why)));
            }
        }
    }
    let pools = kept.unwrap_or_else(|| pools_of(up, dir));
    let site = Site::open(dir, pools.subnet)?;
    Ok((Some((pools, site)), None))
}

/// The one pool that flags ask for.
fn pools_of(up: &Up, dir: &DataDir) -> Pools {
    let first = Pool {
        name: pools::FIRST.to_owned(),
        id: dir.number(),
        vm_size: up.nodes.vm_size.clone(),
        zones: up.nodes.zones.clone(),
        mode: "system".to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        max_pods: MAX_PODS,
        machines: Vec::new(),
    };
    // As AKS names it after the cluster and its group.
    let group = format!("MC_{0}_{0}_{LOCATION}", dir.name());
    let count = up.nodes.nodes.unwrap_or(DEFAULT_NODES);
    Pools::simple(LOCATION, group, first, count)
}

fn nodes_of(up: &Up, dir: &DataDir, pki: &Pki, pools: Pools, site: Site) -> Result<Nodes> {
    let services = &up.serving.service_cluster_ip_range;
    let cluster = Cluster {
        kubernetes_version: ::apiserver::RELEASE.to_owned(),
        pki: pki.clone(),
        gateway: site.gateway(),
        network: site::NETWORK,
        cluster_cidr: cluster_cidr(up),
        grace_period: up.node_controllers.node_monitor_grace_period,
        azure_json: roles::azure_json(up, dir),
        cluster_dns: services
            .nth(10)
            .next()
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    Ok(Nodes {
        site,
        cluster,
        programs: nodes::programs(dir)?,
        pools,
        cloud: None,
        has_tunnels: up.way_to_nodes.konnectivity_agent_port.is_some(),
    })
}

// Machines know no other than this family yet.
fn cluster_cidr(up: &Up) -> Ipv4Net {
    let named = up.node_controllers.cluster_cidr.iter();
    let mut named = named.filter_map(|range| match range {
        ipnet::IpNet::V4(range) => Some(*range),
        ipnet::IpNet::V6(_) => None,
    });
    named.next().unwrap_or(CLUSTER_CIDR)
}

/// Whether this host can run the machines of a cluster.
pub(super) fn can_run_machines(dir: &DataDir) -> Result<()> {
    site::check(dir).and_then(|()| nodes::check())
}

/// What add-ons of these nodes are told.
fn addon_settings(nodes: &Nodes, tunnels: Option<SocketAddr>) -> addons::Settings {
    addons::Settings {
        image: built_in::KYANITE_NAME.to_owned(),
        cluster_dns: nodes.cluster.cluster_dns.to_string(),
        cluster_cidr: nodes.cluster.cluster_cidr,
        api_server: SocketAddr::from((nodes.site.gateway(), site::API_PORT)),
        tunnels,
    }
}

// Nodes that do not come are no reason to take the control plane away: with it one finds out why.
async fn bring_up(
    nodes: Option<Nodes>,
    dir: &DataDir,
    mut stages: Stages,
    (mut stop, wanted): (watch::Receiver<bool>, mpsc::Receiver<Wanted>),
) {
    let Some(mut nodes) = nodes else {
        return stages.finish(&[]);
    };
    let work = async {
        // The cloud may have other machines for its pools than there were when it was asked.
        if let Ok(Some(known)) = Pools::read(dir) {
            nodes.pools = known;
        }
        match nodes.bring_up(dir, &mut stages).await {
            Ok(there) => stages.finish(&there),
            Err(failure) => stages.fail(&failure),
        }
        nodes.keep(dir, wanted).await;
    };
    tokio::select! {
        () = work => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

fn config(
    up: &Up,
    dir: &DataDir,
    pki: &Pki,
    (store, advertise, site): (Arc<Embedded>, SocketAddr, Option<&Site>),
    board: Board,
) -> Result<Config> {
    let certificate = KeyPairFiles {
        certificate: pki.server().cert,
        key: pki.server().key,
    };
    let egress = match (up.way_to_nodes.egress(dir.tunnel_socket()), site) {
        (WayOut::Direct, Some(site)) => Egress::from_nearby(Arc::new(site.clone())),
        (way, _) => Egress::open(&way)?,
    };
    let (access, outbound) = (
        access::of_cluster(pki, entra::believed(up, dir)?),
        (outbound(pki), egress),
    );
    let config = serve::config(&up.serving, store, certificate, advertise, access, outbound);
    Ok(Config {
        encryption: Some(Encryption {
            file: pki.encryption(),
            reloads: true,
        }),
        components: Components::Here(Arc::new(move |name| board.shows(name))),
        measured: vec![
            client_runtime::metrics::register,
            ::scheduler::metrics::register,
        ],
        ..config
    })
}

// Node names mean nothing to this machine's resolver, so kubelets are reached by address.
fn outbound(pki: &Pki) -> Outbound {
    let client = pki.leaf("apiserver-kubelet-client");
    Outbound {
        kubelet_client: Some(KeyPairFiles {
            certificate: client.cert,
            key: client.key,
        }),
        kubelet_preferred_address_types: ["InternalIP", "ExternalIP", "Hostname"]
            .map(str::to_owned)
            .to_vec(),
        // Whoever answers at a node's address must be of this cluster.
        kubelet_authority_file: Some(pki.authority(Authority::Cluster).cert),
    }
}

/// The konnectivity server, if this cluster has one, and where agents reach it: in the nodes' network, if there is one.
async fn open_tunnels(
    up: &Up,
    dir: &DataDir,
    pki: &Pki,
    site: Option<&Site>,
    reviewer: Arc<dyn Reviewer>,
) -> Result<Option<(konnectivity::server::Server, SocketAddr)>> {
    let Some(port) = up.way_to_nodes.konnectivity_agent_port else {
        return Ok(None);
    };
    let host = site.map_or(up.bind_address, |site| IpAddr::V4(site.gateway()));
    let place = tunnels::Place {
        agents: SocketAddr::new(host, port),
        socket: dir.tunnel_socket(),
        // Only our own machines are in their network.
        callers: site.map_or(up.serving.front_door.callers(), |_| Callers::Anybody),
    };
    let server = match site {
        Some(site) => site.inside(tunnels::open(place, pki, reviewer)).await??,
        None => tunnels::open(place, pki, reviewer).await?,
    };
    let port = server.agent_port().unwrap_or(port);
    let shown = match site {
        Some(_) => host,
        None => shown_address(up),
    };
    Ok(Some((server, SocketAddr::new(shown, port))))
}

// A cluster with a name of its own stays away from the usual port, and where it was.
fn wanted_port(up: &Up, dir: &DataDir) -> u16 {
    let before = || {
        let server = kubeconfig::server_of(&dir.kubeconfig()).ok()?;
        server.rsplit(':').next()?.parse().ok()
    };
    match (up.port, dir.name()) {
        (Some(port), _) => port,
        (None, DEFAULT_NAME) => USUAL_PORT,
        (None, _) => before().unwrap_or(0),
    }
}

fn runs_already(dir: &DataDir) -> Result<Failure> {
    let running = dir
        .running()?
        .map_or_else(String::new, |s| format!(" at {} (pid {})", s.server, s.pid));
    let what = format!("kyanite runs already{running}");
    Ok(Failure::new(Code::Conflict, what))
}

/// How to reach this server, for the roles and in the user's own file; gives what `down` must know of it.
fn write_kubeconfigs(
    users_file: &std::path::Path,
    dir: &DataDir,
    url: &str,
    pki: &Pki,
    remembered: Option<String>,
) -> Result<State> {
    let entry = kubeconfig::write_all(dir, url, pki)?;
    Ok(State {
        pid: std::process::id(),
        server: url.to_owned(),
        started: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        previous_context: kubeconfig::merge(users_file, &entry)?.or(remembered),
        kubeconfig: users_file.to_owned(),
        machines: 0,
        on_paper: None,
        konnectivity: None,
        cloud: None,
    })
}

// For people, and for other commands.
fn tell_where_it_is(stages: &mut Stages, dir: &DataDir, state: &State) {
    let context = format!("context `{}` in {}", dir.name(), state.kubeconfig.display());
    stages.done("kubeconfig", &context);
    remember(dir, state);
}

fn remember(dir: &DataDir, state: &State) {
    if let Err(failure) = dir.write_state(state) {
        tracing::error!(%failure, "the state of this server cannot be written");
    }
}

/// Where the cloud is, once it is open.
async fn opened(cloud: Option<Beside>) -> Option<String> {
    cloud?.opened().await
}

// A `status` that runs at this moment holds the lock for an instant, to see whether it is free.
async fn take_lock(dir: &DataDir) -> Result<Option<std::fs::File>> {
    for _ in 0..10 {
        if let Some(lock) = dir.lock()? {
            return Ok(Some(lock));
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Ok(None)
}

/// The address that kubeconfigs name. Who listens everywhere wants to be reached from elsewhere, by those who may knock.
fn shown_address(up: &Up) -> IpAddr {
    let callers = up.serving.front_door.callers();
    serve::advertised(up.bind_address, |address| callers.may_knock(address))
}

// What the serving certificate must cover: where we listen, this machine, and the `kubernetes` service.
fn names(up: &Up, site: Option<&Site>) -> ServerNames {
    let mut addresses = vec![serve::reachable(up.bind_address)];
    addresses.extend(site.map(|site| IpAddr::V4(site.gateway())));
    addresses.extend(up.serving.service_cluster_ip_range.nth(1));
    if up.bind_address.is_unspecified() {
        addresses.extend(serve::outward_address());
    }
    ServerNames::new(pki::hostname().as_deref(), &addresses)
}
