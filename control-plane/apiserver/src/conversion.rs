//! Versions of custom resources that a webhook converts.
//!
//! ```text
//! cache: objects as they were stored ─► in_version ─► views, selections, admission
//!                        store ◄─ to_stored ◄─ objects of the request's version
//! ```
//!
//! The cache never asks anybody: it holds each object in the version that wrote it. Whoever needs another one asks
//! here, and what was answered stays with the object, so that a thousand watchers cost one question.

mod review;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kinds::resources::{GroupVersion, Resource};
use serde_json::Value;

use crate::api::Api;
use crate::outward::webhook::{Ask, Client};
use crate::reading::collection::{Change, Collection};
use crate::reading::stored::Stored;
use crate::status::{ApiError, Result};

/// Upstream's client gives up after this time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is sent in one question, unless a single object has more.
const LARGEST_QUESTION: usize = 1 << 20;

/// The webhook of a definition.
#[derive(Debug)]
pub(crate) struct Webhook {
    client: Client,
    /// `v1` or `v1beta1`, the first of those it understands.
    version: &'static str,
    /// The definition's name, for metrics.
    definition: String,
}

/// What went wrong, as upstream's metrics name it.
const CALL: &str = "conversion_webhook_call_failure";
const MALFORMED: &str = "conversion_webhook_malformed_response_failure";
const INVALID: &str = "conversion_webhook_invalid_converted_object_failure";

impl Webhook {
    /// The webhook that converts a resource, if there is one.
    pub(crate) fn of(resource: &Resource) -> Option<Webhook> {
        let webhook = resource.ty.defined()?.webhook()?;
        let versions = webhook["conversionReviewVersions"].as_array();
        let known = |version: &Value| ["v1", "v1beta1"].into_iter().find(|v| version == *v);
        let version = versions.into_iter().flatten().find_map(known);
        Some(Webhook {
            client: Client::new(&webhook["clientConfig"]),
            version: version.unwrap_or("v1"),
            definition: format!("{}.{}", resource.plural, resource.gv.group),
        })
    }

    /// Objects of one kind in another version, in their order.
    async fn convert(
        &self,
        api: &Api,
        to: GroupVersion,
        objects: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let Some(first) = objects.first() else {
            return Ok(objects);
        };
        let text = |field: &str| first[field].as_str().unwrap_or_default();
        let of = format!("{}, Kind={}", text("apiVersion"), text("kind"));
        let uid = uuid::Uuid::new_v4().to_string();
        let ask = Ask {
            body: review::request(&uid, self.version, to, &objects),
            timeout: TIMEOUT,
            agent: "kube-apiserver",
        };
        let (began, api_version) = (Instant::now(), text("apiVersion").to_owned());
        let from = api_version.rsplit('/').next().unwrap_or_default();
        let answer = self.client.post(api, ask).await;
        let outcome = answer
            .map_err(|why| (CALL, failed(&of, "failed: ", &why)))
            .and_then(|answer| {
                let converted = review::answer(&answer, &uid, self.version);
                converted.map_err(|why| (MALFORMED, failed(&of, "failed: ", &why)))
            })
            .and_then(|converted| {
                let checked = review::checked(&objects, converted, to);
                checked.map_err(|why| (INVALID, failed(&of, "returned ", &why)))
            });
        let failure = outcome.as_ref().err().map(|(kind, _)| *kind);
        let meters = &api.meters;
        meters.converted(&self.definition, (from, to.version), began, failure);
        outcome.map_err(|(_, error)| error)
    }
}

fn failed(of: &str, what: &str, why: &str) -> ApiError {
    ApiError::plain(format!("conversion webhook for {of} {what}{why}"))
}

impl Api {
    /// Stored objects in the version that a resource serves; they stay as they are where no webhook is needed for it.
    pub(crate) async fn in_version(
        &self,
        resource: &Resource,
        collection: &Collection,
        objects: Vec<Arc<Stored>>,
    ) -> Result<Vec<Arc<Stored>>> {
        let Some(webhook) = &collection.webhook else {
            return Ok(objects);
        };
        let mut found = Vec::with_capacity(objects.len());
        let mut rest = objects.as_slice();
        while !rest.is_empty() {
            let mut size = 0;
            let fits = |stored: &&Arc<Stored>| {
                size += stored.len();
                size <= LARGEST_QUESTION
            };
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            found.extend(
                self.some_in_version(resource, collection, webhook, some)
                    .await?,
            );
            rest = others;
        }
        Ok(found)
    }

    // One object is asked for once, whoever wants it. Of several, some may be on their way already; those are asked
    // for twice.
    async fn some_in_version(
        &self,
        resource: &Resource,
        collection: &Collection,
        webhook: &Webhook,
        objects: &[Arc<Stored>],
    ) -> Result<Vec<Arc<Stored>>> {
        let foreign = |stored: &&Arc<Stored>| !stored.is_of(resource.gv);
        if let [stored] = objects {
            if !foreign(&stored) {
                return Ok(vec![Arc::clone(stored)]);
            }
            let cell = stored.other(resource.gv.version);
            let ask = || self.asked(resource, collection, webhook, std::slice::from_ref(stored));
            let one = cell.get_or_try_init(|| async { ask().await.map(|mut all| all.remove(0)) });
            return Ok(vec![Arc::clone(one.await?)]);
        }
        let cell = |stored: &Arc<Stored>| stored.other(resource.gv.version);
        let is_unknown = |stored: &&Arc<Stored>| !cell(stored).initialized();
        let unknown = objects.iter().filter(foreign).filter(is_unknown);
        let unknown: Vec<Arc<Stored>> = unknown.cloned().collect();
        let converted = self.asked(resource, collection, webhook, &unknown).await?;
        for (stored, converted) in unknown.iter().zip(converted) {
            // Somebody else's answer is as good.
            let _ = cell(stored).set(converted);
        }
        let known = |stored: &Arc<Stored>| match foreign(&stored) {
            true => cell(stored)
                .get()
                .map_or_else(|| Arc::clone(stored), Arc::clone),
            false => Arc::clone(stored),
        };
        Ok(objects.iter().map(known).collect())
    }

    async fn asked(
        &self,
        resource: &Resource,
        collection: &Collection,
        webhook: &Webhook,
        objects: &[Arc<Stored>],
    ) -> Result<Vec<Arc<Stored>>> {
        let values = objects.iter().map(|stored| stored.value()).collect();
        let converted = webhook.convert(self, resource.gv, values).await?;
        let as_stored = |(stored, mut value): (&Arc<Stored>, Value)| {
            kinds::convert::cut(resource, &mut value);
            let text = collection.form.encode(&value);
            Arc::new(collection.form.own(&text, stored.revision))
        };
        Ok(objects.iter().zip(converted).map(as_stored).collect())
    }

    /// One stored object in the version that a resource serves, as a value.
    pub(crate) async fn served(
        &self,
        resource: &Resource,
        collection: &Collection,
        stored: &Stored,
    ) -> Result<Value> {
        if collection.webhook.is_some() {
            let one = vec![Arc::new(stored.clone())];
            let mut converted = self.in_version(resource, collection, one).await?;
            return Ok(converted.remove(0).value());
        }
        let mut value = stored.value();
        kinds::convert::serve(resource, &mut value);
        Ok(value)
    }

    /// An object of a request's version in the stored one; the same object when that is the same.
    pub(crate) async fn to_stored<'o>(
        &self,
        resource: &Resource,
        collection: &Collection,
        object: &'o Value,
    ) -> Result<Cow<'o, Value>> {
        if resource.gv == resource.stored {
            return Ok(Cow::Borrowed(object));
        }
        let mut object = object.clone();
        if let Some(webhook) = &collection.webhook {
            object = self.one(webhook, resource.stored, object).await?;
        }
        kinds::convert::store(resource, &mut object);
        Ok(Cow::Owned(object))
    }

    /// The text of an object as it is stored today, whatever version wrote it.
    pub(crate) async fn in_stored_version(
        &self,
        resource: &Resource,
        collection: &Collection,
        stored: &Stored,
    ) -> Result<Bytes> {
        let webhook = collection.webhook.as_ref();
        let Some(webhook) = webhook.filter(|_| !stored.is_of(resource.stored)) else {
            return Ok(stored.text().clone());
        };
        let mut object = self.one(webhook, resource.stored, stored.value()).await?;
        kinds::convert::store(resource, &mut object);
        Ok(collection.form.encode(&object))
    }

    /// An object of one version of a resource in another one that is served.
    pub(crate) async fn between(
        &self,
        from: &Resource,
        to: &Resource,
        mut object: Value,
    ) -> Result<Value> {
        let definition = from.ty.defined().filter(|d| d.webhook().is_some());
        if definition.is_some() {
            let collection = self.collection(from)?;
            if let Some(webhook) = &collection.webhook {
                object = self.one(webhook, to.gv, object).await?;
            }
            kinds::convert::cut(to, &mut object);
            return Ok(object);
        }
        kinds::convert::store(from, &mut object);
        kinds::convert::serve(to, &mut object);
        Ok(object)
    }

    async fn one(&self, webhook: &Webhook, to: GroupVersion, object: Value) -> Result<Value> {
        let mut converted = webhook.convert(self, to, vec![object]).await?;
        Ok(converted.remove(0))
    }

    /// A change of an object as those see it who watch a version of its resource.
    pub(crate) async fn change_in_version(
        &self,
        resource: &Resource,
        collection: &Collection,
        change: &Change,
    ) -> Result<Change> {
        let states = [&change.current, &change.previous];
        let states = states.map(|state| state.iter().cloned().collect::<Vec<_>>());
        let [current, previous] = states;
        let current = self.in_version(resource, collection, current).await?.pop();
        let previous = self.in_version(resource, collection, previous).await?.pop();
        Ok(change.with(current, previous))
    }
}
