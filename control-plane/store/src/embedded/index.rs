//! The state in memory: every key's versions and the changes since the last compaction.
//!
//! Pure: it knows neither files nor threads. Values are shared with readers and watchers, never
//! copied. Changes have consecutive revisions, so the change of a revision is found by subtraction.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Error, Event, KeyValue, Result, Revision};

/// What a change costs in memory besides key and value: two map or queue slots and two counted
/// allocations. An estimate; it only decides how early history is trimmed.
const CHANGE_OVERHEAD: usize = 160;

/// A key's state from one revision on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) key: Arc<str>,
    /// `None` for a deletion.
    pub(crate) value: Option<Bytes>,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
    /// When the key is to be deleted, in milliseconds since the Unix epoch; 0 for never.
    pub(crate) deadline: u64,
}

impl Version {
    /// The state as readers get it; `None` for a deletion.
    pub(crate) fn to_key_value(&self) -> Option<KeyValue> {
        self.value.as_ref().map(|value| KeyValue {
            key: self.key.as_ref().to_owned(),
            value: value.clone(),
            create_revision: self.created,
            mod_revision: self.modified,
        })
    }

    /// Whether the key exists in this version.
    pub(crate) fn is_live(&self) -> bool {
        self.value.is_some()
    }

    /// The bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// A step from one version of a key to the next.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: Arc<Version>,
    /// The live version before; `None` if the key was absent.
    pub(crate) previous: Option<Arc<Version>>,
}

impl Change {
    /// The change as watchers get it.
    pub(crate) fn to_event(&self) -> Event {
        Event {
            key: self.version.key.as_ref().to_owned(),
            revision: self.version.modified,
            current: self.version.to_key_value(),
            previous: self.previous.as_ref().and_then(|p| p.to_key_value()),
        }
    }

    // What only the history keeps alive: the state before. The state after is the key's own.
    fn bytes(&self) -> usize {
        self.previous.as_ref().map_or(0, |p| p.bytes()) + CHANGE_OVERHEAD
    }
}

/// A key's versions. Most keys have one, which then costs no second allocation.
#[derive(Debug)]
struct Versions {
    latest: Arc<Version>,
    /// Superseded ones that may still be asked for, oldest first.
    older: Vec<Arc<Version>>,
}

impl Versions {
    fn at(&self, revision: Revision) -> Option<&Arc<Version>> {
        if self.latest.modified <= revision {
            return Some(&self.latest);
        }
        let known = self.older.partition_point(|v| v.modified <= revision);
        known.checked_sub(1).map(|at| &self.older[at])
    }

    /// Drops what no reader at `revision` or later can see.
    fn forget_before(&mut self, revision: Revision, garbage: &mut Vec<Arc<Version>>) {
        if self.latest.modified <= revision {
            garbage.append(&mut self.older);
            return;
        }
        let known = self.older.partition_point(|v| v.modified <= revision);
        let Some(base) = known.checked_sub(1) else {
            return;
        };
        let keep_base = self.older[base].is_live();
        garbage.extend(self.older.drain(..if keep_base { base } else { known }));
    }
}

/// All keys and the recent history.
#[derive(Debug)]
pub(crate) struct Index {
    keys: BTreeMap<Arc<str>, Versions>,
    /// The changes after `forgotten`, in order, one per revision.
    changes: VecDeque<Change>,
    /// The revision before the first of `changes`. Trails `compacted` while a compaction runs.
    forgotten: Revision,
    compacted: Revision,
    revision: Revision,
    live_keys: usize,
    live_bytes: usize,
    history_bytes: usize,
}

/// How big the state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) live_keys: usize,
    pub(crate) live_bytes: usize,
    pub(crate) history_bytes: usize,
}

/// A stretch of a range read under one lock.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The live versions found.
    pub(crate) found: Vec<Arc<Version>>,
    /// How many live keys were passed, including those not returned.
    pub(crate) count: usize,
    /// The last key looked at, if the range may hold more.
    pub(crate) resume: Option<Arc<str>>,
}

impl Index {
    /// The state of a store that was never written: revision 1.
    pub(crate) fn empty() -> Self {
        Self {
            keys: BTreeMap::new(),
            changes: VecDeque::new(),
            forgotten: 1,
            compacted: 0,
            revision: 1,
            live_keys: 0,
            live_bytes: 0,
            history_bytes: 0,
        }
    }

    /// The state of a snapshot: these keys at this revision, and no history.
    pub(crate) fn from_snapshot(
        revision: Revision,
        versions: impl IntoIterator<Item = Version>,
    ) -> Self {
        let mut index = Self {
            forgotten: revision,
            compacted: revision,
            revision,
            ..Self::empty()
        };
        for version in versions {
            index.count_live(&version, true);
            let latest = Arc::new(version);
            let older = Vec::new();
            index
                .keys
                .insert(Arc::clone(&latest.key), Versions { latest, older });
        }
        index
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that can be read; 0 if nothing was ever compacted.
    pub(crate) fn compacted(&self) -> Revision {
        self.compacted
    }

    /// How big the state is.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            live_keys: self.live_keys,
            live_bytes: self.live_bytes,
            history_bytes: self.history_bytes,
        }
    }

    /// The newest version of a key, if it exists.
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Version>> {
        let versions = self.keys.get(key)?;
        versions.latest.is_live().then_some(&versions.latest)
    }

    /// The newest live version of every key.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.keys
            .values()
            .map(|versions| &versions.latest)
            .filter(|version| version.is_live())
    }

    /// Makes a change visible. Its revision must be the next one.
    pub(crate) fn apply(&mut self, change: Change) {
        debug_assert_eq!(change.version.modified, self.revision + 1);
        self.revision = change.version.modified;
        self.history_bytes += change.bytes();
        if let Some(previous) = &change.previous {
            self.count_live(previous, false);
        }
        self.count_live(&change.version, true);
        let latest = Arc::clone(&change.version);
        match self.keys.get_mut(&latest.key) {
            Some(versions) => {
                let older = std::mem::replace(&mut versions.latest, latest);
                versions.older.push(older);
            }
            None => {
                let older = Vec::new();
                self.keys
                    .insert(Arc::clone(&latest.key), Versions { latest, older });
            }
        }
        self.changes.push_back(change);
    }

    fn count_live(&mut self, version: &Version, added: bool) {
        let keys = usize::from(version.is_live());
        let bytes = keys * version.bytes();
        if added {
            self.live_keys += keys;
            self.live_bytes += bytes;
        } else {
            self.live_keys -= keys;
            self.live_bytes -= bytes;
        }
    }

    /// Says whether the state at a revision can be read.
    pub(crate) fn check_readable(&self, revision: Revision) -> Result<()> {
        if revision < self.compacted {
            return Err(self.gone(revision));
        }
        if revision > self.revision {
            return Err(self.future(revision));
        }
        Ok(())
    }

    /// Says whether compaction to a revision is possible.
    pub(crate) fn check_compactable(&self, revision: Revision) -> Result<()> {
        if revision <= self.compacted {
            return Err(self.gone(revision));
        }
        if revision > self.revision {
            return Err(self.future(revision));
        }
        Ok(())
    }

    fn gone(&self, requested: Revision) -> Error {
        Error::Compacted {
            requested,
            oldest: self.compacted,
        }
    }

    fn future(&self, requested: Revision) -> Error {
        Error::Future {
            requested,
            newest: self.revision,
        }
    }

    /// Reads part of a range at a revision: looks at no more than `step` keys, returns no more than
    /// `limit` entries and counts the rest.
    pub(crate) fn page(
        &self,
        start: Bound<&str>,
        end: Bound<&str>,
        at: Revision,
        limit: usize,
        step: usize,
    ) -> Page {
        let mut page = Page::default();
        for (looked, (key, versions)) in self.keys.range::<str, _>((start, end)).enumerate() {
            if let Some(version) = versions.at(at).filter(|version| version.is_live()) {
                page.count += 1;
                if page.found.len() < limit {
                    page.found.push(Arc::clone(version));
                }
            }
            if looked + 1 == step {
                page.resume = Some(Arc::clone(key));
                break;
            }
        }
        page
    }

    /// The changes after a revision to keys with a prefix, oldest first.
    pub(crate) fn changes_after<'a>(
        &'a self,
        after: Revision,
        prefix: &'a str,
    ) -> Result<impl Iterator<Item = &'a Change>> {
        if after < self.compacted {
            return Err(self.gone(after));
        }
        let skip = after.saturating_sub(self.forgotten);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Ok(self
            .changes
            .range(skip.min(self.changes.len())..)
            .filter(move |change| change.version.key.starts_with(prefix)))
    }

    /// The revision to compact to so that at most `bytes` of history stay.
    pub(crate) fn revision_to_keep(&self, bytes: usize) -> Revision {
        let mut left = self.history_bytes;
        let dropped = self
            .changes
            .iter()
            .take_while(|change| {
                let over = left > bytes;
                left -= change.bytes();
                over
            })
            .count();
        self.forgotten + dropped as Revision
    }

    /// Refuses reads before a revision from now on; [`Index::forget`] then frees the memory.
    pub(crate) fn compact(&mut self, revision: Revision) {
        self.compacted = revision;
    }

    /// Frees the memory of up to `step` compacted changes. Returns what is to be dropped outside
    /// the lock, or `None` when there is nothing left.
    pub(crate) fn forget(&mut self, step: usize) -> Option<Garbage> {
        let pending = self.compacted.saturating_sub(self.forgotten);
        let count = usize::try_from(pending).unwrap_or(usize::MAX).min(step);
        if count == 0 {
            return None;
        }
        let changes: Vec<Change> = self.changes.drain(..count).collect();
        let mut versions = Vec::new();
        for change in &changes {
            self.history_bytes -= change.bytes();
            self.forget_key(&change.version.key, &mut versions);
        }
        self.forgotten += count as Revision;
        Some(Garbage {
            _changes: changes,
            _versions: versions,
        })
    }

    fn forget_key(&mut self, key: &str, garbage: &mut Vec<Arc<Version>>) {
        let Some(versions) = self.keys.get_mut(key) else {
            return;
        };
        versions.forget_before(self.compacted, garbage);
        let gone = versions.latest.modified <= self.compacted && !versions.latest.is_live();
        if gone {
            self.keys.remove(key);
        }
    }
}

/// Versions no reader can reach any more; dropping it frees them.
#[derive(Debug)]
pub(crate) struct Garbage {
    _changes: Vec<Change>,
    _versions: Vec<Arc<Version>>,
}
