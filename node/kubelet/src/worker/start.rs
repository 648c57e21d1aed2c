//! Doing what was decided: volumes, the sandbox, and which containers start in which order.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client_runtime::Severity;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use tokio::fs;

use super::{AFTER_ERROR, AFTER_SUCCESS, Worker, pod_ip};
use crate::cri::{self, ContainerState, PodSandboxConfig};
use crate::decide::{self, Actions};
use crate::images::status_text;
use crate::lifecycle;
use crate::seen::Seen;
use crate::spec::{self, Role};
use crate::volumes::Volumes;

/// How soon volumes that were not ready are tried again.
const AFTER_VOLUMES: Duration = Duration::from_secs(2);

/// What all containers of a turn share.
pub(super) struct Turn<'a> {
    pub(super) pod: &'a Arc<Pod>,
    pub(super) seen: &'a Seen,
    pub(super) sandbox_id: String,
    pub(super) sandbox: PodSandboxConfig,
    pub(super) ips: Vec<String>,
    pub(super) volumes: Volumes,
    pub(super) pull_secrets: Vec<Arc<Secret>>,
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
                let text = format!("Failed to create pod sandbox: {error}");
                ctx.say(pod, Severity::Warning, "FailedCreatePodSandBox", text);
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
    pub(super) async fn runtime_handler(&self, pod: &Pod) -> Result<String, String> {
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
}

async fn make_directories(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory).await?;
    fs::set_permissions(directory, Permissions::from_mode(0o750)).await
}
