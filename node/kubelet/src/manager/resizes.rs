//! Pods that ask for other resources: who is granted them, in which order, and who waits.

use std::sync::Arc;

use client_runtime::Severity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::Manager;
use crate::resize::{self, Condition, PodResources, Verdict};
use crate::spec;

impl Manager {
    /// The pod with what it was granted. One that this node has not counted yet is granted what it asks for.
    pub(super) fn granted(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        match self.ctx.allocated.get(spec::uid(pod)) {
            Some(granted) => granted.lay_over(pod),
            None => Arc::clone(pod),
        }
    }

    /// Notes that a pod asks for other resources than it was granted, or does not any more.
    pub(super) fn note_resize(&mut self, uid: &str) {
        let Some(entry) = self.workers.get(uid) else {
            return;
        };
        let granted = self.granted(&entry.pod);
        if PodResources::of(&granted).is_same(&PodResources::of(&entry.pod)) {
            self.pending.remove(uid);
            self.tell(uid, None);
        } else {
            self.pending.entry(uid.to_owned()).or_default();
        }
    }

    /// Grants what there is room for. Called whenever something may have become free.
    pub(super) fn grant_resizes(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let workers = &self.workers;
        self.pending.retain(|uid, _| workers.contains_key(uid));
        let mut waiting: Vec<String> = self.pending.keys().cloned().collect();
        waiting.sort_by_cached_key(|uid| {
            let desired = &self.workers[uid].pod;
            let since = self.pending.get(uid).copied().flatten();
            resize::turn(desired, &self.granted(desired), since)
        });
        for uid in waiting {
            self.grant(&uid);
        }
    }

    fn grant(&mut self, uid: &str) {
        let pod = Arc::clone(&self.workers[uid].pod);
        let active = self.active();
        let others: Vec<&Pod> = active
            .iter()
            .map(|other| &**other)
            .filter(|other| spec::uid(other) != uid)
            .collect();
        let generation = pod.metadata.generation;
        match resize::judge(&pod, &others, &self.ctx.allocatable()) {
            Verdict::Granted => {
                self.ctx.allocated.set(uid, PodResources::of(&pod));
                self.pending.remove(uid);
                let text = resize::event("Pod resize started", &pod, generation, "");
                self.ctx.say(&pod, Severity::Normal, "ResizeStarted", text);
                self.tell(uid, None);
            }
            Verdict::Deferred(why) => {
                let since = self.pending.entry(uid.to_owned()).or_default();
                since.get_or_insert_with(Timestamp::now);
                self.tell(uid, Some(Condition::pending("Deferred", why, generation)));
            }
            Verdict::Infeasible(why) => {
                // Nothing that happens here will make room; another spec may.
                self.pending.remove(uid);
                self.tell(uid, Some(Condition::pending("Infeasible", why, generation)));
            }
        }
    }

    /// Hands a worker its pod as granted, and whether it waits for more.
    fn tell(&self, uid: &str, pending: Option<Condition>) {
        let Some(entry) = self.workers.get(uid) else {
            return;
        };
        let granted = self.granted(&entry.pod);
        let news = entry.handle.orders.send_if_modified(|order| {
            let resized = PodResources::of(&order.pod) != PodResources::of(&granted);
            let waits = order.pending != pending;
            order.pod = granted;
            order.pending.clone_from(&pending);
            resized || waits
        });
        if let Some(pending) = pending.filter(|_| news) {
            let reason = pending.reason.unwrap_or_default();
            let why = pending.message.unwrap_or_default();
            let what = format!("Pod resize {reason}");
            let text = resize::event(&what, &entry.pod, pending.generation, &why);
            let reason = format!("Resize{reason}");
            self.ctx.say(&entry.pod, Severity::Warning, &reason, text);
        }
    }
}
