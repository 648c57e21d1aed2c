//! What the runtime is asked for: the configuration of a pod's sandbox and of its containers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use client_runtime::Severity;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::fs;

use super::Worker;
use super::start::Turn;
use crate::cri::{self, Image, Mount, PodSandboxConfig};
use crate::make::{container, dns, env, hosts, sandbox, security};
use crate::spec::{self, Role};

impl Worker {
    pub(super) async fn sandbox_config(
        &self,
        pod: &Pod,
        attempt: u32,
    ) -> Result<PodSandboxConfig, String> {
        let ctx = &self.ctx;
        let (hostname, _) = hosts::names(pod, &ctx.resolvers.domain)?;
        let (dns, warning) = dns::of_pod(pod, &ctx.resolvers);
        if let Some((reason, text)) = warning {
            ctx.say(pod, Severity::Warning, reason, text);
        }
        let logs = ctx.log_directory(pod);
        fs::create_dir_all(&logs)
            .await
            .map_err(|e| format!("{}: {e}", logs.display()))?;
        let mut config = sandbox::config(
            pod,
            sandbox::Given {
                hostname,
                dns,
                log_directory: logs.display().to_string(),
                cgroup_parent: ctx.cgroups.parent(pod),
                attempt,
            },
        );
        let users = self.users(pod).await?;
        let linux = config.linux.get_or_insert_default();
        let security = linux.security_context.get_or_insert_default();
        let namespaces = security.namespace_options.get_or_insert_default();
        namespaces.userns_options = users;
        Ok(config)
    }

    pub(super) async fn container_config(
        &self,
        turn: &Turn<'_>,
        role: Role,
        container: &Container,
        target: Option<String>,
        image: &Image,
        restart_count: u32,
    ) -> Result<cri::ContainerConfig, String> {
        let ctx = &self.ctx;
        let pod = turn.pod;
        let defaults = security::Defaults {
            seccomp: ctx.settings.config.seccomp_default,
            seccomp_dir: &ctx.settings.root_dir.join("seccomp").display().to_string(),
        };
        let target = target
            .as_deref()
            .and_then(|name| turn.seen.container(name))
            .map(|c| c.id.as_str());
        let mut security = security::container(pod, container, role, image, target, &defaults)?;
        let users = self.users(pod).await?;
        let sources = self.sources(turn, container).await?;
        let env = env::build(pod, container, &sources)?;
        let directory = ctx.pod_directory(&self.uid);
        let mounts = ctx
            .mounts
            .container_mounts(pod, container, &env, &turn.volumes, &directory)
            .await;
        let mut mounts = mounts.map_err(|e| e.message)?;
        mounts.extend(
            self.own_mounts(turn, container, &directory)
                .await
                .map_err(|e| e.to_string())?,
        );
        if let Some(users) = &users {
            // Files belong to the same users inside and outside.
            for mount in &mut mounts {
                mount.uid_mappings.clone_from(&users.uids);
                mount.gid_mappings.clone_from(&users.gids);
            }
        }
        let namespaces = security.namespace_options.get_or_insert_default();
        namespaces.userns_options = users;
        Ok(container::config(
            pod,
            container,
            role,
            container::Given {
                image: image.id.clone(),
                env,
                mounts,
                security,
                restart_count,
                machine: self.machine(),
            },
        ))
    }

    /// The pod's users, if they are its own.
    async fn users(&self, pod: &Pod) -> Result<Option<cri::UserNamespace>, String> {
        if spec::spec(pod).host_users != Some(false) {
            return Ok(None);
        }
        let handler = self.runtime_handler(pod).await?;
        self.ctx.users.of(pod, &handler)
    }

    /// What containers' limits depend on.
    pub(super) fn machine(&self) -> container::Machine {
        let ctx = &self.ctx;
        container::Machine {
            memory: ctx.machine.memory,
            cpu_quota: ctx.settings.config.cpu_cfs_quota,
            unified: ctx.cgroups.is_unified(),
            least_oom_score: ctx.machine.least_oom_score(),
        }
    }

    /// The hosts file and the place for last words.
    async fn own_mounts(
        &self,
        turn: &Turn<'_>,
        container: &Container,
        directory: &Path,
    ) -> std::io::Result<Vec<Mount>> {
        let pod = turn.pod;
        let taken: BTreeSet<&str> = container
            .volume_mounts
            .iter()
            .flatten()
            .map(|m| m.mount_path.as_str())
            .collect();
        let mount = |host: &Path, path: &str| Mount {
            container_path: path.to_owned(),
            host_path: host.display().to_string(),
            ..Mount::default()
        };
        let mut mounts = Vec::new();
        if !taken.contains("/etc/hosts") && !turn.ips.is_empty() {
            let aliases = spec::spec(pod).host_aliases.as_deref().unwrap_or_default();
            let text = match spec::host_network(pod) {
                true => hosts::of_host(
                    &fs::read_to_string("/etc/hosts").await.unwrap_or_default(),
                    aliases,
                ),
                false => {
                    let (host, domain) =
                        hosts::names(pod, &self.ctx.resolvers.domain).unwrap_or_default();
                    hosts::of_pod(&turn.ips, &host, &domain, aliases)
                }
            };
            let file = directory.join("etc-hosts");
            fs::write(&file, text).await?;
            fs::set_permissions(&file, Permissions::from_mode(0o644)).await?;
            mounts.push(mount(&file, "/etc/hosts"));
        }
        let path = container
            .termination_message_path
            .as_deref()
            .unwrap_or("/dev/termination-log");
        if !path.is_empty() && !taken.contains(path) {
            let folder = directory.join("containers").join(&container.name);
            fs::create_dir_all(&folder).await?;
            let file = folder.join(format!("{:08x}", rand::random::<u32>()));
            fs::write(&file, "").await?;
            fs::set_permissions(&file, Permissions::from_mode(0o666)).await?;
            mounts.push(mount(&file, path));
        }
        Ok(mounts)
    }

    /// Config maps, secrets and services that the environment refers to.
    async fn sources(
        &self,
        turn: &Turn<'_>,
        container: &Container,
    ) -> Result<env::Sources, String> {
        let (mut maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
            secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
        }
        for source in container
            .env
            .iter()
            .flatten()
            .filter_map(|v| v.value_from.as_ref())
        {
            maps.extend(source.config_map_key_ref.as_ref().map(|r| r.name.clone()));
            secrets.extend(source.secret_key_ref.as_ref().map(|r| r.name.clone()));
        }
        let ctx = &self.ctx;
        let namespace = spec::namespace(turn.pod);
        let services = ctx.services.all();
        let mut sources = env::Sources {
            config_maps: BTreeMap::new(),
            secrets: BTreeMap::new(),
            services: env::services(turn.pod, services.iter().map(|(_, service)| &**service)),
            pod_ips: turn.ips.clone(),
            host_ips: ctx.host_ips(),
            allocatable: ctx.allocatable(),
        };
        for name in maps {
            let found = ctx
                .objects
                .config_map(namespace, &name)
                .await
                .map_err(|e| e.to_string())?;
            sources.config_maps.extend(found.map(|map| (name, map)));
        }
        for name in secrets {
            let found = ctx
                .objects
                .secret(namespace, &name)
                .await
                .map_err(|e| e.to_string())?;
            sources.secrets.extend(found.map(|secret| (name, secret)));
        }
        Ok(sources)
    }
}
