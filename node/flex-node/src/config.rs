//! Upstream's configuration file, all eras of it, as one typed model. Pure.
//!
//! The file is JSON. `schema` is the table of every field that is understood; what is in the file and not in the table is
//! warned about, with the name that was probably meant. `read` builds the model, `rules` says everything that is wrong
//! with it, each with its remedy.

mod read;
pub(crate) mod rules;
mod schema;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use read::KUBELET_URL;
pub use read::{Accepted, read};
pub use schema::known;

/// What is wrong with a field, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The field.
    pub path: String,
    /// What is wrong.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    fn new(path: &str, cause: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem {
            path: path.to_owned(),
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; hint: {}", self.path, self.cause, self.remedy)
    }
}

/// Text that no debug output shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hidden(pub String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which Azure, and what for.
    pub azure: Azure,
    /// How the kubelet proves who it is.
    pub join: Join,
    /// How the agent itself talks to Azure, where it has to.
    pub credentials: Option<Credentials>,
    /// What the node is to be.
    pub node: Node,
    /// Which programs.
    pub components: Components,
    /// The agent itself.
    pub agent: Agent,
}

/// Which Azure, and what for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Azure {
    /// The subscription of the Arc machine and of role definitions.
    pub subscription: String,
    /// The tenant.
    pub tenant: String,
    /// The cloud's name.
    pub cloud: String,
    /// A Resource Manager that is none of the public ones.
    pub manager: String,
    /// Authorities that vouch for it, PEM; the machine's own store where empty. An addition of ours.
    pub authorities: String,
    /// The cluster to join.
    pub cluster: Option<ClusterId>,
    /// The pool whose Machine resource says which version the node is to run; none where empty.
    pub pool: String,
}

/// A managed cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterId {
    /// The whole id, as written.
    pub id: String,
    /// Its subscription.
    pub subscription: String,
    /// Its resource group.
    pub group: String,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub location: String,
}

/// How the kubelet proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// With a bootstrap token it asks for a certificate, and is `system:node:<name>` from then on.
    BootstrapToken(Hidden),
    /// As the machine's Arc identity.
    Arc(Arc),
    /// As the identity of an Azure machine; a client id chooses one of several.
    ManagedIdentity(String),
    /// As a service principal.
    ServicePrincipal,
}

impl Join {
    /// For messages and for status.
    pub fn name(&self) -> &'static str {
        match self {
            Join::BootstrapToken(_) => "bootstrap token",
            Join::Arc(_) => "Arc",
            Join::ManagedIdentity(_) => "managed identity",
            Join::ServicePrincipal => "service principal",
        }
    }
}

/// The machine's resource in Azure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arc {
    /// Its name; the host's where empty.
    pub machine: String,
    /// Its resource group.
    pub group: String,
    /// Its location.
    pub location: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Whether roles are assigned, or waited for.
    pub assigns_roles: bool,
}

/// How the agent itself talks to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A secret.
    Secret {
        /// The tenant.
        tenant: String,
        /// The application.
        client: String,
        /// Its secret.
        secret: Hidden,
    },
    /// A certificate and its key, PEM.
    Certificate {
        /// The tenant.
        tenant: String,
        /// The application.
        client: String,
        /// The file.
        file: String,
    },
    /// A token of another issuer, exchanged.
    Federated {
        /// The tenant.
        tenant: String,
        /// The application.
        client: String,
        /// The file; read for each exchange.
        file: String,
    },
    /// The machine's own identity; a client id chooses one of several.
    Managed(String),
}

/// What the node is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name; the host's where empty.
    pub name: String,
    /// How many pods it takes.
    pub max_pods: i64,
    /// Its labels, without those that are always there.
    pub labels: BTreeMap<String, String>,
    /// `key=value:Effect`.
    pub taints: Vec<String>,
    /// Set aside for Kubernetes.
    pub kube_reserved: BTreeMap<String, String>,
    /// When pods are evicted.
    pub eviction_hard: BTreeMap<String, String>,
    /// Per cent of the disk at which images are collected.
    pub image_gc_high: i64,
    /// Per cent down to which they are.
    pub image_gc_low: i64,
    /// The kubelet's `--v`.
    pub verbosity: i64,
    /// Its address, where the kubelet is not to choose.
    pub node_ip: String,
    /// The cluster's DNS service.
    pub dns: String,
    /// Whether the cluster signs what it serves with: where it does not, API servers that insist on it reach no pod here.
    pub signed_serving: bool,
    /// The API server, `https://…`; asked of Azure where empty.
    pub server: String,
    /// Its authority, PEM; asked of Azure where empty.
    pub authority: String,
}

/// Which programs, in which versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    /// The kubelet.
    pub kubelet: Kubelet,
    /// containerd; what is installed counts if it is at least this.
    pub containerd: String,
    /// runc; the same.
    pub runc: String,
    /// CNI plugins; fetched where none are installed.
    pub cni: String,
    /// The image of every pod's sandbox.
    pub pause_image: String,
    /// Where containerd's metrics are.
    pub metrics_address: String,
    /// Programs whose version is that one and no newer one: an upgrade chose it.
    pub chosen: Vec<&'static str>,
    /// Where archives are fetched from, by program; the public places where empty. An addition of ours.
    pub mirrors: BTreeMap<String, String>,
}

/// Which kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kubelet {
    /// This program's own.
    Own,
    /// Upstream's.
    Upstream {
        /// Such as `1.32.7`.
        version: String,
        /// Where it is fetched from, with `%s` for version and architecture.
        url: String,
    },
}

/// The agent itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Whether it mends what has drifted.
    pub remediates: bool,
    /// Where it tells Prometheus how the node is; nowhere where empty. An addition of ours.
    pub metrics: String,
}
