//! One kind's objects and recent changes: what lists read and watches follow.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use kinds::resources::Resource;
use store::Event;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::{Follower, ROOT};
use crate::status::Result;
use crate::stored::{Form, Stored, prefix};
use crate::topics::{Topic, Topics};

/// Changes a collection remembers at most, and bytes they may hold. Whoever was away for longer lists again,
/// which costs little here.
const RING_ENTRIES: usize = 10_000;
const RING_BYTES: usize = 4 << 20;
/// Encoded frames are kept for this many of the newest changes: whoever is further behind is alone.
const SHARED_FRAMES: usize = 64;
/// Every topic is woken at least this often, so that a watcher of a quiet object keeps up with the ring.
const WAKE_ALL_EVERY: u64 = 1_000;

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    /// Key inside the collection: `namespace/name` or `name`.
    pub(crate) key: Arc<str>,
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

    // What only the ring keeps alive: the state before.
    fn bytes(&self) -> usize {
        self.previous.as_ref().map_or(0, |s| s.len()) + 200
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
    followers: Vec<Arc<dyn Follower>>,
    state: RwLock<State>,
    topics: Mutex<Topics>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Arc<str>, Arc<Stored>>,
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
    pub(crate) objects: Vec<(Arc<str>, Arc<Stored>)>,
    /// The last change of the collection that is in them.
    pub(crate) revision: u64,
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
    pub(crate) fn new(
        resource: &'static Resource,
        followers: Vec<Arc<dyn Follower>>,
    ) -> Collection {
        Collection {
            resource,
            form: Form::of(resource),
            prefix: format!("{ROOT}{}/", prefix(resource)),
            followers,
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
        lock(&self.topics).subscribe(topic)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether access is decided by these objects (roles, and what tokens are bound to), so that a write is
    /// only done once the cache knows it.
    pub(crate) fn decides(&self) -> bool {
        const BOUND: [&str; 3] = ["Secret", "ServiceAccount", "Node"];
        let core = self.resource.gv.group.is_empty();
        !self.followers.is_empty() || (core && BOUND.contains(&self.resource.kind))
    }

    /// Whether somebody watches any of it.
    pub(crate) fn is_watched(&self) -> bool {
        !lock(&self.topics).is_empty()
    }

    fn tell(&self, key: &str, previous: Option<&Stored>, current: Option<&Stored>) {
        for follower in &self.followers {
            follower.changed(key, previous, current);
        }
    }

    pub(crate) fn load(&self, key: &str, stored: Stored) {
        self.tell(key, None, Some(&stored));
        self.write().objects.insert(key.into(), Arc::new(stored));
    }

    /// Takes a change over. Says when watchers wait to be woken for it.
    pub(crate) fn apply(&self, event: &Event) -> Option<Instant> {
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
        let shared: Arc<str> = key.into();
        let mut state = self.write();
        let previous = match &current {
            Some(stored) => state
                .objects
                .insert(Arc::clone(&shared), Arc::clone(stored)),
            None => state.objects.remove(key),
        };
        if current.is_none() && previous.is_none() {
            return None;
        }
        let change = Arc::new(Change {
            key: shared,
            revision: event.revision,
            current,
            previous,
            frames: Mutex::default(),
        });
        let sequence = state.push(Arc::clone(&change));
        drop(state);
        self.tell(key, change.previous.as_deref(), change.current.as_deref());
        self.wake(&change, sequence.is_multiple_of(WAKE_ALL_EVERY))
    }

    fn wake(&self, change: &Change, everyone: bool) -> Option<Instant> {
        let mut topics = lock(&self.topics);
        if topics.is_empty() {
            return None;
        }
        if everyone {
            topics.wake_all();
            return None;
        }
        let now = Instant::now();
        let concerns_nodes = self.resource.kind == "Pod" && topics.hear_of_nodes();
        let mut wake = |topic: &Topic| topics.wake(topic, now);
        wake(&Topic::All);
        wake(&Topic::Object(change.key.clone()));
        if let Some((namespace, _)) = change.key.split_once('/') {
            wake(&Topic::Namespace(namespace.into()));
        }
        if concerns_nodes {
            self.wake_nodes(change, &mut wake);
        }
        topics.next_due()
    }

    /// Wakes the watchers whose pace is over; says when there are more to wake.
    pub(crate) fn wake_due(&self, now: Instant) -> Option<Instant> {
        let mut topics = lock(&self.topics);
        topics.wake_due(now);
        topics.next_due()
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

    /// Everything after a revision will be in the ring.
    pub(crate) fn begin_after(&self, revision: u64) {
        self.write().complete_after = revision;
    }

    /// Forgets everything; whoever reads the ring is told that it has moved on.
    pub(crate) fn clear(&self) {
        let mut state = self.write();
        for (key, object) in std::mem::take(&mut state.objects) {
            self.tell(&key, Some(&object), None);
        }
        while !state.ring.is_empty() {
            state.drop_oldest();
        }
        state.first += 1;
    }

    pub(crate) fn forget_before(&self, revision: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::resources;
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
        Collection::new(
            resources::find("", "v1", "configmaps").expect("exists"),
            Vec::new(),
        )
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
