//! Evictions: whether a pod may be disturbed, by its disruption budgets.
//!
//! The rules are those of `pkg/registry/core/pod/storage/eviction.go`.

use kinds::resources;
use kube_kit::selector::LabelSelector;
use serde_json::Value;

use crate::status::{ApiError, Result};

/// A budget remembers at most this many pods that are about to go.
const MAX_DISRUPTED_PODS: usize = 2_000;

/// What an eviction may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Delete; no budget is asked.
    Delete,
    /// Delete a pod that is not ready, without counting it against its budget.
    DeleteUnready,
    /// Delete after booking the disruption with this budget.
    Book {
        /// Its name.
        budget: String,
    },
}

/// Decides on the eviction of a pod, given the budgets of its namespace.
pub(crate) fn decide(pod: &Value, budgets: &[Value]) -> Result<Verdict> {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    let dying = pod["metadata"].get("deletionTimestamp").is_some();
    if dying || matches!(phase, "Succeeded" | "Failed" | "Pending") {
        return Ok(Verdict::Delete);
    }
    let mut mine = budgets.iter().filter(|budget| selects(budget, pod));
    let Some(budget) = mine.next() else {
        return Ok(Verdict::Delete);
    };
    if mine.next().is_some() {
        return Err(ApiError::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if !is_ready(pod) {
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        let healthy_enough =
            number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
        if always || healthy_enough {
            return Ok(Verdict::DeleteUnready);
        }
    }
    check_budget(budget)?;
    Ok(Verdict::Book {
        budget: name(budget).to_owned(),
    })
}

/// The budget after one more pod has been booked, or why it cannot be.
pub(crate) fn booked(budget: &Value, pod: &str, now: &str) -> Result<Value> {
    check_budget(budget)?;
    let mut new = budget.clone();
    let allowed = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
    new["status"]["disruptionsAllowed"] = (allowed - 1).into();
    new["status"]["disruptedPods"][pod] = now.into();
    if allowed == 1 {
        let generation = budget["status"]["observedGeneration"].clone();
        crate::writing::rest::set_condition(
            &mut new,
            serde_json::json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": generation, "lastTransitionTime": now,
            }),
        );
    }
    Ok(new)
}

fn check_budget(budget: &Value) -> Result<()> {
    let status = &budget["status"];
    let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
    if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
        return Err(refusal(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            10,
        )
        .cause(
            "DisruptionBudget",
            format!(
                "The disruption budget {} is still being processed by the server.",
                name(budget)
            ),
            "",
        ));
    }
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
    if allowed < 0 {
        let budgets =
            resources::find("policy", "v1", "poddisruptionbudgets").expect("in the table");
        return Err(ApiError::forbidden(
            budgets,
            name(budget),
            "pdb disruptions allowed is negative",
        ));
    }
    let disrupted = status["disruptedPods"]
        .as_object()
        .map_or(0, |pods| pods.len());
    if disrupted > MAX_DISRUPTED_PODS {
        let budgets =
            resources::find("policy", "v1", "poddisruptionbudgets").expect("in the table");
        return Err(ApiError::forbidden(
            budgets,
            name(budget),
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(refusal(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            0,
        )
        .cause(
            "DisruptionBudget",
            format!(
                "The disruption budget {} needs {} healthy pods and has {} currently",
                name(budget),
                status["desiredHealthy"].as_i64().unwrap_or(0),
                status["currentHealthy"].as_i64().unwrap_or(0),
            ),
            "",
        ));
    }
    Ok(())
}

fn refusal(message: &str, seconds: u32) -> ApiError {
    let mut error = ApiError::too_many_requests(message, seconds);
    if seconds == 0 {
        error.retry_after = None;
    }
    error
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

// A budget without a selector selects nothing; an empty one selects everything (policy/v1).
fn selects(budget: &Value, pod: &Value) -> bool {
    match budget["spec"].get("selector").filter(|s| !s.is_null()) {
        None => false,
        Some(selector) => LabelSelector::from_object(selector)
            .is_ok_and(|selector| selector.matches_labels(&pod["metadata"]["labels"])),
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(phase: &str, ready: &str) -> Value {
        json!({"metadata": {"name": "p", "labels": {"app": "a"}},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn budget(allowed: i64) -> Value {
        json!({"metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 2, "currentHealthy": 2}})
    }

    #[test]
    fn budgets_decide_over_running_pods_only() {
        let running = pod("Running", "True");
        let book = Verdict::Book { budget: "b".into() };
        assert_eq!(decide(&running, &[]).expect("free"), Verdict::Delete);
        assert_eq!(decide(&running, &[budget(1)]).expect("allowed"), book);
        assert_eq!(
            decide(&pod("Pending", "False"), &[budget(0)]).expect("pending"),
            Verdict::Delete
        );
        let refused = decide(&running, &[budget(0)]).expect_err("none left");
        assert_eq!(refused.code.as_u16(), 429);
        assert!(refused.to_value()["details"]["causes"][0]["reason"] == "DisruptionBudget");
        assert_eq!(
            decide(&running, &[budget(1), budget(1)])
                .expect_err("two")
                .code
                .as_u16(),
            500
        );
    }

    #[test]
    fn unready_pods_of_a_healthy_budget_may_go() {
        let unready = pod("Running", "False");
        assert_eq!(
            decide(&unready, &[budget(0)]).expect("healthy"),
            Verdict::DeleteUnready
        );
        let mut sick = budget(0);
        sick["status"]["currentHealthy"] = 1.into();
        assert!(decide(&unready, std::slice::from_ref(&sick)).is_err());
        sick["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow".into();
        assert_eq!(
            decide(&unready, &[sick]).expect("always"),
            Verdict::DeleteUnready
        );
    }

    #[test]
    fn a_budget_not_yet_observed_asks_to_wait() {
        let mut fresh = budget(1);
        fresh["metadata"]["generation"] = 2.into();
        let refused = decide(&pod("Running", "True"), &[fresh]).expect_err("wait");
        assert_eq!(
            (refused.code.as_u16(), refused.retry_after),
            (429, Some(10))
        );
    }

    #[test]
    fn booking_counts_down_and_remembers_the_pod() {
        let after = booked(&budget(1), "p", "2026-01-01T00:00:00Z").expect("one left");
        assert_eq!(after["status"]["disruptionsAllowed"], 0);
        assert_eq!(
            after["status"]["disruptedPods"]["p"],
            "2026-01-01T00:00:00Z"
        );
        assert!(booked(&after, "q", "2026-01-01T00:00:00Z").is_err());
    }
}
