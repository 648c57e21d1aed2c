//! The checks of the baseline level.

use serde_json::Value;

use super::Violation;
use super::pod::{Offenders, Pod, Values, containers, context, items, one_or_many, quoted, text};

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_ANNOTATION: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// What container runtimes add by default.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that stay within the pod, and the minor version since which they are known to.
const SAFE_SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

/// SELinux types for containers; the last is allowed since 1.31.
const SELINUX_TYPES: [&str; 5] = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// The type of a profile (seccomp or AppArmor) that is neither the runtime's nor one of the node's.
pub(super) fn unconfined(profile: &Value) -> Option<&str> {
    let chosen = text(&profile["type"]);
    let confines = matches!(chosen, "RuntimeDefault" | "Localhost");
    (profile.is_object() && !confines).then_some(chosen)
}

pub(super) fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let offenders = Offenders::of(pod, |context| unconfined(&context["appArmorProfile"]));
    let annotations: Vec<String> = pod
        .annotations()
        .filter(|(key, _)| key.starts_with(APP_ARMOR_ANNOTATION))
        .filter(|(_, value)| !is_allowed_annotation(value, &["", "runtime/default"]))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let mut who: Vec<String> = offenders.who().into_iter().collect();
    if !annotations.is_empty() {
        who.push(one_or_many(annotations.len(), "annotation", "annotations").to_owned());
    }
    let typed = offenders.values.into_iter();
    let values: Vec<&str> = typed
        .chain(annotations.iter().map(String::as_str))
        .collect();
    (!who.is_empty()).then(|| Violation {
        reason: one_or_many(
            values.len(),
            "forbidden AppArmor profile",
            "forbidden AppArmor profiles",
        ),
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            who.join(" and "),
            quoted(values)
        ),
    })
}

fn is_allowed_annotation(value: &str, allowed: &[&str]) -> bool {
    allowed.contains(&value) || value.starts_with("localhost/")
}

pub(super) fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let mut added = Values::new();
    let names = pod.named(|container| {
        let bad: Vec<&str> = items(&context(container)["capabilities"]["add"])
            .map(text)
            .filter(|capability| !DEFAULT_CAPABILITIES.contains(capability))
            .collect();
        added.extend(&bad);
        !bad.is_empty()
    });
    (!names.is_empty()).then(|| Violation {
        reason: "non-default capabilities",
        detail: format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&names),
            quoted(added)
        ),
    })
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|field| pod.spec[**field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| Violation {
        reason: "host namespaces",
        detail: shared.join(", "),
    })
}

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let names: Vec<&str> = items(&pod.spec["volumes"])
        .filter(|volume| volume["hostPath"].is_object())
        .map(|volume| text(&volume["name"]))
        .collect();
    (!names.is_empty()).then(|| Violation {
        reason: "hostPath volumes",
        detail: format!(
            "{} {}",
            one_or_many(names.len(), "volume", "volumes"),
            quoted(names)
        ),
    })
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = std::collections::BTreeSet::new();
    let names = pod.named(|container| {
        let taken: Vec<String> = items(&container["ports"])
            .filter_map(|port| port["hostPort"].as_i64())
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        let bad = !taken.is_empty();
        ports.extend(taken);
        bad
    });
    let listed: Vec<&str> = ports.iter().map(String::as_str).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!(
            "{} {} {} {}",
            containers(&names),
            one_or_many(names.len(), "uses", "use"),
            one_or_many(listed.len(), "hostPort", "hostPorts"),
            listed.join(", ")
        ),
    })
}

/// Probes and hooks that make the kubelet call some other host.
pub(super) fn host_probes(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&str; 5] = [
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ];
    let mut hosts = Values::new();
    let names: Values<'_> = pod
        .named(|container| {
            let mut found = false;
            for handler in HANDLERS.iter().filter_map(|path| container.pointer(path)) {
                for action in ["httpGet", "tcpSocket"] {
                    let host = text(&handler[action]["host"]);
                    found |= !host.is_empty();
                    hosts.extend((!host.is_empty()).then_some(host));
                }
            }
            found
        })
        .into_iter()
        .collect();
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} {} {}",
            containers(&names.iter().copied().collect::<Vec<_>>()),
            one_or_many(names.len(), "uses", "use"),
            one_or_many(
                hosts.len(),
                "probe or lifecycle host",
                "probe or lifecycle hosts"
            ),
            quoted(hosts)
        ),
    })
}

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| context(container)["privileged"] == true);
    (!names.is_empty()).then(|| Violation {
        reason: "privileged",
        detail: format!(
            "{} must not set securityContext.privileged=true",
            containers(&names)
        ),
    })
}

/// Also the restricted check: there, not even a user namespace excuses it.
pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = Values::new();
    let names = pod.named(|container| {
        let mount = context(container)["procMount"].as_str();
        let bad = mount.filter(|mount| *mount != "Default");
        types.extend(bad);
        bad.is_some()
    });
    (!names.is_empty()).then(|| Violation {
        reason: "procMount",
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            containers(&names),
            quoted(types)
        ),
    })
}

pub(super) fn selinux_1_0(pod: &Pod<'_>) -> Option<Violation> {
    selinux(pod, &SELINUX_TYPES[..4])
}

pub(super) fn selinux_1_31(pod: &Pod<'_>) -> Option<Violation> {
    selinux(pod, &SELINUX_TYPES)
}

fn selinux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (Values::new(), false, false);
    let offenders = Offenders::of(pod, |context| {
        let options = &context["seLinuxOptions"];
        let chosen = text(&options["type"]);
        let bad_type = !allowed.contains(&chosen);
        types.extend(bad_type.then_some(chosen));
        let (has_user, has_role) = (
            !text(&options["user"]).is_empty(),
            !text(&options["role"]).is_empty(),
        );
        user |= has_user;
        role |= has_role;
        (bad_type || has_user || has_role).then_some(chosen)
    });
    let mut data = Vec::new();
    if !types.is_empty() {
        let noun = one_or_many(types.len(), "type", "types");
        data.push(format!("{noun} {}", quoted(types)));
    }
    data.extend(user.then(|| "user may not be set".to_owned()));
    data.extend(role.then(|| "role may not be set".to_owned()));
    offenders.who().map(|who| Violation {
        reason: "seLinuxOptions",
        detail: format!(
            "{who} set forbidden securityContext.seLinuxOptions: {}",
            data.join("; ")
        ),
    })
}

/// Before 1.19 profiles stood in annotations.
pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = pod
        .containers
        .iter()
        .map(|c| format!("{SECCOMP_CONTAINER_ANNOTATION}{}", text(&c["name"])));
    let forbidden: std::collections::BTreeSet<String> =
        std::iter::once(SECCOMP_POD_ANNOTATION.to_owned())
            .chain(keys)
            .filter_map(|key| Some((pod.annotations.get(&key)?.as_str()?, key)))
            .filter(|(value, _)| {
                !is_allowed_annotation(value, &["runtime/default", "docker/default"])
            })
            .map(|(value, key)| format!("{key}={value:?}"))
            .collect();
    (!forbidden.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "forbidden {} {}",
            one_or_many(forbidden.len(), "annotation", "annotations"),
            forbidden.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// No explicit profile but the runtime's or one of the node's.
pub(super) fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    let offenders = Offenders::of(pod, |context| unconfined(&context["seccompProfile"]));
    offenders.who().map(|who| Violation {
        reason: "seccompProfile",
        detail: format!(
            "{who} must not set securityContext.seccompProfile.type to {}",
            quoted(offenders.values)
        ),
    })
}

pub(super) fn sysctls(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    let is_safe = |name: &str| {
        SAFE_SYSCTLS
            .iter()
            .any(|(safe, since)| *safe == name && *since <= minor)
    };
    let unsafe_ones: Vec<&str> = items(&pod.context()["sysctls"])
        .map(|sysctl| text(&sysctl["name"]))
        .filter(|name| !is_safe(name))
        .collect();
    (!unsafe_ones.is_empty()).then(|| Violation {
        reason: "forbidden sysctls",
        detail: unsafe_ones.join(", "),
    })
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let offenders = Offenders::of(pod, |context| {
        (context["windowsOptions"]["hostProcess"] == true).then_some("")
    });
    offenders.who().map(|who| Violation {
        reason: "hostProcess",
        detail: format!("{who} must not set securityContext.windowsOptions.hostProcess=true"),
    })
}
