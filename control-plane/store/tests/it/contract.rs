//! The contract of `Store`, the same for every engine.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use store::{Change, Error, Expect, Store, Tell, WatchItem, Written};

use crate::engines::{Engine, done, events, next, put};

/// Runs each promise against each engine.
macro_rules! contract {
    ($($promise:ident)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                if let Some(engine) = super::Engine::embedded().await {
                    super::$promise(engine.store.clone()).await;
                }
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                if let Some(engine) = super::Engine::etcd().await {
                    super::$promise(engine.store.clone()).await;
                }
            })*
        }
    };
}

contract! {
    an_empty_store_is_at_revision_1_and_the_first_write_is_2
    a_write_happens_only_if_its_expectation_holds
    create_and_mod_revisions_follow_the_key_through_its_lives
    deleting_an_absent_key_changes_nothing
    a_range_is_ordered_limited_and_counted
    a_range_can_be_read_at_an_earlier_revision
    ranges_that_hold_nothing_are_empty
    a_watch_delivers_changes_with_their_previous_state
    a_watch_resumes_from_a_revision_without_gap_or_duplicate
    a_watch_sees_only_its_prefix
    a_watch_from_the_future_waits_for_it
    watches_under_concurrent_writers_see_every_revision_once
    a_follower_is_told_what_a_watch_delivers
    one_of_many_competing_writers_wins_each_round
    compaction_forgets_the_past_and_nothing_else
    compaction_of_the_past_or_future_is_refused
    a_key_with_a_time_to_live_is_deleted_with_an_event
    rewriting_a_key_without_a_time_to_live_keeps_it
    a_quiet_watch_hears_of_progress
    a_watch_of_an_idle_store_hears_that_it_is_up_to_date
    values_may_be_empty_binary_and_large
    the_size_is_known
}

async fn an_empty_store_is_at_revision_1_and_the_first_write_is_2(store: Arc<dyn Store>) {
    assert_eq!(store.revision().await.unwrap(), 1);
    assert_eq!(store.get("/a").await.unwrap(), None);
    assert_eq!(done(&*store, "/a", Expect::Absent, put("1")).await, 2);
    assert_eq!(store.revision().await.unwrap(), 2);
}

async fn a_write_happens_only_if_its_expectation_holds(store: Arc<dyn Store>) {
    let first = done(&*store, "/a", Expect::Absent, put("1")).await;
    let current = store.get("/a").await.unwrap();
    assert_eq!(current.as_ref().unwrap().value, "1");
    for (expect, change) in [
        (Expect::Absent, put("2")),
        (Expect::Absent, Change::Delete),
        (Expect::Modified(first + 1), put("2")),
        (Expect::Modified(first + 1), Change::Delete),
    ] {
        let written = store.write("/a", expect, change).await.unwrap();
        assert_eq!(written, Written::Conflict(current.clone()));
    }
    let absent = store.write("/b", Expect::Modified(first), put("2")).await;
    assert_eq!(absent.unwrap(), Written::Conflict(None));
    assert_eq!(store.revision().await.unwrap(), first);
    done(&*store, "/a", Expect::Modified(first), put("2")).await;
    assert_eq!(store.get("/a").await.unwrap().unwrap().value, "2");
}

async fn create_and_mod_revisions_follow_the_key_through_its_lives(store: Arc<dyn Store>) {
    let born = done(&*store, "/a", Expect::Absent, put("1")).await;
    let changed = done(&*store, "/a", Expect::Modified(born), put("2")).await;
    let key = store.get("/a").await.unwrap().unwrap();
    assert_eq!((key.create_revision, key.mod_revision), (born, changed));
    let died = done(&*store, "/a", Expect::Modified(changed), Change::Delete).await;
    assert_eq!(died, changed + 1);
    assert_eq!(store.get("/a").await.unwrap(), None);
    let reborn = done(&*store, "/a", Expect::Absent, put("3")).await;
    let key = store.get("/a").await.unwrap().unwrap();
    assert_eq!((key.create_revision, key.mod_revision), (reborn, reborn));
}

async fn deleting_an_absent_key_changes_nothing(store: Arc<dyn Store>) {
    let before = done(&*store, "/a", Expect::Absent, put("1")).await;
    let deleted = done(&*store, "/b", Expect::Absent, Change::Delete).await;
    assert_eq!(deleted, before);
    assert_eq!(store.revision().await.unwrap(), before);
}

async fn a_range_is_ordered_limited_and_counted(store: Arc<dyn Store>) {
    for key in ["/r/c", "/r/a", "/r/b", "/q", "/s", "/r/gone"] {
        done(&*store, key, Expect::Absent, put(key)).await;
    }
    let gone = store.get("/r/gone").await.unwrap().unwrap();
    let expect = Expect::Modified(gone.mod_revision);
    let revision = done(&*store, "/r/gone", expect, Change::Delete).await;
    let all = store.range("/r/", "/r0", 0, None).await.unwrap();
    let keys: Vec<_> = all.entries.iter().map(|kv| kv.key.as_str()).collect();
    assert_eq!(keys, ["/r/a", "/r/b", "/r/c"]);
    assert!(all.entries.iter().all(|kv| kv.value == kv.key));
    assert_eq!((all.count, all.revision), (3, revision));
    let page = store.range("/r/", "/r0", 2, None).await.unwrap();
    assert_eq!(page.entries, all.entries[..2]);
    assert_eq!((page.count, page.revision), (3, revision));
    let rest = store
        .range("/r/b\0", "/r0", 2, Some(revision))
        .await
        .unwrap();
    assert_eq!(rest.entries, all.entries[2..]);
    assert_eq!(rest.count, 1);
}

async fn a_range_can_be_read_at_an_earlier_revision(store: Arc<dyn Store>) {
    let a1 = done(&*store, "/a", Expect::Absent, put("a1")).await;
    let b1 = done(&*store, "/b", Expect::Absent, put("b1")).await;
    let a2 = done(&*store, "/a", Expect::Modified(a1), put("a2")).await;
    let b2 = done(&*store, "/b", Expect::Modified(b1), Change::Delete).await;
    let table: [(u64, &[&str]); 5] = [
        (1, &[]),
        (a1, &["a1"]),
        (b1, &["a1", "b1"]),
        (a2, &["a2", "b1"]),
        (b2, &["a2"]),
    ];
    for (at, expected) in table {
        let range = store.range("/", "0", 0, Some(at)).await.unwrap();
        let values: Vec<_> = range.entries.iter().map(|kv| kv.value.clone()).collect();
        assert_eq!(values, expected, "at {at}");
        assert_eq!((range.count, range.revision), (expected.len(), at));
    }
    let now = store.range("/", "0", 0, Some(0)).await.unwrap();
    assert_eq!(now.revision, b2, "revision 0 is now");
}

async fn ranges_that_hold_nothing_are_empty(store: Arc<dyn Store>) {
    let revision = done(&*store, "/a", Expect::Absent, put("1")).await;
    for (start, end) in [
        ("/b", "/c"),
        ("/a", "/a"),
        ("/b", "/a"),
        ("/a", ""),
        ("", ""),
    ] {
        let range = store.range(start, end, 0, None).await.unwrap();
        assert_eq!((range.entries.len(), range.count), (0, 0), "{start}..{end}");
        assert_eq!(range.revision, revision);
    }
    let all = store.range("", "\u{10ffff}", 0, None).await.unwrap();
    assert_eq!(all.count, 1);
}

async fn a_watch_delivers_changes_with_their_previous_state(store: Arc<dyn Store>) {
    let mut watch = store.watch("/a", 1).await.unwrap();
    let born = done(&*store, "/a", Expect::Absent, put("1")).await;
    let first = store.get("/a").await.unwrap();
    let changed = done(&*store, "/a", Expect::Modified(born), put("2")).await;
    let second = store.get("/a").await.unwrap();
    let died = done(&*store, "/a", Expect::Modified(changed), Change::Delete).await;
    let seen = events(&mut watch, 3).await;
    assert!(seen.iter().all(|event| event.key == "/a"));
    let revisions: Vec<_> = seen.iter().map(|event| event.revision).collect();
    assert_eq!(revisions, [born, changed, died]);
    let steps: Vec<_> = seen
        .into_iter()
        .map(|event| (event.previous, event.current))
        .collect();
    let expected = [
        (None, first.clone()),
        (first, second.clone()),
        (second, None),
    ];
    assert_eq!(steps, expected);
}

async fn a_watch_resumes_from_a_revision_without_gap_or_duplicate(store: Arc<dyn Store>) {
    for number in 0..2500 {
        let key = format!("/k/{number}");
        done(&*store, &key, Expect::Absent, put("v")).await;
    }
    for after in [0, 1, 2, 1200, 2500] {
        let mut watch = store.watch("/k/", after).await.unwrap();
        let late = format!("/k/late-{after}");
        let last = done(&*store, &late, Expect::Absent, put("v")).await;
        let first = after.max(1) + 1;
        let seen = events(&mut watch, (last - first + 1) as usize).await;
        let revisions: Vec<_> = seen.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, (first..=last).collect::<Vec<_>>());
    }
}

async fn a_watch_sees_only_its_prefix(store: Arc<dyn Store>) {
    let mut pods = store.watch("/pods/", 0).await.unwrap();
    let mut one = store.watch("/pods/a", 0).await.unwrap();
    let mut all = store.watch("", 0).await.unwrap();
    for key in ["/pods/a", "/pod", "/pods/ab", "/podt", "/pods/b"] {
        done(&*store, key, Expect::Absent, put("v")).await;
    }
    let keys = |events: Vec<store::Event>| -> Vec<String> {
        events.into_iter().map(|event| event.key).collect()
    };
    assert_eq!(
        keys(events(&mut pods, 3).await),
        ["/pods/a", "/pods/ab", "/pods/b"]
    );
    assert_eq!(keys(events(&mut one, 2).await), ["/pods/a", "/pods/ab"]);
    assert_eq!(events(&mut all, 5).await.len(), 5);
}

async fn a_watch_from_the_future_waits_for_it(store: Arc<dyn Store>) {
    let mut watch = store.watch("/", 4).await.unwrap();
    for key in ["/2", "/3", "/4", "/5"] {
        done(&*store, key, Expect::Absent, put("v")).await;
    }
    let seen = events(&mut watch, 1).await;
    assert_eq!((seen[0].key.as_str(), seen[0].revision), ("/5", 5));
}

async fn watches_under_concurrent_writers_see_every_revision_once(store: Arc<dyn Store>) {
    const WRITERS: u64 = 4;
    const WRITES: u64 = 50;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for write in 0..WRITES {
                    let key = format!("/w/{writer}/{write}");
                    done(&*store, &key, Expect::Absent, put("v")).await;
                }
            })
        })
        .collect();
    // Watches that start at some moment in between, each from what it knows of the past.
    let mut watches = Vec::new();
    for _ in 0..10 {
        let after = store.revision().await.unwrap();
        watches.push((after, store.watch("/w/", after).await.unwrap()));
    }
    watches.push((1, store.watch("/w/", 0).await.unwrap()));
    for writer in writers {
        writer.await.unwrap();
    }
    let last = 1 + WRITERS * WRITES;
    for (after, mut watch) in watches {
        let seen = events(&mut watch, (last - after) as usize).await;
        let revisions: Vec<_> = seen.iter().map(|event| event.revision).collect();
        assert_eq!(revisions, (after + 1..=last).collect::<Vec<_>>());
        let keys: HashSet<_> = seen.iter().map(|event| &event.key).collect();
        assert_eq!(keys.len(), seen.len());
    }
}

async fn a_follower_is_told_what_a_watch_delivers(store: Arc<dyn Store>) {
    let (told, mut hears) = tokio::sync::mpsc::channel(100);
    let tell: Tell = Arc::new(move |item| told.try_send(item).expect("there is room"));
    let write = async |key: String| done(&*store, &key, Expect::Absent, put("")).await;
    write("/f/2".into()).await;
    write("/f/3".into()).await;
    let (following, telling) = (Arc::clone(&store), Tell::clone(&tell));
    let follower = tokio::spawn(async move { following.follow("/f/", 2, telling).await });
    for n in 4..=20 {
        write(format!("/f/{n}")).await;
        write(format!("/other/{n}")).await;
    }
    let mut seen = Vec::new();
    while seen.len() < 18 {
        if let WatchItem::Events(events) = hears.recv().await.unwrap() {
            seen.extend(events.into_iter().map(|event| event.key));
        }
    }
    let expected: Vec<_> = (3..=20).map(|n| format!("/f/{n}")).collect();
    assert_eq!(seen, expected);
    follower.abort();
    store.compact(10).await.unwrap();
    let end = store.follow("/f/", 2, tell).await;
    assert!(matches!(end, Error::Compacted { .. }), "{end}");
}

#[tokio::test]
async fn the_embedded_engine_tells_its_followers_before_it_answers() {
    let engine = Engine::embedded().await.unwrap();
    let told = Arc::new(AtomicU64::new(1));
    let (following, telling) = (Arc::clone(&engine.store), Arc::clone(&told));
    let follower = tokio::spawn(async move {
        let tell: Tell = Arc::new(move |item| {
            if let WatchItem::Events(events) = item {
                telling.store(events.last().unwrap().revision, Ordering::SeqCst);
            }
        });
        following.follow("/", 1, tell).await
    });
    // It follows before anything is written: this runtime has one thread.
    tokio::task::yield_now().await;
    for n in 0..100 {
        let revision = done(&*engine.store, &format!("/{n}"), Expect::Absent, put("")).await;
        assert_eq!(told.load(Ordering::SeqCst), revision);
    }
    follower.abort();
}

async fn one_of_many_competing_writers_wins_each_round(store: Arc<dyn Store>) {
    let mut current = done(&*store, "/a", Expect::Absent, put("0")).await;
    for round in 0..10 {
        let rivals: Vec<_> = (0..8)
            .map(|rival| {
                let store = Arc::clone(&store);
                let value = format!("{round}/{rival}");
                tokio::spawn(async move {
                    let expect = Expect::Modified(current);
                    let written = store.write("/a", expect, put(value.clone())).await;
                    (value, written.unwrap())
                })
            })
            .collect();
        let mut winners = Vec::new();
        for rival in rivals {
            match rival.await.unwrap() {
                (value, Written::Done(revision)) => winners.push((value, revision)),
                (_, Written::Conflict(now)) => assert!(now.unwrap().mod_revision > current),
            }
        }
        let [(value, revision)] = &winners[..] else {
            panic!("{} winners", winners.len());
        };
        current = *revision;
        assert_eq!(store.get("/a").await.unwrap().unwrap().value, value);
    }
}

async fn compaction_forgets_the_past_and_nothing_else(store: Arc<dyn Store>) {
    let kept = done(&*store, "/kept", Expect::Absent, put("k")).await;
    let mut last = done(&*store, "/a", Expect::Absent, put("0")).await;
    for number in 1..10 {
        last = done(
            &*store,
            "/a",
            Expect::Modified(last),
            put(number.to_string()),
        )
        .await;
    }
    let compacted = last - 3;
    store.compact(compacted).await.unwrap();
    for at in [kept, compacted - 1] {
        let error = store.range("/", "0", 0, Some(at)).await.unwrap_err();
        assert!(
            matches!(error, Error::Compacted { requested, oldest } if requested == at && oldest > at),
            "{error:?}"
        );
    }
    let oldest = store.range("/", "0", 0, Some(compacted)).await.unwrap();
    assert_eq!(oldest.count, 2);
    assert_eq!(oldest.entries[0].value, "6");
    assert_eq!(oldest.entries[1].mod_revision, kept);
    assert_eq!(
        store.get("/kept").await.unwrap().unwrap().create_revision,
        kept
    );
    let mut watch = store.watch("/", compacted).await.unwrap();
    let seen = events(&mut watch, 3).await;
    assert_eq!(seen[0].previous.as_ref().unwrap().value, "6");
    assert_compacted(&*store, compacted - 2).await;
}

/// A watch from a compacted revision fails, at once or with its first item.
async fn assert_compacted(store: &dyn Store, after: u64) {
    let error = match store.watch("/", after).await {
        Err(error) => error,
        Ok(mut watch) => next(&mut watch).await.unwrap().unwrap_err(),
    };
    assert!(
        matches!(error, Error::Compacted { requested, oldest } if requested == after && oldest > after),
        "{error:?}"
    );
}

async fn compaction_of_the_past_or_future_is_refused(store: Arc<dyn Store>) {
    let mut last = done(&*store, "/a", Expect::Absent, put("0")).await;
    for number in 1..5 {
        last = done(
            &*store,
            "/a",
            Expect::Modified(last),
            put(number.to_string()),
        )
        .await;
    }
    let error = store.compact(last + 1).await.unwrap_err();
    assert!(
        matches!(error, Error::Future { requested, newest } if requested == last + 1 && newest == last),
        "{error:?}"
    );
    store.compact(last - 1).await.unwrap();
    for again in [last - 2, last - 1] {
        let error = store.compact(again).await.unwrap_err();
        assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
    }
    let error = store.range("/", "0", 0, Some(last + 1)).await.unwrap_err();
    assert!(matches!(error, Error::Future { .. }), "{error:?}");
    store.compact(last).await.unwrap();
    assert_eq!(store.get("/a").await.unwrap().unwrap().value, "4");
}

async fn a_key_with_a_time_to_live_is_deleted_with_an_event(store: Arc<dyn Store>) {
    let mut watch = store.watch("/a", 1).await.unwrap();
    let ttl = Some(Duration::from_secs(1));
    let value = Bytes::from("v");
    let born = done(&*store, "/a", Expect::Absent, Change::Put { value, ttl }).await;
    assert!(store.get("/a").await.unwrap().is_some());
    let seen = events(&mut watch, 1).await;
    assert_eq!(seen[0].revision, born);
    let seen = events(&mut watch, 1).await;
    assert_eq!(seen[0].current, None);
    assert_eq!(seen[0].previous.as_ref().unwrap().mod_revision, born);
    assert!(seen[0].revision > born);
    assert_eq!(store.get("/a").await.unwrap(), None);
}

async fn rewriting_a_key_without_a_time_to_live_keeps_it(store: Arc<dyn Store>) {
    let short = |value: &'static str| Change::Put {
        value: Bytes::from(value),
        ttl: Some(Duration::from_secs(1)),
    };
    let born = done(&*store, "/kept", Expect::Absent, short("1")).await;
    let kept = done(&*store, "/kept", Expect::Modified(born), put("2")).await;
    done(&*store, "/witness", Expect::Absent, short("w")).await;
    let mut watch = store.watch("/", kept + 1).await.unwrap();
    // The witness has the later deadline: when it is gone, the other one's would have passed.
    let seen = events(&mut watch, 1).await;
    assert_eq!(seen[0].key, "/witness");
    assert_eq!(store.get("/kept").await.unwrap().unwrap().value, "2");
}

async fn a_quiet_watch_hears_of_progress(store: Arc<dyn Store>) {
    let mut watch = store.watch("/quiet/", 1).await.unwrap();
    let revision = done(&*store, "/loud/a", Expect::Absent, put("v")).await;
    loop {
        match next(&mut watch).await.unwrap().unwrap() {
            WatchItem::Progress(told) if told >= revision => break,
            WatchItem::Progress(_) => {}
            WatchItem::Events(events) => panic!("not for this watch: {events:?}"),
        }
    }
    let later = done(&*store, "/quiet/a", Expect::Absent, put("v")).await;
    let seen = events(&mut watch, 1).await;
    assert_eq!(seen[0].revision, later);
}

async fn a_watch_of_an_idle_store_hears_that_it_is_up_to_date(store: Arc<dyn Store>) {
    let mut last = done(&*store, "/quiet/a", Expect::Absent, put("v")).await;
    for key in ["/loud/a", "/loud/b"] {
        last = done(&*store, key, Expect::Absent, put("v")).await;
    }
    let mut watch = store.watch("/quiet/", 1).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].key, "/quiet/a");
    let item = next(&mut watch).await.unwrap().unwrap();
    assert_eq!(item, WatchItem::Progress(last));
}

async fn values_may_be_empty_binary_and_large(store: Arc<dyn Store>) {
    let large: Vec<u8> = (0..1_000_000u32).map(|byte| byte as u8).collect();
    let values = [Vec::new(), vec![0; 64], vec![0xff, 0, 0xfe], large];
    for (number, value) in values.into_iter().enumerate() {
        let key = format!("/v/{number}/ü");
        done(&*store, &key, Expect::Absent, put(value.clone())).await;
        assert_eq!(store.get(&key).await.unwrap().unwrap().value, value);
    }
}

async fn the_size_is_known(store: Arc<dyn Store>) {
    done(&*store, "/a", Expect::Absent, put(vec![1; 100_000])).await;
    assert!(store.size().await.unwrap() > 0);
}
