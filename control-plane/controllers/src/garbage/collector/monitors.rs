//! Follows the metadata of every object there is, and tells the graph.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use client_runtime::{Actor, Queue, watch_metadata_of};
use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::graph::{Consequences, Graph, Mistake, Seen, Uid};
use super::resources::{Known, Resource, discover};

/// How often new resources are looked for: upstream's period.
const DISCOVERY: Duration = Duration::from_secs(30);
/// How long work waits for a resource that cannot be listed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What monitors and workers share.
#[derive(Clone)]
pub(super) struct Knowledge {
    graph: Arc<Mutex<Graph>>,
    resources: Arc<RwLock<Arc<Known>>>,
    pub(super) queue: Arc<Queue<Uid>>,
    /// Whether everything that exists has been seen.
    complete: Arc<watch::Sender<bool>>,
    report: Arc<dyn Fn(Mistake) + Send + Sync>,
}

impl Knowledge {
    pub(super) fn new(report: impl Fn(Mistake) + Send + Sync + 'static) -> Knowledge {
        Knowledge {
            graph: Arc::default(),
            resources: Arc::default(),
            queue: Arc::new(Queue::new()),
            complete: Arc::new(watch::Sender::new(false)),
            report: Arc::new(report),
        }
    }

    pub(super) fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph
            .lock()
            .expect("nothing panics while it holds the graph")
    }

    /// What discovery last said.
    pub(super) fn resources(&self) -> Arc<Known> {
        let known = self.resources.read();
        Arc::clone(&known.expect("nothing panics while it holds the resources"))
    }

    /// Waits until everything that exists has been seen: before that, an owner without dependents may
    /// only be one whose dependents are still to come.
    pub(super) async fn completed(&self) {
        let mut complete = self.complete.subscribe();
        // The sender is ours, so it cannot be gone.
        let _ = complete.wait_for(|complete| *complete).await;
    }

    pub(super) fn follow_up(&self, then: Consequences) {
        then.mistakes
            .into_iter()
            .for_each(|mistake| (self.report)(mistake));
        self.queue.add_all(then.look_at);
    }

    fn see(&self, resource: &Arc<Resource>, object: DynamicObject) -> Option<Uid> {
        let seen = Seen::of(resource, object.metadata)?;
        let uid = Arc::clone(&seen.uid);
        let then = self.graph().see(seen);
        self.follow_up(then);
        Some(uid)
    }

    fn lose(&self, uid: &Uid) {
        let then = self.graph().lose(uid);
        self.follow_up(then);
    }

    // After a list: what is not in it has gone.
    fn keep_only(&self, resource: &Resource, listed: &HashSet<Uid>) {
        let known = self.graph().of_resource(resource);
        known
            .iter()
            .filter(|uid| !listed.contains(*uid))
            .for_each(|uid| self.lose(uid));
    }
}

/// Follows what there is, for ever.
pub(super) async fn follow(actor: Actor, client: kube::Client, knowledge: Knowledge) {
    let mut monitors = Monitors {
        client,
        knowledge,
        running: HashMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        match discover(&actor).await {
            Ok(known) => monitors.adopt(known).await,
            Err(error) => tracing::warn!(%error, "what there is cannot be discovered; tried again"),
        }
        let wait = match *monitors.knowledge.complete.borrow() {
            true => DISCOVERY,
            false => Duration::from_secs(1),
        };
        tokio::time::sleep(wait).await;
    }
}

struct Monitors {
    client: kube::Client,
    knowledge: Knowledge,
    running: HashMap<Arc<Resource>, tokio::task::AbortHandle>,
    tasks: JoinSet<()>,
}

impl Monitors {
    async fn adopt(&mut self, known: Known) {
        self.stop_those_gone(&known);
        let news: BTreeSet<Arc<Resource>> = known
            .watchable
            .iter()
            .filter(|resource| !self.running.contains_key(*resource))
            .cloned()
            .collect();
        *self
            .knowledge
            .resources
            .write()
            .expect("nothing panics while it holds the resources") = Arc::new(known);
        if news.is_empty() {
            return;
        }
        self.knowledge.complete.send_replace(false);
        let (listed, mut done) = watch::channel(0_usize);
        for resource in &news {
            let events = watch_metadata_of(self.client.clone(), &api_resource(resource));
            let task = monitor(
                self.knowledge.clone(),
                Arc::clone(resource),
                events,
                listed.clone(),
            );
            self.running
                .insert(Arc::clone(resource), self.tasks.spawn(task));
        }
        let all = done.wait_for(|count| *count >= news.len());
        if timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("some resources cannot be listed; garbage is collected without them");
        }
        self.knowledge.complete.send_replace(true);
    }

    // Objects of a resource that is no longer served are not gone, only out of sight; so nothing follows for
    // their dependents. Those of a group that did not answer are kept as they are.
    fn stop_those_gone(&mut self, known: &Known) {
        self.running.retain(|resource, task| {
            let stays =
                known.watchable.contains(resource) || known.silent.contains(&resource.group);
            if !stays {
                task.abort();
            }
            stays
        });
        while self.tasks.try_join_next().is_some() {}
    }
}

fn api_resource(resource: &Resource) -> ApiResource {
    ApiResource {
        group: resource.group.clone(),
        version: resource.version.clone(),
        api_version: resource.api_version(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
    }
}

async fn monitor(
    knowledge: Knowledge,
    resource: Arc<Resource>,
    mut events: client_runtime::Events,
    listed: watch::Sender<usize>,
) {
    let (mut in_list, mut is_first) = (HashSet::new(), true);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => in_list.clear(),
            Ok(Event::InitApply(object)) => in_list.extend(knowledge.see(&resource, object)),
            Ok(Event::InitDone) => {
                knowledge.keep_only(&resource, &in_list);
                in_list = HashSet::new();
                if std::mem::take(&mut is_first) {
                    listed.send_modify(|count| *count += 1);
                }
            }
            Ok(Event::Apply(object)) => drop(knowledge.see(&resource, object)),
            Ok(Event::Delete(object)) => {
                if let Some(uid) = object.metadata.uid {
                    knowledge.lose(&Uid::from(uid));
                }
            }
            Err(error) => {
                tracing::debug!(resource = resource.plural, %error, "a watch was interrupted and goes on");
            }
        }
    }
}
