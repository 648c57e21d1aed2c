//! The Kubernetes API over a revisioned store.
//!
//! ```text
//!  connection  TLS and bytes ─► app ─► pages (discovery, OpenAPI, health, metrics)
//!  door        who asks, for what, may they, is it their turn
//!  writing                      ├──► rest (verbs) ─► admission ─► store
//!  reading                      │      └─► list, watch ◄── cache ◄── one watch on the store
//!  outward                      └──► proxy ─► outbound, egress ─► kubelets, pods, services
//! ```
//!
//! `api` is what they all work on, `call` one request to a resource, `status` an error as clients know it.
//!
//! Nothing but this crate touches the store. The cores (what a delete does, what a list selects, who
//! may be evicted) are pure functions with their tests beside them; what a kind *means* is in `kinds`.

mod api;
mod app;
mod auditing;
mod call;
mod connection;
mod conversion;
mod door;
mod meters;
mod metrics;
mod outward;
mod pages;
mod quiet;
mod reading;
mod registry;
pub mod settings;
mod status;
mod writing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kinds::resources::Resource;
use konnectivity::server::Reviewer;
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch as signal};

pub use ::clock::Clock;
pub use connection::inside::{Caller, Inside, Said};
pub use connection::reload::Reload;
pub use connection::tls::Error as TlsError;
pub use outward::egress::{Egress, Nearby};
pub use pages::RELEASE;

use connection::guests::Guests;
use connection::{reload, server, tls};
use door::{authentication, authorization, seats};
use outward::aggregation::{Aggregator, Watcher};
use outward::outbound;
use reading::{cache, compaction};
use settings::{Access, Callers, Components, KeyPairFiles, Outbound};
use writing::{admission, boot, definitions, flow_schemas, migration, policy_status, services};

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
    /// Virtual IPs of services: a range, or one of each family.
    pub service_cidrs: Vec<IpNet>,
    /// How long events live.
    pub event_ttl: Duration,
    /// How often history older than this is forgotten.
    pub compaction: Duration,
    /// The other parts of the control plane.
    pub components: Components,
    /// What else is on the page of metrics: that of roles in the same process.
    pub measured: Vec<fn(&mut prometheus_client::registry::Registry)>,
    /// The time.
    pub clock: Clock,
    /// How many connections there may be at once.
    pub connections: usize,
    /// What is recorded of requests; nothing where this is nothing.
    pub audit: Option<settings::Audit>,
    /// How objects are encrypted in the store; not at all where this is nothing.
    pub encryption: Option<settings::Encryption>,
}

/// What this program is, as metrics and pages say it.
pub fn build() -> probes::process::Build {
    let (major, minor) = pages::VERSION;
    probes::process::Build {
        major,
        minor,
        git_version: pages::git_version(),
        compiler: "rustc",
        platform: pages::platform(),
    }
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
    guests: Arc<Guests>,
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
    /// A file or setting of authorization cannot be used.
    #[error("{0}")]
    Authorization(String),
    /// Admission plugins that do not exist, or that are both on and off.
    #[error("{0}")]
    Admission(String),
    /// The file that says which traffic takes a tunnel cannot be used.
    #[error("{0}")]
    Egress(String),
    /// Objects cannot be encrypted as they should be.
    #[error("{0}")]
    Encryption(String),
    /// Requests cannot be recorded as they should be.
    #[error("{0}")]
    Audit(String),
    /// The objects every cluster needs cannot be made.
    #[error("cannot create the objects every cluster has: {0}")]
    Boot(String),
}

impl Server {
    /// Reads the store into memory and gets everything ready behind open listeners: one, and one more in each
    /// network of machines that this host's own addresses do not reach.
    pub async fn build(config: Config, listeners: Vec<TcpListener>) -> Result<Server, Error> {
        let mut config = config;
        let (encrypted, reloads) = sealed(&mut config)?;
        let door = Arc::new(tls::FrontDoor::open(
            config.certificate,
            &config.access.authentication,
        )?);
        let admission = &config.access.admission;
        let plugins =
            admission::AdmissionSettings::from_flags(&admission.enable, &admission.disable)
                .map_err(Error::Admission)?;
        let authorization = &config.access.authorization;
        let authorizer = authorization::Authorizer::open(authorization, &config.egress)
            .map_err(Error::Authorization)?;
        let authentication = config.access.authentication.clone();
        let authenticator = Arc::new(authentication::Authenticator::open(authentication)?);
        let gate = Arc::new(fairness::Gate::new(app::SEATS));
        let policies: Arc<admission::Policies> = Arc::default();
        let webhooks: Arc<admission::Webhooks> = Arc::default();
        let aggregator = Arc::new(Aggregator::new(config.access.proxy_client.clone()));
        let followers = |resource: &Resource| {
            let of_gate = seats::follower(&gate, resource);
            of_gate
                .into_iter()
                .chain(authorizer.follower(resource))
                .chain(policies.follower(resource))
                .chain(webhooks.follower(resource))
                .chain(aggregator.follower(resource))
                .collect()
        };
        let cache = Arc::new(cache::Cache::load(&*config.store, &followers).await?);
        let stop = signal::Sender::new(false);
        let ready = signal::Sender::new(false);
        let auditor = config.audit.as_ref().map(|audit| {
            let auditor = auditing::Auditor::open(audit, &config.egress);
            auditor.map(Arc::new).map_err(Error::Audit)
        });
        let auditor = auditor.transpose()?;
        let outbound = Arc::new(outbound::Outbound::open(config.outbound, config.egress)?);
        let api = Arc::new_cyclic(|this| api::Api {
            this: this.clone(),
            store: config.store,
            encryption: encrypted.clone(),
            cache,
            registry: registry::Registry::new(config.advertise.to_string()),
            services: services::Services::new(config.service_cidrs),
            components: config.components,
            meters: meters::Meters::default(),
            clock: config.clock,
            event_ttl: config.event_ttl,
            admission: admission::Chain::new(&plugins),
            policies: Arc::clone(&policies),
            webhooks: Arc::clone(&webhooks),
            aggregator: Arc::clone(&aggregator),
            authenticator,
            authorizer,
            outbound,
            shutdown: stop.subscribe(),
        });
        let app = Arc::new(app::App::new(
            api,
            &config.measured,
            config.access,
            config.advertise,
            gate,
            auditor,
            ready.subscribe(),
        ));
        let trust = signal::Sender::new(());
        let reload = reloadable(&door, &app, &trust, encrypted.filter(|_| reloads));
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
            guests: Guests::new(config.connections),
        })
    }

    /// Reads changed certificates, keys and CAs again without waiting for the next look at them.
    pub fn reload(&self) -> Arc<Reload> {
        Arc::clone(&self.reload)
    }

    /// The way in for roles of this process.
    pub fn inside(&self) -> Inside {
        Inside::of(&self.app)
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
        let mut definitions = definitions::Follower::new(Arc::clone(&api));
        definitions.begin().await;
        let definitions = tokio::spawn(definitions.run());
        let schemas = tokio::spawn(flow_schemas::run(Arc::clone(&api)));
        let migrations = tokio::spawn(migration::run(Arc::clone(&api)));
        let policies = tokio::spawn(policy_status::run(Arc::clone(&api)));
        let behind = tokio::spawn(Watcher::new(Arc::clone(&api)).run());
        let compact = tokio::spawn(compaction::run(Arc::clone(&api), self.compaction));
        let republish = tokio::spawn(republish(Arc::clone(&self.app), self.trust.subscribe()));
        let look = tokio::spawn(reload::run(Arc::clone(&self.reload)));
        let stop = self.stop.subscribe();
        let listening: Vec<_> = self
            .listeners
            .iter()
            .filter_map(|l| l.local_addr().ok())
            .collect();
        let serve = tokio::spawn(server::serve(
            Arc::clone(&self.app),
            self.listeners,
            self.door,
            self.callers,
            self.guests,
            stop,
        ));
        let booted = boot::run(&api, self.advertise, &self.app.access.authentication)
            .await
            .map_err(|e| Error::Boot(e.message));
        if booted.is_ok() {
            self.ready.send_replace(true);
            // Whoever asked may have lost interest; the server serves all the same.
            let _ = told.send(());
            tracing::info!(address = %self.advertise, ?listening, "ready");
            shutdown.await;
        }
        self.stop.send_replace(true);
        if let Err(error) = serve.await {
            tracing::error!(%error, "the server task failed");
        }
        if let Some(auditor) = &self.app.auditor {
            auditor.close().await;
        }
        look.abort();
        republish.abort();
        compact.abort();
        behind.abort();
        definitions.abort();
        schemas.abort();
        policies.abort();
        migrations.abort();
        follow.abort();
        booted
    }
}

// Puts encryption between the server and its store; says whether its file is read again when it changes.
fn sealed(config: &mut Config) -> Result<(Option<Arc<encryption::Encrypted>>, bool), Error> {
    let Some(settings) = config.encryption.take() else {
        return Ok((None, false));
    };
    let (store, naming) = (Arc::clone(&config.store), reading::naming());
    let encrypted = encryption::Encrypted::new(store, settings.file, naming);
    let encrypted = Arc::new(encrypted.map_err(Error::Encryption)?);
    config.store = Arc::clone(&encrypted) as Arc<dyn Store>;
    Ok((Some(encrypted), settings.reloads))
}

fn reloadable(
    door: &Arc<tls::FrontDoor>,
    app: &Arc<app::App>,
    trust: &signal::Sender<()>,
    encrypted: Option<Arc<encryption::Encrypted>>,
) -> Arc<Reload> {
    let reload = Reload::default();
    if let Some(encrypted) = encrypted {
        let files = vec![encrypted.file().to_owned()];
        reload.add("the encryption of objects", files, move || {
            encrypted.reload()
        });
    }
    let front = Arc::clone(door);
    reload.add("the serving certificate", door.files(), move || {
        front.reload().map_err(|e| e.to_string())
    });
    app.api.authenticator.reload(&reload);
    app.api.authorizer.reload(&reload);
    app.api.outbound.reload(&reload);
    app.api.aggregator.reload(&reload);
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
