//! The running watches, found by prefix.
//!
//! A key's watches are looked up once per distinct prefix length, however many watches there are.
//! The writer never waits for a reader: a watch whose channel is full is ended. A follower has no channel: it is
//! told by the writer itself, which is why it has to be quick.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::index::Change;
use crate::watch::{Ending, Watch};
use crate::{Error, Event, Result, Revision, Tell, WatchItem};

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchers")
            .field("lengths", &self.lengths)
            .finish_non_exhaustive()
    }
}

/// The most events of the past delivered in one item.
const BACKLOG_CHUNK: usize = 1000;

/// All watches of a store.
#[derive(Default)]
pub(crate) struct Watchers {
    groups: HashMap<String, Vec<Watcher>>,
    /// How many groups have a prefix of each length.
    lengths: BTreeMap<usize, usize>,
}

struct Watcher {
    /// Changes up to here were delivered with the backlog or not asked for.
    after: Revision,
    /// The newest revision the reader knows about.
    told: Revision,
    /// Who is told from this thread; otherwise items go through the channel.
    tell: Option<Tell>,
    sender: mpsc::Sender<Result<WatchItem>>,
    ending: Ending,
    /// The events of the batch being dispatched.
    pending: Vec<Event>,
}

impl Watchers {
    /// Registers a watch that first delivers `backlog` and then every change after `after`. If
    /// nothing matching happened since `known`, the reader is told so.
    pub(crate) fn add(
        &mut self,
        prefix: &str,
        after: Revision,
        known: Revision,
        backlog: Vec<Event>,
        capacity: usize,
        tell: Option<Tell>,
    ) -> Watch {
        let (sender, receiver) = mpsc::channel(capacity);
        let ending = Ending::default();
        let news = backlog.last().map_or(known, |event| event.revision) < after;
        let mut backlog = chunks(backlog);
        backlog.extend(news.then_some(WatchItem::Progress(after)));
        if let Some(tell) = &tell {
            // Before any later change: those wait for the lock that the caller holds.
            backlog.drain(..).for_each(&**tell);
        }
        let group = self.groups.entry(prefix.to_owned()).or_default();
        if group.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        group.push(Watcher {
            after,
            told: after,
            tell,
            sender,
            ending: Ending::clone(&ending),
            pending: Vec::new(),
        });
        Watch::with_backlog(backlog, receiver, ending)
    }

    /// How many watches run.
    pub(crate) fn len(&self) -> usize {
        self.groups.values().map(Vec::len).sum()
    }

    /// Delivers the changes of a batch.
    pub(crate) fn dispatch(&mut self, changes: &[Change]) {
        let mut touched = Vec::new();
        for change in changes {
            let key = &change.version.key;
            let prefixes = self.lengths.keys().filter_map(|&len| key.get(..len));
            for prefix in prefixes {
                let Some(group) = self.groups.get_mut(prefix) else {
                    continue;
                };
                for watcher in group.iter_mut() {
                    watcher.take(change);
                }
                touched.push(prefix);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        for prefix in touched {
            self.sweep(prefix, Watcher::flush);
        }
    }

    /// Tells quiet watches how far the store is.
    pub(crate) fn progress(&mut self, revision: Revision) {
        let prefixes: Vec<String> = self.groups.keys().cloned().collect();
        for prefix in prefixes {
            self.sweep(&prefix, |watcher| watcher.progress(revision));
        }
    }

    /// Ends every watch.
    pub(crate) fn end_all(&mut self, reason: &Error) {
        for watcher in self.groups.drain().flat_map(|(_, group)| group) {
            watcher.end(reason.clone());
        }
        self.lengths.clear();
    }

    /// Keeps the watches of a prefix for which `alive` says so.
    fn sweep(&mut self, prefix: &str, alive: impl FnMut(&mut Watcher) -> bool) {
        let Some(group) = self.groups.get_mut(prefix) else {
            return;
        };
        group.retain_mut(alive);
        if group.is_empty() {
            self.groups.remove(prefix);
            self.forget_length(prefix.len());
        }
    }

    fn forget_length(&mut self, len: usize) {
        if let Some(count) = self.lengths.get_mut(&len) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&len);
            }
        }
    }
}

impl Watcher {
    fn take(&mut self, change: &Change) {
        if change.version.modified > self.after {
            self.pending.push(change.to_event());
        }
    }

    /// Sends what was taken. Returns whether the watch goes on.
    fn flush(&mut self) -> bool {
        let events = std::mem::take(&mut self.pending);
        let Some(last) = events.last() else {
            return true;
        };
        self.told = last.revision;
        match self.send(WatchItem::Events(events)) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(_)) => {
                self.end(Error::Unavailable {
                    cause: "the watch was ended because its reader fell behind".to_owned(),
                });
                false
            }
        }
    }

    /// Sends a progress item if it is news. A full channel needs none: its reader has enough to do.
    fn progress(&mut self, revision: Revision) -> bool {
        if self.told >= revision {
            return !self.sender.is_closed();
        }
        match self.send(WatchItem::Progress(revision)) {
            Ok(()) => {
                self.told = revision;
                true
            }
            Err(TrySendError::Full(_)) => true,
            Err(TrySendError::Closed(_)) => false,
        }
    }

    fn send(&self, item: WatchItem) -> Result<(), TrySendError<Result<WatchItem>>> {
        match &self.tell {
            None => self.sender.try_send(Ok(item)),
            Some(_) if self.sender.is_closed() => Err(TrySendError::Closed(Ok(item))),
            Some(tell) => {
                tell(item);
                Ok(())
            }
        }
    }

    fn end(&self, reason: Error) {
        // Set once only: a watch is removed when it ends.
        let _ = self.ending.set(reason);
    }
}

fn chunks(events: Vec<Event>) -> VecDeque<WatchItem> {
    let mut chunks = VecDeque::with_capacity(events.len().div_ceil(BACKLOG_CHUNK));
    let mut events = events.into_iter().peekable();
    while events.peek().is_some() {
        let chunk = events.by_ref().take(BACKLOG_CHUNK).collect();
        chunks.push_back(WatchItem::Events(chunk));
    }
    chunks
}
