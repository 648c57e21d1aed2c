//! What the API server holds, kept by one watch per kind and shared by the controllers.
//!
//! Each watch keeps of an object only what its controllers read.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::DynamicResourceScope;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde_json::Value;
use tokio::sync::watch;

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// The object of this name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> ObjectKey {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn of(object: &DynamicObject) -> ObjectKey {
        let meta = &object.metadata;
        ObjectKey::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }
}

/// One object changed, appeared, went, or is merely to be looked at again.
pub struct Change<'a, V> {
    /// Which object.
    pub key: &'a ObjectKey,
    /// What was there before.
    pub before: Option<&'a V>,
    /// What is there now.
    pub after: Option<&'a V>,
}

type Listener<V> = Box<dyn Fn(&Change<'_, V>) + Send + Sync>;

/// The objects of one watch.
pub struct Cache<V> {
    shared: Arc<Shared<V>>,
}

struct Shared<V> {
    objects: RwLock<BTreeMap<ObjectKey, Arc<V>>>,
    listeners: RwLock<Vec<Listener<V>>>,
    complete: watch::Sender<bool>,
}

/// The moment from which a cache knows everything.
pub struct Completion(watch::Receiver<bool>);

impl Completion {
    /// Waits for it.
    pub async fn reached(mut self) {
        // An error means that the cache is gone, and with it the manager.
        let _ = self.0.wait_for(|complete| *complete).await;
    }
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Cache {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<V: Send + Sync + 'static> Default for Cache<V> {
    fn default() -> Self {
        Cache::new()
    }
}

impl<V: Send + Sync + 'static> Cache<V> {
    /// A cache that knows nothing yet.
    pub fn new() -> Cache<V> {
        Cache {
            shared: Arc::new(Shared {
                objects: RwLock::new(BTreeMap::new()),
                listeners: RwLock::new(Vec::new()),
                complete: watch::Sender::new(false),
            }),
        }
    }

    /// Calls `listener` on every change from now on; it must be quick, most add a key to a queue.
    pub fn on_change(&self, listener: impl Fn(&Change<'_, V>) + Send + Sync + 'static) {
        self.listeners_mut().push(Box::new(listener));
    }

    /// When everything that existed at the start has been seen.
    pub fn completion(&self) -> Completion {
        Completion(self.shared.complete.subscribe())
    }

    /// The object of this key, if there is one.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.objects().get(key).cloned()
    }

    /// Every object, in the order of their keys.
    pub fn all(&self) -> Vec<(ObjectKey, Arc<V>)> {
        let objects = self.objects();
        objects
            .iter()
            .map(|(k, v)| (k.clone(), Arc::clone(v)))
            .collect()
    }

    /// Whether any object is as asked for.
    pub fn any(&self, is: impl Fn(&V) -> bool) -> bool {
        self.objects().values().any(|object| is(object))
    }

    /// Whether any object of a namespace is as asked for.
    pub fn any_in(&self, namespace: &str, is: impl Fn(&V) -> bool) -> bool {
        let first = ObjectKey::new(namespace, "");
        let objects = self.objects();
        let mut inside = objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace);
        inside.any(|(_, object)| is(object))
    }

    /// The objects of a namespace that are as asked for, in the order of their names.
    pub fn within(&self, namespace: &str, is: impl Fn(&V) -> bool) -> Vec<(ObjectKey, Arc<V>)> {
        let first = ObjectKey::new(namespace, "");
        let objects = self.objects();
        let inside = objects
            .range(first..)
            .take_while(|(key, _)| key.namespace == namespace);
        inside
            .filter(|(_, object)| is(object))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect()
    }

    /// Shows every object to the listeners again, so that what went unnoticed is noticed.
    pub fn look_again(&self) {
        for (key, object) in self.all() {
            self.tell(&key, Some(&object), Some(&object));
        }
    }

    /// An object is there, or has changed.
    pub fn put(&self, key: ObjectKey, object: V) {
        let object = Arc::new(object);
        let before = self.objects_mut().insert(key.clone(), Arc::clone(&object));
        self.tell(&key, before.as_deref(), Some(&object));
    }

    /// An object has gone.
    pub fn remove(&self, key: &ObjectKey) {
        let before = self.objects_mut().remove(key);
        if before.is_some() {
            self.tell(key, before.as_deref(), None);
        }
    }

    /// The whole truth, after a list: what is not in it has gone.
    pub fn replace(&self, objects: BTreeMap<ObjectKey, V>) {
        let vanished: Vec<ObjectKey> = self
            .objects()
            .keys()
            .filter(|key| !objects.contains_key(key))
            .cloned()
            .collect();
        for key in &vanished {
            self.remove(key);
        }
        for (key, object) in objects {
            self.put(key, object);
        }
        self.shared.complete.send_replace(true);
    }

    fn tell(&self, key: &ObjectKey, before: Option<&V>, after: Option<&V>) {
        let change = Change { key, before, after };
        for listener in self.listeners().iter() {
            listener(&change);
        }
    }

    fn objects(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<ObjectKey, Arc<V>>> {
        self.shared.objects.read().expect(UNPOISONED)
    }

    fn objects_mut(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<ObjectKey, Arc<V>>> {
        self.shared.objects.write().expect(UNPOISONED)
    }

    fn listeners(&self) -> std::sync::RwLockReadGuard<'_, Vec<Listener<V>>> {
        self.shared.listeners.read().expect(UNPOISONED)
    }

    fn listeners_mut(&self) -> std::sync::RwLockWriteGuard<'_, Vec<Listener<V>>> {
        self.shared.listeners.write().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "nothing panics while it holds the cache";

/// What happens to the objects of a watch, whatever their kind.
pub type Events = BoxStream<'static, watcher::Result<Event<DynamicObject>>>;

/// Watches objects as plain JSON. The kinds' own types come later, one object at a time: watching each kind
/// with a machinery of its own would make the program twice as large.
pub(crate) fn watch_objects<K>(api: Api<K>, config: watcher::Config) -> Events
where
    K: Resource<DynamicType = ()>,
{
    let api: Api<DynamicObject> = erased(api);
    watcher(api, config).default_backoff().boxed()
}

/// As [`watch_objects`], and asks the server for nothing but metadata.
pub(crate) fn watch_metadata<K>(api: Api<K>, config: watcher::Config) -> Events
where
    K: Resource<DynamicType = ()>,
{
    metadata_events(erased(api), config)
}

/// The metadata of every object of a resource that is known by name only.
pub fn watch_metadata_of(client: kube::Client, resource: &ApiResource) -> Events {
    metadata_events(Api::all_with(client, resource), watcher::Config::default())
}

fn metadata_events(api: Api<PartialObjectMeta<DynamicObject>>, config: watcher::Config) -> Events {
    let whole = |meta: PartialObjectMeta<DynamicObject>| DynamicObject {
        types: meta.types,
        metadata: meta.metadata,
        data: Value::Null,
    };
    let events = watcher(api, config).default_backoff();
    events
        .map_ok(move |event| match event {
            Event::Init => Event::Init,
            Event::InitApply(meta) => Event::InitApply(whole(meta)),
            Event::InitDone => Event::InitDone,
            Event::Apply(meta) => Event::Apply(whole(meta)),
            Event::Delete(meta) => Event::Delete(whole(meta)),
        })
        .boxed()
}

fn erased<K, O>(api: Api<K>) -> Api<O>
where
    K: Resource<DynamicType = ()>,
    O: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let resource = ApiResource::erase::<K>(&());
    match api.namespace().map(str::to_owned) {
        Some(namespace) => Api::namespaced_with(api.into_client(), &namespace, &resource),
        None => Api::all_with(api.into_client(), &resource),
    }
}

/// Keeps a cache up to date, for ever; `keep` reduces an object to what is kept of it.
pub(crate) async fn follow<V>(
    cache: Cache<V>,
    kind: String,
    mut events: Events,
    keep: impl Fn(DynamicObject) -> Result<V, String> + Send,
) where
    V: Send + Sync + 'static,
{
    let what = kind.clone();
    let kept = move |object: DynamicObject| {
        let key = ObjectKey::of(&object);
        match keep(object) {
            Ok(value) => Some((key, value)),
            Err(error) => {
                let ObjectKey { namespace, name } = key;
                tracing::warn!(kind = what, namespace, name, %error, "an object cannot be read");
                None
            }
        }
    };
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend(kept(object)),
            Ok(Event::InitDone) => cache.replace(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => {
                if let Some((key, value)) = kept(object) {
                    cache.put(key, value);
                }
            }
            Ok(Event::Delete(object)) => cache.remove(&ObjectKey::of(&object)),
            Err(error) => {
                tracing::warn!(kind, %error, "the watch was interrupted and goes on");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::sync::Mutex;

    type Seen = Arc<Mutex<Vec<(String, Option<u8>, Option<u8>)>>>;

    fn watched() -> (Cache<u8>, Seen) {
        let cache = Cache::new();
        let seen = Seen::default();
        let log = Arc::clone(&seen);
        cache.on_change(move |change| {
            let entry = (
                change.key.name.clone(),
                change.before.copied(),
                change.after.copied(),
            );
            log.lock().unwrap().push(entry);
        });
        (cache, seen)
    }

    #[test]
    fn a_list_tells_what_came_and_what_went() {
        let (cache, seen) = watched();
        cache.put(ObjectKey::new("", "old"), 1);
        seen.lock().unwrap().clear();
        cache.replace(BTreeMap::from([(ObjectKey::new("", "new"), 2)]));
        assert_eq!(
            *seen.lock().unwrap(),
            [("old".into(), Some(1), None), ("new".into(), None, Some(2))]
        );
        assert!(cache.get(&ObjectKey::new("", "old")).is_none());
    }

    #[test]
    fn looking_again_shows_what_is_there() {
        let (cache, seen) = watched();
        cache.put(ObjectKey::new("", "a"), 1);
        seen.lock().unwrap().clear();
        cache.look_again();
        assert_eq!(*seen.lock().unwrap(), [("a".into(), Some(1), Some(1))]);
    }

    #[tokio::test]
    async fn a_cache_is_complete_after_its_first_list() {
        let (cache, _) = watched();
        assert!(!*cache.shared.complete.borrow());
        cache.replace(BTreeMap::new());
        cache.completion().reached().await;
    }
}
