//! The role: watches what has names, serves them, and follows its configuration.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client_runtime::{Cache, Connection, Runtime};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Namespace, Service as ServiceObject};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use probes::{METRICS, TEXT, serve, text_response};
use tokio::net::{TcpListener, UdpSocket};

use crate::config::{Config, ConfigError, DEFAULT};
use crate::objects::{Service, Slice};
use crate::records::Key;
use crate::server::Server;

/// How the role runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the API server is reached.
    pub connection: Connection,
    /// The Corefile; AKS' own content without one.
    pub corefile: Option<PathBuf>,
    /// Where to listen.
    pub addresses: Vec<IpAddr>,
    /// On which port.
    pub port: u16,
}

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
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
}

/// How often the files of the configuration are looked at, as CoreDNS' `reload`.
const RELOAD: Duration = Duration::from_secs(30);

/// Runs until `shutdown` completes.
pub async fn run(options: Options, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let (config, _) = read(&options)?;
    let probes = [config.health, config.ready, config.metrics];
    let server = Arc::new(Server::new(config));
    let mut sockets = Vec::new();
    for ip in &options.addresses {
        sockets.push(listen(SocketAddr::new(*ip, options.port)).await?);
    }
    let _probes = serve_probes(probes, &server).await?;
    let connection = options.connection.clone();
    let start = move |client: kube::Client, bare| {
        let mut runtime = Runtime::new(Arc::new(options), client, bare, false);
        watch(&mut runtime, &server);
        for (udp, tcp) in sockets {
            let (for_udp, for_tcp) = (Arc::clone(&server), Arc::clone(&server));
            runtime.spawn(async move {
                let error = for_udp.serve_udp(udp).await;
                tracing::error!(%error, "datagrams can no longer be received");
            });
            runtime.spawn(for_tcp.serve_tcp(tcp));
        }
        let options = Arc::clone(&runtime.config);
        runtime.spawn(reload(options, server));
        runtime
    };
    client_runtime::lead(&connection, "coredns/kyanite", None, start, shutdown).await?;
    Ok(())
}

// The configuration, and all text it was read from.
fn read(options: &Options) -> Result<(Config, String), ConfigError> {
    let config = match &options.corefile {
        Some(path) => Config::read(path)?,
        None => Config::parse(DEFAULT, &PathBuf::from("/etc/coredns/Corefile"))?,
    };
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let text = format!("{:?}", config.blocks);
    Ok((config, text))
}

async fn reload(options: Arc<Options>, server: Arc<Server>) {
    let mut known = read(&options).map(|(_, text)| text).unwrap_or_default();
    loop {
        tokio::time::sleep(RELOAD).await;
        match read(&options) {
            Ok((config, text)) if text != known => {
                tracing::info!("the configuration has changed and is followed");
                server.reconfigure(config);
                known = text;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "the new configuration is of no use; the old one stays")
            }
        }
    }
}

async fn listen(address: SocketAddr) -> Result<(UdpSocket, TcpListener), Error> {
    let failed = |source| Error::Listen { address, source };
    let tcp = TcpListener::bind(address).await.map_err(failed)?;
    // Port 0 is any, and then the same for both.
    let address = tcp.local_addr().map_err(failed)?;
    let udp = UdpSocket::bind(address).await.map_err(failed)?;
    tracing::info!(%address, "serving names");
    Ok((udp, tcp))
}

async fn serve_probes(
    [health, ready, metrics]: [Option<SocketAddr>; 3],
    server: &Arc<Server>,
) -> Result<Vec<tokio::task::JoinHandle<()>>, Error> {
    let mut running = Vec::new();
    let mut places: Vec<SocketAddr> = [health, ready, metrics].into_iter().flatten().collect();
    places.sort_unstable();
    places.dedup();
    for address in places {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| Error::Listen { address, source })?;
        let server = Arc::clone(server);
        let answer = move |path: &str| match path {
            "/health" => text_response(StatusCode::OK, TEXT, "OK".into()),
            "/ready" if server.is_ready() => text_response(StatusCode::OK, TEXT, "OK".into()),
            "/ready" => text_response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "kubernetes".into()),
            "/metrics" => text_response(StatusCode::OK, METRICS, server.metrics.text()),
            _ => text_response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".into()),
        };
        running.push(serve(listener, Arc::new(answer)));
    }
    Ok(running)
}

fn key_of(meta: &ObjectMeta) -> Key {
    let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
    (text(&meta.namespace), text(&meta.name))
}

// The server has the only copy of what is kept; the caches remember no more than names.
fn watch(runtime: &mut Runtime<Options>, server: &Arc<Server>) {
    let client = runtime.client();
    let told = Arc::clone(server);
    let services = runtime.watch(
        Api::all(client.clone()),
        "",
        move |object: ServiceObject| {
            let (key, kept) = (key_of(&object.metadata), Service::of(&object));
            told.change(|records| records.service(&key, kept));
        },
    );
    gone(&services, server, |records, key| records.service(key, None));
    let told = Arc::clone(server);
    let slices = runtime.watch(
        Api::all(client.clone()),
        "",
        move |object: EndpointSlice| {
            let (key, kept) = (key_of(&object.metadata), Slice::of(&object));
            told.change(|records| records.slice(&key, kept));
        },
    );
    gone(&slices, server, |records, key| records.slice(key, None));
    let told = Arc::clone(server);
    let namespaces = runtime.watch_metadata::<Namespace, ()>(None, Api::all(client), move |meta| {
        told.change(|records| records.namespace(meta.name.as_deref().unwrap_or_default(), true));
    });
    gone(&namespaces, server, |records, key| {
        records.namespace(&key.1, false)
    });
    let completions = [
        services.completion(),
        slices.completion(),
        namespaces.completion(),
    ];
    let server = Arc::clone(server);
    runtime.spawn(async move {
        for completion in completions {
            completion.reached().await;
        }
        server.is_synced();
        tracing::info!("every name is known");
        std::future::pending().await
    });
}

fn gone(cache: &Cache<()>, server: &Arc<Server>, forget: fn(&mut crate::records::Records, &Key)) {
    let server = Arc::clone(server);
    cache.on_change(move |change| {
        if change.after.is_none() {
            let key: Key = (
                change.key.namespace.as_str().into(),
                change.key.name.as_str().into(),
            );
            server.change(|records| forget(records, &key));
        }
    });
}
