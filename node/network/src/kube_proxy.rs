//! The role: watches Services and endpoints, and keeps the kernel's rules as they say.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use client_runtime::{Cache, Connection, ObjectKey, Runtime};
use http::StatusCode;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service as ServiceObject};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::Api;
use probes::{METRICS, TEXT, json_response, serve, text_response};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Family;
use crate::conntrack;
use crate::health::{BalancerChecks, Health};
use crate::metrics::{ByFamily, Metrics};
use crate::nft::{Nft, NftError};
use crate::node::{NodeState, own_addresses};
use crate::services::layout::{LocalTraffic, NodePortAddresses, Settings, TABLE};
use crate::services::model::{Service, ServiceName, Slice};
use crate::services::{Change, Proxy, full, incremental, removal};
use crate::strangers;
use crate::tracking::Tracking;

/// How the proxy runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the API server is reached.
    pub connection: Connection,
    /// The name of the node it runs on.
    pub node: String,
    /// How pods are told from others.
    pub detect_local: DetectLocal,
    /// Replace the source of everything that goes to a Service.
    pub masquerade_all: bool,
    /// Which bit of the mark says that a source is to be replaced.
    pub masquerade_bit: u8,
    /// Where node ports are served.
    pub node_port_addresses: NodePorts,
    /// The least time between two transactions.
    pub min_sync_period: Duration,
    /// How long a change may wait for the kernel is twice this; damage is looked for as often.
    pub sync_period: Duration,
    /// Where to serve health, if at all.
    pub healthz: Option<SocketAddr>,
    /// Where to serve metrics, if at all.
    pub metrics: Option<SocketAddr>,
    /// What the kernel tracks.
    pub tracking: Tracking,
}

/// How pods are told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectLocal {
    /// Not at all.
    None,
    /// By the ranges of all pods.
    ClusterCidr(Vec<IpNet>),
    /// By the range of this node's pods.
    NodeCidr,
    /// By the bridge they are connected to.
    Bridge(String),
    /// By how the names of their interfaces begin.
    Prefix(String),
}

/// Where node ports are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePorts {
    /// On the node's own addresses, as its Node object names them.
    Primary,
    /// On every address but loopback.
    All,
    /// On addresses in these ranges.
    Within(Vec<IpNet>),
}

/// Why the proxy cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error(transparent)]
    Client(#[from] client_runtime::Error),
    /// A port.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The kernel.
    #[error(transparent)]
    Nft(#[from] NftError),
}

/// Takes everything away that a proxy of ours has written.
pub async fn cleanup() -> Result<(), Error> {
    for family in Family::BOTH {
        Nft::default().apply(&removal(family, TABLE)).await?;
    }
    Ok(())
}

/// Runs until `shutdown` completes. The rules stay when it ends: connections outlive a restart.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    config.tracking.apply();
    let shared = Arc::new(Shared::new(&config));
    let _servers = listen(&config, &shared).await?;
    let connection = config.connection.clone();
    let start = move |client: kube::Client, bare| {
        let mut runtime = Runtime::new(Arc::new(config), client, bare, false);
        assemble(&mut runtime, &shared);
        runtime
    };
    client_runtime::lead(&connection, "kube-proxy/kyanite", None, start, shutdown).await?;
    Ok(())
}

/// What watches and the writer of rules share.
struct Shared {
    known: Mutex<Known>,
    changed: Notify,
    health: Arc<Health>,
    metrics: Metrics,
    nft: Nft,
}

struct Known {
    proxy: Proxy,
    node: NodeState,
    service_nets: std::collections::BTreeMap<ObjectKey, Vec<IpNet>>,
    /// Whether all rules are to be written anew.
    is_damaged: bool,
}

impl Shared {
    fn new(config: &Config) -> Shared {
        let place = NodeState::default().place(&config.node);
        Shared {
            known: Mutex::new(Known {
                proxy: Proxy::new(place),
                node: NodeState::default(),
                service_nets: std::collections::BTreeMap::new(),
                is_damaged: true,
            }),
            changed: Notify::new(),
            health: Arc::new(Health::new(config.sync_period * 2)),
            metrics: Metrics::default(),
            nft: Nft::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known
            .lock()
            .expect("nothing panics while it holds what is known")
    }

    fn note(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known());
        self.metrics.last_queued.set(seconds_now());
        self.health.queued();
        self.changed.notify_one();
    }
}

fn seconds_now() -> f64 {
    jiff::Timestamp::now().as_duration().as_secs_f64()
}

async fn listen(
    config: &Config,
    shared: &Arc<Shared>,
) -> Result<Vec<tokio::task::JoinHandle<()>>, Error> {
    let mut servers = Vec::new();
    if let Some(address) = config.healthz {
        let shared = Arc::clone(shared);
        let handler = move |path: &str| match path {
            "/livez" => json_response(shared.health.answer(true)),
            _ => json_response(shared.health.answer(false)),
        };
        servers.push(serve(bound(address).await?, Arc::new(handler)));
    }
    if let Some(address) = config.metrics {
        let shared = Arc::clone(shared);
        let handler = move |path: &str| match path {
            "/metrics" => text_response(StatusCode::OK, METRICS, shared.metrics.text()),
            "/proxyMode" => text_response(StatusCode::OK, TEXT, "nftables".into()),
            "/healthz" => text_response(StatusCode::OK, TEXT, "ok".into()),
            _ => text_response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".into()),
        };
        servers.push(serve(bound(address).await?, Arc::new(handler)));
    }
    Ok(servers)
}

async fn bound(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address)
        .await
        .map_err(|source| Error::Listen { address, source })
}

// The proxy has the only copy of what is kept; the caches remember no more than names.
fn assemble(runtime: &mut Runtime<Config>, shared: &Arc<Shared>) {
    let config = Arc::clone(&runtime.config);
    let client = runtime.client();
    let services = watch_services(runtime, Api::all(client.clone()), shared);
    let slices = watch_slices(runtime, Api::all(client.clone()), shared);
    let nodes = watch_node(runtime, Api::all(client.clone()), shared, &config.node);
    watch_service_nets(runtime, Api::all(client), shared);
    let completions = [
        services.completion(),
        slices.completion(),
        nodes.completion(),
    ];
    let writer = Arc::clone(shared);
    let settings = Arc::clone(&config);
    runtime.spawn(async move {
        for completion in completions {
            completion.reached().await;
        }
        Writer::new(settings, writer).run().await
    });
    let (ours, shared) = (shared.nft.processes(), Arc::clone(shared));
    runtime.spawn(async move {
        let damaged = || shared.note(|known| known.is_damaged = true);
        let error = strangers::watch(TABLE, ours, damaged).await;
        tracing::warn!(%error, "changes of our rules by others go unnoticed until the next load of everything");
        std::future::pending().await
    });
}

fn name_of(key: &ObjectKey) -> ServiceName {
    ServiceName::new(&key.namespace, &key.name)
}

fn meta_name(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> ServiceName {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ServiceName::new(&text(&meta.namespace), &text(&meta.name))
}

fn watch_services(
    runtime: &mut Runtime<Config>,
    api: Api<ServiceObject>,
    shared: &Arc<Shared>,
) -> Cache<()> {
    let noting = Arc::clone(shared);
    let cache = runtime.watch(api, "", move |service: ServiceObject| {
        let (name, kept) = (meta_name(&service.metadata), Service::of(&service));
        noting.metrics.service_changes.inc();
        noting.note(|known| known.proxy.service(&name, kept));
    });
    let noting = Arc::clone(shared);
    cache.on_change(move |change| {
        if change.after.is_none() {
            noting.note(|known| known.proxy.service(&name_of(change.key), None));
        }
    });
    cache
}

fn watch_slices(
    runtime: &mut Runtime<Config>,
    api: Api<EndpointSlice>,
    shared: &Arc<Shared>,
) -> Cache<()> {
    let noting = Arc::clone(shared);
    let cache = runtime.watch(api, "", move |slice: EndpointSlice| {
        let (name, kept) = (meta_name(&slice.metadata), Slice::of(&slice));
        noting.metrics.endpoint_changes.inc();
        noting.note(|known| known.proxy.slice(&name, kept));
    });
    let noting = Arc::clone(shared);
    cache.on_change(move |change| {
        if change.after.is_none() {
            noting.note(|known| known.proxy.slice(&name_of(change.key), None));
        }
    });
    cache
}

fn watch_node(
    runtime: &mut Runtime<Config>,
    api: Api<Node>,
    shared: &Arc<Shared>,
    name: &str,
) -> Cache<()> {
    let (noting, own) = (Arc::clone(shared), name.to_owned());
    runtime.watch(api, &format!("metadata.name={name}"), move |node: Node| {
        let state = NodeState::of(&node);
        if noting.known().node == state {
            return;
        }
        noting.health.eligible(state.eligible);
        noting.note(|known| {
            known.proxy.moved(state.place(&own));
            known.node = state;
        });
    })
}

fn watch_service_nets(runtime: &mut Runtime<Config>, api: Api<ServiceCIDR>, shared: &Arc<Shared>) {
    let noting = Arc::clone(shared);
    let cache = runtime.watch(api, "", |range: ServiceCIDR| {
        let nets = range.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
        nets.iter()
            .filter_map(|net| net.parse().ok())
            .collect::<Vec<IpNet>>()
    });
    cache.on_change(move |change| {
        let nets = change.after.cloned();
        if change.before.cloned() == nets {
            return;
        }
        noting.note(|known| {
            known.service_nets.remove(change.key);
            known
                .service_nets
                .extend(nets.map(|nets| (change.key.clone(), nets)));
        });
    });
}

/// How long all rules may go without being written anew, as upstream's full sync.
const FULL_PERIOD: Duration = Duration::from_secs(3600);

/// Writes rules.
struct Writer {
    config: Arc<Config>,
    shared: Arc<Shared>,
    written: Option<Settings>,
    full_at: Instant,
    checks: BalancerChecks,
}

impl Writer {
    fn new(config: Arc<Config>, shared: Arc<Shared>) -> Writer {
        Writer {
            config,
            shared,
            written: None,
            full_at: Instant::now(),
            checks: BalancerChecks::default(),
        }
    }

    async fn run(mut self) {
        loop {
            if let Err(error) = self.write().await {
                tracing::error!(%error, "rules could not be written; all are written anew");
                self.shared.metrics.failures.inc();
                self.shared.known().is_damaged = true;
                self.shared.changed.notify_one();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            tokio::time::sleep(self.config.min_sync_period).await;
            // The addresses of the node may have changed without any object saying so.
            let _ =
                tokio::time::timeout(self.config.sync_period, self.shared.changed.notified()).await;
        }
    }

    async fn write(&mut self) -> Result<(), NftError> {
        let started = Instant::now();
        let settings = self.settings();
        let (changes, checks, is_full) = {
            let mut known = self.shared.known();
            let changes = known.proxy.changes();
            let overdue = self.full_at.elapsed() > FULL_PERIOD;
            let is_full = std::mem::take(&mut known.is_damaged)
                || overdue
                || self.written.as_ref() != Some(&settings);
            (changes, known.proxy.health_checks(), is_full)
        };
        for (family, changes) in Family::BOTH.into_iter().zip(&changes) {
            match is_full {
                true => self.write_all(family, &settings).await?,
                false => {
                    self.shared
                        .nft
                        .apply(&incremental(family, &settings, changes))
                        .await?
                }
            }
            self.forget(family, changes, &settings).await;
        }
        if is_full {
            self.full_at = Instant::now();
        }
        self.written = Some(settings);
        self.checks.update(checks, &self.shared.health).await;
        self.written_at(started, is_full);
        Ok(())
    }

    fn written_at(&self, started: Instant, is_full: bool) {
        let metrics = &self.shared.metrics;
        let kind = if is_full {
            &metrics.full_sync_duration
        } else {
            &metrics.partial_sync_duration
        };
        let took = started.elapsed().as_secs_f64();
        kind.observe(took);
        metrics.sync_duration.observe(took);
        metrics.last_sync.set(seconds_now());
        // What came meanwhile waits from now on.
        self.shared.health.updated();
        tracing::debug!(is_full, took, "rules are written");
    }

    async fn write_all(&self, family: Family, settings: &Settings) -> Result<(), NftError> {
        let nft = &self.shared.nft;
        let content = self.shared.known().proxy.content(family);
        let chains = nft.chains(family.table_family(), TABLE).await?;
        // Upstream's proxy has gone from a node where ours runs; what it left would have the first word.
        let upstream = removal(family, "kube-proxy");
        let script = full(family, settings, &content, &chains);
        if let Err(error) = nft.apply(&(upstream.clone() + &script)).await {
            tracing::warn!(%error, "our table is not as ours would be; making it anew");
            let script = full(family, settings, &content, &[]);
            nft.apply(&(upstream + &removal(family, TABLE) + &script))
                .await?;
        }
        Ok(())
    }

    // UDP clients do not notice by themselves.
    async fn forget(&self, family: Family, changes: &[Change], settings: &Settings) {
        let fronts = self.shared.known().proxy.udp(family, changes);
        if fronts.is_empty() {
            return;
        }
        let nodes = match &settings.node_ports {
            NodePortAddresses::Some(ips) => ips.clone(),
            NodePortAddresses::All => own_addresses(),
        };
        let forgetting = tokio::task::spawn_blocking(move || {
            conntrack::forget(family, &fronts, |ip: IpAddr| nodes.contains(&ip))
        });
        match forgetting.await {
            Ok(Ok(count)) => {
                let ip_family = family.name();
                self.shared
                    .metrics
                    .forgotten
                    .get_or_create(&ByFamily { ip_family })
                    .inc_by(count as u64);
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "stale UDP connections could not be forgotten")
            }
            Err(error) => tracing::warn!(%error, "forgetting UDP connections broke"),
        }
    }

    fn settings(&self) -> Settings {
        let known = self.shared.known();
        let config = &self.config;
        let local_traffic = match &config.detect_local {
            DetectLocal::None => LocalTraffic::Unknown,
            DetectLocal::ClusterCidr(nets) => LocalTraffic::Nets(nets.clone()),
            DetectLocal::NodeCidr => LocalTraffic::Nets(known.node.pod_nets.clone()),
            DetectLocal::Bridge(name) => LocalTraffic::Bridge(name.clone()),
            DetectLocal::Prefix(prefix) => LocalTraffic::Prefix(prefix.clone()),
        };
        let node_ports = match &config.node_port_addresses {
            NodePorts::Primary if known.node.addresses.is_empty() => NodePortAddresses::All,
            NodePorts::Primary => NodePortAddresses::Some(known.node.addresses.clone()),
            NodePorts::All => NodePortAddresses::All,
            NodePorts::Within(nets) => {
                let all = own_addresses().into_iter();
                NodePortAddresses::Some(
                    all.filter(|ip| nets.iter().any(|net| net.contains(ip)))
                        .collect(),
                )
            }
        };
        Settings {
            masquerade_mark: 1 << config.masquerade_bit.min(31),
            masquerade_all: config.masquerade_all,
            local_traffic,
            node_ports,
            service_nets: known.service_nets.values().flatten().copied().collect(),
        }
    }
}
