//! The writer thread: the only one that changes the store.
//!
//! Each turn takes what is queued, decides every write against the state as the earlier writes of
//! the same batch will leave it, puts the changes into one frame, and waits for the disk once. Only
//! then do readers and watchers see the changes, and only then are the callers answered: a conflict
//! too, since it may speak of a write of the same batch.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Shared;
use super::checkpoint::Checkpointer;
use super::frame::{Builder, Record};
use super::index::{Change, Version};
use super::log::Log;
use super::queue::{Taken, Write, closed};
use crate::{Error, Expect, Result, Revision, Written};

/// How often quiet watches hear of progress, deadlines are compared with the clock at least, and a
/// log that failed is tried again.
const BEAT: Duration = Duration::from_secs(1);
/// How many changes a compaction forgets under one lock.
const FORGET_STEP: usize = 512;

/// The writer's own state.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    log: Log,
    /// The live keys that have a deadline, soonest first.
    deadlines: BTreeSet<(u64, Arc<str>)>,
    /// When quiet watches hear of the newest revision.
    progress_due: Option<Instant>,
    /// Whether the last attempt to write failed.
    failed: bool,
    checkpointer: Checkpointer,
    /// Where callers are, if they are tasks.
    runtime: Option<Handle>,
}

/// The writes of one commit.
struct Batch {
    frame: Builder,
    next_revision: Revision,
    changes: Vec<Change>,
    /// The keys the batch has changed so far: what the next write of the batch sees.
    overlay: HashMap<Arc<str>, Arc<Version>>,
    replies: Vec<(oneshot::Sender<Result<Written>>, Written)>,
}

impl Writer {
    /// A writer that continues behind what recovery found.
    pub(crate) fn new(shared: Arc<Shared>, log: Log) -> Self {
        let deadlines = shared
            .read()
            .live()
            .filter(|version| version.deadline != 0)
            .map(|version| (version.deadline, Arc::clone(&version.key)))
            .collect();
        Self {
            checkpointer: Checkpointer::new(Arc::clone(&shared)),
            shared,
            log,
            deadlines,
            progress_due: None,
            failed: false,
            runtime: Handle::try_current().ok(),
        }
    }

    /// Works until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let mut crowd = 0;
        loop {
            let Taken {
                writes,
                compactions,
                ended,
            } = self.shared.queue.take(self.patience(), crowd);
            let committed = writes.len();
            self.commit(writes);
            crowd = committed + self.shared.queue.len();
            for (revision, reply) in compactions {
                // A caller that stopped waiting needs no answer.
                let _ = reply.send(self.compact(revision));
            }
            self.trim_history();
            self.beat();
            if ended {
                break;
            }
        }
        let revision = self.shared.read().revision();
        self.log.close(revision);
        self.shared.watchers().end_all(&closed());
    }

    /// How long the writer may sleep if nothing arrives.
    fn patience(&self) -> Option<Duration> {
        if self.failed {
            return Some(BEAT);
        }
        let deadline = self.deadlines.first().map(|(deadline, _)| {
            // Not longer than a beat: the wall clock may be set.
            Duration::from_millis(deadline.saturating_sub(self.shared.now())).min(BEAT)
        });
        let progress = self
            .progress_due
            .map(|due| due.saturating_duration_since(Instant::now()));
        [deadline, progress].into_iter().flatten().min()
    }

    fn commit(&mut self, writes: Vec<Write>) {
        let mut batch = Batch::new(self.shared.read().revision() + 1);
        for write in writes {
            batch.decide(&self.shared, write);
        }
        self.expire(&mut batch);
        if batch.changes.is_empty() {
            return self.answer(batch, None);
        }
        match self.append(&mut batch.frame) {
            Ok(()) => self.publish(batch),
            Err(error) => self.answer(batch, Some(error)),
        }
    }

    /// Adds the deletion of keys whose time is over.
    fn expire(&mut self, batch: &mut Batch) {
        let now = self.shared.now();
        let due = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now);
        for (deadline, key) in due {
            let current = batch.current(&self.shared, key);
            // A write of this very batch may have given the key more time.
            if let Some(current) = current.filter(|current| current.deadline == *deadline) {
                batch.delete(current);
            }
        }
    }

    fn append(&mut self, frame: &mut Builder) -> Result<()> {
        let started = Instant::now();
        let appended = self.log.append(frame);
        self.note_health(appended.as_ref().err().map(ToString::to_string));
        match appended {
            Ok(bytes) => {
                let counters = &self.shared.counters;
                counters.batches.fetch_add(1, Relaxed);
                counters.bytes.fetch_add(bytes as u64, Relaxed);
                let nanos = started.elapsed().as_nanos() as u64;
                counters.sync_nanos.fetch_add(nanos, Relaxed);
                Ok(())
            }
            Err(failure) => Err(Error::ReadOnly {
                cause: failure.to_string(),
            }),
        }
    }

    /// Remembers, and logs once, that the log cannot be written or can be again.
    fn note_health(&mut self, failure: Option<String>) {
        match (&failure, self.failed) {
            (Some(cause), false) => {
                tracing::error!(cause, "the store is read-only");
            }
            (None, true) => tracing::info!("the store is writable again"),
            _ => {}
        }
        self.failed = failure.is_some();
        self.shared.set_read_only(failure);
    }

    /// Shows a durable batch to everybody.
    fn publish(&mut self, batch: Batch) {
        for change in &batch.changes {
            self.note_deadline(change);
        }
        let mut index = self.shared.write();
        for change in &batch.changes {
            index.apply(change.clone());
        }
        drop(index);
        let commits = batch.changes.len() as u64;
        self.shared.counters.commits.fetch_add(commits, Relaxed);
        let mut watchers = self.shared.watchers();
        watchers.dispatch(&batch.changes);
        if watchers.len() > 0 && self.progress_due.is_none() {
            self.progress_due = Some(Instant::now() + BEAT);
        }
        drop(watchers);
        self.answer(batch, None);
    }

    // Many callers are answered by a task of theirs: one thread is woken, not one for each, and whoever has asked
    // for several things finds all the answers at once.
    fn answer(&self, batch: Batch, error: Option<Error>) {
        match &self.runtime {
            Some(runtime) if batch.replies.len() > 1 => {
                runtime.spawn(async move { batch.answer(error) });
            }
            _ => batch.answer(error),
        }
    }

    fn note_deadline(&mut self, change: &Change) {
        let Change { version, previous } = change;
        if let Some(previous) = previous.as_ref().filter(|p| p.deadline != 0) {
            self.deadlines
                .remove(&(previous.deadline, Arc::clone(&previous.key)));
        }
        if version.deadline != 0 {
            self.deadlines
                .insert((version.deadline, Arc::clone(&version.key)));
        }
    }

    fn compact(&mut self, revision: Revision) -> Result<()> {
        let index = self.shared.read();
        index.check_compactable(revision)?;
        let mut frame = Builder::new(index.revision() + 1);
        drop(index);
        frame.push(Record::Compact { revision });
        self.append(&mut frame)?;
        self.shared.write().compact(revision);
        loop {
            let garbage = self.shared.write().forget(FORGET_STEP);
            // Dropped here, outside the lock.
            if garbage.is_none() {
                break;
            }
        }
        self.checkpointer.consider(revision);
        Ok(())
    }

    /// Keeps the history within its bound. Trims a quarter at a time, so that it is not done for
    /// every batch.
    fn trim_history(&mut self) {
        let bound = self.shared.options.history_bytes;
        let index = self.shared.read();
        if index.sizes().history_bytes <= bound || self.failed {
            return;
        }
        let revision = index.revision_to_keep(bound / 4 * 3);
        drop(index);
        match self.compact(revision) {
            Ok(()) => tracing::debug!(revision, "history trimmed to its bound"),
            Err(error) => tracing::warn!(%error, "could not trim the history"),
        }
    }

    /// What is due once per beat.
    fn beat(&mut self) {
        if self.progress_due.is_some_and(|due| due <= Instant::now()) {
            self.progress_due = None;
            let revision = self.shared.read().revision();
            self.shared.watchers().progress(revision);
        }
        if self.failed {
            let next = self.shared.read().revision() + 1;
            let failure = self.log.probe(next).err();
            self.note_health(failure.map(|failure| failure.to_string()));
        }
    }
}

impl Batch {
    fn new(next_revision: Revision) -> Self {
        Self {
            frame: Builder::new(next_revision),
            next_revision,
            changes: Vec::new(),
            overlay: HashMap::new(),
            replies: Vec::new(),
        }
    }

    /// The live version of a key as the next write of the batch sees it.
    fn current(&self, shared: &Shared, key: &str) -> Option<Arc<Version>> {
        match self.overlay.get(key) {
            Some(version) => version.is_live().then(|| Arc::clone(version)),
            None => shared.read().get(key).cloned(),
        }
    }

    /// Takes a write in, or finds that its condition does not hold.
    fn decide(&mut self, shared: &Shared, write: Write) {
        let current = self.current(shared, &write.key);
        let modified = current.as_ref().map_or(0, |version| version.modified);
        // As in etcd, an absent key counts as modified at revision 0.
        let expected = match write.expect {
            Expect::Absent => 0,
            Expect::Modified(revision) => revision,
        };
        let written = if modified != expected {
            Written::Conflict(current.and_then(|version| version.to_key_value()))
        } else {
            self.change(shared, current, write.key, write.change)
        };
        self.replies.push((write.reply, written));
    }

    fn change(
        &mut self,
        shared: &Shared,
        current: Option<Arc<Version>>,
        key: Arc<str>,
        change: crate::Change,
    ) -> Written {
        match (change, current) {
            (crate::Change::Put { value, ttl }, current) => {
                let deadline = ttl.map_or(0, |ttl| shared.deadline(ttl));
                self.frame.push(Record::Put {
                    key: &key,
                    value: &value,
                    deadline,
                });
                let created = current.as_ref().map_or(self.next_revision, |c| c.created);
                let key = current.as_ref().map_or(key, |c| Arc::clone(&c.key));
                Written::Done(self.push(current, |modified| Version {
                    key,
                    value: Some(value),
                    created,
                    modified,
                    deadline,
                }))
            }
            (crate::Change::Delete, Some(current)) => Written::Done(self.delete(current)),
            (crate::Change::Delete, None) => Written::Done(self.next_revision - 1),
        }
    }

    fn delete(&mut self, current: Arc<Version>) -> Revision {
        let key = Arc::clone(&current.key);
        self.frame.push(Record::Delete { key: &key });
        self.push(Some(current), |modified| Version {
            key,
            value: None,
            created: modified,
            modified,
            deadline: 0,
        })
    }

    fn push(
        &mut self,
        previous: Option<Arc<Version>>,
        version: impl FnOnce(Revision) -> Version,
    ) -> Revision {
        let revision = self.next_revision;
        let version = Arc::new(version(revision));
        self.overlay
            .insert(Arc::clone(&version.key), Arc::clone(&version));
        self.changes.push(Change { version, previous });
        self.next_revision += 1;
        revision
    }

    /// Answers the callers: with the outcomes, or all with the error that undid the batch.
    fn answer(self, error: Option<Error>) {
        for (reply, written) in self.replies {
            let outcome = error.clone().map_or(Ok(written), Err);
            // A caller that stopped waiting needs no answer.
            let _ = reply.send(outcome);
        }
    }
}
