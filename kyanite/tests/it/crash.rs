//! The server killed in mid-load, again and again, on the same data.
//!
//! Writers own their objects, so each knows the last acknowledged state of every object and the one
//! write that was in flight when the server died. Every write carries a number that all parts of the
//! object repeat; watchers resume where they stopped, and what they saw is compared with what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::harness::{JsonWatch, Random, Server, WatchEnd, call, version};

/// Kills in mid-load; kills during recovery come on top.
const KILLS: usize = 55;
const WRITERS: usize = 6;
const OBJECTS_PER_WRITER: usize = 5;
const MOST_WRITES_PER_ROUND: usize = 60;
const COLLECTION: &str = "/api/v1/namespaces/crash/configmaps";
/// The object whose appearance tells the watchers that there is no more to come.
const LAST: &str = "last";
const PATIENCE: Duration = Duration::from_secs(60);

/// An object that exists, as one write left it.
#[derive(Debug, Clone, PartialEq)]
struct Present {
    write: u64,
    uid: String,
    version: u64,
}

/// A write that may or may not have happened yet. No `write` means a deletion.
#[derive(Debug, Clone)]
struct Attempt {
    name: String,
    write: Option<u64>,
    before: Option<Present>,
}

/// A write that has happened, as a watcher should see it. Nobody tells the client a deletion's version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Landed {
    kind: &'static str,
    name: String,
    uid: String,
    write: u64,
    version: Option<u64>,
}

/// One client with objects of its own, and what it knows of them.
struct Writer {
    client: kube::Client,
    random: Random,
    next_write: u64,
    objects: BTreeMap<String, Option<Present>>,
    in_flight: Option<Attempt>,
    landed: Vec<Landed>,
}

impl Writer {
    fn new(number: usize, client: kube::Client, random: Random) -> Self {
        let names = (0..OBJECTS_PER_WRITER).map(|object| format!("w{number}-{object}"));
        Self {
            client,
            random,
            next_write: number as u64 * 1_000_000,
            objects: names.map(|name| (name, None)).collect(),
            in_flight: None,
            landed: Vec::new(),
        }
    }

    /// Writes until the server is gone.
    async fn run(mut self, acknowledged: watch::Sender<usize>) -> Self {
        while self.step().await.is_ok() {
            acknowledged.send_modify(|count| *count += 1);
        }
        self
    }

    async fn step(&mut self) -> Result<(), String> {
        let names: Vec<String> = self.objects.keys().cloned().collect();
        let name = self.random.choose(&names).clone();
        let before = self.objects[&name].clone();
        let deletes = before.is_some() && self.random.chance(15);
        self.next_write += 1;
        let attempt = Attempt {
            name,
            write: (!deletes).then_some(self.next_write),
            before,
        };
        self.in_flight = Some(attempt.clone());
        let (code, answer) = self.send(&attempt).await?;
        let expected = if attempt.before.is_none() { 201 } else { 200 };
        assert_eq!(code, expected, "{attempt:?}: {answer}");
        let observed = attempt.write.map(|_| present(&answer));
        self.settle(observed);
        Ok(())
    }

    async fn send(&mut self, attempt: &Attempt) -> Result<(u16, Value), String> {
        const JSON: &str = "application/json";
        let path = format!("{COLLECTION}/{}", attempt.name);
        let Some(write) = attempt.write else {
            return call(&self.client, ("DELETE", &path), JSON, None).await;
        };
        let mut object = content(&attempt.name, write);
        let Some(before) = &attempt.before else {
            return call(&self.client, ("POST", COLLECTION), JSON, Some(&object)).await;
        };
        let patch = |kind: &str| format!("application/{kind}+json");
        let (method, media_type) = match self.random.below(5) {
            0 => ("PUT", JSON.to_owned()),
            1 => {
                object["metadata"]["resourceVersion"] = before.version.to_string().into();
                ("PUT", JSON.to_owned())
            }
            2 => ("PATCH", patch("merge-patch")),
            3 => ("PATCH", patch("strategic-merge-patch")),
            _ => {
                object = json_patch(&object);
                ("PATCH", patch("json-patch"))
            }
        };
        call(&self.client, (method, &path), &media_type, Some(&object)).await
    }

    /// The write in flight has happened and left this behind.
    fn settle(&mut self, observed: Option<Present>) {
        let Attempt { name, before, .. } = self.in_flight.take().expect("a write was in flight");
        let (kind, shown) = match (&before, &observed) {
            (None, Some(after)) => ("ADDED", after),
            (Some(before), Some(after)) => {
                assert_eq!(before.uid, after.uid, "{name} kept its uid");
                assert!(before.version < after.version, "{before:?}, then {after:?}");
                ("MODIFIED", after)
            }
            (Some(before), None) => ("DELETED", before),
            (None, None) => panic!("{name}: only what exists is deleted"),
        };
        self.landed.push(Landed {
            kind,
            name: name.clone(),
            uid: shown.uid.clone(),
            write: shown.write,
            version: observed.as_ref().map(|after| after.version),
        });
        self.objects.insert(name, observed);
    }

    /// Compares the objects after a restart with what is known, and learns what became of the write
    /// that was in flight.
    fn check(&mut self, listed: &BTreeMap<String, Present>) {
        if let Some(attempt) = self.in_flight.clone() {
            let observed = listed.get(&attempt.name).cloned();
            if observed.as_ref().map(|object| object.write) == attempt.write {
                self.settle(observed);
            } else {
                // Not done; then nothing may be done, which the comparison below tells.
                self.in_flight = None;
            }
        }
        for (name, expected) in &self.objects {
            assert_eq!(
                listed.get(name),
                expected.as_ref(),
                "{name} after the restart"
            );
        }
    }

    fn newest(&self) -> u64 {
        let versions = self.landed.iter().filter_map(|landed| landed.version);
        versions.max().unwrap_or(0)
    }
}

/// What write number `write` makes of an object: every part tells the number.
fn content(name: &str, write: u64) -> Value {
    let number = json!({"write": write.to_string()});
    json!({
        "metadata": {"name": name, "labels": number, "annotations": number},
        "data": {"write": write.to_string(), "body": body(write)},
    })
}

/// A text of up to a few pages that no other write has.
fn body(write: u64) -> String {
    let length = write.wrapping_mul(2_654_435_761) % 700;
    format!("{write} ").repeat(length as usize)
}

fn json_patch(object: &Value) -> Value {
    let paths = [
        "/metadata/labels/write",
        "/metadata/annotations/write",
        "/data/write",
        "/data/body",
    ];
    let replace =
        |path: &&str| json!({"op": "replace", "path": path, "value": object.pointer(path)});
    paths.iter().map(replace).collect()
}

/// Reads an object and makes sure that it is the work of one write, whole.
#[track_caller]
fn present(object: &Value) -> Present {
    let write = object["data"]["write"]
        .as_str()
        .and_then(|w| w.parse().ok());
    let write = write.unwrap_or_else(|| panic!("no write has left this: {object}"));
    let name = object["metadata"]["name"].as_str().unwrap();
    let whole = content(name, write);
    assert_eq!(object["data"], whole["data"], "half a write in {object}");
    for part in ["labels", "annotations"] {
        let (seen, wanted) = (&object["metadata"][part], &whole["metadata"][part]);
        assert_eq!(seen, wanted, "half a write in {object}");
    }
    Present {
        write,
        uid: object["metadata"]["uid"].as_str().unwrap().to_owned(),
        version: version(object),
    }
}

/// The objects as the server lists them, and the list's version.
fn list(server: &Server) -> (BTreeMap<String, Present>, u64) {
    let (code, text) = server.get(COLLECTION);
    assert_eq!(code, 200, "{text}");
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let objects = items.iter().map(|item| (name(item), present(item)));
    (objects.collect(), version(&list))
}

/// Watches `path` across all crashes, until [`LAST`] appears; every event in the namespace.
///
/// Nothing is compacted during the test, so a refusal to resume is a failure.
async fn follow(client: kube::Client, path: &'static str, start: u64) -> Vec<Landed> {
    let mut seen: Vec<Landed> = Vec::new();
    loop {
        let from = seen.last().and_then(|landed| landed.version);
        let query = format!(
            "{path}?watch=true&resourceVersion={}",
            from.unwrap_or(start)
        );
        match JsonWatch::open(&client, &query).await {
            Ok(mut watch) => {
                while let Ok(event) = watch.next().await {
                    if event["object"]["metadata"]["namespace"] == "crash" {
                        seen.push(landed(&event));
                    }
                    assert_ne!(event["type"], "ERROR", "{query}: {event}");
                    if seen.last().is_some_and(|landed| landed.name == LAST) {
                        return seen;
                    }
                }
            }
            Err(WatchEnd::Refused(code, text)) => {
                assert!([429, 503].contains(&code), "{query}: {code}: {text}");
            }
            Err(WatchEnd::Closed(_)) => {}
        }
        // The server is away for about as long; asking more often would only slow its start.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn landed(event: &Value) -> Landed {
    let kinds = ["ADDED", "MODIFIED", "DELETED"];
    let kind = kinds.into_iter().find(|kind| event["type"] == **kind);
    let object = &event["object"];
    let Present {
        write,
        uid,
        version,
    } = present(object);
    Landed {
        kind: kind.unwrap_or_else(|| panic!("unexpected {event}")),
        name: object["metadata"]["name"].as_str().unwrap().to_owned(),
        uid,
        write,
        version: Some(version),
    }
}

/// Lets the writers work and kills the server at a random moment; returns when all have noticed.
fn crash_under_load(server: &mut Server, writers: Vec<Writer>, random: &mut Random) -> Vec<Writer> {
    let wanted = 1 + random.below(MOST_WRITES_PER_ROUND);
    let moment = Duration::from_micros(random.below(3_000) as u64);
    let (acknowledged, mut count) = watch::channel(0);
    let running: Vec<JoinHandle<Writer>> = server.block_on(async {
        let spawn = |writer: Writer| tokio::spawn(writer.run(acknowledged.clone()));
        let running = writers.into_iter().map(spawn).collect();
        let enough = tokio::time::timeout(PATIENCE, count.wait_for(|count| *count >= wanted));
        // A writer that failed shows its reason when it is joined.
        let _ = enough.await;
        // Not a wait: it moves the kill to any moment of the writes in flight.
        tokio::time::sleep(moment).await;
        running
    });
    server.kill();
    let ended = futures::future::join_all(running);
    let ended = server.block_on(async { tokio::time::timeout(PATIENCE, ended).await });
    let ended = ended.expect("the writers notice that the server is gone");
    ended.into_iter().map(|writer| writer.unwrap()).collect()
}

/// Kills the server while it recovers.
fn crash_in_recovery(server: &mut Server, random: &mut Random) {
    server.launch_again();
    let moment = Duration::from_millis(random.below(120) as u64);
    server.block_on(async { tokio::time::sleep(moment).await });
    server.kill();
}

#[test]
fn nothing_acknowledged_is_lost_however_often_the_server_is_killed() {
    let mut random = Random::seeded();
    let mut server = Server::start_alone();
    let (code, answer) = server.post("/api/v1/namespaces", r#"{"metadata": {"name": "crash"}}"#);
    assert_eq!(code, 201, "{answer}");
    let mut reached = list(&server).1;
    let watchers = server.block_on(async {
        [COLLECTION, "/api/v1/configmaps"]
            .map(|path| tokio::spawn(follow(server.client(), path, reached)))
    });
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, server.client(), random.split()))
        .collect();

    for _ in 0..KILLS {
        writers = crash_under_load(&mut server, writers, &mut random);
        if random.chance(15) {
            crash_in_recovery(&mut server, &mut random);
        }
        server.start_again();
        let before = writers.iter().map(Writer::newest).fold(reached, u64::max);
        let listed;
        (listed, reached) = list(&server);
        assert!(before <= reached, "from {before} back to {reached}");
        for writer in &mut writers {
            writer.check(&listed);
        }
        let known = |name: &String| {
            writers
                .iter()
                .any(|writer| writer.objects.contains_key(name))
        };
        assert!(listed.keys().all(known), "unknown objects in {listed:?}");
    }

    let (code, answer) = server.post(COLLECTION, content(LAST, 0).to_string());
    assert_eq!(code, 201, "{answer}");
    let seen = server.block_on(async {
        let all = futures::future::try_join_all(watchers);
        tokio::time::timeout(PATIENCE, all).await
    });
    let seen = seen.expect("the watchers see the end").unwrap();
    assert_eq!(seen[0], seen[1], "two watchers saw different histories");
    check_history(&seen[0], &writers);
    assert_eq!(
        replayed(&seen[0]),
        list(&server).0,
        "the history leads to the present"
    );
}

/// Every write that happened was seen exactly once, and nothing else was.
fn check_history(seen: &[Landed], writers: &[Writer]) {
    let rising = seen.windows(2).find(|two| two[0].version >= two[1].version);
    assert_eq!(rising, None, "versions rise from event to event");
    let mut events: Vec<Landed> = seen.to_vec();
    let last = events.pop().expect("the last object was seen");
    assert_eq!(last.name, LAST);
    for event in &mut events {
        if event.kind == "DELETED" {
            event.version = None;
        }
    }
    let mut happened: Vec<Landed> = writers.iter().flat_map(|w| w.landed.clone()).collect();
    events.sort();
    happened.sort();
    let missed: Vec<_> = happened
        .iter()
        .filter(|landed| !events.contains(landed))
        .collect();
    let invented: Vec<_> = events
        .iter()
        .filter(|event| !happened.contains(event))
        .collect();
    assert!(missed.is_empty(), "the watchers missed {missed:?}");
    assert!(
        invented.is_empty(),
        "the watchers saw {invented:?}, which never happened"
    );
    assert_eq!(events.len(), happened.len(), "some event came twice");
    assert!(happened.len() > KILLS, "there was load");
}

/// The state that a history leads to.
fn replayed(seen: &[Landed]) -> BTreeMap<String, Present> {
    let mut objects = BTreeMap::new();
    for event in seen {
        let Landed {
            name,
            uid,
            write,
            version,
            ..
        } = event.clone();
        let version = version.expect("every event tells its version");
        match event.kind {
            "DELETED" => objects.remove(&name),
            _ => objects.insert(
                name,
                Present {
                    write,
                    uid,
                    version,
                },
            ),
        };
    }
    objects
}
