//! Other objects that plugins look at.

use kinds::resources::{self, Resource};
use serde_json::Value;

use crate::rest::Api;
use crate::status::Result;

/// A resource of the table; plugins only name resources that are in it.
pub(super) fn resource(group: &str, version: &str, plural: &str) -> &'static Resource {
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
        .fetch(collection, &collection.key(namespace, name))
        .await?;
    Ok(stored.map(|stored| stored.value()))
}

/// All objects of a resource in a namespace, or everywhere when that is empty, as they are now.
pub(super) async fn list(api: &Api, resource: &Resource, namespace: &str) -> Result<Vec<Value>> {
    let collection = api.collection(resource)?;
    api.cache.reach(api.store.revision().await?).await?;
    let within = match namespace {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    let listed = collection.objects(&within, None);
    Ok(listed.objects.iter().map(|(_, o)| o.value()).collect())
}
