//! What a container is made of.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::env::{Env, expand};
use crate::cri::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, Mount, StringMap,
};
use crate::spec::Role;
use crate::{decide, resources, seen, spec};

/// What the caller has worked out.
pub struct Given {
    /// The image's id on this node.
    pub image: String,
    /// The whole environment.
    pub env: Env,
    /// All mounts.
    pub mounts: Vec<Mount>,
    /// The security context.
    pub security: LinuxContainerSecurityContext,
    /// How often the container was started before.
    pub restart_count: u32,
    /// The machine.
    pub machine: Machine,
}

/// What a container's limits depend on beside its spec.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// All memory, in bytes.
    pub memory: i64,
    /// Whether CPU limits are enforced.
    pub cpu_quota: bool,
    /// Whether cgroups are cgroup2's.
    pub unified: bool,
    /// The lowest score that this kubelet may give: without CAP_SYS_RESOURCE nobody can go below their own.
    pub least_oom_score: i64,
}

/// The configuration of a container.
pub fn config(pod: &Pod, container: &Container, role: Role, given: Given) -> ContainerConfig {
    let env = &given.env;
    let expanded = |words: &Option<Vec<String>>| {
        let words = words.as_deref().unwrap_or_default();
        words
            .iter()
            .map(|word| expand(word, |name| env.get(name)))
            .collect()
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: container.name.clone(),
            attempt: given.restart_count,
        }),
        image: Some(ImageSpec {
            image: given.image,
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: labels(pod, container),
        annotations: annotations(pod, container, given.restart_count),
        log_path: format!("{}/{}.log", container.name, given.restart_count),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(LinuxContainerConfig {
            resources: Some(limits(pod, container, role, given.machine)),
            security_context: Some(given.security),
        }),
        mounts: given.mounts,
        envs: given
            .env
            .into_iter()
            .map(|(key, value)| KeyValue { key, value })
            .collect(),
        ..ContainerConfig::default()
    }
}

/// The kernel's view of a container's resources.
pub fn limits(
    pod: &Pod,
    container: &Container,
    role: Role,
    machine: Machine,
) -> LinuxContainerResources {
    let limit = |name: &str| resources::amount(resources::limits(container), name).unwrap_or(0);
    let score = resources::oom_score(pod, container, role, machine.memory);
    let (period, quota) = match machine.cpu_quota {
        true => (resources::PERIOD, resources::quota(limit("cpu"))),
        false => (0, 0),
    };
    let mut unified = StringMap::new();
    if machine.unified {
        unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    LinuxContainerResources {
        cpu_shares: resources::shares(resources::request(container, "cpu")),
        cpu_period: period,
        cpu_quota: quota,
        memory_limit_in_bytes: limit("memory"),
        oom_score_adj: score.max(machine.least_oom_score),
        unified,
        ..LinuxContainerResources::default()
    }
}

fn labels(pod: &Pod, container: &Container) -> StringMap {
    [
        (seen::POD_NAME, spec::name(pod)),
        (seen::POD_NAMESPACE, spec::namespace(pod)),
        (seen::POD_UID, spec::uid(pod)),
        (seen::CONTAINER_NAME, &container.name),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

fn annotations(pod: &Pod, container: &Container, restart_count: u32) -> StringMap {
    let path = container
        .termination_message_path
        .as_deref()
        .unwrap_or("/dev/termination-log");
    let policy = container
        .termination_message_policy
        .as_deref()
        .unwrap_or("File");
    let hash = format!("{}{}", decide::OWN_HASH, spec::hash(container));
    let mut annotations = StringMap::from([
        (seen::HASH.to_owned(), hash),
        (seen::RESTART_COUNT.to_owned(), restart_count.to_string()),
        (seen::MESSAGE_PATH.to_owned(), path.to_owned()),
        (seen::MESSAGE_POLICY.to_owned(), policy.to_owned()),
    ]);
    let mut put = |key: &str, value: String| {
        annotations.insert(format!("io.kubernetes.{key}"), value);
    };
    if let Some(seconds) = spec::spec(pod).termination_grace_period_seconds {
        put("pod.terminationGracePeriod", seconds.to_string());
    }
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        put("pod.deletionGracePeriod", seconds.to_string());
    }
    if let Some(hook) = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.pre_stop.as_ref())
    {
        put(
            "container.preStopHandler",
            serde_json::to_string(hook).unwrap_or_default(),
        );
    }
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty()) {
        put(
            "container.ports",
            serde_json::to_string(ports).unwrap_or_default(),
        );
    }
    annotations
}
