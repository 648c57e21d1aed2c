//! The pods of this node as everything but the pod workers reads them: by identity, with the containers that the
//! runtime has for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use k8s_openapi::api::core::v1::Pod;

use crate::cri::ContainerState;

/// One container that the runtime has.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerRef {
    /// The runtime's id, without `containerd://`.
    pub id: String,
    /// What it does.
    pub state: ContainerState,
    /// How often a container of this name was started before it.
    pub attempt: u32,
    /// Where the runtime writes its output, as an absolute path.
    pub log_path: PathBuf,
    /// When it was made, in nanoseconds since 1970.
    pub created_at: i64,
}

/// One pod and what the runtime has for it.
#[derive(Clone, Debug)]
pub struct KnownPod {
    /// The pod; its status is the newest that this node has worked out.
    pub pod: Arc<Pod>,
    /// The newest sandbox, ready or not.
    pub sandbox_id: Option<String>,
    /// Containers by name, newest first.
    pub containers: BTreeMap<String, Vec<ContainerRef>>,
}

impl KnownPod {
    /// The newest container of a name.
    pub fn container(&self, name: &str) -> Option<&ContainerRef> {
        self.containers.get(name)?.first()
    }

    /// The one before it, for `kubectl logs --previous`.
    pub fn previous(&self, name: &str) -> Option<&ContainerRef> {
        self.containers.get(name)?.get(1)
    }
}

/// All pods of this node by UID. Cheap to share; readers get copies of `Arc`s, never a lock.
#[derive(Debug, Default)]
pub struct Pods(RwLock<BTreeMap<String, Arc<KnownPod>>>);

impl Pods {
    /// Every pod, in the order of UIDs.
    pub fn all(&self) -> Vec<Arc<KnownPod>> {
        self.read().values().cloned().collect()
    }

    /// The pod with a UID. A static pod is found by its own UID and by that of its mirror.
    pub fn by_uid(&self, uid: &str) -> Option<Arc<KnownPod>> {
        self.read().get(uid).cloned()
    }

    /// The pod with a name; of several (one being deleted, its successor) the one created last.
    pub fn by_name(&self, namespace: &str, name: &str) -> Option<Arc<KnownPod>> {
        let matches = |known: &&Arc<KnownPod>| {
            let meta = &known.pod.metadata;
            meta.name.as_deref() == Some(name) && meta.namespace.as_deref() == Some(namespace)
        };
        let pods = self.read();
        let created = |known: &&Arc<KnownPod>| known.pod.metadata.creation_timestamp.clone();
        pods.values().filter(matches).max_by_key(created).cloned()
    }

    /// Adds a pod or puts a newer state in its place.
    pub fn put(&self, uid: &str, known: KnownPod) {
        self.write().insert(uid.to_owned(), Arc::new(known));
    }

    /// Forgets a pod.
    pub fn remove(&self, uid: &str) {
        self.write().remove(uid);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<String, Arc<KnownPod>>> {
        self.0
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<String, Arc<KnownPod>>> {
        self.0
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
