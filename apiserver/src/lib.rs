//! The Kubernetes API over a revisioned store.
//!
//! ```text
//!  TLS, HTTP        server ─► app ─► pages (discovery, OpenAPI, health, metrics)
//!                               └──► rest (verbs) ─► admission ─► store
//!  reads                              └─► list, watch ◄── cache ◄── one watch on the store
//!  bytes            negotiate, codec (in), view (out), stored (between)
//! ```
//!
//! Nothing but this crate touches the store. The cores (what a delete does, what a list selects, who
//! may be evicted) are pure functions with their tests beside them; what a kind *means* is in `kinds`.

mod admission;
mod app;
mod bodies;
mod body;
mod boot;
mod cache;
mod clock;
mod codec;
mod collection;
mod compaction;
mod discovery;
mod eviction;
mod gather;
mod identity;
mod list;
mod metrics;
mod negotiate;
mod pages;
mod request;
mod rest;
mod select;
mod server;
mod services;
mod status;
mod stored;
mod topics;
mod view;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch as signal};
use tokio_rustls::TlsAcceptor;

pub use clock::Clock;

/// What a server needs to know.
#[derive(Debug)]
pub struct Config {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// Certificates, and whether client certificates are asked for.
    pub tls: Arc<rustls::ServerConfig>,
    /// The address that clients and the `kubernetes` service are told.
    pub advertise: SocketAddr,
    /// Virtual IPs of services.
    pub service_cidr: Ipv4Net,
    /// Whether requests without credentials are answered.
    pub anonymous: bool,
    /// How long events live.
    pub event_ttl: Duration,
    /// How often history older than this is forgotten.
    pub compaction: Duration,
    /// The time.
    pub clock: Clock,
}

/// A server that is ready to run.
pub struct Server {
    app: Arc<app::App>,
    listener: TcpListener,
    tls: TlsAcceptor,
    ready: signal::Sender<bool>,
    stop: signal::Sender<bool>,
    advertise: SocketAddr,
    compaction: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("advertise", &self.advertise)
            .finish_non_exhaustive()
    }
}

/// Why a server cannot be built or run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The objects every cluster needs cannot be made.
    #[error("cannot create the objects every cluster has: {0}")]
    Boot(String),
}

impl Server {
    /// Reads the store into memory and gets everything ready behind an open listener.
    pub async fn build(config: Config, listener: TcpListener) -> Result<Server, Error> {
        let cache = Arc::new(cache::Cache::load(&*config.store).await?);
        let stop = signal::Sender::new(false);
        let ready = signal::Sender::new(false);
        let api = Arc::new(rest::Api {
            store: config.store,
            cache,
            services: services::Services::new(config.service_cidr),
            clock: config.clock,
            event_ttl: config.event_ttl,
            shutdown: stop.subscribe(),
        });
        api.load_services();
        let discovery = discovery::Discovery::new(&config.advertise.to_string());
        let app = Arc::new(app::App::new(
            api,
            discovery,
            config.anonymous,
            ready.subscribe(),
        ));
        Ok(Server {
            app,
            listener,
            tls: TlsAcceptor::from(config.tls),
            ready,
            stop,
            advertise: config.advertise,
            compaction: config.compaction,
        })
    }

    /// Serves until `shutdown` completes, then lets open requests finish. The first part of the result
    /// resolves once the server is ready, and fails if it never gets there.
    pub fn run(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> (
        oneshot::Receiver<()>,
        impl Future<Output = Result<(), Error>> + Send,
    ) {
        let (told, ready) = oneshot::channel();
        (ready, self.serve(shutdown, told))
    }

    async fn serve(
        self,
        shutdown: impl Future<Output = ()> + Send,
        told: oneshot::Sender<()>,
    ) -> Result<(), Error> {
        let api = Arc::clone(&self.app.api);
        let follow = tokio::spawn({
            let api = Arc::clone(&api);
            async move { api.cache.follow(Arc::clone(&api.store)).await }
        });
        let compact = tokio::spawn(compaction::run(Arc::clone(&api), self.compaction));
        let stop = self.stop.subscribe();
        let serve = tokio::spawn(server::serve(
            Arc::clone(&self.app),
            self.listener,
            self.tls,
            stop,
        ));
        let booted = boot::run(&api, self.advertise)
            .await
            .map_err(|e| Error::Boot(e.message));
        if booted.is_ok() {
            self.ready.send_replace(true);
            // Whoever asked may have lost interest; the server serves all the same.
            let _ = told.send(());
            tracing::info!(address = %self.advertise, "ready");
            shutdown.await;
        }
        self.stop.send_replace(true);
        if let Err(error) = serve.await {
            tracing::error!(%error, "the server task failed");
        }
        compact.abort();
        follow.abort();
        booted
    }
}
