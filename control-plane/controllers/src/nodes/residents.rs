//! Which pods are on which node.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use client_runtime::{Cache, Change, ObjectKey};

use super::state::Resident;

/// An index of pods by the node they are bound to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Residents(Arc<Mutex<HashMap<String, BTreeSet<ObjectKey>>>>);

impl Residents {
    /// Follows a cache from now on.
    pub(crate) fn of(pods: &Cache<Resident>) -> Residents {
        let residents = Residents::default();
        let index = residents.clone();
        pods.on_change(move |change| index.note(change));
        residents
    }

    /// The pods of a node.
    pub(crate) fn on(&self, node: &str) -> Vec<ObjectKey> {
        let index = self.index();
        index.get(node).into_iter().flatten().cloned().collect()
    }

    fn note(&self, change: &Change<'_, Resident>) {
        let node = |pod: Option<&Resident>| pod.map_or("", |pod| &pod.node).to_owned();
        let (before, after) = (node(change.before), node(change.after));
        if before == after {
            return;
        }
        let mut index = self.index();
        if let Some(pods) = index.get_mut(&before) {
            pods.remove(change.key);
            if pods.is_empty() {
                index.remove(&before);
            }
        }
        if !after.is_empty() {
            index.entry(after).or_default().insert(change.key.clone());
        }
    }

    fn index(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<ObjectKey>>> {
        self.0
            .lock()
            .expect("nothing panics while it holds the index")
    }
}
