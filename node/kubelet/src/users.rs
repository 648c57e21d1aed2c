//! Users of a pod's own (`hostUsers: false`): which of the machine's ids they are. Each such pod has 65,536 that no other
//! pod has; the choice is written into its directory (`userns`, upstream's file), so it outlives a kubelet.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::cri::{IdMapping, NamespaceMode, RuntimeHandler, UserNamespace};
use crate::spec;

/// How many ids a pod has.
const IDS: u32 = 65_536;
const FILE: &str = "userns";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Range {
    host_id: u32,
    container_id: u32,
    length: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    uid_mappings: Vec<Range>,
    gid_mappings: Vec<Range>,
}

/// The users of this node's pods.
#[derive(Debug)]
pub struct Users {
    /// Where pods have their directories.
    pods: PathBuf,
    /// How many pods there may be.
    most: u32,
    /// Also keeps two pods from choosing at once.
    handlers: Mutex<Vec<RuntimeHandler>>,
}

impl Users {
    /// For so many pods below the kubelet's directory.
    pub fn new(root: &Path, most: i32) -> Self {
        Self {
            pods: root.join("pods"),
            most: u32::try_from(most).unwrap_or(0).max(1),
            handlers: Mutex::default(),
        }
    }

    /// What the runtime can do.
    pub fn set_handlers(&self, handlers: Vec<RuntimeHandler>) {
        *self.lock() = handlers;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<RuntimeHandler>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod's users; nothing if they are the machine's.
    pub fn of(&self, pod: &Pod, handler: &str) -> Result<Option<UserNamespace>, String> {
        if spec::spec(pod).host_users != Some(false) {
            return Ok(None);
        }
        let handlers = self.lock();
        supports(&handlers, handler)?;
        let place = self.pods.join(spec::uid(pod));
        let first = match read(&place) {
            Some(first) => first,
            None => {
                let first = free(&taken(&self.pods), self.most)?;
                write(&place, first).map_err(|e| format!("{}: {e}", place.display()))?;
                first
            }
        };
        let all = vec![IdMapping {
            host_id: first,
            container_id: 0,
            length: IDS,
        }];
        Ok(Some(UserNamespace {
            mode: NamespaceMode::Pod as i32,
            uids: all.clone(),
            gids: all,
        }))
    }
}

/// Whether the runtime can give a pod its own users; if not, upstream's words.
fn supports(handlers: &[RuntimeHandler], handler: &str) -> Result<(), String> {
    let mut text =
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned();
    if !handler.is_empty() {
        text = format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        );
    }
    // A runtime that is old tells of no handlers at all.
    if handlers.is_empty() {
        return Err(text);
    }
    match handlers.iter().find(|h| h.name == handler) {
        Some(found) if found.features.as_ref().is_some_and(|f| f.user_namespaces) => Ok(()),
        Some(_) => Err(text),
        None => Err(format!("{text}: the handler {handler:?} is not known")),
    }
}

/// The first range that nobody has; the machine's own ids are not given away.
fn free(taken: &BTreeSet<u32>, most: u32) -> Result<u32, String> {
    let mut all = (1..=most).filter_map(|n| n.checked_mul(IDS));
    let found = all.find(|first| !taken.contains(first));
    found.ok_or_else(|| "could not find an empty slot to allocate a user namespace".to_owned())
}

fn taken(pods: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(pods).into_iter().flatten().flatten();
    entries.filter_map(|entry| read(&entry.path())).collect()
}

fn read(place: &Path) -> Option<u32> {
    let bytes = fs::read(place.join(FILE)).ok()?;
    let record: Record = serde_json::from_slice(&bytes).ok()?;
    Some(record.uid_mappings.first()?.host_id)
}

fn write(place: &Path, first: u32) -> std::io::Result<()> {
    let all = vec![Range {
        host_id: first,
        container_id: 0,
        length: IDS,
    }];
    let record = Record {
        uid_mappings: all.clone(),
        gid_mappings: all,
    };
    fs::create_dir_all(place)?;
    fs::write(place.join(FILE), serde_json::to_vec(&record)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::cri::RuntimeHandlerFeatures;
    use serde_json::json;

    fn pod(uid: &str, host_users: bool) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"uid": uid}, "spec": {"containers": [], "hostUsers": host_users}}),
        )
        .unwrap()
    }

    fn handler(name: &str, user_namespaces: bool) -> RuntimeHandler {
        RuntimeHandler {
            name: name.to_owned(),
            features: Some(RuntimeHandlerFeatures {
                user_namespaces,
                ..RuntimeHandlerFeatures::default()
            }),
        }
    }

    #[test]
    fn every_pod_has_ids_of_its_own_and_keeps_them() {
        let directory = tempfile::tempdir().unwrap();
        let first = |users: &Users, uid: &str| {
            let users = users.of(&pod(uid, false), "")?;
            Ok::<u32, String>(users.unwrap().uids[0].host_id)
        };
        let open = || {
            let users = Users::new(directory.path(), 2);
            users.set_handlers(vec![handler("", true)]);
            users
        };
        let users = open();
        assert_eq!(users.of(&pod("plain", true), ""), Ok(None));
        assert_eq!(first(&users, "a"), Ok(65_536));
        assert_eq!(first(&users, "b"), Ok(131_072));
        assert_eq!(first(&open(), "a"), Ok(65_536), "another kubelet knows");
        assert!(first(&users, "c").is_err());
        fs::remove_dir_all(directory.path().join("pods/a")).unwrap();
        assert_eq!(first(&users, "c"), Ok(65_536));
    }

    #[test]
    fn a_runtime_that_cannot_is_told_in_upstreams_words() {
        let all = [handler("", true), handler("old", false)];
        assert_eq!(supports(&all, ""), Ok(()));
        for (handlers, name, wanted) in [
            (&[][..], "", "runtime does not support user namespaces"),
            (
                &all,
                "old",
                "RuntimeClass handler \"old\" does not support user namespaces",
            ),
            (
                &all,
                "x",
                "RuntimeClass handler \"x\" does not support user namespaces: the handler \"x\" is not known",
            ),
        ] {
            let wanted = format!("can't set `spec.hostUsers: false`, {wanted}");
            assert_eq!(supports(handlers, name), Err(wanted));
        }
    }
}
