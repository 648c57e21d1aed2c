//! What a namespace uses, counted from its objects.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kinds::pod_resources::Amounts;
use kube_kit::quantity::Quantity;
use kube_kit::selector::Requirement;
use serde_json::{Value, json};

use super::measure::LEGACY_COUNTS;
use super::{GroupResource, Measure, add, amounts_in, amounts_to_value, scopes};

/// Resources that are measured by more than their number.
const MEASURED: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("resource.k8s.io", "resourceclaims"),
];

/// The resources whose objects a quota's names are about. A `count/` name leads to what it names,
/// whether or not that exists.
pub fn tracked_resources(quota: &Value) -> BTreeSet<GroupResource> {
    let hard = amounts_in(&quota["spec"]["hard"]);
    hard.keys().flat_map(|name| resources_of(name)).collect()
}

fn resources_of(name: &str) -> Vec<GroupResource> {
    let mut found: Vec<GroupResource> = MEASURED
        .iter()
        .map(|(group, resource)| GroupResource::new(group, resource))
        .filter(|resource| Measure::of(resource).is_some_and(|measure| measure.tracks(name)))
        .collect();
    if LEGACY_COUNTS.contains(&name) {
        found.push(GroupResource::new("", name));
    }
    found.extend(GroupResource::of_count_name(name).filter(|r| Measure::of(r).is_some()));
    found
}

/// The status a quota should have, given the namespace's objects by resource; `None` when it has it.
/// Names about resources that are not among `objects` keep the usage they had.
pub fn next_status(
    quota: &Value,
    objects: &BTreeMap<GroupResource, Vec<Value>>,
    now: Timestamp,
) -> Option<Value> {
    let hard = amounts_in(&quota["spec"]["hard"]);
    let (old_hard, old_used) = (
        amounts_in(&quota["status"]["hard"]),
        amounts_in(&quota["status"]["used"]),
    );
    let mut used = old_used.clone();
    used.extend(usage(&hard, &scopes(&quota["spec"]), objects, now));
    used.retain(|name, _| hard.contains_key(name));
    let settled = quota["status"]["hard"].is_object()
        && quota["status"]["used"].is_object()
        && hard == old_hard
        && used == old_used;
    (!settled).then(|| json!({ "hard": amounts_to_value(&hard), "used": amounts_to_value(&used) }))
}

/// Whether a new status shows less used than the old one somewhere.
pub fn gives_back(old: &Value, new: &Value) -> bool {
    let new = amounts_in(&new["used"]);
    let old = amounts_in(&old["used"]);
    old.iter()
        .any(|(name, before)| new.get(name).is_some_and(|now| now < before))
}

fn usage(
    hard: &Amounts,
    scopes: &[Requirement],
    objects: &BTreeMap<GroupResource, Vec<Value>>,
    now: Timestamp,
) -> Amounts {
    let mut used = Amounts::new();
    for (resource, objects) in objects {
        let Some(measure) = Measure::of(resource) else {
            continue;
        };
        let names = hard.keys().filter(|name| measure.tracks(name));
        for name in names {
            used.entry(name.clone()).or_insert(Quantity::ZERO);
        }
        for object in objects {
            if measure.in_scopes(scopes, object) {
                add(&mut used, &measure.usage(object, now));
            }
        }
    }
    used.retain(|name, _| hard.contains_key(name));
    used
}
