//! The state on disk: the project's own store, written all or nothing.
//!
//! The store changes one key at a time. A change of several keys is therefore written down as a whole under
//! `journal/` first, then made, then struck out; what a crash leaves in the journal is made at the next start.

use std::path::Path;
use std::sync::Arc;
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
}

impl Books {
    /// Opens the state and makes what a crash left in the journal.
    pub(crate) async fn open(directory: &Path) -> Result<Books, BooksError> {
        let options = Options {
            history_bytes: 64 << 10,
            ..Options::default()
        };
        let books = Books {
            store: Embedded::open(directory, options)?,
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
            Written::Done(_) => Ok(()),
            Written::Conflict(_) => Err(BooksError::Interfered(key.to_owned())),
        }
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
