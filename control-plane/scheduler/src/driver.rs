//! The shell: watches feed the brain, its decisions become requests, many at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use client_runtime::{Actor, Completion, Recorder, Runtime, Severity, SyncError};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, ObjectReference, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::Patch;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::Config;
use crate::brain::{Action, Brain, Report, Victim};
use crate::metrics;
use crate::placement::Waiting;
use crate::preemption::Budget;
use crate::queue::Moment;
use crate::selector::Selector;
use crate::ties::OWNERS;

/// How many requests are under way at once.
const AT_ONCE: usize = 128;
/// How many decisions are made before others get a turn.
const BATCH: usize = 64;
/// How often pods that were left alone for long are looked for (upstream's `flushUnschedulablePodsLeftover`).
const LOOK: Duration = Duration::from_secs(30);

/// The brain, and who waits for its news.
#[derive(Clone)]
pub(crate) struct Shared {
    brain: Arc<Mutex<Brain>>,
    news: Arc<Notify>,
    start: Instant,
}

impl Shared {
    fn new(config: &Config) -> Shared {
        let brain = Brain::new(config.profiles.clone(), config.backoff, rand::random());
        Shared {
            brain: Arc::new(Mutex::new(brain)),
            news: Arc::new(Notify::new()),
            start: Instant::now(),
        }
    }

    fn brain(&self) -> MutexGuard<'_, Brain> {
        self.brain.lock().expect("nothing panics while it thinks")
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    fn tell(&self, change: impl FnOnce(&mut Brain, Moment)) {
        change(&mut self.brain(), self.now());
        self.news.notify_one();
    }
}

/// Starts everything.
pub(crate) fn start(runtime: &mut Runtime<Config>) {
    let shared = Shared::new(&runtime.config);
    let actor = runtime.root.clone();
    let hands = Hands {
        recorder: runtime.recorder("default-scheduler", actor.clone()),
        actor,
        at_once: Arc::new(Semaphore::new(AT_ONCE)),
        shared: shared.clone(),
    };
    let complete = [
        watch_claims(runtime, &shared),
        watch_services(runtime, &shared),
        watch_owners::<ReplicaSet>(runtime, &shared, OWNERS[0], |set| {
            set.spec.map(|spec| spec.selector)
        }),
        watch_owners::<StatefulSet>(runtime, &shared, OWNERS[1], |set| {
            set.spec.map(|spec| spec.selector)
        }),
        watch_owners::<ReplicationController>(runtime, &shared, OWNERS[2], |controller| {
            labelled(controller.spec?.selector)
        }),
        watch_namespaces(runtime, &shared),
        watch_nodes(runtime, &shared),
        watch_budgets(runtime, &shared),
        watch_pods(runtime, &shared),
    ];
    runtime.spawn(async move {
        for completion in complete {
            completion.reached().await;
        }
        tracing::info!("the scheduler knows the cluster and begins");
        hands.work().await;
    });
}

fn watch_pods(runtime: &mut Runtime<Config>, shared: &Shared) -> Completion {
    let all: Api<Pod> = Api::all(runtime.client());
    let reader = shared.clone();
    // Who has ended needs nothing any more.
    let fields = "status.phase!=Succeeded,status.phase!=Failed";
    let pods = runtime.watch(all, fields, move |pod: Pod| reader.brain().read_pod(&pod));
    let shared = shared.clone();
    pods.on_change(move |change| {
        shared.tell(|brain, now| brain.see_pod(change.before, change.after, now));
    });
    pods.completion()
}

/// A node is kept only as columns.
struct KnownNode;

fn watch_nodes(runtime: &mut Runtime<Config>, shared: &Shared) -> Completion {
    let all: Api<Node> = Api::all(runtime.client());
    let reader = shared.clone();
    let nodes = runtime.watch(all, "", move |node: Node| {
        let name = node.metadata.name.clone().unwrap_or_default();
        reader.tell(|brain, now| brain.see_node(&name, Some(&node), now));
        KnownNode
    });
    let shared = shared.clone();
    nodes.on_change(move |change| {
        if change.after.is_none() {
            shared.tell(|brain, now| brain.see_node(&change.key.name, None, now));
        }
    });
    nodes.completion()
}

fn watch_namespaces(runtime: &mut Runtime<Config>, shared: &Shared) -> Completion {
    let all: Api<Namespace> = Api::all(runtime.client());
    let namespaces = runtime.watch_metadata(None, all, |meta| meta.labels.unwrap_or_default());
    let shared = shared.clone();
    namespaces.on_change(move |change| {
        let name = &change.key.name;
        shared.tell(|brain, now| match change.after {
            Some(labels) => brain.see_namespace(name, Some(labels), now),
            None => brain.see_namespace(name, None, now),
        });
    });
    namespaces.completion()
}

fn watch_claims(runtime: &mut Runtime<Config>, shared: &Shared) -> Completion {
    let all: Api<PersistentVolumeClaim> = Api::all(runtime.client());
    let claims = runtime.watch(all, "", |claim: PersistentVolumeClaim| {
        let status = claim.status.and_then(|status| status.phase);
        status.as_deref() == Some("Bound")
    });
    let shared = shared.clone();
    claims.on_change(move |change| {
        let key = format!("{}/{}", change.key.namespace, change.key.name);
        shared.tell(|brain, now| brain.see_claim(key, change.after.copied(), now));
    });
    claims.completion()
}

fn labelled(labels: Option<BTreeMap<String, String>>) -> Option<LabelSelector> {
    labels.map(|labels| LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    })
}

fn watch_services(runtime: &mut Runtime<Config>, shared: &Shared) -> Completion {
    let all: Api<Service> = Api::all(runtime.client());
    let services = runtime.watch(all, "", |service: Service| {
        labelled(service.spec.and_then(|spec| spec.selector))
    });
    let shared = shared.clone();
    services.on_change(move |change| {
        let (key, selector) = (change.key, change.after.and_then(Option::as_ref));
        shared.tell(|brain, _| brain.see_service(&key.namespace, &key.name, selector));
    });
    services.completion()
}

fn watch_owners<K>(
    runtime: &mut Runtime<Config>,
    shared: &Shared,
    kind: &'static str,
    selector: fn(K) -> Option<LabelSelector>,
) -> Completion
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + 'static,
{
    let owners = runtime.watch(Api::all(runtime.client()), "", selector);
    let shared = shared.clone();
    owners.on_change(move |change| {
        let (key, selector) = (change.key, change.after.and_then(Option::as_ref));
        let name = (key.namespace.as_str(), key.name.as_str());
        shared.tell(|brain, _| brain.see_owner(kind, name, selector));
    });
    owners.completion()
}

fn watch_budgets(runtime: &mut Runtime<Config>, shared: &Shared) -> Completion {
    let all: Api<PodDisruptionBudget> = Api::all(runtime.client());
    let reader = shared.clone();
    let budgets = runtime.watch(all, "", move |budget| {
        read_budget(&mut reader.brain(), &budget)
    });
    let shared = shared.clone();
    budgets.on_change(move |change| {
        let key = format!("{}/{}", change.key.namespace, change.key.name);
        shared.tell(|brain, _| brain.see_budget(&key, change.after.cloned()));
    });
    budgets.completion()
}

fn read_budget(brain: &mut Brain, budget: &PodDisruptionBudget) -> Budget {
    let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
    let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
    let status = budget.status.as_ref();
    let disrupted = status.and_then(|s| s.disrupted_pods.as_ref());
    Budget {
        namespace: brain.symbols().of(namespace),
        selector: Selector::of(brain.symbols(), selector, &[]),
        allowed: status
            .and_then(|s| s.disruptions_allowed)
            .map_or(0, i64::from),
        disrupted: disrupted
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect(),
    }
}

/// Who does what the brain decides.
#[derive(Clone)]
struct Hands {
    actor: Actor,
    recorder: Recorder,
    at_once: Arc<Semaphore>,
    shared: Shared,
}

impl Hands {
    async fn work(self) {
        let mut looked = self.shared.now();
        loop {
            let actions = self.think();
            if actions.is_empty() {
                let pause = self.shared.brain().queue.next_pause();
                let left = pause.map_or(LOOK, |until| until.saturating_sub(self.shared.now()));
                tokio::select! {
                    () = self.shared.news.notified() => {}
                    () = tokio::time::sleep(left.min(LOOK)) => {}
                }
            }
            for action in actions {
                self.start(action).await;
            }
            if self.shared.now().saturating_sub(looked) >= LOOK {
                looked = self.shared.now();
                self.shared.brain().queue.remember_the_forgotten(looked);
            }
            tokio::task::yield_now().await;
        }
    }

    fn think(&self) -> Vec<Action> {
        let now = self.shared.now();
        let mut brain = self.shared.brain();
        let mut actions = Vec::new();
        while actions.len() < BATCH {
            let begin = std::time::Instant::now();
            let Some(more) = brain.next(now) else {
                break;
            };
            metrics::attempted(&more, begin.elapsed());
            actions.extend(more);
        }
        metrics::pending(brain.queue.lengths());
        actions
    }

    // No more decisions than requests can follow.
    async fn start(&self, action: Action) {
        let Ok(permit) = Arc::clone(&self.at_once).acquire_owned().await else {
            return;
        };
        let hands = self.clone();
        tokio::spawn(async move {
            match action {
                Action::Bind(pod, node) => hands.bind(&pod, &node).await,
                Action::Report(pod, report) => hands.report(&pod, &report).await,
                Action::Evict(pod, node, victims) => hands.evict_all(&pod, &node, &victims).await,
                Action::Withdraw(pod) => hands.withdraw(&pod).await,
            }
            drop(permit);
        });
    }

    async fn bind(&self, pod: &Waiting, node: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": *pod.name, "namespace": *pod.namespace, "uid": *pod.uid },
            "target": { "apiVersion": "v1", "kind": "Node", "name": node },
        });
        let place = (&*pod.namespace, &*pod.name);
        match self
            .actor
            .create_part::<Pod>(place, "binding", &binding)
            .await
        {
            Ok(_) => {
                let message = format!(
                    "Successfully assigned {}/{} to {node}",
                    pod.namespace, pod.name
                );
                self.recorder
                    .event(about(pod), Severity::Normal, "Scheduled", message);
            }
            Err(error) => self.unbound(pod, &error).await,
        }
    }

    async fn unbound(&self, pod: &Waiting, error: &SyncError) {
        let is_gone = is_not_found(error);
        self.shared
            .tell(|brain, now| brain.unassume(&pod.uid, is_gone, now));
        if !is_gone {
            metrics::failed();
            let report = Report {
                message: format!("binding rejected: {error}"),
                promise: None,
                is_known: false,
                was_told: false,
            };
            self.condition(pod, "SchedulerError", &report).await;
            self.recorder.event(
                about(pod),
                Severity::Warning,
                "FailedScheduling",
                report.message,
            );
        }
    }

    async fn report(&self, pod: &Waiting, report: &Report) {
        let message = report.message.as_str();
        self.recorder
            .event(about(pod), Severity::Warning, "FailedScheduling", message);
        if !report.is_known {
            self.condition(pod, "Unschedulable", report).await;
        }
    }

    async fn condition(&self, pod: &Waiting, reason: &str, report: &Report) {
        let mut condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "message": report.message,
            "lastProbeTime": null,
        });
        if !report.was_told {
            condition["lastTransitionTime"] = json!(Timestamp::now().to_string());
        }
        let mut status = json!({ "conditions": [condition] });
        if let Some(promise) = &report.promise {
            status["nominatedNodeName"] = json!(promise.as_deref());
        }
        self.patch_status(&pod.namespace, &pod.name, &pod.uid, status)
            .await;
    }

    async fn withdraw(&self, pod: &Waiting) {
        let status = json!({ "nominatedNodeName": null });
        self.patch_status(&pod.namespace, &pod.name, &pod.uid, status)
            .await;
    }

    async fn patch_status(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        status: serde_json::Value,
    ) {
        let patch = Patch::Strategic(json!({ "metadata": { "uid": uid }, "status": status }));
        let patched = self
            .actor
            .patch::<Pod>((namespace, name), Some("status"), &patch);
        if let Err(error) = patched.await
            && !is_not_found(&error)
        {
            tracing::debug!(namespace, name, %error, "the status of a pod was not written");
        }
    }

    async fn evict_all(&self, pod: &Waiting, node: &str, victims: &[Victim]) {
        for victim in victims {
            self.evict(pod, node, victim).await;
        }
    }

    async fn evict(&self, pod: &Waiting, node: &str, victim: &Victim) {
        let status = json!({ "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "default-scheduler: preempting to accommodate a higher priority pod",
            "lastTransitionTime": Timestamp::now().to_string(),
        }]});
        self.patch_status(&victim.namespace, &victim.name, &victim.uid, status)
            .await;
        let (namespace, name) = (&*victim.namespace, &*victim.name);
        match self
            .actor
            .delete::<Pod>(namespace, name, Some(&victim.uid))
            .await
        {
            Ok(()) => {
                let message = format!("Preempted by pod {} on node {node}", pod.uid);
                let about = reference(&victim.namespace, &victim.name, &victim.uid);
                self.recorder
                    .event(about, Severity::Normal, "Preempted", message);
            }
            Err(error) => {
                tracing::warn!(namespace, name, %error, "a pod could not be preempted");
            }
        }
    }
}

fn is_not_found(error: &SyncError) -> bool {
    match error {
        SyncError::Api(error) => client_runtime::is(error, http::StatusCode::NOT_FOUND),
        _ => false,
    }
}

fn about(pod: &Waiting) -> ObjectReference {
    reference(&pod.namespace, &pod.name, &pod.uid)
}

fn reference(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..ObjectReference::default()
    }
}
