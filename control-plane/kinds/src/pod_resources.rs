//! What the containers of a pod ask for together.

use std::collections::BTreeMap;

use kube_kit::quantity::Quantity;
use serde_json::{Map, Value};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

const HUGE_PAGES: &str = "hugepages-";

/// Whether this is a size of huge pages.
pub fn is_huge_page(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES)
}

/// Whether a pod as a whole may ask for this resource.
pub fn at_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || is_huge_page(resource)
}

/// The `requests` or `limits` a pod spec's containers need at once: all of the main containers
/// and sidecars together, or the largest init container with the sidecars started before it.
pub fn of_containers(spec: &Map<String, Value>, list: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in containers(spec, "containers") {
        add(&mut total, &amounts(container, list));
    }
    let (mut sidecars, mut init_peak) = (Amounts::new(), Amounts::new());
    for container in containers(spec, "initContainers") {
        let own = amounts(container, list);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut init_peak, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut init_peak, &together);
        }
    }
    raise(&mut total, &init_peak);
    total
}

/// Whether an init container keeps running beside the main ones.
pub fn is_sidecar(init_container: &Value) -> bool {
    init_container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
}

fn containers<'a>(spec: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a Value> {
    spec.get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The `requests` or `limits` in an object's `resources`; texts that are no amount are left out.
pub fn amounts(owner: &Value, list: &str) -> Amounts {
    let listed = owner
        .get("resources")
        .and_then(|r| r.get(list)?.as_object());
    listed
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), parse(amount)?)))
        .collect()
}

/// A quantity in JSON.
pub fn parse(amount: &Value) -> Option<Quantity> {
    match amount {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(sum) => *sum += amount,
            None => {
                total.insert(name.clone(), amount.clone());
            }
        }
    }
}

fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, amount) in floor {
        if total.get(name).is_none_or(|current| current < amount) {
            total.insert(name.clone(), amount.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_count_with_the_sidecars_before_them() {
        let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
        let spec = json!({
            "initContainers": [
                { "resources": cpu("2") },
                { "resources": cpu("1"), "restartPolicy": "Always" },
                { "resources": cpu("3") },
            ],
            "containers": [{ "resources": cpu("500m") }, { "resources": cpu("1") }],
        });
        let total = of_containers(spec.as_object().expect("an object"), "requests");
        assert_eq!(total["cpu"].to_string(), "4");
    }
}
