//! What the API server reaches others with: the way out, and the keys it shows kubelets.

mod idle;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::connection::reload::Reload;
use crate::connection::tls;
use crate::outward::egress::{Connection, Egress, Traffic, join_host_port};
use crate::settings::Outbound as Settings;
pub(crate) use idle::{Idle, Payload};

/// Go's default.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom the other side must prove to be, and who we are to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// A kubelet of the CA we were told of, if we were.
    Kubelet,
    /// A kubelet whose certificate the client does not want checked.
    UncheckedKubelet,
    /// Whoever is there; we show no certificate.
    Anybody,
    /// A server of its own name, with keys for it alone.
    Server(Arc<Server>),
}

/// A server that is known by another name than where it is.
#[derive(Debug)]
pub(crate) struct Server {
    /// The name of its certificate.
    pub(crate) name: String,
    /// Whom to believe, and who we are.
    pub(crate) config: Arc<ClientConfig>,
}

// Connections are only used again for the same keys.
impl PartialEq for Server {
    fn eq(&self, other: &Server) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.config, &other.config)
    }
}

impl Eq for Server {}

impl std::hash::Hash for Server {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// TLS and whom to expect; plain where absent.
    pub(crate) tls: Option<Trust>,
    /// Name or address, without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

impl Place {
    /// `host:port`, as a URL has it.
    pub(crate) fn authority(&self) -> String {
        join_host_port(&self.host, self.port)
    }

    /// `https` or `http`.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }
}

/// The way out with our keys.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Settings as given.
    pub(crate) settings: Settings,
    /// The way.
    pub(crate) egress: Arc<Egress>,
    /// Connections for the next request.
    pub(crate) idle: Arc<Idle>,
    keys: ArcSwap<Keys>,
}

#[derive(Debug)]
struct Keys {
    kubelet: Arc<ClientConfig>,
    unchecked_kubelet: Arc<ClientConfig>,
    anybody: Arc<ClientConfig>,
}

impl Outbound {
    pub(crate) fn open(settings: Settings, egress: Arc<Egress>) -> Result<Outbound, crate::Error> {
        let keys = ArcSwap::from_pointee(Keys::read(&settings)?);
        Ok(Outbound {
            settings,
            egress,
            idle: Arc::default(),
            keys,
        })
    }

    /// Keys are read again when their files change; connections that exist keep theirs.
    pub(crate) fn reload(self: &Arc<Self>, reload: &Reload) {
        let own = Arc::clone(self);
        let pair = self.settings.kubelet_client.iter();
        let files: Vec<PathBuf> = pair
            .flat_map(|pair| [pair.certificate.clone(), pair.key.clone()])
            .chain(self.settings.kubelet_authority_file.clone())
            .collect();
        reload.add("the keys towards kubelets", files, move || {
            let keys = Keys::read(&own.settings).map_err(|e| e.to_string())?;
            own.keys.store(Arc::new(keys));
            Ok(())
        });
    }

    /// A connection that is ready for a request; says why not in Go's words.
    pub(crate) async fn connect(&self, place: &Place) -> Result<Box<dyn Connection>, String> {
        let there = (&*place.host, place.port);
        let stream = self.egress.connect(Traffic::Cluster, there).await;
        let stream = stream.map_err(|e| e.to_string())?;
        let (name, config) = match &place.tls {
            None => return Ok(stream),
            Some(Trust::Server(server)) => (&server.name, Arc::clone(&server.config)),
            Some(trust) => (&place.host, self.keys.load().of(trust)),
        };
        let name = ServerName::try_from(name.clone()).map_err(|e| e.to_string())?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(format!("tls: {error}")),
            Err(_) => Err("net/http: TLS handshake timeout".into()),
        }
    }
}

impl Keys {
    fn read(settings: &Settings) -> Result<Keys, tls::Error> {
        let pair = settings.kubelet_client.as_ref();
        let own = pair.map(|pair| (&*pair.certificate, &*pair.key));
        let unchecked = Arc::new(tls::unverified_client(own)?);
        Ok(Keys {
            kubelet: match &settings.kubelet_authority_file {
                Some(file) => Arc::new(tls::client(Some(file), own)?),
                None => Arc::clone(&unchecked),
            },
            unchecked_kubelet: unchecked,
            anybody: Arc::new(tls::unverified_client(None)?),
        })
    }

    fn of(&self, trust: &Trust) -> Arc<ClientConfig> {
        Arc::clone(match trust {
            Trust::Kubelet => &self.kubelet,
            Trust::UncheckedKubelet => &self.unchecked_kubelet,
            Trust::Anybody => &self.anybody,
            Trust::Server(server) => &server.config,
        })
    }
}
