//! A store whose values are encrypted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use store::{
    Change, Error, Event, Expect, KeyValue, Range, Result, Revision, Store, Tell, Watch, WatchItem,
    Written,
};
use tokio::sync::watch;

use crate::configuration::{Configuration, Resource};
use crate::kms::{Plugin, Settings};
use crate::meters::{Direction, Meters};

/// Which resource a key belongs to.
pub type Naming = Arc<dyn for<'k> Fn(&'k str) -> Option<Resource<'k>> + Send + Sync>;

/// A store whose values are encrypted as a file says.
pub struct Encrypted {
    inner: Arc<dyn Store>,
    rules: Arc<Rules>,
    file: PathBuf,
}

struct Rules {
    configuration: ArcSwap<Configuration>,
    naming: Naming,
    meters: Meters,
    unreadable: Unreadable,
    /// Counts how often something got well that may have kept values from being read.
    well: watch::Sender<u64>,
}

/// The values that could not be decrypted when they were read last.
#[derive(Default)]
struct Unreadable {
    /// Why, and how often services had got well by then; by key.
    values: Mutex<BTreeMap<String, (String, u64)>>,
    /// How many: mostly none, and then nobody waits for the lock.
    count: AtomicUsize,
}

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (String, u64)>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, key: &str, cause: String, times_well: u64) {
        let mut values = self.lock();
        values.insert(key.to_owned(), (cause, times_well));
        self.count.store(values.len(), Relaxed);
    }

    fn forget(&self, key: &str) {
        if self.count.load(Relaxed) > 0 {
            let mut values = self.lock();
            values.remove(key);
            self.count.store(values.len(), Relaxed);
        }
    }

    fn first_of(&self, prefix: &str) -> Option<Error> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let values = self.lock();
        let mut found = values.range(prefix.to_owned()..);
        let (key, (cause, _)) = found.next().filter(|(key, _)| key.starts_with(prefix))?;
        Some(unreadable(key, cause.clone()))
    }

    /// Whether one could not be read before something got well for the so-many-th time.
    fn worth_another_look(&self, times_well: u64) -> bool {
        self.count.load(Relaxed) > 0 && self.lock().values().any(|(_, then)| *then < times_well)
    }
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Encrypted");
        shown.field("inner", &self.inner).field("file", &self.file);
        shown.finish_non_exhaustive()
    }
}

// Services that are the same as before stay; others are made, and not yet spoken with.
fn read(
    file: &Path,
    before: Option<&Configuration>,
    well: &watch::Sender<u64>,
    meters: &Meters,
) -> Result<Configuration, String> {
    let wrong = |why: String| format!("encryption provider config {}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    let service = |settings: Settings| {
        let mut known = before.into_iter().flat_map(Configuration::plugins);
        let same = known.find(|plugin| plugin.settings == settings);
        same.cloned()
            .unwrap_or_else(|| Arc::new(Plugin::new(settings, well.clone(), meters.clone())))
    };
    Configuration::parse(&text, &service).map_err(wrong)
}

impl Encrypted {
    /// Encrypts what goes into a store, as a file says; says what is wrong with the file. A key management service that
    /// is not well yet is no reason not to begin: what needs it fails until it is.
    pub fn new(inner: Arc<dyn Store>, file: PathBuf, naming: Naming) -> Result<Encrypted, String> {
        let (meters, well) = (Meters::default(), watch::Sender::new(0));
        let configuration = read(&file, None, &well, &meters)?;
        for plugin in configuration.plugins() {
            // Said in the log, and on the health pages.
            let _ = plugin.start();
        }
        Ok(Encrypted {
            inner,
            rules: Arc::new(Rules {
                configuration: ArcSwap::from_pointee(configuration),
                naming,
                meters,
                unreadable: Unreadable::default(),
                well,
            }),
            file,
        })
    }

    /// Reads the file again; what is in force stays so if it cannot be used, or if a service that is new in it is not
    /// well. May wait for such a service.
    pub fn reload(&self) -> Result<(), String> {
        let outcome = self.take_over();
        self.rules.meters.reloaded(outcome.is_ok());
        outcome
    }

    fn take_over(&self) -> Result<(), String> {
        let rules = &self.rules;
        let before = rules.configuration.load();
        let next = read(&self.file, Some(&before), &rules.well, &rules.meters)?;
        for plugin in next.plugins() {
            plugin.start()?;
        }
        rules.configuration.store(Arc::new(next));
        rules.well.send_modify(|times| *times += 1);
        Ok(())
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What is counted.
    pub fn meters(&self) -> &Meters {
        &self.rules.meters
    }

    /// Why not everything below a prefix could be read; nothing if it could.
    pub fn unreadable(&self, prefix: &str) -> Option<Error> {
        self.rules.unreadable.first_of(prefix)
    }

    /// Whether key management services are well; nothing if there are none.
    pub async fn health(&self) -> Option<Result<(), String>> {
        let configuration = self.rules.configuration.load_full();
        let mut health = None;
        for plugin in configuration.plugins() {
            let checked = plugin.check().await;
            if health.as_ref().is_none_or(Result::is_ok) {
                health = Some(checked);
            }
        }
        health
    }
}

impl Rules {
    fn seal(&self, key: &str, plain: &Bytes) -> Result<Bytes> {
        let Some(resource) = (self.naming)(key) else {
            return Ok(plain.clone());
        };
        let configuration = self.configuration.load();
        let Some(transformer) = configuration.of(resource) else {
            return Ok(plain.clone());
        };
        let began = Instant::now();
        let sealed = transformer.seal(plain, key);
        let (to, good) = (Direction::ToStorage, sealed.is_ok());
        let prefix = transformer.writes_as();
        let meters = &self.meters;
        meters.transformed(resource, to, &prefix, began.elapsed(), good);
        sealed.map_err(|cause| unreadable(key, cause))
    }

    fn open(&self, key: &str, stored: &Bytes) -> Result<(Bytes, bool)> {
        let configuration = self.configuration.load();
        let resource = (self.naming)(key);
        let transformer = resource.and_then(|resource| configuration.of(resource));
        let Some((transformer, resource)) = transformer.zip(resource) else {
            // What is no longer named by any rule is told apart from plain text by nobody else.
            return match stored.starts_with(b"k8s:enc:") {
                true => Err(unreadable(
                    key,
                    "identity transformer tried to read encrypted data".into(),
                )),
                false => Ok((stored.clone(), false)),
            };
        };
        let began = Instant::now();
        let opened = transformer.open(stored, key);
        let (from, good) = (Direction::FromStorage, opened.is_ok());
        let prefix = transformer.reads_as(stored);
        let meters = &self.meters;
        meters.transformed(resource, from, &prefix, began.elapsed(), good);
        match opened {
            Ok(plain) => Ok((plain.value, plain.stale)),
            Err(cause) => Err(unreadable(key, cause)),
        }
    }

    // Gets what a value needs to be read, where that takes time: nothing, mostly.
    async fn prepare(&self, kv: &KeyValue) {
        let configuration = self.configuration.load_full();
        let transformer = (self.naming)(&kv.key).and_then(|r| configuration.of(r));
        if let Some(transformer) = transformer {
            transformer.prepare(&kv.value).await;
        }
    }

    // One value that nobody can read must not keep everybody from all others: it stays as it is, and is said.
    fn open_one(&self, mut kv: KeyValue) -> KeyValue {
        match self.open(&kv.key, &kv.value) {
            Ok((plain, _)) => {
                self.unreadable.forget(&kv.key);
                kv.value = plain;
            }
            Err(error) => {
                tracing::error!(key = kv.key, %error, "a value cannot be decrypted");
                if let Error::Unreadable { cause, .. } = error {
                    self.unreadable.note(&kv.key, cause, *self.well.borrow());
                }
            }
        }
        kv
    }

    fn open_item(&self, item: WatchItem) -> WatchItem {
        let WatchItem::Events(events) = item else {
            return item;
        };
        let open = |event: Event| {
            // The newest last: what is known of the key is to be what is true of it now.
            let previous = event.previous.map(|kv| self.open_one(kv));
            let current = event.current.map(|kv| self.open_one(kv));
            if current.is_none() {
                self.unreadable.forget(&event.key);
            }
            Event {
                current,
                previous,
                ..event
            }
        };
        WatchItem::Events(events.into_iter().map(open).collect())
    }
}

fn unreadable(key: &str, cause: String) -> Error {
    Error::Unreadable {
        key: key.to_owned(),
        cause,
    }
}

#[async_trait::async_trait]
impl Store for Encrypted {
    async fn revision(&self) -> Result<Revision> {
        self.inner.revision().await
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        let Some(mut kv) = self.inner.get(key).await? else {
            return Ok(None);
        };
        self.rules.prepare(&kv).await;
        kv.value = self.rules.open(key, &kv.value)?.0;
        Ok(Some(kv))
    }

    async fn range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<Range> {
        let mut range = self.inner.range(start, end, limit, at).await?;
        for kv in &range.entries {
            self.rules.prepare(kv).await;
        }
        let entries = range.entries.into_iter();
        range.entries = entries.map(|kv| self.rules.open_one(kv)).collect();
        Ok(range)
    }

    async fn write(&self, key: &str, expect: Expect, change: Change) -> Result<Written> {
        let change = match change {
            Change::Put { value, ttl } => Change::Put {
                value: self.rules.seal(key, &value)?,
                ttl,
            },
            Change::Delete => Change::Delete,
        };
        let written = self.inner.write(key, expect, change).await?;
        Ok(match written {
            Written::Conflict(present) => {
                Written::Conflict(present.map(|kv| self.rules.open_one(kv)))
            }
            done => done,
        })
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch> {
        let watch = self.inner.watch(prefix, after).await?;
        let rules = Arc::clone(&self.rules);
        Ok(watch.map(move |item| rules.open_item(item)))
    }

    async fn follow(&self, prefix: &str, after: Revision, tell: Tell) -> Error {
        let rules = Arc::clone(&self.rules);
        let tell: Tell = Arc::new(move |item| tell(rules.open_item(item)));
        let rules = &self.rules;
        let mut well = rules.well.subscribe();
        let readable = well.wait_for(|times| rules.unreadable.worth_another_look(*times));
        tokio::select! {
            ended = self.inner.follow(prefix, after, tell) => ended,
            // Whoever follows has a picture with holes in it: it is to be read anew, as after a gap.
            _ = readable => {
                tracing::info!("values that could not be decrypted may be readable now; the store is read again");
                Error::Compacted { requested: after, oldest: after }
            }
        }
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        match self.inner.get(key).await? {
            Some(kv) => {
                self.rules.prepare(&kv).await;
                Ok(self.rules.open(key, &kv.value)?.1)
            }
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const KEY: &str = "/registry/secrets/default/a";

    fn configuration(keys: &str) -> String {
        format!(
            "{{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration, \
             resources: [{{resources: [secrets], providers: [{{secretbox: {{keys: [{keys}]}}}}, {{identity: {{}}}}]}}]}}"
        )
    }

    fn key(name: &str, byte: char) -> String {
        let secret = format!("{}=", byte.to_string().repeat(43));
        format!("{{name: {name}, secret: {secret}}}")
    }

    fn naming() -> Naming {
        Arc::new(|key| {
            key.starts_with("/registry/secrets/")
                .then_some(("", "secrets"))
        })
    }

    #[tokio::test]
    async fn secrets_are_sealed_and_keys_turn_while_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let inner: Arc<dyn Store> =
            store::Embedded::open(dir.path().join("s"), store::embedded::Options::default())
                .unwrap();
        let put = |text: &'static [u8]| Change::Put {
            value: Bytes::from_static(text),
            ttl: None,
        };
        inner
            .write(
                "/registry/secrets/default/old",
                Expect::Absent,
                put(b"plain"),
            )
            .await
            .unwrap();
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, configuration(&key("one", 'A'))).unwrap();
        let store = Encrypted::new(Arc::clone(&inner), file.clone(), naming()).unwrap();
        let mut watch = store
            .watch("/registry/", store.revision().await.unwrap())
            .await
            .unwrap();
        store.write(KEY, Expect::Absent, put(b"{}")).await.unwrap();
        store
            .write("/registry/configmaps/a", Expect::Absent, put(b"open"))
            .await
            .unwrap();
        let raw = inner.get(KEY).await.unwrap().unwrap().value;
        assert!(raw.starts_with(b"k8s:enc:secretbox:v1:one:"));
        assert_eq!(store.get(KEY).await.unwrap().unwrap().value, "{}");
        assert!(!store.is_stale(KEY).await.unwrap());
        let old = store
            .get("/registry/secrets/default/old")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(old.value, "plain");
        assert!(
            store
                .is_stale("/registry/secrets/default/old")
                .await
                .unwrap()
        );
        let open = inner.get("/registry/configmaps/a").await.unwrap().unwrap();
        assert_eq!(open.value, "open");
        let Some(Ok(WatchItem::Events(events))) = watch.next().await else {
            panic!("the write is told");
        };
        assert_eq!(events[0].current.as_ref().unwrap().value, "{}");
        std::fs::write(&file, "nonsense").unwrap();
        assert!(store.reload().is_err(), "what is in force stays");
        assert_eq!(store.get(KEY).await.unwrap().unwrap().value, "{}");
        let turned = format!("{}, {}", key("two", 'B'), key("one", 'A'));
        std::fs::write(&file, configuration(&turned)).unwrap();
        store.reload().unwrap();
        assert!(store.is_stale(KEY).await.unwrap());
        std::fs::write(&file, configuration(&key("two", 'B'))).unwrap();
        store.reload().unwrap();
        let refused = store.get(KEY).await.unwrap_err().to_string();
        assert!(refused.contains("unable to transform key \"/registry/secrets/default/a\""));
        let all = store
            .range("/registry/", "/registry0", 0, None)
            .await
            .unwrap();
        assert_eq!(all.entries.len(), 3, "the others can be read");
    }
}
