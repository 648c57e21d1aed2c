//! A store whose values are encrypted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use store::{
    Change, Error, Event, Expect, KeyValue, Range, Result, Revision, Store, Tell, Watch, WatchItem,
    Written,
};

use crate::configuration::{Configuration, Resource};

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
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Encrypted");
        shown.field("inner", &self.inner).field("file", &self.file);
        shown.finish_non_exhaustive()
    }
}

fn read(file: &Path) -> Result<Configuration, String> {
    let wrong = |why: String| format!("encryption provider config {}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    Configuration::parse(&text).map_err(wrong)
}

impl Encrypted {
    /// Encrypts what goes into a store, as a file says; says what is wrong with the file.
    pub fn new(inner: Arc<dyn Store>, file: PathBuf, naming: Naming) -> Result<Encrypted, String> {
        let configuration = ArcSwap::from_pointee(read(&file)?);
        Ok(Encrypted {
            inner,
            rules: Arc::new(Rules {
                configuration,
                naming,
            }),
            file,
        })
    }

    /// Reads the file again; what is in force stays so if it cannot be used.
    pub fn reload(&self) -> Result<(), String> {
        self.rules.configuration.store(Arc::new(read(&self.file)?));
        Ok(())
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
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
        let sealed = transformer.seal(plain, key);
        sealed.map_err(|cause| unreadable(key, cause))
    }

    fn open(&self, key: &str, stored: &Bytes) -> Result<(Bytes, bool)> {
        let configuration = self.configuration.load();
        let transformer = (self.naming)(key).and_then(|resource| configuration.of(resource));
        let Some(transformer) = transformer else {
            // What is no longer named by any rule is told apart from plain text by nobody else.
            return match stored.starts_with(b"k8s:enc:") {
                true => Err(unreadable(
                    key,
                    "identity transformer tried to read encrypted data".into(),
                )),
                false => Ok((stored.clone(), false)),
            };
        };
        match transformer.open(stored, key) {
            Ok(plain) => Ok((plain.value, plain.stale)),
            Err(cause) => Err(unreadable(key, cause)),
        }
    }

    // One value that nobody can read must not keep everybody from all others: it stays as it is, and is said.
    fn open_one(&self, mut kv: KeyValue) -> KeyValue {
        match self.open(&kv.key, &kv.value) {
            Ok((plain, _)) => kv.value = plain,
            Err(error) => tracing::error!(key = kv.key, %error, "a value cannot be decrypted"),
        }
        kv
    }

    fn open_item(&self, item: WatchItem) -> WatchItem {
        let WatchItem::Events(events) = item else {
            return item;
        };
        let open = |event: Event| Event {
            current: event.current.map(|kv| self.open_one(kv)),
            previous: event.previous.map(|kv| self.open_one(kv)),
            ..event
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
        self.inner.follow(prefix, after, tell).await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn size(&self) -> Result<u64> {
        self.inner.size().await
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        match self.inner.get(key).await? {
            Some(kv) => Ok(self.rules.open(key, &kv.value)?.1),
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
