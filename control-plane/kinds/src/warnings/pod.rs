//! Warnings about pods and pod templates (`pkg/api/pod/warnings.go`).

use std::collections::{BTreeSet, HashMap};

use kube_kit::quantity::Quantity;
use serde_json::Value;

use crate::validation::reading::{at, deep, entries, has, int, items, text};

/// Node labels that have a successor, and what to say of them.
const OLD_LABELS: &[(&str, &str)] = &[
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

const OLD_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Volume sources that are gone: the field, its name in the warning, and since when.
const OLD_VOLUMES: &[(&str, &str, &str)] = &[
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "flocker",
        "flocker",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "quobyte",
        "quobyte",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];

const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The warnings about a pod or template that stands at `place` (empty, or ending in a dot).
pub(super) fn of(pod: &Value, place: &str) -> Vec<String> {
    let spec = at(pod, "spec");
    let mut warnings = Vec::new();
    scheduling(spec, place, &mut warnings);
    annotations(pod, place, &mut warnings);
    volumes(spec, place, &mut warnings);
    repeated(spec, place, &mut warnings);
    seccomp(pod, place, &mut warnings);
    for (container, path) in containers(spec, place) {
        resources(container, &path, &mut warnings);
        hidden_variables(container, &path, &mut warnings);
    }
    ports(spec, place, &mut warnings);
    if int(spec, "terminationGracePeriodSeconds") < 0 {
        warnings.push(format!(
            "{place}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    affinity_terms(spec, place, &mut warnings);
    warnings
}

fn containers<'v>(spec: &'v Value, place: &str) -> Vec<(&'v Value, String)> {
    let mut found = Vec::new();
    for list in CONTAINER_LISTS {
        for (index, container) in items(spec, list).iter().enumerate() {
            found.push((container, format!("{place}spec.{list}[{index}]")));
        }
    }
    found
}

fn old_label(key: &str) -> Option<&'static str> {
    let row = OLD_LABELS.iter().find(|(label, _)| *label == key);
    row.map(|(_, message)| *message)
}

fn scheduling(spec: &Value, place: &str, warnings: &mut Vec<String>) {
    for (key, _) in entries(spec, "nodeSelector") {
        if let Some(message) = old_label(key) {
            warnings.push(format!("{place}spec.nodeSelector[{key}]: {message}"));
        }
    }
    node_affinity(spec, place, warnings);
    for (index, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let path = format!("{place}spec.topologySpreadConstraints[{index}]");
        let key = text(constraint, "topologyKey");
        if let Some(message) = old_label(key) {
            warnings.push(format!("{path}.topologyKey: {key} is {message}"));
        }
        no_selector(constraint, &path, warnings);
    }
}

fn node_affinity(spec: &Value, place: &str, warnings: &mut Vec<String>) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = deep(spec, &["affinity", "nodeAffinity"]);
    let path = format!("{place}spec.affinity.nodeAffinity");
    let mut of_term = |term: &Value, path: String| {
        for (index, expression) in items(term, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            if let Some(message) = old_label(key) {
                warnings.push(format!(
                    "{path}.matchExpressions[{index}].key: {key} is {message}"
                ));
            }
        }
    };
    let terms = items(at(affinity, REQUIRED), "nodeSelectorTerms");
    for (index, term) in terms.iter().enumerate() {
        of_term(
            term,
            format!("{path}.{REQUIRED}.nodeSelectorTerms[{index}]"),
        );
    }
    for (index, term) in items(affinity, PREFERRED).iter().enumerate() {
        of_term(
            at(term, "preference"),
            format!("{path}.{PREFERRED}[{index}].preference"),
        );
    }
}

fn no_selector(term: &Value, path: &str, warnings: &mut Vec<String>) {
    if !has(term, "labelSelector") {
        warnings.push(format!(
            "{path}.labelSelector: a null labelSelector results in matching no pod"
        ));
    }
}

fn affinity_terms(spec: &Value, place: &str, warnings: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let affinity = deep(spec, &["affinity", side]);
        let path = format!("{place}spec.affinity.{side}");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in items(affinity, required).iter().enumerate() {
            no_selector(term, &format!("{path}.{required}[{index}]"), warnings);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in items(affinity, preferred).iter().enumerate() {
            let path = format!("{path}.{preferred}[{index}].podAffinityTerm");
            no_selector(at(term, "podAffinityTerm"), &path, warnings);
        }
    }
}

fn annotations(pod: &Value, place: &str, warnings: &mut Vec<String>) {
    let found = deep(pod, &["metadata", "annotations"]);
    for (key, message) in OLD_ANNOTATIONS {
        if has(found, key) {
            warnings.push(format!("{place}metadata.annotations[{key}]: {message}"));
        }
    }
}

fn volumes(spec: &Value, place: &str, warnings: &mut Vec<String>) {
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = format!("{place}spec.volumes[{index}]");
        for (field, name, message) in OLD_VOLUMES {
            if has(volume, field) {
                warnings.push(format!("{path}.{name}: {message}"));
            }
        }
        let claim = deep(volume, &["ephemeral", "volumeClaimTemplate", "spec"]);
        let path = format!("{path}.ephemeral.volumeClaimTemplate.spec.");
        warnings.extend(super::claim_sizes(claim, &path));
    }
}

// Lists that merge by a key: what comes twice is lost by the next apply.
fn repeated(spec: &Value, place: &str, warnings: &mut Vec<String>) {
    for (list, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = BTreeSet::new();
        for (index, item) in items(spec, list).iter().enumerate() {
            let value = text(item, key);
            if !seen.insert(value) {
                warnings.push(format!(
                    "{place}spec.{list}[{index}].{key}: duplicate {key} {value:?}"
                ));
            }
        }
    }
    for (index, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            let path = format!("{place}spec.imagePullSecrets[{index}].name");
            warnings.push(format!("{path}: invalid empty name \"\""));
        }
    }
    for resource in ["memory", "ephemeral-storage"] {
        let path = format!("{place}spec.overhead[{resource}]");
        warnings.extend(fractional_bytes(
            text(at(spec, "overhead"), resource),
            &path,
        ));
    }
}

fn seccomp(pod: &Value, place: &str, warnings: &mut Vec<String>) {
    const OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let found = deep(pod, &["metadata", "annotations"]);
    let has_profile = |object: &Value| has(at(object, "securityContext"), "seccompProfile");
    let mut warn = |key: &str| {
        if has(found, key) {
            warnings.push(format!(
                "{place}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
            ));
        }
    };
    let spec = at(pod, "spec");
    if !has_profile(spec) {
        warn(OF_POD);
    }
    for (container, _) in containers(spec, place) {
        if !has_profile(container) {
            warn(&format!("{OF_CONTAINER}{}", text(container, "name")));
        }
    }
}

/// The complaint about an amount that is no whole number of bytes.
pub(super) fn fractional_bytes(amount: &str, path: &str) -> Option<String> {
    let quantity: Quantity = amount.parse().ok()?;
    (quantity.milli_value() % 1000 != 0)
        .then(|| format!("{path}: fractional byte value {amount:?} is invalid, must be an integer"))
}

fn resources(container: &Value, path: &str, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            let amount = text(deep(container, &["resources", list]), resource);
            let path = format!("{path}.resources.{list}[{resource}]");
            warnings.extend(fractional_bytes(amount, &path));
        }
    }
}

// A variable may build on its namesake; one that replaces it is probably a mistake.
fn hidden_variables(container: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, variable) in items(container, "env").iter().enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        let reference = format!("$({name})");
        let builds_on_it =
            !has(variable, "valueFrom") && value != reference && value.contains(&reference);
        if !seen.insert(name) && !builds_on_it {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// A port is compared with so many of its twins; nobody reads more warnings.
const MOST_COMPARED: usize = 20;

fn ports(spec: &Value, place: &str, warnings: &mut Vec<String>) {
    let mut all: Vec<(&Value, String)> = Vec::new();
    for (container, path) in containers(spec, place) {
        for (index, port) in items(container, "ports").iter().enumerate() {
            all.push((port, format!("{path}.ports[{index}]")));
        }
    }
    let mut earlier: HashMap<(i64, &str), Vec<&(&Value, String)>> = HashMap::new();
    for one @ (port, path) in &all {
        let key = (int(port, "containerPort"), text(port, "protocol"));
        let same = earlier.entry(key).or_default();
        for (other, other_path) in same.iter().take(MOST_COMPARED) {
            if let Some(relation) = port_relation(port, other) {
                warnings.push(format!(
                    "{path}: {relation} port definition with {other_path}"
                ));
            }
        }
        same.push(one);
    }
    let mut named: HashMap<&str, &str> = HashMap::new();
    for (port, path) in &all {
        let name = text(port, "name");
        if name.is_empty() {
            continue;
        }
        let first = *named.entry(name).or_insert(path);
        if first != path {
            warnings.push(format!(
                "{path}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
            ));
        }
    }
}

// How two definitions of the same port relate.
fn port_relation(port: &Value, other: &Value) -> Option<&'static str> {
    let (host_port, other_host_port) = (int(port, "hostPort"), int(other, "hostPort"));
    let (ip, other_ip) = (text(port, "hostIP"), text(other, "hostIP"));
    if ip == other_ip && host_port == other_host_port {
        Some("duplicate")
    } else if host_port == 0 || other_host_port == 0 {
        Some("overlapping")
    } else if host_port == other_host_port && ip.is_empty() != other_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn warnings(spec: Value) -> Vec<String> {
        of(&json!({"spec": spec}), "")
    }

    #[test]
    fn ordinary_pods_are_left_in_peace() {
        let spec = json!({"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}],
            "resources": {"limits": {"memory": "1Gi"}}, "ports": [{"containerPort": 80, "protocol": "TCP"}]}]});
        assert_eq!(warnings(spec), Vec::<String>::new());
    }

    #[test]
    fn each_rule_speaks_in_upstreams_words() {
        for (spec, expected) in [
            (
                json!({"topologySpreadConstraints": [{"topologyKey": "z"}]}),
                "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            ),
            (
                json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}),
                "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ),
            (
                json!({"volumes": [{"name": "a", "rbd": {}}]}),
                "spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+",
            ),
            (
                json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}),
                "spec.imagePullSecrets[1].name: duplicate name \"a\"",
            ),
            (
                json!({"imagePullSecrets": [{}]}),
                "spec.imagePullSecrets[0].name: invalid empty name \"\"",
            ),
            (
                json!({"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}),
                "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ),
            (
                json!({"containers": [{"resources": {"limits": {"memory": "100m"}}}]}),
                "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ),
            (
                json!({"containers": [{"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 1}]}]}),
                "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]",
            ),
        ] {
            assert_eq!(warnings(spec), [expected]);
        }
    }
}
