//! CronJobs.

use serde_json::Value;

use super::{cron_schedule, job};
use crate::field::{Errors, Path};
use crate::validation::reading::{at, flag, has, text};
use crate::validation::rules::non_negative;
use crate::validation::values::choice;

// A job is called after its cron job and eleven more characters.
const NAME_MAX: usize = 52;
const ZONE_PART_MAX: usize = 14;

/// A new CronJob.
pub(crate) fn create(object: &Value, errors: &mut Errors) {
    spec(errors, at(object, "spec"), &Value::Null);
    let name = text(at(object, "metadata"), "name");
    if name.len() > NAME_MAX {
        let path = Path::root("metadata");
        let detail = format!("must be no more than {NAME_MAX} characters");
        errors.invalid(&path.child("name"), &name.into(), &detail);
    }
}

/// A changed CronJob.
pub(crate) fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource != "status" {
        spec(errors, at(new, "spec"), at(old, "spec"));
    }
}

fn spec(errors: &mut Errors, spec: &Value, old: &Value) {
    let path = Path::root("spec");
    schedule(errors, &path.child("schedule"), spec, old);
    non_negative(errors, &path, spec, "startingDeadlineSeconds");
    let is_new_zone = old.is_null() || at(old, "timeZone") != at(spec, "timeZone");
    if has(spec, "timeZone") && is_new_zone {
        time_zone(errors, &path.child("timeZone"), text(spec, "timeZone"));
    }
    let policies = ["Allow", "Forbid", "Replace"];
    let policy = text(spec, "concurrencyPolicy");
    choice(errors, &path.child("concurrencyPolicy"), policy, &policies);
    job_template(errors, &path.child("jobTemplate"), at(spec, "jobTemplate"));
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        non_negative(errors, &path, spec, field);
    }
}

fn schedule(errors: &mut Errors, path: &Path<'_>, spec: &Value, old: &Value) {
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        return errors.required(path, "");
    }
    if let Err(complaint) = cron_schedule::check(schedule) {
        errors.invalid(path, &schedule.into(), &complaint);
    }
    let had_zone = text(old, "schedule").contains("TZ");
    let complaint = match schedule.contains("TZ") {
        false => return,
        true if !had_zone => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        true if has(spec, "timeZone") => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        true => return,
    };
    errors.invalid(path, &schedule.into(), complaint);
}

// Names as the time zone database allows them; whether one exists is asked only where the program
// carries the database.
fn time_zone(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.is_empty() {
        return errors.invalid(
            path,
            &name.into(),
            "timeZone must be nil or non-empty string",
        );
    }
    let unknown = format!("unknown time zone {name}");
    if !name.split('/').all(is_zone_part) {
        return errors.invalid(path, &name.into(), &unknown);
    }
    if name.eq_ignore_ascii_case("Local") {
        let detail =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        return errors.invalid(path, &name.into(), detail);
    }
    let database = jiff::tz::db();
    if !database.is_definitively_empty() && database.get(name).is_err() {
        errors.invalid(path, &name.into(), &unknown);
    }
}

fn is_zone_part(part: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+');
    (1..=ZONE_PART_MAX).contains(&part.len())
        && !matches!(part, "." | "..")
        && !part.starts_with('-')
        && part.bytes().all(allowed)
}

fn job_template(errors: &mut Errors, path: &Path<'_>, template: &Value) {
    let spec = at(template, "spec");
    let path = path.child("spec");
    job::spec_without_selector(errors, &path, spec);
    if has(spec, "selector") {
        let detail = "`selector` will be auto-generated";
        errors.invalid(&path.child("selector"), at(spec, "selector"), detail);
    }
    if flag(spec, "manualSelector") {
        let allowed = ["nil", "false"];
        errors.not_supported(&path.child("manualSelector"), &true.into(), &allowed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{told, with};

    fn cron_job(patch: Value) -> Value {
        let base = json!({
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {
                "schedule": "*/5 * * * *",
                "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [{"name": "app", "image": "x", "resources": {}}]
                }}}}
            }
        });
        let mut object = with(&base, &patch);
        crate::defaults::apply(
            objects::schema::lookup("batch.v1.CronJob").expect("exists"),
            &mut object,
        );
        object
    }

    #[test]
    fn a_new_cron_job_is_checked_field_by_field() {
        let check = |patch: Value| told(|e| create(&cron_job(patch), e)).join("|");
        let cases = [
            (json!({}), ""),
            (json!({"spec": {"timeZone": "UTC"}}), ""),
            (
                json!({"spec": {"schedule": ""}}),
                "spec.schedule: Required value",
            ),
            (
                json!({"spec": {"schedule": "TZ=UTC * * * * *"}}),
                "spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            ),
            (
                json!({"spec": {"schedule": "x"}}),
                "spec.schedule: Invalid value: \"x\": expected exactly 5 fields, found 1: [x]",
            ),
            (
                json!({"spec": {"timeZone": "../etc"}}),
                "spec.timeZone: Invalid value: \"../etc\": unknown time zone ../etc",
            ),
            (
                json!({"spec": {"timeZone": "local"}}),
                "spec.timeZone: Invalid value: \"local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ),
            (
                json!({"spec": {"concurrencyPolicy": "x"}}),
                "spec.concurrencyPolicy: Unsupported value: \"x\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ),
            (
                json!({"spec": {"startingDeadlineSeconds": -1}}),
                "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}}}),
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (
                json!({"spec": {"jobTemplate": {"spec": {"selector": {}}}}}),
                "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
            ),
            (
                json!({"metadata": {"name": "a".repeat(53)}}),
                "metadata.name: Invalid value: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": must be no more than 52 characters",
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(check(patch.clone()), expected, "{patch}");
        }
    }

    #[test]
    fn old_zones_in_schedules_are_kept() {
        let old = cron_job(json!({"spec": {"schedule": "TZ=UTC * * * * *"}}));
        assert!(told(|e| update(&old, &old, "", e)).is_empty());
        let both = cron_job(json!({"spec": {"schedule": "TZ=UTC * * * * *", "timeZone": "UTC"}}));
        let found = told(|e| update(&both, &old, "", e)).join("|");
        assert!(
            found.contains("cannot use both timeZone field and TZ or CRON_TZ in schedule"),
            "{found}"
        );
    }
}
