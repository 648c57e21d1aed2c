//! The watch cache: every object and its recent changes in memory, as the store tells of them.
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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use kinds::resources::{self, Resource};
use serde_json::Value;
use store::{Store, WatchItem};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::reading::collection::Collection;
use crate::reading::stored::{Stored, prefix};
use crate::status::{ApiError, Result};

/// The root of all keys.
pub(crate) const ROOT: &str = "/registry/";

/// Somebody who keeps an index of a kind's objects. It is told of a change before any watcher is, so
/// whoever acts on a change finds the index up to date.
pub(crate) trait Follower: std::fmt::Debug + Send + Sync {
    /// An object (`namespace/name` or `name`) was, and is, this.
    fn changed(&self, key: &str, previous: Option<&Stored>, current: Option<&Stored>);
}

/// A follower that wants the namespace, the name and the object as it is now.
pub(crate) fn following(
    tell: impl Fn(&str, &str, Option<&Value>) + Send + Sync + 'static,
) -> Arc<dyn Follower> {
    Arc::new(Following(tell))
}

struct Following<F>(F);

impl<F> std::fmt::Debug for Following<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Following")
    }
}

impl<F: Fn(&str, &str, Option<&Value>) + Send + Sync> Follower for Following<F> {
    fn changed(&self, key: &str, _: Option<&Stored>, current: Option<&Stored>) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        (self.0)(namespace, name, current.map(Stored::value).as_ref());
    }
}

/// Who follows which resource, asked once for each.
pub(crate) type Followers<'a> = &'a dyn Fn(&Resource) -> Vec<Arc<dyn Follower>>;

/// How long a read waits for a revision that the cache has not reached (upstream: 3 s).
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// How long the answer to a write waits for its watchers to be told.
const TELLING_WAIT: Duration = Duration::from_millis(20);

/// Collections by their part of the storage key.
type Collections = HashMap<String, Arc<Collection>>;

/// Every collection, at one revision.
#[derive(Debug)]
pub(crate) struct Cache {
    collections: RwLock<Arc<Collections>>,
    revision: watch::Sender<u64>,
    pace: Pace,
}

/// When watchers are to be woken next.
#[derive(Debug, Default)]
struct Pace {
    due: Mutex<Option<Instant>>,
    moved: Notify,
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> Option<Instant> {
        *self.lock()
    }

    fn clear(&self) {
        *self.lock() = None;
    }

    fn not_later_than(&self, due: Option<Instant>) {
        let mut held = self.lock();
        let sooner = earlier(*held, due);
        if sooner != *held {
            *held = sooner;
            self.moved.notify_one();
        }
    }
}

impl Cache {
    /// A cache of all built-in resources, filled from the store. Returns with the revision reached.
    pub(crate) async fn load(store: &dyn Store, followers: Followers<'_>) -> store::Result<Cache> {
        let stored = resources::all()
            .iter()
            .filter(|r| !r.is_virtual && r.stored == r.gv);
        let collections = stored.map(|r| {
            let collection = Collection::new(Arc::clone(r), followers(r));
            (prefix(r), Arc::new(collection))
        });
        let cache = Cache {
            collections: RwLock::new(Arc::new(collections.collect())),
            revision: watch::Sender::new(0),
            pace: Pace::default(),
        };
        cache.fill(store).await?;
        cache.catch_up(store).await?;
        Ok(cache)
    }

    /// The collection that stores a resource.
    pub(crate) fn collection(&self, resource: &Resource) -> Option<Arc<Collection>> {
        let (group, kind) = (resource.stored.group, resource.kind);
        let collections = self.collections();
        if resource.gv == resource.stored || resource.ty.defined().is_some() {
            return collections.get(&prefix(resource)).cloned();
        }
        let mut all = collections.values();
        all.find(|c| c.resource.is(group, kind)).cloned()
    }

    /// Every collection there is now.
    pub(crate) fn collections(&self) -> Arc<Collections> {
        let collections = self.collections.read();
        Arc::clone(&collections.unwrap_or_else(PoisonError::into_inner))
    }

    fn change_collections(&self, change: impl FnOnce(&mut Collections)) {
        let collections = self.collections.write();
        let mut collections = collections.unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut collections));
    }

    /// Takes up a resource that a definition has brought, or brought anew: reads its objects while changes
    /// wait, and ends the watches of what it replaces. Whoever resumes one lists again, as upstream has it.
    pub(crate) async fn adopt(
        &self,
        store: &dyn Store,
        resource: &Arc<Resource>,
    ) -> store::Result<()> {
        let collection = Arc::new(Collection::waiting(Arc::clone(resource)));
        let mut replaced = None;
        self.change_collections(|all| {
            replaced = all.insert(prefix(resource), Arc::clone(&collection));
        });
        let read = collection.read_all(store).await;
        if let Some(replaced) = replaced {
            replaced.close();
        }
        read
    }

    /// Lets go of a resource whose definition is gone.
    pub(crate) fn drop_collection(&self, resource: &Resource) {
        let mut dropped = None;
        self.change_collections(|all| dropped = all.remove(&prefix(resource)));
        if let Some(dropped) = dropped {
            dropped.close();
        }
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

    /// Lets those who watch hear of a write before its writer does. Clients write, and look at what their own
    /// watch has brought; upstream's answer is mostly slow enough for the change to be there by then, ours
    /// would overtake it. A cache that lags does not hold the answer up for long.
    pub(crate) async fn watchers_first(&self, revision: u64) {
        let _ = tokio::time::timeout(TELLING_WAIT, self.reach(revision)).await;
        // They have been woken by now: whoever yields goes behind them.
        tokio::task::yield_now().await;
    }

    /// Forgets changes up to a revision, as the store does when it compacts.
    pub(crate) fn forget_before(&self, revision: u64) {
        for collection in self.collections().values() {
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
                    for collection in self.collections().values() {
                        collection.begin_after(page.revision);
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
                // Nobody watches yet.
                Ok(Some(Ok(item))) => drop(self.apply(item)),
                Ok(Some(Err(error))) => return Err(error),
                // The newest revision belongs to keys that are not ours, and etcd does not tell.
                Ok(None) | Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    fn load_one(&self, kv: &store::KeyValue) {
        if let Some(collection) = self.collection_of(&kv.key) {
            collection.load_one(kv);
        }
    }

    fn collection_of(&self, key: &str) -> Option<Arc<Collection>> {
        let rest = key.strip_prefix(ROOT)?;
        let first = rest.find('/')?;
        let collections = self.collections();
        if let Some(found) = collections.get(&rest[..first]) {
            return Some(Arc::clone(found));
        }
        let second = first + 1 + rest[first + 1..].find('/')?;
        collections.get(&rest[..second]).cloned()
    }

    /// Takes over what a watch on the store delivers. Says when watchers wait to be woken for it.
    pub(crate) fn apply(&self, item: WatchItem) -> Option<Instant> {
        let mut due = None;
        let reached = match item {
            WatchItem::Progress(revision) => revision,
            WatchItem::Events(events) => {
                for event in &events {
                    if let Some(collection) = self.collection_of(&event.key) {
                        due = earlier(due, collection.apply(event));
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
        due
    }

    /// Follows the store until the process ends. A lost watch is taken up again where it stopped;
    /// history lost meanwhile (compaction during an outage) is reported and read anew.
    pub(crate) async fn follow(self: Arc<Self>, store: Arc<dyn Store>) {
        tokio::select! {
            () = self.take_changes(&*store) => {}
            () = self.keep_pace() => {}
        }
    }

    async fn take_changes(self: &Arc<Self>, store: &dyn Store) {
        loop {
            let cache = Arc::clone(self);
            let tell = Arc::new(move |item| cache.pace.not_later_than(cache.apply(item)));
            let outcome = store.follow(ROOT, self.revision(), tell).await;
            tracing::warn!(error = %outcome, "the watch on the store ended; starting it again");
            if matches!(outcome, store::Error::Compacted { .. }) {
                self.resync(store).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    // Wakes the watchers that wait for their pace.
    async fn keep_pace(&self) {
        loop {
            let due = self.pace.due();
            tokio::select! {
                () = sleep_until(due) => {
                    self.pace.clear();
                    self.pace.not_later_than(self.wake_due(Instant::now()));
                }
                () = self.pace.moved.notified() => {}
            }
        }
    }

    fn wake_due(&self, now: Instant) -> Option<Instant> {
        let collections = self.collections();
        let due = collections.values().filter_map(|c| c.wake_due(now));
        due.min()
    }

    // Watchers cannot be told what happened in the gap: their places are declared too old.
    async fn resync(&self, store: &dyn Store) {
        for collection in self.collections().values() {
            collection.clear();
        }
        if let Err(error) = self.fill(store).await {
            tracing::error!(%error, "the store cannot be read; serving the last known state");
        }
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::reading::topics::Topic;
    use store::{Change, Expect, Written};

    #[tokio::test]
    async fn watchers_hear_of_a_write_before_its_writer_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = store::Embedded::open(dir.path(), store::embedded::Options::default()).unwrap();
        let cache = Arc::new(Cache::load(&*store, &|_| Vec::new()).await.unwrap());
        let maps = cache.collection(resources::find("", "v1", "configmaps").unwrap());
        let mut cursor = maps.unwrap().cursor_after(1, Topic::All).unwrap();
        let watcher = tokio::spawn(async move { cursor.changed().await });
        let follower = Arc::clone(&cache);
        let following = store.clone();
        let follower = tokio::spawn(async move { follower.follow(following).await });
        let value = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#;
        let put = Change::Put {
            value: value.into(),
            ttl: None,
        };
        let written = store.write("/registry/configmaps/default/a", Expect::Absent, put);
        let Written::Done(revision) = written.await.unwrap() else {
            panic!("a new key can be written");
        };
        cache.watchers_first(revision).await;
        assert!(cache.revision() >= revision);
        assert!(watcher.is_finished());
        follower.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_lags_holds_a_writer_up_for_a_moment_only() {
        let cache = Cache {
            collections: RwLock::default(),
            revision: watch::Sender::new(1),
            pace: Pace::default(),
        };
        let start = Instant::now();
        cache.watchers_first(2).await;
        assert_eq!(start.elapsed(), TELLING_WAIT);
    }
}
