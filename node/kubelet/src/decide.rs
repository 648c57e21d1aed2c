//! What to do next for a pod, from its spec and what the runtime has: upstream's `computePodActions` as a function.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::cri::ContainerState;
use crate::seen::{self, Seen};
use crate::spec::{self, Role};

/// What probes have found about a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Unknown,
    /// It is well.
    Success,
    /// It is not.
    Failure,
}

/// The probes' verdicts by the runtime's container id: liveness and start-up.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    /// Of liveness probes.
    pub liveness: BTreeMap<String, Verdict>,
    /// Of start-up probes.
    pub startup: BTreeMap<String, Verdict>,
}

impl Verdicts {
    fn failed(map: &BTreeMap<String, Verdict>, id: &str) -> bool {
        map.get(id) == Some(&Verdict::Failure)
    }

    /// Whether a running container has started as far as its start-up probe is concerned.
    pub fn started(&self, container: &Container, id: &str) -> bool {
        container.startup_probe.is_none() || self.startup.get(id) == Some(&Verdict::Success)
    }
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its liveness probe failed.
    Liveness,
    /// Its start-up probe failed.
    Startup,
    /// It is not what the pod wants any more, or nobody knows its state.
    Other,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct Kill {
    /// The runtime's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The event's text.
    pub message: String,
    /// Why.
    pub cause: Cause,
}

/// What is known beside the spec and the runtime.
#[derive(Clone, Copy)]
struct Known<'a> {
    verdicts: &'a Verdicts,
    resized: &'a BTreeSet<String>,
}

/// What to do, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Actions {
    /// Stop every container and the sandbox.
    pub kill_pod: bool,
    /// Make a new sandbox.
    pub create_sandbox: bool,
    /// The number of that sandbox, or of the one there is.
    pub attempt: u32,
    /// The sandbox to go on with.
    pub sandbox_id: Option<String>,
    /// Single containers to stop.
    pub kill: Vec<Kill>,
    /// Ephemeral containers to start, by their place.
    pub ephemeral: Vec<usize>,
    /// Init containers and sidecars to start, by their place.
    pub init: Vec<usize>,
    /// Main containers to start, by their place.
    pub main: Vec<usize>,
}

/// Decides. A pod that is being deleted is not for this function. `resized` must start anew to get other resources.
pub fn decide(pod: &Pod, seen: &Seen, verdicts: &Verdicts, resized: &BTreeSet<String>) -> Actions {
    let (new, attempt, sandbox_id) = sandbox_changed(pod, seen);
    let mut actions = Actions {
        kill_pod: new,
        create_sandbox: new,
        attempt,
        sandbox_id,
        ..Actions::default()
    };
    if new {
        start_over(pod, seen, &mut actions);
        return actions;
    }
    for (at, container) in spec::ephemeral(pod).iter().enumerate() {
        if seen.current(&container.name).is_none() {
            actions.ephemeral.push(at);
        }
    }
    let known = Known { verdicts, resized };
    if !initialise(pod, seen, known, &mut actions) || actions.kill_pod {
        return actions;
    }
    let kept = main_containers(pod, seen, known, &mut actions);
    if kept == 0 && actions.main.is_empty() {
        // This is how a pod that has ended loses its sandbox, and sidecars end with what they serve.
        actions.kill_pod = true;
        actions.init.clear();
    }
    actions
}

/// Whether the pod needs a new sandbox, its number, and the sandbox to go on with.
fn sandbox_changed(pod: &Pod, seen: &Seen) -> (bool, u32, Option<String>) {
    let Some(newest) = seen.sandboxes.first() else {
        return (true, 0, None);
    };
    let id = Some(newest.id.clone());
    let ready = seen.sandboxes.iter().filter(|s| s.ready).count();
    let host = spec::host_network(pod);
    let changed = ready > 1
        || !newest.ready
        || newest.host_network != host
        || (!host && newest.ips.is_empty());
    match changed {
        true => (true, newest.attempt + 1, id),
        false => (false, newest.attempt, id),
    }
}

fn start_over(pod: &Pod, seen: &Seen, actions: &mut Actions) {
    let policy = spec::spec(pod)
        .restart_policy
        .as_deref()
        .unwrap_or("Always");
    if policy == "Never" && actions.attempt != 0 && !seen.containers.is_empty() {
        actions.create_sandbox = false;
        return;
    }
    let succeeded = |container: &Container| {
        let found = seen.container(&container.name);
        found.is_some_and(|c| c.state == ContainerState::Exited && c.exit_code == 0)
    };
    let mains = spec::spec(pod).containers.iter().enumerate();
    let start = mains.filter(|(_, c)| policy == "Always" || !succeeded(c));
    let start: Vec<usize> = start.map(|(at, _)| at).collect();
    if start.is_empty() {
        actions.create_sandbox = false;
    } else if spec::init_containers(pod).is_empty() {
        actions.main = start;
    } else {
        actions.init = vec![0];
    }
}

/// Init containers and sidecars; whether the main containers may start.
fn initialise(pod: &Pod, seen: &Seen, known: Known<'_>, actions: &mut Actions) -> bool {
    let containers = spec::init_containers(pod);
    let initialised = spec::spec(pod)
        .containers
        .iter()
        .any(|c| seen.current(&c.name).is_some());
    let latest = containers
        .iter()
        .rposition(|c| seen.current(&c.name).is_some());
    let earlier = match (initialised, latest) {
        (true, _) => containers.len(),
        (false, Some(latest)) => latest,
        (false, None) => 0,
    };
    // What came before has done its part; of it only sidecars are kept up.
    for (at, container) in containers.iter().enumerate().take(earlier) {
        if spec::is_sidecar(container) {
            keep_up(at, container, seen, known, actions);
        }
    }
    if initialised || containers.is_empty() {
        return true;
    }
    let Some(latest) = latest else {
        actions.init.push(0);
        return false;
    };
    let container = &containers[latest];
    let done = match spec::is_sidecar(container) {
        true => keep_up(latest, container, seen, known, actions),
        false => run_to_end(pod, latest, container, seen, actions),
    };
    if done && latest + 1 < containers.len() {
        actions.init.push(latest + 1);
        return false;
    }
    done
}

/// Restarts a sidecar that ended or fails; whether it has started.
fn keep_up(
    at: usize,
    container: &Container,
    seen: &Seen,
    known: Known<'_>,
    actions: &mut Actions,
) -> bool {
    let verdicts = known.verdicts;
    let Some(found) = seen.current(&container.name) else {
        actions.init.push(at);
        return false;
    };
    if found.state != ContainerState::Running {
        if found.state == ContainerState::Unknown {
            actions.kill.push(unknown(found));
        }
        actions.init.push(at);
        return false;
    }
    let failed = [
        (
            Verdicts::failed(&verdicts.startup, &found.id),
            Cause::Startup,
            "startup",
        ),
        (
            Verdicts::failed(&verdicts.liveness, &found.id),
            Cause::Liveness,
            "liveness",
        ),
    ];
    if let Some((_, cause, word)) = failed.into_iter().find(|(failed, ..)| *failed) {
        actions.kill.push(Kill {
            id: found.id.clone(),
            name: found.name.clone(),
            message: format!("Init container {} failed {word} probe", found.name),
            cause,
        });
        actions.init.push(at);
        return false;
    }
    if known.resized.contains(&found.name) {
        actions.kill.push(resize(found));
        actions.init.push(at);
        return false;
    }
    verdicts.started(container, &found.id)
}

/// Whether an init container has ended well; starts it again or gives the pod up if it has not.
fn run_to_end(
    pod: &Pod,
    at: usize,
    container: &Container,
    seen: &Seen,
    actions: &mut Actions,
) -> bool {
    let Some(found) = seen.current(&container.name) else {
        actions.init.push(at);
        return false;
    };
    match found.state {
        ContainerState::Running => false,
        ContainerState::Exited if found.exit_code == 0 => true,
        ContainerState::Exited => {
            match spec::restarts(pod, container, Role::Init, found.exit_code) {
                true => actions.init.push(at),
                false => actions.kill_pod = true,
            }
            false
        }
        // The runtime could not start it: it is made anew.
        ContainerState::Created => {
            actions.init.push(at);
            false
        }
        ContainerState::Unknown => {
            actions.kill.push(unknown(found));
            actions.init.push(at);
            false
        }
    }
}

/// The main containers; how many go on as they are.
fn main_containers(pod: &Pod, seen: &Seen, known: Known<'_>, actions: &mut Actions) -> usize {
    let mut kept = 0;
    for (at, container) in spec::spec(pod).containers.iter().enumerate() {
        let Some(found) = seen.current(&container.name) else {
            // One that ended in the sandbox before has ended, as far as it does not restart.
            let before = seen
                .container(&container.name)
                .filter(|c| c.state == ContainerState::Exited);
            if before.is_none_or(|c| spec::restarts(pod, container, Role::Main, c.exit_code)) {
                actions.main.push(at);
            }
            continue;
        };
        match found.state {
            ContainerState::Running => {
                let Some((message, cause)) = why_stop(container, found, known.verdicts) else {
                    if known.resized.contains(&found.name) {
                        actions.kill.push(resize(found));
                        actions.main.push(at);
                        continue;
                    }
                    kept += 1;
                    continue;
                };
                let policy = spec::spec(pod).restart_policy.as_deref();
                let restart = cause == Cause::Other || policy != Some("Never");
                let suffix = if restart { ", will be restarted" } else { "" };
                actions.kill.push(Kill {
                    id: found.id.clone(),
                    name: found.name.clone(),
                    message: message + suffix,
                    cause,
                });
                if restart {
                    actions.main.push(at);
                }
            }
            ContainerState::Exited => {
                if spec::restarts(pod, container, Role::Main, found.exit_code) {
                    actions.main.push(at);
                }
            }
            ContainerState::Created => actions.main.push(at),
            ContainerState::Unknown => {
                actions.kill.push(unknown(found));
                actions.main.push(at);
            }
        }
    }
    kept
}

fn why_stop(
    container: &Container,
    found: &seen::Container,
    verdicts: &Verdicts,
) -> Option<(String, Cause)> {
    let name = &container.name;
    if changed(container, found) {
        return Some((format!("Container {name} definition changed"), Cause::Other));
    }
    if Verdicts::failed(&verdicts.liveness, &found.id) {
        return Some((
            format!("Container {name} failed liveness probe"),
            Cause::Liveness,
        ));
    }
    if Verdicts::failed(&verdicts.startup, &found.id) {
        return Some((
            format!("Container {name} failed startup probe"),
            Cause::Startup,
        ));
    }
    None
}

/// A hash that was not made here (another kubelet's) counts as unchanged: containers are taken over, not restarted.
fn changed(container: &Container, found: &seen::Container) -> bool {
    match found.hash.strip_prefix(OWN_HASH) {
        Some(hash) => hash != spec::hash(container),
        None => false,
    }
}

/// What our hashes begin with, as no hexadecimal number does.
pub const OWN_HASH: &str = "k";

fn resize(found: &seen::Container) -> Kill {
    Kill {
        id: found.id.clone(),
        name: found.name.clone(),
        message: format!("Container {} resize requires restart", found.name),
        cause: Cause::Other,
    }
}

fn unknown(found: &seen::Container) -> Kill {
    Kill {
        id: found.id.clone(),
        name: found.name.clone(),
        message: format!(
            "Container is in {:?} state, try killing it before restart",
            "unknown"
        ),
        cause: Cause::Other,
    }
}
