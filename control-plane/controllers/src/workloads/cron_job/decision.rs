//! What a cron job needs next (upstream's `syncCronJob`).

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use client_runtime::Severity;

use super::super::job::{ended_at, is_finished};
use super::schedule::Schedule;

/// From so many missed runs on, somebody is told.
const TOO_MANY: i64 = 100;
/// For so many seconds a job may be missing in the list of active ones.
const JUST_MADE: i64 = 10;
/// Looked at a little after the moment, so that clocks that differ a little do no harm (upstream's
/// `nextScheduleDelta`).
const DELTA: Duration = Duration::from_millis(100);

/// What is to happen.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// Jobs that give way to the next run.
    pub(super) replace: Vec<Arc<Job>>,
    /// Ended jobs beyond the history's limits.
    pub(super) forget: Vec<Arc<Job>>,
    /// The moment for which a job is to be made.
    pub(super) run: Option<Timestamp>,
    pub(super) status: CronJobStatus,
    pub(super) events: Vec<(Severity, &'static str, String)>,
    pub(super) again_after: Option<Duration>,
}

/// Decides; `jobs` are those the cron job controls.
pub(super) fn decide(cron: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Decided {
    let mut out = Decided {
        status: cron.status.clone().unwrap_or_default(),
        ..Decided::default()
    };
    let spec = &cron.spec;
    note_jobs(jobs, now, &mut out);
    forget_ended(spec, jobs, &mut out);
    if cron.metadata.deletion_timestamp.is_none() && spec.suspend != Some(true) {
        schedule(cron, spec, jobs, now, &mut out);
    }
    out
}

fn age(job: &Job, now: Timestamp) -> i64 {
    let made = job.metadata.creation_timestamp.as_ref();
    now.as_second() - made.map_or(0, |made| made.0.as_second())
}

// The list of active jobs follows the jobs there are.
fn note_jobs(jobs: &[Arc<Job>], now: Timestamp, out: &mut Decided) {
    let mut active = out.status.active.take().unwrap_or_default();
    for job in jobs {
        let meta = &job.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let place = active.iter().position(|known| known.uid == meta.uid);
        match (place, ended_at(job)) {
            (Some(place), Some(end)) => {
                active.remove(place);
                let text = format!("Saw completed job: {name}, condition: {}", end.type_);
                out.events.push((Severity::Normal, "SawCompletedJob", text));
            }
            // One that was just made may not be in the list that was read.
            (None, None) if age(job, now) > JUST_MADE => {
                let text =
                    format!("Saw a job that the controller did not create or forgot: {name}");
                out.events.push((Severity::Warning, "UnexpectedJob", text));
            }
            _ => {}
        }
        let done = job
            .status
            .as_ref()
            .and_then(|status| status.completion_time.clone());
        if done.as_ref().map(|t| t.0) > out.status.last_successful_time.as_ref().map(|t| t.0) {
            out.status.last_successful_time = done;
        }
    }
    let is_there = |known: &ObjectReference| jobs.iter().any(|job| job.metadata.uid == known.uid);
    for missing in active.iter().filter(|known| !is_there(known)) {
        let text = format!(
            "Active job went missing: {}",
            missing.name.clone().unwrap_or_default()
        );
        out.events.push((Severity::Normal, "MissingJob", text));
    }
    active.retain(is_there);
    out.status.active = Some(active).filter(|active| !active.is_empty());
}

fn forget_ended(spec: &CronJobSpec, jobs: &[Arc<Job>], out: &mut Decided) {
    for (kind, limit) in [
        ("Complete", spec.successful_jobs_history_limit),
        ("Failed", spec.failed_jobs_history_limit),
    ] {
        let Some(limit) = limit else {
            continue;
        };
        let ended = jobs
            .iter()
            .filter(|job| ended_at(job).is_some_and(|end| end.type_ == kind));
        let mut ended: Vec<&Arc<Job>> = ended.collect();
        ended.sort_by_key(|job| {
            let start = job
                .status
                .as_ref()
                .and_then(|status| status.start_time.as_ref());
            (start.map(|t| t.0), job.metadata.name.clone())
        });
        let surplus = ended
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or(0));
        out.forget
            .extend(ended.into_iter().take(surplus).map(Arc::clone));
    }
}

/// The zone a cron job's line is meant in; the controller's own is UTC.
pub(super) fn zone(spec: &CronJobSpec) -> Result<TimeZone, String> {
    match spec.time_zone.as_deref() {
        None => Ok(TimeZone::UTC),
        Some(name) => {
            TimeZone::get(name).map_err(|error| format!("invalid timeZone: \"{name}\": {error}"))
        }
    }
}

fn schedule(
    cron: &CronJob,
    spec: &CronJobSpec,
    jobs: &[Arc<Job>],
    now: Timestamp,
    out: &mut Decided,
) {
    let zone = match zone(spec) {
        Ok(zone) => zone,
        Err(text) => {
            return out
                .events
                .push((Severity::Warning, "UnknownTimeZone", text));
        }
    };
    let schedule = match Schedule::parse(&spec.schedule) {
        Ok(schedule) => schedule,
        Err(why) => {
            let text = format!("unparseable schedule: \"{}\" : {why}", spec.schedule);
            return out
                .events
                .push((Severity::Warning, "UnparseableSchedule", text));
        }
    };
    let wait = schedule
        .next(now, &zone)
        .map(|next| now.duration_until(next));
    out.again_after = wait
        .and_then(|wait| Duration::try_from(wait).ok())
        .map(|wait| wait + DELTA);
    let Some(due) = due(cron, spec, &schedule, &zone, now, out) else {
        return;
    };
    if spec
        .starting_deadline_seconds
        .is_some_and(|limit| due.as_second() + limit < now.as_second())
    {
        let text = format!(
            "Missed scheduled time to start a job: {}",
            due.to_zoned(zone).strftime("%a, %d %b %Y %H:%M:%S %z")
        );
        return out.events.push((Severity::Warning, "MissSchedule", text));
    }
    let last = cron
        .status
        .as_ref()
        .and_then(|status| status.last_schedule_time.as_ref());
    let name = job_name(cron, due);
    let is_made = jobs
        .iter()
        .any(|job| job.metadata.name.as_deref() == Some(name.as_str()));
    if is_made || last.is_some_and(|last| last.0 == due) {
        return;
    }
    let running = jobs.iter().filter(|job| !is_finished(job));
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if out.status.active.is_some() => {
            let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
            out.events
                .push((Severity::Normal, "JobAlreadyActive", text.into()));
            return;
        }
        Some("Replace") => out.replace = running.map(Arc::clone).collect(),
        _ => {}
    }
    out.run = Some(due);
    out.status.last_schedule_time = Some(Time(due));
}

// The latest moment that has passed without a run (upstream's `mostRecentScheduleTime`).
fn due(
    cron: &CronJob,
    spec: &CronJobSpec,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
    out: &mut Decided,
) -> Option<Timestamp> {
    let last = cron
        .status
        .as_ref()
        .and_then(|status| status.last_schedule_time.as_ref());
    let since = last.or(cron.metadata.creation_timestamp.as_ref())?.0;
    let oldest = spec
        .starting_deadline_seconds
        .and_then(|limit| now.checked_sub(SignedDuration::from_secs(limit)).ok());
    let since = oldest.map_or(since, |oldest| oldest.max(since));
    let first = schedule.next(since, zone).filter(|first| *first <= now)?;
    let Some(second) = schedule.next(first, zone).filter(|second| *second <= now) else {
        return Some(first);
    };
    let between = (second.as_second() - first.as_second()).max(1);
    let missed = (now.as_second() - first.as_second()) / between + 1;
    if missed > TOO_MANY {
        let text = format!(
            "too many missed start times: {missed}. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        );
        out.events
            .push((Severity::Warning, "TooManyMissedTimes", text));
    }
    // Not every run by run: from shortly before now on.
    let back = SignedDuration::from_secs(between.saturating_mul(2));
    let mut latest = now.checked_sub(back).unwrap_or(second).max(first);
    latest = schedule
        .next(latest, zone)
        .filter(|next| *next <= now)
        .unwrap_or(second);
    while let Some(next) = schedule.next(latest, zone).filter(|next| *next <= now) {
        latest = next;
    }
    Some(latest)
}

/// The name of the job of a moment.
pub(super) fn job_name(cron: &CronJob, at: Timestamp) -> String {
    format!(
        "{}-{}",
        cron.metadata.name.as_deref().unwrap_or_default(),
        at.as_second() / 60
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron(spec: Value, status: Value) -> CronJob {
        let mut whole = json!({ "schedule": "0 * * * *", "jobTemplate": {} });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(
            json!({ "metadata": { "name": "tick", "creationTimestamp": "2026-01-01T00:30:00Z" },
            "spec": whole, "status": status }),
        )
        .unwrap()
    }

    fn job(name: &str, state: &str) -> Arc<Job> {
        let conditions = match state {
            "" => json!([]),
            state => json!([{ "type": state, "status": "True" }]),
        };
        Arc::new(
            serde_json::from_value(json!({ "metadata": { "name": name, "uid": name },
                "status": { "conditions": conditions } }))
            .unwrap(),
        )
    }

    fn run(cron: &CronJob, jobs: &[Arc<Job>], now: &str) -> (Option<String>, Vec<&'static str>) {
        let decided = decide(cron, jobs, now.parse().unwrap());
        let events = decided
            .events
            .iter()
            .map(|(_, reason, _)| *reason)
            .collect();
        (decided.run.map(|at| at.to_string()), events)
    }

    #[test]
    fn a_run_comes_when_it_is_due_and_once() {
        let plain = cron(json!({}), json!({}));
        assert_eq!(run(&plain, &[], "2026-01-01T00:59:59Z").0, None);
        assert_eq!(
            run(&plain, &[], "2026-01-01T01:00:00Z").0.as_deref(),
            Some("2026-01-01T01:00:00Z")
        );
        let after = cron(
            json!({}),
            json!({ "lastScheduleTime": "2026-01-01T01:00:00Z" }),
        );
        assert_eq!(run(&after, &[], "2026-01-01T01:10:00Z").0, None);
        let again = decide(&after, &[], "2026-01-01T01:10:00Z".parse().unwrap()).again_after;
        assert_eq!(again, Some(Duration::from_secs(3000) + DELTA));
        let suspended = cron(json!({ "suspend": true }), json!({}));
        assert_eq!(run(&suspended, &[], "2026-01-01T05:00:00Z").0, None);
    }

    #[test]
    fn only_the_latest_of_missed_runs_is_made_up_for() {
        let plain = cron(json!({}), json!({}));
        let (at, events) = run(&plain, &[], "2026-01-01T05:20:00Z");
        assert_eq!(at.as_deref(), Some("2026-01-01T05:00:00Z"));
        assert!(events.is_empty());
        let (at, events) = run(&plain, &[], "2026-03-01T05:20:00Z");
        assert_eq!(at.as_deref(), Some("2026-03-01T05:00:00Z"));
        assert_eq!(events, ["TooManyMissedTimes"]);
        let hasty = cron(json!({ "startingDeadlineSeconds": 60 }), json!({}));
        assert_eq!(run(&hasty, &[], "2026-01-01T05:20:00Z").0, None, "too late");
        assert!(run(&hasty, &[], "2026-01-01T05:00:59Z").0.is_some());
    }

    #[test]
    fn policies_say_what_becomes_of_a_run_that_is_not_over() {
        let status = json!({ "active": [{ "uid": "old", "name": "old" }] });
        let jobs = [job("old", "")];
        let of = |policy: &str| cron(json!({ "concurrencyPolicy": policy }), status.clone());
        let now = "2026-01-01T01:00:00Z";
        assert!(run(&of("Allow"), &jobs, now).0.is_some());
        assert_eq!(
            run(&of("Forbid"), &jobs, now),
            (None, vec!["JobAlreadyActive"])
        );
        let replaced = decide(&of("Replace"), &jobs, now.parse().unwrap());
        assert!(replaced.run.is_some());
        assert_eq!(replaced.replace.len(), 1);
        let ended = [job("old", "Complete")];
        assert_eq!(run(&of("Forbid"), &ended, now).1, ["SawCompletedJob"]);
        assert!(run(&of("Forbid"), &ended, now).0.is_some());
    }

    #[test]
    fn history_has_its_limits_and_bad_lines_their_events() {
        let limited = cron(
            json!({ "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0, "suspend": true }),
            json!({}),
        );
        let jobs = [
            job("a", "Complete"),
            job("b", "Complete"),
            job("c", "Failed"),
            job("d", ""),
        ];
        let decided = decide(&limited, &jobs, "2026-01-01T01:00:00Z".parse().unwrap());
        let gone: Vec<_> = decided
            .forget
            .iter()
            .filter_map(|job| job.metadata.name.as_deref())
            .collect();
        assert_eq!(gone, ["a", "c"]);
        for (spec, reason) in [
            (json!({ "schedule": "often" }), "UnparseableSchedule"),
            (json!({ "timeZone": "Mars/Olympus" }), "UnknownTimeZone"),
        ] {
            assert_eq!(
                run(&cron(spec, json!({})), &[], "2026-01-01T01:00:00Z").1,
                [reason]
            );
        }
    }
}
