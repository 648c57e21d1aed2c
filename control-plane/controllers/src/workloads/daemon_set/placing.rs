//! On which nodes a daemon runs (upstream's `NodeShouldRunDaemonPod`).

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
    PodTemplateSpec, Taint, Toleration,
};

use super::super::node_view::NodeView;

/// Taints every daemon bears, and whether they only matter to daemons on the node's own network.
const BORNE: [(&str, &str, bool); 7] = [
    ("node.kubernetes.io/not-ready", "NoExecute", false),
    ("node.kubernetes.io/unreachable", "NoExecute", false),
    ("node.kubernetes.io/disk-pressure", "NoSchedule", false),
    ("node.kubernetes.io/memory-pressure", "NoSchedule", false),
    ("node.kubernetes.io/pid-pressure", "NoSchedule", false),
    ("node.kubernetes.io/unschedulable", "NoSchedule", false),
    ("node.kubernetes.io/network-unavailable", "NoSchedule", true),
];

/// Whether a daemon is to start on a node, and whether one that is there may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) starts: bool,
    pub(super) stays: bool,
}

const NEITHER: Fit = Fit {
    starts: false,
    stays: false,
};

/// How a node suits a template.
pub(super) fn fit(template: &PodTemplateSpec, name: &str, node: &NodeView) -> Fit {
    let empty = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&empty);
    if spec
        .node_name
        .as_deref()
        .is_some_and(|wanted| !wanted.is_empty() && wanted != name)
    {
        return NEITHER;
    }
    if !is_chosen(spec, name, node) {
        return NEITHER;
    }
    let tolerations = tolerations(spec);
    let troubles = node
        .taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    let mut unborne = troubles
        .filter(|taint| !tolerations.iter().any(|one| tolerates(one, taint)))
        .peekable();
    let starts = unborne.peek().is_none();
    Fit {
        starts,
        stays: unborne.all(|taint| taint.effect != "NoExecute"),
    }
}

/// The tolerations of a daemon's pods, with those every daemon has.
pub(super) fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let on_host = spec.host_network == Some(true);
    for (key, effect, _) in BORNE
        .iter()
        .filter(|(_, _, host_only)| !host_only || on_host)
    {
        let toleration = Toleration {
            key: Some((*key).into()),
            operator: Some("Exists".into()),
            effect: Some((*effect).into()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// Whether a toleration covers a taint.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}

fn is_chosen(spec: &PodSpec, name: &str, node: &NodeView) -> bool {
    let labels = spec.node_selector.iter().flatten();
    let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let suits = |selector: &NodeSelector| {
        selector
            .node_selector_terms
            .iter()
            .any(|term| suits(term, name, node))
    };
    labels.into_iter().all(has) && required.is_none_or(suits)
}

fn suits(term: &NodeSelectorTerm, name: &str, node: &NodeView) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label =
        |one: &NodeSelectorRequirement| holds(one, node.labels.get(&one.key).map(String::as_str));
    let by_field =
        |one: &NodeSelectorRequirement| one.key == "metadata.name" && holds(one, Some(name));
    let says_something = !expressions.is_empty() || !fields.is_empty();
    says_something && expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_in = value.is_some_and(|value| values.iter().any(|one| one == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = number(value).zip(number(values.first().map(String::as_str)));
    match requirement.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared.is_some_and(|(ours, theirs)| ours > theirs),
        "Lt" => compared.is_some_and(|(ours, theirs)| ours < theirs),
        _ => false,
    }
}

/// Pins a pod to a node, for the scheduler to bind it there (upstream's `ReplaceDaemonSetPodNodeNameNodeAffinity`).
pub(super) fn pin(spec: &mut PodSpec, node: &str) {
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default();
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    required.node_selector_terms = vec![NodeSelectorTerm {
        match_expressions: None,
        match_fields: Some(vec![by_name]),
    }];
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn daemons_run_where_they_may() {
        let template = |spec: serde_json::Value| -> PodTemplateSpec {
            serde_json::from_value(json!({ "spec": spec })).unwrap()
        };
        let node = |taint: Option<(&str, &str)>| NodeView {
            labels: [("disk".to_owned(), "ssd".to_owned())].into(),
            taints: taint
                .map(|(key, effect)| Taint {
                    key: key.into(),
                    effect: effect.into(),
                    ..Taint::default()
                })
                .into_iter()
                .collect(),
            ..NodeView::default()
        };
        let plain = json!({ "containers": [] });
        let both = Fit {
            starts: true,
            stays: true,
        };
        for (spec, taint, expected) in [
            (plain.clone(), None, both),
            (
                json!({ "containers": [], "nodeSelector": { "disk": "ssd" } }),
                None,
                both,
            ),
            (
                json!({ "containers": [], "nodeSelector": { "disk": "hdd" } }),
                None,
                NEITHER,
            ),
            (
                json!({ "containers": [], "nodeName": "other" }),
                None,
                NEITHER,
            ),
            (
                plain.clone(),
                Some(("node.kubernetes.io/unschedulable", "NoSchedule")),
                both,
            ),
            (
                plain.clone(),
                Some(("node.kubernetes.io/unreachable", "NoExecute")),
                both,
            ),
            (
                plain.clone(),
                Some(("mine", "NoSchedule")),
                Fit {
                    starts: false,
                    stays: true,
                },
            ),
            (plain.clone(), Some(("mine", "NoExecute")), NEITHER),
            (plain.clone(), Some(("mine", "PreferNoSchedule")), both),
            (
                plain.clone(),
                Some(("node.kubernetes.io/network-unavailable", "NoSchedule")),
                Fit {
                    starts: false,
                    stays: true,
                },
            ),
            (
                json!({ "containers": [], "hostNetwork": true }),
                Some(("node.kubernetes.io/network-unavailable", "NoSchedule")),
                both,
            ),
            (
                json!({ "containers": [], "tolerations": [{ "operator": "Exists" }] }),
                Some(("mine", "NoExecute")),
                both,
            ),
        ] {
            assert_eq!(
                fit(&template(spec.clone()), "n1", &node(taint)),
                expected,
                "{spec} {taint:?}"
            );
        }
    }
}
