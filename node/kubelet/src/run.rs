//! A kubelet from its settings to its end.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use client_runtime::{Actor, Connection, Runtime as Role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::Api;
use tokio::sync::{mpsc, watch};

use crate::certificates::{self, Purpose};
use crate::cgroups::{Cgroups, Driver, Hierarchy};
use crate::config::Settings;
use crate::context::Context;
use crate::cri::{self, Client, Runtime};
use crate::eviction::{self, Pressure};
use crate::images::Images;
use crate::machine::Machine;
use crate::make::dns::{self, Resolvers};
use crate::manager::Manager;
use crate::node;
use crate::objects::{Live, Objects};
use crate::pleg::{self, Pulse};
use crate::pods::Pods;
use crate::resize::ledger::{self, Ledger};
use crate::serving;
use crate::statuses::Statuses;
use crate::upkeep;
use crate::users::Users;
use crate::volumes::NodeVolumes;
use crate::volumes::csi::{Csi, InUse, NodeAnnouncements, Registry};
use crate::watchdog;

/// Why a kubelet cannot run or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error("{0}")]
    Client(#[from] client_runtime::Error),
    /// This machine.
    #[error("`{path}` cannot be used: {cause}")]
    Directory {
        /// Which directory.
        path: String,
        /// Why not.
        cause: std::io::Error,
    },
    /// The node's certificates.
    #[error("{0}")]
    Certificate(#[from] certificates::Error),
    /// What pods were given.
    #[error("{0}")]
    Ledger(#[from] ledger::Error),
    /// Something is missing.
    #[error("{0}")]
    Settings(String),
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Stopped,
    /// It has a new certificate and must connect anew.
    Renewed,
}

/// Runs until `shutdown`; with a new certificate it begins anew, and no container notices.
pub async fn run(mut settings: Settings, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let timeout = settings.config.runtime_request_timeout.0;
    let endpoint = settings.config.container_runtime_endpoint.clone();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let kubeconfig = tokio::select! {
            kubeconfig = certificates::ensure_client(&settings) => kubeconfig?,
            () = &mut shutdown => return Ok(()),
        };
        settings.kubeconfig = Some(kubeconfig);
        let runtime: Arc<dyn Runtime> = Arc::new(Client::new(&endpoint, timeout));
        match run_with(settings.clone(), runtime, &mut shutdown).await? {
            End::Stopped => return Ok(()),
            End::Renewed => tracing::info!("the client certificate was renewed"),
        }
    }
}

/// Ends when there is a new client certificate.
async fn renewed(ctx: &Context) {
    let current = Purpose::Client.current(&ctx.settings.cert_dir);
    let validity =
        certificates::validity(&current).filter(|_| ctx.settings.config.rotate_certificates);
    let Some(validity) = validity else {
        return std::future::pending().await;
    };
    tokio::time::sleep(certificates::until_renewal(
        validity,
        Timestamp::now(),
        rand::random(),
    ))
    .await;
    while let Err(error) =
        certificates::renew(&ctx.actor, &ctx.settings, Purpose::Client, &[]).await
    {
        tracing::warn!(%error, "the client certificate cannot be renewed yet");
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

/// Runs with a runtime that the caller brings.
pub async fn run_with(
    settings: Settings,
    runtime: Arc<dyn Runtime>,
    shutdown: impl Future<Output = ()>,
) -> Result<End, Error> {
    make_directories(&settings)?;
    let kubeconfig = settings.kubeconfig.clone();
    let kubeconfig =
        kubeconfig.ok_or_else(|| Error::Settings("no --kubeconfig was given".to_owned()))?;
    let (client, bare) =
        client_runtime::clients(&Connection::Kubeconfig(kubeconfig), "kubelet").await?;
    let mut role = Role::new(Arc::new(()), client.clone(), bare, false);
    let node_name = settings.node_name.clone();
    let pods = role.watch(
        Api::<Pod>::all(client.clone()),
        &format!("spec.nodeName={node_name}"),
        |pod| pod,
    );
    let node = role.watch(
        Api::<Node>::all(client.clone()),
        &format!("metadata.name={node_name}"),
        |node| node,
    );
    let services = role.watch(Api::<Service>::all(client.clone()), "", slim);
    let actor = Actor::of_client(client.clone());
    let events = role.recorder("kubelet", actor.clone());
    let machine = Machine::read(&settings.root_dir);
    let objects: Arc<dyn Objects> = Arc::new(Live(client.clone()));
    let (drivers, in_use) = (Arc::new(Registry::default()), Arc::new(InUse::default()));
    let csi = Csi::new(
        Arc::clone(&drivers),
        Arc::clone(&objects),
        Arc::clone(&in_use),
        &node_name,
        &settings.root_dir,
    );
    let mounts = NodeVolumes::new(Arc::clone(&objects)).with_csi(Arc::new(csi));
    let mounts = Arc::new(mounts);
    let allocatable = node::quantities(machine.allocatable(&settings.config));
    let parsed = allocatable
        .into_iter()
        .filter_map(|(name, text)| Some((name, text.0.parse().ok()?)));
    mounts.set_allocatable(parsed.collect());
    let ctx = Arc::new(Context {
        cgroups: cgroups(&settings, &*runtime).await,
        images: Images::new(pulls(&settings)),
        resolvers: resolvers(&settings),
        host_ips: RwLock::new(host_ips(&settings)),
        network_ready: AtomicBool::new(false),
        mirrors: RwLock::default(),
        pressure: Pressure::default(),
        allocated: Ledger::open(&settings.root_dir, ledger::ALLOCATED)?,
        actuated: Ledger::open(&settings.root_dir, ledger::ACTUATED)?,
        in_use,
        csi_ready: AtomicBool::new(false),
        shutting_down: watch::Sender::new(false),
        users: Users::new(&settings.root_dir, settings.config.max_pods),
        started: Timestamp::now(),
        mounts,
        objects,
        pods: Arc::new(Pods::default()),
        statuses: Statuses::default(),
        settings,
        runtime: Arc::clone(&runtime),
        actor: actor.clone(),
        events,
        services,
        machine,
    });
    let pulse = Pulse::default();
    // Full, the one who compares lists waits: workers that are told late look for themselves.
    let (changed, changes) = mpsc::channel(1024);
    role.spawn(pleg::watch(runtime, pulse.clone(), changed));
    role.spawn(ctx.statuses.clone().write_all(actor));
    role.spawn(node::keep(Arc::clone(&ctx), node.clone(), pulse));
    // Full, a pod is not evicted now but at the next look.
    let (kills, killed) = mpsc::channel(16);
    role.spawn(serve_drivers(Arc::clone(&ctx), drivers, client.clone()));
    role.spawn(serving::serve(Arc::clone(&ctx), client));
    role.spawn(upkeep::keep(Arc::clone(&ctx)));
    role.spawn(watchdog::keep());
    role.spawn(eviction::keep(Arc::clone(&ctx), kills.clone()));
    role.spawn(crate::shutdown::keep(Arc::clone(&ctx), kills));
    role.spawn(Manager::new(Arc::clone(&ctx), pods, node).run(changes, killed));
    tracing::info!(node = ctx.node(), "the kubelet runs");
    tokio::select! {
        error = role.run() => Err(error.into()),
        () = shutdown => Ok(End::Stopped),
        () = renewed(&ctx) => Ok(End::Renewed),
    }
}

/// Makes the object for this node's CSI drivers, then takes whoever registers.
async fn serve_drivers(ctx: Arc<Context>, drivers: Arc<Registry>, client: kube::Client) {
    let announcements = Arc::new(NodeAnnouncements::new(client, ctx.node()));
    while let Err(error) = announcements.begin().await {
        tracing::debug!(error, "there is no CSINode yet");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ctx.csi_ready.store(true, Ordering::Relaxed);
    let directory = ctx.settings.root_dir.join("plugins_registry");
    drivers.watch(directory, announcements).await;
}

/// What environments need of a service.
fn slim(mut service: Service) -> Service {
    service.metadata.managed_fields = None;
    service.metadata.annotations = None;
    service.metadata.labels = None;
    service.status = None;
    service
}

fn pulls(settings: &Settings) -> usize {
    let config = &settings.config;
    match (
        config.serialize_image_pulls,
        config.max_parallel_image_pulls,
    ) {
        (_, Some(count)) if count > 0 => count as usize,
        (true, _) => 1,
        (false, _) => tokio::sync::Semaphore::MAX_PERMITS,
    }
}

fn make_directories(settings: &Settings) -> Result<(), Error> {
    let logs = Path::new(&settings.config.pod_logs_dir);
    let root = &settings.root_dir;
    for directory in [
        root,
        &root.join("pods"),
        &root.join("plugins"),
        &root.join("plugins_registry"),
        &logs.to_owned(),
    ] {
        std::fs::create_dir_all(directory).map_err(|cause| Error::Directory {
            path: directory.display().to_string(),
            cause,
        })?;
    }
    Ok(())
}

/// The runtime's word about who makes cgroups goes before ours; old runtimes have none.
async fn cgroups(settings: &Settings, runtime: &dyn Runtime) -> Cgroups {
    let config = &settings.config;
    let mut driver = match config.cgroup_driver.as_str() {
        "systemd" => Driver::Systemd,
        _ => Driver::Cgroupfs,
    };
    for _ in 0..3 {
        match runtime.runtime_config(cri::RuntimeConfigRequest {}).await {
            Ok(answer) => {
                if let Some(linux) = answer.linux {
                    driver = match linux.cgroup_driver() {
                        cri::CgroupDriver::Systemd => Driver::Systemd,
                        cri::CgroupDriver::Cgroupfs => Driver::Cgroupfs,
                    };
                }
                break;
            }
            Err(status) if status.code() == tonic::Code::Unimplemented => break,
            Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
        }
    }
    Cgroups::new(
        driver,
        Hierarchy::read(),
        &config.cgroup_root,
        config.pod_pids_limit,
    )
}

fn resolvers(settings: &Settings) -> Resolvers {
    let config = &settings.config;
    let path = config.resolv_conf.as_deref().unwrap_or("/etc/resolv.conf");
    let host =
        (!path.is_empty()).then(|| dns::parse(&std::fs::read_to_string(path).unwrap_or_default()));
    Resolvers {
        cluster: config.cluster_dns.clone(),
        domain: config.cluster_domain.clone(),
        host,
    }
}

/// The addresses that were given, or the one that the default route uses.
fn host_ips(settings: &Settings) -> Vec<String> {
    if !settings.node_ips.is_empty() {
        return settings.node_ips.clone();
    }
    // Nothing is sent: connecting a datagram socket only picks the address.
    let picked = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let ip = picked.map(|address| address.ip().to_string());
    vec![ip.unwrap_or_else(|_| "127.0.0.1".to_owned())]
}
