//! The watch cache: every object and its recent changes in memory, fed by one watch on the store.
//!
//! Reads and watches are served from here. The cache follows the store's revision: a reader that
//! needs the newest state asks the store for its revision and waits until the cache has reached it,
//! so what it then reads is as fresh as a read of the store itself.
//!
//! Watchers hold no queue. A collection keeps its recent changes in one ring that all watchers share;
//! each watcher remembers how far it has read and is woken when there is more. A watcher that is so
//! slow that the ring has moved past it is told so and closed, and its client resumes; nobody else
//! notices. Wake-ups go by topic (all, a namespace, an object, a node), so that a change to one secret
//! does not wake the watchers of ten thousand others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use kinds::resources::{self, Resource};
use store::{Event, Store, WatchItem};
use tokio::sync::watch;

use crate::status::{ApiError, Result};
use crate::stored::{Form, Stored, prefix};

/// The root of all keys.
pub(crate) const ROOT: &str = "/registry/";

/// Changes a collection remembers at most, and bytes they may hold.
const RING_ENTRIES: usize = 10_000;
const RING_BYTES: usize = 8 << 20;
/// Encoded frames are kept for this many of the newest changes: whoever is further behind is alone.
const SHARED_FRAMES: usize = 64;
/// Every topic is woken at least this often, so that a watcher of a quiet object keeps up with the ring.
const WAKE_ALL_EVERY: u64 = 1_000;
/// How long a read waits for a revision that the cache has not reached (upstream: 3 s).
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    /// Key inside the collection: `namespace/name` or `name`.
    pub(crate) key: Box<str>,
    /// The revision that made it.
    pub(crate) revision: u64,
    /// After; `None` for a deletion.
    pub(crate) current: Option<Arc<Stored>>,
    /// Before; `None` for a creation.
    pub(crate) previous: Option<Arc<Stored>>,
    frames: Mutex<Vec<(FrameKey, Bytes)>>,
}

/// Which encoding of a change: event type, API version and format.
pub(crate) type FrameKey = (&'static str, &'static str, crate::negotiate::Format);

impl Change {
    /// The encoded frame, made at most once for all watchers that want the same.
    pub(crate) fn frame(&self, key: FrameKey, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut frames = lock(&self.frames);
        if let Some((_, frame)) = frames.iter().find(|(k, _)| *k == key) {
            return frame.clone();
        }
        let frame = make();
        frames.push((key, frame.clone()));
        frame
    }

    fn bytes(&self) -> usize {
        self.current.as_ref().map_or(0, |s| s.len()) + 200
    }
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Collection {
    /// A resource of the stored version.
    pub(crate) resource: &'static Resource,
    /// How its objects are stored.
    pub(crate) form: Form,
    prefix: String,
    state: RwLock<State>,
    topics: Mutex<HashMap<Topic, watch::Sender<()>>>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Box<str>, Arc<Stored>>,
    ring: VecDeque<Arc<Change>>,
    ring_bytes: usize,
    /// Sequence number of the ring's first change.
    first: u64,
    /// Every change after this revision is in the ring.
    complete_after: u64,
    /// The revision of the last change applied.
    last: u64,
}

/// Objects of a collection as they stood together.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Keys and objects in key order.
    pub(crate) objects: Vec<(Box<str>, Arc<Stored>)>,
    /// The last change of the collection that is in them.
    pub(crate) revision: u64,
}

/// Whom a change concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// Every change.
    All,
    /// Changes in a namespace.
    Namespace(Box<str>),
    /// Changes of one object.
    Object(Box<str>),
    /// Changes of pods on one node.
    Node(Box<str>),
}

/// A place in a collection's history, and a wake-up when there is more.
#[derive(Debug)]
pub(crate) struct Cursor {
    next: u64,
    wake: watch::Receiver<()>,
}

impl Cursor {
    /// Waits until there may be more to read.
    pub(crate) async fn changed(&mut self) {
        // The sender lives in the collection; if it is gone the server is going, and nothing comes.
        if self.wake.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The ring has moved past a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TooOld {
    /// The oldest revision a watch can start after.
    pub(crate) oldest: u64,
}

impl Collection {
    fn new(resource: &'static Resource) -> Collection {
        Collection {
            resource,
            form: Form::of(resource),
            prefix: format!("{ROOT}{}/", prefix(resource)),
            state: RwLock::default(),
            topics: Mutex::default(),
        }
    }

    /// The storage key of an object.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.resource.namespaced {
            format!("{}{namespace}/{name}", self.prefix)
        } else {
            format!("{}{name}", self.prefix)
        }
    }

    /// The prefix of all its storage keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The objects whose key starts with `within`, after `after` if given.
    pub(crate) fn objects(&self, within: &str, after: Option<&str>) -> Listed {
        let state = self.read();
        let start = match after {
            Some(key) if key >= within => Bound::Excluded(key),
            _ => Bound::Included(within),
        };
        let matching = state
            .objects
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(within))
            .map(|(key, object)| (key.clone(), Arc::clone(object)));
        Listed {
            objects: matching.collect(),
            revision: state.last,
        }
    }

    /// One object.
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Stored>> {
        self.read().objects.get(key).cloned()
    }

    /// How many objects there are.
    pub(crate) fn count(&self) -> usize {
        self.read().objects.len()
    }

    /// A cursor that reads every change after a revision.
    pub(crate) fn cursor_after(&self, revision: u64, topic: Topic) -> Result<Cursor, TooOld> {
        let wake = self.subscribe(topic);
        let state = self.read();
        if revision < state.complete_after {
            return Err(TooOld {
                oldest: state.complete_after,
            });
        }
        let skip = state
            .ring
            .partition_point(|change| change.revision <= revision);
        Ok(Cursor {
            next: state.first + skip as u64,
            wake,
        })
    }

    /// The present objects below `within`, and a cursor that goes on from there.
    pub(crate) fn snapshot(&self, within: &str, topic: Topic) -> (Listed, Cursor) {
        let wake = self.subscribe(topic);
        let state = self.read();
        let objects = state
            .objects
            .range::<str, _>((Bound::Included(within), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(within))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let cursor = Cursor {
            next: state.first + state.ring.len() as u64,
            wake,
        };
        (
            Listed {
                objects,
                revision: state.last,
            },
            cursor,
        )
    }

    /// The next changes at a cursor, at most `limit`.
    pub(crate) fn read_changes(
        &self,
        cursor: &mut Cursor,
        limit: usize,
    ) -> Result<Vec<Arc<Change>>, TooOld> {
        cursor.wake.mark_unchanged();
        let state = self.read();
        let Some(skip) = cursor.next.checked_sub(state.first) else {
            return Err(TooOld {
                oldest: state.complete_after,
            });
        };
        let skip = usize::try_from(skip).expect("a ring index");
        let changes: Vec<_> = state.ring.iter().skip(skip).take(limit).cloned().collect();
        cursor.next += changes.len() as u64;
        Ok(changes)
    }

    fn subscribe(&self, topic: Topic) -> watch::Receiver<()> {
        lock(&self.topics)
            .entry(topic)
            .or_insert_with(|| watch::channel(()).0)
            .subscribe()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, key: &str, stored: Stored) {
        self.write().objects.insert(key.into(), Arc::new(stored));
    }

    fn apply(&self, event: &Event) {
        let key = &event.key[self.prefix.len()..];
        let current = event.current.as_ref().and_then(|kv| {
            match self.form.adopt(&kv.value, kv.mod_revision) {
                Ok(stored) => Some(Arc::new(stored)),
                Err(error) => {
                    tracing::error!(key = event.key, %error, "an object in the store cannot be read");
                    None
                }
            }
        });
        let mut state = self.write();
        let previous = match &current {
            Some(stored) => state.objects.insert(key.into(), Arc::clone(stored)),
            None => state.objects.remove(key),
        };
        if current.is_none() && previous.is_none() {
            return;
        }
        let change = Arc::new(Change {
            key: key.into(),
            revision: event.revision,
            current,
            previous,
            frames: Mutex::default(),
        });
        let sequence = state.push(Arc::clone(&change));
        drop(state);
        self.wake(&change, sequence.is_multiple_of(WAKE_ALL_EVERY));
    }

    fn wake(&self, change: &Change, everyone: bool) {
        let mut topics = lock(&self.topics);
        if topics.is_empty() {
            return;
        }
        if everyone {
            topics.retain(|_, sender| sender.send(()).is_ok());
            return;
        }
        let mut wake = |topic: &Topic| {
            if let Some(sender) = topics.get(topic)
                && sender.send(()).is_err()
            {
                topics.remove(topic);
            }
        };
        wake(&Topic::All);
        wake(&Topic::Object(change.key.clone()));
        if let Some((namespace, _)) = change.key.split_once('/') {
            wake(&Topic::Namespace(namespace.into()));
        }
        if self.resource.kind == "Pod" {
            self.wake_nodes(change, &mut wake);
        }
    }

    fn wake_nodes(&self, change: &Change, wake: &mut impl FnMut(&Topic)) {
        let Some(position) = kinds::fields::position(self.resource, "spec.nodeName") else {
            return;
        };
        let node = |object: &Option<Arc<Stored>>| {
            object
                .as_ref()
                .map(|o| o.index(self.resource).fields[position].clone())
        };
        let (before, after) = (node(&change.previous), node(&change.current));
        if before != after
            && let Some(node) = before
        {
            wake(&Topic::Node(node));
        }
        if let Some(node) = after {
            wake(&Topic::Node(node));
        }
    }

    fn forget_before(&self, revision: u64) {
        let mut state = self.write();
        while state
            .ring
            .front()
            .is_some_and(|change| change.revision <= revision)
        {
            state.drop_oldest();
        }
        state.complete_after = state.complete_after.max(revision);
    }
}

impl State {
    fn push(&mut self, change: Arc<Change>) -> u64 {
        self.last = change.revision;
        self.ring_bytes += change.bytes();
        self.ring.push_back(change);
        if let Some(index) = self.ring.len().checked_sub(SHARED_FRAMES + 1) {
            lock(&self.ring[index].frames).clear();
        }
        while self.ring.len() > RING_ENTRIES
            || (self.ring_bytes > RING_BYTES && self.ring.len() > 100)
        {
            self.drop_oldest();
        }
        self.first + self.ring.len() as u64
    }

    fn drop_oldest(&mut self) {
        if let Some(change) = self.ring.pop_front() {
            self.ring_bytes -= change.bytes();
            self.first += 1;
            self.complete_after = change.revision;
        }
    }
}

// A panic while one of these locks is held leaves the data whole (every update is a single insert or
// push), so a poisoned lock is still good to use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every collection, at one revision.
#[derive(Debug)]
pub(crate) struct Cache {
    collections: HashMap<String, Arc<Collection>>,
    revision: watch::Sender<u64>,
}

impl Cache {
    /// A cache of all built-in resources, filled from the store. Returns with the revision reached.
    pub(crate) async fn load(store: &dyn Store) -> store::Result<Cache> {
        let stored = resources::all()
            .iter()
            .filter(|r| !r.is_virtual && r.stored == r.gv);
        let collections = stored
            .map(|r| (prefix(r), Arc::new(Collection::new(r))))
            .collect();
        let cache = Cache {
            collections,
            revision: watch::Sender::new(0),
        };
        cache.fill(store).await?;
        cache.catch_up(store).await?;
        Ok(cache)
    }

    /// The collection that stores a resource.
    pub(crate) fn collection(&self, resource: &Resource) -> Option<&Arc<Collection>> {
        let (group, kind) = (resource.stored.group, resource.kind);
        if resource.gv == resource.stored {
            return self.collections.get(&prefix(resource));
        }
        self.collections
            .values()
            .find(|c| c.resource.gv.group == group && c.resource.kind == kind)
    }

    /// Every collection.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.collections.values()
    }

    /// The revision reached.
    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Waits until the cache has reached a revision.
    pub(crate) async fn reach(&self, revision: u64) -> Result<()> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut receiver = self.revision.subscribe();
        let reached = receiver.wait_for(|r| *r >= revision);
        match tokio::time::timeout(FRESHNESS_WAIT, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApiError::version_too_large(revision, self.revision())),
        }
    }

    /// Forgets changes up to a revision, as the store does when it compacts.
    pub(crate) fn forget_before(&self, revision: u64) {
        for collection in self.collections.values() {
            collection.forget_before(revision);
        }
    }

    // The oldest state the store still has is loaded first and its history replayed on top, so that
    // watches which began before a restart can resume.
    async fn fill(&self, store: &dyn Store) -> store::Result<()> {
        let mut at = match store.range(ROOT, ROOT, 1, Some(1)).await {
            Err(store::Error::Compacted { oldest, .. }) => Some(oldest),
            _ => Some(1),
        };
        let end = format!("{}0", ROOT.trim_end_matches('/'));
        let mut from = ROOT.to_owned();
        loop {
            const PAGE: usize = 5_000;
            let page = match store.range(&from, &end, PAGE, at).await {
                Err(store::Error::Compacted { .. } | store::Error::Future { .. })
                    if from == ROOT && at.is_some() =>
                {
                    at = None;
                    continue;
                }
                other => other?,
            };
            at = Some(page.revision);
            for kv in &page.entries {
                self.load_one(kv);
            }
            match page.entries.last() {
                Some(last) if page.entries.len() == PAGE => from = format!("{}\0", last.key),
                _ => {
                    for collection in self.collections.values() {
                        collection.write().complete_after = page.revision;
                    }
                    self.revision.send_replace(page.revision);
                    return Ok(());
                }
            }
        }
    }

    // Replays the history between what was loaded and the newest revision.
    async fn catch_up(&self, store: &dyn Store) -> store::Result<()> {
        let newest = store.revision().await?;
        let mut watch = match store.watch(ROOT, self.revision()).await {
            Ok(watch) => watch,
            // Compacted since it was read: `follow` reads it anew.
            Err(store::Error::Compacted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        while self.revision() < newest {
            match tokio::time::timeout(FRESHNESS_WAIT, watch.next()).await {
                Ok(Some(Ok(item))) => self.apply(item),
                Ok(Some(Err(error))) => return Err(error),
                // The newest revision belongs to keys that are not ours, and etcd does not tell.
                Ok(None) | Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn load_one(&self, kv: &store::KeyValue) {
        let Some(collection) = self.collection_of(&kv.key) else {
            return;
        };
        match collection.form.adopt(&kv.value, kv.mod_revision) {
            Ok(stored) => collection.load(&kv.key[collection.prefix.len()..], stored),
            Err(error) => {
                tracing::error!(key = kv.key, %error, "an object in the store cannot be read")
            }
        }
    }

    fn collection_of(&self, key: &str) -> Option<&Arc<Collection>> {
        let rest = key.strip_prefix(ROOT)?;
        let first = rest.find('/')?;
        if let Some(found) = self.collections.get(&rest[..first]) {
            return Some(found);
        }
        let second = first + 1 + rest[first + 1..].find('/')?;
        self.collections.get(&rest[..second])
    }

    /// Takes over what a watch on the store delivers.
    pub(crate) fn apply(&self, item: WatchItem) {
        let reached = match item {
            WatchItem::Progress(revision) => revision,
            WatchItem::Events(events) => {
                for event in &events {
                    if let Some(collection) = self.collection_of(&event.key) {
                        collection.apply(event);
                    }
                }
                events.last().map_or(0, |e| e.revision)
            }
        };
        self.revision.send_if_modified(|revision| {
            let moved = reached > *revision;
            *revision = reached.max(*revision);
            moved
        });
    }

    /// Follows the store until the process ends. A lost watch is taken up again where it stopped;
    /// history lost meanwhile (compaction during an outage) is reported and read anew.
    pub(crate) async fn follow(&self, store: Arc<dyn Store>) {
        loop {
            let outcome = match store.watch(ROOT, self.revision()).await {
                Ok(mut watch) => self.drain(&mut watch).await,
                Err(error) => error,
            };
            tracing::warn!(error = %outcome, "the watch on the store ended; starting it again");
            if matches!(outcome, store::Error::Compacted { .. }) {
                self.resync(&*store).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn drain(&self, watch: &mut store::Watch) -> store::Error {
        while let Some(item) = watch.next().await {
            match item {
                Ok(item) => self.apply(item),
                Err(error) => return error,
            }
        }
        store::Error::Unavailable {
            cause: "the store closed the watch".into(),
        }
    }

    // Watchers cannot be told what happened in the gap: their places are declared too old.
    async fn resync(&self, store: &dyn Store) {
        for collection in self.collections.values() {
            let mut state = collection.write();
            state.objects.clear();
            while !state.ring.is_empty() {
                state.drop_oldest();
            }
            state.first += 1;
        }
        if let Err(error) = self.fill(store).await {
            tracing::error!(%error, "the store cannot be read; serving the last known state");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::KeyValue;

    fn put(key: &str, revision: u64) -> Event {
        let value = Bytes::from(format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{key}","n":{revision}}}}}"#
        ));
        let key = format!("/registry/configmaps/{key}");
        let current = KeyValue {
            key: key.clone(),
            value,
            create_revision: revision,
            mod_revision: revision,
        };
        Event {
            key,
            revision,
            current: Some(current),
            previous: None,
        }
    }

    fn collection() -> Collection {
        Collection::new(resources::find("", "v1", "configmaps").expect("exists"))
    }

    #[test]
    fn a_cursor_sees_every_later_change_once() {
        let collection = collection();
        collection.apply(&put("a/x", 2));
        collection.apply(&put("a/y", 3));
        let mut cursor = collection.cursor_after(2, Topic::All).expect("in the ring");
        collection.apply(&put("a/x", 4));
        let seen: Vec<_> = collection
            .read_changes(&mut cursor, 10)
            .expect("kept")
            .iter()
            .map(|c| c.revision)
            .collect();
        assert_eq!(seen, [3, 4]);
        assert!(
            collection
                .read_changes(&mut cursor, 10)
                .expect("kept")
                .is_empty()
        );
    }

    #[test]
    fn a_reader_that_fell_behind_the_ring_is_told() {
        let collection = collection();
        let mut cursor = collection.cursor_after(0, Topic::All).expect("empty");
        for revision in 2..(RING_ENTRIES as u64 + 10) {
            collection.apply(&put("a/x", revision));
        }
        assert!(collection.read_changes(&mut cursor, 10).is_err());
        assert!(collection.cursor_after(3, Topic::All).is_err());
        assert!(
            collection
                .cursor_after(RING_ENTRIES as u64, Topic::All)
                .is_ok()
        );
    }

    #[test]
    fn only_concerned_topics_are_woken() {
        let collection = collection();
        let x = collection
            .cursor_after(0, Topic::Object("a/x".into()))
            .expect("empty");
        let b = collection
            .cursor_after(0, Topic::Namespace("b".into()))
            .expect("empty");
        collection.apply(&put("a/x", 2));
        assert!(x.wake.has_changed().expect("alive"));
        assert!(!b.wake.has_changed().expect("alive"));
    }

    #[test]
    fn pages_follow_key_order() {
        let collection = collection();
        for (i, key) in ["a/x", "a/y", "b/z"].iter().enumerate() {
            collection.apply(&put(key, i as u64 + 2));
        }
        assert_eq!(collection.objects("", None).objects.len(), 3);
        let rest = collection.objects("", Some("a/y"));
        assert_eq!((rest.objects.len(), &*rest.objects[0].0), (1, "b/z"));
        assert_eq!(collection.objects("a/", None).objects.len(), 2);
        assert_eq!(rest.revision, 4);
    }
}
