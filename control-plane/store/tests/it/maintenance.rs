//! Backup, restore and check.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::embedded::Options;
use store::maintenance::{check, restore};
use store::{Change, Embedded, Error, Expect, Store};

use crate::engines::{ManualClock, done, events, put};

fn open(dir: &Path) -> Arc<Embedded> {
    Embedded::open(dir, Options::default()).unwrap()
}

async fn fill(store: &dyn Store, keys: usize) {
    for number in 0..keys {
        let key = format!("/k/{number:04}");
        let born = done(store, &key, Expect::Absent, put("old")).await;
        if number % 2 == 0 {
            done(store, &key, Expect::Modified(born), put(number.to_string())).await;
        }
        if number % 5 == 0 {
            let now = store.get(&key).await.unwrap().unwrap();
            let expect = Expect::Modified(now.mod_revision);
            done(store, &key, expect, Change::Delete).await;
        }
    }
}

#[tokio::test]
async fn a_restored_store_has_the_same_keys_and_revisions_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let backup = dir.path().join("backup");
    let store = open(&dir.path().join("old"));
    fill(&*store, 50).await;
    let made = store.backup(&backup).await.unwrap();
    let all = store.range_now("", "z", 0, None).unwrap();
    assert_eq!((made.revision, made.keys), (all.revision, all.count));
    let mode = std::fs::metadata(&backup).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let new = dir.path().join("new");
    assert_eq!(restore(&backup, &new).unwrap(), made);
    let restored = open(&new);
    assert_eq!(restored.range_now("", "z", 0, None).unwrap(), all);
    let gone = restored.watch("", all.revision - 1).await.unwrap_err();
    assert!(matches!(gone, Error::Compacted { .. }), "{gone}");
    let mut watch = restored.watch("", all.revision).await.unwrap();
    let next = done(&*restored, "/new", Expect::Absent, put("v")).await;
    assert_eq!(next, all.revision + 1);
    assert_eq!(events(&mut watch, 1).await[0].revision, next);
    drop(restored);
    assert_eq!(open(&new).revision_now(), next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_writes_is_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("data"));
    // The two keys are always written in this order, so no moment has the second one ahead.
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut last = (0, 0);
            for number in 0..300 {
                let value = format!("{number:03}");
                last.0 = done(&*store, "/a", Expect::Modified(last.0), put(value.clone())).await;
                last.1 = done(&*store, "/b", Expect::Modified(last.1), put(value)).await;
            }
        }
    });
    for number in 0..20 {
        let backup = dir.path().join(format!("backup-{number}"));
        let made = store.backup(&backup).await.unwrap();
        let target = dir.path().join(format!("restored-{number}"));
        restore(&backup, &target).unwrap();
        let restored = open(&target).range_now("", "z", 0, None).unwrap();
        assert_eq!(restored.revision, made.revision);
        let then = store.range_now("", "z", 0, Some(made.revision)).unwrap();
        assert_eq!(restored, then);
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn times_to_live_survive_backup_and_restore() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::new();
    let options = Options {
        clock: Arc::new(clock.clone()),
        ..Options::default()
    };
    let store = Embedded::open(dir.path().join("old"), options.clone()).unwrap();
    let change = Change::Put {
        value: Bytes::from("v"),
        ttl: Some(Duration::from_secs(60)),
    };
    let born = done(&*store, "/a", Expect::Absent, change).await;
    store.backup(dir.path().join("backup")).await.unwrap();
    restore(dir.path().join("backup"), dir.path().join("new")).unwrap();
    clock.advance(Duration::from_secs(61));
    let restored = Embedded::open(dir.path().join("new"), options).unwrap();
    let mut watch = restored.watch("", born).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].current, None);
}

#[tokio::test]
async fn a_directory_that_holds_anything_is_not_restored_into() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("data"));
    fill(&*store, 3).await;
    let backup = dir.path().join("backup");
    store.backup(&backup).await.unwrap();
    let error = restore(&backup, dir.path().join("data")).unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    restore(&backup, &empty).unwrap();
}

#[tokio::test]
async fn a_damaged_backup_is_refused_at_every_offset() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("data"));
    fill(&*store, 6).await;
    let backup = dir.path().join("backup");
    store.backup(&backup).await.unwrap();
    let sound = std::fs::read(&backup).unwrap();
    let target = dir.path().join("target");
    let mut wrong = vec![
        [sound.clone(), vec![0]].concat(),
        b"not a backup at all".to_vec(),
    ];
    for at in 0..sound.len() {
        let mut changed = sound.clone();
        changed[at] ^= 0x20;
        wrong.extend([changed, sound[..at].to_vec()]);
    }
    for bytes in wrong {
        std::fs::write(&backup, bytes).unwrap();
        for refused in [
            restore(&backup, &target).map(drop),
            check(&backup).map(drop),
        ] {
            match refused {
                Err(Error::Corrupt { file, cause }) => {
                    assert_eq!(file, backup.display().to_string());
                    assert!(cause.contains("offset"), "{cause}");
                }
                other => panic!("taken for sound: {other:?}"),
            }
        }
        assert!(!target.exists(), "something was written");
    }
}

#[tokio::test]
async fn a_check_reports_a_directory_and_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = open(&data);
    fill(&*store, 40).await;
    store.compact(20).await.unwrap();
    let stats = store.stats();
    let backup = dir.path().join("backup");
    let made = store.backup(&backup).await.unwrap();

    let running = check(&data).unwrap();
    assert_eq!((running.revision, running.compacted), (stats.revision, 20));
    assert_eq!(
        (running.keys, running.live_bytes),
        (stats.live_keys, stats.live_bytes)
    );
    assert_eq!((running.segments, running.torn_tail), (1, None));
    assert_eq!(running.disk_bytes, stats.disk_bytes);

    let report = check(&backup).unwrap();
    assert_eq!(
        (report.revision, report.compacted),
        (made.revision, made.revision)
    );
    assert_eq!(
        (report.keys, report.live_bytes),
        (stats.live_keys, stats.live_bytes)
    );
    assert_eq!(report.disk_bytes, made.bytes);

    let missing = check(dir.path().join("nowhere")).unwrap_err();
    assert!(matches!(missing, Error::File { .. }), "{missing}");
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("old"));
    fill(&*store, 6).await;
    store.backup(dir.path().join("backup")).await.unwrap();
    let data = dir.path().join("new");
    restore(dir.path().join("backup"), &data).unwrap();
    let mut entries = std::fs::read_dir(&data).unwrap().map(|e| e.unwrap().path());
    let snapshot = entries.find(|path| path.extension() == Some("img".as_ref()));
    let snapshot = snapshot.unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    let refused = Embedded::open(&data, Options::default()).map(drop);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_restored_directory_that_lost_its_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = Embedded::open(dir.path().join("first"), Options::default()).unwrap();
    done(&*store, "/a", Expect::Absent, put("v")).await;
    store.backup(dir.path().join("backup")).await.unwrap();
    restore(dir.path().join("backup"), &data).unwrap();
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if path.extension() == Some("img".as_ref()) {
            std::fs::remove_file(path).unwrap();
        }
    }
    let refused = check(&data).unwrap_err().to_string();
    assert!(
        refused.contains("revisions 2 to 2 are missing"),
        "{refused}"
    );
}
