//! The pods of this node: who gets a worker, who is refused, who is left over from before.

mod resizes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client_runtime::{Cache, ObjectKey, Severity};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::above::Above;
use crate::admission;
use crate::context::Context;
use crate::cri;
use crate::eviction::Kill;
use crate::resize::{self, PodResources};
use crate::seen;
use crate::spec;
use crate::statics;
use crate::status::{self, Ending};
use crate::worker::{self, Handle, Order};

/// How often everything is gone through without a reason.
const HOUSEKEEPING: Duration = Duration::from_secs(10);

struct Entry {
    handle: Handle,
    /// As its source has it: what it asks for, not what it was granted.
    pod: Arc<Pod>,
}

/// What follows the pods.
pub(crate) struct Manager {
    ctx: Arc<Context>,
    pods: Cache<Pod>,
    node: Cache<Node>,
    workers: BTreeMap<String, Entry>,
    refused: BTreeSet<String>,
    statics: BTreeMap<String, Arc<Pod>>,
    /// Pods that ask for other resources and wait, since when.
    pending: BTreeMap<String, Option<jiff::Timestamp>>,
    /// The workers; each ends with its pod's UID.
    tasks: JoinSet<String>,
    above: Above,
}

impl Manager {
    /// For the pods of these caches.
    pub(crate) fn new(ctx: Arc<Context>, pods: Cache<Pod>, node: Cache<Node>) -> Self {
        Self {
            ctx,
            pods,
            node,
            workers: BTreeMap::new(),
            refused: BTreeSet::new(),
            statics: BTreeMap::new(),
            pending: BTreeMap::new(),
            tasks: JoinSet::new(),
            above: Above::default(),
        }
    }

    /// Follows them for ever; `changed` names pods to which something happened in the runtime.
    pub(crate) async fn run(
        mut self,
        mut changed: mpsc::Receiver<String>,
        mut kills: mpsc::Receiver<Kill>,
    ) {
        let news = Arc::new(Notify::new());
        let told = Arc::clone(&news);
        self.pods.on_change(move |_| told.notify_one());
        self.pods.completion().reached().await;
        self.node.completion().reached().await;
        self.read_statics();
        self.reconcile();
        self.adopt_leftovers().await;
        self.keep_above().await;
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        loop {
            tokio::select! {
                () = news.notified() => self.reconcile(),
                Some(uid) = changed.recv() => {
                    if let Some(entry) = self.workers.get(&uid) {
                        entry.handle.news.notify_one();
                    }
                }
                Some((uid, ending, seconds)) = kills.recv() => {
                    if let Some(entry) = self.workers.get(&uid) {
                        entry.handle.orders.send_modify(|order| order.kill = Some((Some(ending), Some(seconds))));
                    }
                }
                Some(Ok(uid)) = self.tasks.join_next() => {
                    self.workers.remove(&uid);
                    self.reconcile();
                }
                _ = housekeeping.tick() => self.keep_house().await,
            }
        }
    }

    /// Workers for pods that are there, orders for those that changed, an end for those that are gone.
    fn reconcile(&mut self) {
        let mut wanted: Vec<Arc<Pod>> = self.pods.all().into_iter().map(|(_, pod)| pod).collect();
        wanted.retain(|pod| !statics::is_mirror(pod));
        wanted.extend(self.statics.values().cloned());
        wanted.sort_by(|a, b| {
            a.metadata
                .creation_timestamp
                .cmp(&b.metadata.creation_timestamp)
        });
        let uids: BTreeSet<&str> = wanted.iter().map(|pod| spec::uid(pod)).collect();
        for (uid, entry) in &self.workers {
            if !uids.contains(uid.as_str()) {
                entry
                    .handle
                    .orders
                    .send_if_modified(|order| !std::mem::replace(&mut order.gone, true));
            }
        }
        self.refused.retain(|uid| uids.contains(uid.as_str()));
        self.ctx.allocated.keep_only(&uids);
        self.ctx.actuated.keep_only(&uids);
        for pod in &wanted {
            let Some(entry) = self.workers.get(spec::uid(pod)) else {
                self.begin(pod);
                continue;
            };
            if Arc::ptr_eq(&entry.pod, pod) {
                continue;
            }
            let granted = self.granted(pod);
            let entry = self.workers.get_mut(spec::uid(pod));
            if entry.is_some_and(|entry| update(entry, pod, granted)) {
                self.note_resize(spec::uid(pod));
            }
        }
        self.grant_resizes();
    }

    fn begin(&mut self, pod: &Arc<Pod>) {
        let uid = spec::uid(pod).to_owned();
        let deleting = pod.metadata.deletion_timestamp.is_some();
        if self.refused.contains(&uid) && !deleting {
            return;
        }
        if !deleting && !is_over(pod) {
            let known = pod.status.as_ref().is_some_and(|s| s.start_time.is_some());
            // What runs already was taken before.
            let granted = self.granted(pod);
            if let Some(ending) = (!known).then(|| self.refusal(&granted)).flatten() {
                self.refuse(pod, ending);
                return;
            }
            let resources = PodResources::of(&granted);
            self.ctx.allocated.set(&uid, resources);
        }
        let order = Order {
            pod: self.granted(pod),
            gone: false,
            kill: None,
            pending: resize::Condition::told(pod, resize::PENDING),
        };
        self.start(uid.clone(), Arc::clone(pod), order);
        self.note_resize(&uid);
    }

    fn start(&mut self, uid: String, pod: Arc<Pod>, order: Order) {
        let (handle, work) = worker::start(Arc::clone(&self.ctx), order);
        self.workers.insert(uid.clone(), Entry { handle, pod });
        self.tasks.spawn(async move {
            work.await;
            uid
        });
    }

    /// The pods that are counted, each with what it was granted.
    fn active(&self) -> Vec<Arc<Pod>> {
        let over = |pod: &Pod| {
            let status = self.ctx.statuses.get(spec::uid(pod));
            is_over(pod)
                || status
                    .is_some_and(|s| matches!(s.phase.as_deref(), Some("Failed" | "Succeeded")))
        };
        let entries = self.workers.values().filter(|entry| !over(&entry.pod));
        entries.map(|entry| self.granted(&entry.pod)).collect()
    }

    fn refusal(&self, pod: &Pod) -> Option<Ending> {
        let active = self.active();
        let others: Vec<&Pod> = active.iter().map(|pod| &**pod).collect();
        let node = self.node.get(&ObjectKey::new("", self.ctx.node()));
        let facts = admission::Facts {
            node: node.as_deref(),
            allocatable: &self.ctx.allocatable(),
            others: &others,
            sysctls: &self.ctx.settings.config.allowed_unsafe_sysctls,
            shutting_down: *self.ctx.shutting_down.borrow(),
        };
        admission::refuse(pod, &facts)
    }

    fn refuse(&mut self, pod: &Arc<Pod>, ending: Ending) {
        self.refused.insert(spec::uid(pod).to_owned());
        let text = ending.message.trim_start_matches("Pod was rejected: ");
        self.ctx.say(pod, Severity::Warning, &ending.reason, text);
        let status = PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(ending.reason),
            message: Some(ending.message),
            qos_class: Some(crate::resources::qos(pod).to_string()),
            start_time: Some(Time(status::seconds(jiff::Timestamp::now()))),
            observed_generation: pod.metadata.generation,
            ..PodStatus::default()
        };
        self.ctx.statuses.set(pod, status);
    }

    /// Pods that the runtime has and nobody wants any more.
    async fn adopt_leftovers(&mut self) {
        let Ok(answer) = self
            .ctx
            .runtime
            .list_pod_sandbox(cri::ListPodSandboxRequest::default())
            .await
        else {
            return;
        };
        for sandbox in answer.items {
            let label = |key: &str| sandbox.labels.get(key).cloned().unwrap_or_default();
            let uid = label(seen::POD_UID);
            if uid.is_empty() || self.workers.contains_key(&uid) {
                continue;
            }
            let metadata = ObjectMeta {
                name: Some(label(seen::POD_NAME)),
                namespace: Some(label(seen::POD_NAMESPACE)),
                uid: Some(uid.clone()),
                ..ObjectMeta::default()
            };
            let pod = Arc::new(Pod {
                metadata,
                ..Pod::default()
            });
            tracing::info!(pod = %spec::full_name(&pod), "a pod that is gone still runs: it is stopped");
            let order = Order {
                pod,
                gone: true,
                kill: Some((None, Some(1))),
                pending: None,
            };
            self.start(uid, Arc::clone(&order.pod), order);
        }
    }

    /// Reads the files of static pods; whether they have changed.
    fn read_statics(&mut self) -> bool {
        let path = &self.ctx.settings.config.static_pod_path;
        if path.is_empty() {
            return false;
        }
        let found = statics::read(std::path::Path::new(path), self.ctx.node());
        let known = |uid: &String| self.statics.contains_key(uid);
        if found.len() == self.statics.len() && found.keys().all(known) {
            return false;
        }
        // A pod that is there stays as it was first seen.
        let before = std::mem::take(&mut self.statics);
        let merged = found.into_iter().map(|(uid, pod)| {
            let pod = before.get(&uid).cloned().unwrap_or(pod);
            (uid, pod)
        });
        self.statics = merged.collect();
        true
    }

    /// Every static pod has a mirror that shows it; every mirror shows a pod.
    async fn keep_mirrors(&mut self) {
        let all = self.pods.all();
        let mirrors = || {
            all.iter()
                .map(|(_, pod)| pod)
                .filter(|pod| statics::is_mirror(pod))
        };
        let of = |pod: &Pod| {
            mirrors().find(|m| {
                spec::name(m) == spec::name(pod) && spec::namespace(m) == spec::namespace(pod)
            })
        };
        for (uid, pod) in &self.statics {
            match of(pod) {
                Some(mirror)
                    if statics::shows(mirror, pod)
                        && mirror.metadata.deletion_timestamp.is_none() =>
                {
                    if self.ctx.set_mirror(uid, Arc::clone(mirror))
                        && let Some(entry) = self.workers.get(uid)
                    {
                        entry.handle.news.notify_one();
                    }
                }
                Some(mirror) => self.remove_mirror(mirror).await,
                None => self.make_mirror(pod).await,
            }
        }
        for mirror in mirrors() {
            let shown = self.statics.values().any(|pod| {
                spec::name(mirror) == spec::name(pod)
                    && spec::namespace(mirror) == spec::namespace(pod)
            });
            if !shown {
                self.remove_mirror(mirror).await;
            }
        }
    }

    async fn make_mirror(&self, pod: &Pod) {
        let Some(node) = self.node.get(&ObjectKey::new("", self.ctx.node())) else {
            return;
        };
        let uid = node.metadata.uid.clone().unwrap_or_default();
        let mirror = statics::mirror(pod, self.ctx.node(), &uid);
        if let Err(error) = self
            .ctx
            .actor
            .create::<Pod>(spec::namespace(pod), &mirror)
            .await
        {
            tracing::debug!(pod = spec::name(pod), %error, "a mirror pod cannot be made yet");
        }
    }

    async fn remove_mirror(&self, mirror: &Pod) {
        let params = kube::api::DeleteParams {
            grace_period_seconds: Some(0),
            ..Default::default()
        };
        let (namespace, name, uid) = (
            spec::namespace(mirror),
            spec::name(mirror),
            spec::uid(mirror),
        );
        if let Err(error) = self
            .ctx
            .actor
            .delete_with::<Pod>(namespace, name, Some(uid), params)
            .await
        {
            tracing::debug!(pod = name, %error, "a mirror pod cannot be removed yet");
        }
    }

    async fn keep_above(&mut self) {
        let entries = self.workers.values();
        let pods: Vec<Arc<Pod>> = entries.map(|entry| self.granted(&entry.pod)).collect();
        let pods = pods.iter().map(|pod| &**pod);
        self.above.keep(&self.ctx, pods).await;
    }

    /// Repairs what others wrote over, and looks for what was left behind.
    async fn keep_house(&mut self) {
        self.keep_above().await;
        for (_, pod) in self.pods.all() {
            self.ctx.statuses.repair(&pod);
        }
        if self.read_statics() {
            self.reconcile();
        }
        self.grant_resizes();
        self.keep_mirrors().await;
        self.adopt_leftovers().await;
        for uid in self.ctx.cgroups.uids() {
            if !self.workers.contains_key(&uid) {
                self.ctx.cgroups.remove(&uid).await;
            }
        }
    }
}

fn is_over(pod: &Pod) -> bool {
    matches!(
        pod.status.as_ref().and_then(|s| s.phase.as_deref()),
        Some("Failed" | "Succeeded")
    )
}

/// Hands a newer pod to its worker, with what it was granted; that wakes it only if something in it is for the worker.
/// Whether its spec has changed.
fn update(entry: &mut Entry, pod: &Arc<Pod>, granted: Arc<Pod>) -> bool {
    let concerns = |pod: &Pod| {
        let meta = &pod.metadata;
        let conditions = pod
            .status
            .as_ref()
            .and_then(|s| s.conditions.clone())
            .unwrap_or_default();
        let foreign: Vec<_> = conditions
            .into_iter()
            .filter(|c| !status::is_own(&c.type_))
            .collect();
        (
            meta.deletion_timestamp.clone(),
            meta.deletion_grace_period_seconds,
            meta.labels.clone(),
            meta.annotations.clone(),
            foreign,
            is_over(pod),
        )
    };
    let other = entry.pod.spec != pod.spec;
    let news = other || concerns(&entry.pod) != concerns(pod);
    entry.pod = Arc::clone(pod);
    entry.handle.orders.send_if_modified(|order| {
        order.pod = granted;
        news
    });
    other
}
