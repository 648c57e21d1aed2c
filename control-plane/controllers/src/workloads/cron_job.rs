//! Makes jobs when their time has come.

mod decision;
mod schedule;

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::api::DeleteParams;

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced};
use client_runtime::{enqueue_changes, is, is_namespace_ending, is_outdated};

use super::ownership::{Owner, owner_reference};
use super::pods::reason;
use crate::Manager;
use decision::{decide, job_name};

const ACCOUNT: &str = "cronjob-controller";
const KIND: &str = "CronJob";
/// Upstream's `--concurrent-cron-job-syncs`.
const AT_ONCE: usize = 5;
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

struct Shell {
    crons: Cache<CronJob>,
    jobs: Cache<Job>,
    actor: Actor,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        crons: manager.whole::<CronJob>(),
        jobs: manager.whole::<Job>(),
        recorder: manager.recorder(ACCOUNT, actor.clone()),
        actor,
    });
    let queue = Arc::new(Queue::new());
    enqueue_changes(&shell.crons, &queue);
    let noticed = Arc::clone(&queue);
    shell.jobs.on_change(move |change| {
        for job in [change.before, change.after].into_iter().flatten() {
            let owner = Owner::of(&job.metadata).filter(|owner| owner.kind == KIND);
            noticed.add_all(owner.map(|owner| ObjectKey::new(&change.key.namespace, owner.name)));
        }
    });
    let ready = [shell.crons.completion(), shell.jobs.completion()];
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(cron) = self.crons.get(key) else {
            return Ok(End::Done);
        };
        match self.bring_about(key, &cron).await {
            Ok(end) => Ok(end),
            Err(error) if is_namespace_ending(&error) => Ok(End::Done),
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Err(error) => Err(error),
        }
    }

    async fn bring_about(&self, key: &ObjectKey, cron: &CronJob) -> Synced {
        let uid = cron.metadata.uid.clone().unwrap_or_default();
        let is_ours = |job: &Job| Owner::of(&job.metadata).is_some_and(|owner| owner.uid == uid);
        let jobs = self.jobs.within(&key.namespace, is_ours);
        let mut jobs: Vec<Arc<Job>> = jobs.into_iter().map(|(_, job)| job).collect();
        self.add_unseen(key, cron, &mut jobs).await?;
        let mut decided = decide(cron, &jobs, Timestamp::now());
        for (severity, reason, text) in decided.events.drain(..) {
            self.recorder.about(cron, severity, reason, text);
        }
        for job in decided.replace.iter().chain(&decided.forget) {
            self.delete(cron, job).await?;
            let active = decided.status.active.iter_mut();
            active.for_each(|all| all.retain(|known| known.uid != job.metadata.uid));
        }
        if let Some(at) = decided.run
            && let Some(job) = self.make(key, cron, at).await?
        {
            decided
                .status
                .active
                .get_or_insert_default()
                .push(job.object_ref(&()));
        }
        decided.status.active.take_if(|active| active.is_empty());
        if decided.status != cron.status.clone().unwrap_or_default() {
            let changed = CronJob {
                status: Some(decided.status),
                ..cron.clone()
            };
            self.actor.replace_part("status", &changed).await?;
        }
        Ok(decided.again_after.map_or(End::Done, End::After))
    }

    // A job that is listed as active and not in the cache may be gone, or too new.
    async fn add_unseen(
        &self,
        key: &ObjectKey,
        cron: &CronJob,
        jobs: &mut Vec<Arc<Job>>,
    ) -> Result<(), SyncError> {
        let listed = cron
            .status
            .iter()
            .flat_map(|status| status.active.iter().flatten());
        for known in listed {
            if jobs.iter().any(|job| job.metadata.uid == known.uid) {
                continue;
            }
            let name = known.name.as_deref().unwrap_or_default();
            let job: Option<Job> = self.actor.get(&key.namespace, name).await?;
            jobs.extend(
                job.filter(|job| job.metadata.uid == known.uid)
                    .map(Arc::new),
            );
        }
        Ok(())
    }

    async fn delete(&self, cron: &CronJob, job: &Job) -> Result<(), SyncError> {
        let meta = &job.metadata;
        let (namespace, name) = (
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let params = DeleteParams::background();
        let uid = meta.uid.as_deref();
        let deleted = self
            .actor
            .delete_with::<Job>(namespace.unwrap_or_default(), name, uid, params)
            .await;
        match deleted {
            Ok(()) => {
                let text = format!("Deleted job {name}");
                self.recorder
                    .about(cron, Severity::Normal, "SuccessfulDelete", text);
                Ok(())
            }
            Err(error) => {
                let text = format!("Deleted job: {}", reason(&error));
                self.recorder
                    .about(cron, Severity::Warning, "FailedDelete", text);
                Err(error)
            }
        }
    }

    // None if the job of this moment is there and somebody else's.
    async fn make(
        &self,
        key: &ObjectKey,
        cron: &CronJob,
        at: Timestamp,
    ) -> Result<Option<Job>, SyncError> {
        let job = job(cron, at);
        let name = job.metadata.name.clone().unwrap_or_default();
        match self.actor.create(&key.namespace, &job).await {
            Ok(made) => {
                let text = format!("Created job {name}");
                self.recorder
                    .about(cron, Severity::Normal, "SuccessfulCreate", text);
                Ok(Some(made))
            }
            Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => {
                let there: Option<Job> = self.actor.get(&key.namespace, &name).await?;
                let uid = cron.metadata.uid.clone();
                Ok(there.filter(|job| Owner::of(&job.metadata).map(|owner| owner.uid) == uid))
            }
            Err(error) => {
                if !is_namespace_ending(&error) {
                    let text = format!("Error creating job: {}", reason(&error));
                    self.recorder
                        .about(cron, Severity::Warning, "FailedCreate", text);
                }
                Err(error)
            }
        }
    }
}

fn job(cron: &CronJob, at: Timestamp) -> Job {
    let spec = cron.spec.clone();
    let zone = decision::zone(&spec).unwrap_or(jiff::tz::TimeZone::UTC);
    let template = spec.job_template;
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let moment = at.to_zoned(zone);
    let offset = if moment.offset().is_zero() {
        "Z".to_owned()
    } else {
        moment.strftime("%:z").to_string()
    };
    annotations.insert(
        SCHEDULED.into(),
        format!("{}{offset}", moment.strftime("%Y-%m-%dT%H:%M:%S")),
    );
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron, at)),
            namespace: cron.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner_reference(cron)]),
            creation_timestamp: None,
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}
