//! What the parts of a role are started with: the configuration, who they act as, and the shared watches.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Error;
use crate::actor::Actor;
use crate::cache::{self, Cache, Completion, Events, ObjectKey};
use crate::queue::{Key, Queue};
use crate::recorder::Recorder;
use crate::worker::{Synced, work};

/// How often everything is looked at again. Upstream takes half a day to a day; looking costs nothing
/// here, and it is how a new root CA file reaches the namespaces.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// A use for a watch: it arises once and stays. What nobody needs is not watched, because every change of it
/// would be sent, read and thrown away.
#[derive(Debug, Clone, Default)]
pub struct Need(Arc<watch::Sender<bool>>);

impl Need {
    /// From now on.
    pub fn arises(&self) {
        self.0
            .send_if_modified(|needed| !std::mem::replace(needed, true));
    }

    async fn arisen(self) {
        // The sender is `self`, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|needed| *needed).await;
    }
}

/// A view of some objects that several parts of a role share: one watch, whoever asks for it.
pub trait Watched: Sized + Send + Sync + 'static {
    /// How it is watched.
    fn watch<C>(runtime: &mut Runtime<C>) -> Cache<Self>;
}

/// A role while its parts are being started.
pub struct Runtime<C> {
    /// What the role was told.
    pub config: Arc<C>,
    /// Acts as the role itself.
    pub root: Actor,
    client: kube::Client,
    bare: kube::Client,
    own_identities: bool,
    tasks: Vec<BoxFuture<'static, ()>>,
    looks: Vec<Box<dyn Fn() + Send>>,
    /// Caches by the type of what they hold.
    shared: HashMap<TypeId, Box<dyn Any + Send>>,
    needs: HashMap<TypeId, Need>,
}

impl<C> Runtime<C> {
    /// A role that acts through `client`; with `own_identities` its parts act as service accounts of their own,
    /// through `bare`, which has no credentials.
    pub fn new(
        config: Arc<C>,
        client: kube::Client,
        bare: kube::Client,
        own_identities: bool,
    ) -> Runtime<C> {
        Runtime {
            config,
            root: Actor::of_client(client.clone()),
            client,
            bare,
            own_identities,
            tasks: Vec::new(),
            looks: Vec::new(),
            shared: HashMap::new(),
            needs: HashMap::new(),
        }
    }

    /// The one cache of this view; whoever asks first starts its watch.
    pub fn shared<V: Watched>(&mut self) -> Cache<V> {
        let known = self.shared.get(&TypeId::of::<V>());
        if let Some(cache) = known.and_then(|cache| cache.downcast_ref::<Cache<V>>()) {
            return cache.clone();
        }
        let cache = V::watch(self);
        self.shared
            .insert(TypeId::of::<V>(), Box::new(cache.clone()));
        cache
    }

    /// The one cache of every object of a kind, whole but for its managed fields.
    pub fn whole<K>(&mut self) -> Cache<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let known = self.shared.get(&TypeId::of::<K>());
        if let Some(cache) = known.and_then(|cache| cache.downcast_ref::<Cache<K>>()) {
            return cache.clone();
        }
        let cache = self.watch(Api::all(self.client()), "", |mut object: K| {
            object.meta_mut().managed_fields = None;
            object
        });
        self.shared
            .insert(TypeId::of::<K>(), Box::new(cache.clone()));
        cache
    }

    /// Whether anybody needs this view yet; for those that are watched only then.
    pub fn need<V: Watched>(&mut self) -> Need {
        self.needs.entry(TypeId::of::<V>()).or_default().clone()
    }

    /// Writes events as a component of this name; they are sent while the role runs.
    pub fn recorder(&mut self, component: &'static str, actor: Actor) -> Recorder {
        let (recorder, sending) = Recorder::new(component, actor);
        self.spawn(sending);
        recorder
    }

    /// Runs something as long as the role runs; it must not end by itself.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }

    /// Who acts for a controller; `account` is upstream's name for its service account.
    pub fn act_as(&self, account: &'static str) -> Actor {
        match self.own_identities {
            true => Actor::of_account(self.bare.clone(), self.root.clone(), account),
            false => self.root.clone(),
        }
    }

    /// A client that watches as the manager itself.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Works off a queue once the caches it reads know everything.
    pub fn start_work<K: Key, F>(
        &mut self,
        controller: &'static str,
        queue: Arc<Queue<K>>,
        at_once: usize,
        after: impl IntoIterator<Item = Completion>,
        sync: impl Fn(K) -> F + Send + 'static,
    ) where
        F: Future<Output = Synced> + Send + 'static,
    {
        let after: Vec<Completion> = after.into_iter().collect();
        self.tasks.push(Box::pin(async move {
            for completion in after {
                completion.reached().await;
            }
            work(controller, queue, at_once, sync).await;
        }));
    }

    /// A watch of one controller's own.
    pub fn watch<K, V>(
        &mut self,
        api: Api<K>,
        fields: &str,
        keep: impl Fn(K) -> V + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        V: Send + Sync + 'static,
    {
        self.watch_when(None, api, fields, keep)
    }

    /// As [`Manager::watch`], from the moment on that it is needed.
    pub fn watch_when<K, V>(
        &mut self,
        need: Option<Need>,
        api: Api<K>,
        fields: &str,
        keep: impl Fn(K) -> V + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        V: Send + Sync + 'static,
    {
        let mut config = watcher::Config::default();
        if !fields.is_empty() {
            config = config.fields(fields);
        }
        let events = cache::watch_objects(api, config);
        self.follow::<K, V>(need, events, move |object| {
            typed(&object).map(&keep).map_err(|e| e.to_string())
        })
    }

    /// As [`Manager::watch`], for those who need nothing but metadata.
    pub fn watch_metadata<K, V>(
        &mut self,
        need: Option<Need>,
        api: Api<K>,
        keep: impl Fn(ObjectMeta) -> V + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()>,
        V: Send + Sync + 'static,
    {
        let events = cache::watch_metadata(api, watcher::Config::default());
        self.follow::<K, V>(need, events, move |object| Ok(keep(object.metadata)))
    }

    fn follow<K, V>(
        &mut self,
        need: Option<Need>,
        events: Events,
        keep: impl Fn(DynamicObject) -> Result<V, String> + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()>,
        V: Send + Sync + 'static,
    {
        let cache = Cache::new();
        let kind = K::kind(&()).into_owned();
        let followed = cache::follow(cache.clone(), kind, events, keep);
        self.tasks.push(Box::pin(async move {
            if let Some(need) = need {
                need.arisen().await;
            }
            followed.await;
        }));
        let again = cache.clone();
        self.looks.push(Box::new(move || again.look_again()));
        cache
    }

    /// Does something once a cache knows everything that existed at its start.
    pub fn when_complete<V: Send + Sync + 'static>(
        &mut self,
        cache: &Cache<V>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let completion = cache.completion();
        self.tasks.push(Box::pin(async move {
            completion.reached().await;
            then();
            std::future::pending().await
        }));
    }

    /// Runs everything that was started, for ever; ends only when a part of it breaks.
    pub async fn run(self) -> Error {
        let mut tasks = JoinSet::new();
        for task in self.tasks {
            tasks.spawn(task);
        }
        let looks = self.looks;
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_AGAIN).await;
                looks.iter().for_each(|look| look());
            }
        });
        match tasks.join_next().await {
            Some(Err(error)) => Error::Broken(error.to_string()),
            Some(Ok(())) | None => Error::Broken("a part of it ended".into()),
        }
    }
}

// Clients in Go write a time that they do not have as null, and read it so; the types here insist on one in conditions.
fn typed<K: DeserializeOwned>(object: &DynamicObject) -> serde_json::Result<K> {
    serde_json::from_value(serde_json::to_value(object)?).or_else(|_| {
        let mut value = serde_json::to_value(object)?;
        let conditions = value.pointer_mut("/status/conditions");
        for condition in conditions
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if condition["lastTransitionTime"].is_null() {
                condition["lastTransitionTime"] = NO_TIME.into();
            }
        }
        serde_json::from_value(value)
    })
}

/// Go's time zero.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// Adds an object's key to a queue whenever it changes.
pub fn enqueue_changes<V: Send + Sync + 'static>(cache: &Cache<V>, queue: &Arc<Queue<ObjectKey>>) {
    let queue = Arc::clone(queue);
    cache.on_change(move |change| queue.add(change.key.clone()));
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_without_a_time_hides_no_object() {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "status": {"conditions": [
            {"type": "A", "status": "True", "reason": "", "message": "", "lastTransitionTime": null},
        ]}});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let service: Service = typed(&object).expect("a Service");
        let conditions = service.status.and_then(|status| status.conditions);
        assert_eq!(conditions.map(|all| all.len()), Some(1));
    }
}
