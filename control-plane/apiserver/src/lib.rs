//! The Kubernetes API over a revisioned store.
//!
//! ```text
//!  TLS, HTTP        server ─► app ─► pages (discovery, OpenAPI, health, metrics)
//!  at the door                 ├───── authentication, impersonation, authorization, turns
//!                               ├──► rest (verbs) ─► admission ─► store
//!                               └──► proxy ─► outbound, egress ─► kubelets, pods, services
//!  reads                              └─► list, watch ◄── cache ◄── one watch on the store
//!  bytes            negotiate, codec (in), view (out), stored (between)
//! ```
//!
//! Nothing but this crate touches the store. The cores (what a delete does, what a list selects, who
//! may be evicted) are pure functions with their tests beside them; what a kind *means* is in `kinds`.

mod admission;
mod app;
mod asked;
mod authentication;
mod authorization;
mod bodies;
mod body;
mod boot;
mod cache;
mod callers;
mod clock;
mod codec;
mod collection;
mod compaction;
mod deadline;
mod discovery;
mod egress;
mod escalation;
mod eviction;
mod fetch;
mod gather;
mod identity;
mod impersonation;
mod list;
mod metrics;
mod negotiate;
mod one_task;
mod outbound;
mod pages;
mod proxy;
mod reload;
mod request;
mod rest;
mod reviews;
mod select;
mod server;
mod services;
pub mod settings;
mod status;
mod stored;
mod tls;
mod topics;
mod turns;
mod view;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use kinds::resources::Resource;
use konnectivity::server::Reviewer;
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch as signal};

pub use clock::Clock;
pub use egress::{Egress, Nearby};
pub use pages::RELEASE;
pub use reload::Reload;
pub use tls::Error as TlsError;

use settings::{Access, Callers, KeyPairFiles, Outbound};

/// What a server needs to know.
#[derive(Debug)]
pub struct Config {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// The serving certificate.
    pub certificate: KeyPairFiles,
    /// Who may come in and what they may do.
    pub access: Access,
    /// From where they may come.
    pub callers: Callers,
    /// Who we are to kubelets, pods and services.
    pub outbound: Outbound,
    /// The ways to them.
    pub egress: Arc<Egress>,
    /// The address that clients and the `kubernetes` service are told.
    pub advertise: SocketAddr,
    /// Virtual IPs of services.
    pub service_cidr: Ipv4Net,
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
    listeners: Vec<TcpListener>,
    door: Arc<tls::FrontDoor>,
    callers: Callers,
    reload: Arc<Reload>,
    trust: signal::Sender<()>,
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
    /// A certificate, key or CA cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// A file or setting of authentication cannot be used.
    #[error(transparent)]
    Authentication(#[from] authentication::Error),
    /// Admission plugins that do not exist, or that are both on and off.
    #[error("{0}")]
    Admission(String),
    /// The file that says which traffic takes a tunnel cannot be used.
    #[error("{0}")]
    Egress(String),
    /// The objects every cluster needs cannot be made.
    #[error("cannot create the objects every cluster has: {0}")]
    Boot(String),
}

impl Server {
    /// Reads the store into memory and gets everything ready behind open listeners: one, and one more in each
    /// network of machines that this host's own addresses do not reach.
    pub async fn build(config: Config, listeners: Vec<TcpListener>) -> Result<Server, Error> {
        let door = Arc::new(tls::FrontDoor::open(
            config.certificate,
            &config.access.authentication,
        )?);
        let admission = &config.access.admission;
        let plugins =
            admission::AdmissionSettings::from_flags(&admission.enable, &admission.disable)
                .map_err(Error::Admission)?;
        let authorizer = authorization::Authorizer::new(&config.access.authorization.modes);
        let authentication = config.access.authentication.clone();
        let authenticator = Arc::new(authentication::Authenticator::open(authentication)?);
        let gate = Arc::new(fairness::Gate::new(app::SEATS));
        let followers = |resource: &Resource| {
            let of_gate = turns::follower(&gate, resource);
            of_gate
                .into_iter()
                .chain(authorizer.follower(resource))
                .collect()
        };
        let cache = Arc::new(cache::Cache::load(&*config.store, &followers).await?);
        let stop = signal::Sender::new(false);
        let ready = signal::Sender::new(false);
        let api = Arc::new(rest::Api {
            store: config.store,
            cache,
            services: services::Services::new(config.service_cidr),
            clock: config.clock,
            event_ttl: config.event_ttl,
            admission: admission::Chain::new(&plugins),
            authenticator,
            authorizer,
            outbound: Arc::new(outbound::Outbound::open(config.outbound, config.egress)?),
            shutdown: stop.subscribe(),
        });
        let discovery = discovery::Discovery::new(&config.advertise.to_string());
        let app = Arc::new(app::App::new(
            api,
            discovery,
            config.access,
            config.advertise,
            gate,
            ready.subscribe(),
        ));
        let trust = signal::Sender::new(());
        let reload = reloadable(&door, &app, &trust);
        Ok(Server {
            app,
            listeners,
            door,
            callers: config.callers,
            reload,
            trust,
            ready,
            stop,
            advertise: config.advertise,
            compaction: config.compaction,
        })
    }

    /// Reads changed certificates, keys and CAs again without waiting for the next look at them.
    pub fn reload(&self) -> Arc<Reload> {
        Arc::clone(&self.reload)
    }

    /// Judges tokens for those who serve beside this server.
    pub fn tokens(&self) -> Arc<dyn Reviewer> {
        Arc::clone(&self.app.api) as Arc<dyn Reviewer>
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
            async move { Arc::clone(&api.cache).follow(Arc::clone(&api.store)).await }
        });
        let compact = tokio::spawn(compaction::run(Arc::clone(&api), self.compaction));
        let republish = tokio::spawn(republish(Arc::clone(&self.app), self.trust.subscribe()));
        let look = tokio::spawn(reload::run(Arc::clone(&self.reload)));
        let stop = self.stop.subscribe();
        let serve = tokio::spawn(server::serve(
            Arc::clone(&self.app),
            self.listeners,
            self.door,
            self.callers,
            stop,
        ));
        let booted = boot::run(&api, self.advertise, &self.app.access.authentication)
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
        look.abort();
        republish.abort();
        compact.abort();
        follow.abort();
        booted
    }
}

fn reloadable(
    door: &Arc<tls::FrontDoor>,
    app: &Arc<app::App>,
    trust: &signal::Sender<()>,
) -> Arc<Reload> {
    let reload = Reload::default();
    let front = Arc::clone(door);
    reload.add("the serving certificate", door.files(), move || {
        front.reload().map_err(|e| e.to_string())
    });
    app.api.authenticator.reload(&reload);
    app.api.outbound.reload(&reload);
    let authentication = &app.access.authentication;
    let proxies = authentication.request_header.iter();
    let authorities: Vec<_> = (authentication.client_ca_file.iter().cloned())
        .chain(proxies.map(|proxies| proxies.client_ca_file.clone()))
        .collect();
    let trust = trust.clone();
    reload.add("the published CAs", authorities, move || {
        trust.send_replace(());
        Ok(())
    });
    Arc::new(reload)
}

// Aggregated servers learn new CAs from the object that boot made.
async fn republish(app: Arc<app::App>, mut changed: signal::Receiver<()>) {
    while changed.changed().await.is_ok() {
        let published = boot::trust::publish(&app.api, &app.access.authentication).await;
        if let Err(error) = published {
            tracing::warn!(error = %error.message, "the published CAs are not up to date");
        }
    }
}
