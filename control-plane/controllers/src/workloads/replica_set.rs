//! Keeps as many pods as a replica set, or a replication controller, asks for.
//!
//! Both are the same to this controller, as upstream: what differs is in [`kinds`].

mod decision;
mod kinds;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;

use client_runtime::{Cache, Change, End, ObjectKey, SyncError, Synced, enqueue_changes};
use client_runtime::{is_namespace_ending, is_outdated};

use super::owned_pods::OwnedPods;
use super::ownership::{self, Owner};
use super::pod_view::PodView;
use super::pods::{pod_from_template, reason};
use crate::Manager;
use decision::{Failure, Observed, Step};
use kinds::ReplicaKind;

/// Upstream's `--concurrent-replicaset-syncs` and `--concurrent-rc-syncs`.
const AT_ONCE: usize = 5;

/// Starts the controller of replica sets.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    start_for::<ReplicaSet>(manager, name);
}

/// Starts the controller of replication controllers.
pub(crate) fn start_for_controllers(manager: &mut Manager, name: &'static str) {
    start_for::<ReplicationController>(manager, name);
}

struct Shell<K> {
    sets: Cache<K>,
    owned: OwnedPods,
}

fn start_for<K: ReplicaKind>(manager: &mut Manager, name: &'static str) {
    let owned = OwnedPods::new(manager, K::KIND, K::ACCOUNT, K::ACCOUNT);
    let shell = Arc::new(Shell {
        sets: manager.whole::<K>(),
        owned,
    });
    enqueue_changes(&shell.sets, &shell.owned.queue);
    let noticing = Arc::clone(&shell);
    shell
        .owned
        .pods
        .on_change(move |change| noticing.notice(change));
    let ready = [shell.sets.completion(), shell.owned.pods.completion()];
    let queue = Arc::clone(&shell.owned.queue);
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl<K: ReplicaKind> Shell<K> {
    // A pod that nobody owns is of interest to every set that would match it.
    fn notice(&self, change: &Change<'_, PodView>) {
        let Some(orphan) = self.owned.notice(change) else {
            return;
        };
        let matching = self.sets.within(&change.key.namespace, |set| {
            ownership::matches(&set.selector(), &orphan.labels)
        });
        self.owned
            .queue
            .add_all(matching.into_iter().map(|(key, _)| key));
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(set) = self.sets.get(key) else {
            self.owned.expectations.forget(key);
            return Ok(End::Done);
        };
        let may_change = self.owned.expectations.are_met(key) && !set.is_deleted();
        let pods = self.owned.claim(&*set, &set.selector(), None).await?;
        let observed = Observed::of(&*set, &pods, Timestamp::now());
        let mut failure = None;
        if may_change {
            failure = self.carry_out(key, &set, &pods, &observed).await;
        }
        self.write_status(
            &set,
            &observed,
            failure.as_ref().map(|(failure, _)| failure),
        )
        .await?;
        match failure {
            Some((_, error)) if is_namespace_ending(&error) => Ok(End::Done),
            Some((_, error)) => Err(SyncError::NotYet(reason(&error))),
            None => Ok(observed
                .becomes_available_in()
                .map_or(End::Done, End::After)),
        }
    }

    async fn carry_out(
        &self,
        key: &ObjectKey,
        set: &K,
        pods: &[Arc<PodView>],
        observed: &Observed,
    ) -> Option<(Failure, SyncError)> {
        match observed.step() {
            Step::Nothing => None,
            Step::Create(count) => self.create(key, set, count).await,
            Step::Delete(count) => {
                let related = self.related(set, pods);
                let doomed = observed.doomed(pods, &related, count);
                let doomed: Vec<Arc<PodView>> = doomed.into_iter().map(Arc::clone).collect();
                self.delete(key, set, &doomed).await
            }
        }
    }

    async fn create(&self, key: &ObjectKey, set: &K, count: usize) -> Option<(Failure, SyncError)> {
        let pod = pod_from_template(set, set.template()?);
        self.owned.expectations.expect(key, count, []);
        let error = self
            .owned
            .create_all(key, set, count, |_| pod.clone())
            .await?;
        Some((Failure::create(reason(&error)), error))
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        set: &K,
        doomed: &[Arc<PodView>],
    ) -> Option<(Failure, SyncError)> {
        let uids = doomed.iter().map(|pod| pod.uid.clone());
        self.owned.expectations.expect(key, 0, uids);
        let error = self.owned.delete_all(key, set, doomed).await?;
        Some((Failure::delete(reason(&error)), error))
    }

    // Pods of the sets that have the same controller, this one's included.
    fn related(&self, set: &K, pods: &[Arc<PodView>]) -> Vec<Arc<PodView>> {
        let Some(owner) = Owner::of(set.meta()) else {
            return pods.to_vec();
        };
        let is_sibling = |set: &K| Owner::of(set.meta()).is_some_and(|o| o.uid == owner.uid);
        let siblings = self.sets.within(set.namespace(), is_sibling);
        let siblings: Vec<&str> = siblings.iter().map(|(_, set)| set.uid()).collect();
        let is_related = |pod: &PodView| {
            pod.owner
                .as_ref()
                .is_some_and(|owner| siblings.contains(&owner.uid.as_str()))
        };
        let related = self.owned.pods.within(set.namespace(), is_related);
        related.into_iter().map(|(_, pod)| pod).collect()
    }

    async fn write_status(
        &self,
        set: &K,
        observed: &Observed,
        failure: Option<&Failure>,
    ) -> Result<(), SyncError> {
        let Some(status) = observed.next_status(&set.status(), failure) else {
            return Ok(());
        };
        let changed = set.with_status(status);
        match self
            .owned
            .control
            .actor
            .replace_part("status", &changed)
            .await
        {
            // A newer set is on its way to the cache.
            Err(error) if is_outdated(&error) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Observed {
    fn becomes_available_in(&self) -> Option<Duration> {
        self.next_available
            .map(|wait| Duration::from_secs(wait.max(1)))
    }
}
