//! Stopping containers as their pods wish: hooks, the order of sidecars, and time that only runs out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use client_runtime::Severity;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use tokio::sync::watch;

use crate::context::Context;
use crate::cri::{self, ContainerState};
use crate::decide::{Cause, Kill};
use crate::http_get;
use crate::seen::{self, Seen};
use crate::spec::{self, Role};

/// The least time that containers get to end.
const LEAST_GRACE: i64 = 2;

/// How long a pod's containers may take to end.
pub(crate) fn grace(pod: &Pod) -> i64 {
    let spec = spec::spec(pod)
        .termination_grace_period_seconds
        .unwrap_or(30);
    pod.metadata
        .deletion_grace_period_seconds
        .unwrap_or(spec)
        .max(1)
}

/// Where events say a container is: `spec.containers{c}`.
pub(crate) fn place(role: Role, name: &str) -> String {
    match role {
        Role::Ephemeral => format!("spec.ephemeralContainers{{{name}}}"),
        Role::Init | Role::Sidecar => format!("spec.initContainers{{{name}}}"),
        Role::Main => format!("spec.containers{{{name}}}"),
    }
}

fn find<'a>(pod: &'a Pod, name: &str) -> Option<(Role, &'a Container)> {
    spec::containers(pod).find(|(_, c)| c.name == name)
}

/// Stops one container for a reason of its own.
pub(crate) async fn kill_one(
    ctx: &Context,
    pod: &Pod,
    pod_ip: &str,
    kill: &Kill,
) -> Result<(), tonic::Status> {
    let container = find(pod, &kill.name);
    let probe = container.and_then(|(_, c)| match kill.cause {
        Cause::Liveness => c.liveness_probe.as_ref(),
        Cause::Startup => c.startup_probe.as_ref(),
        Cause::Other => None,
    });
    let seconds = probe
        .and_then(|p| p.termination_grace_period_seconds)
        .unwrap_or_else(|| grace(pod));
    let place = place(container.map_or(Role::Main, |(role, _)| role), &kill.name);
    ctx.say_of(
        pod,
        &place,
        Severity::Normal,
        "Killing",
        kill.message.clone(),
    );
    let begun = Instant::now();
    if let Some((_, container)) = container.filter(|_| seconds > 0) {
        pre_stop(ctx, pod, container, &kill.id, pod_ip, seconds).await;
    }
    stop(ctx, &kill.id, seconds - begun.elapsed().as_secs() as i64).await
}

async fn stop(ctx: &Context, id: &str, seconds: i64) -> Result<(), tonic::Status> {
    let request = cri::StopContainerRequest {
        container_id: id.to_owned(),
        timeout: seconds.max(LEAST_GRACE),
    };
    match ctx.runtime.stop_container(request).await {
        Err(status) if !cri::is_not_found(&status) => Err(status),
        _ => Ok(()),
    }
}

/// Stops every container of a pod and then its sandboxes.
pub(crate) async fn kill_pod(
    ctx: &Context,
    pod: &Pod,
    seen: &Seen,
    pod_ip: &str,
    seconds: i64,
) -> Result<(), tonic::Status> {
    let running: Vec<&seen::Container> = seen
        .containers
        .iter()
        .filter(|c| c.state != ContainerState::Exited)
        .collect();
    let (ended, turns) = watch::channel(BTreeSet::<String>::new());
    let begun = Instant::now();
    let stops = running.iter().map(|container| {
        let before = stops_before(pod, &container.name, &running);
        let mut turns = turns.clone();
        let ended = ended.clone();
        async move {
            let found = find(pod, &container.name);
            let role = found.map_or(Role::Main, |(role, _)| role);
            let text = format!("Stopping container {}", container.name);
            ctx.say_of(
                pod,
                &place(role, &container.name),
                Severity::Normal,
                "Killing",
                text,
            );
            if let Some((_, spec)) =
                found.filter(|_| seconds > 0 && container.state == ContainerState::Running)
            {
                pre_stop(ctx, pod, spec, &container.id, pod_ip, seconds).await;
            }
            let rest = Duration::from_secs(seconds.max(0) as u64).saturating_sub(begun.elapsed());
            let turn = turns.wait_for(|ended| before.iter().all(|name| ended.contains(name)));
            // When the time is over nobody waits for anybody.
            let _ = tokio::time::timeout(rest, turn).await;
            let left = seconds - begun.elapsed().as_secs() as i64;
            let result = stop(ctx, &container.id, left).await;
            ended.send_modify(|ended| {
                ended.insert(container.name.clone());
            });
            result
        }
    });
    let results = join_all(stops).await;
    for sandbox in &seen.sandboxes {
        let request = cri::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id.clone(),
        };
        match ctx.runtime.stop_pod_sandbox(request).await {
            Err(status) if !cri::is_not_found(&status) => return Err(status),
            _ => {}
        }
    }
    results.into_iter().collect()
}

/// Whom a container waits for: a sidecar for all mains and for sidecars after it.
fn stops_before(pod: &Pod, name: &str, running: &[&seen::Container]) -> Vec<String> {
    let all: Vec<(Role, &str)> = spec::containers(pod)
        .map(|(role, c)| (role, c.name.as_str()))
        .collect();
    let Some(at) = all
        .iter()
        .position(|(role, n)| *n == name && *role == Role::Sidecar)
    else {
        return Vec::new();
    };
    let after = all[at + 1..]
        .iter()
        .filter(|(role, _)| *role != Role::Init)
        .map(|(_, name)| *name);
    after
        .filter(|name| running.iter().any(|c| c.name == *name))
        .map(str::to_owned)
        .collect()
}

/// Runs a container's preStop hook, for as long as it has.
async fn pre_stop(
    ctx: &Context,
    pod: &Pod,
    container: &Container,
    id: &str,
    pod_ip: &str,
    seconds: i64,
) {
    let Some(hook) = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.pre_stop.as_ref())
    else {
        return;
    };
    let limit = Duration::from_secs(seconds.max(0) as u64);
    let outcome = tokio::time::timeout(limit, run_hook(ctx, container, hook, id, pod_ip)).await;
    if let Ok(Err(error)) = outcome {
        tracing::info!(pod = %spec::full_name(pod), container = container.name, error, "a preStop hook failed");
        let place = place(
            find(pod, &container.name).map_or(Role::Main, |(role, _)| role),
            &container.name,
        );
        ctx.say_of(
            pod,
            &place,
            Severity::Warning,
            "FailedPreStopHook",
            "PreStopHook failed",
        );
    }
}

/// Runs a hook to its end.
pub(crate) async fn run_hook(
    ctx: &Context,
    container: &Container,
    hook: &LifecycleHandler,
    id: &str,
    pod_ip: &str,
) -> Result<(), String> {
    if let Some(exec) = &hook.exec {
        let request = cri::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: exec.command.clone().unwrap_or_default(),
            timeout: 0,
        };
        let answer = ctx
            .runtime
            .exec_sync(request)
            .await
            .map_err(|s| s.message().to_owned())?;
        return match answer.exit_code {
            0 => Ok(()),
            code => Err(format!(
                "command ended with {code}: {}",
                String::from_utf8_lossy(&answer.stderr).trim()
            )),
        };
    }
    if let Some(get) = &hook.http_get {
        let agent = "kube-lifecycle/1.36";
        return http_get::get(get, container, pod_ip, agent, None)
            .await
            .map(drop);
    }
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.max(0) as u64)).await;
        return Ok(());
    }
    Err("this handler of a hook is not supported".to_owned())
}
