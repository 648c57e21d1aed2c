//! Writes the statuses of pods: each when it has changed, merged with what others wrote, and the last word of a pod
//! that is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_runtime::Actor;
use http::StatusCode;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::Patch;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::spec;
use crate::status;

/// What is to be written, by UID.
#[derive(Clone, Default)]
pub struct Statuses(Arc<Inner>);

#[derive(Default)]
struct Inner {
    entries: Mutex<BTreeMap<String, Entry>>,
    changed: Notify,
}

struct Entry {
    /// Where it is written: of a static pod its mirror.
    pod: Arc<Pod>,
    status: PodStatus,
    dirty: bool,
    /// Nothing of it is left on this node: its object may go.
    finished: bool,
    failures: u32,
    /// Conditions of ours that are over and must be taken away.
    over: BTreeSet<String>,
}

impl Entry {
    /// Notes which conditions of ours are over with a new status, and which are not any more.
    fn note_over(&mut self, before: PodStatus, now: &PodStatus) {
        let has = |kind: &str| now.conditions.iter().flatten().any(|c| c.type_ == kind);
        self.over.retain(|kind| !has(kind));
        let gone = before.conditions.into_iter().flatten().map(|c| c.type_);
        self.over
            .extend(gone.filter(|kind| status::is_own(kind) && !has(kind)));
    }
}

impl Statuses {
    fn entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0
            .entries
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sets a pod's status; it is written if it is another one than the last.
    pub fn set(&self, pod: &Arc<Pod>, status: PodStatus) {
        let mut entries = self.entries();
        let uid = spec::uid(pod);
        match entries.get_mut(uid) {
            Some(entry) => {
                let deleting = pod.metadata.deletion_timestamp.is_some();
                let new = deleting && entry.pod.metadata.deletion_timestamp.is_none();
                entry.dirty |= new || !same(&entry.status, &status);
                entry.note_over(entry.status.clone(), &status);
                entry.status = status;
                entry.pod = Arc::clone(pod);
            }
            None => {
                let dirty = pod.status.as_ref().is_none_or(|old| !same(old, &status));
                let mut entry = Entry {
                    pod: Arc::clone(pod),
                    status,
                    dirty,
                    finished: false,
                    failures: 0,
                    over: BTreeSet::new(),
                };
                let before = pod.status.clone().unwrap_or_default();
                entry.note_over(before, &entry.status.clone());
                entries.insert(uid.to_owned(), entry);
            }
        }
        self.0.changed.notify_one();
    }

    /// The last status that was set.
    pub fn get(&self, uid: &str) -> Option<PodStatus> {
        self.entries().get(uid).map(|entry| entry.status.clone())
    }

    /// Nothing of the pod is left: its object may be deleted once its status is written.
    pub fn finish(&self, pod: &Arc<Pod>) {
        if let Some(entry) = self.entries().get_mut(spec::uid(pod)) {
            entry.pod = Arc::clone(pod);
            entry.finished = true;
            entry.dirty |= pod.metadata.deletion_timestamp.is_some();
        }
        self.0.changed.notify_one();
    }

    /// Whether nothing of a pod is left here.
    pub fn is_finished(&self, uid: &str) -> bool {
        self.entries().get(uid).is_none_or(|entry| entry.finished)
    }

    /// Whether the API server has not heard of something yet.
    pub fn has_unwritten(&self) -> bool {
        self.entries().values().any(|entry| entry.dirty)
    }

    /// Forgets a pod whose object is gone.
    pub fn forget(&self, uid: &str) {
        self.entries().remove(uid);
    }

    /// What the API server has differs from what was written: somebody else wrote, so it is written again.
    pub fn repair(&self, pod: &Pod) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(spec::uid(pod)) else {
            return;
        };
        let theirs = pod.status.clone().unwrap_or_default();
        if !entry.dirty && !same(&theirs, &merged(&entry.status, &theirs)) {
            let ours = entry.status.clone();
            entry.note_over(theirs, &ours);
            entry.dirty = true;
            self.0.changed.notify_one();
        }
    }

    /// Writes for ever.
    pub async fn write_all(self, actor: Actor) {
        loop {
            let due: Vec<String> = {
                let entries = self.entries();
                entries
                    .iter()
                    .filter(|(_, e)| e.dirty)
                    .map(|(uid, _)| uid.clone())
                    .collect()
            };
            let mut failed = false;
            for uid in due {
                failed |= !self.write(&actor, &uid).await;
            }
            let wait = if failed {
                Duration::from_secs(1)
            } else {
                Duration::from_secs(3600)
            };
            tokio::select! {
                () = self.0.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Writes one; whether that is done.
    async fn write(&self, actor: &Actor, uid: &str) -> bool {
        let (pod, status, finished, over) = {
            let mut entries = self.entries();
            let Some(entry) = entries.get_mut(uid) else {
                return true;
            };
            entry.dirty = false;
            let over = std::mem::take(&mut entry.over);
            (
                Arc::clone(&entry.pod),
                entry.status.clone(),
                entry.finished,
                over,
            )
        };
        let (namespace, name) = (spec::namespace(&pod), spec::name(&pod));
        let patch = Patch::Strategic(patch(uid, &status, &over));
        let answer: client_runtime::Answer<Pod> =
            actor.patch((namespace, name), Some("status"), &patch).await;
        let written = match answer {
            Ok(pod) => pod,
            Err(error) if is_gone(&error) => {
                self.forget(uid);
                return true;
            }
            Err(error) => {
                tracing::warn!(pod = %spec::full_name(&pod), %error, "a status could not be written");
                if let Some(entry) = self.entries().get_mut(uid) {
                    entry.dirty = true;
                    entry.failures += 1;
                    entry.over.extend(over);
                }
                return false;
            }
        };
        let deleting = written.metadata.deletion_timestamp.is_some();
        if deleting && finished {
            return self.delete(actor, &written, uid).await;
        }
        true
    }

    async fn delete(&self, actor: &Actor, pod: &Pod, uid: &str) -> bool {
        let (namespace, name) = (spec::namespace(pod), spec::name(pod));
        let params = kube::api::DeleteParams {
            grace_period_seconds: Some(0),
            ..kube::api::DeleteParams::default()
        };
        match actor
            .delete_with::<Pod>(namespace, name, Some(uid), params)
            .await
        {
            Ok(()) => {
                self.forget(uid);
                true
            }
            Err(error) => {
                tracing::warn!(pod = %spec::full_name(pod), %error, "a pod could not be deleted");
                if let Some(entry) = self.entries().get_mut(uid) {
                    entry.dirty = true;
                }
                false
            }
        }
    }
}

/// Not there, or another one by that name.
fn is_gone(error: &client_runtime::SyncError) -> bool {
    match error {
        client_runtime::SyncError::Api(error) => {
            client_runtime::is(error, StatusCode::NOT_FOUND)
                || client_runtime::is(error, StatusCode::CONFLICT)
        }
        _ => false,
    }
}

/// The change that makes the API server's status ours. Lists that are merged by the server are replaced where they
/// are ours alone; conditions are merged, so those of others stay.
fn patch(uid: &str, status: &PodStatus, over: &BTreeSet<String>) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    for field in ["reason", "message", "podIP", "hostIP"] {
        if value.get(field).is_none() {
            value[field] = Value::Null;
        }
    }
    for field in ["podIPs", "hostIPs"] {
        if let Some(list) = value.get_mut(field).and_then(Value::as_array_mut) {
            list.insert(0, json!({"$patch": "replace"}));
        }
    }
    if let Some(list) = value.get_mut("conditions").and_then(Value::as_array_mut) {
        let gone = over
            .iter()
            .map(|kind| json!({"$patch": "delete", "type": kind}));
        list.extend(gone);
    }
    json!({"metadata": {"uid": uid}, "status": value})
}

/// Ours with what others may set.
fn merged(ours: &PodStatus, theirs: &PodStatus) -> PodStatus {
    let mut merged = ours.clone();
    let own = ours.conditions.clone().unwrap_or_default();
    let others = theirs.conditions.iter().flatten();
    let others = others
        .filter(|c| !own.iter().any(|o| o.type_ == c.type_) && !status::is_own(&c.type_))
        .cloned();
    let mut conditions = own.clone();
    conditions.extend(others);
    merged.conditions = Some(conditions);
    merged
        .resource_claim_statuses
        .clone_from(&theirs.resource_claim_statuses);
    merged
}

/// Equal but for times and generations of conditions and their order.
fn same(a: &PodStatus, b: &PodStatus) -> bool {
    let plain = |status: &PodStatus| {
        let mut status = status.clone();
        let conditions = status.conditions.get_or_insert_default();
        for condition in conditions.iter_mut() {
            condition.last_transition_time = None;
            condition.last_probe_time = None;
            condition.observed_generation = None;
        }
        conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        status
    };
    plain(a) == plain(b)
}
