//! What the runtime has for one pod, read from its labels and annotations: the only state that outlives a kubelet.

use std::collections::BTreeMap;

use tonic::Status;

use crate::cri::{self, ContainerState, Runtime};
use crate::resources::PERIOD;

/// The label with the pod's name, on sandboxes and containers.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// The label with the pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The label with the pod's UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The label with the container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// The annotation with the hash of what makes a container another one.
pub const HASH: &str = "io.kubernetes.container.hash";
/// The annotation with how often the container was started before.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// The annotation with where the container leaves its last words.
pub const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// The annotation with whether the log may stand in for them.
pub const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";

/// A sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// Whether it is up.
    pub ready: bool,
    /// When it was made, in nanoseconds.
    pub created_at: i64,
    /// How many there were before it.
    pub attempt: u32,
    /// Whether it uses the host's network.
    pub host_network: bool,
    /// Its addresses; none with the host's network.
    pub ips: Vec<String>,
}

/// What a container may use, as its runtime tells; 0 is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its weight.
    pub cpu_shares: i64,
    /// Microseconds of each period of a tenth of a second.
    pub cpu_quota: i64,
    /// Bytes.
    pub memory: i64,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// The runtime's id.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// The sandbox it is in.
    pub sandbox_id: String,
    /// What it does.
    pub state: ContainerState,
    /// How often it was started before.
    pub restart_count: i32,
    /// Times in nanoseconds; 0 where it has not come to that.
    pub created_at: i64,
    /// When it was started.
    pub started_at: i64,
    /// When it ended.
    pub finished_at: i64,
    /// What its program returned.
    pub exit_code: i32,
    /// The runtime's word for why.
    pub reason: String,
    /// The runtime's text, with the container's last words.
    pub message: String,
    /// The image as it was asked for, as far as the runtime knows.
    pub image: String,
    /// The image's id as pods report it.
    pub image_ref: String,
    /// [`HASH`] as it was set.
    pub hash: String,
    /// Where its output goes.
    pub log_path: String,
    /// The host's file with its last words.
    pub message_file: String,
    /// Whether the log may stand in for them.
    pub message_from_log: bool,
    /// What it may use, where the runtime tells.
    pub limits: Option<Limits>,
}

/// All that the runtime has for one pod, the newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Its sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Its containers, of all sandboxes.
    pub containers: Vec<Container>,
}

impl Seen {
    /// The newest container of a name.
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// The newest container of a name in the newest sandbox.
    pub fn current(&self, name: &str) -> Option<&Container> {
        let sandbox = &self.sandboxes.first()?.id;
        self.containers
            .iter()
            .find(|c| c.name == name && c.sandbox_id == *sandbox)
    }

    /// The container of a name that ended before the newest.
    pub fn previous(&self, name: &str) -> Option<&Container> {
        self.containers.iter().filter(|c| c.name == name).nth(1)
    }

    /// Whether any container runs or may come to.
    pub fn anything_runs(&self) -> bool {
        self.containers
            .iter()
            .any(|c| c.state != ContainerState::Exited)
    }
}

/// Asks the runtime for all it has for a pod. What vanishes meanwhile is left out.
pub async fn look(runtime: &dyn Runtime, uid: &str) -> Result<Seen, Status> {
    let of_pod = || BTreeMap::from([(POD_UID.to_owned(), uid.to_owned())]);
    let filter = cri::PodSandboxFilter {
        label_selector: of_pod(),
        ..Default::default()
    };
    let request = cri::ListPodSandboxRequest {
        filter: Some(filter),
    };
    let sandboxes = runtime.list_pod_sandbox(request).await?.items;
    let filter = cri::ContainerFilter {
        label_selector: of_pod(),
        ..Default::default()
    };
    let request = cri::ListContainersRequest {
        filter: Some(filter),
    };
    let containers = runtime.list_containers(request).await?.containers;
    let mut seen = Seen::default();
    for sandbox in sandboxes {
        let request = cri::PodSandboxStatusRequest {
            pod_sandbox_id: sandbox.id,
            verbose: false,
        };
        match runtime.pod_sandbox_status(request).await {
            Ok(answer) => seen.sandboxes.extend(answer.status.map(sandbox_of)),
            Err(status) if cri::is_not_found(&status) => {}
            Err(status) => return Err(status),
        }
    }
    for container in containers {
        let request = cri::ContainerStatusRequest {
            container_id: container.id,
            verbose: false,
        };
        match runtime.container_status(request).await {
            Ok(answer) => {
                let found = answer
                    .status
                    .map(|s| container_of(s, container.pod_sandbox_id));
                seen.containers.extend(found);
            }
            Err(status) if cri::is_not_found(&status) => {}
            Err(status) => return Err(status),
        }
    }
    seen.sandboxes
        .sort_by_key(|s| std::cmp::Reverse((s.created_at, s.attempt)));
    seen.containers
        .sort_by_key(|c| std::cmp::Reverse((c.created_at, c.restart_count)));
    Ok(seen)
}

fn sandbox_of(status: cri::PodSandboxStatus) -> Sandbox {
    let network = status.network.unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    let ips = std::iter::once(network.ip)
        .chain(more)
        .filter(|ip| !ip.is_empty());
    let options = status
        .linux
        .and_then(|l| l.namespaces)
        .and_then(|n| n.options);
    Sandbox {
        ready: status.state == cri::PodSandboxState::Ready as i32,
        created_at: status.created_at,
        attempt: status.metadata.map_or(0, |m| m.attempt),
        host_network: options.is_some_and(|o| o.network == cri::NamespaceMode::Node as i32),
        ips: ips.collect(),
        id: status.id,
    }
}

fn container_of(mut status: cri::ContainerStatus, sandbox_id: String) -> Container {
    let state = status.state();
    let take = |map: &mut cri::StringMap, key: &str| map.remove(key).unwrap_or_default();
    let annotations = &mut status.annotations;
    let restarts = take(annotations, RESTART_COUNT).parse().ok();
    let attempt = status.metadata.as_ref().map_or(0, |m| m.attempt as i32);
    let message_path = take(annotations, MESSAGE_PATH);
    let message_file = status
        .mounts
        .iter()
        .find(|m| m.container_path == message_path);
    let limits = status.resources.and_then(|r| r.linux).map(limits_of);
    let image = status.image.unwrap_or_default();
    let asked_for = match image.user_specified_image.is_empty() {
        true => image.image,
        false => image.user_specified_image,
    };
    Container {
        name: take(&mut status.labels, CONTAINER_NAME),
        sandbox_id,
        state,
        restart_count: restarts.unwrap_or(attempt),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: asked_for,
        image_ref: status.image_ref,
        hash: take(annotations, HASH),
        log_path: status.log_path,
        message_file: message_file
            .map(|m| m.host_path.clone())
            .unwrap_or_default(),
        message_from_log: take(annotations, MESSAGE_POLICY) == "FallbackToLogsOnError",
        limits,
        id: status.id,
    }
}

fn limits_of(linux: cri::LinuxContainerResources) -> Limits {
    // Of another period than ours it is the same part.
    let period = if linux.cpu_period > 0 {
        linux.cpu_period
    } else {
        PERIOD
    };
    Limits {
        cpu_shares: linux.cpu_shares,
        cpu_quota: linux.cpu_quota * PERIOD / period,
        memory: linux.memory_limit_in_bytes,
    }
}
