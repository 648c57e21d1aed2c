//! Limit ranges: defaults for what containers ask for, and bounds on what they, their pods and volume
//! claims may ask for (upstream's `LimitRanger`).

use kinds::pod_resources::{self, Amounts};
use kube_kit::quantity::Quantity;
use serde_json::{Map, Value, json};

/// Where a pod says what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Gives containers the requests and limits that they leave open and the limit range knows, and says
/// so in an annotation.
pub fn fill_in(limit_range: &Value, pod: &mut Value) {
    let defaults = [
        (
            "requests",
            container_defaults(limit_range, "defaultRequest"),
        ),
        ("limits", container_defaults(limit_range, "default")),
    ];
    let mut notes = Vec::new();
    for (list, noun) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            fill_container(container, noun, &defaults, &mut notes);
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        let annotations = &mut pod["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[ANNOTATION] = note.into();
    }
}

// Later entries of a limit range win over earlier ones.
fn container_defaults(limit_range: &Value, field: &str) -> Map<String, Value> {
    limits(limit_range)
        .filter(|limit| limit["type"] == "Container")
        .filter_map(|limit| limit[field].as_object().cloned())
        .flatten()
        .collect()
}

fn fill_container(
    container: &mut Value,
    noun: &str,
    defaults: &[(&str, Map<String, Value>); 2],
    notes: &mut Vec<String>,
) {
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    for (list, amounts) in defaults {
        let given = container["resources"][*list].as_object();
        let mut missing: Vec<&String> = amounts
            .keys()
            .filter(|resource| given.is_none_or(|given| !given.contains_key(*resource)))
            .collect();
        missing.sort();
        if missing.is_empty() {
            continue;
        }
        for resource in &missing {
            container["resources"][*list][resource.as_str()] = amounts[*resource].clone();
        }
        let listed: Vec<&str> = missing.iter().map(|resource| resource.as_str()).collect();
        let singular = list.trim_end_matches('s');
        notes.push(format!(
            "{} {singular} for {noun} {name}",
            listed.join(", ")
        ));
    }
}

/// What a pod breaks of a limit range, in upstream's words; `None` when it keeps to it.
pub fn pod_complaint(limit_range: &Value, pod: &Value) -> Option<String> {
    let mut complaints = Vec::new();
    for limit in limits(limit_range) {
        match limit["type"].as_str() {
            Some("Container") => {
                let lists = ["containers", "initContainers"];
                let containers = lists.iter().flat_map(|list| items(&pod["spec"][*list]));
                for container in containers {
                    let asked = Asked {
                        requests: pod_resources::amounts(container, "requests"),
                        limits: pod_resources::amounts(container, "limits"),
                    };
                    check(limit, "Container", &asked, &mut complaints);
                }
            }
            Some("Pod") => {
                let asked = Asked {
                    requests: of_pod(pod, "requests"),
                    limits: of_pod(pod, "limits"),
                };
                check(limit, "Pod", &asked, &mut complaints);
            }
            _ => {}
        }
    }
    aggregate(complaints)
}

/// What a volume claim breaks of a limit range. Only its requests count; limits mean nothing there.
pub fn claim_complaint(limit_range: &Value, claim: &Value) -> Option<String> {
    const TYPE: &str = "PersistentVolumeClaim";
    let mut complaints = Vec::new();
    let asked = Asked {
        requests: pod_resources::amounts(&claim["spec"], "requests"),
        limits: Amounts::new(),
    };
    for limit in limits(limit_range).filter(|limit| limit["type"] == TYPE) {
        for (resource, bound) in bounds(limit, "min") {
            complaints.extend(asked.below(TYPE, &resource, &bound));
        }
        for (resource, bound) in bounds(limit, "max") {
            complaints.extend(asked.request_above(TYPE, &resource, &bound));
        }
    }
    aggregate(complaints)
}

fn check(limit: &Value, ty: &str, asked: &Asked, complaints: &mut Vec<String>) {
    for (resource, bound) in bounds(limit, "min") {
        complaints.extend(asked.below(ty, &resource, &bound));
    }
    for (resource, bound) in bounds(limit, "max") {
        complaints.extend(asked.above(ty, &resource, &bound));
    }
    for (resource, bound) in bounds(limit, "maxLimitRequestRatio") {
        complaints.extend(asked.beyond_ratio(ty, &resource, &bound));
    }
}

// What the pod as a whole names replaces what its containers add up to.
fn of_pod(pod: &Value, list: &str) -> Amounts {
    let Some(spec) = pod["spec"].as_object() else {
        return Amounts::new();
    };
    let mut total = pod_resources::of_containers(spec, list);
    let own = pod_resources::amounts(&pod["spec"], list);
    let known = own
        .into_iter()
        .filter(|(resource, _)| matches!(resource.as_str(), "cpu" | "memory"));
    total.extend(known);
    total
}

/// What something asks for.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

impl Asked {
    fn below(&self, ty: &str, resource: &str, bound: &Quantity) -> Option<String> {
        let head = format!("minimum {resource} usage per {ty} is {bound}");
        let limit = self.limits.get(resource);
        match self.requests.get(resource) {
            None => Some(format!("{head}.  No request is specified")),
            Some(request) if millis(request) < millis(bound) => {
                Some(format!("{head}, but request is {request}"))
            }
            Some(_) => limit
                .filter(|limit| millis(limit) < millis(bound))
                .map(|limit| format!("{head}, but limit is {limit}")),
        }
    }

    fn above(&self, ty: &str, resource: &str, bound: &Quantity) -> Option<String> {
        let head = format!("maximum {resource} usage per {ty} is {bound}");
        let request = self.requests.get(resource);
        match self.limits.get(resource) {
            None => Some(format!("{head}.  No limit is specified")),
            Some(limit) if millis(limit) > millis(bound) => {
                Some(format!("{head}, but limit is {limit}"))
            }
            Some(_) => request
                .filter(|request| millis(request) > millis(bound))
                .map(|request| format!("{head}, but request is {request}")),
        }
    }

    fn request_above(&self, ty: &str, resource: &str, bound: &Quantity) -> Option<String> {
        let head = format!("maximum {resource} usage per {ty} is {bound}");
        match self.requests.get(resource) {
            None => Some(format!("{head}.  No request is specified")),
            Some(request) => (millis(request) > millis(bound))
                .then(|| format!("{head}, but request is {request}")),
        }
    }

    fn beyond_ratio(&self, ty: &str, resource: &str, bound: &Quantity) -> Option<String> {
        let head = format!("{resource} max limit to request ratio per {ty} is {bound}");
        let amount = |list: &Amounts| list.get(resource).filter(|a| !a.is_zero()).cloned();
        let Some(request) = amount(&self.requests) else {
            return Some(format!(
                "{head}, but no request is specified or request is 0"
            ));
        };
        let Some(limit) = amount(&self.limits) else {
            return Some(format!("{head}, but no limit is specified or limit is 0"));
        };
        let ratio = millis(&limit) as f64 / millis(&request) as f64;
        (ratio * 1000.0 > millis(bound) as f64)
            .then(|| format!("{head}, but provided ratio is {ratio:.6}"))
    }
}

// Amounts are compared in thousandths, rounded up, so nobody is refused over less than that.
fn millis(amount: &Quantity) -> i128 {
    const NANOS: i128 = 1_000_000;
    (amount.nanos() + NANOS - 1).div_euclid(NANOS)
}

fn bounds(limit: &Value, field: &str) -> Vec<(String, Quantity)> {
    let listed = limit[field].as_object();
    let mut bounds: Vec<_> = listed
        .into_iter()
        .flatten()
        .filter_map(|(resource, bound)| Some((resource.clone(), pod_resources::parse(bound)?)))
        .collect();
    bounds.sort_by(|a, b| a.0.cmp(&b.0));
    bounds
}

fn limits(limit_range: &Value) -> impl Iterator<Item = &Value> {
    items(&limit_range["spec"]["limits"])
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

// One complaint stands alone, several in brackets, each once (upstream's aggregate of errors).
fn aggregate(complaints: Vec<String>) -> Option<String> {
    let mut told: Vec<String> = Vec::new();
    for complaint in complaints {
        if !told.contains(&complaint) {
            told.push(complaint);
        }
    }
    match told.len() {
        0 => None,
        1 => told.pop(),
        _ => Some(format!("[{}]", told.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limits: Value) -> Value {
        json!({ "spec": { "limits": limits } })
    }

    fn pod(resources: Value) -> Value {
        json!({ "metadata": {}, "spec": { "containers": [{ "name": "c", "resources": resources }] } })
    }

    #[test]
    fn open_amounts_are_filled_in_and_the_annotation_says_which() {
        let range = range(json!([{
            "type": "Container",
            "default": { "memory": "1Gi", "cpu": "2" },
            "defaultRequest": { "cpu": "100m" },
        }]));
        let mut pod = json!({ "metadata": {}, "spec": {
            "containers": [{ "name": "a", "resources": { "limits": { "cpu": "1" } } }, { "name": "b" }],
            "initContainers": [{ "name": "i", "resources": {
                "requests": { "cpu": "1" }, "limits": { "cpu": "1", "memory": "1Mi" } } }],
        } });
        fill_in(&range, &mut pod);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "100m" } })
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container a; memory limit for container a; \
             cpu request for container b; cpu, memory limit for container b"
        );
        let before = pod.clone();
        fill_in(&range_without_defaults(), &mut pod);
        assert_eq!(pod, before);
    }

    fn range_without_defaults() -> Value {
        range(json!([{ "type": "Container", "max": { "cpu": "1" } }]))
    }

    #[test]
    fn bounds_are_checked_in_upstreams_words() {
        let bounded =
            |field: &str, cpu: &str| range(json!([{ "type": "Container", field: { "cpu": cpu } }]));
        for (range, resources, complaint) in [
            (
                bounded("min", "1"),
                json!({}),
                Some("minimum cpu usage per Container is 1.  No request is specified"),
            ),
            (
                bounded("min", "1"),
                json!({ "requests": { "cpu": "500m" } }),
                Some("minimum cpu usage per Container is 1, but request is 500m"),
            ),
            (
                bounded("min", "1"),
                json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "0.5" } }),
                Some("minimum cpu usage per Container is 1, but limit is 500m"),
            ),
            (
                bounded("min", "1"),
                json!({ "requests": { "cpu": "1000m" } }),
                None,
            ),
            (
                bounded("max", "1"),
                json!({}),
                Some("maximum cpu usage per Container is 1.  No limit is specified"),
            ),
            (
                bounded("max", "1"),
                json!({ "limits": { "cpu": "2" } }),
                Some("maximum cpu usage per Container is 1, but limit is 2"),
            ),
            (
                bounded("max", "1"),
                json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } }),
                Some("maximum cpu usage per Container is 1, but request is 2"),
            ),
            (
                bounded("maxLimitRequestRatio", "2"),
                json!({ "limits": { "cpu": "1" } }),
                Some(
                    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
                ),
            ),
            (
                bounded("maxLimitRequestRatio", "2"),
                json!({ "requests": { "cpu": "1" } }),
                Some(
                    "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
                ),
            ),
            (
                bounded("maxLimitRequestRatio", "2"),
                json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2500m" } }),
                Some(
                    "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
                ),
            ),
            (
                bounded("maxLimitRequestRatio", "2"),
                json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2" } }),
                None,
            ),
        ] {
            assert_eq!(pod_complaint(&range, &pod(resources)).as_deref(), complaint);
        }
    }

    #[test]
    fn pods_count_as_a_whole_and_their_own_resources_come_first() {
        let range = range(json!([{ "type": "Pod", "max": { "cpu": "1" } }]));
        let container = json!({ "resources": { "limits": { "cpu": "600m" } } });
        let mut pod = json!({ "spec": { "containers": [container, container] } });
        assert_eq!(
            pod_complaint(&range, &pod).as_deref(),
            Some("maximum cpu usage per Pod is 1, but limit is 1200m")
        );
        pod["spec"]["resources"] = json!({ "limits": { "cpu": "1" } });
        assert_eq!(pod_complaint(&range, &pod), None);
    }

    #[test]
    fn several_complaints_stand_in_brackets_and_repeated_ones_once() {
        let range = range(json!([{ "type": "Container", "min": { "cpu": "1", "memory": "1Mi" } }]));
        let pod = json!({ "spec": { "containers": [{ "name": "a" }, { "name": "b" }] } });
        assert_eq!(
            pod_complaint(&range, &pod).as_deref(),
            Some(
                "[minimum cpu usage per Container is 1.  No request is specified, \
                 minimum memory usage per Container is 1Mi.  No request is specified]"
            )
        );
    }

    #[test]
    fn volume_claims_are_bounded_by_their_requests() {
        let range = range(json!([{
            "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "2Gi" },
        }]));
        let claim = |storage: &str| json!({ "spec": { "resources": { "requests": { "storage": storage } } } });
        assert_eq!(claim_complaint(&range, &claim("2Gi")), None);
        assert_eq!(
            claim_complaint(&range, &claim("512Mi")).as_deref(),
            Some("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi")
        );
        assert_eq!(
            claim_complaint(&range, &claim("3Gi")).as_deref(),
            Some("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")
        );
    }
}
