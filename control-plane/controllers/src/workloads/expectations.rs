//! What was asked for and has not been seen yet (upstream's `ControllerExpectations`).
//!
//! A cache is always a little behind. Whoever asked for pods waits until the cache has shown them (or five minutes)
//! before counting again; else each sync in between would ask for the same pods once more.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use client_runtime::ObjectKey;

/// Upstream's `ExpectationsTimeout`.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What each owner waits for.
#[derive(Default)]
pub(crate) struct Expectations {
    waiting: Mutex<HashMap<ObjectKey, Expected>>,
}

struct Expected {
    creations: usize,
    /// The uids of those that are to go.
    deletions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// Whether everything has been seen.
    pub(crate) fn are_met(&self, owner: &ObjectKey) -> bool {
        match self.waiting().get(owner) {
            None => true,
            Some(expected) => expected.is_met() || expected.since.elapsed() >= TIMEOUT,
        }
    }

    /// Says what will be asked for now; what was expected before has been met or given up.
    pub(crate) fn expect(
        &self,
        owner: &ObjectKey,
        creations: usize,
        deletions: impl IntoIterator<Item = String>,
    ) {
        let expected = Expected {
            creations,
            deletions: deletions.into_iter().collect(),
            since: Instant::now(),
        };
        self.waiting().insert(owner.clone(), expected);
    }

    /// So many creations have been seen, or will never be.
    pub(crate) fn created(&self, owner: &ObjectKey, count: usize) {
        if let Some(expected) = self.waiting().get_mut(owner) {
            expected.creations = expected.creations.saturating_sub(count);
        }
    }

    /// A deletion has been seen, or will never be.
    pub(crate) fn deleted(&self, owner: &ObjectKey, uid: &str) {
        if let Some(expected) = self.waiting().get_mut(owner) {
            expected.deletions.remove(uid);
        }
    }

    /// Nothing is expected of an owner that is gone.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        self.waiting().remove(owner);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<ObjectKey, Expected>> {
        self.waiting
            .lock()
            .expect("nothing panics while it holds the expectations")
    }
}

impl Expected {
    fn is_met(&self) -> bool {
        self.creations == 0 && self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_waits_for_what_it_asked_for_but_not_for_ever() {
        let (all, owner) = (Expectations::default(), ObjectKey::new("default", "web"));
        assert!(all.are_met(&owner));
        all.expect(&owner, 2, ["a".to_owned()]);
        all.created(&owner, 1);
        assert!(!all.are_met(&owner));
        all.created(&owner, 1);
        assert!(!all.are_met(&owner), "a deletion is still to be seen");
        all.deleted(&owner, "a");
        assert!(all.are_met(&owner));
        all.expect(&owner, 1, []);
        tokio::time::advance(TIMEOUT).await;
        assert!(all.are_met(&owner));
    }
}
