//! Custom resources follow their definitions: this task sees every definition, gives out names, serves what is
//! established and empties what is going.
//!
//! What is served is a function of the definitions that are stored; what is written is a function of the
//! definitions of a group (`extensions::names`). The task looks at what has changed: a definition is read anew only
//! when its revision moved, and what it serves is disturbed only when its spec or names did. Of a definition it keeps
//! what it needs to know that, so that thousands of them can lie there.

mod cleanup;
mod registration;
pub(crate) mod rules;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use extensions::Definitions;
use extensions::names::{self, Names, Taken};
use http::Method;
use kinds::resources::{self, Resource};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::api::Api;
use crate::reading::collection::{Collection, Cursor};
use crate::reading::stored::Stored;
use crate::reading::topics::Topic;
use crate::status::Result;
use crate::writing::own;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How many changes are taken up before what they bring is served.
const AT_ONCE: usize = 256;

/// One definition, as it was last seen.
#[derive(Debug)]
struct Seen {
    revision: u64,
    /// What is served because of it, and a digest of the parts of it that decide that.
    served: Vec<Arc<Resource>>,
    decides: [u8; 32],
    group: String,
    names: Names,
    /// Whether it has every name that it wants: then those of others are nothing to it.
    content: bool,
}

/// Follows the definitions.
#[derive(Debug)]
pub(crate) struct Follower {
    api: Arc<Api>,
    definitions: Definitions,
    seen: HashMap<String, Seen>,
    /// The names in each group.
    taken: HashMap<String, Taken>,
    /// Definitions that may have to be read, and those about which something may have to be written.
    unread: BTreeSet<String>,
    unsettled: BTreeSet<String>,
    /// Whether each group and version that is served has its APIService.
    registered: bool,
}

/// The resource of definitions themselves.
pub(crate) fn resource() -> &'static Arc<Resource> {
    resources::find(GROUP, "v1", PLURAL).expect("in the table")
}

impl Follower {
    pub(crate) fn new(api: Arc<Api>) -> Follower {
        Follower {
            api,
            definitions: Definitions::with_rules(Arc::new(rules::Engine)),
            seen: HashMap::new(),
            taken: HashMap::new(),
            unread: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            registered: false,
        }
    }

    /// Takes up what is stored; the server is not ready before.
    pub(crate) async fn begin(&mut self) {
        if let Ok(collection) = self.api.collection(resource()) {
            self.everything(&collection);
            self.look(&collection).await;
        }
    }

    /// Follows until the task is ended.
    pub(crate) async fn run(mut self) {
        let Ok(collection) = self.api.collection(resource()) else {
            return;
        };
        let mut cursor = self.everything(&collection);
        loop {
            let done = self.look(&collection).await && self.act(&collection).await;
            let wait = if done { Duration::MAX } else { RETRY };
            tokio::select! {
                () = cursor.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            match collection.read_changes(&mut cursor, AT_ONCE) {
                Ok(changes) => self
                    .unread
                    .extend(changes.iter().map(|c| c.key.to_string())),
                Err(_) => cursor = self.everything(&collection),
            }
        }
    }

    // Everything is to be looked at, that which is gone among it.
    fn everything(&mut self, collection: &Collection) -> Cursor {
        let (present, cursor) = collection.snapshot("", Topic::All);
        let present = present.objects.iter().map(|(name, _)| name.to_string());
        self.unread.extend(present.chain(self.seen.keys().cloned()));
        cursor
    }

    /// Serves what the definitions say. Whether all of it could be read.
    async fn look(&mut self, collection: &Collection) -> bool {
        let mut changed = false;
        for name in std::mem::take(&mut self.unread) {
            let taken_up = match collection.get(&name) {
                Some(stored) => self.take_up(&name, &stored).await,
                None => Ok(self.let_go(&name)),
            };
            match taken_up {
                Ok(moved) => changed |= moved,
                Err(error) => {
                    tracing::warn!(definition = %name, %error, "its objects cannot be read yet");
                    self.unread.insert(name);
                }
            }
        }
        if changed {
            self.publish();
        }
        self.unread.is_empty()
    }

    async fn take_up(&mut self, name: &str, stored: &Arc<Stored>) -> store::Result<bool> {
        let before = self.seen.get(name);
        if before.is_some_and(|seen| seen.revision == stored.revision) {
            return Ok(false);
        }
        let value = stored.value();
        let decides = decisive(&value);
        let known = before.filter(|seen| seen.decides == decides);
        let moved = known.is_none();
        let served = match known {
            Some(seen) => seen.served.clone(),
            None => {
                let served = self.definitions.read(&value);
                let before = before.and_then(|seen| seen.served.first());
                match (served.first(), before) {
                    (Some(resource), _) => self.api.cache.adopt(&*self.api.store, resource).await?,
                    (None, Some(gone)) => self.api.cache.drop_collection(gone),
                    (None, None) => {}
                }
                served
            }
        };
        let had = self.forget(name);
        self.remember(
            name,
            Seen {
                revision: stored.revision,
                served,
                decides,
                group: value["spec"]["group"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                names: Names::of(&value),
                content: names::is_true(&value, "NamesAccepted"),
            },
        );
        let seen = &self.seen[name];
        Ok(moved && (!seen.served.is_empty() || had.is_some_and(|had| !had.served.is_empty())))
    }

    fn let_go(&mut self, name: &str) -> bool {
        let gone = self
            .forget(name)
            .and_then(|seen| seen.served.into_iter().next());
        if let Some(gone) = &gone {
            self.api.cache.drop_collection(gone);
        }
        gone.is_some()
    }

    fn remember(&mut self, name: &str, seen: Seen) {
        let taken = self.taken.entry(seen.group.clone()).or_default();
        taken.take(&seen.names);
        self.unsettled.insert(name.to_owned());
        self.seen.insert(name.to_owned(), seen);
    }

    // Whoever lacks a name may get one that is free now.
    fn forget(&mut self, name: &str) -> Option<Seen> {
        self.unsettled.remove(name);
        let seen = self.seen.remove(name)?;
        if let Some(taken) = self.taken.get_mut(&seen.group) {
            taken.free(&seen.names);
        }
        let lacking = self
            .seen
            .iter()
            .filter(|(_, other)| !other.content && other.group == seen.group);
        self.unsettled.extend(lacking.map(|(name, _)| name.clone()));
        Some(seen)
    }

    // Groups stand in the order of their names, behind the built-in ones; so do the resources of a version.
    fn publish(&mut self) {
        let mut all: Vec<Arc<Resource>> = self
            .seen
            .values()
            .flat_map(|seen| seen.served.iter().cloned())
            .collect();
        all.sort_by(|a, b| {
            let versions = extensions::definition::by_priority(b.gv.version, a.gv.version);
            (a.gv.group.cmp(b.gv.group))
                .then(versions)
                .then(a.plural.cmp(b.plural))
        });
        self.api.registry.serve(all);
        self.registered = false;
    }

    /// Writes what follows for the definitions themselves. Whether everything is done.
    async fn act(&mut self, collection: &Collection) -> bool {
        if !self.registered {
            self.registered = registration::run(&self.api).await;
        }
        let mut names: Vec<String> = self.unsettled.iter().cloned().collect();
        // Names go to whoever came first.
        names.sort_by_key(|name| self.seen.get(name).map_or(0, |seen| seen.revision));
        for name in names {
            let Some(stored) = collection.get(&name) else {
                continue;
            };
            let value = stored.value();
            let outcome = match value["metadata"].get("deletionTimestamp") {
                Some(_) => self.dismiss(&name, &value).await,
                None => self.settle(&name, &value).await,
            };
            match outcome {
                Ok(false) => {}
                // Somebody else has changed it: it is looked at again because of that.
                Err(error) if !matches!(error.reason, "Conflict" | "NotFound") => {
                    tracing::warn!(definition = %name, error = %error.message, "not settled yet");
                }
                Ok(true) | Err(_) => drop(self.unsettled.remove(&name)),
            }
        }
        self.registered && self.unsettled.is_empty()
    }

    async fn settle(&mut self, name: &str, value: &Value) -> Result<bool> {
        let Some(seen) = self.seen.get(name) else {
            return Ok(true);
        };
        let taken = self.taken.entry(seen.group.clone()).or_default();
        taken.free(&seen.names);
        let settled = names::settled(value, taken, &self.api.clock.seconds());
        taken.take(&seen.names);
        if settled == *value {
            return Ok(true);
        }
        write_status(&self.api, &settled).await.map(|()| true)
    }
}

// What a change of disturbs those who are served: spec, names, and whether it may grow.
fn decisive(definition: &Value) -> [u8; 32] {
    let serves = ["NamesAccepted", "Established"]
        .iter()
        .any(|c| names::is_true(definition, c));
    let mut digest = Sha256::new();
    digest.update([
        u8::from(serves),
        u8::from(names::is_true(definition, "Terminating")),
    ]);
    for part in [
        &definition["metadata"]["uid"],
        &definition["spec"],
        &definition["status"]["acceptedNames"],
    ] {
        serde_json::to_writer(&mut digest, part).expect("a digest takes everything");
    }
    digest.finalize().into()
}

/// Writes a definition's status, and its finalizers, on condition that it is still the one that was read.
async fn write_status(api: &Api, definition: &Value) -> Result<()> {
    own::write(api, resource(), Method::PUT, "status", definition).await
}
