//! The conditions of a pod that are the kubelet's.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::container::exit_code;
use super::{Facts, seconds};
use crate::resize;
use crate::spec::{self, Role};

/// The types that only the kubelet writes.
pub(super) const OWNED: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    resize::PENDING,
    resize::IN_PROGRESS,
];

struct Finding {
    kind: &'static str,
    holds: bool,
    reason: Option<String>,
    message: Option<String>,
}

impl Finding {
    fn yes(kind: &'static str) -> Self {
        Self {
            kind,
            holds: true,
            reason: None,
            message: None,
        }
    }

    fn no(kind: &'static str, reason: &str, message: String) -> Self {
        let message = Some(message).filter(|m| !m.is_empty());
        Self {
            kind,
            holds: false,
            reason: Some(reason.to_owned()),
            message,
        }
    }
}

/// Sets them; what others set stays.
pub(super) fn set(facts: &Facts<'_>, status: &mut PodStatus) {
    let sandbox = facts.seen.sandboxes.first();
    let up = sandbox.is_some_and(|s| s.ready && (s.host_network || !s.ips.is_empty()));
    let containers_ready = containers_ready(facts, status);
    let ready = ready(facts, &containers_ready);
    let mut findings = vec![
        Finding {
            kind: OWNED[0],
            holds: up,
            reason: None,
            message: None,
        },
        initialised(facts, status),
        ready,
        containers_ready,
        Finding::yes("PodScheduled"),
    ];
    let over = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    if let Some(ending) = facts.ending.filter(|e| e.disruption && over) {
        findings.push(Finding {
            kind: "DisruptionTarget",
            holds: true,
            reason: Some("TerminationByKubelet".to_owned()),
            message: Some(ending.message.clone()),
        });
    }
    let old = facts
        .old()
        .and_then(|o| o.conditions.clone())
        .unwrap_or_default();
    let mut conditions: Vec<PodCondition> = findings
        .into_iter()
        .map(|f| condition(facts, f, &old))
        .collect();
    conditions.extend(facts.resizes.iter().map(|r| resizing(facts, r, &old)));
    let kept = old
        .into_iter()
        .filter(|o| !OWNED.contains(&o.type_.as_str()))
        .filter(|o| !conditions.iter().any(|c| c.type_ == o.type_));
    let kept: Vec<PodCondition> = kept.collect();
    conditions.extend(kept);
    status.conditions = Some(conditions);
}

fn condition(facts: &Facts<'_>, finding: Finding, old: &[PodCondition]) -> PodCondition {
    let status = if finding.holds { "True" } else { "False" };
    let before = old
        .iter()
        .find(|c| c.type_ == finding.kind && c.status == status);
    let since = before.and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason,
        message: finding.message,
        last_transition_time: since.or_else(|| Some(Time(seconds(facts.now)))),
        observed_generation: facts.pod.metadata.generation,
        ..PodCondition::default()
    }
}

/// A resize. Its time is when its reason changed, as upstream has it.
fn resizing(facts: &Facts<'_>, resize: &resize::Condition, old: &[PodCondition]) -> PodCondition {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let before = old
        .iter()
        .find(|c| c.type_ == resize.kind && text(&c.reason) == text(&resize.reason));
    let since = before.and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: resize.kind.to_owned(),
        status: "True".to_owned(),
        reason: resize.reason.clone(),
        message: resize.message.clone(),
        last_probe_time: Some(Time(seconds(facts.now))),
        last_transition_time: since.or_else(|| Some(Time(seconds(facts.now)))),
        observed_generation: resize.generation,
    }
}

fn initialised(facts: &Facts<'_>, status: &PodStatus) -> Finding {
    const KIND: &str = "Initialized";
    let inits = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let mains = status.container_statuses.as_deref().unwrap_or_default();
    if status.phase.as_deref() == Some("Succeeded") {
        let mut finding = Finding::yes(KIND);
        finding.reason = Some("PodCompleted".to_owned()).filter(|_| !inits.is_empty());
        return finding;
    }
    if mains.iter().any(|c| c.container_id.is_some()) {
        return Finding::yes(KIND);
    }
    let done = |(role, name): &(Role, &str)| {
        let found = inits.iter().find(|c| c.name == *name);
        found.is_some_and(|c| match role {
            Role::Sidecar => c.started == Some(true),
            _ => exit_code(c) == Some(0),
        })
    };
    let inits = spec::containers(facts.pod).filter(|(role, _)| *role != Role::Main);
    let open = inits
        .map(|(role, c)| (role, c.name.as_str()))
        .filter(|c| !done(c));
    let open: Vec<&str> = open.map(|(_, name)| name).collect();
    if open.is_empty() {
        return Finding::yes(KIND);
    }
    let message = format!("containers with incomplete status: [{}]", open.join(" "));
    Finding::no(KIND, "ContainersNotInitialized", message)
}

fn containers_ready(facts: &Facts<'_>, status: &PodStatus) -> Finding {
    const KIND: &str = "ContainersReady";
    match status.phase.as_deref() {
        Some("Succeeded") => return Finding::no(KIND, "PodCompleted", String::new()),
        Some("Failed") => return Finding::no(KIND, "PodFailed", String::new()),
        _ => {}
    }
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let all: Vec<&ContainerStatus> = lists.into_iter().flatten().flatten().collect();
    let wanted = spec::containers(facts.pod).filter(|(role, _)| *role != Role::Init);
    let unready = |name: &str| !all.iter().any(|c| c.name == name && c.ready);
    let unready: Vec<&str> = wanted
        .map(|(_, c)| c.name.as_str())
        .filter(|n| unready(n))
        .collect();
    if unready.is_empty() {
        return Finding::yes(KIND);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Finding::no(KIND, "ContainersNotReady", message)
}

fn ready(facts: &Facts<'_>, containers: &Finding) -> Finding {
    const KIND: &str = "Ready";
    if !containers.holds {
        let reason = containers.reason.as_deref().unwrap_or_default();
        return Finding::no(KIND, reason, containers.message.clone().unwrap_or_default());
    }
    let conditions = facts
        .old()
        .and_then(|o| o.conditions.as_deref())
        .unwrap_or_default();
    let gates = spec::spec(facts.pod)
        .readiness_gates
        .as_deref()
        .unwrap_or_default();
    let closed = gates.iter().filter_map(|gate| {
        let kind = &gate.condition_type;
        let Some(found) = conditions.iter().find(|c| c.type_ == *kind) else {
            return Some(format!(
                "corresponding condition of pod readiness gate {kind:?} does not exist."
            ));
        };
        let status = &found.status;
        (status != "True").then(|| {
            format!("the status of pod readiness gate {kind:?} is not \"True\", but {status}")
        })
    });
    let closed: Vec<String> = closed.collect();
    match closed.is_empty() {
        true => Finding::yes(KIND),
        false => Finding::no(KIND, "ReadinessGatesNotReady", closed.join(", ")),
    }
}
