//! What a pod's spec says, asked the way the kubelet asks: sidecars, restart policies, the hash of a container.

use std::hash::Hasher as _;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};

/// Where in the pod a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Made by `kubectl debug` and the like; never restarted.
    Ephemeral,
    /// Runs to its end before the next starts.
    Init,
    /// An init container that stays.
    Sidecar,
    /// What the pod is for.
    Main,
}

/// The pod's spec; a pod without one is not in any API server.
pub fn spec(pod: &Pod) -> &PodSpec {
    static EMPTY: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);
    pod.spec.as_ref().unwrap_or(&EMPTY)
}

/// The pod's UID.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// The pod's name.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The pod's namespace.
pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

/// The pod as messages name it: `name_namespace(uid)`.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

/// Whether the pod uses the host's network.
pub fn host_network(pod: &Pod) -> bool {
    spec(pod).host_network == Some(true)
}

/// The init containers, sidecars among them.
pub fn init_containers(pod: &Pod) -> &[Container] {
    spec(pod).init_containers.as_deref().unwrap_or_default()
}

/// Whether an init container is a sidecar.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// All containers but ephemeral ones, with their roles, in the order they start.
pub fn containers(pod: &Pod) -> impl Iterator<Item = (Role, &Container)> {
    let role = |c: &Container| {
        if is_sidecar(c) {
            Role::Sidecar
        } else {
            Role::Init
        }
    };
    let init = init_containers(pod).iter().map(move |c| (role(c), c));
    init.chain(spec(pod).containers.iter().map(|c| (Role::Main, c)))
}

/// The ephemeral containers.
pub fn ephemeral(pod: &Pod) -> &[EphemeralContainer] {
    spec(pod)
        .ephemeral_containers
        .as_deref()
        .unwrap_or_default()
}

/// An ephemeral container as the container it becomes.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let e = ephemeral.clone();
    Container {
        name: e.name,
        args: e.args,
        command: e.command,
        env: e.env,
        env_from: e.env_from,
        image: e.image,
        image_pull_policy: e.image_pull_policy,
        security_context: e.security_context,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        tty: e.tty,
        volume_devices: e.volume_devices,
        volume_mounts: e.volume_mounts,
        working_dir: e.working_dir,
        ..Container::default()
    }
}

/// What a container that ended with this code is to do, as long as its pod stays.
pub fn restarts(pod: &Pod, container: &Container, role: Role, exit_code: i32) -> bool {
    if role == Role::Ephemeral {
        return false;
    }
    let rules = container
        .restart_policy_rules
        .as_deref()
        .unwrap_or_default();
    let matches = |rule: &&k8s_openapi::api::core::v1::ContainerRestartRule| {
        let Some(codes) = &rule.exit_codes else {
            return false;
        };
        let listed = codes
            .values
            .as_deref()
            .unwrap_or_default()
            .contains(&exit_code);
        listed == (codes.operator == "In")
    };
    if rules
        .iter()
        .find(matches)
        .is_some_and(|rule| rule.action.starts_with("Restart"))
    {
        return true;
    }
    let policy = container.restart_policy.as_deref();
    match policy
        .or(spec(pod).restart_policy.as_deref())
        .unwrap_or("Always")
    {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        // A pod's Always is OnFailure for what must end before the next can start.
        _ => role != Role::Init || exit_code != 0,
    }
}

/// What makes a container another one: its name and its image, as upstream has it since 1.34.
pub fn hash(container: &Container) -> String {
    let mut fnv = Fnv(0x811c_9dc5);
    fnv.write(container.name.as_bytes());
    fnv.write(&[0]);
    fnv.write(container.image.as_deref().unwrap_or_default().as_bytes());
    format!("{:x}", fnv.finish())
}

/// FNV-1a with 32 bits.
struct Fnv(u32);

impl std::hash::Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn finish(&self) -> u64 {
        self.0.into()
    }
}
