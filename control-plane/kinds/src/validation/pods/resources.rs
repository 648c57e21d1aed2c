//! Resource requirements: names, amounts, requests against limits, claims.

use std::collections::BTreeSet;

use kube_kit::quantity::Quantity;
use serde_json::Value;

use crate::field::{Errors, Path};
use crate::pod_resources::{self, is_huge_page};
use crate::validation::names;
use crate::validation::reading::{at, entries, has, items, text};
use crate::validation::rules::{NEGATIVE, complain};
use crate::validation::values::not_found;

const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const OTHER_STANDARD: [&str; 8] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
];
const POD_LEVEL: [&str; 3] = ["cpu", "hugepages-", "memory"];

type NameCheck = fn(&mut Errors, &Path<'_>, &str);

/// The requirements of a container; `claims` are the names the pod's claims go by.
pub(crate) fn of_container(
    errors: &mut Errors,
    path: &Path<'_>,
    requirements: &Value,
    claims: &BTreeSet<&str>,
) {
    requirements_with(errors, path, requirements, container_name);
    claim_names(
        errors,
        &path.child("claims"),
        items(requirements, "claims"),
        claims,
    );
}

/// The requirements of a pod as a whole, and that they hold those of its containers.
pub(crate) fn of_pod(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let requirements = at(spec, "resources");
    if requirements.is_null() {
        return;
    }
    if text(at(spec, "os"), "name") == "windows" {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    if has(requirements, "claims") {
        let detail = "claims may not be set for Resources at pod-level";
        errors.forbidden(&path.child("claims"), detail);
    }
    requirements_with(errors, path, requirements, pod_name);
    consistent_with_containers(errors, path, spec);
}

/// What a sandbox takes for itself, checked like limits.
pub(crate) fn overhead(errors: &mut Errors, path: &Path<'_>, overhead: &Value) {
    if !overhead.is_null() {
        let requirements = serde_json::json!({ "limits": overhead });
        requirements_with(errors, path, &requirements, container_name);
    }
}

fn requirements_with(errors: &mut Errors, path: &Path<'_>, requirements: &Value, name: NameCheck) {
    let limits = at(requirements, "limits");
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    for (resource, amount) in entries(requirements, "limits") {
        entry(errors, &limits_path.key(resource), resource, amount, name);
    }
    for (resource, amount) in entries(requirements, "requests") {
        entry(errors, &requests_path.key(resource), resource, amount, name);
        within_limit(errors, path, resource, amount, limits.get(resource));
    }
    let asked = || entries(requirements, "limits").chain(entries(requirements, "requests"));
    let computes = asked().any(|(resource, _)| matches!(resource, "cpu" | "memory"));
    if !computes && asked().any(|(resource, _)| is_huge_page(resource)) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn entry(errors: &mut Errors, path: &Path<'_>, resource: &str, amount: &Value, name: NameCheck) {
    name(errors, path, resource);
    quantity(errors, path, resource, amount);
    if is_huge_page(resource) && !is_whole_pages(resource, amount) {
        let shown = shown(amount);
        let detail = format!("{shown} is not positive integer multiple of {resource}");
        errors.invalid(path, &shown.into(), &detail);
    }
}

/// An amount that fits its resource: not negative, whole where the resource is counted.
pub(crate) fn quantity(errors: &mut Errors, path: &Path<'_>, resource: &str, amount: &Value) {
    let Some(parsed) = pod_resources::parse(amount) else {
        return;
    };
    if parsed.signum() < 0 {
        errors.invalid(path, &parsed.to_string().into(), NEGATIVE);
    }
    let is_counted = COUNTED.contains(&resource) || is_extended(resource);
    if is_counted && parsed.milli_value() % 1000 != 0 {
        errors.invalid(path, amount, "must be an integer");
    }
}

// What cannot be lent out twice (extended resources, huge pages) needs a limit equal to the
// request.
fn within_limit(
    errors: &mut Errors,
    path: &Path<'_>,
    resource: &str,
    request: &Value,
    limit: Option<&Value>,
) {
    let requests_path = path.child("requests");
    let overcommits = is_native(resource) && !is_huge_page(resource);
    let Some(limit) = limit else {
        if !overcommits {
            let detail = "Limit must be set for non overcommitable resources";
            errors.required(&path.child("limits"), detail);
        }
        return;
    };
    let amounts = pod_resources::parse(request).zip(pod_resources::parse(limit));
    let Some((requested, limited)) = amounts else {
        return;
    };
    let rule = match overcommits {
        false if requested != limited => "must be equal to",
        true if requested > limited => "must be less than or equal to",
        _ => return,
    };
    let detail = format!("{rule} {resource} limit of {limited}");
    errors.invalid(&requests_path, &requested.to_string().into(), &detail);
}

fn is_whole_pages(resource: &str, amount: &Value) -> bool {
    let size = resource
        .strip_prefix("hugepages-")
        .and_then(|size| size.parse::<Quantity>().ok());
    let Some((size, amount)) = size.zip(pod_resources::parse(amount)) else {
        return false;
    };
    size.signum() > 0 && size.milli_value() % 1000 == 0 && amount.value() % size.value() == 0
}

fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

// Extended resources are outside the default namespace and still names when quota prefixes them.
fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && names::qualified_name(&format!("requests.{resource}")).is_empty()
}

fn is_standard(resource: &str) -> bool {
    is_huge_page(resource)
        || resource.starts_with("requests.hugepages-")
        || CONTAINER.contains(&resource)
        || OTHER_STANDARD.contains(&resource)
        || COUNTED.contains(&resource)
}

// `true` when the name is fine so far.
fn resource_name(errors: &mut Errors, path: &Path<'_>, resource: &str) -> bool {
    let complaints = names::qualified_name(resource);
    if !complaints.is_empty() {
        complain(errors, path, resource, complaints);
        return false;
    }
    if !resource.contains('/') && !is_standard(resource) {
        let detail = "must be a standard resource type or fully qualified";
        errors.invalid(path, &resource.into(), detail);
        return false;
    }
    true
}

fn container_name(errors: &mut Errors, path: &Path<'_>, resource: &str) {
    resource_name(errors, path, resource);
    if !resource.contains('/') {
        if !CONTAINER.contains(&resource) && !is_huge_page(resource) {
            let detail = "must be a standard resource for containers";
            errors.invalid(path, &resource.into(), detail);
        }
    } else if !is_native(resource) && !is_extended(resource) {
        let detail = "doesn't follow extended resource name standard";
        errors.invalid(path, &resource.into(), detail);
    }
}

fn pod_name(errors: &mut Errors, path: &Path<'_>, resource: &str) {
    if resource_name(errors, path, resource) && !pod_resources::at_pod_level(resource) {
        errors.not_supported(path, &resource.into(), &POD_LEVEL);
    }
}

fn consistent_with_containers(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let Some(map) = spec.as_object() else { return };
    let (requests, limits) = (
        pod_resources::amounts(spec, "requests"),
        pod_resources::amounts(spec, "limits"),
    );
    for (resource, together) in pod_resources::of_containers(map, "requests") {
        if let Some(own) = requests.get(&resource).filter(|own| together > **own) {
            let detail = format!(
                "must be greater than or equal to aggregate container requests of {together}"
            );
            errors.invalid(
                &path.child("requests").key(&resource),
                &shown_amount(own),
                &detail,
            );
        }
    }
    for (resource, together) in pod_resources::of_containers(map, "limits") {
        if let Some(own) = limits.get(&resource).filter(|own| together > **own)
            && is_huge_page(&resource)
        {
            let detail = format!(
                "must be greater than or equal to aggregate container limits of {together}"
            );
            errors.invalid(
                &path.child("limits").key(&resource),
                &shown_amount(own),
                &detail,
            );
        }
    }
    for (i, container) in items(spec, "containers").iter().enumerate() {
        for (resource, limit) in pod_resources::amounts(container, "limits") {
            if let Some(own) = limits.get(&resource).filter(|own| limit > **own) {
                let containers = path.child("containers");
                let element = containers.index(i);
                let entry = element.key(&resource);
                let detail = format!("must be less than or equal to pod limits of {own}");
                errors.invalid(&entry.child("limits"), &shown_amount(&limit), &detail);
            }
        }
    }
}

fn shown(amount: &Value) -> String {
    pod_resources::parse(amount)
        .map(|q| q.to_string())
        .unwrap_or_default()
}

fn shown_amount(amount: &Quantity) -> Value {
    amount.to_string().into()
}

// Each claim once: as a whole, or request by request.
fn claim_names(errors: &mut Errors, path: &Path<'_>, list: &[Value], known: &BTreeSet<&str>) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (i, claim) in list.iter().enumerate() {
        let path = path.index(i);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if !request.is_empty() {
            complain(
                errors,
                &path.child("request"),
                request,
                names::dns1123_label(request),
            );
        }
        let key = if request.is_empty() {
            name.to_owned()
        } else {
            format!("{name}/{request}")
        };
        let parts = format!("{name}/");
        let overlaps = request.is_empty() && seen.iter().any(|other| other.starts_with(&parts));
        if seen.contains(name) || overlaps {
            errors.duplicate(&path, &name.into());
        } else if !seen.insert(key.clone()) {
            errors.duplicate(&path, &key.into());
        }
        if !known.contains(name) {
            let rest = match known.is_empty() {
                true => " which is empty".to_owned(),
                false => format!(": {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{rest}");
            not_found(errors, &path, name, &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    fn container(requirements: Value) -> String {
        let claims = BTreeSet::from(["gpu"]);
        told(|e| of_container(e, &Path::root("r"), &requirements, &claims)).join("|")
    }

    #[test]
    fn requests_fit_limits() {
        let cases = [
            (json!({}), ""),
            (
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}),
                "",
            ),
            (
                json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
                "r.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                json!({"requests": {"a.b/c": "1"}, "limits": {"a.b/c": "2"}}),
                "r.requests: Invalid value: \"1\": must be equal to a.b/c limit of 2",
            ),
            (
                json!({"requests": {"a.b/c": "1"}}),
                "r.limits: Required value: Limit must be set for non overcommitable resources",
            ),
            (
                json!({"limits": {"a.b/c": "500m"}}),
                "r.limits[a.b/c]: Invalid value: \"500m\": must be an integer",
            ),
            (
                json!({"limits": {"cpu": "-1"}}),
                "r.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                json!({"limits": {"pods": "1"}}),
                "r.limits[pods]: Invalid value: \"pods\": must be a standard resource for containers",
            ),
            (
                json!({"limits": {"hugepages-2Mi": "4Mi"}}),
                "r: Forbidden: HugePages require cpu or memory",
            ),
            (
                json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
                "r.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ),
        ];
        for (requirements, expected) in cases {
            assert_eq!(container(requirements.clone()), expected, "{requirements}");
        }
        let unknown = container(json!({"limits": {"foo": "1"}}));
        assert!(unknown.contains("must be a standard resource type or fully qualified"));
    }

    #[test]
    fn claims_are_the_pods_and_named_once() {
        let cases = [
            (json!([{"name": "gpu"}]), ""),
            (
                json!([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}]),
                "",
            ),
            (
                json!([{"name": "gpu"}, {"name": "gpu"}]),
                "r.claims[1]: Duplicate value: \"gpu\"",
            ),
            (
                json!([{"name": "gpu", "request": "a"}, {"name": "gpu"}]),
                "r.claims[1]: Duplicate value: \"gpu\"",
            ),
            (
                json!([{"name": "x"}]),
                "r.claims[0]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims: gpu",
            ),
        ];
        for (claims, expected) in cases {
            assert_eq!(container(json!({ "claims": claims })), expected, "{claims}");
        }
    }

    #[test]
    fn a_pods_own_resources_hold_its_containers() {
        let check = |own: Value| {
            let container =
                json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}});
            let spec = json!({"resources": own, "containers": [container]});
            told(|e| of_pod(e, &Path::root("resources"), &spec)).join("|")
        };
        assert_eq!(
            check(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3"}})),
            ""
        );
        assert_eq!(
            check(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})),
            "resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2|resources.containers[0][cpu].limits: Invalid value: \"3\": must be less than or equal to pod limits of 1"
        );
        let storage = check(json!({"limits": {"ephemeral-storage": "1Gi"}}));
        assert!(
            storage.contains("Unsupported value: \"ephemeral-storage\""),
            "{storage}"
        );
    }
}
