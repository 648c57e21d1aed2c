//! Custom resources follow their definitions: this task sees every definition, gives out names, serves what is
//! established and empties what is going.
//!
//! What is served is a function of the definitions that are stored; what is written is a function of the
//! definitions of a group (`extensions::names`). The task looks at everything whenever something changed, and
//! keeps what has not: a definition is read anew only when its revision moved, and what it serves is disturbed
//! only when its spec or names did.

mod cleanup;
mod registration;
pub(crate) mod rules;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use extensions::Definitions;
use extensions::names::{self, Taken};
use http::Method;
use kinds::resources::{self, Resource};
use serde_json::{Value, json};

use crate::api::Api;
use crate::reading::stored::Stored;
use crate::reading::topics::Topic;
use crate::status::Result;
use crate::writing::own;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// One definition, as it was last seen.
#[derive(Debug)]
struct Seen {
    revision: u64,
    value: Value,
    /// What is served because of it, and the parts of it that decide that.
    served: Vec<Arc<Resource>>,
    decides: Value,
}

/// Follows the definitions.
#[derive(Debug)]
pub(crate) struct Follower {
    api: Arc<Api>,
    definitions: Definitions,
    seen: HashMap<String, Seen>,
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
        }
    }

    /// Takes up what is stored; the server is not ready before.
    pub(crate) async fn begin(&mut self) {
        self.look().await;
    }

    /// Follows until the task is ended.
    pub(crate) async fn run(mut self) {
        let Ok(collection) = self.api.collection(resource()) else {
            return;
        };
        loop {
            let (_, mut cursor) = collection.snapshot("", Topic::All);
            let done = self.look().await && self.act().await;
            let wait = if done { Duration::MAX } else { RETRY };
            tokio::select! {
                () = cursor.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Serves what the definitions say. Whether all of it could be read.
    async fn look(&mut self) -> bool {
        let Ok(collection) = self.api.collection(resource()) else {
            return true;
        };
        let present = collection.objects("", None).objects;
        let mut changed = false;
        let mut whole = true;
        self.seen.retain(|name, seen| {
            let stays = present.iter().any(|(key, _)| **key == **name);
            if !stays && let Some(gone) = seen.served.first() {
                self.api.cache.drop_collection(gone);
                changed = true;
            }
            stays
        });
        for (name, stored) in &present {
            match self.take_up(name, stored).await {
                Ok(moved) => changed |= moved,
                Err(error) => {
                    tracing::warn!(definition = %name, %error, "its objects cannot be read yet");
                    whole = false;
                }
            }
        }
        if changed {
            self.publish();
        }
        whole
    }

    async fn take_up(&mut self, name: &str, stored: &Arc<Stored>) -> store::Result<bool> {
        if let Some(seen) = self.seen.get(name)
            && seen.revision == stored.revision
        {
            return Ok(false);
        }
        let value = stored.value();
        let decides = decisive(&value);
        if let Some(seen) = self.seen.get_mut(name)
            && seen.decides == decides
        {
            seen.revision = stored.revision;
            seen.value = value;
            return Ok(false);
        }
        let served = self.definitions.read(&value);
        let before = self
            .seen
            .get(name)
            .and_then(|seen| seen.served.first().cloned());
        match (served.first(), &before) {
            (Some(resource), _) => self.api.cache.adopt(&*self.api.store, resource).await?,
            (None, Some(gone)) => self.api.cache.drop_collection(gone),
            (None, None) => {}
        }
        let moved = before.is_some() || !served.is_empty();
        let seen = Seen {
            revision: stored.revision,
            value,
            served,
            decides,
        };
        self.seen.insert(name.to_owned(), seen);
        Ok(moved)
    }

    // Groups stand in the order of their names, behind the built-in ones; so do the resources of a version.
    fn publish(&self) {
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
    }

    /// Writes what follows for the definitions themselves. Whether everything is done.
    async fn act(&mut self) -> bool {
        let mut done = registration::run(&self.api).await;
        let mut names: Vec<&String> = self.seen.keys().collect();
        names.sort_by_key(|name| self.seen[*name].revision);
        for name in names {
            let seen = &self.seen[name];
            let outcome = match seen.value["metadata"].get("deletionTimestamp") {
                Some(_) => self.dismiss(seen).await,
                None => self.settle(name, seen).await,
            };
            match outcome {
                Ok(finished) => done &= finished,
                // Somebody else has changed it: it is looked at again because of that.
                Err(error) if matches!(error.reason, "Conflict" | "NotFound") => {}
                Err(error) => {
                    tracing::warn!(definition = %name, error = %error.message, "not settled yet");
                    done = false;
                }
            }
        }
        done
    }

    async fn settle(&self, name: &str, seen: &Seen) -> Result<bool> {
        let group = &seen.value["spec"]["group"];
        let others = self
            .seen
            .iter()
            .filter(|(other, seen)| *other != name && seen.value["spec"]["group"] == *group);
        let taken = Taken::by(others.map(|(_, seen)| &seen.value));
        let settled = names::settled(&seen.value, &taken, &self.api.clock.seconds());
        if settled == seen.value {
            return Ok(true);
        }
        write_status(&self.api, &settled).await.map(|()| true)
    }
}

// What a change of disturbs those who are served: spec, names, and whether it may grow.
fn decisive(definition: &Value) -> Value {
    let serves = ["NamesAccepted", "Established"]
        .iter()
        .any(|c| names::is_true(definition, c));
    json!([
        definition["metadata"]["uid"],
        definition["spec"],
        definition["status"]["acceptedNames"],
        serves,
        names::is_true(definition, "Terminating"),
    ])
}

/// Writes a definition's status, and its finalizers, on condition that it is still the one that was read.
async fn write_status(api: &Api, definition: &Value) -> Result<()> {
    own::write(api, resource(), Method::PUT, "status", definition).await
}
