//! Puts the CA of the API server into every namespace, as ConfigMap `kube-root-ca.crt`.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::Manager;
use crate::watched::NamespaceState;
use client_runtime::{Actor, is_namespace_ending, is_outdated};
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

const ACCOUNT: &str = "root-ca-cert-publisher";
const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "the CAs by which pods know the API server at kubernetes.default.svc";

/// What is kept of a published ConfigMap: enough to see whether it still is what it should be.
#[derive(Debug, PartialEq, Eq)]
struct Published {
    data: u64,
    is_described: bool,
}

impl Published {
    fn of(map: &ConfigMap) -> Published {
        let description = |all: &BTreeMap<String, String>| all.get(DESCRIPTION_KEY).cloned();
        let annotations = map.metadata.annotations.as_ref();
        Published {
            data: digest(map.data.as_ref()),
            is_described: annotations
                .and_then(description)
                .is_some_and(|text| !text.is_empty()),
        }
    }
}

fn digest(data: Option<&BTreeMap<String, String>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// Starts the controller; without a CA there is nothing to publish.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let config = Arc::clone(&manager.config);
    let Some(ca) = config.root_ca.clone() else {
        tracing::warn!(controller = name, "no root CA file: nothing is published");
        return;
    };
    let namespaces = manager.shared::<NamespaceState>();
    let fields = format!("metadata.name={NAME}");
    let maps = manager.watch(Api::all(manager.client()), &fields, |map: ConfigMap| {
        Published::of(&map)
    });
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    namespaces.on_change(move |change| noticed.add(change.key.name.clone()));
    let noticed = Arc::clone(&queue);
    maps.on_change(move |change| noticed.add(change.key.namespace.clone()));
    let publisher = Arc::new(Publisher {
        ca: ca.into_boxed_path(),
        actor: manager.act_as(ACCOUNT),
        root: manager.root.clone(),
        namespaces: namespaces.clone(),
        maps: maps.clone(),
    });
    manager.start_work(
        name,
        queue,
        4,
        [namespaces.completion(), maps.completion()],
        move |namespace| sync(Arc::clone(&publisher), namespace),
    );
}

struct Publisher {
    ca: Box<Path>,
    actor: Actor,
    root: Actor,
    namespaces: Cache<NamespaceState>,
    maps: Cache<Published>,
}

async fn sync(publisher: Arc<Publisher>, namespace: String) -> Synced {
    let is_active = publisher
        .namespaces
        .get(&ObjectKey::new("", &namespace))
        .is_some_and(|state| state.active);
    if !is_active {
        return Ok(End::Done);
    }
    let ca = std::fs::read_to_string(&publisher.ca)
        .map_err(|e| SyncError::Other(format!("cannot read `{}`: {e}", publisher.ca.display())))?;
    let wanted = wanted(ca);
    let written = match publisher.maps.get(&ObjectKey::new(&namespace, NAME)) {
        Some(found) if *found == Published::of(&wanted) => return Ok(End::Done),
        None => publisher.actor.create(&namespace, &wanted).await,
        // The rest of the object is its owner's: it is read to be kept.
        Some(_) => match publisher.root.get::<ConfigMap>(&namespace, NAME).await? {
            Some(found) => publisher.actor.replace(&repaired(found, wanted)).await,
            None => publisher.actor.create(&namespace, &wanted).await,
        },
    };
    match written {
        Err(error) if is_namespace_ending(&error) || is_outdated(&error) => Ok(End::Done),
        other => other.map(|_| End::Done),
    }
}

fn wanted(ca: String) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(NAME.into());
    map.metadata.annotations = Some([(DESCRIPTION_KEY.into(), DESCRIPTION.into())].into());
    map.data = Some([("ca.crt".into(), ca)].into());
    map
}

fn repaired(mut found: ConfigMap, wanted: ConfigMap) -> ConfigMap {
    let annotations = found.metadata.annotations.get_or_insert_default();
    annotations.extend(wanted.metadata.annotations.unwrap_or_default());
    found.data = wanted.data;
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_changed_bundle_is_seen() {
        let right = Published::of(&wanted("ca".into()));
        assert_ne!(Published::of(&wanted("other".into())), right);
        let mut more = wanted("ca".into());
        more.data
            .as_mut()
            .unwrap()
            .insert("x".into(), String::new());
        assert_ne!(Published::of(&more), right);
        let mut undescribed = wanted("ca".into());
        undescribed.metadata.annotations = None;
        assert_ne!(Published::of(&undescribed), right);
        let mut own_words = wanted("ca".into());
        own_words.metadata.annotations = Some([(DESCRIPTION_KEY.into(), "ours".into())].into());
        assert_eq!(Published::of(&own_words), right, "any description will do");
    }

    #[test]
    fn repairing_keeps_what_is_not_ours() {
        let mut found = wanted("old".into());
        found.metadata.labels = Some([("a".into(), "b".into())].into());
        found.metadata.annotations = Some([("c".into(), "d".into())].into());
        let map = repaired(found, wanted("new".into()));
        assert_eq!(map.data.unwrap()["ca.crt"], "new");
        assert_eq!(map.metadata.labels.unwrap()["a"], "b");
        let annotations = map.metadata.annotations.unwrap();
        assert_eq!(annotations["c"], "d");
        assert_eq!(annotations[DESCRIPTION_KEY], DESCRIPTION);
    }
}
