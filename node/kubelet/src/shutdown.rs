//! A machine that goes down gives its pods time: those that matter least end first (upstream's `nodeshutdown`). Who ends
//! when is decided here; `logind` tells when the time has come and holds the machine back until it is over.

mod logind;

use std::sync::Arc;
use std::time::Duration;

use client_runtime::Severity;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

use crate::config::KubeletConfiguration;
use crate::context::Context;
use crate::eviction::Kill;
use crate::status::Ending;
use crate::{lifecycle, node, spec};

/// From here on pods are critical.
const CRITICAL: i32 = 2_000_000_000;
/// How often one looks whether pods have ended.
const LOOK: Duration = Duration::from_millis(100);
/// How long the API server may take to hear the last of it.
const TELLING: Duration = Duration::from_secs(3);

/// Pods from a priority on, and their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The least priority in it.
    pub priority: i32,
    /// How long its pods may take.
    pub seconds: i64,
}

/// The groups in the order in which they end; none where a shutdown is not waited for.
pub fn groups(config: &KubeletConfiguration) -> Vec<Group> {
    let listed = config.shutdown_grace_period_by_pod_priority.iter();
    let mut groups: Vec<Group> = listed
        .map(|entry| Group {
            priority: entry.priority,
            seconds: entry.shutdown_grace_period_seconds,
        })
        .collect();
    let all = config.shutdown_grace_period.0.as_secs() as i64;
    let critical = config.shutdown_grace_period_critical_pods.0.as_secs() as i64;
    if groups.is_empty() && all > 0 && critical <= all {
        let group = |priority, seconds| Group { priority, seconds };
        groups = vec![group(0, all - critical), group(CRITICAL, critical)];
    }
    groups.sort_by_key(|group| group.priority);
    groups
}

/// What is wrong with the settings, in upstream's words.
pub fn check(config: &KubeletConfiguration) -> Result<(), String> {
    let (all, critical) = (
        config.shutdown_grace_period.0,
        config.shutdown_grace_period_critical_pods.0,
    );
    let too_short = |time: Duration| !time.is_zero() && time < Duration::from_secs(1);
    if critical > all {
        return Err(format!(
            "shutdownGracePeriodCriticalPods {critical:?} must be <= shutdownGracePeriod {all:?}"
        ));
    }
    if too_short(all) || too_short(critical) {
        return Err("shutdownGracePeriod and shutdownGracePeriodCriticalPods must be either zero or not less than 1 sec".to_owned());
    }
    let listed = !config.shutdown_grace_period_by_pod_priority.is_empty();
    if listed && !all.is_zero() {
        return Err("cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time".to_owned());
    }
    Ok(())
}

/// Which group a pod belongs to: the last whose priority it reaches, or the first.
pub fn group_of(pod: &Pod, groups: &[Group]) -> usize {
    let priority = spec::spec(pod).priority.unwrap_or(0);
    let reached = groups.iter().rposition(|group| group.priority <= priority);
    reached.unwrap_or(0)
}

/// How long a pod may take: its own time, but no longer than its group's.
pub fn seconds(pod: &Pod, group: Group) -> i64 {
    lifecycle::grace(pod).min(group.seconds).max(0)
}

/// Waits for shutdowns for ever.
pub(crate) async fn keep(ctx: Arc<Context>, kills: mpsc::Sender<Kill>) {
    let groups = groups(&ctx.settings.config);
    if groups.is_empty() {
        return std::future::pending().await;
    }
    let time = groups.iter().map(|group| group.seconds.max(0) as u64).sum();
    let mut logind = logind::Logind::new(Duration::from_secs(time));
    loop {
        match logind.next().await {
            Ok(true) => {
                let text = "Shutdown manager detected shutdown event";
                node::say(&ctx, Severity::Normal, "Shutdown", text);
                ctx.shutting_down.send_replace(true);
                end_pods(&ctx, &groups, &kills).await;
                logind.release();
            }
            Ok(false) => {
                let text = "Shutdown manager detected shutdown cancellation";
                node::say(&ctx, Severity::Normal, "Shutdown", text);
                ctx.shutting_down.send_replace(false);
            }
            Err(error) => {
                tracing::warn!(error, "the machine's shutdown cannot be waited for");
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        }
    }
}

/// Ends all pods, group by group; a group that is done early leaves its time to nobody.
async fn end_pods(ctx: &Context, groups: &[Group], kills: &mpsc::Sender<Kill>) {
    let ending = Ending {
        reason: "Terminated".to_owned(),
        message: "Pod was terminated in response to imminent node shutdown.".to_owned(),
        disruption: true,
    };
    for (at, group) in groups.iter().enumerate() {
        let all = ctx.pods.all();
        let active = all.iter().filter(|known| !is_over(&known.pod));
        let of_group = active.filter(|known| group_of(&known.pod, groups) == at);
        let mut left: Vec<String> = Vec::new();
        for known in of_group {
            let uid = spec::uid(&known.pod).to_owned();
            let order = (uid.clone(), ending.clone(), seconds(&known.pod, *group));
            if kills.send(order).await.is_ok() {
                left.push(uid);
            }
        }
        // Two more than their time: a container is never given less.
        let time = Duration::from_secs(group.seconds.max(0) as u64 + 2);
        let ended = async {
            while !left.is_empty() {
                left.retain(|uid| !ctx.statuses.is_finished(uid));
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(time, ended).await;
    }
    let told = async {
        while ctx.statuses.has_unwritten() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let _ = tokio::time::timeout(TELLING, told).await;
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(fields: Value) -> KubeletConfiguration {
        serde_json::from_value(fields).expect("a configuration")
    }

    fn pod(priority: i32, grace: i64) -> Pod {
        serde_json::from_value(
            json!({"metadata": {}, "spec": {"containers": [], "priority": priority,
            "terminationGracePeriodSeconds": grace}}),
        )
        .expect("a pod")
    }

    #[test]
    fn groups_follow_the_configuration() {
        let group = |priority, seconds| Group { priority, seconds };
        let cases = [
            (json!({}), vec![]),
            (
                json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}),
                vec![group(0, 20), group(CRITICAL, 10)],
            ),
            (
                json!({"shutdownGracePeriodByPodPriority": [
                    {"priority": 1000, "shutdownGracePeriodSeconds": 5},
                    {"priority": 0, "shutdownGracePeriodSeconds": 60}]}),
                vec![group(0, 60), group(1000, 5)],
            ),
        ];
        for (fields, wanted) in cases {
            let config = config(fields);
            assert_eq!(check(&config), Ok(()));
            assert_eq!(groups(&config), wanted);
        }
        for wrong in [
            json!({"shutdownGracePeriod": "5s", "shutdownGracePeriodCriticalPods": "10s"}),
            json!({"shutdownGracePeriod": "500ms"}),
            json!({"shutdownGracePeriod": "5s", "shutdownGracePeriodByPodPriority": [
                {"priority": 1, "shutdownGracePeriodSeconds": 1}]}),
        ] {
            assert!(check(&config(wrong.clone())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pod_is_of_the_group_whose_priority_it_reaches() {
        let groups = [(0, 10), (1000, 20), (CRITICAL, 5)]
            .map(|(priority, seconds)| Group { priority, seconds });
        for (priority, wanted) in [
            (-5, 0),
            (0, 0),
            (999, 0),
            (1000, 1),
            (CRITICAL, 2),
            (i32::MAX, 2),
        ] {
            assert_eq!(group_of(&pod(priority, 30), &groups), wanted, "{priority}");
        }
        assert_eq!(seconds(&pod(0, 30), groups[0]), 10);
        assert_eq!(seconds(&pod(0, 3), groups[0]), 3);
    }
}
