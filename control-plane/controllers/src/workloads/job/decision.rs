//! What a job needs next (upstream's `syncJob`): pods to make and to end, pods to count, and its status.
//!
//! A pod is counted exactly once: its uid is first written to the status, then its finalizer goes, and only then the
//! counter moves. Whoever dies in between leaves enough behind to go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use client_runtime::Severity;

use super::super::pod_view::{Phase, PodView};
use super::super::ranking;
use super::indexes::Indexes;
use super::policies::{self, Verdict};

/// Upstream's `MaxPodCreateDeletePerSync` and `MaxUncountedPods`.
const BURST: usize = 500;
/// Upstream's `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff`.
const FIRST_WAIT: i64 = 10;
const LONGEST_WAIT: i64 = 600;

const SUSPENDED: &str = "Suspended";
const FAILURE_TARGET: &str = "FailureTarget";
const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
const COMPLETE: &str = "Complete";
const FAILED: &str = "Failed";

/// What is to happen.
#[derive(Debug, Default)]
pub(super) struct Decided {
    /// The indexes of the pods to make; none for pods without one.
    pub(super) create: Vec<Option<i32>>,
    /// Pods that nobody counts any more when they go: their finalizer goes first.
    pub(super) drop: Vec<Arc<PodView>>,
    /// Pods that go and are counted.
    pub(super) end: Vec<Arc<PodView>>,
    /// The status to be written.
    pub(super) status: Option<JobStatus>,
    /// Pods that are in the status by now, or need not be: their finalizer goes.
    pub(super) settle: Vec<Arc<PodView>>,
    pub(super) events: Vec<(Severity, &'static str, String)>,
    pub(super) again_after: Option<Duration>,
}

/// Whether a job has ended.
pub(crate) fn is_finished(job: &Job) -> bool {
    ended_at(job).is_some()
}

/// The condition with which a job ended.
pub(crate) fn ended_at(job: &Job) -> Option<&JobCondition> {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ends = conditions.filter(|c| c.type_ == COMPLETE || c.type_ == FAILED);
    ends.find(|c| c.status == "True")
}

/// Decides; `may_change` is whether what was asked for before has been seen.
pub(super) fn decide(
    job: &Job,
    pods: &[Arc<PodView>],
    may_change: bool,
    now: Timestamp,
) -> Decided {
    let mut decision = Decision::new(job, pods, now);
    decision.count();
    decision.note_suspension();
    let target = decision.target();
    let is_ending = target.is_some();
    match target {
        Some(target) => decision.finish(target),
        None if may_change && job.metadata.deletion_timestamp.is_none() => decision.manage(),
        None => {}
    }
    decision.decided(is_ending)
}

struct Decision<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    pods: &'a [Arc<PodView>],
    now: Timestamp,
    active: Vec<&'a Arc<PodView>>,
    status: JobStatus,
    /// Counted, to be counted and just ended.
    succeeded: i32,
    failed: i32,
    succeeded_indexes: Indexes,
    failed_indexes: Indexes,
    /// Why the job fails at once, if a rule says so.
    verdict: Option<String>,
    out: Decided,
}

impl<'a> Decision<'a> {
    fn new(job: &'a Job, pods: &'a [Arc<PodView>], now: Timestamp) -> Decision<'a> {
        let spec = job
            .spec
            .as_ref()
            .expect("the API server lets no job pass without a spec");
        let status = job.status.clone().unwrap_or_default();
        let completions = spec.completions.unwrap_or(0);
        let read = |text: &Option<String>| {
            Indexes::parse(text.as_deref().unwrap_or_default(), completions)
        };
        let (succeeded_indexes, failed_indexes) = (
            read(&status.completed_indexes),
            read(&status.failed_indexes),
        );
        Decision {
            job,
            spec,
            pods,
            now,
            active: pods.iter().filter(|pod| pod.is_active()).collect(),
            succeeded: status.succeeded.unwrap_or(0),
            failed: status.failed.unwrap_or(0),
            status,
            succeeded_indexes,
            failed_indexes,
            verdict: None,
            out: Decided::default(),
        }
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    // Moves what was written and let go from "to be counted" into the counters, and writes down what has ended since.
    fn count(&mut self) {
        let uncounted = self
            .status
            .uncounted_terminated_pods
            .take()
            .unwrap_or_default();
        let held: BTreeSet<&str> = self
            .pods
            .iter()
            .filter(|pod| pod.is_tracked)
            .map(|pod| pod.uid.as_str())
            .collect();
        let still = |uids: Option<Vec<String>>| -> (Vec<String>, i32) {
            let (held, gone): (Vec<String>, Vec<String>) = uids
                .unwrap_or_default()
                .into_iter()
                .partition(|uid| held.contains(uid.as_str()));
            (held, i32::try_from(gone.len()).unwrap_or(i32::MAX))
        };
        let (mut succeeded, new_succeeded) = still(uncounted.succeeded);
        let (mut failed, new_failed) = still(uncounted.failed);
        add(&mut self.status.succeeded, new_succeeded);
        add(&mut self.status.failed, new_failed);
        for pod in self.pods.iter().filter(|pod| pod.is_tracked) {
            let is_written = succeeded.contains(&pod.uid) || failed.contains(&pod.uid);
            if is_written {
                self.out.settle.push(Arc::clone(pod));
            } else if succeeded.len() + failed.len() < BURST {
                self.count_one(pod, &mut succeeded, &mut failed);
            }
        }
        let len = |uids: &[String]| i32::try_from(uids.len()).unwrap_or(i32::MAX);
        self.succeeded = self.status.succeeded.unwrap_or(0) + len(&succeeded);
        self.failed = self.status.failed.unwrap_or(0) + len(&failed);
        if self.is_indexed() {
            self.succeeded = self.succeeded_indexes.len();
        }
        self.status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: (!succeeded.is_empty()).then_some(succeeded),
            failed: (!failed.is_empty()).then_some(failed),
        });
    }

    fn count_one(
        &mut self,
        pod: &Arc<PodView>,
        succeeded: &mut Vec<String>,
        failed: &mut Vec<String>,
    ) {
        let index = pod
            .index
            .filter(|index| *index < self.spec.completions.unwrap_or(0));
        if pod.phase == Phase::Succeeded {
            if !self.is_indexed() {
                succeeded.push(pod.uid.clone());
            } else if let Some(index) = index
                && !self.succeeded_indexes.contains(index)
            {
                self.succeeded_indexes = self.succeeded_indexes.with([index]);
                succeeded.push(pod.uid.clone());
            }
            self.out.settle.push(Arc::clone(pod));
            return;
        }
        if !self.has_failed(pod) {
            return;
        }
        let namespace = self.job.metadata.namespace.as_deref().unwrap_or_default();
        let verdict = policies::judge(self.spec, namespace, pod);
        let limit = self.spec.backoff_limit_per_index;
        match &verdict {
            Verdict::Ignore => {}
            Verdict::FailJob(why) => self.verdict = self.verdict.take().or(Some(why.clone())),
            Verdict::FailIndex => self.fail_index(index),
            Verdict::Count if limit.is_some_and(|limit| pod.index_failures >= limit) => {
                self.fail_index(index);
            }
            Verdict::Count => {}
        }
        if verdict != Verdict::Ignore {
            failed.push(pod.uid.clone());
        }
        self.out.settle.push(Arc::clone(pod));
    }

    fn fail_index(&mut self, index: Option<i32>) {
        let is_new = |index: &i32| !self.succeeded_indexes.contains(*index);
        self.failed_indexes = self.failed_indexes.with(index.filter(is_new));
    }

    // Upstream's `isPodFailed`: a pod that is on its way out counts as failed unless somebody waits for its end.
    fn has_failed(&self, pod: &PodView) -> bool {
        match pod.phase {
            Phase::Failed => true,
            Phase::Succeeded => false,
            _ => pod.is_deleted && !self.replaces_only_failed(),
        }
    }

    fn note_suspension(&mut self) {
        if ended_at(self.job).is_some() {
            return;
        }
        let was = find(&self.status, SUSPENDED).map(|condition| condition.status.clone());
        let (is_suspended, now) = (self.is_suspended(), Some(Time(self.now)));
        if is_suspended {
            if was.as_deref() != Some("True") {
                self.set(SUSPENDED, "True", "JobSuspended", "Job suspended");
                self.say(Severity::Normal, "Suspended", "Job suspended".into());
            }
            self.status.start_time = None;
            return;
        }
        if was.as_deref() == Some("True") {
            self.set(SUSPENDED, "False", "JobResumed", "Job resumed");
            self.say(Severity::Normal, "Resumed", "Job resumed".into());
            self.status.start_time = now;
        } else if self.status.start_time.is_none() {
            self.status.start_time = now;
        }
    }

    // The end the job is going to, if it is: what was said before stays.
    fn target(&mut self) -> Option<(&'static str, String, String)> {
        let said = |status: &JobStatus, name: &str| {
            let found = find(status, name).filter(|condition| condition.status == "True")?;
            Some((
                found.reason.clone().unwrap_or_default(),
                found.message.clone().unwrap_or_default(),
            ))
        };
        if let Some((reason, message)) = said(&self.status, FAILURE_TARGET) {
            return Some((FAILED, reason, message));
        }
        if let Some((reason, message)) = said(&self.status, SUCCESS_CRITERIA_MET) {
            return Some((COMPLETE, reason, message));
        }
        let failure = self
            .failure()
            .map(|(reason, message)| (FAILED, reason.to_owned(), message));
        failure.or_else(|| {
            self.success()
                .map(|(reason, message)| (COMPLETE, reason.to_owned(), message))
        })
    }

    fn failure(&mut self) -> Option<(&'static str, String)> {
        if let Some(why) = self.verdict.take() {
            return Some(("PodFailurePolicy", why));
        }
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed > limit || self.restarts_exceed(limit) {
            let text = "Job has reached the specified backoff limit";
            return Some(("BackoffLimitExceeded", text.into()));
        }
        if self.is_past_deadline() {
            let text = "Job was active longer than specified deadline";
            return Some(("DeadlineExceeded", text.into()));
        }
        if !self.is_indexed() || self.spec.backoff_limit_per_index.is_none() {
            return None;
        }
        let failed = self.failed_indexes.len();
        if self
            .spec
            .max_failed_indexes
            .is_some_and(|most| failed > most)
        {
            let text = "Job has exceeded the specified maximal number of failed indexes";
            return Some(("MaxFailedIndexesExceeded", text.into()));
        }
        let is_over = failed + self.succeeded_indexes.len() >= self.spec.completions.unwrap_or(0);
        (failed > 0 && is_over).then(|| ("FailedIndexes", "Job has failed indexes".into()))
    }

    // Containers that are restarted in their pods fail too.
    fn restarts_exceed(&self, limit: i32) -> bool {
        let pod = self.spec.template.spec.as_ref();
        if pod.and_then(|pod| pod.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let alive = self
            .active
            .iter()
            .filter(|pod| matches!(pod.phase, Phase::Running | Phase::Pending));
        let restarts: i32 = alive.map(|pod| pod.restarts).sum();
        match limit {
            0 => restarts > 0,
            limit => restarts >= limit,
        }
    }

    fn is_past_deadline(&mut self) -> bool {
        let (Some(limit), Some(start)) =
            (self.spec.active_deadline_seconds, &self.status.start_time)
        else {
            return false;
        };
        if self.is_suspended() {
            return false;
        }
        let left = start.0.as_second() + limit - self.now.as_second();
        if left > 0 {
            self.look_again(left);
        }
        left <= 0
    }

    fn success(&self) -> Option<(&'static str, String)> {
        if self.is_indexed()
            && let Some(why) = policies::is_success(self.spec, &self.succeeded_indexes)
        {
            return Some(("SuccessPolicy", why));
        }
        let is_complete = match self.spec.completions {
            None => self.succeeded > 0 && self.active.is_empty(),
            Some(completions) => self.succeeded >= completions,
        };
        is_complete.then(|| {
            (
                "CompletionsReached",
                "Reached expected number of succeeded pods".into(),
            )
        })
    }

    // Says where the job goes, ends its pods, and says that it has ended once all of them are counted.
    fn finish(&mut self, (end, reason, message): (&'static str, String, String)) {
        let target = if end == FAILED {
            FAILURE_TARGET
        } else {
            SUCCESS_CRITERIA_MET
        };
        self.set(target, "True", &reason, &message);
        self.out
            .end
            .extend(self.active.iter().map(|pod| Arc::clone(pod)));
        if end == COMPLETE {
            // What goes because it is no longer needed has not failed.
            self.out.drop.append(&mut self.out.end);
        }
        let uncounted = self
            .status
            .uncounted_terminated_pods
            .clone()
            .unwrap_or_default();
        let is_counted = uncounted == UncountedTerminatedPods::default();
        let is_quiet = self
            .pods
            .iter()
            .all(|pod| pod.is_finished() || (pod.is_deleted && !pod.is_tracked));
        let is_empty = self.active.is_empty() && self.pods.iter().all(|pod| !pod.is_terminating());
        if !(is_counted && is_quiet && is_empty) {
            return;
        }
        self.set(end, "True", &reason, &message);
        if end == COMPLETE {
            self.status.completion_time = Some(Time(self.now));
            self.say(Severity::Normal, "Completed", "Job completed".into());
        } else {
            self.say(Severity::Warning, static_reason(&reason), message);
        }
    }

    fn manage(&mut self) {
        let parallelism = usize::try_from(self.spec.parallelism.unwrap_or(1)).unwrap_or(0);
        if self.is_suspended() {
            let doomed = self.active.iter().take(BURST).map(|pod| Arc::clone(pod));
            self.out.drop.extend(doomed);
            return;
        }
        let active = self.active.len();
        let wanted = match self.spec.completions {
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => {
                let left = completions - self.succeeded - self.failed_indexes.len();
                parallelism.min(usize::try_from(left).unwrap_or(0))
            }
        };
        let surplus = self.surplus(wanted);
        if !surplus.is_empty() {
            self.out.drop.extend(surplus);
            return;
        }
        let mut present = active;
        if self.replaces_only_failed() {
            present += self.pods.iter().filter(|pod| pod.is_terminating()).count();
        }
        let missing = wanted.saturating_sub(present).min(BURST);
        if missing > 0 && !self.must_wait() {
            self.create(missing);
        }
    }

    // Pods too many: of an indexed job those whose index has another pod, or is no longer wanted, go first.
    fn surplus(&self, wanted: usize) -> Vec<Arc<PodView>> {
        let mut surplus: Vec<Arc<PodView>> = Vec::new();
        let mut kept: Vec<&Arc<PodView>> = Vec::new();
        if self.is_indexed() {
            let mut seen = BTreeSet::new();
            for pod in &self.active {
                let index = pod
                    .index
                    .filter(|index| *index < self.spec.completions.unwrap_or(0));
                match index {
                    Some(index) if seen.insert(index) => kept.push(pod),
                    _ => surplus.push(Arc::clone(pod)),
                }
            }
        } else {
            kept.clone_from(&self.active);
        }
        let over = kept.len().saturating_sub(wanted);
        let cheapest = ranking::least_valuable(&kept, &[], over, self.now);
        surplus.extend(cheapest.into_iter().map(Arc::clone));
        surplus.truncate(BURST);
        surplus
    }

    // After failures in a row the next pod waits, longer each time (upstream's `backoff_utils.go`).
    fn must_wait(&mut self) -> bool {
        if self.spec.backoff_limit_per_index.is_some() {
            return false;
        }
        let ended = |pod: &Arc<PodView>| pod.exits.iter().filter_map(|exit| exit.at).max();
        let of = |phase: Phase| self.pods.iter().filter(move |pod| pod.phase == phase);
        let last_success = of(Phase::Succeeded).filter_map(ended).max();
        let failures: Vec<Timestamp> = of(Phase::Failed)
            .filter_map(ended)
            .filter(|at| Some(*at) > last_success)
            .collect();
        let Some(last) = failures.iter().max() else {
            return false;
        };
        let doublings = u32::try_from(failures.len() - 1).unwrap_or(30).min(30);
        let wait = (FIRST_WAIT << doublings).min(LONGEST_WAIT);
        let left = last.as_second() + wait - self.now.as_second();
        if left > 0 {
            self.look_again(left);
        }
        left > 0
    }

    fn create(&mut self, count: usize) {
        if !self.is_indexed() {
            self.out.create = vec![None; count];
            return;
        }
        let held = self
            .pods
            .iter()
            .filter(|pod| pod.is_active() || (pod.is_terminating() && self.replaces_only_failed()));
        let taken: BTreeSet<i32> = held.filter_map(|pod| pod.index).collect();
        let done = [&self.succeeded_indexes, &self.failed_indexes];
        let completions = self.spec.completions.unwrap_or(0);
        let missing = Indexes::missing(completions, count, done, &taken);
        self.out.create = missing.into_iter().map(Some).collect();
    }

    fn decided(mut self, is_ending: bool) -> Decided {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let going = self.out.drop.len() + self.out.end.len();
        let active = (self.active.len() + self.out.create.len()).saturating_sub(going);
        let active = if is_ending { 0 } else { active };
        self.status.active = Some(count(active)).filter(|active| *active > 0);
        let ready = self.active.iter().filter(|pod| pod.is_ready()).count();
        self.status.ready = Some(if is_ending { 0 } else { count(ready) });
        let terminating = self.pods.iter().filter(|pod| pod.is_terminating()).count();
        self.status.terminating = Some(count(terminating));
        if self.is_indexed() {
            let text = self.succeeded_indexes.to_string();
            self.status.completed_indexes = Some(text).filter(|text| !text.is_empty());
            self.status.succeeded = Some(self.counted_indexes()).filter(|count| *count > 0);
        }
        if self.spec.backoff_limit_per_index.is_some() {
            self.status.failed_indexes = Some(self.failed_indexes.to_string());
        }
        let before = self.job.status.clone().unwrap_or_default();
        self.out.status = (self.status != before).then_some(self.status);
        self.out
    }

    // Indexes whose pods wait to be counted are complete, but not yet in the counter.
    fn counted_indexes(&self) -> i32 {
        let uncounted = self.status.uncounted_terminated_pods.as_ref();
        let waiting = uncounted
            .and_then(|uncounted| uncounted.succeeded.as_ref())
            .map_or(0, Vec::len);
        self.succeeded_indexes.len() - i32::try_from(waiting).unwrap_or(0)
    }

    fn look_again(&mut self, seconds: i64) {
        let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let earlier = self.out.again_after.map_or(wait, |before| before.min(wait));
        self.out.again_after = Some(earlier);
    }

    fn say(&mut self, severity: Severity, reason: &'static str, text: String) {
        self.out.events.push((severity, reason, text));
    }

    fn set(&mut self, name: &str, status: &str, reason: &str, message: &str) {
        let conditions = self.status.conditions.get_or_insert_default();
        let now = Some(Time(self.now));
        if let Some(known) = conditions.iter_mut().find(|c| c.type_ == name) {
            if known.status != status {
                known.last_transition_time = now;
                known.status = status.into();
                known.reason = Some(reason.into());
                known.message = Some(message.into());
            }
            return;
        }
        conditions.push(JobCondition {
            type_: name.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_probe_time: now.clone(),
            last_transition_time: now,
        });
    }
}

fn add(counter: &mut Option<i32>, more: i32) {
    let sum = counter.unwrap_or(0) + more;
    *counter = Some(sum).filter(|sum| *sum > 0);
}

fn find<'a>(status: &'a JobStatus, name: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == name)
}

fn static_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 5] = [
        "PodFailurePolicy",
        "DeadlineExceeded",
        "MaxFailedIndexesExceeded",
        "FailedIndexes",
        "BackoffLimitExceeded",
    ];
    KNOWN
        .into_iter()
        .find(|known| *known == reason)
        .unwrap_or("BackoffLimitExceeded")
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
