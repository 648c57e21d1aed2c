//! Random operations, compared with a plain model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use store::embedded::Options;
use store::{Change, Embedded, Error, Expect, KeyValue, Revision, Store, Written};

use crate::engines::{Engine, events, put};

/// A small random number generator (splitmix64); the seed is printed so that a failure can be
/// repeated with `STORE_TEST_SEED`.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded() -> Self {
        let seed = match std::env::var("STORE_TEST_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        };
        eprintln!("STORE_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    fn split(&mut self) -> Self {
        Self(self.number())
    }
}

type State = BTreeMap<String, KeyValue>;

/// Every state a store went through; the position is the revision.
struct Model {
    states: Vec<State>,
}

impl Model {
    fn new() -> Self {
        // Revisions 0 and 1 are the empty store.
        Self {
            states: vec![State::new(), State::new()],
        }
    }

    fn revision(&self) -> Revision {
        self.states.len() as Revision - 1
    }

    fn at(&self, revision: Revision) -> &State {
        &self.states[revision as usize]
    }

    fn current(&self, key: &str) -> Option<&KeyValue> {
        self.at(self.revision()).get(key)
    }

    fn apply(&mut self, key: &str, change: &Change) -> Revision {
        let revision = self.revision() + 1;
        let mut state = self.at(revision - 1).clone();
        match change {
            Change::Put { value, .. } => {
                let created = state.get(key).map_or(revision, |kv| kv.create_revision);
                let entry = KeyValue {
                    key: key.to_owned(),
                    value: value.clone(),
                    create_revision: created,
                    mod_revision: revision,
                };
                state.insert(key.to_owned(), entry);
            }
            Change::Delete => {
                state.remove(key).expect("only keys that exist are deleted");
            }
        }
        self.states.push(state);
        revision
    }

    /// Everything readable of the store equals the model.
    async fn assert_same(&self, store: &dyn Store, oldest: Revision) {
        assert_eq!(store.revision().await.unwrap(), self.revision());
        for at in oldest.max(1)..=self.revision() {
            let range = store.range("", "z", 0, Some(at)).await.unwrap();
            assert!(range.entries.iter().eq(self.at(at).values()), "at {at}");
            assert_eq!(range.count, self.at(at).len());
        }
        if oldest > 1 {
            let gone = store.range("", "z", 0, Some(oldest - 1)).await;
            assert!(matches!(gone, Err(Error::Compacted { .. })), "{gone:?}");
        }
        let first = oldest.max(1) + 1;
        let count = (self.revision() + 1 - first) as usize;
        let mut watch = store.watch("", oldest).await.unwrap();
        for (event, revision) in events(&mut watch, count).await.into_iter().zip(first..) {
            assert_eq!(event.revision, revision);
            let state = |at: Revision| self.at(at).get(&event.key).cloned();
            assert_eq!(event.current, state(revision));
            assert_eq!(event.previous, state(revision - 1));
            assert_ne!(event.current, event.previous);
        }
    }
}

/// What a client did and saw, between two revisions it knew of.
struct Observation {
    before: Revision,
    after: Revision,
    seen: Seen,
}

enum Seen {
    Wrote(String, Expect, Change, Written),
    Got(String, Option<KeyValue>),
    Ranged(Vec<KeyValue>, Revision),
}

fn random_write(random: &mut Random, current: Option<&KeyValue>) -> (Expect, Change) {
    let expect = match (random.below(8), current) {
        (0, _) => Expect::Absent,
        (1, _) => Expect::Modified(2 + random.below(300)),
        (_, Some(current)) => Expect::Modified(current.mod_revision),
        (_, None) => Expect::Absent,
    };
    let change = match random.below(4) {
        0 => Change::Delete,
        _ => put(random.number().to_string()),
    };
    (expect, change)
}

async fn client(store: Arc<dyn Store>, mut random: Random, rounds: usize) -> Vec<Observation> {
    let mut observations = Vec::new();
    for _ in 0..rounds {
        let before = store.revision().await.unwrap();
        let key = format!("k{}", random.below(6));
        let seen = match random.below(10) {
            0 => Seen::Got(key.clone(), store.get(&key).await.unwrap()),
            1 => {
                let range = store.range("", "z", 0, None).await.unwrap();
                Seen::Ranged(range.entries, range.revision)
            }
            2 => {
                let at = 1 + random.below(before);
                let range = store.range("", "z", 0, Some(at)).await.unwrap();
                // True for any moment: checked against the revision it names.
                Seen::Ranged(range.entries, range.revision)
            }
            _ => {
                let current = store.get(&key).await.unwrap();
                let (expect, change) = random_write(&mut random, current.as_ref());
                let written = store.write(&key, expect, change.clone()).await.unwrap();
                Seen::Wrote(key, expect, change, written)
            }
        };
        let after = store.revision().await.unwrap();
        observations.push(Observation {
            before,
            after,
            seen,
        });
    }
    observations
}

fn holds(expect: Expect, current: Option<&KeyValue>) -> bool {
    match expect {
        Expect::Absent => current.is_none(),
        Expect::Modified(revision) => current.is_some_and(|kv| kv.mod_revision == revision),
    }
}

/// Whether a write that succeeded changed something: deleting an absent key does not.
fn changed(seen: &Seen) -> Option<(Revision, &String, Expect, &Change)> {
    match seen {
        Seen::Wrote(_, Expect::Absent, Change::Delete, Written::Done(_)) => None,
        Seen::Wrote(key, expect, change, Written::Done(revision)) => {
            Some((*revision, key, *expect, change))
        }
        _ => None,
    }
}

/// The order of the revisions explains everything every client saw.
fn assert_explained(observations: &[Observation]) -> Model {
    let mut writes: Vec<_> = observations
        .iter()
        .filter_map(|o| changed(&o.seen))
        .collect();
    writes.sort_by_key(|write| write.0);
    let mut model = Model::new();
    for (revision, key, expect, change) in writes {
        assert!(holds(expect, model.current(key)), "{key} at {revision}");
        assert_eq!(
            model.apply(key, change),
            revision,
            "revisions have a gap or a duplicate"
        );
    }
    for Observation {
        before,
        after,
        seen,
    } in observations
    {
        let some_moment = |key: &str, fits: &dyn Fn(Option<&KeyValue>) -> bool| {
            (*before..=*after).any(|at| fits(model.at(at).get(key)))
        };
        match seen {
            Seen::Wrote(key, expect, change, Written::Done(revision)) => {
                let within = (*before..=*after).contains(revision);
                assert!(within, "{key}: {revision} not in {before}..={after}");
                if *change == Change::Delete && *expect == Expect::Absent {
                    assert!(model.at(*revision).get(key).is_none());
                }
            }
            Seen::Wrote(key, expect, _, Written::Conflict(current)) => {
                assert!(!holds(*expect, current.as_ref()));
                assert!(
                    some_moment(key, &|state| state == current.as_ref()),
                    "{key}"
                );
            }
            Seen::Got(key, found) => {
                assert!(some_moment(key, &|state| state == found.as_ref()), "{key}");
            }
            Seen::Ranged(entries, revision) => {
                assert!(
                    entries.iter().eq(model.at(*revision).values()),
                    "at {revision}"
                );
            }
        }
    }
    model
}

async fn concurrent_clients_agree(engine: Engine, clients: usize, rounds: usize) {
    let mut random = Random::seeded();
    let tasks: Vec<_> = (0..clients)
        .map(|_| tokio::spawn(client(Arc::clone(&engine.store), random.split(), rounds)))
        .collect();
    let mut observations = Vec::new();
    for task in tasks {
        observations.extend(task.await.unwrap());
    }
    let model = assert_explained(&observations);
    assert!(model.revision() > 20, "hardly anything happened");
    model.assert_same(&*engine.store, 0).await;
    let middle = model.revision() / 2;
    engine.store.compact(middle).await.unwrap();
    model.assert_same(&*engine.store, middle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_clients_agree_on_one_history() {
    for _ in 0..3 {
        let engine = Engine::embedded().await.unwrap();
        concurrent_clients_agree(engine, 8, 60).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn etcd_clients_agree_on_one_history() {
    if let Some(engine) = Engine::etcd().await {
        concurrent_clients_agree(engine, 6, 50).await;
    }
}

/// Files so small that every few writes start a segment and every few compactions a checkpoint.
fn tiny_files() -> Options {
    Options {
        segment_bytes: 600,
        reserve_bytes: 256,
        checkpoint_bytes: 900,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_with_restarts_and_compactions_matches_the_model() {
    let mut random = Random::seeded();
    let mut checkpoints = BTreeSet::new();
    for _ in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Embedded::open(dir.path(), tiny_files()).unwrap();
        let (mut model, mut compacted) = (Model::new(), 0);
        for _ in 0..400 {
            let key = format!("k{}", random.below(12));
            match random.below(60) {
                0 => {
                    store.close();
                    store = Embedded::open(dir.path(), tiny_files()).unwrap();
                    model.assert_same(&*store, compacted).await;
                }
                1..5 if model.revision() > compacted => {
                    compacted += 1 + random.below(model.revision() - compacted);
                    store.compact(compacted).await.unwrap();
                }
                _ => {
                    let (expect, change) = random_write(&mut random, model.current(&key));
                    let written = store.write(&key, expect, change.clone()).await.unwrap();
                    assert_written(&mut model, &key, expect, &change, written);
                }
            }
            checkpoints.extend(snapshots(dir.path()));
        }
        model.assert_same(&*store, compacted).await;
        drop(store);
        let store = Embedded::open(dir.path(), tiny_files()).unwrap();
        model.assert_same(&*store, compacted).await;
    }
    assert!(checkpoints.len() > 3, "checkpoints were not exercised");
}

fn assert_written(model: &mut Model, key: &str, expect: Expect, change: &Change, written: Written) {
    let current = model.current(key).cloned();
    let expected = match (holds(expect, current.as_ref()), &current, change) {
        (false, _, _) => Written::Conflict(current),
        (true, None, Change::Delete) => Written::Done(model.revision()),
        (true, _, _) => Written::Done(model.apply(key, change)),
    };
    assert_eq!(written, expected);
}

fn snapshots(dir: &std::path::Path) -> Vec<std::ffi::OsString> {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.file_name()));
    names
        .filter(|name| name.to_string_lossy().ends_with(".img"))
        .collect()
}
