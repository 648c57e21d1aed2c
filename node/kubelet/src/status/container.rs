//! The states of single containers.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Facts, seconds};
use crate::cri::ContainerState as Seen;
use crate::decide::Verdict;
use crate::resize;
use crate::seen;
use crate::spec::{self, Role};

/// The statuses of the containers with these roles: init containers in the spec's order, the others by name.
pub(super) fn statuses(facts: &Facts<'_>, roles: &[Role]) -> Option<Vec<ContainerStatus>> {
    let containers = spec::containers(facts.pod).filter(|(role, _)| roles.contains(role));
    let mut found: Vec<_> = containers.map(|(role, c)| status(facts, role, c)).collect();
    if roles == [Role::Main] {
        found.sort_by(|a, b| a.name.cmp(&b.name));
    }
    Some(found).filter(|list| !list.is_empty())
}

pub(super) fn ephemeral(facts: &Facts<'_>) -> Option<Vec<ContainerStatus>> {
    let containers = spec::ephemeral(facts.pod).iter().map(spec::as_container);
    let mut found: Vec<_> = containers
        .map(|c| status(facts, Role::Ephemeral, &c))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Some(found).filter(|list| !list.is_empty())
}

fn status(facts: &Facts<'_>, role: Role, container: &Container) -> ContainerStatus {
    let mut status = match facts.seen.container(&container.name) {
        Some(found) => from_runtime(facts, container, found),
        None => from_memory(facts, role, container),
    };
    if let Some(waiting) = facts.waiting.get(&container.name) {
        wait(facts, role, container, &mut status, waiting);
    }
    let running = status.state.as_ref().is_some_and(|s| s.running.is_some());
    let id = facts
        .seen
        .container(&container.name)
        .map(|c| c.id.as_str())
        .unwrap_or_default();
    let started = running && facts.verdicts.started(container, id);
    let readiness = facts.readiness.get(id).copied();
    let well = container.readiness_probe.is_none() || readiness == Some(Verdict::Success);
    status.started = Some(started);
    status.ready = match role {
        Role::Init => exit_code(&status) == Some(0),
        Role::Ephemeral => false,
        Role::Main | Role::Sidecar => started && well,
    };
    status
}

/// What a container returned, if it has ended.
pub(super) fn exit_code(status: &ContainerStatus) -> Option<i32> {
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn from_runtime(
    facts: &Facts<'_>,
    container: &Container,
    found: &seen::Container,
) -> ContainerStatus {
    let before = facts.seen.previous(&container.name);
    let before = before
        .filter(|c| c.state == Seen::Exited)
        .map(|c| state(facts, c));
    let kept = || old(facts, &container.name).and_then(|o| o.last_state.clone());
    let running = found.state == Seen::Running;
    let allocated = container.resources.clone().unwrap_or_default();
    let actuated = facts.actuated.containers.get(&container.name);
    let resources = match running {
        true => resize::in_effect(&allocated, actuated, found.limits.as_ref()),
        false => allocated.clone(),
    };
    ContainerStatus {
        name: container.name.clone(),
        container_id: Some(format!("containerd://{}", found.id)),
        image: container
            .image
            .clone()
            .unwrap_or_else(|| found.image.clone()),
        image_id: found.image_ref.clone(),
        restart_count: found.restart_count,
        state: Some(state(facts, found)),
        last_state: before
            .or_else(kept)
            .or_else(|| Some(ContainerState::default())),
        allocated_resources: allocated.requests,
        resources: Some(resources),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    }
}

fn state(facts: &Facts<'_>, found: &seen::Container) -> ContainerState {
    let mut state = ContainerState::default();
    match found.state {
        Seen::Running => {
            state.running = Some(ContainerStateRunning {
                started_at: time(found.started_at),
            });
        }
        Seen::Exited => {
            let words = facts
                .messages
                .get(&found.id)
                .map(String::as_str)
                .unwrap_or_default();
            let parts = [found.message.as_str(), words];
            let message = parts
                .into_iter()
                .filter(|m| !m.is_empty())
                .collect::<Vec<_>>()
                .join(": ");
            state.terminated = Some(ContainerStateTerminated {
                container_id: Some(format!("containerd://{}", found.id)),
                exit_code: found.exit_code,
                reason: some(&found.reason),
                message: some(&message),
                started_at: time(found.started_at),
                finished_at: time(found.finished_at),
                signal: None,
            });
        }
        Seen::Created | Seen::Unknown => state.waiting = Some(ContainerStateWaiting::default()),
    }
    state
}

/// The runtime has nothing: it has not come to it, or lost it.
fn from_memory(facts: &Facts<'_>, role: Role, container: &Container) -> ContainerStatus {
    let default = match spec::init_containers(facts.pod).is_empty() {
        true => "ContainerCreating",
        false => "PodInitializing",
    };
    let waiting = ContainerStateWaiting {
        reason: Some(default.to_owned()),
        message: None,
    };
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(ContainerState {
            waiting: Some(waiting),
            ..ContainerState::default()
        }),
        last_state: Some(ContainerState::default()),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    };
    let Some(old) = old(facts, &container.name) else {
        return status;
    };
    let was = old.state.clone().unwrap_or_default();
    if was.terminated.is_some() {
        return old.clone();
    }
    status.restart_count = old.restart_count;
    status.last_state.clone_from(&old.last_state);
    if was.running.is_none() {
        return status;
    }
    if role == Role::Init && facts.seen.sandboxes.iter().any(|s| s.ready) {
        status.state = Some(ended(0, "Completed", INIT_GONE));
        return status;
    }
    if facts.terminating || facts.terminal {
        status.state = Some(ended(137, "ContainerStatusUnknown", GONE));
    } else {
        status.last_state = Some(ended(137, "ContainerStatusUnknown", GONE_RUNNING));
        status.restart_count += 1;
    }
    status
}

const INIT_GONE: &str = "Unable to get init container status from container runtime and pod has been initialized, \
     treat it as exited normally";
const GONE: &str = "The container could not be located when the pod was terminated";
const GONE_RUNNING: &str = "The container could not be located when the pod was deleted.  The container used to be Running";

fn ended(exit_code: i32, reason: &str, message: &str) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            reason: some(reason),
            message: some(message),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// Shows why a container waits; how it ended last moves to where that belongs. Only what will be started waits.
fn wait(
    facts: &Facts<'_>,
    role: Role,
    container: &Container,
    status: &mut ContainerStatus,
    waiting: &super::Waiting,
) {
    let state = status.state.take().unwrap_or_default();
    let starts = |code| !facts.terminating && spec::restarts(facts.pod, container, role, code);
    let stays = match &state.terminated {
        Some(terminated) => !starts(terminated.exit_code),
        None => state.running.is_some() || facts.terminating,
    };
    if stays {
        status.state = Some(state);
        return;
    }
    if state.terminated.is_some() {
        status.last_state = Some(state);
    }
    status.state = Some(ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: some(&waiting.reason),
            message: some(&waiting.message),
        }),
        ..ContainerState::default()
    });
}

fn old<'a>(facts: &'a Facts<'_>, name: &str) -> Option<&'a ContainerStatus> {
    let old = facts.old()?;
    let lists = [
        &old.container_statuses,
        &old.init_container_statuses,
        &old.ephemeral_container_statuses,
    ];
    lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|c| c.name == name)
}

fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let found = mounts.iter().map(|m| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only.filter(|yes| *yes),
        recursive_read_only: m.read_only.filter(|yes| *yes).map(|_| {
            m.recursive_read_only
                .clone()
                .unwrap_or_else(|| "Disabled".to_owned())
        }),
        ..VolumeMountStatus::default()
    });
    Some(found.collect()).filter(|list: &Vec<_>| !list.is_empty())
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn time(nanoseconds: i64) -> Option<Time> {
    let at = Timestamp::from_nanosecond(nanoseconds.into()).ok();
    at.filter(|_| nanoseconds != 0).map(|at| Time(seconds(at)))
}
