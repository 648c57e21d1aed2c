//! The API over one store: what every verb, plugin and page works on.

use std::sync::{Arc, Weak};
use std::time::Instant;

use kinds::resources::Resource;
use store::{Change, Expect, Store, Written};

use crate::door::authentication::Authenticator;
use crate::door::authorization::Authorizer;
use crate::meters::Meters;
use crate::outward::aggregation::Aggregator;
use crate::outward::outbound::Outbound;
use crate::reading::cache::Cache;
use crate::reading::collection::Collection;
use crate::reading::stored::Stored;
use crate::registry::Registry;
use crate::settings::Components;
use crate::status::{ApiError, Result};
use crate::writing::admission::{Chain, Policies, Webhooks};
use crate::writing::services::Services;
use ::clock::Clock;

/// The API over one store.
#[derive(Debug)]
pub(crate) struct Api {
    /// Itself, for what goes on after its request.
    pub(crate) this: Weak<Api>,
    /// The store; nothing but this crate touches it.
    pub(crate) store: Arc<dyn Store>,
    /// What encrypts its values, where something does.
    pub(crate) encryption: Option<Arc<encryption::Encrypted>>,
    /// Its contents in memory.
    pub(crate) cache: Arc<Cache>,
    /// What is served.
    pub(crate) registry: Registry,
    /// Virtual IPs and node ports.
    pub(crate) services: Services,
    /// The other parts of the control plane.
    pub(crate) components: Components,
    /// What is counted on the way.
    pub(crate) meters: Meters,
    /// The time.
    pub(crate) clock: Clock,
    /// How long events live.
    pub(crate) event_ttl: std::time::Duration,
    /// What may enter.
    pub(crate) admission: Chain,
    /// Admission policies in force.
    pub(crate) policies: Arc<Policies>,
    /// Admission webhooks in force.
    pub(crate) webhooks: Arc<Webhooks>,
    /// Who asks.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Who may do what.
    pub(crate) authorizer: Authorizer,
    /// Other API servers behind this one.
    pub(crate) aggregator: Arc<Aggregator>,
    /// How nodes, pods and services are reached.
    pub(crate) outbound: Arc<Outbound>,
    /// Turns true when the server stops.
    pub(crate) shutdown: tokio::sync::watch::Receiver<bool>,
}

impl Api {
    /// The collection that stores a resource.
    pub(crate) fn collection(&self, resource: &Resource) -> Result<Arc<Collection>> {
        self.cache
            .collection(resource)
            .ok_or_else(|| ApiError::internal(format!("{} has no storage", resource.qualified())))
    }

    /// An error if not everything below a prefix could be decrypted: a list that lacks what nobody could read would
    /// tell its reader that it is gone (upstream fails as well).
    pub(crate) fn all_readable(&self, prefix: &str) -> Result<()> {
        let encryption = self.encryption.as_ref();
        match encryption.and_then(|encrypted| encrypted.unreadable(prefix)) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The newest state of an object, straight from the store.
    pub(crate) async fn fetch(&self, collection: &Collection, key: &str) -> Result<Option<Stored>> {
        let began = Instant::now();
        let found = self.store.get(key).await;
        let asked = ("get", &*collection.resource);
        self.meters.stored(asked, began, &found);
        let Some(kv) = found? else {
            return Ok(None);
        };
        // The cache has read it by the present definition already.
        let known = collection.form.is_defined().then(|| collection.known(key));
        if let Some(known) = known.flatten().filter(|s| s.revision == kv.mod_revision) {
            if collection.webhook.is_some() {
                known.others();
            }
            return Ok(Some(Stored::clone(&known)));
        }
        let stored = collection
            .form
            .adopt(&kv.value, kv.mod_revision)
            .map_err(ApiError::internal)?;
        Ok(Some(stored))
    }

    /// The newest state of a named object, or 404.
    pub(crate) async fn must_fetch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Stored> {
        let collection = self.collection(resource)?;
        let key = collection.key(namespace, name);
        self.fetch(&collection, &key)
            .await?
            .ok_or_else(|| ApiError::not_found(resource, name))
    }

    /// Writes an object. Where somebody decides by such objects (roles, tokens), the write is only done
    /// once they know it: a permission that was taken away is gone when its taker hears so. Watchers
    /// are told before the writer is.
    pub(crate) async fn commit(
        &self,
        collection: &Collection,
        key: &str,
        expect: Expect,
        change: Change,
    ) -> Result<Written> {
        let operation = match (&change, &expect) {
            (Change::Delete, _) => "delete",
            (_, Expect::Absent) => "create",
            _ => "update",
        };
        let began = Instant::now();
        let written = self.store.write(key, expect, change).await;
        let asked = (operation, &*collection.resource);
        self.meters.stored(asked, began, &written);
        let written = written?;
        if let Written::Done(revision) = written {
            if collection.decides() {
                self.cache.reach(revision).await?;
            }
            if collection.is_watched() {
                self.cache.watchers_first(revision).await;
            }
        }
        Ok(written)
    }
}
