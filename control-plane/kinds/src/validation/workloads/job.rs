//! Jobs.

use kube_kit::selector::LabelSelector;
use serde_json::{Value, json};

use super::{job_policies, job_status, workload};
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::pods::pod;
use crate::validation::pods::pod_update::restore;
use crate::validation::reading::{at, flag, has, int, items, same, some_int, text};
use crate::validation::rules::{immutable, immutable_fields, label_selector, non_negative};
use crate::validation::values::optional_choice;

const PARALLELISM_MAX: i64 = 100_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MANY_COMPLETIONS_LIMIT: i64 = 10_000;
const MANAGED_BY_MAX: usize = 63;
const NEEDS_INDEXES: &str = "requires indexed completion mode";
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];
const FIXED: [&str; 5] = [
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
];

/// A new Job.
pub(crate) fn create(job: &Value, errors: &mut Errors) {
    whole(errors, job, true);
}

/// A changed Job.
pub(crate) fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return job_status::update(errors, new, old);
    }
    let labels = at(at(at(at(old, "spec"), "template"), "metadata"), "labels");
    let had_labels = [UID_LABELS[1], NAME_LABELS[1]]
        .iter()
        .all(|name| labels.get(name).is_some());
    whole(errors, new, had_labels);
    let path = Path::root("spec");
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    completions_change(errors, &path.child("completions"), spec, before);
    immutable_fields(errors, Some(&path), spec, before, &["selector"]);
    template_change(errors, &path.child("template"), new, old);
    immutable_fields(errors, Some(&path), spec, before, &FIXED);
}

fn whole(errors: &mut Errors, job: &Value, needs_prefixed_labels: bool) {
    let (path, spec) = (Path::root("spec"), at(job, "spec"));
    generated_selector(errors, job, needs_prefixed_labels);
    spec_without_selector(errors, &path, spec);
    let selector = at(spec, "selector");
    if selector.is_null() {
        errors.required(&path.child("selector"), "");
    }
    label_selector(errors, &path.child("selector"), selector);
    if let Ok(parsed) = LabelSelector::from_object(selector) {
        workload::matching_labels(errors, &path, spec, &parsed);
    }
    indexed_host_names(errors, job);
}

// The selector and labels that were made for this job and nothing else.
fn generated_selector(errors: &mut Errors, job: &Value, needs_prefixed_labels: bool) {
    let spec = at(job, "spec");
    if flag(spec, "manualSelector") || !has(spec, "selector") {
        return;
    }
    let metadata = at(job, "metadata");
    let (name, uid) = (text(metadata, "name"), text(metadata, "uid"));
    if uid.is_empty() {
        errors.required(&Path::root("metadata").child("uid"), "");
    }
    let mut expected = serde_json::Map::new();
    let prefixes = if needs_prefixed_labels { 2 } else { 1 };
    for i in 0..prefixes {
        expected.insert(UID_LABELS[i].to_owned(), uid.into());
        expected.insert(NAME_LABELS[i].to_owned(), name.into());
        has_label(errors, spec, UID_LABELS[i], uid);
        has_label(errors, spec, NAME_LABELS[i], name);
    }
    let selector = at(spec, "selector");
    if let Ok(parsed) = LabelSelector::from_object(selector)
        && !parsed.matches_labels(&Value::Object(expected))
    {
        let path = Path::root("spec");
        errors.invalid(
            &path.child("selector"),
            selector,
            "`selector` not auto-generated",
        );
    }
}

fn has_label(errors: &mut Errors, spec: &Value, key: &str, expected: &str) {
    let labels = at(at(at(spec, "template"), "metadata"), "labels");
    let root = Path::root("spec");
    let template = root.child("template");
    let metadata = template.child("metadata");
    let path = metadata.child("labels");
    match labels.get(key).and_then(Value::as_str) {
        None => errors.required(&path.key(key), &format!("must be '{expected}'")),
        Some(value) if value != expected => {
            errors.invalid(&path.key(key), labels, &format!("must be '{expected}'"));
        }
        Some(_) => {}
    }
}

// The pods of an indexed job get their index appended to their host name.
fn indexed_host_names(errors: &mut Errors, job: &Value) {
    let spec = at(job, "spec");
    let completions = int(spec, "completions");
    if text(spec, "completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = text(at(job, "metadata"), "name");
    let longest = format!("{name}-{}", completions - 1);
    if !names::dns1123_label(&longest).is_empty() {
        let path = Path::root("metadata");
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(&path.child("name"), &name.into(), &detail);
    }
}

/// The spec of a job or of the jobs of a cron job, apart from the selector.
pub(crate) fn spec_without_selector(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    for field in COUNTS {
        non_negative(errors, path, spec, field);
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        let detail = "when maxFailedIndexes is specified";
        errors.required(&path.child("backoffLimitPerIndex"), detail);
    }
    managed_by(errors, &path.child("managedBy"), spec);
    optional_choice(
        errors,
        path,
        spec,
        "completionMode",
        &["NonIndexed", "Indexed"],
    );
    match text(spec, "completionMode") {
        "Indexed" => indexed(errors, path, spec),
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if has(spec, field) {
                    errors.invalid(&path.child(field), at(spec, field), NEEDS_INDEXES);
                }
            }
        }
        _ => {}
    }
    if has(spec, "podFailurePolicy") {
        job_policies::failure(errors, &path.child("podFailurePolicy"), spec);
    }
    if has(spec, "successPolicy") {
        let path = path.child("successPolicy");
        match text(spec, "completionMode") {
            "Indexed" => job_policies::success(errors, &path, spec),
            _ => errors.invalid(&path, at(spec, "successPolicy"), NEEDS_INDEXES),
        }
    }
    job_policies::replacement(errors, &path.child("podReplacementPolicy"), spec);
    let template_path = path.child("template");
    pod::template(errors, &template_path, at(spec, "template"));
    restart_policy(
        errors,
        &template_path.child("spec").child("restartPolicy"),
        spec,
    );
}

fn managed_by(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    if !has(spec, "managedBy") {
        return;
    }
    let manager = text(spec, "managedBy");
    if manager.is_empty() {
        errors.required(path, "");
    } else {
        for (part, complaint) in names::domain_prefixed_path(manager) {
            errors.invalid(path, &part.into(), &complaint);
        }
    }
    if manager.len() > MANAGED_BY_MAX {
        errors.too_long(path, MANAGED_BY_MAX);
    }
}

fn indexed(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let (completions, parallelism) = (some_int(spec, "completions"), int(spec, "parallelism"));
    let (failed, failed_path) = (
        some_int(spec, "maxFailedIndexes"),
        path.child("maxFailedIndexes"),
    );
    let parallelism_path = path.child("parallelism");
    if completions.is_none() {
        errors.required(
            &path.child("completions"),
            "when completion mode is Indexed",
        );
    }
    if parallelism > PARALLELISM_MAX {
        let detail = format!(
            "must be less than or equal to {PARALLELISM_MAX} when completion mode is Indexed"
        );
        errors.invalid(&parallelism_path, &parallelism.into(), &detail);
    }
    let completions = completions.unwrap_or(i64::MAX);
    if let Some(failed) = failed.filter(|failed| *failed > completions) {
        errors.invalid(
            &failed_path,
            &failed.into(),
            "must be less than or equal to completions",
        );
    }
    if let Some(failed) = failed.filter(|failed| *failed > FAILED_INDEXES_MAX) {
        let detail = format!("must be less than or equal to {FAILED_INDEXES_MAX}");
        errors.invalid(&failed_path, &failed.into(), &detail);
    }
    let is_large = has(spec, "completions") && completions > MANY_COMPLETIONS;
    if !is_large || !has(spec, "backoffLimitPerIndex") {
        return;
    }
    let detail = format!(
        "must be less than or equal to {MANY_COMPLETIONS_LIMIT} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    );
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.required(&failed_path, &detail);
    }
    if parallelism > MANY_COMPLETIONS_LIMIT {
        errors.invalid(&parallelism_path, &parallelism.into(), &detail);
    }
    if let Some(failed) = failed.filter(|failed| *failed > MANY_COMPLETIONS_LIMIT) {
        errors.invalid(&failed_path, &failed.into(), &detail);
    }
}

// `Always` is what the template gets when it says nothing.
fn restart_policy(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    match text(at(at(spec, "template"), "spec"), "restartPolicy") {
        "" | "Always" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(path, &"OnFailure".into(), detail);
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(path, &other.into(), &["OnFailure", "Never"]),
    }
}

// An indexed job may grow or shrink, together with the pods that work on it.
fn completions_change(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    let (completions, before) = (at(new, "completions"), at(old, "completions"));
    if text(new, "completionMode") != "Indexed" {
        return immutable(errors, path, completions, before);
    }
    let differs = completions != before && !completions.is_null();
    if differs && completions != at(new, "parallelism") {
        errors.invalid(
            path,
            completions,
            "can only be modified in tandem with spec.parallelism",
        );
    }
}

// While a job is suspended and no pod of it runs, where its pods may run and what they ask for can
// still change.
fn template_change(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    let after = at(at(new, "spec"), "template");
    let before = at(at(old, "spec"), "template");
    let is_suspended = flag(at(old, "spec"), "suspend");
    if !is_suspended || !is_at_rest(old) {
        return immutable(errors, path, after, before);
    }
    let (after, before) = (at(after, "spec"), at(before, "spec"));
    let mut expected = before.clone();
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        restore(&mut expected, after, field);
    }
    node_affinity(&mut expected, after);
    for list in ["containers", "initContainers"] {
        let containers = items(after, list);
        if containers.len() != items(before, list).len() {
            continue;
        }
        for (i, container) in containers.iter().enumerate() {
            if text(&expected[list][i], "name") == text(container, "name") {
                restore(&mut expected[list][i], container, "resources");
            }
        }
    }
    if !same(after, &expected) {
        errors.invalid(
            &path.child("spec"),
            after,
            crate::validation::rules::IMMUTABLE,
        );
    }
}

fn is_at_rest(job: &Value) -> bool {
    let status = at(job, "status");
    let is_suspended = items(status, "conditions")
        .iter()
        .any(|c| text(c, "type") == "Suspended" && text(c, "status") == "True");
    (!has(status, "startTime") || is_suspended) && int(status, "active") == 0
}

// Takes over the new node affinity; an affinity that has nothing else comes and goes with it.
fn node_affinity(expected: &mut Value, after: &Value) {
    let wanted = at(at(after, "affinity"), "nodeAffinity").clone();
    if !has(expected, "affinity") {
        if has(after, "affinity") {
            expected["affinity"] = json!({});
        } else {
            return;
        }
    }
    if let Some(affinity) = expected.get_mut("affinity").and_then(Value::as_object_mut) {
        match wanted.is_null() {
            true => affinity.remove("nodeAffinity"),
            false => affinity.insert("nodeAffinity".to_owned(), wanted),
        };
        if affinity.is_empty() && !has(after, "affinity") {
            restore(expected, after, "affinity");
        }
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
pub(crate) mod tests;
