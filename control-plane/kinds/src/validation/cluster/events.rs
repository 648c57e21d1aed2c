//! Events, old (`v1`) and new (`events.k8s.io/v1`).
//!
//! Both are stored alike; the new group has more rules and other names for three fields.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, deep, has, int, same, text};
use crate::validation::rules::{complain, immutable};

const TEXT_MAX: usize = 128;
const NOTE_MAX: usize = 1024;

// What the two groups call the same things.
struct Spelling {
    about: &'static str,
    note: &'static str,
    reporter: &'static str,
}

const CORE: Spelling = Spelling {
    about: "involvedObject",
    note: "message",
    reporter: "reportingComponent",
};
const NEW: Spelling = Spelling {
    about: "regarding",
    note: "note",
    reporter: "reportingController",
};

/// A new `v1` Event.
pub fn core(object: &Value, errors: &mut Errors) {
    either(object, &CORE, errors);
}

/// A changed `v1` Event.
pub fn core_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    core(new, errors);
}

/// A new `events.k8s.io/v1` Event.
pub fn new_style(object: &Value, errors: &mut Errors) {
    either(object, &NEW, errors);
    series(object, errors);
    if !has(object, "eventTime") {
        errors.required(&Path::root("eventTime"), "");
    }
    let ty = text(object, "type");
    if !matches!(ty, "Normal" | "Warning") {
        let complaint = format!("has invalid value: {ty}");
        errors.invalid(&Path::root("type"), &"".into(), &complaint);
    }
    let source = at(object, "deprecatedSource");
    for (is_set, name) in [
        (has(object, "deprecatedFirstTimestamp"), "firstTimestamp"),
        (has(object, "deprecatedLastTimestamp"), "lastTimestamp"),
        (int(object, "deprecatedCount") != 0, "count"),
        (
            !text(source, "component").is_empty() || !text(source, "host").is_empty(),
            "source",
        ),
    ] {
        if is_set {
            errors.invalid(&Path::root(name), &"".into(), "needs to be unset");
        }
    }
}

/// A changed `events.k8s.io/v1` Event: only its series may.
pub fn new_style_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    either(new, &NEW, errors);
    if !same(at(new, "series"), at(old, "series")) {
        series(new, errors);
    }
    // Field of the new group, and the path upstream reports it at.
    for (field, path) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        immutable(errors, &Path::root(path), at(new, field), at(old, field));
    }
}

fn series(object: &Value, errors: &mut Errors) {
    if !has(object, "series") {
        return;
    }
    if int(at(object, "series"), "count") < 2 {
        errors.invalid(
            &Path::root("series.count"),
            &"".into(),
            "should be at least 2",
        );
    }
    if !has(at(object, "series"), "lastObservedTime") {
        errors.required(&Path::root("series.lastObservedTime"), "");
    }
}

fn either(object: &Value, spelling: &Spelling, errors: &mut Errors) {
    let namespace = text(at(object, "metadata"), "namespace");
    let about = text(at(object, spelling.about), "namespace");
    let is_modern = has(object, "eventTime");
    let fits = match (is_modern, about) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, about) => about == namespace,
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        let path = Path::root("involvedObject");
        let complaint = "does not match event.namespace";
        errors.invalid(&path.child("namespace"), &about.into(), complaint);
    }
    if is_modern {
        modern(object, spelling, errors);
    }
    complain(
        errors,
        &Path::root("namespace"),
        namespace,
        names::dns1123_subdomain(namespace),
    );
}

fn modern(object: &Value, spelling: &Spelling, errors: &mut Errors) {
    let (path, reporter) = (
        Path::root(spelling.reporter),
        text(object, spelling.reporter),
    );
    if reporter.is_empty() {
        errors.required(&path, "");
    }
    complain(errors, &path, reporter, names::qualified_name(reporter));
    for name in ["reportingInstance", "action", "reason"] {
        if text(object, name).is_empty() {
            errors.required(&Path::root(name), "");
        }
        at_most(text(object, name), name, TEXT_MAX, errors);
    }
    let note = deep(object, &[spelling.note]).as_str().unwrap_or_default();
    at_most(note, "message", NOTE_MAX, errors);
}

fn at_most(value: &str, name: &str, max: usize, errors: &mut Errors) {
    if value.len() > max {
        let complaint = format!("can have at most {max} characters");
        errors.invalid(&Path::root(name), &"".into(), &complaint);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    fn modern_event() -> Value {
        json!({"metadata": {"namespace": "a"}, "regarding": {"namespace": "a"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/c", "reportingInstance": "i", "action": "Act", "reason": "Why", "type": "Normal"})
    }

    #[test]
    fn old_events_live_beside_their_object() {
        let base = json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}});
        creates(
            core,
            &base,
            &[
                (
                    json!({"involvedObject": {"namespace": "b"}}),
                    "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace",
                ),
                (
                    json!({"involvedObject": {"namespace": null}}),
                    "involvedObject.namespace: Invalid value: \"\": does not match event.namespace",
                ),
                (
                    json!({"involvedObject": {"namespace": null}, "metadata": {"namespace": "default"}}),
                    "",
                ),
                (
                    json!({"eventTime": "2026-01-01T00:00:00.000000Z"}),
                    "reportingComponent: Required value",
                ),
            ],
        );
        updates(
            core_update,
            "",
            &base,
            &[(
                json!({"involvedObject": {"namespace": "b"}}),
                "involvedObject.namespace: Invalid",
            )],
        );
    }

    #[test]
    fn new_events_say_who_saw_what() {
        creates(
            new_style,
            &modern_event(),
            &[
                (json!({"eventTime": null}), "eventTime: Required value"),
                (
                    json!({"reportingController": null}),
                    "reportingController: Required value",
                ),
                (
                    json!({"reportingInstance": null}),
                    "reportingInstance: Required value",
                ),
                (json!({"action": null}), "action: Required value"),
                (
                    json!({"reason": "x".repeat(129)}),
                    "reason: Invalid value: \"\": can have at most 128 characters",
                ),
                (
                    json!({"note": "x".repeat(1025)}),
                    "message: Invalid value: \"\": can have at most 1024 characters",
                ),
                (
                    json!({"type": "Odd"}),
                    "type: Invalid value: \"\": has invalid value: Odd",
                ),
                (
                    json!({"deprecatedCount": 1}),
                    "count: Invalid value: \"\": needs to be unset",
                ),
                (
                    json!({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}),
                    "series.count: Invalid value: \"\": should be at least 2",
                ),
                (
                    json!({"series": {"count": 2}}),
                    "series.lastObservedTime: Required value",
                ),
                (
                    json!({"regarding": {"namespace": null}}),
                    "involvedObject.namespace: Invalid value",
                ),
            ],
        );
    }

    #[test]
    fn only_the_series_of_a_new_event_moves() {
        updates(
            new_style_update,
            "",
            &modern_event(),
            &[
                (
                    json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}}),
                    "",
                ),
                (
                    json!({"reason": "Other"}),
                    "reason: Invalid value: \"Other\": field is immutable",
                ),
                (
                    json!({"note": "Other"}),
                    "message: Invalid value: \"Other\": field is immutable",
                ),
            ],
        );
    }
}
