//! The embedded engine: a log on disk and the state in memory.
//!
//! # What is written, and when it is safe
//!
//! One thread writes. It takes all writes that are waiting, appends them to the log as one frame
//! with a checksum, waits for the disk once (`fdatasync`), and only then shows them to readers and
//! watchers and answers the callers. So whatever anybody has seen is on disk, and a write that
//! waits alone costs one sync and no delay. A frame survives a crash whole or not at all.
//!
//! # What is on disk
//!
//! | file | content |
//! |---|---|
//! | `log-<sequence>.seg` | a segment of the log: frames of puts, deletions and compactions |
//! | `snapshot-<revision>.img` | all live keys at a compacted revision |
//! | `manifest` | the last segment and a revision that was reached: what the log holds at least |
//! | `lock` | held while the store is open; names the process |
//!
//! Opening reads the newest snapshot and replays the log behind it, history included: a watch
//! resumes after a restart from the revision it saw before. A cut-off write at the end of the log
//! is removed with a warning; damage anywhere else is refused with file and offset, and so is a
//! segment that is missing or empty, the last one too. When the
//! segments that lie wholly before the compaction revision outgrow the live data, a snapshot
//! replaces them while the store keeps working.
//!
//! # When the disk refuses
//!
//! A failed write or sync undoes its batch: the callers get [`Error::ReadOnly`] and nobody sees
//! anything of it. Reads and watches go on. Each later write, and a probe once a second, tries a new
//! segment; the first that succeeds makes the store writable again.
//!
//! # Memory
//!
//! All live values, plus the history since the last compaction, bounded by
//! [`Options::history_bytes`]. Values are shared, not copied: a caller that writes a slice of a
//! larger buffer keeps the whole buffer alive.

mod checkpoint;
pub(crate) mod disk;
#[cfg(test)]
mod fault_tests;
mod frame;
#[cfg(test)]
mod frame_tests;
pub(crate) mod index;
mod log;
pub(crate) mod manifest;
mod queue;
mod read;
pub(crate) mod recovery;
mod segment;
mod watchers;
mod writer;

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use tokio::sync::oneshot;

use crate::{
    Change, Error, Expect, KeyValue, Range, Result, Revision, Store, Tell, Watch, Written, image,
};
use disk::{Disk, RealDisk};
use index::Index;
use log::{Active, Files, Layout, Log, SharedFiles};
use queue::{Queue, Request, Write};
use recovery::{Recovered, Tail};
use watchers::Watchers;
use writer::Writer;

/// The most bytes key and value of one write may have together.
pub const WRITE_LIMIT: usize = 16 << 20;

/// Where the engine reads the wall clock, which decides when keys with a time to live end.
pub trait Clock: Send + Sync + Debug {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// How the engine behaves; the defaults suit a cluster on one machine.
#[derive(Debug, Clone)]
pub struct Options {
    /// History is trimmed, oldest first, when it takes more memory than this. Default 8 MiB.
    pub history_bytes: usize,
    /// A segment of the log is followed by a new one at this size. Default 16 MiB.
    pub segment_bytes: u64,
    /// Disk space for a segment is reserved in steps of this size. Default 4 MiB.
    pub reserve_bytes: u64,
    /// No checkpoint is made for less log than this. Default 16 MiB.
    pub checkpoint_bytes: u64,
    /// How many writes may wait for the disk; further callers wait for room. Default 1024.
    pub queue: usize,
    /// How many batches a watch may lag behind before it is ended. Default 4096.
    pub watch_buffer: usize,
    /// The clock for keys with a time to live. Default the machine's.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history_bytes: 8 << 20,
            segment_bytes: 16 << 20,
            reserve_bytes: 4 << 20,
            checkpoint_bytes: 16 << 20,
            queue: 1024,
            watch_buffer: 4096,
            clock: Arc::new(SystemClock),
        }
    }
}

/// What the engine did since it was opened, and how big it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read; 0 if nothing was ever compacted.
    pub compacted: Revision,
    /// Keys that exist.
    pub live_keys: usize,
    /// Bytes of their keys and values.
    pub live_bytes: usize,
    /// Memory the history takes, estimated.
    pub history_bytes: usize,
    /// Watches running.
    pub watches: usize,
    /// Changes made.
    pub commits: u64,
    /// Frames written: commits divided by this is the mean size of a group commit.
    pub batches: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Time spent writing and syncing the log.
    pub sync_time: Duration,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Why the store is read-only, if it is.
    pub read_only: Option<String>,
}

/// What a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backup {
    /// The revision it is true for.
    pub revision: Revision,
    /// How many keys it has.
    pub keys: usize,
    /// The file's length.
    pub bytes: u64,
}

/// The engine. Dropping it waits for the writes under way and ends it.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Holds the lock; another process can open the store when this is closed.
    lock: Mutex<Option<File>>,
}

/// What the callers' threads, the writer and the checkpoint thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    dir: PathBuf,
    options: Options,
    index: RwLock<Index>,
    watchers: Mutex<Watchers>,
    files: SharedFiles,
    queue: Queue,
    counters: Counters,
    read_only: Mutex<Option<String>>,
}

/// Counts since the store was opened.
#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    batches: AtomicU64,
    bytes: AtomicU64,
    sync_nanos: AtomicU64,
}

impl Embedded {
    /// Opens the store in a directory, creating it if needed. Blocks while it reads the log: call
    /// it before serving, or on a blocking thread.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Arc<Self>> {
        Self::open_on(dir.as_ref(), options, Arc::new(RealDisk))
    }

    fn open_on(dir: &Path, options: Options, disk: Arc<dyn Disk>) -> Result<Arc<Self>> {
        let lock = lock(dir)?;
        let recovered = recovery::recover(dir)?;
        let active = repair(dir, &recovered, disk.as_ref())?;
        let files = SharedFiles::new(Mutex::new(recovered.files));
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            index: RwLock::new(recovered.index),
            watchers: Mutex::default(),
            files: Arc::clone(&files),
            queue: Queue::new(options.queue),
            counters: Counters::default(),
            read_only: Mutex::default(),
            options,
        });
        let layout = Layout {
            segment_bytes: shared.options.segment_bytes,
            reserve_bytes: shared.options.reserve_bytes,
        };
        let log = Log::new(dir, disk, layout, files, recovered.next_sequence, active);
        log.note(shared.read().revision());
        let writer = Writer::new(Arc::clone(&shared), log);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Error::file("starting the writer thread", dir, &error))?;
        Ok(Arc::new(Self {
            shared,
            writer: Mutex::new(Some(thread)),
            lock: Mutex::new(Some(lock)),
        }))
    }

    /// The newest revision, without waiting.
    pub fn revision_now(&self) -> Revision {
        self.shared.read().revision()
    }

    /// The newest state of a key, without waiting.
    pub fn get_now(&self, key: &str) -> Option<KeyValue> {
        let version = self.shared.read().get(key).cloned();
        version.and_then(|version| version.to_key_value())
    }

    /// A range as [`Store::range`] gives it, without waiting.
    pub fn range_now(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<Range> {
        read::range(&self.shared, start, end, limit, at)
    }

    /// What the engine did and how big it is.
    pub fn stats(&self) -> Stats {
        let index = self.shared.read();
        let (revision, compacted, sizes) = (index.revision(), index.compacted(), index.sizes());
        drop(index);
        let counters = &self.shared.counters;
        Stats {
            revision,
            compacted,
            live_keys: sizes.live_keys,
            live_bytes: sizes.live_bytes,
            history_bytes: sizes.history_bytes,
            watches: self.shared.watchers().len(),
            commits: counters.commits.load(Relaxed),
            batches: counters.batches.load(Relaxed),
            log_bytes: counters.bytes.load(Relaxed),
            sync_time: Duration::from_nanos(counters.sync_nanos.load(Relaxed)),
            disk_bytes: self.shared.files().bytes(),
            read_only: self.shared.read_only_cause(),
        }
    }

    /// Makes the writes under way durable, ends the watches and stops. Later writes fail, reads go
    /// on. Blocks until the writer has stopped, which takes one commit and, if one is under way, a
    /// checkpoint. Another process may open the directory afterwards.
    pub fn close(&self) {
        self.shared.queue.close();
        let writer = lock_of(&self.writer).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the store's writer thread panicked");
        }
        if let Some(held) = lock_of(&self.lock).take() {
            // A child that this process is just starting has a copy of the file until it runs its program:
            // closing ours would leave the lock to it for that moment.
            if let Err(error) = rustix::fs::flock(&held, FlockOperation::Unlock) {
                tracing::warn!(%error, "the store's lock ends only when its file is closed");
            }
        }
    }

    /// Writes all live keys at one revision to a file, while the store keeps working. The file is
    /// readable by the owner only and appears under its name when it is complete and on disk;
    /// [`crate::maintenance::restore`] makes a store of it.
    pub async fn backup(&self, path: impl Into<PathBuf>) -> Result<Backup> {
        let (shared, path) = (Arc::clone(&self.shared), path.into());
        let written = tokio::task::spawn_blocking(move || {
            let (revision, versions) = read::snapshot(&shared, Index::revision);
            let bytes = image::write(&path, revision, &versions)
                .map_err(|error| Error::file("writing", &path, &error))?;
            Ok(Backup {
                revision,
                keys: versions.len(),
                bytes,
            })
        });
        written.await.unwrap_or_else(|error| {
            Err(Error::Unavailable {
                cause: format!("the backup was abandoned: {error}"),
            })
        })
    }

    async fn ask<T>(&self, request: Request, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        self.shared.queue.push(request).await?;
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable {
                cause: "its writer thread has stopped".to_owned(),
            })
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait::async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<Revision> {
        Ok(self.revision_now())
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        Ok(self.get_now(key))
    }

    async fn range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<Range> {
        self.range_now(start, end, limit, at)
    }

    async fn write(&self, key: &str, expect: Expect, change: Change) -> Result<Written> {
        let (reply, answer) = oneshot::channel();
        let write = Write {
            key: Arc::from(key),
            expect,
            change,
            reply,
        };
        let size = write.bytes();
        if size > WRITE_LIMIT {
            let limit = WRITE_LIMIT;
            return Err(Error::TooLarge { size, limit });
        }
        self.ask(Request::Write(write), answer).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch> {
        self.shared.watch(prefix, after, None)
    }

    async fn follow(&self, prefix: &str, after: Revision, tell: Tell) -> Error {
        match self.shared.watch(prefix, after, Some(Tell::clone(&tell))) {
            // Only its end is left to come.
            Ok(watch) => watch.tell_all(tell).await,
            Err(error) => error,
        }
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.ask(Request::Compact { revision, reply }, answer).await
    }

    async fn size(&self) -> Result<u64> {
        Ok(self.shared.files().bytes())
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        lock_of(&self.watchers)
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        lock_of(&self.files)
    }

    /// The time now, as the log holds it.
    fn now(&self) -> u64 {
        millis(self.options.clock.now())
    }

    /// When a key that is written now and lives this long ends. Never 0, which means no end.
    fn deadline(&self, ttl: Duration) -> u64 {
        self.now().saturating_add(whole_millis(ttl)).max(1)
    }

    fn set_read_only(&self, cause: Option<String>) {
        *lock_of(&self.read_only) = cause;
    }

    fn read_only_cause(&self) -> Option<String> {
        lock_of(&self.read_only).clone()
    }

    /// Starts a watch. Most of the past is copied before the registry is locked; the rest is copied
    /// under the lock that the writer needs for dispatching, so nothing is missed or sent twice: a
    /// batch that is already in the index but not yet dispatched is in the backlog, and the watch
    /// skips it when it is dispatched.
    fn watch(&self, prefix: &str, after: Revision, tell: Option<Tell>) -> Result<Watch> {
        let mut backlog = Vec::new();
        let copied = self.copy_changes(prefix, after, &mut backlog)?;
        let mut watchers = self.watchers();
        let copied = self.copy_changes(prefix, copied, &mut backlog)?;
        let buffer = self.options.watch_buffer;
        Ok(watchers.add(prefix, copied, after, backlog, buffer, tell))
    }

    /// Copies the changes after a revision. Returns the revision up to which they are complete.
    fn copy_changes(
        &self,
        prefix: &str,
        after: Revision,
        events: &mut Vec<crate::Event>,
    ) -> Result<Revision> {
        let index = self.read();
        let changes: Vec<_> = index.changes_after(after, prefix)?.cloned().collect();
        let copied = index.revision().max(after);
        drop(index);
        events.extend(changes.iter().map(index::Change::to_event));
        Ok(copied)
    }
}

/// Opens and locks the lock file, creating the directory if needed.
fn lock(dir: &Path) -> Result<File> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::file("creating", dir, &error))?;
    let path = dir.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| Error::file("opening", &path, &error))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut holder = String::new();
        // Only for the message; an unreadable holder is an unknown one.
        let _ = file.read_to_string(&mut holder);
        let cause = format!(
            "{} is in use by another process (pid {}); stop it first",
            dir.display(),
            holder.trim()
        );
        return Err(Error::Unavailable { cause });
    }
    name_holder(&mut file).map_err(|error| Error::file("writing", &path, &error))?;
    Ok(file)
}

fn name_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Removes what a crash left behind and opens the last segment for appending.
fn repair(dir: &Path, recovered: &Recovered, disk: &dyn Disk) -> Result<Option<Active>> {
    for path in &recovered.leftovers {
        tracing::info!(path = %path.display(), "removing a file that was never completed or is superseded");
        std::fs::remove_file(path).map_err(|error| Error::file("removing", path, &error))?;
    }
    let active = match &recovered.tail {
        None => None,
        Some(tail) => Some(
            continue_segment(tail, recovered.torn.as_deref(), disk)
                .map_err(|error| Error::file("repairing", &tail.path, &error))?,
        ),
    };
    disk.sync_dir(dir)
        .map_err(|error| Error::file("syncing", dir, &error))?;
    Ok(active)
}

fn continue_segment(tail: &Tail, torn: Option<&str>, disk: &dyn Disk) -> std::io::Result<Active> {
    let file = disk.open(&tail.path)?;
    let mut reserved = tail.length;
    if let Some(torn) = torn {
        tracing::warn!(path = %tail.path.display(), torn, "cutting off a write that a crash interrupted");
        file.truncate(tail.offset)?;
        reserved = tail.offset;
    }
    // A frame that a killed process wrote but did not sync counts from now on, so it must be safe.
    file.sync()?;
    Ok(Active {
        path: tail.path.clone(),
        file,
        nonce: tail.nonce,
        offset: tail.offset,
        reserved,
    })
}

/// A time as the log holds it: milliseconds since the Unix epoch.
fn millis(time: SystemTime) -> u64 {
    whole_millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in milliseconds, rounded up so that a time to live is never cut short.
fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Locks a mutex. A panic elsewhere does not make what it guards unusable: every critical section
/// leaves it whole.
fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
