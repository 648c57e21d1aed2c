//! What a role is told of the API server, and of others like itself.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use rustls_pki_types::CertificateDer;

/// How the API server is reached.
#[derive(Debug, Clone)]
pub enum Connection {
    /// As the service account of the pod that this program runs in.
    InCluster,
    /// As a kubeconfig's current context says.
    Kubeconfig(PathBuf),
    /// Within this process, as the holder of a client certificate.
    Inside {
        /// The API server.
        server: Arc<dyn Inside>,
        /// The certificate, PEM.
        cert: PathBuf,
    },
    /// By address, with a client certificate.
    Certificate {
        /// `https://host:port`.
        server: String,
        /// The CA of the server's certificate, PEM.
        ca: PathBuf,
        /// The client certificate and its key, PEM.
        client: KeyPairFiles,
    },
}

/// An API server of this process.
pub trait Inside: Debug + Send + Sync {
    /// What answers a caller that holds these certificates; one without any brings tokens.
    fn caller(&self, chain: Vec<CertificateDer<'static>>) -> Answers;
}

/// Answers requests.
pub type Answers = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Said>> + Send + Sync>;

/// An answer's body.
pub type Said = UnsyncBoxBody<Bytes, hyper::Error>;

/// A certificate and its key on disk, PEM.
#[derive(Debug, Clone)]
pub struct KeyPairFiles {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How several of one role agree on one of them.
#[derive(Debug, Clone)]
pub struct LeaderElection {
    /// Who we are among the candidates; unique.
    pub identity: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// How long a leader that stopped renewing is still believed.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How often a candidate tries.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// Upstream's periods, for the Lease that upstream's role of this name takes.
    pub fn new(name: &str, identity: String) -> LeaderElection {
        LeaderElection {
            identity,
            namespace: "kube-system".into(),
            name: name.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}
