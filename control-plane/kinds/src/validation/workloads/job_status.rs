//! The status of a job. External controllers may manage jobs, so the transitions clients rely on are
//! checked here; each rule only when what it looks at has changed.

use std::collections::HashSet;

use serde_json::Value;

use super::job_policies::{indexes, interval};
use crate::field::{Errors, Path};
use crate::validation::reading::{at, flag, has, int, items, some_int, text, texts};
use crate::validation::rules::{IMMUTABLE, non_negative};
use crate::validation::values::invalid_unshown;

const COUNTS: [&str; 5] = ["active", "succeeded", "failed", "ready", "terminating"];

/// A job and its status, with the conditions that matter.
struct State<'v> {
    spec: &'v Value,
    status: &'v Value,
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria: bool,
}

impl<'v> State<'v> {
    fn of(job: &'v Value) -> State<'v> {
        let status = at(job, "status");
        State {
            spec: at(job, "spec"),
            status,
            complete: condition(status, "Complete", "True"),
            failed: condition(status, "Failed", "True"),
            failure_target: condition(status, "FailureTarget", "True"),
            success_criteria: condition(status, "SuccessCriteriaMet", "True"),
        }
    }

    fn is_finished(&self) -> bool {
        self.complete || self.failed
    }
}

fn condition(status: &Value, ty: &str, wanted: &str) -> bool {
    items(status, "conditions")
        .iter()
        .any(|c| text(c, "type") == ty && text(c, "status") == wanted)
}

/// A changed status.
pub(crate) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    let (new, old) = (State::of(new), State::of(old));
    let path = Path::root("status");
    for field in COUNTS {
        non_negative(errors, &path, new.status, field);
    }
    uncounted_pods(errors, &path, new.status);
    contradictions(errors, &path.child("conditions"), &new, &old);
    times(errors, &path, &new, &old);
    finished_counts(errors, &path, &new, &old);
    index_lists(errors, &path, &new, &old);
    no_way_back(errors, &path, &new, &old);
}

fn uncounted_pods(errors: &mut Errors, path: &Path<'_>, status: &Value) {
    let path = path.child("uncountedTerminatedPods");
    let uncounted = at(status, "uncountedTerminatedPods");
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"] {
        let list_path = path.child(list);
        for (i, uid) in texts(uncounted, list).enumerate() {
            if uid.is_empty() {
                errors.invalid(&list_path.index(i), &uid.into(), "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&list_path.index(i), &uid.into());
            }
        }
    }
}

// Conditions that exclude or require each other: (both hold, looked at now, what to say).
fn contradictions(errors: &mut Errors, path: &Path<'_>, new: &State<'_>, old: &State<'_>) {
    let complete_changed = new.complete != old.complete;
    let failed_changed = new.failed != old.failed;
    let target_changed = new.failure_target != old.failure_target;
    let criteria_changed = new.success_criteria != old.success_criteria;
    let indexes_changed = at(new.status, "failedIndexes") != at(old.status, "failedIndexes");
    let rules = [
        (
            new.complete && new.failed && (complete_changed || failed_changed),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            new.complete && new.failure_target && (complete_changed || target_changed),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            new.failed && !new.failure_target && (failed_changed || indexes_changed),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            new.complete && !new.success_criteria && (complete_changed || criteria_changed),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            new.success_criteria && new.failed,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            new.success_criteria && new.failure_target,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has(new.spec, "successPolicy") && new.complete && !new.success_criteria,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ];
    for (_, detail) in rules.iter().filter(|(broken, _)| *broken) {
        invalid_unshown(errors, path, detail);
    }
}

// Times print alike, so comparing texts compares moments.
fn times(errors: &mut Errors, path: &Path<'_>, new: &State<'_>, old: &State<'_>) {
    let (start, end) = (
        at(new.status, "startTime"),
        at(new.status, "completionTime"),
    );
    let (old_start, old_end) = (
        at(old.status, "startTime"),
        at(old.status, "completionTime"),
    );
    let (start_path, end_path) = (path.child("startTime"), path.child("completionTime"));
    let complete_or_end_changed = new.complete != old.complete || end != old_end;
    if complete_or_end_changed && !end.is_null() && !new.complete {
        let detail = "cannot set completionTime when there is no Complete=True condition";
        errors.invalid(&end_path, end, detail);
    }
    if complete_or_end_changed && end.is_null() && new.complete {
        errors.required(&end_path, "completionTime is required for Complete jobs");
    }
    let both_set = !start.is_null() && !end.is_null();
    if both_set && end.as_str() < start.as_str() && (start != old_start || end != old_end) {
        errors.invalid(&end_path, end, "must be equal to or after `startTime`");
    }
    if !end.is_null() && !old_end.is_null() && end != old_end {
        errors.invalid(&end_path, end, IMMUTABLE);
    }
    let is_resuming =
        condition(old.status, "Suspended", "True") && condition(new.status, "Suspended", "False");
    let moved = !old_start.is_null() && start != old_start;
    if moved && !is_resuming && !flag(new.spec, "suspend") {
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&start_path, start, detail);
    }
    let never_ran = flag(new.spec, "suspend") && some_int(new.spec, "completions") == Some(0);
    let changed = new.is_finished() != old.is_finished() || start != old_start;
    if changed && !never_ran && start.is_null() && new.is_finished() {
        errors.required(&start_path, "startTime is required for finished job");
    }
}

fn finished_counts(errors: &mut Errors, path: &Path<'_>, new: &State<'_>, old: &State<'_>) {
    let (status, before) = (new.status, old.status);
    let changed = |field: &str| at(status, field) != at(before, field);
    let finished_changed = new.is_finished() != old.is_finished();
    for field in ["active", "terminating"] {
        let looks = finished_changed || changed(field);
        if looks && new.is_finished() && int(status, field) > 0 {
            let detail = format!("{field}>0 is invalid for finished job");
            errors.invalid(&path.child(field), at(status, field), &detail);
        }
    }
    let field = "uncountedTerminatedPods";
    let uncounted = at(status, field);
    let has_some = ["failed", "succeeded"]
        .iter()
        .any(|list| !items(uncounted, list).is_empty());
    if (finished_changed || changed(field)) && new.is_finished() && has_some {
        errors.invalid(
            &path.child(field),
            uncounted,
            "must be empty for finished job",
        );
    }
    let ready = some_int(status, "ready").unwrap_or(i64::MIN);
    if (changed("ready") || changed("active")) && ready > int(status, "active") {
        let detail = "cannot set more ready pods than active";
        errors.invalid(&path.child("ready"), &ready.into(), detail);
    }
}

fn index_lists(errors: &mut Errors, path: &Path<'_>, new: &State<'_>, old: &State<'_>) {
    let (completed, failed) = (
        text(new.status, "completedIndexes"),
        text(new.status, "failedIndexes"),
    );
    let completed_changed = completed != text(old.status, "completedIndexes");
    let failed_changed = at(new.status, "failedIndexes") != at(old.status, "failedIndexes");
    let (completed_path, failed_path) =
        (path.child("completedIndexes"), path.child("failedIndexes"));
    let completions = some_int(new.spec, "completions");
    let has_backoff = has(new.spec, "backoffLimitPerIndex");
    if let Some(completions) = completions {
        let complain = |errors: &mut Errors, path: &Path<'_>, name: &str, list: &str| {
            if let Err(reason) = indexes(list, completions) {
                let detail = format!("error parsing {name}: {reason}");
                errors.invalid(path, &list.into(), &detail);
            }
        };
        if completed_changed {
            complain(errors, &completed_path, "completedIndexes", completed);
        }
        if failed_changed && has_backoff {
            complain(errors, &failed_path, "failedIndexes", failed);
        }
        if (failed_changed || completed_changed)
            && let Some(index) = overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.invalid(&failed_path, &failed.into(), &detail);
        }
    }
    if completed_changed && !completed.is_empty() && text(new.spec, "completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&completed_path, &completed.into(), detail);
    }
    if failed_changed && has(new.status, "failedIndexes") && !has_backoff {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&failed_path, &failed.into(), detail);
    }
}

// The first index both lists have; parts that do not parse are complained about elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let parts = |list: &str| -> Vec<(i64, i64)> {
        list.split(',')
            .filter_map(|part| interval(part, completions).ok())
            .collect()
    };
    let (completed, failed) = (parts(completed), parts(failed));
    let (mut c, mut f) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((c_first, c_last)), Some((f_first, f_last))) = (c.peek(), f.peek()) {
        if c_first <= f_last && f_first <= c_last {
            return Some(*c_first.max(f_first));
        }
        if c_first <= f_first {
            c.next()
        } else {
            f.next()
        };
    }
    None
}

fn no_way_back(errors: &mut Errors, path: &Path<'_>, new: &State<'_>, old: &State<'_>) {
    let conditions = path.child("conditions");
    for ty in ["Failed", "Complete", "FailureTarget"] {
        if condition(old.status, ty, "True") && !condition(new.status, ty, "True") {
            let detail = format!("cannot disable the terminal {ty}=True condition");
            invalid_unshown(errors, &conditions, &detail);
        }
    }
    let (completions, parallelism) = (at(new.spec, "completions"), at(new.spec, "parallelism"));
    // Indexed jobs whose pods all work at once can be scaled down.
    let can_shrink = text(new.spec, "completionMode") == "Indexed" && completions == parallelism;
    for field in ["failed", "succeeded"] {
        let shrinks = int(new.status, field) < int(old.status, field);
        if shrinks && !(field == "succeeded" && can_shrink) {
            let count = Value::from(int(new.status, field));
            let detail = format!("cannot decrease the {field} counter");
            errors.invalid(&path.child(field), &count, &detail);
        }
    }
    if old.success_criteria && !new.success_criteria {
        invalid_unshown(
            errors,
            &conditions,
            "cannot disable the SuccessCriteriaMet=True condition",
        );
    }
    if old.complete && !old.success_criteria && new.success_criteria {
        let detail =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        invalid_unshown(errors, &conditions, detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;
    use crate::validation::workloads::job::tests::job;

    fn change(spec: Value, old: Value, new: Value) -> String {
        let of = |status: Value| job(json!({"spec": spec, "status": status}));
        told(|e| update(e, &of(new), &of(old))).join("|")
    }

    fn conditions(types: &[&str]) -> Value {
        types
            .iter()
            .map(|ty| json!({"type": ty, "status": "True"}))
            .collect()
    }

    #[test]
    fn the_life_of_a_job() {
        let start = "2026-01-01T00:00:00Z";
        let running = json!({"startTime": start, "active": 1, "ready": 1});
        let done = json!({
            "startTime": start, "completionTime": "2026-01-01T00:01:00Z", "succeeded": 1,
            "conditions": conditions(&["SuccessCriteriaMet", "Complete"])
        });
        let broken = json!({"startTime": start, "failed": 1, "conditions": conditions(&["FailureTarget", "Failed"])});
        assert_eq!(change(json!({}), json!({}), running.clone()), "");
        assert_eq!(change(json!({}), running.clone(), done.clone()), "");
        assert_eq!(change(json!({}), running.clone(), broken), "");
        let back = change(json!({}), done, running);
        assert!(
            back.contains("cannot disable the terminal Complete=True condition"),
            "{back}"
        );
        assert!(
            back.contains(
                "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"
            )
        );
    }

    #[test]
    fn contradictions_are_refused() {
        let start = "2026-01-01T00:00:00Z";
        let cases = [
            (
                json!({"active": -1}),
                "status.active: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"active": 1, "ready": 2}),
                "status.ready: Invalid value: 2: cannot set more ready pods than active",
            ),
            (
                json!({"startTime": start, "conditions": conditions(&["Failed"])}),
                "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
            ),
            (
                json!({"startTime": start, "conditions": conditions(&["SuccessCriteriaMet", "Complete"])}),
                "status.completionTime: Required value: completionTime is required for Complete jobs",
            ),
            (
                json!({"conditions": conditions(&["FailureTarget", "Failed"])}),
                "status.startTime: Required value: startTime is required for finished job",
            ),
            (
                json!({"startTime": start, "active": 1, "conditions": conditions(&["FailureTarget", "Failed"])}),
                "status.active: Invalid value: 1: active>0 is invalid for finished job",
            ),
            (
                json!({"completedIndexes": "0"}),
                "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
            ),
            (
                json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}}),
                "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(
                change(json!({}), json!({}), status.clone()),
                expected,
                "{status}"
            );
        }
        let indexed =
            json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1});
        assert_eq!(
            change(
                indexed,
                json!({}),
                json!({"completedIndexes": "0-2", "failedIndexes": "2"})
            ),
            "status.failedIndexes: Invalid value: \"2\": failedIndexes and completedIndexes overlap at index: 2"
        );
    }
}
