//! What the watches tell and what is to be done about it, without any request: the queue, the placement, and the pods
//! between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::ask::Ask;
use crate::cluster::{NodeChange, Pod};
use crate::hints::Event;
use crate::placement::{Place, Placement, Waiting};
use crate::preemption::{Budget, Preempted};
use crate::profile::{Plugin, Profile};
use crate::queue::{Backoff, Moment, Queue, Turned};
use crate::symbols::Symbols;
use crate::ties::{Known, Ties};

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// What is kept of a pod.
#[derive(Debug, Clone)]
pub struct Seen {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) ask: Arc<Ask>,
    pub(crate) node: Option<Arc<str>>,
    pub(crate) nominated: Option<Arc<str>>,
    pub(crate) priority: i32,
    pub(crate) may_preempt: bool,
    pub(crate) is_gated: bool,
    pub(crate) is_ending: bool,
    /// Whether a profile of ours places it.
    pub(crate) is_ours: bool,
    pub(crate) ties: Arc<Ties>,
    pub(crate) started: Option<i128>,
    /// What was last said about it: the message of its condition `PodScheduled`.
    pub(crate) told: Option<Arc<str>>,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub enum Action {
    /// Bind it to this node.
    Bind(Waiting, Arc<str>),
    /// Say why it cannot be placed.
    Report(Waiting, Report),
    /// Take these pods away from a node, for the sake of this one.
    Evict(Waiting, Arc<str>, Vec<Victim>),
    /// Take a promise back, as the API knows it.
    Withdraw(Waiting),
}

/// What is said about a pod that cannot be placed.
#[derive(Debug, Clone)]
pub struct Report {
    /// Why.
    pub(crate) message: String,
    /// Which node it is promised, if that is news.
    pub(crate) promise: Option<Option<Arc<str>>>,
    /// Whether its condition says so already.
    pub(crate) is_known: bool,
    /// Whether its condition said something like it before: then it does not change over, only its words do.
    pub(crate) was_told: bool,
}

/// A pod that has to go.
#[derive(Debug, Clone)]
pub struct Victim {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// The scheduler's mind.
pub struct Brain {
    /// Nodes, pods on them, promises.
    pub placement: Placement,
    /// Pods that wait.
    pub queue: Queue,
    budgets: Vec<(String, Budget)>,
    known: Known,
    /// What the condition of a pod says, by uid.
    told: HashMap<Arc<str>, Arc<str>>,
}

impl Brain {
    /// Knows nothing yet.
    pub fn new(profiles: Vec<Profile>, backoff: Backoff, seed: u64) -> Brain {
        Brain {
            placement: Placement::new(profiles, seed),
            queue: Queue::new(backoff),
            budgets: Vec::new(),
            known: Known::default(),
            told: HashMap::new(),
        }
    }

    /// The texts.
    pub fn symbols(&mut self) -> &mut Symbols {
        &mut self.placement.cluster.symbols
    }

    /// What is kept of a pod.
    pub fn read_pod(&mut self, pod: &api::Pod) -> Seen {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let scheduler = text(spec.and_then(|s| s.scheduler_name.as_ref()));
        let scheduler = scheduler.map_or("default-scheduler", String::as_str);
        let profile = self.placement.profile_named(scheduler);
        let ask = Ask::of(self.symbols(), pod, profile.unwrap_or_default(), &[]);
        let condition = status.and_then(|s| s.conditions.as_ref());
        let condition = condition.and_then(|all| all.iter().find(|c| c.type_ == "PodScheduled"));
        let meta = &pod.metadata;
        let shared = |text: Option<&String>| Arc::from(text.map_or("", String::as_str));
        let policy = spec.and_then(|s| s.preemption_policy.as_deref());
        let started = status.and_then(|s| s.start_time.as_ref());
        Seen {
            uid: shared(meta.uid.as_ref()),
            namespace: shared(meta.namespace.as_ref()),
            name: shared(meta.name.as_ref()),
            ask: self.placement.cluster.same(ask),
            node: text(spec.and_then(|s| s.node_name.as_ref())).map(|n| n.as_str().into()),
            nominated: text(status.and_then(|s| s.nominated_node_name.as_ref()))
                .map(|n| n.as_str().into()),
            priority: spec.and_then(|s| s.priority).unwrap_or_default(),
            may_preempt: policy != Some("Never"),
            is_gated: spec.is_some_and(|s| s.scheduling_gates.iter().flatten().next().is_some()),
            is_ending: meta.deletion_timestamp.is_some(),
            is_ours: profile.is_some(),
            ties: Arc::new(Ties::of(pod)),
            started: started.map(|time| time.0.as_nanosecond()),
            told: condition
                .filter(|c| c.status == "False")
                .and_then(|c| c.message.as_deref())
                .map(Arc::from),
        }
    }

    /// A pod is so now.
    pub fn see_pod(&mut self, before: Option<&Seen>, after: Option<&Seen>, now: Moment) {
        if let Some(before) = before
            && after.is_none_or(|after| after.uid != before.uid)
        {
            self.forget(&before.uid, now);
        }
        let Some(pod) = after else { return };
        match &pod.node {
            Some(node) => self.see_placed(pod, node, now),
            None => self.see_waiting(pod, now),
        }
    }

    fn forget(&mut self, uid: &str, now: Moment) {
        self.told.remove(uid);
        self.queue.remove(uid);
        let had_promise = self.placement.withdraw(uid);
        if self.placement.cluster.displace(uid).is_some() || had_promise {
            self.hear(Event::PodGone, now);
        }
    }

    fn see_placed(&mut self, pod: &Seen, node: &str, now: Moment) {
        self.queue.remove(&pod.uid);
        self.told.remove(&pod.uid);
        self.placement.withdraw(&pod.uid);
        let cluster = &mut self.placement.cluster;
        if cluster.confirm(
            &pod.uid,
            node,
            &pod.ask,
            pod.priority,
            pod.is_ending,
            pod.started,
        ) {
            return;
        }
        let was_known = cluster.pod(&pod.uid).is_some();
        cluster.place(
            Pod {
                uid: &pod.uid,
                namespace: &pod.namespace,
                name: &pod.name,
                ask: Arc::clone(&pod.ask),
                priority: pod.priority,
                started: pod.started,
                is_ending: pod.is_ending,
                is_assumed: false,
            },
            node,
        );
        self.hear(Event::PodPlaced, now);
        // What it asks for may have become less, and who is on the way out counts no more for spreading.
        if was_known {
            self.hear(Event::PodGone, now);
        }
    }

    fn see_waiting(&mut self, pod: &Seen, now: Moment) {
        let is_on_its_way = self.placement.cluster.pod(&pod.uid).is_some();
        if is_on_its_way {
            return;
        }
        if !pod.is_ours || pod.is_ending || pod.is_gated {
            self.queue.remove(&pod.uid);
            self.placement.withdraw(&pod.uid);
            return;
        }
        if let Some(told) = &pod.told {
            self.told.insert(Arc::clone(&pod.uid), Arc::clone(told));
        }
        let waiting = Waiting {
            uid: Arc::clone(&pod.uid),
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
            ask: Arc::clone(&pod.ask),
            priority: pod.priority,
            may_preempt: pod.may_preempt,
            ties: Arc::clone(&pod.ties),
        };
        // After a restart, what the one before us promised still stands.
        if let Some(node) = &pod.nominated
            && !self.queue.contains(&pod.uid)
        {
            self.placement.promise(&waiting, node);
        }
        self.queue.add(waiting, now);
    }

    /// A node is so now, or gone.
    pub fn see_node(&mut self, name: &str, node: Option<&api::Node>, now: Moment) {
        let Some(node) = node else {
            self.placement.cluster.remove_node(name);
            // Spreading counts fewer domains.
            return self.hear(Event::NodeLabels, now);
        };
        let NodeChange {
            is_new,
            labels,
            taints,
            resources,
            ..
        } = self.placement.cluster.set_node(node);
        if is_new {
            return self.hear(Event::NodeAdded, now);
        }
        let news = [
            (labels, Event::NodeLabels),
            (taints, Event::NodeTaints),
            (resources, Event::NodeResources),
        ];
        for (_, event) in news.into_iter().filter(|(is_news, _)| *is_news) {
            self.hear(event, now);
        }
    }

    /// A namespace has these labels now, or is gone.
    pub fn see_namespace(
        &mut self,
        name: &str,
        labels: Option<&BTreeMap<String, String>>,
        now: Moment,
    ) {
        match labels {
            Some(labels) => self.placement.cluster.set_namespace(name, labels),
            None => self.placement.cluster.remove_namespace(name),
        }
        self.hear(Event::Namespace, now);
    }

    /// A disruption budget is so now, or gone.
    pub fn see_budget(&mut self, key: &str, budget: Option<Budget>) {
        self.budgets.retain(|(known, _)| known != key);
        self.budgets
            .extend(budget.map(|budget| (key.to_owned(), budget)));
    }

    /// A claim is bound or not, or gone.
    pub fn see_claim(&mut self, key: String, is_bound: Option<bool>, now: Moment) {
        self.known.set_claim(key, is_bound);
        self.hear(Event::Volume, now);
    }

    /// A service selects these pods, or is gone.
    pub fn see_service(&mut self, namespace: &str, name: &str, selects: Option<&LabelSelector>) {
        let symbols = &mut self.placement.cluster.symbols;
        self.known.set_service(symbols, namespace, name, selects);
    }

    /// An owner of pods selects these, or is gone.
    pub fn see_owner(
        &mut self,
        kind: &'static str,
        (namespace, name): (&str, &str),
        selects: Option<&LabelSelector>,
    ) {
        let symbols = &mut self.placement.cluster.symbols;
        self.known
            .set_owner(symbols, kind, (namespace, name), selects);
    }

    /// Something changed that some pods wait for.
    pub fn hear(&mut self, event: Event, now: Moment) {
        self.queue.hear(&event, now);
    }

    /// The next thing to do, if any pod is ready.
    pub fn next(&mut self, now: Moment) -> Option<Vec<Action>> {
        let turned = self.queue.next(now)?;
        Some(self.decide(turned, now))
    }

    fn decide(&mut self, turned: Turned, now: Moment) -> Vec<Action> {
        let pod = turned.pod;
        if let Some(actions) = self.hold_back(&pod, now) {
            return actions;
        }
        let wanting = self.with_defaults(&pod);
        match self.placement.place(&wanting) {
            Place::Row(row) => {
                let node: Arc<str> = self.placement.cluster.name(row).into();
                self.assume(&pod, &node, now);
                vec![Action::Bind(pod, node)]
            }
            Place::NoNodes => {
                self.queue.fail(&pod.uid, Vec::new(), now);
                let message = "no nodes available to schedule pods".to_owned();
                vec![self.report(pod, message, None)]
            }
            Place::Nowhere(diagnosis) => {
                let mut message = diagnosis.sentence(&self.placement.cluster);
                let preempts = self
                    .placement
                    .profile(pod.ask.profile)
                    .filters(Plugin::DefaultPreemption);
                let budgets: Vec<Budget> = match preempts {
                    true => self
                        .budgets
                        .iter()
                        .map(|(_, budget)| budget.clone())
                        .collect(),
                    false => Vec::new(),
                };
                let outcome =
                    preempts.then(|| self.placement.preempt(&wanting, &diagnosis, &budgets));
                self.queue.fail(&pod.uid, diagnosis.plugins(), now);
                self.after_preemption(pod, outcome, &mut message, now)
            }
        }
    }

    // Claims that nobody has bound yet: no node will do, and no preemption helps.
    fn hold_back(&mut self, pod: &Waiting, now: Moment) -> Option<Vec<Action>> {
        let profile = self.placement.profile(pod.ask.profile);
        if !profile.filters(Plugin::VolumeBinding) {
            return None;
        }
        let why = self.known.held_back(&pod.namespace, &pod.ties)?;
        let nodes = self.placement.cluster.node_count();
        let message = format!(
            "0/{nodes} nodes are available: {why}. preemption: 0/{nodes} nodes are available: \
             {nodes} Preemption is not helpful for scheduling."
        );
        self.queue.fail(&pod.uid, vec![Plugin::VolumeBinding], now);
        Some(vec![self.report(pod.clone(), message, None)])
    }

    // What a pod without spread constraints of its own asks for besides.
    fn with_defaults(&mut self, pod: &Waiting) -> Waiting {
        let profile = Arc::clone(self.placement.profile(pod.ask.profile));
        let symbols = &mut self.placement.cluster.symbols;
        let known = &self.known;
        let spread = known.default_spread(symbols, &profile, &pod.namespace, &pod.ask, &pod.ties);
        let mut wanting = pod.clone();
        if !spread.is_empty() {
            let ask = Ask {
                spread: spread.into(),
                ..Ask::clone(&pod.ask)
            };
            wanting.ask = Arc::new(ask);
        }
        wanting
    }

    fn after_preemption(
        &mut self,
        pod: Waiting,
        outcome: Option<Preempted>,
        message: &mut String,
        now: Moment,
    ) -> Vec<Action> {
        let message = std::mem::take(message);
        match outcome {
            None => vec![self.report(pod, message, None)],
            Some(Preempted::Ineligible(why)) => {
                vec![self.report(pod, format!("{message} preemption: {why}"), None)]
            }
            Some(Preempted::NoHelp(why)) => {
                // It cannot have the node it was promised either.
                let gone = self.placement.withdraw(&pod.uid).then_some(None);
                let message = format!("{message} preemption: {why}");
                vec![self.report(pod, message, gone)]
            }
            Some(Preempted::Node(row, victims)) => {
                let node: Arc<str> = self.placement.cluster.name(row).into();
                let victims = self.victims(&victims);
                let mut actions = Vec::new();
                for uid in self.placement.lesser_promises(&node, pod.priority) {
                    self.placement.withdraw(&uid);
                    actions.extend(self.queue.waiting(&uid).cloned().map(Action::Withdraw));
                }
                self.placement.promise(&pod, &node);
                if !actions.is_empty() {
                    self.hear(Event::PodGone, now);
                }
                actions.push(self.report(pod.clone(), message, Some(Some(Arc::clone(&node)))));
                actions.push(Action::Evict(pod, node, victims));
                actions
            }
        }
    }

    fn report(
        &mut self,
        pod: Waiting,
        message: String,
        promise: Option<Option<Arc<str>>>,
    ) -> Action {
        let before = self
            .told
            .insert(Arc::clone(&pod.uid), message.as_str().into());
        let report = Report {
            is_known: before.as_deref() == Some(message.as_str()) && promise.is_none(),
            was_told: before.is_some(),
            message,
            promise,
        };
        Action::Report(pod, report)
    }

    fn victims(&self, uids: &[Arc<str>]) -> Vec<Victim> {
        let pods = uids
            .iter()
            .filter_map(|uid| self.placement.cluster.pod(uid));
        pods.filter(|pod| !pod.is_ending)
            .map(|pod| Victim {
                uid: Arc::clone(&pod.uid),
                namespace: Arc::clone(&pod.namespace),
                name: Arc::clone(&pod.name),
            })
            .collect()
    }

    fn assume(&mut self, pod: &Waiting, node: &str, now: Moment) {
        self.placement.cluster.place(
            Pod {
                uid: &pod.uid,
                namespace: &pod.namespace,
                name: &pod.name,
                ask: Arc::clone(&pod.ask),
                priority: pod.priority,
                started: None,
                is_ending: false,
                is_assumed: true,
            },
            node,
        );
        self.placement.withdraw(&pod.uid);
        // Those who gather or spread may have waited for it.
        self.hear(Event::PodPlaced, now);
    }

    /// A pod was not bound after all; it is tried again, unless it is gone.
    pub fn unassume(&mut self, uid: &str, is_gone: bool, now: Moment) {
        if self
            .placement
            .cluster
            .pod(uid)
            .is_some_and(|pod| pod.is_assumed)
        {
            self.placement.cluster.displace(uid);
            self.hear(Event::PodGone, now);
        }
        match is_gone {
            true => self.queue.remove(uid),
            false => self.queue.retry(uid, now),
        }
    }
}

fn text(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}
