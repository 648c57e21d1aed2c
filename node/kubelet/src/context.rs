//! What the parts of a running kubelet share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use client_runtime::{Actor, Cache, Recorder, Severity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};

use tokio::sync::watch;

use crate::cgroups::Cgroups;
use crate::config::Settings;
use crate::cri::Runtime;
use crate::eviction::Pressure;
use crate::images::Images;
use crate::machine::Machine;
use crate::make::dns::Resolvers;
use crate::objects::Objects;
use crate::pods::Pods;
use crate::resize::ledger::Ledger;
use crate::spec;
use crate::statuses::Statuses;
use crate::users::Users;
use crate::volumes::Mounts;
use crate::volumes::csi::InUse;

/// Everything that pod workers use.
pub struct Context {
    /// What this kubelet was told.
    pub settings: Settings,
    /// What runs containers.
    pub runtime: Arc<dyn Runtime>,
    /// Who this node is at the API server.
    pub actor: Actor,
    /// Where events go.
    pub events: Recorder,
    /// What mounts volumes.
    pub mounts: Arc<dyn Mounts>,
    /// Where config maps and secrets come from.
    pub objects: Arc<dyn Objects>,
    /// What others read of the pods.
    pub pods: Arc<Pods>,
    /// The statuses to write.
    pub statuses: Statuses,
    /// The cluster's services, for environments.
    pub services: Cache<Service>,
    /// This machine.
    pub machine: Machine,
    /// The pods' cgroups.
    pub cgroups: Cgroups,
    /// Images on this node.
    pub images: Images,
    /// How names are resolved.
    pub resolvers: Resolvers,
    /// The node's addresses.
    pub host_ips: RwLock<Vec<String>>,
    /// Whether the runtime has a network for pods.
    pub network_ready: AtomicBool,
    /// What the node runs short of.
    pub pressure: Pressure,
    /// The mirrors of static pods, by the static pod's UID.
    pub mirrors: RwLock<BTreeMap<String, Arc<Pod>>>,
    /// What pods were granted.
    pub allocated: Ledger,
    /// What containers were given.
    pub actuated: Ledger,
    /// The volumes that the node says it uses.
    pub in_use: Arc<InUse>,
    /// Whether the API server has an object for this node's CSI drivers.
    pub csi_ready: AtomicBool,
    /// The users of pods that have their own.
    pub users: Users,
    /// Whether the machine goes down.
    pub shutting_down: watch::Sender<bool>,
    /// When this kubelet started.
    pub started: Timestamp,
}

impl Context {
    /// The node's name.
    pub fn node(&self) -> &str {
        &self.settings.node_name
    }

    /// A pod's directory.
    pub fn pod_directory(&self, uid: &str) -> PathBuf {
        self.settings.root_dir.join("pods").join(uid)
    }

    /// Where a pod's containers write their output.
    pub fn log_directory(&self, pod: &Pod) -> PathBuf {
        let name = format!(
            "{}_{}_{}",
            spec::namespace(pod),
            spec::name(pod),
            spec::uid(pod)
        );
        PathBuf::from(&self.settings.config.pod_logs_dir).join(name)
    }

    /// The node's addresses.
    pub fn host_ips(&self) -> Vec<String> {
        self.host_ips
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// Notes a static pod's mirror; whether it is another one than before.
    pub fn set_mirror(&self, uid: &str, mirror: Arc<Pod>) -> bool {
        let mut mirrors = self
            .mirrors
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let new = mirror.metadata.uid.clone();
        let old = mirrors.insert(uid.to_owned(), mirror);
        old.is_none_or(|old| old.metadata.uid != new)
    }

    /// The object that a pod's status is written to: of a static pod its mirror, if it has one.
    pub fn object(&self, pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        if !crate::statics::is_static(pod) {
            return Some(Arc::clone(pod));
        }
        let mirrors = self
            .mirrors
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        mirrors.get(spec::uid(pod)).cloned()
    }

    /// Whether pods that need a network of their own can have one.
    pub fn network_is_ready(&self) -> bool {
        self.network_ready.load(Ordering::Relaxed)
    }

    /// What pods may ask for on this node.
    pub fn allocatable(&self) -> BTreeMap<String, i64> {
        self.machine.allocatable(&self.settings.config)
    }

    /// Says something about a pod.
    pub fn say(&self, pod: &Pod, severity: Severity, reason: &str, message: impl Into<String>) {
        self.events
            .event(reference(pod, None), severity, reason, message);
    }

    /// Says something about a container; `place` is as in `spec.containers{c}`.
    pub fn say_of(
        &self,
        pod: &Pod,
        place: &str,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.events
            .event(reference(pod, Some(place)), severity, reason, message);
    }
}

fn reference(pod: &Pod, place: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: place.map(str::to_owned),
    }
}
