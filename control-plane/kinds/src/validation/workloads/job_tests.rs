use super::*;
use crate::validation::cases::{told, with};

/// A job as it is validated: defaults, selector and labels filled in.
pub(in super::super) fn job(patch: Value) -> Value {
    let base = json!({
        "metadata": {"name": "j", "namespace": "default", "uid": "u"},
        "spec": {
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {
                "metadata": {"labels": {
                    "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u",
                    "job-name": "j", "batch.kubernetes.io/job-name": "j"
                }},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "app", "image": "x", "resources": {}}]
                }
            }
        },
        "status": {}
    });
    let mut object = with(&base, &patch);
    crate::defaults::apply(
        objects::schema::lookup("batch.v1.Job").expect("exists"),
        &mut object,
    );
    object
}

#[test]
fn a_new_job_is_checked_field_by_field() {
    let check = |patch: Value| told(|e| create(&job(json!({ "spec": patch })), e)).join("|");
    let cases = [
        (json!({}), ""),
        (json!({"completionMode": "Indexed", "completions": 3}), ""),
        (json!({"managedBy": "example.com/x"}), ""),
        (
            json!({"parallelism": -1}),
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"completionMode": "x"}),
            "spec.completionMode: Unsupported value: \"x\": supported values: \"NonIndexed\", \"Indexed\"",
        ),
        (
            json!({"completionMode": "Indexed", "parallelism": 2}),
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            json!({"backoffLimitPerIndex": 1}),
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
        ),
        (
            json!({"completionMode": "Indexed", "completions": 3, "maxFailedIndexes": 4, "backoffLimitPerIndex": 1}),
            "spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions",
        ),
        (
            json!({"template": {"spec": {"restartPolicy": "Always"}}}),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            json!({"selector": null}),
            "spec.selector: Required value|spec.template.metadata.labels: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",\"batch.kubernetes.io/job-name\":\"j\",\"controller-uid\":\"u\",\"job-name\":\"j\"}: `selector` does not match template `labels`",
        ),
        (
            json!({"successPolicy": {"rules": [{"succeededCount": 1}]}}),
            "spec.successPolicy: Invalid value: {\"rules\":[{\"succeededCount\":1}]}: requires indexed completion mode",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(check(patch.clone()), expected, "{patch}");
    }
    assert!(
        check(json!({"managedBy": "x"}))
            .starts_with("spec.managedBy: Invalid value: \"x\": must be a domain-prefixed path")
    );
    let label = check(json!({"template": {"metadata": {"labels": {"job-name": "other"}}}}));
    assert!(
        label.starts_with("spec.template.metadata.labels[job-name]: Invalid value"),
        "{label}"
    );
    let manual = json!({
        "manualSelector": true, "selector": {"matchLabels": {"job-name": "j", "batch.kubernetes.io/controller-uid": null}}
    });
    assert_eq!(check(manual), "");
}

#[test]
fn names_of_indexed_jobs_leave_room() {
    let named = |length: usize| {
        let name = "a".repeat(length);
        let labels = json!({"job-name": name, "batch.kubernetes.io/job-name": name});
        let spec = json!({"completionMode": "Indexed", "completions": 10, "template": {"metadata": {"labels": labels}}});
        told(|e| create(&job(json!({"metadata": {"name": name}, "spec": spec})), e)).join("|")
    };
    assert_eq!(named(61), "");
    assert!(named(62).contains("will not able to create pod with invalid DNS label"));
}

#[test]
fn a_job_changes_only_where_it_may() {
    let change = |old: Value, new: Value| told(|e| update(&job(new), &job(old), "", e)).join("|");
    let image = |image: &str| json!({"template": {"spec": {"containers": [{"name": "app", "image": image, "resources": {}}]}}});
    let of = |spec: Value| json!({ "spec": spec });
    assert_eq!(
        change(
            of(json!({})),
            of(json!({"parallelism": 5, "completions": 1, "suspend": true}))
        ),
        ""
    );
    assert!(change(of(image("x")), of(image("y"))).starts_with("spec.template: Invalid value: {"));
    assert_eq!(
        change(
            of(json!({})),
            of(json!({"completions": 2, "parallelism": 1}))
        ),
        "spec.completions: Invalid value: 2: field is immutable"
    );
    let indexed = |completions: i64, parallelism: i64| {
        of(
            json!({"completionMode": "Indexed", "completions": completions, "parallelism": parallelism}),
        )
    };
    assert_eq!(change(indexed(2, 2), indexed(3, 3)), "");
    assert_eq!(
        change(indexed(2, 2), indexed(3, 2)),
        "spec.completions: Invalid value: 3: can only be modified in tandem with spec.parallelism"
    );
    assert_eq!(
        change(
            of(json!({"managedBy": "a.b/c"})),
            of(json!({"managedBy": "a.b/d"}))
        ),
        "spec.managedBy: Invalid value: \"a.b/d\": field is immutable"
    );
}

#[test]
fn suspended_jobs_may_move() {
    let directives = json!({"template": {
        "metadata": {"labels": {"x": "y"}},
        "spec": {
            "nodeSelector": {"a": "b"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }}},
            "containers": [{"name": "app", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
        }
    }});
    let change = |status: Value, suspended: bool, spec: &Value| {
        let old = job(json!({"spec": {"suspend": suspended}, "status": status}));
        let new = with(&old, &json!({ "spec": spec }));
        let mut new = new;
        crate::defaults::apply(
            objects::schema::lookup("batch.v1.Job").expect("exists"),
            &mut new,
        );
        told(|e| update(&new, &old, "", e)).join("|")
    };
    assert_eq!(change(json!({}), true, &directives), "");
    let started = json!({"startTime": "2026-01-01T00:00:00Z"});
    assert!(change(started, true, &directives).starts_with("spec.template: Invalid value"));
    assert!(change(json!({}), false, &directives).starts_with("spec.template: Invalid value"));
    let other = json!({"template": {"spec": {"hostname": "h"}}});
    assert!(change(json!({}), true, &other).starts_with("spec.template.spec: Invalid value"));
}
