//! A pod as the checks see it, and the wording they share.

use std::collections::BTreeSet;

use serde_json::Value;

/// A pod or a pod template.
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
    /// Init, main and ephemeral containers, in this order.
    pub(super) containers: Vec<&'a Value>,
}

impl<'a> Pod<'a> {
    pub(super) fn of(pod: &'a Value) -> Pod<'a> {
        let spec = &pod["spec"];
        let containers = ["initContainers", "containers", "ephemeralContainers"]
            .iter()
            .flat_map(|list| items(&spec[*list]))
            .collect();
        Pod {
            annotations: &pod["metadata"]["annotations"],
            spec,
            containers,
        }
    }

    /// Names of the containers for which `is_bad` holds, in order.
    pub(super) fn named(&self, mut is_bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        let bad = self.containers.iter().filter(|c| is_bad(c));
        bad.map(|c| text(&c["name"])).collect()
    }

    /// The annotations, in order of their keys.
    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut all: Vec<(&str, &str)> = self
            .annotations
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), text(value)))
            .collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// The pod's own security context.
    pub(super) fn context(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    pub(super) fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether root inside is nobody outside (`hostUsers: false`).
    pub(super) fn has_user_namespace(&self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// The pod template of an object that makes pods (a pod stands for itself), or null.
pub fn template_of<'a>(kind: &str, object: &'a Value) -> &'a Value {
    match kind {
        "Pod" => object,
        "PodTemplate" => &object["template"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        "ReplicationController"
        | "ReplicaSet"
        | "Deployment"
        | "DaemonSet"
        | "StatefulSet"
        | "Job" => &object["spec"]["template"],
        _ => &Value::Null,
    }
}

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A container's own security context.
pub(super) fn context(container: &Value) -> &Value {
    &container["securityContext"]
}

/// `"a", "b"`. Upstream puts the quotes around whatever stands there.
pub(super) fn quoted<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let quoted: Vec<String> = names
        .into_iter()
        .map(|name| format!("\"{}\"", name.as_ref()))
        .collect();
    quoted.join(", ")
}

pub(super) fn one_or_many(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    let noun = one_or_many(names.len(), "container", "containers");
    format!("{noun} {}", quoted(names))
}

/// Sorted values without repetition.
pub(super) type Values<'a> = BTreeSet<&'a str>;

/// Who sets something wrong in a security context, and what they set.
pub(super) struct Offenders<'a> {
    pod: bool,
    containers: Vec<&'a str>,
    pub(super) values: Values<'a>,
}

impl<'a> Offenders<'a> {
    /// Asks the pod's and every container's security context for a wrong value.
    pub(super) fn of(
        pod: &Pod<'a>,
        mut wrong: impl FnMut(&'a Value) -> Option<&'a str>,
    ) -> Offenders<'a> {
        let mut values = Values::new();
        let mut is_wrong = |context| {
            let value = wrong(context);
            values.extend(value);
            value.is_some()
        };
        let by_pod = is_wrong(pod.context());
        let containers = pod.named(|container| is_wrong(context(container)));
        Offenders {
            pod: by_pod,
            containers,
            values,
        }
    }

    /// `pod and container "a"`; nothing when nobody does wrong.
    pub(super) fn who(&self) -> Option<String> {
        match (self.pod, self.containers.as_slice()) {
            (false, []) => None,
            (true, []) => Some("pod".to_owned()),
            (true, names) => Some(format!("pod and {}", containers(names))),
            (false, names) => Some(containers(names)),
        }
    }
}
