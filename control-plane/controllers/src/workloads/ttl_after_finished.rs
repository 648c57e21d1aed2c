//! Deletes jobs some time after they have ended, if they say so.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, Synced, enqueue_changes};

use super::job::ended_at;
use crate::Manager;

const ACCOUNT: &str = "ttl-after-finished-controller";
/// Upstream's `--concurrent-ttl-after-finished-syncs`.
const AT_ONCE: usize = 5;

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let jobs = manager.whole::<Job>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&jobs, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, AT_ONCE, [jobs.completion()], move |key| {
        sync(jobs.clone(), actor.clone(), key)
    });
}

async fn sync(jobs: Cache<Job>, actor: Actor, key: ObjectKey) -> Synced {
    let Some(left) = jobs
        .get(&key)
        .and_then(|job| time_left(&job, Timestamp::now()))
    else {
        return Ok(End::Done);
    };
    if !left.is_zero() {
        return Ok(End::After(left));
    }
    // The job may have been given more time since: the newest word counts.
    let Some(fresh) = actor.get::<Job>(&key.namespace, &key.name).await? else {
        return Ok(End::Done);
    };
    match time_left(&fresh, Timestamp::now()) {
        None => Ok(End::Done),
        Some(left) if !left.is_zero() => Ok(End::After(left)),
        Some(_) => {
            let uid = fresh.metadata.uid.as_deref();
            let params = DeleteParams::foreground();
            actor
                .delete_with::<Job>(&key.namespace, &key.name, uid, params)
                .await?;
            Ok(End::Done)
        }
    }
}

fn time_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let ended = ended_at(job)?.last_transition_time.as_ref()?.0;
    let left = ended.as_second() + i64::from(ttl) - now.as_second();
    Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_goes_when_its_time_after_the_end_is_over() {
        let job = |ttl: Option<i32>, ended: bool| -> Job {
            let conditions = json!([{ "type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
            let conditions = if ended { conditions } else { json!([]) };
            serde_json::from_value(json!({ "metadata": {},
                "spec": { "template": {}, "ttlSecondsAfterFinished": ttl },
                "status": { "conditions": conditions } }))
            .unwrap()
        };
        let at = |seconds: &str| format!("2026-01-01T00:00:{seconds}Z").parse().unwrap();
        assert_eq!(
            time_left(&job(Some(30), true), at("10")),
            Some(Duration::from_secs(20))
        );
        assert_eq!(
            time_left(&job(Some(30), true), at("30")),
            Some(Duration::ZERO)
        );
        assert_eq!(
            time_left(&job(Some(0), true), at("00")),
            Some(Duration::ZERO)
        );
        assert_eq!(time_left(&job(None, true), at("59")), None);
        assert_eq!(time_left(&job(Some(30), false), at("59")), None);
    }
}
