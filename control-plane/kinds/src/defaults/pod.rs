//! Pods, their containers and volumes.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{Object, child, fill, objects, text, unset};
use crate::pod_resources::{self, Amounts};

/// Pods only; pod templates keep what their author wrote.
pub(super) fn pod(pod: &mut Object) {
    let spec = child(pod, "spec");
    let grace = "terminationGracePeriodSeconds";
    if spec
        .get(grace)
        .and_then(Value::as_i64)
        .is_some_and(|seconds| seconds < 0)
    {
        spec.insert(grace.to_owned(), 1.into());
    }
    for list in ["containers", "initContainers"] {
        objects(spec, list).for_each(requests_from_limits);
    }
    pod_level_resources(spec);
    fill(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in ["containers", "initContainers"] {
            objects(spec, list).for_each(host_ports);
        }
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = container
        .get_mut("resources")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let requests = child(resources, "requests");
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

// On the host's network a container port is the host's port.
fn host_ports(container: &mut Object) {
    for port in objects(container, "ports") {
        if unset(port, "hostPort")
            && let Some(number) = port.get("containerPort").filter(|v| **v != 0).cloned()
        {
            port.insert("hostPort".to_owned(), number);
        }
    }
}

// Pod-level resources that are partly given are completed: limits of huge pages from the
// containers' limits, then requests from the containers' requests, then from the pod's limits.
fn pod_level_resources(spec: &mut Object) {
    let Some(own) = spec.get("resources").and_then(Value::as_object) else {
        return;
    };
    if unset(own, "limits") && unset(own, "requests") {
        return;
    }
    let container_limits = pod_resources::of_containers(spec, "limits");
    let container_requests = pod_resources::of_containers(spec, "requests");
    let resources = child(spec, "resources");
    huge_page_limits(resources, &container_limits);
    if unset(resources, "limits") {
        return;
    }
    let limits = child(resources, "limits").clone();
    let requests = child(resources, "requests");
    for (name, amount) in &container_requests {
        if pod_resources::at_pod_level(name) && !pod_resources::is_huge_page(name) {
            fill(requests, name, amount.to_string());
        }
    }
    for (name, amount) in limits {
        if pod_resources::at_pod_level(&name) {
            fill(requests, &name, amount);
        }
    }
    drop_if_empty(resources, "requests");
}

fn huge_page_limits(resources: &mut Object, container_limits: &Amounts) {
    let requested = resources
        .get("requests")
        .and_then(Value::as_object)
        .cloned();
    let requested = requested.unwrap_or_default();
    let limits = child(resources, "limits");
    for (name, amount) in container_limits {
        if pod_resources::is_huge_page(name) && !requested.contains_key(name) {
            fill(limits, name, amount.to_string());
        }
    }
    drop_if_empty(resources, "limits");
}

fn drop_if_empty(map: &mut Object, name: &str) {
    if unset(map, name) {
        map.remove(name);
    }
}

/// `serviceAccount` is an older name of `serviceAccountName`, which wins when both are set.
pub(super) fn pod_spec(spec: &mut Object) {
    if unset(spec, "serviceAccountName") {
        spec.remove("serviceAccountName");
        if let Some(name) = spec.get("serviceAccount").filter(|v| **v != "").cloned() {
            spec.insert("serviceAccountName".to_owned(), name);
        }
    }
    match spec.get("serviceAccountName").cloned() {
        Some(name) => spec.insert("serviceAccount".to_owned(), name),
        None => spec.remove("serviceAccount"),
    };
}

/// `podIP` and the first of `podIPs` say the same; the single one is believed.
pub(super) fn pod_status(status: &mut Object) {
    let single = text(status, "podIP").to_owned();
    let first = status
        .get("podIPs")
        .and_then(|ips| ips.get(0)?.get("ip")?.as_str());
    let first = first.unwrap_or_default().to_owned();
    if single.is_empty() && !first.is_empty() {
        status.insert("podIP".to_owned(), first.into());
    } else if single != first {
        status.insert("podIPs".to_owned(), json!([{ "ip": single }]));
    }
}

/// What containers of every sort get. Probes, ports and resources have types of their own.
pub(super) fn container(container: &mut Object) {
    if unset(container, "imagePullPolicy") {
        let policy = pull_policy(text(container, "image"));
        container.insert("imagePullPolicy".to_owned(), policy.into());
    }
    if unset(container, "terminationMessagePath") {
        container.insert(
            "terminationMessagePath".to_owned(),
            "/dev/termination-log".into(),
        );
    }
    if unset(container, "terminationMessagePolicy") {
        container.insert("terminationMessagePolicy".to_owned(), "File".into());
    }
}

/// A volume without a source is an empty directory.
pub(super) fn volume(volume: &mut Object) {
    if volume
        .iter()
        .all(|(name, value)| name == "name" || value.is_null())
    {
        volume.insert("emptyDir".to_owned(), Value::Object(Map::new()));
    }
    if let Some(Value::Object(image)) = volume.get_mut("image")
        && unset(image, "pullPolicy")
    {
        let policy = pull_policy(text(image, "reference"));
        image.insert("pullPolicy".to_owned(), policy.into());
    }
}

// `latest`, written or implied, may change any time. A reference that does not parse has no tag.
fn pull_policy(image: &str) -> &'static str {
    static REFERENCE: OnceLock<Regex> = OnceLock::new();
    let reference = REFERENCE.get_or_init(|| {
        let host = r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?";
        let part = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*";
        let tag = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
        let digest = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
        Regex::new(&format!(
            "^(?:{host}/)?{part}(?:/{part})*(?::({tag}))?(?:@({digest}))?$"
        ))
        .expect("the pattern is constant")
    });
    let is_bare_id = image.len() == 64
        && image
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match reference.captures(image).filter(|_| !is_bare_id) {
        Some(parts) => match (parts.get(1), parts.get(2)) {
            (Some(tag), _) if tag.as_str() == "latest" => "Always",
            (None, None) => "Always",
            _ => "IfNotPresent",
        },
        None => "IfNotPresent",
    }
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[test]
    fn images_that_may_change_are_always_pulled() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("localhost:5000/a/b", "Always"),
            (&format!("nginx:latest@{digest}"), "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry.example.com:5000/a/b:v1", "IfNotPresent"),
            (&format!("nginx@{digest}"), "IfNotPresent"),
            ("", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
            (&"0a".repeat(32), "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
