//! Other objects that plugins look at.

use std::sync::Arc;

use kinds::resources::{self, Resource};
use serde_json::Value;

use crate::api::Api;
use crate::reading::stored::Stored;
use crate::status::Result;

/// A resource of the table; plugins only name resources that are in it.
pub(super) fn resource(group: &str, version: &str, plural: &str) -> &'static Arc<Resource> {
    resources::find(group, version, plural).expect("plugins name resources of the table")
}

/// One object as it is now.
pub(super) async fn get(
    api: &Api,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>> {
    let collection = api.collection(resource)?;
    let stored = api
        .fetch(&collection, &collection.key(namespace, name))
        .await?;
    match stored {
        Some(stored) => api.served(resource, &collection, &stored).await.map(Some),
        None => Ok(None),
    }
}

/// All objects of a resource in a namespace, or everywhere when that is empty, as they are now.
pub(super) async fn list(api: &Api, resource: &Resource, namespace: &str) -> Result<Vec<Value>> {
    let collection = api.collection(resource)?;
    api.cache.reach(api.store.revision().await?).await?;
    let within = match namespace {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let objects = collection.objects(&within, None).objects;
    let objects = objects.into_iter().map(|(_, object)| object).collect();
    let objects = api.in_version(resource, &collection, objects).await?;
    let value = |object: &Arc<Stored>| {
        let mut value = object.value();
        if collection.webhook.is_none() {
            kinds::convert::serve(resource, &mut value);
        }
        value
    };
    Ok(objects.iter().map(value).collect())
}
