//! One container from its image to its first breath, and what it leaves behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client_runtime::Severity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube_kit::duration::go;
use tokio::fs;

use super::start::Turn;
use super::{AFTER_ERROR, Worker};
use crate::cri::{self, ContainerState};
use crate::decide;
use crate::seen::Seen;
use crate::spec::{self, Role};
use crate::status::Waiting;
use crate::{images, lifecycle};

impl Worker {
    /// Starts one container. If it waits, the reason is noted, and the error is when to try again.
    pub(super) async fn start_one(
        &mut self,
        turn: &Turn<'_>,
        role: Role,
        container: &Container,
        target: Option<String>,
    ) -> Result<(), Duration> {
        let name = container.name.clone();
        let place = lifecycle::place(role, &name);
        let pod = turn.pod;
        if let Some(rest) = self.crash_loop(pod, container, turn.seen, &place) {
            return Err(rest);
        }
        let outcome = self
            .make_and_start(turn, role, container, target, &place)
            .await;
        let Err(waiting) = outcome else {
            self.waiting.remove(&name);
            return Ok(());
        };
        let Some(waiting) = waiting else {
            return Err(Duration::ZERO);
        };
        tracing::info!(pod = %spec::full_name(pod), container = name, reason = waiting.reason, waiting.message, "a container waits");
        self.waiting.insert(name, waiting);
        Err(AFTER_ERROR)
    }

    /// Whether a container that ended must wait before it starts again; if not, that it starts is counted.
    fn crash_loop(
        &mut self,
        pod: &Pod,
        container: &Container,
        seen: &Seen,
        place: &str,
    ) -> Option<Duration> {
        let last = seen.container(&container.name)?;
        if last.state != ContainerState::Exited {
            return None;
        }
        // With other resources it may do better.
        let size = serde_json::to_string(&container.resources).unwrap_or_default();
        let image = container.image.as_deref().unwrap_or_default();
        let key = format!("{}|{image}|{size}", container.name);
        let now = Timestamp::now();
        let since = Timestamp::from_nanosecond(last.finished_at.into()).unwrap_or(now);
        if let Some(rest) = self.backoff.remaining(&key, since, now) {
            let name = &container.name;
            let delay = go::print(self.backoff.delay(&key));
            let full = spec::full_name(pod);
            let text = format!("Back-off restarting failed container {name} in pod {full}");
            self.ctx
                .say_of(pod, place, Severity::Warning, "BackOff", text);
            let waiting = Waiting {
                reason: "CrashLoopBackOff".to_owned(),
                message: format!("back-off {delay} restarting failed container={name} pod={full}"),
            };
            self.waiting.insert(name.clone(), waiting);
            return Some(rest);
        }
        self.backoff.raise(&key, since, now);
        None
    }

    /// `Err(None)` is that the pod is to end meanwhile.
    async fn make_and_start(
        &mut self,
        turn: &Turn<'_>,
        role: Role,
        container: &Container,
        target: Option<String>,
        place: &str,
    ) -> Result<(), Option<Waiting>> {
        let ctx = Arc::clone(&self.ctx);
        let pod = turn.pod;
        let pulled = images::ensure(&ctx, pod, container, place, &turn.pull_secrets);
        let image = match self.unless_ending(pulled).await {
            None => return Err(None),
            Some(image) => image.map_err(Some)?,
        };
        let failed = |reason: &str, message: String| {
            ctx.say_of(
                pod,
                place,
                Severity::Warning,
                "Failed",
                format!("Error: {message}"),
            );
            Some(Waiting {
                reason: reason.to_owned(),
                message,
            })
        };
        let restart_count = self.restart_count(turn, container).await;
        self.prune(turn.seen, &container.name).await;
        let config = self
            .container_config(turn, role, container, target, &image, restart_count)
            .await;
        let config = config.map_err(|message| failed("CreateContainerConfigError", message))?;
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: turn.sandbox_id.clone(),
            config: Some(config),
            sandbox_config: Some(turn.sandbox.clone()),
        };
        let id = ctx.runtime.create_container(request).await;
        let id = id
            .map_err(|s| failed("CreateContainerError", s.message().to_owned()))?
            .container_id;
        let given = container.resources.clone().unwrap_or_default();
        ctx.actuated
            .set_container(&self.uid, &container.name, given);
        ctx.say_of(pod, place, Severity::Normal, "Created", "Container created");
        let request = cri::StartContainerRequest {
            container_id: id.clone(),
        };
        let started = ctx.runtime.start_container(request).await;
        started.map_err(|s| failed("RunContainerError", s.message().to_owned()))?;
        ctx.say_of(pod, place, Severity::Normal, "Started", "Container started");
        self.link_log(pod, container, &id, restart_count).await;
        self.post_start(turn, container, &id, place).await
    }

    async fn post_start(
        &mut self,
        turn: &Turn<'_>,
        container: &Container,
        id: &str,
        place: &str,
    ) -> Result<(), Option<Waiting>> {
        let Some(hook) = container
            .lifecycle
            .as_ref()
            .and_then(|l| l.post_start.as_ref())
        else {
            return Ok(());
        };
        // The container already runs, and everybody may see that.
        self.waiting.remove(&container.name);
        let _ = self.look(false, false).await;
        let ctx = Arc::clone(&self.ctx);
        let ip = turn.ips.first().cloned().unwrap_or_default();
        let run = lifecycle::run_hook(&ctx, container, hook, id, &ip);
        match self.unless_ending(run).await {
            None => Err(None),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                tracing::info!(pod = %spec::full_name(turn.pod), container = container.name, error, "a postStart hook failed");
                ctx.say_of(
                    turn.pod,
                    place,
                    Severity::Warning,
                    "FailedPostStartHook",
                    "PostStartHook failed",
                );
                let kill = decide::Kill {
                    id: id.to_owned(),
                    name: container.name.clone(),
                    message: "FailedPostStartHook".to_owned(),
                    cause: decide::Cause::Other,
                };
                let _ = lifecycle::kill_one(&ctx, turn.pod, &ip, &kill).await;
                Err(Some(Waiting {
                    reason: "PostStartHookError".to_owned(),
                    message: format!("PostStartHook failed: {error}"),
                }))
            }
        }
    }

    /// How often it was started: what the runtime knows, or what logs are left.
    async fn restart_count(&self, turn: &Turn<'_>, container: &Container) -> u32 {
        if let Some(last) = turn.seen.container(&container.name) {
            return u32::try_from(last.restart_count + 1).unwrap_or(0);
        }
        let logs = self.ctx.log_directory(turn.pod).join(&container.name);
        let mut most = None;
        if let Ok(mut entries) = fs::read_dir(&logs).await {
            while let Ok(Some(entry)) = entries.next_entry().await {
                let name = entry.file_name().into_string().unwrap_or_default();
                let number = name
                    .split_once(".log")
                    .and_then(|(n, _)| n.parse::<u32>().ok());
                most = most.max(number);
            }
        }
        most.map_or(0, |n| n + 1)
    }

    /// Keeps one container of a name that ended, and none that never began.
    async fn prune(&self, seen: &Seen, name: &str) {
        let ended = seen.containers.iter().filter(|c| c.name == name);
        let mut kept = false;
        for container in ended {
            match container.state {
                ContainerState::Exited if !kept => kept = true,
                ContainerState::Exited | ContainerState::Created => {
                    self.remove(&container.id).await
                }
                _ => {}
            }
        }
    }

    pub(super) async fn remove(&self, id: &str) {
        let request = cri::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        match self.ctx.runtime.remove_container(request).await {
            Err(status) if !cri::is_not_found(&status) => {
                tracing::warn!(
                    container = id,
                    error = status.message(),
                    "a container cannot be removed"
                );
            }
            _ => {}
        }
    }

    /// The link by which log shippers find the container's output.
    async fn link_log(&self, pod: &Pod, container: &Container, id: &str, restart_count: u32) {
        let log = self
            .ctx
            .log_directory(pod)
            .join(&container.name)
            .join(format!("{restart_count}.log"));
        let Some(base) = Path::new(&self.ctx.settings.config.pod_logs_dir).parent() else {
            return;
        };
        let folder = base.join("containers");
        let name = format!(
            "{}_{}_{}-{id}.log",
            spec::name(pod),
            spec::namespace(pod),
            container.name
        );
        let _ = fs::create_dir_all(&folder).await;
        if let Err(error) = fs::symlink(&log, folder.join(name)).await {
            tracing::debug!(%error, "a log has no link");
        }
    }
}
