//! RuntimeClass: what a runtime costs and where it runs becomes part of the pod.

use futures::FutureExt as _;
use kinds::pod_resources::parse;
use serde_json::Value;

use super::shape::{has, items, text};
use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::Result;

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "RuntimeClass",
    handles: |attributes| {
        attributes.operation == Operation::Create && attributes.is_main("", "pods")
    },
    mutate: Some(|api, attributes, pod| mutate(api, attributes, pod).boxed()),
    validate: Some(|api, attributes, pod| validate(api, attributes, pod).boxed()),
};

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

async fn mutate(api: &Api, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    let Some(class) = class_of(api, attributes, pod).await? else {
        return Ok(());
    };
    apply(pod, &class).map_err(|why| attributes.forbid(Some(pod), &why))
}

async fn validate(api: &Api, attributes: &Attributes<'_>, pod: Option<&Value>) -> Result<()> {
    let Some(pod) = pod else { return Ok(()) };
    let class = class_of(api, attributes, pod).await?;
    check_overhead(pod, class.as_ref()).map_err(|why| attributes.forbid(Some(pod), why))
}

async fn class_of(api: &Api, attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Value>> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str() else {
        return Ok(None);
    };
    let classes = lookup::resource("node.k8s.io", "v1", "runtimeclasses");
    match lookup::get(api, classes, "", name).await? {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            Err(attributes.forbid(Some(pod), &why))
        }
    }
}

fn apply(pod: &mut Value, class: &Value) -> Result<(), String> {
    let spec = &mut pod["spec"];
    if has(class, "overhead") {
        let fixed = &class["overhead"]["podFixed"];
        let given = spec["overhead"].as_object().is_some_and(|o| !o.is_empty());
        if given && !same_amounts(fixed, &spec["overhead"]) {
            return Err(MISMATCH.into());
        }
        if !fixed.is_null() {
            spec["overhead"] = fixed.clone();
        }
    }
    if has(class, "scheduling") {
        select_nodes(spec, &class["scheduling"]["nodeSelector"])?;
        let merged = merge(&spec["tolerations"], &class["scheduling"]["tolerations"]);
        if !merged.is_empty() {
            spec["tolerations"] = merged.into();
        }
    }
    Ok(())
}

fn select_nodes(spec: &mut Value, selector: &Value) -> Result<(), String> {
    for (key, wanted) in selector.as_object().into_iter().flatten() {
        let given = spec["nodeSelector"].get(key);
        if let Some(given) = given.filter(|given| *given != wanted) {
            let (wanted, given) = (text(wanted), text(given));
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            ));
        }
        spec["nodeSelector"][key] = wanted.clone();
    }
    Ok(())
}

fn check_overhead(pod: &Value, class: Option<&Value>) -> Result<(), &'static str> {
    let given = &pod["spec"]["overhead"];
    match class.filter(|class| has(class, "overhead")) {
        Some(class) if same_amounts(&class["overhead"]["podFixed"], given) => Ok(()),
        Some(_) => Err(MISMATCH),
        None if given.is_null() => Ok(()),
        None => Err(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
    }
}

// Amounts are compared by what they mean: 1Gi is 1024Mi.
fn same_amounts(one: &Value, other: &Value) -> bool {
    let amounts = |list: &Value| {
        let entries = list.as_object().into_iter().flatten();
        let mut amounts: Vec<_> = entries
            .map(|(name, amount)| (name.clone(), parse(amount).map(|q| q.nanos())))
            .collect();
        amounts.sort_unstable();
        amounts
    };
    amounts(one) == amounts(other)
}

// Both lists of tolerations, without those that another one covers.
fn merge(first: &Value, second: &Value) -> Vec<Value> {
    let all: Vec<&Value> = items(first).iter().chain(items(second)).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let covered = merged.iter().any(|kept| covers(kept, toleration));
        let mut later = all[at + 1..].iter();
        let covered_later = later.any(|other| other != toleration && covers(other, toleration));
        if !covered && !covered_later {
            merged.push((*toleration).clone());
        }
    }
    merged
}

// Whether one toleration tolerates all that another does (`pkg/util/tolerations`).
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let field = |toleration: &Value, name: &str| text(&toleration[name]).to_owned();
    let exists = wide["operator"] == "Exists";
    let any_key = field(wide, "key").is_empty() && exists;
    let any_effect = field(wide, "effect").is_empty();
    if (field(wide, "key") != field(narrow, "key") && !any_key)
        || (field(wide, "effect") != field(narrow, "effect") && !any_effect)
    {
        return false;
    }
    let lasts = match (
        wide["tolerationSeconds"].as_i64(),
        narrow["tolerationSeconds"].as_i64(),
    ) {
        (Some(limit), asked) if wide["effect"] == "NoExecute" => asked.is_some_and(|a| a <= limit),
        _ => true,
    };
    let operator = field(wide, "operator");
    let same_value =
        narrow["operator"] == "Equal" && field(wide, "value") == field(narrow, "value");
    lasts && (exists || (matches!(operator.as_str(), "" | "Equal") && same_value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_brings_its_cost_and_its_nodes() {
        let class = json!({"overhead": {"podFixed": {"memory": "1Gi"}},
            "scheduling": {"nodeSelector": {"kvm": "yes"}, "tolerations": [{"key": "kvm", "operator": "Exists"}]}});
        let after = json!({"overhead": {"memory": "1Gi"}, "nodeSelector": {"kvm": "yes"},
            "tolerations": [{"key": "kvm", "operator": "Exists"}]});
        for (spec, expected) in [
            (json!({}), Ok(after.clone())),
            (json!({"overhead": {"memory": "1024Mi"}}), Ok(after)),
            (json!({"overhead": {"memory": "2Gi"}}), Err(MISMATCH.to_owned())),
            (
                json!({"nodeSelector": {"kvm": "no"}}),
                Err("conflict: runtimeClass.scheduling.nodeSelector[kvm] = yes; pod.spec.nodeSelector[kvm] = no".into()),
            ),
        ] {
            let mut pod = json!({"spec": spec});
            let outcome = apply(&mut pod, &class).map(|()| pod["spec"].clone());
            assert_eq!(outcome, expected, "{spec}");
        }
    }

    #[test]
    fn overhead_is_the_class_s_to_set() {
        let class = json!({"overhead": {"podFixed": {"cpu": "1"}}});
        let own =
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        for (overhead, class, refusal) in [
            (Value::Null, None, None),
            (json!({"cpu": "1"}), None, Some(own)),
            (json!({"cpu": "1"}), Some(&json!({})), Some(own)),
            (json!({"cpu": "1000m"}), Some(&class), None),
            (json!({"cpu": "2"}), Some(&class), Some(MISMATCH)),
            (Value::Null, Some(&class), Some(MISMATCH)),
        ] {
            let pod = json!({"spec": {"overhead": overhead}});
            assert_eq!(check_overhead(&pod, class).err(), refusal, "{overhead}");
        }
    }

    #[test]
    fn tolerations_that_others_cover_are_left_out() {
        let all = json!({"operator": "Exists"});
        let key = json!({"key": "k", "operator": "Exists"});
        let value = json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"});
        let brief = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        for (first, second, merged) in [
            (json!([value]), json!([key]), json!([key])),
            (json!([key]), json!([value]), json!([key])),
            (json!([key, key]), json!([all]), json!([all])),
            (json!([brief]), json!([long]), json!([long])),
            (json!([value]), json!([brief]), json!([value, brief])),
            (json!(null), json!([key]), json!([key])),
        ] {
            assert_eq!(Value::from(merge(&first, &second)), merged);
        }
    }
}
