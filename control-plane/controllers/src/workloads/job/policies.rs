//! What a failed pod means to its job, and when enough of a job has succeeded.

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
};

use super::super::pod_view::{Exit, PodView};
use super::indexes::Indexes;

/// What a failed pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// One failure more.
    Count,
    /// As if it had not been.
    Ignore,
    /// Its index has failed for good.
    FailIndex,
    /// The whole job has failed: why.
    FailJob(String),
}

/// Upstream's `matchPodFailurePolicy`: the first rule that matches decides.
pub(super) fn judge(spec: &JobSpec, namespace: &str, pod: &PodView) -> Verdict {
    let rules = spec
        .pod_failure_policy
        .iter()
        .flat_map(|policy| &policy.rules);
    for (number, rule) in rules.enumerate() {
        let text = if let Some(codes) = &rule.on_exit_codes {
            exit(codes, pod).map(|exit| {
                format!(
                    "Container {} for pod {namespace}/{} failed with exit code {} matching {} rule at index {number}",
                    exit.container, pod.name, exit.code, rule.action
                )
            })
        } else {
            let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
            patterns
                .iter()
                .find(|pattern| holds(pattern, pod))
                .map(|pattern| {
                    format!(
                        "Pod {namespace}/{} has condition {} matching {} rule at index {number}",
                        pod.name, pattern.type_, rule.action
                    )
                })
        };
        let Some(text) = text else {
            continue;
        };
        return match rule.action.as_str() {
            "Ignore" => Verdict::Ignore,
            "FailIndex" if spec.backoff_limit_per_index.is_some() => Verdict::FailIndex,
            "FailJob" => Verdict::FailJob(text),
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

fn exit<'a>(rule: &PodFailurePolicyOnExitCodesRequirement, pod: &'a PodView) -> Option<&'a Exit> {
    let is_named = |exit: &Exit| {
        rule.container_name
            .as_ref()
            .is_none_or(|name| *name == exit.container)
    };
    let is_meant = |exit: &Exit| match rule.operator.as_str() {
        "In" => rule.values.contains(&exit.code),
        "NotIn" => !rule.values.contains(&exit.code),
        _ => false,
    };
    pod.exits
        .iter()
        .find(|exit| exit.code != 0 && is_named(exit) && is_meant(exit))
}

fn holds(pattern: &PodFailurePolicyOnPodConditionsPattern, pod: &PodView) -> bool {
    pod.has_condition(&pattern.type_, pattern.status.as_deref().unwrap_or("True"))
}

/// Why the indexes that succeeded are enough, if a rule of the success policy says so.
pub(super) fn is_success(spec: &JobSpec, succeeded: &Indexes) -> Option<String> {
    let rules = spec.success_policy.iter().flat_map(|policy| &policy.rules);
    let completions = spec.completions.unwrap_or(0);
    for (number, rule) in rules.enumerate() {
        let wanted = rule
            .succeeded_indexes
            .as_deref()
            .map(|text| Indexes::parse(text, completions));
        let is_met = match (&wanted, rule.succeeded_count) {
            (Some(wanted), Some(count)) => wanted.common_with(succeeded) >= count,
            (Some(wanted), None) => wanted.common_with(succeeded) == wanted.len(),
            (None, Some(count)) => succeeded.len() >= count,
            (None, None) => false,
        };
        if is_met {
            return Some(format!("Matched rules at index {number}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let spec: JobSpec = serde_json::from_value(json!({ "template": {}, "podFailurePolicy": { "rules": [
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
            { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42], "containerName": "main" } },
            { "action": "Count", "onExitCodes": { "operator": "NotIn", "values": [1] } },
        ] } }))
        .unwrap();
        let pod = |code, disrupted: bool| PodView {
            name: "p".into(),
            exits: vec![Exit {
                container: "main".into(),
                code,
                at: None,
            }],
            conditions: disrupted
                .then(|| ("DisruptionTarget".into(), "True".into()))
                .into_iter()
                .collect(),
            ..PodView::default()
        };
        assert_eq!(judge(&spec, "default", &pod(42, true)), Verdict::Ignore);
        let failed = "Container main for pod default/p failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(
            judge(&spec, "default", &pod(42, false)),
            Verdict::FailJob(failed.into())
        );
        assert_eq!(judge(&spec, "default", &pod(3, false)), Verdict::Count);
        assert_eq!(
            judge(&spec, "default", &pod(1, false)),
            Verdict::Count,
            "no rule"
        );
    }

    #[test]
    fn enough_is_what_a_rule_says() {
        let spec: JobSpec = serde_json::from_value(json!({ "template": {}, "completions": 10,
            "successPolicy": { "rules": [{ "succeededIndexes": "0-2", "succeededCount": 2 }, { "succeededCount": 5 }] } }))
        .unwrap();
        let of = |text| is_success(&spec, &Indexes::parse(text, 10));
        assert_eq!(of("0,5"), None);
        assert_eq!(of("0,2").as_deref(), Some("Matched rules at index 0"));
        assert_eq!(of("4-8").as_deref(), Some("Matched rules at index 1"));
    }
}
