//! Security contexts: what containers may do, the container's word before the pod's.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile,
    SecurityContext,
};

use crate::cri::{
    Capability, Image, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, ProfileType, SeLinuxOption, SecurityProfile,
    SupplementalGroupsPolicy,
};
use crate::spec::{self, Role};

const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// What the node says about every container.
pub struct Defaults<'a> {
    /// Whether a container without a word about system calls gets the runtime's filter.
    pub seccomp: bool,
    /// Where filters of the node's own are.
    pub seccomp_dir: &'a str,
}

fn of_pod(pod: &Pod) -> PodSecurityContext {
    spec::spec(pod).security_context.clone().unwrap_or_default()
}

fn of(container: &Container) -> SecurityContext {
    container.security_context.clone().unwrap_or_default()
}

/// Whether any container of the pod is privileged.
pub fn any_privileged(pod: &Pod) -> bool {
    spec::containers(pod).any(|(_, c)| of(c).privileged == Some(true))
}

/// The namespaces of a pod; `target` is the container whose processes an ephemeral one is to see.
pub fn namespaces(pod: &Pod, target: Option<&str>) -> NamespaceOption {
    let spec = spec::spec(pod);
    let pid = match (target, spec.host_pid, spec.share_process_namespace) {
        (_, Some(true), _) => NamespaceMode::Node,
        (_, _, Some(true)) => NamespaceMode::Pod,
        (Some(_), ..) => NamespaceMode::Target,
        _ => NamespaceMode::Container,
    };
    let node_or_pod = |host: Option<bool>| match host {
        Some(true) => NamespaceMode::Node,
        _ => NamespaceMode::Pod,
    };
    NamespaceOption {
        network: node_or_pod(spec.host_network) as i32,
        pid: pid as i32,
        ipc: node_or_pod(spec.host_ipc) as i32,
        target_id: target
            .filter(|_| pid == NamespaceMode::Target)
            .unwrap_or_default()
            .to_owned(),
        userns_options: None,
    }
}

/// The groups that every process of the pod gets.
fn groups(pod: &PodSecurityContext) -> Vec<i64> {
    let listed = pod.supplemental_groups.clone().unwrap_or_default();
    pod.fs_group.into_iter().chain(listed).collect()
}

fn groups_policy(pod: &PodSecurityContext) -> i32 {
    match pod.supplemental_groups_policy.as_deref() {
        Some("Strict") => SupplementalGroupsPolicy::Strict as i32,
        _ => SupplementalGroupsPolicy::Merge as i32,
    }
}

/// The sandbox's context.
pub fn sandbox(pod: &Pod) -> LinuxSandboxSecurityContext {
    let context = of_pod(pod);
    LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, None)),
        selinux_options: context.se_linux_options.as_ref().map(selinux),
        run_as_user: context.run_as_user.map(|value| Int64Value { value }),
        run_as_group: context
            .run_as_user
            .and(context.run_as_group)
            .map(|value| Int64Value { value }),
        supplemental_groups: groups(&context),
        supplemental_groups_policy: groups_policy(&context),
        privileged: any_privileged(pod),
        seccomp: Some(profile(ProfileType::RuntimeDefault)),
        ..LinuxSandboxSecurityContext::default()
    }
}

/// The container's context; an error is its `CreateContainerConfigError`.
pub fn container(
    pod: &Pod,
    container: &Container,
    role: Role,
    image: &Image,
    target: Option<&str>,
    defaults: &Defaults<'_>,
) -> Result<LinuxContainerSecurityContext, String> {
    let (whole, own) = (of_pod(pod), of(container));
    let user = own.run_as_user.or(whole.run_as_user);
    not_root(
        pod,
        container,
        own.run_as_non_root.or(whole.run_as_non_root),
        user,
        image,
    )?;
    let group = own.run_as_group.or(whole.run_as_group);
    let (uid, username) = match (user, &image.uid) {
        (Some(user), _) => (Some(user), String::new()),
        (None, Some(uid)) => (Some(uid.value), String::new()),
        (None, None) => (None, image.username.clone()),
    };
    let nobody_named = uid.is_none() && username.is_empty();
    let seccomp = own
        .seccomp_profile
        .as_ref()
        .or(whole.seccomp_profile.as_ref());
    let apparmor = own
        .app_armor_profile
        .as_ref()
        .or(whole.app_armor_profile.as_ref());
    let apparmor = apparmor.map(apparmor_profile);
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |list: &[&str]| match unmasked {
        true => Vec::new(),
        false => list.iter().map(|&path| path.to_owned()).collect(),
    };
    let _ = role;
    Ok(LinuxContainerSecurityContext {
        capabilities: own.capabilities.map(|c| Capability {
            add_capabilities: c.add.unwrap_or_default(),
            drop_capabilities: c.drop.unwrap_or_default(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: own.privileged == Some(true),
        namespace_options: Some(namespaces(pod, target)),
        selinux_options: own
            .se_linux_options
            .or(whole.se_linux_options.clone())
            .as_ref()
            .map(selinux),
        run_as_user: uid
            .or(nobody_named.then_some(0))
            .map(|value| Int64Value { value }),
        run_as_group: group.map(|value| Int64Value { value }),
        run_as_username: username,
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(&whole),
        supplemental_groups_policy: groups_policy(&whole),
        apparmor_profile: apparmor
            .as_ref()
            .map(|(_, legacy)| legacy.clone())
            .unwrap_or_default(),
        apparmor: apparmor.map(|(profile, _)| profile),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READ_ONLY),
        seccomp: Some(seccomp_profile(seccomp, defaults)),
        ..LinuxContainerSecurityContext::default()
    })
}

fn not_root(
    pod: &Pod,
    container: &Container,
    wanted: Option<bool>,
    user: Option<i64>,
    image: &Image,
) -> Result<(), String> {
    if wanted != Some(true) {
        return Ok(());
    }
    let which = format!(
        "(pod: {:?}, container: {})",
        spec::full_name(pod),
        container.name
    );
    match (user, &image.uid, image.username.as_str()) {
        (Some(0), ..) => Err(format!(
            "container's runAsUser breaks non-root policy {which}"
        )),
        (Some(_), ..) => Ok(()),
        (None, Some(Int64Value { value: 0 }), _) | (None, None, "") => Err(format!(
            "container has runAsNonRoot and image will run as root {which}"
        )),
        (None, Some(_), _) => Ok(()),
        (None, None, name) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {which}"
        )),
    }
}

fn profile(kind: ProfileType) -> SecurityProfile {
    SecurityProfile {
        profile_type: kind as i32,
        localhost_ref: String::new(),
    }
}

fn seccomp_profile(chosen: Option<&SeccompProfile>, defaults: &Defaults<'_>) -> SecurityProfile {
    match chosen.map(|c| c.type_.as_str()) {
        Some("RuntimeDefault") => profile(ProfileType::RuntimeDefault),
        Some("Localhost") => SecurityProfile {
            profile_type: ProfileType::Localhost as i32,
            localhost_ref: format!(
                "{}/{}",
                defaults.seccomp_dir,
                chosen
                    .and_then(|c| c.localhost_profile.as_deref())
                    .unwrap_or_default()
            ),
        },
        Some(_) => profile(ProfileType::Unconfined),
        None if defaults.seccomp => profile(ProfileType::RuntimeDefault),
        None => profile(ProfileType::Unconfined),
    }
}

/// As a field, and as the words of runtimes that know only those.
fn apparmor_profile(chosen: &AppArmorProfile) -> (SecurityProfile, String) {
    let name = chosen.localhost_profile.clone().unwrap_or_default();
    match chosen.type_.as_str() {
        "RuntimeDefault" => (
            profile(ProfileType::RuntimeDefault),
            "runtime/default".to_owned(),
        ),
        "Localhost" => {
            let legacy = format!("localhost/{name}");
            let kind = ProfileType::Localhost as i32;
            (
                SecurityProfile {
                    profile_type: kind,
                    localhost_ref: name,
                },
                legacy,
            )
        }
        _ => (profile(ProfileType::Unconfined), "unconfined".to_owned()),
    }
}

fn selinux(options: &SELinuxOptions) -> SeLinuxOption {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn context(
        pod: Value,
        own: Value,
        image: Image,
    ) -> Result<LinuxContainerSecurityContext, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": pod, "containers": [{"name": "c", "securityContext": own}]},
        }))
        .expect("a pod");
        let defaults = Defaults {
            seccomp: false,
            seccomp_dir: "/s",
        };
        container(
            &pod,
            &spec::spec(&pod).containers[0],
            Role::Main,
            &image,
            None,
            &defaults,
        )
    }

    #[test]
    fn the_containers_word_goes_before_the_pods_and_the_images() {
        let image = Image {
            uid: Some(Int64Value { value: 5 }),
            ..Image::default()
        };
        let user = |pod, own| {
            let context = context(pod, own, image.clone()).expect("a context");
            context.run_as_user.map(|u| u.value)
        };
        assert_eq!(user(json!({}), json!({})), Some(5));
        assert_eq!(user(json!({"runAsUser": 6}), json!({})), Some(6));
        assert_eq!(
            user(json!({"runAsUser": 6}), json!({"runAsUser": 7})),
            Some(7)
        );
    }

    #[test]
    fn root_is_refused_where_it_must_not_be() {
        let cases = [
            (
                json!({"runAsUser": 0}),
                Image::default(),
                "container's runAsUser breaks non-root policy",
            ),
            (
                json!({}),
                Image::default(),
                "container has runAsNonRoot and image will run as root",
            ),
            (
                json!({}),
                Image {
                    username: "www".to_owned(),
                    ..Image::default()
                },
                "container has runAsNonRoot and image has non-numeric user (www)",
            ),
        ];
        for (own, image, expected) in cases {
            let error = context(json!({"runAsNonRoot": true}), own, image).expect_err("refused");
            assert!(error.starts_with(expected), "{error}");
            assert!(error.contains("(pod: \"p_n(u)\", container: c)"), "{error}");
        }
    }
}
