//! A pod's quality-of-service class (upstream's `ComputePodQOS`).

use kube_kit::quantity::Quantity;
use serde_json::Value;

use crate::pod_resources::{self, Amounts};

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`: Guaranteed when everything limits cpu and memory and
/// requests exactly that, BestEffort when nothing asks for either, Burstable otherwise. Resources of
/// the pod as a whole count instead of its containers' when it has any.
pub fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let owners: Vec<&Value> = match spec.get("resources") {
        Some(Value::Object(_)) => vec![spec],
        _ => ["containers", "initContainers"]
            .iter()
            .flat_map(|list| spec[*list].as_array().into_iter().flatten())
            .collect(),
    };
    let requests = total(&owners, "requests");
    let limits = total(&owners, "limits");
    let all_limited = owners
        .iter()
        .all(|owner| compute(owner, "limits").len() == COMPUTE.len());
    match requests.is_empty() && limits.is_empty() {
        true => "BestEffort",
        false if all_limited && requests == limits => "Guaranteed",
        false => "Burstable",
    }
}

fn compute(owner: &Value, list: &str) -> Amounts {
    let mut amounts = pod_resources::amounts(owner, list);
    amounts.retain(|name, amount| COMPUTE.contains(&name.as_str()) && amount.signum() > 0);
    amounts
}

fn total(owners: &[&Value], list: &str) -> Amounts {
    let mut total = Amounts::new();
    for (name, amount) in owners.iter().flat_map(|owner| compute(owner, list)) {
        *total.entry(name).or_insert(Quantity::ZERO) += &amount;
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn classes_follow_requests_and_limits() {
        let both = json!({ "cpu": "1", "memory": "1Gi" });
        let same = json!({ "cpu": "1000m", "memory": "1024Mi" });
        let full = json!({ "resources": { "requests": both, "limits": same } });
        let some = json!({ "resources": { "requests": { "cpu": "1" } } });
        let none = json!({ "resources": { "requests": { "cpu": "0" } } });
        for (spec, class) in [
            (json!({ "containers": [full] }), "Guaranteed"),
            (
                json!({ "containers": [full], "initContainers": [some] }),
                "Burstable",
            ),
            (json!({ "containers": [full, none] }), "Burstable"),
            (json!({ "containers": [none] }), "BestEffort"),
            (
                json!({ "containers": [none], "resources": full["resources"] }),
                "Guaranteed",
            ),
        ] {
            assert_eq!(qos_class(&json!({ "spec": spec })), class, "{spec}");
        }
    }
}
