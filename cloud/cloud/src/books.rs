//! The state on disk: the project's own store, written all or nothing.
//!
//! The store changes one key at a time. A change of several keys is therefore written down as a whole under
//! `journal/` first, then made, then struck out; what a crash leaves in the journal is made at the next start.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use store::embedded::Options;
use store::{Change, Embedded, Expect, Store as _, Written};

use crate::turn::{Changes, View};

/// Why the state cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum BooksError {
    /// The store refuses.
    #[error("the cloud's state cannot be kept: {0}")]
    Store(#[from] store::Error),
    /// Somebody else writes to the same directory.
    #[error("`{0}` was changed by somebody else; only one cloud may use a directory")]
    Interfered(String),
}

/// What keys of resources begin with.
const RESOURCES: &str = "arm/";

/// One row of what is kept only for a time.
const KEPT: [(&str, Duration); 4] = [
    ("op/", Duration::from_secs(24 * 3600)),
    ("activity/", Duration::from_secs(90 * 24 * 3600)),
    ("entra/device/", Duration::from_secs(900)),
    ("entra/refresh/", Duration::from_secs(90 * 24 * 3600)),
];

/// The state. Whoever commits holds the one pen; readers need nothing.
#[derive(Debug)]
pub(crate) struct Books {
    store: Arc<Embedded>,
    /// The keys of resources: whoever looks for those of a type jumps from group to group instead of reading everything.
    resources: RwLock<BTreeSet<String>>,
}

impl Books {
    /// Opens the state and makes what a crash left in the journal.
    pub(crate) async fn open(directory: &Path) -> Result<Books, BooksError> {
        let options = Options {
            history_bytes: 64 << 10,
            ..Options::default()
        };
        let store = Embedded::open(directory, options)?;
        let kept = store.range_now(RESOURCES, &end_of(RESOURCES), 0, None)?;
        let resources = kept.entries.into_iter().map(|entry| entry.key).collect();
        let books = Books {
            store,
            resources: RwLock::new(resources),
        };
        for (entry, changes) in books.under("journal/") {
            tracing::info!(entry, "finishing a change that a crash interrupted");
            let changes = serde_json::from_value(changes).unwrap_or_default();
            books.make(&changes).await?;
            books.write(&entry, None).await?;
        }
        Ok(books)
    }

    /// Keeps all of these changes, or none.
    pub(crate) async fn commit(&self, changes: &Changes) -> Result<(), BooksError> {
        if changes.len() < 2 {
            return self.make(changes).await;
        }
        let entry = format!("journal/{}", self.store.revision_now());
        let whole = serde_json::to_value(changes).expect("changes are plain data");
        self.write(&entry, Some(&whole)).await?;
        self.make(changes).await?;
        self.write(&entry, None).await
    }

    // In the order of keys: a resource (`arm/`) is as it should be before its operation (`op/`) is seen to end.
    async fn make(&self, changes: &Changes) -> Result<(), BooksError> {
        let writes = changes
            .iter()
            .map(|(key, value)| self.write(key, value.as_ref()));
        futures::future::try_join_all(writes).await.map(drop)
    }

    async fn write(&self, key: &str, value: Option<&Value>) -> Result<(), BooksError> {
        let now = self.store.get_now(key);
        let expect = match &now {
            Some(entry) => Expect::Modified(entry.mod_revision),
            None if value.is_none() => return Ok(()),
            None => Expect::Absent,
        };
        let change = match value {
            Some(value) => Change::Put {
                value: Bytes::from(value.to_string()),
                ttl: time_to_live(key),
            },
            None => Change::Delete,
        };
        match self.store.write(key, expect, change).await? {
            Written::Done(_) => {
                self.note(key, value.is_some());
                Ok(())
            }
            Written::Conflict(_) => Err(BooksError::Interfered(key.to_owned())),
        }
    }

    fn note(&self, key: &str, is_there: bool) {
        if !key.starts_with(RESOURCES) {
            return;
        }
        let mut resources = self
            .resources
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match is_there {
            true => resources.insert(key.to_owned()),
            false => resources.remove(key),
        };
    }

    /// Writes what is left and lets go of the directory.
    pub(crate) fn close(&self) {
        self.store.close();
    }
}

fn time_to_live(key: &str) -> Option<Duration> {
    let row = KEPT.iter().find(|(prefix, _)| key.starts_with(prefix));
    row.map(|(_, time)| *time)
}

// Keys are text: the highest character ends every range of a prefix.
fn end_of(prefix: &str) -> String {
    format!("{prefix}\u{10ffff}")
}

impl View for Books {
    fn next(&self, from: &str, end: &str) -> Option<String> {
        let resources = self
            .resources
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let range = (Bound::Included(from), Bound::Excluded(end));
        resources.range::<str, _>(range).next().cloned()
    }

    fn get(&self, key: &str) -> Option<Value> {
        let entry = self.store.get_now(key)?;
        serde_json::from_slice(&entry.value).ok()
    }

    fn under(&self, prefix: &str) -> Vec<(String, Value)> {
        let Ok(range) = self.store.range_now(prefix, &end_of(prefix), 0, None) else {
            return Vec::new();
        };
        let parsed = |entry: store::KeyValue| {
            let value = serde_json::from_slice(&entry.value).ok()?;
            Some((entry.key, value))
        };
        range.entries.into_iter().filter_map(parsed).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_stands_in_the_journal_is_made_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let changes = Changes::from([
            ("arm/a".to_owned(), Some(json!({"x": 1}))),
            ("arm/b".to_owned(), None),
        ]);
        {
            let books = Books::open(dir.path()).await.unwrap();
            books.write("arm/b", Some(&json!(1))).await.unwrap();
            let whole = serde_json::to_value(&changes).unwrap();
            books.write("journal/7", Some(&whole)).await.unwrap();
            books.close();
        }
        let books = Books::open(dir.path()).await.unwrap();
        assert_eq!(books.get("arm/a"), Some(json!({"x": 1})));
        assert_eq!(books.get("arm/b"), None);
        assert_eq!(books.under("journal/"), []);
    }
}
