//! The phase of a pod.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::Facts;
use super::container::exit_code;
use crate::spec::{self, Role};

/// Sets phase, reason and message.
pub(super) fn decide(facts: &Facts<'_>, status: &mut PodStatus) {
    let old = facts
        .old()
        .and_then(|o| o.phase.as_deref())
        .unwrap_or("Pending");
    let fresh = match facts.ending {
        Some(_) => "Failed",
        None => phase(facts, status),
    };
    let over = |phase: &str| matches!(phase, "Failed" | "Succeeded");
    let phase = match () {
        // What is over is over.
        () if over(old) => old,
        // Not before nothing can run any more.
        () if over(fresh) && !facts.terminal && running_may_be(status) => old,
        () if facts.terminal && !over(fresh) => "Failed",
        () => fresh,
    };
    status.phase = Some(phase.to_owned());
    if let Some(ending) = facts.ending {
        status.reason = Some(ending.reason.clone());
        status.message = Some(ending.message.clone());
    } else if let Some(old_status) = facts.old().filter(|_| over(phase)) {
        status.reason.clone_from(&old_status.reason);
        status.message.clone_from(&old_status.message);
    }
}

fn running_may_be(status: &PodStatus) -> bool {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    all.any(|c| c.state.as_ref().is_some_and(|s| s.running.is_some()))
}

#[derive(Default)]
struct Count {
    waiting: usize,
    running: usize,
    stopped: usize,
    stopped_well: usize,
    restarting: usize,
}

fn phase(facts: &Facts<'_>, status: &PodStatus) -> &'static str {
    let pod = facts.pod;
    let mains = status.container_statuses.as_deref().unwrap_or_default();
    let inits = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let of =
        |list: &'_ [ContainerStatus], name: &str| list.iter().find(|c| c.name == name).cloned();
    let mains_began = mains.iter().any(began);
    let mut pending = false;
    let mut count = Count::default();
    for (role, container) in spec::containers(pod).filter(|(role, _)| *role != Role::Main) {
        let Some(found) = of(inits, &container.name) else {
            continue;
        };
        if role == Role::Sidecar {
            pending |= !mains_began && found.started != Some(true);
            count.running += usize::from(is_running(&found));
            continue;
        }
        match exit_code(&found).or_else(|| last_exit(&found)) {
            Some(0) => {}
            Some(code) => {
                let restarts = spec::restarts(pod, container, role, code);
                match restarts && !facts.terminating {
                    true => pending = true,
                    false => return "Failed",
                }
            }
            None => pending |= !mains_began,
        }
    }
    for (_, container) in spec::containers(pod).filter(|(role, _)| *role == Role::Main) {
        let Some(found) = of(mains, &container.name) else {
            continue;
        };
        let restarts = |code| spec::restarts(pod, container, Role::Main, code);
        if is_running(&found) {
            count.running += 1;
        } else if let Some(code) = exit_code(&found).or_else(|| last_exit(&found)) {
            count.stopped += 1;
            count.stopped_well += usize::from(code == 0);
            count.restarting += usize::from(restarts(code));
        } else {
            count.waiting += 1;
        }
    }
    match count {
        _ if pending && !mains_began => "Pending",
        // One that was stopped before it began has not done what it was for.
        Count { waiting: 1.., .. } if facts.terminal => "Failed",
        Count { waiting: 1.., .. } => "Pending",
        Count { running: 1.., .. } => "Running",
        Count {
            stopped: 1..,
            restarting: 1..,
            ..
        } if !facts.terminating => "Running",
        Count {
            stopped,
            stopped_well,
            ..
        } if stopped > 0 => match stopped == stopped_well {
            true => "Succeeded",
            false => "Failed",
        },
        _ => "Pending",
    }
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

/// How a container that waits ended last.
fn last_exit(status: &ContainerStatus) -> Option<i32> {
    status.state.as_ref().filter(|s| s.waiting.is_some())?;
    Some(status.last_state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn began(status: &ContainerStatus) -> bool {
    is_running(status) || exit_code(status).is_some() || last_exit(status).is_some()
}
