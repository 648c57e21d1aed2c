//! StatefulSets.

use serde_json::{Value, json};

use super::{workload, workload_status};
use crate::field::{Errors, Path};
use crate::validation::pods::pod;
use crate::validation::pods::pod_update::restore;
use crate::validation::reading::{at, has, items, same, text};
use crate::validation::rules::{complain, non_negative};
use crate::validation::storage::volumes;
use crate::validation::values::{amount, at_most_all, found, int_or_percent};
use crate::validation::{internal, names};

const MAY_CHANGE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
const ONLY_THESE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

/// A new StatefulSet.
pub(crate) fn create(object: &Value, errors: &mut Errors) {
    let (path, spec) = (Path::root("spec"), at(object, "spec"));
    let claims = path.child("volumeClaimTemplates");
    self::spec(errors, &path, spec, true);
    for (i, claim) in items(spec, "volumeClaimTemplates").iter().enumerate() {
        let element = claims.index(i);
        volumes::claim_spec(at(claim, "spec"), &element.child("spec"), errors);
    }
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        complain(
            errors,
            &path.child("serviceName"),
            service,
            names::dns1123_label(service),
        );
    }
}

/// A changed StatefulSet. What cannot change any more is not checked again, nor is a template when
/// the old one was already refused by today's rules.
pub(crate) fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return workload_status::stateful_set(errors, new, old);
    }
    let path = Path::root("spec");
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    let was_fine = found(|errors| self::spec(errors, &path, old, true)).is_empty();
    self::spec(errors, &path, new, was_fine);
    let mut rest = new.clone();
    for field in MAY_CHANGE {
        restore(&mut rest, old, field);
    }
    if !same(&rest, old) {
        errors.forbidden(&path, ONLY_THESE);
    }
}

fn spec(errors: &mut Errors, path: &Path<'_>, spec: &Value, checks_template: bool) {
    pod_management(errors, &path.child("podManagementPolicy"), spec);
    strategy(
        errors,
        &path.child("updateStrategy"),
        at(spec, "updateStrategy"),
    );
    let retention = at(spec, "persistentVolumeClaimRetentionPolicy");
    if !retention.is_null() {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for when in ["whenDeleted", "whenScaled"] {
            let policy = text(retention, when);
            if !matches!(policy, "Retain" | "Delete") {
                let allowed = ["Retain", "Delete"];
                errors.not_supported(&path.child(when), &policy.into(), &allowed);
            }
        }
    }
    for field in ["replicas", "minReadySeconds"] {
        non_negative(errors, path, spec, field);
    }
    if has(spec, "ordinals") {
        non_negative(
            errors,
            &path.child("ordinals"),
            at(spec, "ordinals"),
            "start",
        );
    }
    let has_selector = workload::selector(errors, path, spec, "statefulset");
    if has_selector && checks_template {
        pod::template(errors, &path.child("template"), &effective_template(spec));
    }
    workload::endless(errors, path, spec, "StatefulSet");
}

fn pod_management(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => errors.required(path, ""),
        other => errors.invalid(path, &other.into(), "must be 'OrderedReady' or 'Parallel'"),
    }
}

fn strategy(errors: &mut Errors, path: &Path<'_>, strategy: &Value) {
    let rolling = at(strategy, "rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match text(strategy, "type") {
        "" => errors.required(path, ""),
        "OnDelete" if !rolling.is_null() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(&rolling_path, rolling, detail);
        }
        "OnDelete" => {}
        "RollingUpdate" => rollout(errors, &rolling_path, rolling),
        _ => {
            let shown = internal::STATEFUL_SET_UPDATE.shown(strategy);
            errors.invalid_text(path, &shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn rollout(errors: &mut Errors, path: &Path<'_>, rolling: &Value) {
    non_negative(errors, path, rolling, "partition");
    let unavailable = at(rolling, "maxUnavailable");
    if unavailable.is_null() {
        return;
    }
    let path = path.child("maxUnavailable");
    int_or_percent(errors, &path, unavailable);
    if amount(unavailable) == 0 {
        errors.invalid(&path, unavailable, "cannot be 0");
    }
    at_most_all(errors, &path, unavailable);
}

// The template as its pods will be: the controller sets host name and subdomain, and every claim
// template becomes a volume in place of one of the same name.
fn effective_template(spec: &Value) -> Value {
    let mut template = at(spec, "template").clone();
    let claims = items(spec, "volumeClaimTemplates");
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return template;
    };
    pod.remove("subdomain");
    pod.remove("hostname");
    if claims.is_empty() {
        return template;
    }
    let claim_names: Vec<&str> = claims
        .iter()
        .map(|claim| text(at(claim, "metadata"), "name"))
        .collect();
    let mut all: Vec<Value> = claim_names
        .iter()
        .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }))
        .collect();
    let own = pod.remove("volumes").unwrap_or_default();
    let own = own.as_array().into_iter().flatten();
    all.extend(
        own.filter(|volume| !claim_names.contains(&text(volume, "name")))
            .cloned(),
    );
    pod.insert("volumes".to_owned(), Value::Array(all));
    template
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::cases::{told, with};
    use crate::validation::workloads::workload::tests::complete;

    fn set() -> Value {
        complete(
            "apps.v1.StatefulSet",
            json!({
                "serviceName": "db",
                "volumeClaimTemplates": [{
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    "status": {}
                }],
                "template": {"spec": {"containers": [{
                    "name": "app", "image": "x", "resources": {},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}]
                }]}}
            }),
        )
    }

    #[test]
    fn a_new_stateful_set_is_checked_field_by_field() {
        let check = |patch: Value| {
            let object = with(&set(), &json!({ "spec": patch }));
            told(|e| create(&object, e)).join("|")
        };
        let cases = [
            (json!({}), ""),
            (
                json!({"template": {"spec": {"hostname": "NOT", "subdomain": "CHECKED"}}}),
                "",
            ),
            (
                json!({"podManagementPolicy": "x"}),
                "spec.podManagementPolicy: Invalid value: \"x\": must be 'OrderedReady' or 'Parallel'",
            ),
            (
                json!({"updateStrategy": {"type": "OnDelete"}}),
                "spec.updateStrategy.rollingUpdate: Invalid value: {\"partition\":0}: only allowed for updateStrategy 'RollingUpdate'",
            ),
            (
                json!({"updateStrategy": {"rollingUpdate": {"partition": -1}}}),
                "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}),
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
            ),
            (
                json!({"persistentVolumeClaimRetentionPolicy": {"whenScaled": "x"}}),
                "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: \"x\": supported values: \"Retain\", \"Delete\"",
            ),
            (
                json!({"ordinals": {"start": -1}}),
                "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"volumeClaimTemplates": null}),
                "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\"",
            ),
            (
                json!({"selector": {"matchLabels": {"app": null}}}),
                "spec.selector: Invalid value: {\"matchLabels\":{}}: empty selector is invalid for statefulset",
            ),
            (
                json!({"template": {"spec": {"restartPolicy": "Never"}}}),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(check(patch.clone()), expected, "{patch}");
        }
        assert!(check(json!({"serviceName": "A"})).starts_with("spec.serviceName: Invalid value"));
    }

    #[test]
    fn a_stateful_set_changes_only_where_it_may() {
        let change = |patch: Value| {
            let object = with(&set(), &json!({ "spec": patch }));
            told(|e| update(&object, &set(), "", e)).join("|")
        };
        assert_eq!(
            change(json!({"replicas": 3, "template": {"spec": {"priorityClassName": "p"}}})),
            ""
        );
        assert_eq!(
            change(json!({"serviceName": "x"})),
            format!("spec: Forbidden: {ONLY_THESE}")
        );
        assert_eq!(
            change(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]})),
            format!("spec: Forbidden: {ONLY_THESE}")
        );
    }
}
