//! Runs jobs: makes their pods, counts how they end, and says when the job has.

mod decision;
mod indexes;
mod making;
mod policies;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use serde_json::json;

use client_runtime::{Cache, Change, End, ObjectKey, SyncError, Synced, enqueue_changes};
use client_runtime::{is_namespace_ending, is_outdated};

use super::batches;
use super::owned_pods::OwnedPods;
use super::ownership;
use super::pod_view::{JOB_TRACKING, PodView};
use super::pods::reason;
use crate::Manager;
use decision::{Decided, decide};
pub(crate) use decision::{ended_at, is_finished};

const ACCOUNT: &str = "job-controller";
const KIND: &str = "Job";
/// Upstream's `--concurrent-job-syncs`.
const AT_ONCE: usize = 5;
/// Who else may run a job says so here.
const MANAGER: &str = "kubernetes.io/job-controller";

struct Shell {
    jobs: Cache<Job>,
    owned: OwnedPods,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let owned = OwnedPods::new(manager, KIND, ACCOUNT, ACCOUNT);
    let shell = Arc::new(Shell {
        jobs: manager.whole::<Job>(),
        owned,
    });
    enqueue_changes(&shell.jobs, &shell.owned.queue);
    let noticing = Arc::clone(&shell);
    shell
        .owned
        .pods
        .on_change(move |change| noticing.notice(change));
    let ready = [shell.jobs.completion(), shell.owned.pods.completion()];
    let queue = Arc::clone(&shell.owned.queue);
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

fn is_ours(job: &Job) -> bool {
    let manager = job
        .spec
        .as_ref()
        .and_then(|spec| spec.managed_by.as_deref());
    manager.is_none_or(|manager| manager == MANAGER)
}

impl Shell {
    fn notice(&self, change: &Change<'_, PodView>) {
        let Some(orphan) = self.owned.notice(change) else {
            return;
        };
        let matching = self.jobs.within(&change.key.namespace, |job| {
            ownership::matches(&selector(job), &orphan.labels)
        });
        self.owned
            .queue
            .add_all(matching.into_iter().map(|(key, _)| key));
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(job) = self.jobs.get(key) else {
            self.owned.expectations.forget(key);
            return self.free_orphans(key).await;
        };
        if !is_ours(&job) || job.spec.is_none() {
            return Ok(End::Done);
        }
        let pods = self
            .owned
            .claim(&*job, &selector(&job), Some(JOB_TRACKING))
            .await?;
        if is_finished(&job) || job.metadata.deletion_timestamp.is_some() {
            let tracked: Vec<_> = pods.into_iter().filter(|pod| pod.is_tracked).collect();
            self.settle(key, &tracked).await?;
            return Ok(End::Done);
        }
        let may_change = self.owned.expectations.are_met(key);
        let decided = decide(&job, &pods, may_change, Timestamp::now());
        let again = decided.again_after;
        match self.carry_out(key, &job, &pods, decided).await {
            Ok(()) => Ok(again.map_or(End::Done, End::After)),
            Err(error) if is_namespace_ending(&error) => Ok(End::Done),
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Err(error) => Err(error),
        }
    }

    // Pods outlive a job that was deleted without them; nobody will count them any more.
    async fn free_orphans(&self, key: &ObjectKey) -> Synced {
        let left = self.owned.pods.within(&key.namespace, |pod| {
            let is_of_it = |owner: &ownership::Owner| owner.is(KIND, &key.name);
            pod.is_tracked && pod.owner.as_ref().is_some_and(is_of_it)
        });
        let left: Vec<Arc<PodView>> = left.into_iter().map(|(_, pod)| pod).collect();
        self.settle(key, &left).await?;
        Ok(End::Done)
    }

    // Pods first, then the status with the uids of those that ended, and only then their finalizers.
    async fn carry_out(
        &self,
        key: &ObjectKey,
        job: &Job,
        pods: &[Arc<PodView>],
        decided: Decided,
    ) -> Result<(), SyncError> {
        let mut failure = None;
        if !decided.create.is_empty() {
            failure = self.create(key, job, pods, &decided.create).await;
        }
        self.settle(key, &decided.drop).await?;
        let doomed: Vec<Arc<PodView>> = decided.drop.iter().chain(&decided.end).cloned().collect();
        if !doomed.is_empty() {
            failure = self.delete(key, job, &doomed).await.or(failure);
        }
        if let Some(status) = decided.status {
            let changed = Job {
                status: Some(status),
                ..job.clone()
            };
            self.owned
                .control
                .actor
                .replace_part("status", &changed)
                .await?;
        }
        for (severity, reason, text) in decided.events {
            self.owned
                .control
                .recorder
                .about(job, severity, reason, text);
        }
        self.settle(key, &decided.settle).await?;
        failure.map_or(Ok(()), Err)
    }

    async fn create(
        &self,
        key: &ObjectKey,
        job: &Job,
        pods: &[Arc<PodView>],
        indexes: &[Option<i32>],
    ) -> Option<SyncError> {
        self.owned.expectations.expect(key, indexes.len(), []);
        let make = |number: usize| making::pod(job, indexes[number], pods);
        self.owned.create_all(key, job, indexes.len(), make).await
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        job: &Job,
        doomed: &[Arc<PodView>],
    ) -> Option<SyncError> {
        let uids = doomed.iter().map(|pod| pod.uid.clone());
        self.owned.expectations.expect(key, 0, uids);
        self.owned.delete_all(key, job, doomed).await
    }

    // Takes the finalizer off; a pod that is gone needs nothing.
    async fn settle(&self, key: &ObjectKey, pods: &[Arc<PodView>]) -> Result<(), SyncError> {
        let outcome = batches::all(0..pods.len(), |number| async move {
            let pod = &pods[number];
            let patch = Patch::Strategic(json!({ "metadata": {
                "uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [JOB_TRACKING] } }));
            let place = (key.namespace.as_str(), pod.name.as_str());
            match self
                .owned
                .control
                .actor
                .patch::<Pod>(place, None, &patch)
                .await
            {
                Err(error) if is_outdated(&error) => Ok(()),
                other => other.map(drop),
            }
        });
        outcome.await.error.map_or(Ok(()), Err)
    }
}

fn selector(job: &Job) -> kube_kit::selector::LabelSelector {
    ownership::selector(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}
