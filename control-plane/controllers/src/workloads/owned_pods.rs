//! The pods of one kind of owner: noticing them, claiming them, making and ending many of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube_kit::selector::LabelSelector as Selector;

use client_runtime::{Actor, Cache, Change, Object, ObjectKey, Queue, SyncError};

use super::batches;
use super::expectations::Expectations;
use super::ownership::{self, Claim, Claimant, Claimed};
use super::pod_view::PodView;
use super::pods::PodControl;
use crate::Manager;

/// What the controllers that keep a number of pods share.
pub(crate) struct OwnedPods {
    /// The kind of the owners.
    pub(crate) kind: &'static str,
    pub(crate) pods: Cache<PodView>,
    pub(crate) control: PodControl,
    pub(crate) expectations: Expectations,
    /// The owners to be looked at.
    pub(crate) queue: Arc<Queue<ObjectKey>>,
}

impl OwnedPods {
    /// For the owners of a kind; `account` is who acts, `component` who speaks in events.
    pub(crate) fn new(
        manager: &mut Manager,
        kind: &'static str,
        account: &'static str,
        component: &'static str,
    ) -> OwnedPods {
        let actor = manager.act_as(account);
        OwnedPods {
            kind,
            pods: manager.shared::<PodView>(),
            control: PodControl {
                recorder: manager.recorder(component, actor.clone()),
                actor,
            },
            expectations: Expectations::default(),
            queue: Arc::new(Queue::new()),
        }
    }

    /// Tells a pod's owner that it changed; gives a pod that has none, which anybody may want.
    pub(crate) fn notice<'a>(&self, change: &Change<'a, PodView>) -> Option<&'a PodView> {
        let namespace = &change.key.namespace;
        let owner = |pod: Option<&PodView>| {
            let owner = pod?
                .owner
                .as_ref()
                .filter(|owner| owner.kind == self.kind)?;
            Some(ObjectKey::new(namespace, &owner.name))
        };
        let (before, after) = (owner(change.before), owner(change.after));
        if let (Some(pod), Some(key)) = (change.before, &before)
            && change.after.is_none_or(|pod| pod.is_deleted)
        {
            self.expectations.deleted(key, &pod.uid);
        }
        if let (None, Some(key)) = (change.before, &after) {
            self.expectations.created(key, 1);
        }
        self.queue.add_all(before.into_iter().chain(after));
        change.after.filter(|pod| pod.owner.is_none())
    }

    /// The pods that are the owner's, after adopting and releasing.
    pub(crate) async fn claim<K: Object>(
        &self,
        owner: &K,
        selector: &Selector,
        finalizer: Option<&str>,
    ) -> Result<Vec<Arc<PodView>>, SyncError> {
        let meta = owner.meta();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let candidates = self.pods.within(namespace, |pod| match &pod.owner {
            Some(owner) => owner.uid == uid,
            None => ownership::matches(selector, &pod.labels),
        });
        let candidates = candidates.into_iter().map(|(_, pod)| pod);
        claim(&self.control.actor, owner, selector, candidates, finalizer).await
    }

    /// Makes `count` pods, carefully; `make` gives the one of a number.
    pub(crate) async fn create_all<K: Object>(
        &self,
        key: &ObjectKey,
        owner: &K,
        count: usize,
        make: impl Fn(usize) -> Pod,
    ) -> Option<SyncError> {
        let make = &make;
        let outcome = batches::slow_start(count, |number| async move {
            self.control.create(owner, &make(number)).await.map(drop)
        });
        let outcome = outcome.await;
        self.expectations.created(key, count - outcome.succeeded);
        outcome.error
    }

    /// Ends pods, all at once.
    pub(crate) async fn delete_all<K: Object>(
        &self,
        key: &ObjectKey,
        owner: &K,
        doomed: &[Arc<PodView>],
    ) -> Option<SyncError> {
        let outcome = batches::all(0..doomed.len(), |number| async move {
            let pod = &doomed[number];
            let deleted = self.control.delete(owner, pod).await;
            if deleted.is_err() || self.is_gone(key, pod) {
                self.expectations.deleted(key, &pod.uid);
            }
            deleted
        });
        outcome.await.error
    }

    // Nobody will tell about a pod that went before we asked for it.
    fn is_gone(&self, key: &ObjectKey, pod: &PodView) -> bool {
        let known = self.pods.get(&ObjectKey::new(&key.namespace, &pod.name));
        known.is_none_or(|known| known.uid != pod.uid || known.is_deleted)
    }
}

/// Those of the candidates that are the owner's, after adopting and releasing; with a finalizer that comes and goes
/// with the ownership.
pub(crate) async fn claim<K: Object>(
    actor: &Actor,
    owner: &K,
    selector: &Selector,
    candidates: impl Iterator<Item = Arc<PodView>>,
    finalizer: Option<&str>,
) -> Result<Vec<Arc<PodView>>, SyncError> {
    let meta = owner.meta();
    let claimant = Claimant {
        uid: meta.uid.as_deref().unwrap_or_default(),
        is_deleted: meta.deletion_timestamp.is_some(),
        selector,
    };
    let finalizers: Vec<&str> = finalizer.into_iter().collect();
    let mut ours = Vec::new();
    for pod in candidates {
        let claimed = Claimed {
            owner: pod.owner.as_ref().map(|owner| owner.uid.as_str()),
            labels: &pod.labels,
            is_deleted: pod.is_deleted,
        };
        match claimant.claim(&claimed) {
            Claim::Keep => ours.push(pod),
            Claim::Adopt if pod.is_finished() => {}
            Claim::Adopt => {
                let adopted =
                    ownership::adopt::<K, Pod>(actor, owner, &pod.name, &pod.uid, &finalizers);
                if adopted.await? {
                    ours.push(pod);
                }
            }
            Claim::Release => {
                ownership::release::<K, Pod>(actor, owner, &pod.name, &pod.uid, finalizer).await?;
            }
            Claim::Ignore => {}
        }
    }
    Ok(ours)
}
