//! Doing what was decided: sandboxes and containers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client_runtime::Severity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kube_kit::duration::go;
use tokio::fs;

use super::{AFTER_ERROR, AFTER_SUCCESS, Worker, pod_ip};
use crate::cri::{self, ContainerState, PodSandboxConfig};
use crate::decide::{self, Actions};
use crate::images::status_text;
use crate::seen::Seen;
use crate::spec::{self, Role};
use crate::status::Waiting;
use crate::volumes::Volumes;
use crate::{images, lifecycle};

/// How soon volumes that were not ready are tried again.
const AFTER_VOLUMES: Duration = Duration::from_secs(2);

/// What all containers of a turn share.
pub(super) struct Turn<'a> {
    pub(super) pod: &'a Arc<Pod>,
    pub(super) seen: &'a Seen,
    sandbox_id: String,
    sandbox: PodSandboxConfig,
    pub(super) ips: Vec<String>,
    pub(super) volumes: Volumes,
    pull_secrets: Vec<Arc<Secret>>,
}

impl Worker {
    /// Brings the pod closer to what it should be; when to look again.
    pub(super) async fn work(
        &mut self,
        pod: &Arc<Pod>,
        seen: &Seen,
    ) -> Result<Duration, tonic::Status> {
        let ctx = Arc::clone(&self.ctx);
        if let Err(error) = ctx.cgroups.ensure(pod, seen.containers.is_empty()).await {
            let text = format!("unable to ensure pod container exists: {error}");
            ctx.say(pod, Severity::Warning, "FailedCreatePodContainer", text);
            return Ok(AFTER_ERROR);
        }
        let directory = ctx.pod_directory(&self.uid);
        if let Err(error) = make_directories(&directory).await {
            ctx.say(
                pod,
                Severity::Warning,
                "FailedToMakePodDataDirectories",
                error.to_string(),
            );
            return Ok(AFTER_ERROR);
        }
        let volumes = match self.unless_ending(ctx.mounts.mount(pod, &directory)).await {
            None => return Ok(Duration::ZERO),
            Some(Ok(volumes)) => volumes,
            Some(Err(error)) => {
                ctx.say(pod, Severity::Warning, error.reason, error.message);
                return Ok(AFTER_VOLUMES);
            }
        };
        self.start_probes(pod);
        let plan = self.resize_plan(pod, seen);
        let actions = decide::decide(pod, seen, &self.board.verdicts(), &plan.restart);
        if actions.kill_pod && !seen.sandboxes.is_empty() {
            if actions.create_sandbox {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                ctx.say(pod, Severity::Normal, "SandboxChanged", text);
            }
            let ip = pod_ip(pod, seen, &ctx.host_ips());
            lifecycle::kill_pod(&ctx, pod, seen, &ip, lifecycle::grace(pod)).await?;
        } else {
            let ip = pod_ip(pod, seen, &ctx.host_ips());
            for kill in &actions.kill {
                lifecycle::kill_one(&ctx, pod, &ip, kill).await?;
            }
        }
        if actions.kill_pod && !actions.create_sandbox {
            return Ok(AFTER_SUCCESS);
        }
        let resized = plan.is_empty() || self.resize(pod, seen, &plan).await;
        let next = self.start_all(pod, seen, &actions, volumes).await?;
        Ok(if resized { next } else { next.min(AFTER_ERROR) })
    }

    async fn start_all(
        &mut self,
        pod: &Arc<Pod>,
        seen: &Seen,
        actions: &Actions,
        volumes: Volumes,
    ) -> Result<Duration, tonic::Status> {
        let ctx = Arc::clone(&self.ctx);
        let config = match self.sandbox_config(pod, actions.attempt).await {
            Ok(config) => config,
            Err(error) => {
                ctx.say(pod, Severity::Warning, "FailedCreatePodSandBox", error);
                return Ok(AFTER_ERROR);
            }
        };
        let (sandbox_id, ips) = match (actions.create_sandbox, &actions.sandbox_id) {
            (false, Some(id)) => {
                let found = seen.sandboxes.first().map(|s| s.ips.clone());
                (id.clone(), found.unwrap_or_default())
            }
            _ => match self.run_sandbox(pod, seen, config.clone()).await? {
                Some(made) => made,
                None => return Ok(AFTER_ERROR),
            },
        };
        let ips = if spec::host_network(pod) {
            ctx.host_ips()
        } else {
            ips
        };
        let turn = Turn {
            pod,
            seen,
            sandbox_id,
            sandbox: config,
            ips,
            volumes,
            pull_secrets: self.pull_secrets(pod, actions).await,
        };
        let mut next = AFTER_SUCCESS;
        let ephemeral = spec::ephemeral(pod);
        let inits = spec::init_containers(pod);
        let role = |c: &Container| {
            if spec::is_sidecar(c) {
                Role::Sidecar
            } else {
                Role::Init
            }
        };
        let mut starts: Vec<(Role, Container, Option<String>)> = Vec::new();
        for at in &actions.ephemeral {
            let container = &ephemeral[*at];
            starts.push((
                Role::Ephemeral,
                spec::as_container(container),
                container.target_container_name.clone(),
            ));
        }
        starts.extend(
            actions
                .init
                .iter()
                .map(|at| (role(&inits[*at]), inits[*at].clone(), None)),
        );
        let mains = &spec::spec(pod).containers;
        starts.extend(
            actions
                .main
                .iter()
                .map(|at| (Role::Main, mains[*at].clone(), None)),
        );
        for (role, container, target) in starts {
            if self.orders.borrow().ends() {
                break;
            }
            if let Err(wait) = self.start_one(&turn, role, &container, target).await {
                next = next.min(wait);
            }
        }
        // A sidecar or an init container that was started makes way for the next at once.
        let more = !actions.init.is_empty() && self.waiting.is_empty();
        Ok(if more {
            next.min(Duration::from_secs(1))
        } else {
            next
        })
    }

    async fn run_sandbox(
        &self,
        pod: &Pod,
        seen: &Seen,
        config: PodSandboxConfig,
    ) -> Result<Option<(String, Vec<String>)>, tonic::Status> {
        let ctx = &self.ctx;
        // A new sandbox begins from the beginning: what init containers did before does not count.
        for container in &seen.containers {
            let init = spec::init_containers(pod)
                .iter()
                .any(|c| c.name == container.name);
            if init && container.state == ContainerState::Exited {
                self.remove(&container.id).await;
            }
        }
        let made = match self.runtime_handler(pod).await {
            Ok(runtime_handler) => {
                let request = cri::RunPodSandboxRequest {
                    config: Some(config),
                    runtime_handler,
                };
                let made = ctx.runtime.run_pod_sandbox(request).await;
                made.map_err(|status| status_text(&status))
            }
            Err(why) => Err(why),
        };
        let id = match made {
            Ok(answer) => answer.pod_sandbox_id,
            Err(why) => {
                let text = format!("Failed to create pod sandbox: {why}");
                ctx.say(pod, Severity::Warning, "FailedCreatePodSandBox", text);
                return Ok(None);
            }
        };
        let request = cri::PodSandboxStatusRequest {
            pod_sandbox_id: id.clone(),
            verbose: false,
        };
        let network = ctx
            .runtime
            .pod_sandbox_status(request)
            .await?
            .status
            .and_then(|s| s.network);
        let network = network.unwrap_or_default();
        let more = network.additional_ips.into_iter().map(|ip| ip.ip);
        let ips = std::iter::once(network.ip)
            .chain(more)
            .filter(|ip| !ip.is_empty())
            .collect();
        Ok(Some((id, ips)))
    }

    /// What the runtime calls the pod's class of runtimes; nothing for its own choice.
    async fn runtime_handler(&self, pod: &Pod) -> Result<String, String> {
        let class = spec::spec(pod).runtime_class_name.as_deref();
        let Some(name) = class.filter(|name| !name.is_empty()) else {
            return Ok(String::new());
        };
        match self.ctx.objects.runtime_class(name).await {
            Ok(Some(class)) => Ok(class.handler),
            Ok(None) => Err(format!("runtimeclass.node.k8s.io \"{name}\" not found")),
            Err(error) => Err(format!("failed to lookup RuntimeClass {name}: {error}")),
        }
    }

    async fn pull_secrets(&self, pod: &Pod, actions: &Actions) -> Vec<Arc<Secret>> {
        if actions.main.is_empty() && actions.init.is_empty() && actions.ephemeral.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for reference in spec::spec(pod)
            .image_pull_secrets
            .as_deref()
            .unwrap_or_default()
        {
            let secret = self
                .ctx
                .objects
                .secret(spec::namespace(pod), &reference.name)
                .await;
            match secret {
                Ok(Some(secret)) => found.push(secret),
                _ => {
                    let text = format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    );
                    self.ctx.say(
                        pod,
                        Severity::Warning,
                        "FailedToRetrieveImagePullSecret",
                        text,
                    );
                }
            }
        }
        found
    }

    /// Starts one container. If it waits, the reason is noted, and the error is when to try again.
    async fn start_one(
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

async fn make_directories(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory).await?;
    fs::set_permissions(directory, Permissions::from_mode(0o750)).await
}
