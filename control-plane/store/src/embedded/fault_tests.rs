//! What happens when the disk refuses: full, failing to sync, or unable to undo.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::disk::{Disk, DiskFile, RealDisk};
use super::{Clock, Embedded, Options};
use crate::{Change, Error, Expect, Result, Store, WatchItem, Written};

/// What goes wrong at the moment.
#[derive(Debug, Clone, Default)]
struct Faults {
    /// After this many bytes the disk is full.
    room: Option<usize>,
    /// Syncs fail.
    sync: bool,
    /// Cutting a file fails.
    truncate: bool,
    /// Files cannot be created.
    create: bool,
}

/// A real disk with faults.
#[derive(Debug, Clone, Default)]
struct FaultyDisk(Arc<Mutex<Faults>>);

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn DiskFile>,
    faults: Arc<Mutex<Faults>>,
}

impl FaultyDisk {
    fn set(&self, faults: Faults) {
        *self.0.lock().unwrap() = faults;
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let faults = Arc::clone(&self.0);
        Box::new(FaultyFile { file, faults })
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.0.lock().unwrap().create {
            return Err(no_space());
        }
        RealDisk.create(path).map(|file| self.wrap(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        RealDisk.open(path).map(|file| self.wrap(file))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
}

impl DiskFile for FaultyFile {
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let room = self.faults.lock().unwrap().room;
        match room {
            Some(room) if room < bytes.len() => {
                self.file.write_at(&bytes[..room], offset)?;
                Err(no_space())
            }
            _ => self.file.write_at(bytes, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        match self.faults.lock().unwrap().sync {
            true => Err(rustix::io::Errno::IO.into()),
            false => Ok(()),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        match self.faults.lock().unwrap().truncate {
            true => Err(rustix::io::Errno::IO.into()),
            false => self.file.truncate(len),
        }
    }
}

fn no_space() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

/// A store on a disk with faults.
struct Bench {
    dir: tempfile::TempDir,
    disk: FaultyDisk,
    store: Arc<Embedded>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let store = open(dir.path(), &disk, Options::default());
        Self { dir, disk, store }
    }

    /// Ends the store and opens it again on a sound disk.
    fn reopen(self) -> Self {
        let Self { dir, disk, store } = self;
        store.close();
        disk.set(Faults::default());
        let store = open(dir.path(), &disk, Options::default());
        Self { dir, disk, store }
    }

    async fn put(&self, key: &str) -> Result<Written> {
        self.store.write(key, Expect::Absent, put(key)).await
    }

    fn keys(&self) -> Vec<String> {
        let all = self.store.range_now("", "\u{10ffff}", 0, None).unwrap();
        all.entries.into_iter().map(|entry| entry.key).collect()
    }

    /// Waits until the store has noticed that it can, or cannot, write.
    async fn wait_writable(&self, writable: bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while self.store.stats().read_only.is_none() != writable {
            assert!(tokio::time::Instant::now() < deadline, "nothing happened");
            tokio::task::yield_now().await;
        }
    }
}

fn open(dir: &Path, disk: &FaultyDisk, options: Options) -> Arc<Embedded> {
    Embedded::open_on(dir, options, Arc::new(disk.clone())).unwrap()
}

fn put(value: &str) -> Change {
    Change::Put {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

fn full() -> Faults {
    Faults {
        room: Some(10),
        create: true,
        ..Faults::default()
    }
}

fn assert_read_only(written: Result<Written>, says: &str) {
    match written {
        Err(Error::ReadOnly { cause }) => assert!(cause.contains(says), "{cause}"),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_space() {
    let bench = Bench::new();
    bench.put("a").await.unwrap();
    let mut watch = bench.store.watch("", 0).await.unwrap();
    bench.disk.set(full());
    for key in ["b", "c"] {
        assert_read_only(bench.put(key).await, "free space in");
        assert_eq!(bench.store.get(key).await.unwrap(), None);
    }
    bench.wait_writable(false).await;
    assert_eq!(bench.keys(), ["a"]);
    assert_eq!(bench.store.revision_now(), 2);
    bench.disk.set(Faults::default());
    assert_eq!(bench.put("d").await.unwrap(), Written::Done(3));
    assert_eq!(bench.store.stats().read_only, None);
    for revision in [2, 3] {
        let Some(Ok(WatchItem::Events(events))) = watch.next().await else {
            panic!("the watch did not go on");
        };
        assert_eq!(events[0].revision, revision);
    }
    let bench = bench.reopen();
    assert_eq!(bench.keys(), ["a", "d"]);
    assert_eq!(bench.store.revision_now(), 3);
}

#[tokio::test]
async fn the_store_becomes_writable_by_itself() {
    let bench = Bench::new();
    bench.disk.set(full());
    assert_read_only(bench.put("a").await, "No space left");
    bench.disk.set(Faults::default());
    bench.wait_writable(true).await;
    assert_eq!(bench.put("b").await.unwrap(), Written::Done(2));
}

#[tokio::test]
async fn a_write_cut_off_at_any_byte_leaves_nothing_behind() {
    for undo in [true, false] {
        for room in 0..48 {
            let bench = Bench::new();
            bench.put("a").await.unwrap();
            bench.disk.set(Faults {
                room: Some(room),
                truncate: !undo,
                create: true,
                ..Faults::default()
            });
            assert_read_only(bench.put("b").await, "writing");
            let bench = bench.reopen();
            assert_eq!(bench.keys(), ["a"], "{room} bytes, undo {undo}");
            assert_eq!(bench.put("c").await.unwrap(), Written::Done(3));
            let bench = bench.reopen();
            assert_eq!(bench.keys(), ["a", "c"], "{room} bytes, undo {undo}");
        }
    }
}

#[tokio::test]
async fn a_write_whose_sync_failed_does_not_come_back() {
    for undo in [true, false] {
        let bench = Bench::new();
        bench.put("a").await.unwrap();
        bench.disk.set(Faults {
            sync: true,
            truncate: !undo,
            ..Faults::default()
        });
        assert_read_only(bench.put("b").await, "check the disk");
        bench.disk.set(Faults::default());
        // The whole frame of the failed write may be in the old segment; this one replaces it.
        assert_eq!(bench.put("c").await.unwrap(), Written::Done(3));
        let bench = bench.reopen();
        assert_eq!(bench.keys(), ["a", "c"], "undo {undo}");
        assert_eq!(bench.store.revision_now(), 3);
        crate::maintenance::check(bench.dir.path()).unwrap();
    }
}

#[tokio::test]
async fn a_first_write_that_fails_can_be_made_again() {
    let bench = Bench::new();
    bench.disk.set(Faults {
        sync: true,
        truncate: true,
        ..Faults::default()
    });
    assert_read_only(bench.put("a").await, "syncing");
    bench.disk.set(Faults {
        room: Some(40),
        ..Faults::default()
    });
    // Now the header fits, and the frame does not.
    assert_read_only(bench.put("a").await, "writing");
    bench.disk.set(Faults::default());
    assert_eq!(bench.put("a").await.unwrap(), Written::Done(2));
    assert_eq!(bench.reopen().keys(), ["a"]);
}

#[tokio::test]
async fn all_writers_of_a_failed_batch_are_refused_and_none_of_their_keys_exist() {
    let bench = Bench::new();
    bench.put("a").await.unwrap();
    bench.disk.set(full());
    let writers: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(&bench.store);
            tokio::spawn(async move {
                store
                    .write(&format!("k{number}"), Expect::Absent, put("v"))
                    .await
            })
        })
        .collect();
    for writer in writers {
        assert_read_only(writer.await.unwrap(), "free space");
    }
    assert_eq!(bench.keys(), ["a"]);
    assert_eq!(bench.reopen().keys(), ["a"]);
}

#[tokio::test]
async fn compaction_on_a_full_disk_is_refused_and_forgets_nothing() {
    let bench = Bench::new();
    bench.put("a").await.unwrap();
    bench.put("b").await.unwrap();
    bench.disk.set(full());
    let refused = bench.store.compact(3).await.unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
    assert_eq!(bench.store.range_now("", "z", 0, Some(2)).unwrap().count, 1);
}

#[derive(Debug, Clone)]
struct HandClock(Arc<Mutex<SystemTime>>);

impl Clock for HandClock {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

#[tokio::test]
async fn keys_that_end_while_the_disk_is_full_are_deleted_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let clock = HandClock(Arc::new(Mutex::new(SystemTime::now())));
    let options = Options {
        clock: Arc::new(clock.clone()),
        ..Options::default()
    };
    let store = open(dir.path(), &disk, options);
    let change = Change::Put {
        value: Bytes::new(),
        ttl: Some(Duration::from_secs(60)),
    };
    store.write("a", Expect::Absent, change).await.unwrap();
    let mut watch = store.watch("", 2).await.unwrap();
    disk.set(full());
    *clock.0.lock().unwrap() += Duration::from_secs(61);
    let bench = Bench { dir, disk, store };
    bench.wait_writable(false).await;
    assert_eq!(bench.keys(), ["a"]);
    bench.disk.set(Faults::default());
    let Some(Ok(WatchItem::Events(events))) = watch.next().await else {
        panic!("no event");
    };
    assert_eq!((events[0].revision, &events[0].current), (3, &None));
}

/// A disk that keeps what was written since the last sync in memory, until the power is cut: then a
/// random part of it, by sectors, has reached the platter, and nothing works any more.
#[derive(Debug, Clone, Default)]
struct FragileDisk {
    state: Arc<Mutex<Fragile>>,
}

#[derive(Debug, Default)]
struct Fragile {
    random: u64,
    /// Operations left until the power is cut.
    left: u64,
}

#[derive(Debug)]
struct FragileFile {
    file: Box<dyn DiskFile>,
    unsynced: Mutex<Vec<(Vec<u8>, u64)>>,
    state: Arc<Mutex<Fragile>>,
}

impl FragileDisk {
    fn with_power_for(operations: u64) -> Self {
        let state = Fragile {
            random: operations.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            left: operations,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FragileFile {
            file,
            unsynced: Mutex::default(),
            state: Arc::clone(&self.state),
        })
    }
}

impl Fragile {
    /// Uses power up; an error when there is none.
    fn work(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(rustix::io::Errno::IO)?;
        Ok(())
    }

    fn coin(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random & 1 == 1
    }
}

impl Disk for FragileDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.state.lock().unwrap().work()?;
        RealDisk.create(path).map(|file| self.wrap(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.state.lock().unwrap().work()?;
        RealDisk.open(path).map(|file| self.wrap(file))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.state.lock().unwrap().work()
    }
}

impl DiskFile for FragileFile {
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.state.lock().unwrap().work()?;
        self.file.allocate(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.state.lock().unwrap().work()?;
        self.unsynced.lock().unwrap().push((bytes.to_vec(), offset));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        const SECTOR: u64 = 512;
        let mut state = self.state.lock().unwrap();
        let powered = state.work();
        for (bytes, offset) in self.unsynced.lock().unwrap().drain(..) {
            let end = offset + bytes.len() as u64;
            let mut at = offset;
            while at < end {
                let until = (at / SECTOR * SECTOR + SECTOR).min(end);
                let sector = &bytes[(at - offset) as usize..(until - offset) as usize];
                if powered.is_ok() || state.coin() {
                    self.file.write_at(sector, at)?;
                }
                at = until;
            }
        }
        powered
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.state.lock().unwrap().work()?;
        self.file.truncate(len)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_cut_at_any_step() {
    let small = || Options {
        segment_bytes: 8_000,
        reserve_bytes: 2_000,
        ..Options::default()
    };
    for operations in 0..60 {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(FragileDisk::with_power_for(operations));
        let Ok(store) = Embedded::open_on(dir.path(), small(), disk) else {
            assert_eq!(operations, 0, "only the very first step is part of opening");
            continue;
        };
        let writers: Vec<_> = (0..3)
            .map(|writer| tokio::spawn(write_until_dark(Arc::clone(&store), writer)))
            .collect();
        let mut promised = Vec::new();
        for writer in writers {
            promised.extend(writer.await.unwrap());
        }
        drop(store);
        let store = Embedded::open(dir.path(), small()).unwrap();
        for (key, revision) in promised {
            let found = store
                .get_now(&key)
                .map(|kv| (kv.mod_revision, kv.value.len()));
            assert_eq!(
                found,
                Some((revision, 1500)),
                "{key} after {operations} steps"
            );
        }
        let all = store.range_now("", "z", 0, None).unwrap();
        assert_eq!(all.count as u64, store.revision_now() - 1, "a gap");
    }
}

/// Writes until a write fails; returns what was acknowledged.
async fn write_until_dark(store: Arc<Embedded>, writer: u32) -> Vec<(String, u64)> {
    let mut acknowledged = Vec::new();
    loop {
        let key = format!("{writer}/{}", acknowledged.len());
        let change = Change::Put {
            value: Bytes::from(vec![b'v'; 1500]),
            ttl: None,
        };
        match store.write(&key, Expect::Absent, change).await {
            Ok(Written::Done(revision)) => acknowledged.push((key, revision)),
            Ok(other) => panic!("{other:?}"),
            Err(_) => return acknowledged,
        }
    }
}
