//! Nodes.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::pods::resources::quantity;
use crate::validation::reading::{at, deep, entries, int, items, repeated, text, texts};
use crate::validation::rules::{NEGATIVE, complain, unique};
use crate::validation::{internal, names};

const SPEC: Path<'static> = Path::root("spec");
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A new Node.
pub fn create(object: &Value, errors: &mut Errors) {
    taints(object, errors);
    amounts(object, errors);
    if int(deep(object, &["status", "nodeInfo", "swap"]), "capacity") < 0 {
        let metadata = Path::root("metadata");
        let swap = metadata.child("nodeSwapStatus");
        let capacity = at(deep(object, &["status", "nodeInfo", "swap"]), "capacity");
        errors.invalid(&swap.child("capacity"), capacity, NEGATIVE);
    }
    pod_cidrs(object, errors);
}

/// A changed Node. Upstream judges it as a new one first, and what is wrong either way is told twice; of a
/// status it asks the second half only.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource.is_empty() {
        create(new, errors);
    }
    amounts(new, errors);
    let status = Path::root("status");
    let addresses = items(at(new, "status"), "addresses");
    unique(
        errors,
        &status.child("addresses"),
        addresses,
        None,
        ToString::to_string,
    );
    fixed_once_set(new, old, errors);
    taints(new, errors);
}

fn fixed_once_set(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    let was = items(before, "podCIDRs");
    if !was.is_empty() && was != items(spec, "podCIDRs") {
        let complaint = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&SPEC.child("podCIDRs"), complaint);
    }
    let was = text(before, "providerID");
    if !was.is_empty() && was != text(spec, "providerID") {
        let complaint = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&SPEC.child("providerID"), complaint);
    }
    if text(before, "externalID") != text(spec, "externalID") {
        errors.forbidden(&SPEC.child("externalID"), "may not be updated");
    }
}

// Upstream reports taints below the metadata.
fn taints(object: &Value, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let path = metadata.child("taints");
    let list = items(at(object, "spec"), "taints");
    let same = repeated(
        list.iter()
            .map(|taint| (text(taint, "key"), text(taint, "effect"))),
    );
    for (i, taint) in list.iter().enumerate() {
        let path = path.index(i);
        let key = text(taint, "key");
        complain(errors, &path.child("key"), key, names::qualified_name(key));
        let value = text(taint, "value");
        let complaints = names::label_value(value);
        if !complaints.is_empty() {
            errors.invalid(&path.child("value"), &value.into(), &complaints.join(";"));
        }
        match text(taint, "effect") {
            "" => errors.required(&path.child("effect"), ""),
            effect if !EFFECTS.contains(&effect) => {
                errors.not_supported(&path.child("effect"), &effect.into(), EFFECTS);
            }
            _ => {}
        }
        if same[i] {
            let complaint = "taints must be unique by key and effect pair";
            errors.duplicate_text(&path, &internal::TAINT.shown(taint), complaint);
        }
    }
}

fn amounts(object: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    for list in ["capacity", "allocatable"] {
        let path = status.child(list);
        for (resource, amount) in entries(at(object, "status"), list) {
            quantity(errors, &path.child(resource), resource, amount);
        }
    }
}

fn pod_cidrs(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    let path = SPEC.child("podCIDRs");
    for (i, range) in texts(spec, "podCIDRs").enumerate() {
        complain(errors, &path.index(i), range, names::cidr(range));
    }
    let mut families = Vec::new();
    let ranges = texts(spec, "podCIDRs").enumerate();
    let mut wrong = ranges.filter_map(|(i, range)| match names::sloppy_cidr(range) {
        Some(net) => {
            families.push(net.addr().is_ipv4());
            None
        }
        None => Some((i, range)),
    });
    let wrong = wrong.next();
    let count = items(spec, "podCIDRs").len();
    // Upstream counts one that cannot be read as a fault of its own.
    if let Some((i, range)) = wrong.filter(|_| count > 1) {
        let cause = format!("invalid CIDR[{i}]: <nil> (invalid CIDR address: {range})");
        errors.internal(
            &path,
            &format!("invalid PodCIDRs. failed to check with dual stack with error:{cause}"),
        );
    }
    let is_pair = wrong.is_none() && matches!(families[..], [first, second] if first != second);
    if count > 1 && !is_pair {
        let complaint = "may specify no more than one CIDR for each IP family";
        errors.invalid(&path, at(spec, "podCIDRs"), complaint);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    fn node() -> Value {
        json!({"spec": {"podCIDRs": ["10.244.0.0/24"], "providerID": "a"}, "status": {"capacity": {"cpu": "4"}}})
    }

    #[test]
    fn nodes_have_good_taints_networks_and_amounts() {
        let taints = |taints: Value| json!({"spec": {"taints": taints}});
        creates(
            create,
            &node(),
            &[
                (
                    taints(
                        json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]),
                    ),
                    "",
                ),
                (
                    taints(
                        json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]),
                    ),
                    "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair",
                ),
                (
                    taints(json!([{"key": "a", "effect": "Never"}])),
                    "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                ),
                (
                    taints(json!([{"key": "a"}])),
                    "metadata.taints[0].effect: Required value",
                ),
                (
                    taints(json!([{"key": "a b", "effect": "NoExecute"}])),
                    "metadata.taints[0].key: Invalid value: \"a b\"",
                ),
                (
                    taints(json!([{"key": "a", "value": "b c", "effect": "NoExecute"}])),
                    "metadata.taints[0].value: Invalid value: \"b c\"",
                ),
                (
                    json!({"spec": {"podCIDRs": ["10.244.0.1/24"]}}),
                    "spec.podCIDRs[0]: Invalid value",
                ),
                (
                    json!({"spec": {"podCIDRs": ["10.244.0.0/24", "10.245.0.0/24"]}}),
                    "spec.podCIDRs: Invalid value: [\"10.244.0.0/24\",\"10.245.0.0/24\"]: may specify no more than one CIDR for each IP family",
                ),
                (
                    json!({"spec": {"podCIDRs": ["10.244.0.0/24", "fd00::/64"]}}),
                    "",
                ),
                (
                    json!({"status": {"capacity": {"cpu": "-1"}}}),
                    "status.capacity.cpu: Invalid value: \"-1\": must be greater than or equal to 0",
                ),
                (
                    json!({"status": {"allocatable": {"pods": "1.5"}}}),
                    "status.allocatable.pods: Invalid value",
                ),
            ],
        );
    }

    #[test]
    fn an_update_is_judged_as_a_new_node_first() {
        let mut errors = Errors::default();
        let two = json!({"spec": {"podCIDRs": ["10.244.1.0/24", "10.244.0.0/24"]}});
        let one = json!({"spec": {"podCIDRs": ["10.244.0.0/24"]}});
        update(&two, &one, "", &mut errors);
        let told: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "spec.podCIDRs: Invalid value: [\"10.244.1.0/24\",\"10.244.0.0/24\"]: may specify no more than one CIDR for each IP family",
                "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            ]
        );
    }

    #[test]
    fn networks_and_providers_stay_once_set() {
        updates(
            update,
            "",
            &node(),
            &[
                (json!({"spec": {"unschedulable": true}}), ""),
                (
                    json!({"spec": {"podCIDRs": null}}),
                    "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
                ),
                (
                    json!({"spec": {"providerID": "b"}}),
                    "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
                ),
                (
                    json!({"spec": {"externalID": "b"}}),
                    "spec.externalID: Forbidden: may not be updated",
                ),
            ],
        );
        let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
        updates(
            update,
            "status",
            &json!({}),
            &[
                (
                    json!({"spec": {"podCIDRs": ["10.244.0.0/24"], "providerID": "b"}}),
                    "",
                ),
                (
                    json!({"status": {"addresses": [address, address]}}),
                    "status.addresses[1]: Duplicate value: {",
                ),
            ],
        );
    }
}
