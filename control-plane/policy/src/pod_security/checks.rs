//! The table of checks: their levels, since when each revision stands, and what they replace.

use super::pod::Pod;
use super::{Level, Standard, Violation, baseline, restricted};

/// What a pod does wrong, if it does.
pub(super) type CheckPod = fn(&Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    level: Level,
    /// The minor version from which on a revision stands, oldest first.
    revisions: &'static [(u32, CheckPod)],
    /// The baseline check that this stricter one makes superfluous.
    replaces: &'static str,
}

const fn baseline(id: &'static str, revisions: &'static [(u32, CheckPod)]) -> Check {
    Check {
        id,
        level: Level::Baseline,
        revisions,
        replaces: "",
    }
}

const fn restricted(
    id: &'static str,
    replaces: &'static str,
    revisions: &'static [(u32, CheckPod)],
) -> Check {
    Check {
        id,
        level: Level::Restricted,
        revisions,
        replaces,
    }
}

/// Every check of 1.36 in the order of its messages: by level, then by id.
const CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, baseline::app_armor)]),
    baseline("capabilities_baseline", &[(0, baseline::capabilities)]),
    baseline("hostNamespaces", &[(0, baseline::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, baseline::host_path_volumes)]),
    baseline("hostPorts", &[(0, baseline::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, baseline::host_probes)]),
    baseline("privileged", &[(0, baseline::privileged)]),
    baseline(
        "procMount",
        &[
            (0, baseline::proc_mount),
            (35, |pod| outside_user_namespace(pod, baseline::proc_mount)),
        ],
    ),
    baseline(
        "seLinuxOptions",
        &[(0, baseline::selinux_1_0), (31, baseline::selinux_1_31)],
    ),
    baseline(
        "seccompProfile_baseline",
        &[
            (0, baseline::seccomp_annotations),
            (19, baseline::seccomp_profile),
        ],
    ),
    baseline(
        "sysctls",
        &[
            (0, |pod| baseline::sysctls(pod, 0)),
            (27, |pod| baseline::sysctls(pod, 27)),
            (29, |pod| baseline::sysctls(pod, 29)),
            (32, |pod| baseline::sysctls(pod, 32)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, baseline::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        "",
        &[
            (8, restricted::privilege_escalation),
            (25, |pod| not_windows(pod, restricted::privilege_escalation)),
        ],
    ),
    restricted(
        "capabilities_restricted",
        "capabilities_baseline",
        &[
            (22, restricted::capabilities),
            (25, |pod| not_windows(pod, restricted::capabilities)),
        ],
    ),
    restricted(
        "procMount_restricted",
        "procMount",
        &[(35, baseline::proc_mount)],
    ),
    restricted(
        "restrictedVolumes",
        "hostPathVolumes",
        &[(0, restricted::volumes)],
    ),
    restricted(
        "runAsNonRoot",
        "",
        &[
            (0, restricted::run_as_non_root),
            (35, |pod| {
                outside_user_namespace(pod, restricted::run_as_non_root)
            }),
        ],
    ),
    restricted(
        "runAsUser",
        "",
        &[
            (23, restricted::run_as_user),
            (35, |pod| {
                outside_user_namespace(pod, restricted::run_as_user)
            }),
        ],
    ),
    restricted(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[
            (19, restricted::seccomp_profile),
            (25, |pod| not_windows(pod, restricted::seccomp_profile)),
        ],
    ),
];

/// Windows has no such thing, and validation keeps it from being set there.
fn not_windows(pod: &Pod<'_>, check: CheckPod) -> Option<Violation> {
    if pod.is_windows() { None } else { check(pod) }
}

/// Root in a user namespace is nobody on the node.
fn outside_user_namespace(pod: &Pod<'_>, check: CheckPod) -> Option<Violation> {
    match pod.has_user_namespace() {
        true => None,
        false => check(pod),
    }
}

impl Check {
    fn at(&self, minor: u32) -> Option<CheckPod> {
        let standing = self
            .revisions
            .iter()
            .rev()
            .find(|(since, _)| *since <= minor);
        standing.map(|(_, check)| *check)
    }
}

/// The checks of a standard.
pub(super) fn active(standard: Standard) -> impl Iterator<Item = CheckPod> {
    let minor = standard.version.minor();
    let strict = move |check: &&Check| check.level <= standard.level;
    let replaced = move |id| {
        let mut stricter = CHECKS.iter().filter(strict);
        stricter.any(|check| check.replaces == id && check.at(minor).is_some())
    };
    CHECKS
        .iter()
        .filter(strict)
        .filter(move |check| !replaced(check.id))
        .filter_map(move |check| check.at(minor))
}
