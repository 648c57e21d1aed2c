//! Evicts pods from nodes with a `NoExecute` taint, each after the time for which it tolerates it.

mod shell;

use std::collections::HashMap;

use client_runtime::ObjectKey;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::taints::{Stay, stay};
pub(crate) use shell::start;

/// What is to be done about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Nothing,
    /// Nothing yet: to be looked at again at this moment.
    Wait(SignedDuration),
    /// It had a time to go, and need not go any more.
    Cancelled,
    /// It is to go.
    Delete,
}

/// When which pod is to go.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: HashMap<ObjectKey, SignedDuration>,
}

impl Timers {
    /// Decides about a pod by the taints of its node and what it tolerates; `None` once it is gone or
    /// deleted. A time to go that was once set stays, whatever taints are added (upstream's
    /// `processPodOnNode`).
    pub(crate) fn step(
        &mut self,
        key: &ObjectKey,
        pod: Option<(&[Taint], &[Toleration])>,
        now: SignedDuration,
    ) -> Step {
        let Some((taints, tolerations)) = pod else {
            self.due.remove(key);
            return Step::Nothing;
        };
        match stay(taints, tolerations) {
            Stay::Forever => match self.due.remove(key) {
                Some(_) => Step::Cancelled,
                None => Step::Nothing,
            },
            Stay::No => {
                self.due.remove(key);
                Step::Delete
            }
            Stay::Seconds(seconds) => {
                let wait = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
                let fresh = now.saturating_add(wait);
                let due = *self.due.entry(key.clone()).or_insert(fresh);
                match due <= now {
                    true => Step::Delete,
                    false => Step::Wait(due),
                }
            }
        }
    }

    /// Whether a pod has a time to go.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.due.contains_key(key)
    }
}
