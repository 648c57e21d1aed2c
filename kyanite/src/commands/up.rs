//! `kyanite up`: a control plane and its nodes, in the background or not.

mod images;
mod node_spec;
mod nodes;
mod roles;
pub(super) mod site;
mod tunnels;

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ::apiserver::settings::{Egress as WayOut, KeyPairFiles, Outbound};
use ::apiserver::{Config, Egress, Server};
use ::store::Embedded;
use ::store::embedded::Options as EmbeddedOptions;
use ipnet::Ipv4Net;
use konnectivity::server::Reviewer;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::node_spec::Cluster;
use self::nodes::Nodes;
use self::site::Site;
use super::{access, serve};
use crate::admin::{self, Door};
use crate::cli::Up;
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::pki::{Authority, Pki, ServerNames};
use crate::printer::Printer;
use crate::stages::{Audience, Stages};
use crate::{kubeconfig, logging, pki};

/// The subnet of `az aks create`'s nodes.
const NODE_SUBNET: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 224, 0, 0), 16);
/// Where pods' addresses come from: each node has a part of it.
const CLUSTER_CIDR: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16);
/// The region that nodes say they are in.
const LOCATION: &str = "local";
/// How many nodes there are where nobody says how many.
const DEFAULT_NODES: u16 = 2;

/// What to do next.
const TRY: &str = "Try: kubectl get nodes
     kubectl create deployment web --image=kyanite.local/demo:1 --port=8080 --replicas=3
     kubectl expose deployment web --port=80 --target-port=8080 && kubectl port-forward service/web 8080:80";

/// Starts a server in the background and returns when it is ready.
pub(super) fn background(up: &Up, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(&up.place)?;
    // One that was killed a moment ago may still hold its lock, but does not answer.
    if let Some(state) = dir.running()?
        && admin::ask(&dir.socket(), &json!({"ask": "stats"})).is_ok()
    {
        return announce(printer, &state, true);
    }
    dir.prepare()?;
    printer.note(&format!("Starting kyanite in {}", dir.path().display()));
    let mut child = spawn(up, &dir)?;
    follow(&mut child, &dir, printer)?;
    let state = dir.running()?.ok_or_else(|| ended_early(&dir))?;
    announce(printer, &state, false)
}

fn announce(printer: &Printer, state: &State, already: bool) -> Result<()> {
    let text = match already {
        true => format!(
            "kyanite runs already at {} (pid {})",
            state.server, state.pid
        ),
        false => format!(
            "kyanite is up at {} (context `kyanite` in {})\n{TRY}",
            state.server,
            state.kubeconfig.display()
        ),
    };
    let value = json!({"running": true, "started": !already, "server": state.server, "pid": state.pid,
        "kubeconfig": state.kubeconfig, "context": "kyanite"});
    printer.result(&text, &value);
    Ok(())
}

// The server is this program again, in a session of its own so that it outlives the terminal.
fn spawn(up: &Up, dir: &DataDir) -> Result<Child> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("this program cannot find itself: {e}"),
        )
    })?;
    let path = dir.log();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| Failure::file("open", &path, &e))?;
    let mut command = Command::new(program);
    command
        .args(["up", "--foreground", "--report", "--data-dir"])
        .arg(dir.path());
    command.args([
        "--port",
        &up.port.to_string(),
        "--bind-address",
        &up.bind_address.to_string(),
    ]);
    if let Some(file) = &up.kubeconfig {
        command.arg("--kubeconfig").arg(file);
    }
    command.args(up.nodes.flags());
    command.args(up.way_to_nodes.flags());
    command.args(up.serving.front_door.flags());
    command.arg(format!("--controllers={}", up.controllers.join(",")));
    command.args(up.node_controllers.flags());
    command.args(up.hollow.flags());
    command.arg(format!("--scheduler={}", up.scheduler));
    let serving = &up.serving;
    command.args([
        "--service-cluster-ip-range",
        &serving.service_cluster_ip_range.to_string(),
        "--event-ttl",
        &format!("{}ms", serving.event_ttl.as_millis()),
        "--etcd-compaction-interval",
        &format!("{}ms", serving.etcd_compaction_interval.as_millis()),
        "--log-level",
        &serving.logging.log_level,
        "--logging-format",
        match serving.logging.logging_format {
            crate::cli::LogFormat::Text => "text",
            crate::cli::LogFormat::Json => "json",
        },
    ]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    command
        .spawn()
        .map_err(|e| Failure::new(Code::Failure, format!("the server cannot be started: {e}")))
}

fn follow(child: &mut Child, dir: &DataDir, printer: &Printer) -> Result<()> {
    let Some(stdout) = child.stdout.take() else {
        return Err(ended_early(dir));
    };
    for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
        let Ok(told) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if told["ready"] == true {
            return Ok(());
        }
        if let Some(failure) = told.get("error") {
            return Err(failure_of(failure, &told));
        }
        let text = |field: &str| told[field].as_str().unwrap_or_default().to_owned();
        let millis = told["millis"].as_u64().unwrap_or(0);
        printer.stage(&text("stage"), &text("detail"), u128::from(millis));
    }
    Err(ended_early(dir))
}

fn failure_of(message: &Value, told: &Value) -> Failure {
    let code = match told["code"].as_u64() {
        Some(2) => Code::Usage,
        Some(3) => Code::NotFound,
        Some(4) => Code::Conflict,
        Some(5) => Code::Permission,
        Some(6) => Code::Unavailable,
        _ => Code::Failure,
    };
    let failure = Failure::new(code, message.as_str().unwrap_or_default());
    match told["hint"].as_str() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn ended_early(dir: &DataDir) -> Failure {
    let log = std::fs::read_to_string(dir.log()).unwrap_or_default();
    let last = log
        .lines()
        .next_back()
        .unwrap_or("it said nothing")
        .to_owned();
    Failure::new(
        Code::Failure,
        format!("the server ended while starting: {last}"),
    )
    .hint(format!("the whole log is in {}", dir.log().display()))
}

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
    logging::start(&up.serving.logging)?;
    serve::allow_many_files();
    let dir = DataDir::find(&up.place)?;
    dir.prepare()?;
    let Some(_lock) = take_lock(&dir).await? else {
        return Err(runs_already(&dir)?);
    };
    let remembered = dir.left_behind().and_then(|state| state.previous_context);
    dir.clear_state();
    let listener = serve::listen(SocketAddr::new(up.bind_address, up.port)).await?;
    let port = listener.local_addr().map_or(up.port, |a| a.port());
    let mut listeners = vec![listener];
    let site = open_site(&mut up, &dir, &mut stages)?;
    if let Some(site) = &site {
        listeners.push(site.listen(site::API_PORT)?);
    }
    let pki = Pki::at(dir.pki(), std::time::SystemTime::now());
    pki.ensure(&names(&up, site.as_ref()))?;
    stages.done("certificates", &dir.pki().display().to_string());
    let store = Embedded::open(dir.store(), EmbeddedOptions::default())?;
    stages.done("store", &format!("revision {}", store.revision_now()));
    let local = SocketAddr::new(serve::reachable(up.bind_address), port);
    // Pods and nodes are told where they find it, which is not where this host does.
    let advertise = site.as_ref().map_or(local, |site| {
        SocketAddr::from((site.gateway(), site::API_PORT))
    });
    let config = config(&up, &dir, &pki, store.clone(), advertise, site.as_ref())?;
    let server = Server::build(config, listeners).await?;
    let tunnels = open_tunnels(&up, &dir, &pki, server.tokens()).await?;
    let url = format!("https://{local}");
    let roles = roles::plan(&url, &pki, &up, site.as_ref())?;
    let nodes = site
        .map(|site| nodes_of(&up, &dir, &pki, site))
        .transpose()?;
    stages.done("api server", &url);
    let mut state = write_kubeconfigs(&up, &dir, &url, &pki, remembered)?;
    state.konnectivity = tunnels.as_ref().map(|(_, address)| address.to_string());
    if let Some(address) = &state.konnectivity {
        stages.done("konnectivity", &format!("agents connect to {address}"));
    }
    let rotated = watch::Sender::new(());
    let door = Door {
        store: store.clone(),
        reload: server.reload(),
        rotated: rotated.clone(),
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
        let roles = roles::run(dir.clone(), agents, begun, roles, stopped, rotated);
        let nodes = async {
            if has_begun.await.is_ok() {
                stages.done("controllers", "started");
                bring_up(nodes, &dir, stages, stop.subscribe()).await;
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

/// The network of the nodes that are asked for. Where nobody says how many and this host cannot run machines, there
/// are as many nodes on paper, and why.
fn open_site(up: &mut Up, dir: &DataDir, stages: &mut Stages) -> Result<Option<Site>> {
    match up.nodes.nodes {
        Some(0) => return Ok(None),
        Some(_) => {}
        None if up.hollow.hollow > 0 => return Ok(None),
        None => {
            if let Err(failure) = site::check(dir).and_then(|()| nodes::check()) {
                up.hollow.hollow = DEFAULT_NODES.into();
                let how = failure.hint.as_deref().unwrap_or("see `kyanite up --help`");
                let why = format!(
                    "on paper only, they run no containers: {} ({how})",
                    failure.message
                );
                stages.done("nodes", &why);
                return Ok(None);
            }
        }
    }
    Site::open(dir, NODE_SUBNET).map(Some)
}

fn nodes_of(up: &Up, dir: &DataDir, pki: &Pki, site: Site) -> Result<Nodes> {
    let authority = pki.authority(Authority::Cluster).cert;
    let ca = std::fs::read(&authority).map_err(|e| Failure::file("read", &authority, &e))?;
    let services = up.serving.service_cluster_ip_range;
    let cluster = Cluster {
        id: dir.number(),
        kubernetes_version: ::apiserver::RELEASE.to_owned(),
        ca,
        gateway: site.gateway(),
        network: site::NETWORK,
        cluster_cidr: CLUSTER_CIDR,
        proxy_kubeconfig: proxy_kubeconfig(pki)?,
        cluster_dns: services.hosts().nth(9).unwrap_or(services.addr()),
        location: LOCATION.to_owned(),
        vm_size: up.nodes.vm_size.clone(),
        zones: up.nodes.zones.clone(),
    };
    Ok(Nodes {
        site,
        cluster,
        programs: nodes::programs(dir)?,
        count: up.nodes.nodes.unwrap_or(DEFAULT_NODES).into(),
    })
}

fn proxy_kubeconfig(pki: &Pki) -> Result<String> {
    let server = format!("https://{}:{}", node_spec::API_SERVER, site::API_PORT);
    let bundle = pki.authority(Authority::Cluster).cert;
    let user = kubeconfig::certificate_user(&pki.leaf("kube-proxy"))?;
    let config = kubeconfig::with_user(&server, &bundle, "kube-proxy", user)?;
    Ok(objects::yaml::to_string(&config))
}

// Nodes that do not come are no reason to take the control plane away: with it one finds out why.
async fn bring_up(
    nodes: Option<Nodes>,
    dir: &DataDir,
    mut stages: Stages,
    mut stop: watch::Receiver<bool>,
) {
    let Some(nodes) = nodes else {
        return stages.finish();
    };
    let come = tokio::select! {
        come = nodes.bring_up(dir, &mut stages) => come,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    };
    match come {
        Ok(()) => stages.finish(),
        Err(failure) => stages.fail(&failure),
    }
}

fn config(
    up: &Up,
    dir: &DataDir,
    pki: &Pki,
    store: Arc<Embedded>,
    advertise: SocketAddr,
    site: Option<&Site>,
) -> Result<Config> {
    let certificate = KeyPairFiles {
        certificate: pki.server().cert,
        key: pki.server().key,
    };
    let egress = match (up.way_to_nodes.egress(dir.tunnel_socket()), site) {
        (WayOut::Direct, Some(site)) => Egress::from_nearby(Arc::new(site.clone())),
        (way, _) => Egress::open(&way)?,
    };
    Ok(serve::config(
        &up.serving,
        store,
        certificate,
        advertise,
        access::of_cluster(pki),
        (outbound(pki), egress),
    ))
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
        ..Outbound::default()
    }
}

/// The konnectivity server, if this cluster has one, and where agents reach it.
async fn open_tunnels(
    up: &Up,
    dir: &DataDir,
    pki: &Pki,
    reviewer: Arc<dyn Reviewer>,
) -> Result<Option<(konnectivity::server::Server, SocketAddr)>> {
    let Some(port) = up.way_to_nodes.konnectivity_agent_port else {
        return Ok(None);
    };
    let place = tunnels::Place {
        agents: SocketAddr::new(up.bind_address, port),
        socket: dir.tunnel_socket(),
        callers: up.serving.front_door.callers(),
    };
    let server = tunnels::open(place, pki, reviewer).await?;
    let port = server.agent_port().unwrap_or(port);
    let address = SocketAddr::new(serve::reachable(up.bind_address), port);
    Ok(Some((server, address)))
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
    up: &Up,
    dir: &DataDir,
    url: &str,
    pki: &Pki,
    remembered: Option<String>,
) -> Result<State> {
    let users_file = kubeconfig::users_file(up.kubeconfig.as_deref())?;
    let entry = kubeconfig::write_all(dir, url, pki)?;
    Ok(State {
        pid: std::process::id(),
        server: url.to_owned(),
        started: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        previous_context: kubeconfig::merge(&users_file, &entry)?.or(remembered),
        kubeconfig: users_file,
        konnectivity: None,
    })
}

// For people, and for other commands.
fn tell_where_it_is(stages: &mut Stages, dir: &DataDir, state: &State) {
    let context = format!("context `kyanite` in {}", state.kubeconfig.display());
    stages.done("kubeconfig", &context);
    if let Err(failure) = dir.write_state(state) {
        tracing::error!(%failure, "the state of this server cannot be written");
    }
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

// What the serving certificate must cover: where we listen, this machine, and the `kubernetes` service.
fn names(up: &Up, site: Option<&Site>) -> ServerNames {
    let service = up.serving.service_cluster_ip_range.hosts().next();
    let mut addresses = vec![serve::reachable(up.bind_address)];
    addresses.extend(site.map(|site| IpAddr::V4(site.gateway())));
    addresses.extend(service.map(IpAddr::V4));
    if up.bind_address.is_unspecified() {
        addresses.extend(serve::outward_address());
    }
    ServerNames::new(pki::hostname().as_deref(), &addresses)
}
