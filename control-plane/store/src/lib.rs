//! A revisioned key-value store with watch: one trait, two engines.
//!
//! Every write gets the next revision of one counter that all keys share. A key remembers the
//! revision that created it and the one that last changed it; a write may demand either that the
//! key is absent or that its last change is the one the writer saw. Readers may ask for the newest
//! state or for the state at an earlier revision, and a watcher that names a revision receives every
//! later change in order, without gap or duplicate, until that history is compacted away.
//!
//! This is the part of etcd's model that Kubernetes needs, and nothing more: single-key
//! transactions, prefix ranges, prefix watches, compaction and a time to live.
//!
//! [`Embedded`] keeps everything in one directory of this machine; the header of its module says
//! what is on disk and when it is safe. [`Etcd`] speaks to an etcd cluster. [`maintenance`] backs
//! up, restores and checks the embedded engine's files.

pub mod embedded;
pub mod etcd;
mod image;
pub mod maintenance;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use embedded::Embedded;
pub use etcd::Etcd;
pub use watch::Watch;

/// A point in the store's history. The first write has revision 2, as in etcd (1 is the empty store).
pub type Revision = u64;

/// A key's value with its place in history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The full key.
    pub key: String,
    /// The value; cloning shares the bytes.
    pub value: Bytes,
    /// The revision that created the key (its first put since it was last absent).
    pub create_revision: Revision,
    /// The revision that last changed it.
    pub mod_revision: Revision,
}

/// What must be true of a key for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists and was last changed at this revision.
    Modified(Revision),
}

/// The change a write makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Set the value; with a time to live, the store deletes the key after that long.
    Put {
        /// The new value.
        value: Bytes,
        /// How long the key lives; `None` for ever.
        ttl: Option<Duration>,
    },
    /// Remove the key.
    Delete,
}

/// The outcome of a conditional write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// It happened, is durable, and got this revision.
    Done(Revision),
    /// The condition did not hold; the key's present state, if any.
    Conflict(Option<KeyValue>),
}

/// A page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The entries, in key order.
    pub entries: Vec<KeyValue>,
    /// How many keys the whole range holds, this page included.
    pub count: usize,
    /// The revision the page is true for.
    pub revision: Revision,
}

/// One change, as a watcher sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key that changed.
    pub key: String,
    /// Its revision.
    pub revision: Revision,
    /// The new state; `None` for a deletion.
    pub current: Option<KeyValue>,
    /// The state before; `None` if the key was absent.
    pub previous: Option<KeyValue>,
}

/// What a watch delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchItem {
    /// Changes in revision order. All events of one batch were committed together.
    Events(Vec<Event>),
    /// Nothing matching happened up to and including this revision.
    Progress(Revision),
}

/// Whom a follower's changes are told. It is quick and does not call the store.
pub type Tell = Arc<dyn Fn(WatchItem) + Send + Sync>;

/// Why the store could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The history asked for is gone.
    #[error("revision {requested} has been compacted; the oldest one kept is {oldest}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The revision asked for does not exist yet.
    #[error("revision {requested} is in the future; the newest is {newest}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// Writes are refused because an earlier one could not be made durable.
    #[error("the store is read-only: {cause}")]
    ReadOnly {
        /// What failed, and what to do about it.
        cause: String,
    },
    /// A file of the store is damaged.
    #[error("{file} is damaged: {cause}")]
    Corrupt {
        /// Which file.
        file: String,
        /// What is wrong with it, and where.
        cause: String,
    },
    /// A value cannot be decrypted, or not encrypted.
    #[error("unable to transform key {key:?}: {cause}")]
    Unreadable {
        /// Whose value.
        key: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The key and value together are larger than the engine accepts.
    #[error("the write of {size} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// How large the write is.
        size: usize,
        /// The most the engine accepts.
        limit: usize,
    },
    /// A file could not be created, read or written, outside of the ordinary course of writes.
    #[error("{doing} {file} failed: {cause}")]
    File {
        /// What was being done, as in "opening".
        doing: String,
        /// To which file.
        file: String,
        /// What the operating system said.
        cause: String,
    },
    /// The engine cannot be reached or has stopped; the write may or may not have happened.
    #[error("the store is unavailable: {cause}")]
    Unavailable {
        /// What happened.
        cause: String,
    },
}

impl Error {
    pub(crate) fn file(doing: &str, file: &std::path::Path, cause: &std::io::Error) -> Self {
        Self::File {
            doing: doing.to_owned(),
            file: file.display().to_string(),
            cause: cause.to_string(),
        }
    }
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The store's contract; the header of this crate says it in words, `tests/it/contract.rs` in code.
#[async_trait::async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The newest revision; every write acknowledged before the call is included.
    async fn revision(&self) -> Result<Revision>;

    /// The newest state of a key.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>>;

    /// The keys in `start..end` (end exclusive), at most `limit` of them (0: all), now or at a
    /// revision. Revision 0 means now, as in etcd.
    async fn range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<Range>;

    /// Changes a key if the expectation holds. Returns once the change is durable. Deleting a key
    /// that is absent, as expected, changes nothing and is done at the present revision. A caller
    /// that stops waiting does not stop the write.
    async fn write(&self, key: &str, expect: Expect, change: Change) -> Result<Written>;

    /// Every change after `after` to keys that start with `prefix`. A revision in the future is
    /// allowed: the watch stays silent until the store has passed it.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch>;

    /// Tells what a watch would deliver, until it ends; gives the reason. The embedded engine tells a
    /// change from the thread that commits it, before its writer is answered: nobody is woken to be told.
    async fn follow(&self, prefix: &str, after: Revision, tell: Tell) -> Error {
        match self.watch(prefix, after).await {
            Ok(watch) => watch.tell_all(tell).await,
            Err(error) => error,
        }
    }

    /// Forgets the history before `revision`: reads at and watches from earlier revisions fail with
    /// [`Error::Compacted`] afterwards. Compacting what is already compacted is that error too (a
    /// caller that compacts on a timer ignores it), a revision not yet written is
    /// [`Error::Future`].
    async fn compact(&self, revision: Revision) -> Result<()>;

    /// Bytes the store occupies: on disk for the embedded engine, as reported by etcd otherwise.
    async fn size(&self) -> Result<u64>;

    /// Whether a key's value would be stored in another form today, so that a write of the same value is worth it.
    async fn is_stale(&self, _key: &str) -> Result<bool> {
        Ok(false)
    }
}
