//! The embedded engine over its life: restarts, clocks, bounds, locks and a disk that fills up.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use harness::{eventually_async, skip};
use store::embedded::{Options, WRITE_LIMIT};
use store::{Change, Embedded, Error, Expect, Store, WatchItem, Written};

use crate::engines::{ManualClock, done, events, next, put};

fn open(dir: &Path) -> Arc<Embedded> {
    Embedded::open(dir, Options::default()).unwrap()
}

/// Waits for something that is bound to happen.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    eventually_async(what, async || happened()).await;
}

#[tokio::test]
async fn a_restart_keeps_keys_revisions_history_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut last = done(&*store, "/a", Expect::Absent, put("0")).await;
    let born = last;
    for number in 1..20 {
        last = done(
            &*store,
            "/a",
            Expect::Modified(last),
            put(number.to_string()),
        )
        .await;
    }
    store.compact(10).await.unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.revision_now(), last);
    let key = store.get_now("/a").unwrap();
    assert_eq!((key.create_revision, key.mod_revision), (born, last));
    assert_eq!(
        store.range_now("", "z", 0, Some(10)).unwrap().entries[0].value,
        "8"
    );
    let gone = store.range_now("", "z", 0, Some(9)).unwrap_err();
    assert!(
        matches!(
            gone,
            Error::Compacted {
                requested: 9,
                oldest: 10
            }
        ),
        "{gone:?}"
    );
    let mut watch = store.watch("", 12).await.unwrap();
    let seen = events(&mut watch, (last - 12) as usize).await;
    assert_eq!(seen[0].previous.as_ref().unwrap().value, "10");
    assert_eq!(
        done(&*store, "/b", Expect::Absent, put("v")).await,
        last + 1
    );
}

#[tokio::test]
async fn a_second_opener_is_refused_and_told_who_holds_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let error = Embedded::open(dir.path(), Options::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("in use"), "{text}");
    assert!(text.contains(&std::process::id().to_string()), "{text}");
    store.close();
    open(dir.path());
}

#[tokio::test]
async fn keys_end_when_the_clock_says_so_even_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let options = Options {
        clock: Arc::new(clock.clone()),
        ..Options::default()
    };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    let lives = |seconds| Change::Put {
        value: Bytes::from("v"),
        ttl: Some(Duration::from_secs(seconds)),
    };
    for (key, seconds) in [("/10", 10), ("/20", 20), ("/30", 30)] {
        done(&*store, key, Expect::Absent, lives(seconds)).await;
    }
    // Given more time, before its first deadline.
    let twenty = store.get_now("/20").unwrap().mod_revision;
    let last = done(&*store, "/20", Expect::Modified(twenty), lives(40)).await;
    let mut watch = store.watch("", last).await.unwrap();
    clock.advance(Duration::from_secs(10));
    assert_eq!(events(&mut watch, 1).await[0].key, "/10");
    clock.advance(Duration::from_secs(15));
    store.close();
    clock.advance(Duration::from_secs(10));
    let store = Embedded::open(dir.path(), options).unwrap();
    let mut watch = store.watch("", last + 1).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].key, "/30");
    assert!(store.get_now("/20").is_some());
    clock.advance(Duration::from_secs(5));
    assert_eq!(events(&mut watch, 1).await[0].key, "/20");
    assert_eq!(store.revision_now(), last + 3);
}

#[tokio::test]
async fn a_key_rewritten_at_its_last_moment_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let options = Options {
        clock: Arc::new(clock.clone()),
        ..Options::default()
    };
    let store = Embedded::open(dir.path(), options).unwrap();
    loop {
        let change = Change::Put {
            value: Bytes::from("short"),
            ttl: Some(Duration::from_secs(10)),
        };
        let born = done(&*store, "/a", Expect::Absent, change).await;
        clock.advance(Duration::from_secs(10));
        // Either the store deletes the key first, or this write saves it for good.
        let written = store.write("/a", Expect::Modified(born), put("long")).await;
        if let Written::Done(saved) = written.unwrap() {
            assert_eq!(store.get_now("/a").unwrap().mod_revision, saved);
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn watches_that_start_beside_busy_writers_miss_nothing() {
    const PAST: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let (key, mut last) = (format!("/{writer}"), 0);
                while !stop.load(Relaxed) {
                    last = done(&*store, &key, Expect::Modified(last), put("v")).await;
                }
            })
        })
        .collect();
    until("enough history", || store.revision_now() > PAST).await;
    for _ in 0..400 {
        let after = store.revision_now() - PAST;
        let mut watch = store.watch("/", after).await.unwrap();
        let mut seen = after;
        while seen < after + PAST + 20 {
            if let WatchItem::Events(events) = next(&mut watch).await.unwrap().unwrap() {
                for event in events {
                    assert_eq!(event.revision, seen + 1);
                    seen = event.revision;
                }
            }
        }
    }
    stop.store(true, Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn a_watch_that_is_not_read_is_ended_and_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        watch_buffer: 4,
        ..Options::default()
    };
    let store = Embedded::open(dir.path(), options).unwrap();
    let mut slow = store.watch("/", 1).await.unwrap();
    for number in 0..10 {
        done(&*store, &format!("/{number}"), Expect::Absent, put("v")).await;
    }
    assert_eq!(store.stats().watches, 0);
    let mut last = 1;
    let error = loop {
        match next(&mut slow).await.unwrap() {
            Ok(WatchItem::Events(events)) => {
                assert_eq!(events[0].revision, last + 1);
                last = events.last().unwrap().revision;
            }
            Ok(WatchItem::Progress(_)) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("fell behind"), "{error}");
    assert!(next(&mut slow).await.is_none());
    let mut again = store.watch("/", last).await.unwrap();
    assert_eq!(
        events(&mut again, (11 - last) as usize).await[0].revision,
        last + 1
    );
}

#[tokio::test]
async fn a_dropped_watch_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let watches = [
        store.watch("/a", 1).await.unwrap(),
        store.watch("/b", 1).await.unwrap(),
    ];
    assert_eq!(store.stats().watches, 2);
    drop(watches);
    done(&*store, "/a", Expect::Absent, put("v")).await;
    until("the watches are gone", || store.stats().watches == 0).await;
}

#[tokio::test]
async fn history_is_trimmed_to_its_bound_and_live_keys_stay() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        history_bytes: 100_000,
        ..Options::default()
    };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    let kept = done(&*store, "/kept", Expect::Absent, put("v")).await;
    let mut last = 0;
    for _ in 0..300 {
        last = done(&*store, "/a", Expect::Modified(last), put(vec![7; 2000])).await;
    }
    until("trimmed", || store.stats().history_bytes <= 100_000).await;
    let stats = store.stats();
    assert!(stats.history_bytes > 50_000, "more was dropped than needed");
    assert!(stats.compacted > kept);
    let gone = store.watch("", stats.compacted - 1).await.unwrap_err();
    assert!(matches!(gone, Error::Compacted { .. }));
    let mut watch = store.watch("", stats.compacted).await.unwrap();
    events(&mut watch, (last - stats.compacted) as usize).await;
    drop(store);
    let store = Embedded::open(dir.path(), options).unwrap();
    assert_eq!(store.stats().compacted, stats.compacted);
    assert_eq!(store.get_now("/kept").unwrap().create_revision, kept);
}

#[tokio::test]
async fn checkpoints_keep_the_disk_small_and_the_history_whole() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 50_000,
        reserve_bytes: 10_000,
        checkpoint_bytes: 100_000,
        ..Options::default()
    };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    for number in 0..50 {
        done(
            &*store,
            &format!("/still/{number}"),
            Expect::Absent,
            put("v"),
        )
        .await;
    }
    let mut last = 0;
    for number in 0..1000 {
        last = done(&*store, "/a", Expect::Modified(last), put(vec![1; 1000])).await;
        if number % 100 == 99 {
            store.compact(last - 50).await.unwrap();
        }
    }
    assert!(store.stats().log_bytes > 1_000_000);
    store.close();
    let size = store.size().await.unwrap();
    assert!(size < 400_000, "{size} bytes on disk");
    assert_eq!(size, on_disk(dir.path()));
    let compacted = store.stats().compacted;
    drop(store);
    let store = Embedded::open(dir.path(), options).unwrap();
    assert_eq!(store.stats().compacted, compacted);
    assert_eq!(store.stats().live_keys, 51);
    assert_eq!(store.size().await.unwrap(), size);
    let mut watch = store.watch("/", compacted).await.unwrap();
    let seen = events(&mut watch, (last - compacted) as usize).await;
    assert!(seen.iter().map(|e| e.revision).eq(compacted + 1..=last));
}

fn on_disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_name() != "lock" && entry.file_name() != "manifest")
        .map(|entry| entry.metadata().unwrap().len())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_wait_together_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    done(&*store, "/alone", Expect::Absent, put("v")).await;
    assert_eq!(store.stats().batches, 1);
    let writers: Vec<_> = (0..500)
        .map(|number| {
            let store = Arc::clone(&store);
            let key = format!("/{number}");
            tokio::spawn(async move { done(&*store, &key, Expect::Absent, put("v")).await })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.commits, 501);
    assert!(stats.batches < 250, "{} batches", stats.batches);
    assert!(stats.sync_time > Duration::ZERO);
    assert_eq!(stats.revision, 502);
}

#[tokio::test]
async fn a_conflict_alone_costs_no_sync() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    done(&*store, "/a", Expect::Absent, put("v")).await;
    let written = store.write("/a", Expect::Absent, put("w")).await.unwrap();
    assert!(matches!(written, Written::Conflict(Some(_))));
    assert_eq!(store.stats().batches, 1);
}

#[tokio::test]
async fn a_write_beyond_the_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let error = store
        .write("/a", Expect::Absent, put(vec![0; WRITE_LIMIT]))
        .await;
    assert!(matches!(error, Err(Error::TooLarge { .. })), "{error:?}");
    let fits = put(vec![0; WRITE_LIMIT - 2]);
    done(&*store, "/a", Expect::Absent, fits).await;
    drop(store);
    assert_eq!(
        open(dir.path()).get_now("/a").unwrap().value.len(),
        WRITE_LIMIT - 2
    );
}

#[tokio::test]
async fn a_range_read_in_several_stretches_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut writes = Vec::new();
    for number in 0..10_000 {
        let store = Arc::clone(&store);
        let key = format!("/{number:05}");
        writes.push(tokio::spawn(async move {
            done(&*store, &key, Expect::Absent, put("v")).await;
        }));
    }
    for write in writes {
        write.await.unwrap();
    }
    let range = store.range_now("/", "0", 0, None).unwrap();
    assert_eq!((range.count, range.entries.len()), (10_000, 10_000));
    assert!(range.entries.is_sorted_by(|a, b| a.key < b.key));
    let page = store.range_now("/", "0", 3000, None).unwrap();
    assert_eq!((page.count, page.entries.len()), (10_000, 3000));
    assert_eq!(page.entries, range.entries[..3000]);
}

/// A small file system that is unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(&path)
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        skip("a tmpfs cannot be mounted here (not root?)");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_file_system_that_is_really_full_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(dir.path().join("small")) else {
        return;
    };
    let options = Options {
        reserve_bytes: 64 << 10,
        ..Options::default()
    };
    let data = disk.0.join("data");
    let store = Embedded::open(&data, options.clone()).unwrap();
    let ballast = disk.0.join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let mut written = 0;
    let cause = loop {
        let key = format!("/{written:04}");
        match store
            .write(&key, Expect::Absent, put(vec![3; 10_000]))
            .await
        {
            Ok(_) => written += 1,
            Err(Error::ReadOnly { cause }) => break cause,
            Err(other) => panic!("{other}"),
        }
        assert!(written < 1000, "the disk never filled");
    };
    assert!(
        cause.contains("No space left") && cause.contains("free space"),
        "{cause}"
    );
    assert!(written > 10, "refused after {written} writes");
    let all = store.range_now("/", "0", 0, None).unwrap();
    assert_eq!(all.count, written);
    std::fs::remove_file(&ballast).unwrap();
    until("writable again", || store.stats().read_only.is_none()).await;
    let next = done(&*store, "/after", Expect::Absent, put("v")).await;
    assert_eq!(next, all.revision + 1);
    drop(store);
    let store = Embedded::open(&data, options).unwrap();
    assert_eq!(store.stats().live_keys, written + 1);
    drop(store);
}
