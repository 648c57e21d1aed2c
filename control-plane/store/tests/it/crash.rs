//! Killing a process that writes, again and again: whatever it was told is safe must be there.
//!
//! The child is this test binary, started again for the one ignored test below. Every writer of the
//! child works through a fixed list of operations, so the parent knows what each key must hold after
//! any number of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use store::embedded::Options;
use store::{Change, Embedded, Error, Event, Expect, Revision, Store, WatchItem, Written};

use crate::engines::{events, next, put};
use crate::model::Random;

const WRITERS: usize = 4;
/// Each writer has this many keys.
const KEYS: u64 = 12;
const CAMPAIGNS: usize = 5;
const KILLS: usize = 11;
const DIR: &str = "STORE_CRASH_DIR";
const PROGRESS: &str = "STORE_CRASH_PROGRESS";

fn options() -> Options {
    Options {
        segment_bytes: 40_000,
        reserve_bytes: 8_000,
        checkpoint_bytes: 60_000,
        ..Options::default()
    }
}

fn key(writer: usize, operation: u64) -> String {
    format!("/{writer}/{}", operation % KEYS)
}

/// What a writer's key holds after an operation; every fourth visit deletes it.
fn value(writer: usize, operation: u64) -> Option<String> {
    let length = (operation * 37 % 900) as usize;
    let deletes = operation / KEYS % 4 == 3;
    (!deletes).then(|| format!("{writer}:{operation}:{}", "x".repeat(length)))
}

/// What a writer's keys hold after the first so many operations.
fn expected(writer: usize, operations: u64) -> BTreeMap<String, String> {
    let visible = operations.saturating_sub(KEYS)..operations;
    visible
        .filter_map(|operation| Some((key(writer, operation), value(writer, operation)?)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of killed_writers_lose_nothing_they_were_promised"]
async fn crash_child() {
    let dir = std::env::var(DIR).expect("started by the parent test");
    let progress = std::env::var(PROGRESS).unwrap();
    let store = Embedded::open(dir, options()).unwrap();
    let mut watch = store.watch("/", store.revision_now()).await.unwrap();
    let watcher = tokio::spawn(async move {
        while let Some(Ok(item)) = watch.next().await {
            if let WatchItem::Events(events) = item {
                say(&format!("watched {}", events.last().unwrap().revision));
            }
        }
    });
    for (writer, start) in progress.split(',').enumerate() {
        let (store, start) = (Arc::clone(&store), start.parse().unwrap());
        tokio::spawn(async move { write_for_ever(&store, writer, start).await });
    }
    watcher.await.unwrap();
}

async fn write_for_ever(store: &Embedded, writer: usize, start: u64) {
    for operation in start.. {
        let key = key(writer, operation);
        let current = store.get(&key).await.unwrap();
        let expect = current.map_or(Expect::Absent, |kv| Expect::Modified(kv.mod_revision));
        let change = value(writer, operation).map_or(Change::Delete, put);
        let written = store.write(&key, expect, change).await.unwrap();
        let Written::Done(revision) = written else {
            panic!("nobody else writes {key}, yet {written:?}");
        };
        say(&format!("wrote {writer} {operation} {revision}"));
        if writer == 0 && operation % 50 == 0 {
            let _ = store.compact(revision.saturating_sub(100)).await;
        }
    }
}

/// One whole line to the parent.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("crash-child {line}\n").as_bytes())
        .unwrap();
    out.flush().unwrap();
}

/// What the parent heard from its children.
#[derive(Default)]
struct Heard {
    /// Operations acknowledged per writer.
    acknowledged: [u64; WRITERS],
    /// The revisions they got.
    revisions: BTreeMap<Revision, (usize, u64)>,
    /// The last revision a watch delivered.
    watched: Revision,
}

impl Heard {
    fn line(&mut self, line: &str) {
        // The test harness prints before our first line, without ending its own.
        let Some((_, said)) = line.split_once("crash-child ") else {
            return;
        };
        let words: Vec<&str> = said.split(' ').collect();
        let number = |at: usize| -> u64 { words[at].parse().unwrap() };
        match words[0] {
            "watched" => self.watched = self.watched.max(number(1)),
            "wrote" => {
                let writer = number(1) as usize;
                assert_eq!(number(2), self.acknowledged[writer], "out of order");
                self.acknowledged[writer] += 1;
                self.revisions.insert(number(3), (writer, number(2)));
            }
            other => panic!("what is {other}?"),
        }
    }
}

fn start_child(dir: &Path, heard: &Heard) -> Child {
    let progress: Vec<String> = heard.acknowledged.iter().map(u64::to_string).collect();
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "crash::crash_child"])
        .env(DIR, dir)
        .env(PROGRESS, progress.join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Lets a child say so many lines, kills it, and hears what else it said.
fn run_and_kill(dir: &Path, heard: &mut Heard, lines: u64) {
    let mut child = start_child(dir, heard);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut said = 0;
    loop {
        if said == lines {
            child.kill().unwrap();
        }
        line.clear();
        if output.read_line(&mut line).unwrap() == 0 {
            break;
        }
        // A last line without its end was cut off by the kill.
        if let Some(line) = line.strip_suffix('\n') {
            heard.line(line);
            said += u64::from(line.contains("crash-child "));
        }
    }
    let status = child.wait().unwrap();
    assert!(!status.success(), "the child ended by itself: {status}");
    assert!(
        said >= lines,
        "the child ended early: {said} of {lines} lines"
    );
}

/// The store holds what was promised, and nothing that nobody wrote.
async fn assert_promises_kept(store: &Embedded, heard: &mut Heard) {
    let newest = store.revision_now();
    let promised = heard.revisions.keys().next_back().copied().unwrap_or(1);
    assert!(
        newest >= promised,
        "at {newest}, but {promised} was acknowledged"
    );
    for writer in 0..WRITERS {
        let (start, end) = (format!("/{writer}/"), format!("/{writer}0"));
        let range = store.range(&start, &end, 0, None).await.unwrap();
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let found: BTreeMap<_, _> = range
            .entries
            .iter()
            .map(|kv| (kv.key.clone(), text(&kv.value)))
            .collect();
        let acknowledged = heard.acknowledged[writer];
        // One write per writer may have been under way; it happened or it did not.
        let happened = [acknowledged, acknowledged + 1]
            .into_iter()
            .find(|&operations| expected(writer, operations) == found);
        let happened = happened.unwrap_or_else(|| {
            panic!("writer {writer} was promised {acknowledged} operations, found {found:?}")
        });
        heard.acknowledged[writer] = happened;
    }
    assert_watch_resumes(store, heard, newest).await;
    heard.watched = newest;
}

async fn assert_watch_resumes(store: &Embedded, heard: &Heard, newest: Revision) {
    let compacted = store.stats().compacted;
    if heard.watched < compacted {
        let error = store.watch("/", heard.watched).await.unwrap_err();
        assert!(matches!(error, Error::Compacted { .. }), "{error}");
    }
    let after = heard.watched.max(compacted).max(1);
    let mut watch = store.watch("/", after).await.unwrap();
    let missed = events(&mut watch, (newest - after) as usize).await;
    let revisions = missed.iter().map(|event| event.revision);
    assert!(revisions.eq(after + 1..=newest), "a gap or duplicate");
    for event in &missed {
        if let Some(&(writer, operation)) = heard.revisions.get(&event.revision) {
            assert_is(event, writer, operation);
        }
    }
}

fn assert_is(event: &Event, writer: usize, operation: u64) {
    assert_eq!(event.key, key(writer, operation));
    let current = event.current.as_ref().map(|kv| kv.value.to_vec());
    assert_eq!(current, value(writer, operation).map(String::into_bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_writers_lose_nothing_they_were_promised() {
    let mut random = Random::seeded();
    let (mut operations, mut checkpoints) = (0, 0);
    for _ in 0..CAMPAIGNS {
        let dir = tempfile::tempdir().unwrap();
        let mut heard = Heard::default();
        for kill in 0..KILLS {
            // Now and then at once, which hits the opening.
            let lines = if kill % 5 == 4 { 0 } else { random.below(600) };
            run_and_kill(dir.path(), &mut heard, lines);
            let store = Embedded::open(dir.path(), options()).unwrap();
            assert_promises_kept(&store, &mut heard).await;
        }
        operations += heard.acknowledged.iter().sum::<u64>();
        let names = std::fs::read_dir(dir.path()).unwrap();
        checkpoints += names
            .filter(|name| name.as_ref().unwrap().path().extension() == Some("img".as_ref()))
            .count();
    }
    assert!(operations > 1000, "only {operations} operations happened");
    assert!(checkpoints > 0, "no checkpoint happened");
}

#[tokio::test]
async fn a_watch_ends_when_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), options()).unwrap();
    let mut watch = store.watch("/", 1).await.unwrap();
    store.close();
    let end = next(&mut watch).await;
    assert!(
        matches!(end, Some(Err(Error::Unavailable { .. }))),
        "{end:?}"
    );
    assert!(next(&mut watch).await.is_none());
    let written = store.write("/a", Expect::Absent, put("v")).await;
    assert!(
        matches!(written, Err(Error::Unavailable { .. })),
        "{written:?}"
    );
}
