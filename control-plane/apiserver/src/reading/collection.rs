//! One kind's objects and recent changes: what lists read and watches follow.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use kinds::resources::Resource;
use store::{Event, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::conversion::Webhook;
use crate::reading::cache::{Follower, ROOT};
use crate::reading::stored::{Form, Stored, prefix};
use crate::reading::topics::{Topic, Topics};
use crate::status::Result;

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
pub(crate) type FrameKey = (
    &'static str,
    &'static str,
    crate::reading::negotiate::Format,
);

impl Change {
    /// The same change of the same object in another version.
    pub(crate) fn with(
        &self,
        current: Option<Arc<Stored>>,
        previous: Option<Arc<Stored>>,
    ) -> Change {
        Change {
            key: Arc::clone(&self.key),
            revision: self.revision,
            current,
            previous,
            frames: Mutex::default(),
        }
    }

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
    pub(crate) resource: Arc<Resource>,
    /// How its objects are stored.
    pub(crate) form: Form,
    /// What converts them into other versions, if that takes a webhook.
    pub(crate) webhook: Option<Webhook>,
    prefix: String,
    followers: Vec<Arc<dyn Follower>>,
    state: RwLock<State>,
    topics: Mutex<Topics>,
    /// Turns true when another collection has taken its place, or none.
    closed: watch::Sender<bool>,
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
    /// Changes that came while the objects are still being read.
    waiting: Option<Vec<Event>>,
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
    pub(crate) fn new(resource: Arc<Resource>, followers: Vec<Arc<dyn Follower>>) -> Collection {
        Collection {
            form: Form::of(&resource),
            webhook: Webhook::of(&resource),
            prefix: format!("{ROOT}{}/", prefix(&resource)),
            resource,
            followers,
            state: RwLock::default(),
            topics: Mutex::default(),
            closed: watch::Sender::new(false),
        }
    }

    /// A collection that keeps its changes until its objects have been read.
    pub(crate) fn waiting(resource: Arc<Resource>) -> Collection {
        let collection = Collection::new(resource, Vec::new());
        collection.write().waiting = Some(Vec::new());
        collection
    }

    /// Reads every object, and takes over what has happened meanwhile.
    pub(crate) async fn read_all(&self, store: &dyn Store) -> store::Result<()> {
        const PAGE: usize = 5_000;
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        let (mut from, mut at) = (self.prefix.clone(), None);
        loop {
            let page = store.range(&from, &end, PAGE, at).await?;
            at = Some(page.revision);
            for kv in &page.entries {
                self.load_one(kv);
            }
            match page.entries.last() {
                Some(last) if page.entries.len() == PAGE => from = format!("{}\0", last.key),
                _ => {
                    self.catch_up(page.revision);
                    return Ok(());
                }
            }
        }
    }

    fn catch_up(&self, revision: u64) {
        let mut state = self.write();
        state.complete_after = revision;
        state.last = revision;
        drop(state);
        self.finish_waiting(revision);
    }

    // What comes while old changes are taken over queues up behind them.
    fn finish_waiting(&self, read: u64) {
        loop {
            let mut state = self.write();
            match state.waiting.take().filter(|events| !events.is_empty()) {
                None => return,
                Some(events) => {
                    state.waiting = Some(Vec::new());
                    drop(state);
                    for event in events.iter().filter(|e| e.revision > read) {
                        self.take_over(event);
                    }
                }
            }
        }
    }

    /// Loads one object of the store.
    pub(crate) fn load_one(&self, kv: &store::KeyValue) {
        match self.form.adopt(&kv.value, kv.mod_revision) {
            Ok(stored) => self.load(&kv.key[self.prefix.len()..], stored),
            Err(error) => {
                tracing::error!(key = kv.key, %error, "an object in the store cannot be read")
            }
        }
    }

    /// Ends its watches.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Turns true when its watches end.
    pub(crate) fn closed(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
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

    /// One object by its storage key, as the cache has it.
    pub(crate) fn known(&self, key: &str) -> Option<Arc<Stored>> {
        self.get(key.strip_prefix(&self.prefix)?)
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
        if let Some(waiting) = &mut self.write().waiting {
            waiting.push(event.clone());
            return None;
        }
        self.take_over(event)
    }

    fn take_over(&self, event: &Event) -> Option<Instant> {
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
        let concerns_nodes = self.resource.is("", "Pod") && topics.hear_of_nodes();
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
        let Some(position) = kinds::fields::position(&self.resource, "spec.nodeName") else {
            return;
        };
        let node = |object: &Option<Arc<Stored>>| {
            object
                .as_ref()
                .map(|o| o.index(&self.resource).fields[position].clone())
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
mod tests;
