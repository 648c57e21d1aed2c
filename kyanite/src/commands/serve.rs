//! What every way of serving shares: a listener, a server, an end on a signal.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::apiserver::settings::{Access, Components, KeyPairFiles, Outbound};
use ::apiserver::{Clock, Config, Egress};
use ::store::Store;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Serving;
use crate::exit::{Code, Failure, Result};

/// Opens the port, or says what is in the way.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let (code, hint) = match error.kind() {
            std::io::ErrorKind::AddrInUse => (
                Code::Conflict,
                "another program uses this port: choose another one, or 0 for any free one",
            ),
            std::io::ErrorKind::PermissionDenied => {
                (Code::Permission, "ports below 1024 need root")
            }
            _ => (Code::Failure, "check the address"),
        };
        Failure::new(code, format!("cannot listen on {address}: {error}")).hint(hint)
    })
}

/// The address clients on this machine can use for one we listen on.
pub(super) fn reachable(ip: IpAddr) -> IpAddr {
    if ip.is_unspecified() {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else {
        ip
    }
}

/// The address that clients are told for one we listen on: one that others can use, where this machine has one that `will_do`.
pub(super) fn advertised(ip: IpAddr, will_do: impl Fn(IpAddr) -> bool) -> IpAddr {
    let outward = ip.is_unspecified().then(outward_address).flatten();
    outward
        .filter(|address| will_do(*address))
        .unwrap_or_else(|| reachable(ip))
}

/// The address this machine has towards others, where it has one. Choosing it sends nothing.
pub(super) fn outward_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address of the documentation range: only the route to it matters.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let found = socket.local_addr().ok()?.ip();
    (!found.is_unspecified()).then_some(found)
}

/// The configuration of a server.
pub(super) fn config(
    serving: &Serving,
    store: Arc<dyn Store>,
    certificate: KeyPairFiles,
    advertise: SocketAddr,
    access: Access,
    (outbound, egress): (Outbound, Arc<Egress>),
) -> Config {
    Config {
        store,
        certificate,
        access,
        callers: serving.front_door.callers(),
        outbound,
        egress,
        advertise,
        service_cidrs: serving.service_cluster_ip_range.all().to_vec(),
        event_ttl: serving.event_ttl,
        compaction: serving.etcd_compaction_interval,
        components: Components::Elsewhere,
        measured: Vec::new(),
        clock: Clock::system(),
        connections: connections(),
        audit: serving.audit.settings(),
        encryption: None,
    }
}

/// How many connections fit into the files this process may open; the rest is for the store and the ways to nodes.
fn connections() -> usize {
    const MOST: usize = 50_000;
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(MOST, |files| (files / 4 * 3).min(MOST))
}

/// Allows this process as many open files as it may have: a connection is one, and the usual limit is for programs
/// that call select(2). Go's programs do the same.
pub(super) fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Completes on SIGTERM or SIGINT; a second SIGINT ends the process at once.
pub(super) async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        tracing::error!("signals cannot be received; only SIGKILL ends this server");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: letting open requests finish"),
        _ = interrupt.recv() => tracing::info!("SIGINT: letting open requests finish"),
    }
    tokio::spawn(async move {
        interrupt.recv().await;
        std::process::exit(Code::Interrupted as i32);
    });
}

impl From<::apiserver::Error> for Failure {
    fn from(error: ::apiserver::Error) -> Failure {
        match error {
            ::apiserver::Error::Store(error) => error.into(),
            other => Failure::new(Code::Failure, other.to_string()),
        }
    }
}
