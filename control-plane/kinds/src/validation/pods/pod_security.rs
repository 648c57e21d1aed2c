//! Security contexts of pods and containers.

use std::collections::HashSet;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use super::{pod_windows, volume_paths};
use crate::field::{Errors, Path};
use crate::validation::reading::{at, flag, has, items, text, texts};
use crate::validation::rules::complain;
use crate::validation::values::{optional_choice, optional_id};
use crate::validation::{internal, names};

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const LOCAL_PROFILE: &str = "localhostProfile";
const SYSCTL_MAX: usize = 253;
const SYSCTL_FORMAT: &str =
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PROFILE_PATH_MAX: usize = 4095;

/// The security context of a pod.
pub(crate) fn of_pod(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let context = at(spec, "securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        optional_id(errors, path, context, name);
    }
    let groups = path.child("supplementalGroups");
    for (i, group) in items(context, "supplementalGroups").iter().enumerate() {
        for complaint in names::user_id(group.as_i64().unwrap_or_default()) {
            errors.invalid(&groups.index(i), group, &complaint);
        }
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.child("shareProcessNamespace"), &true.into(), detail);
    }
    sysctls(errors, &path.child("sysctls"), spec);
    let policies = ["Always", "OnRootMismatch"];
    optional_choice(errors, path, context, "fsGroupChangePolicy", &policies);
    profiles(errors, path, context);
    let policies = ["Merge", "Strict"];
    optional_choice(errors, path, context, "supplementalGroupsPolicy", &policies);
    optional_choice(
        errors,
        path,
        context,
        "seLinuxChangePolicy",
        &["MountOption", "Recursive"],
    );
}

/// The security context of a container; `host_users` says whether it shares the host's users.
pub(crate) fn of_container(
    errors: &mut Errors,
    path: &Path<'_>,
    context: &Value,
    host_users: bool,
) {
    if context.is_null() {
        return;
    }
    for name in ["runAsUser", "runAsGroup"] {
        optional_id(errors, path, context, name);
    }
    optional_choice(errors, path, context, "procMount", &["Default", "Unmasked"]);
    if host_users && text(context, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.child("procMount"), &"Unmasked".into(), detail);
    }
    if at(context, "allowPrivilegeEscalation") == &Value::Bool(false) {
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid_text(path, &internal::SECURITY_CONTEXT.shown(context), detail);
        }
        if texts(at(context, "capabilities"), "add").any(|name| name == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid_text(path, &internal::SECURITY_CONTEXT.shown(context), detail);
        }
    }
    profiles(errors, path, context);
}

fn profiles(errors: &mut Errors, path: &Path<'_>, context: &Value) {
    seccomp(
        errors,
        &path.child("seccompProfile"),
        at(context, "seccompProfile"),
    );
    pod_windows::options(
        errors,
        &path.child("windowsOptions"),
        at(context, "windowsOptions"),
    );
    app_armor(
        errors,
        &path.child("appArmorProfile"),
        at(context, "appArmorProfile"),
    );
}

fn seccomp(errors: &mut Errors, path: &Path<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let local_path = path.child(LOCAL_PROFILE);
    profile_type(
        errors,
        path,
        profile,
        "type is required when seccompProfile is set",
    );
    match (text(profile, "type"), has(profile, LOCAL_PROFILE)) {
        ("Localhost", false) => {
            errors.required(&local_path, "must be set when seccomp type is Localhost");
        }
        ("Localhost", true) => {
            volume_paths::descending(errors, &local_path, text(profile, LOCAL_PROFILE));
        }
        (_, true) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.invalid(&local_path, profile, detail);
        }
        (_, false) => {}
    }
}

fn profile_type(errors: &mut Errors, path: &Path<'_>, profile: &Value, missing: &str) {
    let ty = text(profile, "type");
    if ty.is_empty() {
        errors.required(&path.child("type"), missing);
    } else if !PROFILE_TYPES.contains(&ty) {
        errors.not_supported(&path.child("type"), &ty.into(), &PROFILE_TYPES);
    }
}

fn app_armor(errors: &mut Errors, path: &Path<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let local_path = path.child(LOCAL_PROFILE);
    profile_type(
        errors,
        path,
        profile,
        "type is required when appArmorProfile is set",
    );
    match (text(profile, "type"), has(profile, LOCAL_PROFILE)) {
        ("Localhost", true) => local_app_armor(errors, &local_path, text(profile, LOCAL_PROFILE)),
        ("Localhost", false) => {
            errors.required(&local_path, "must be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", true) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.invalid(&local_path, at(profile, LOCAL_PROFILE), detail);
        }
        _ => {}
    }
}

fn local_app_armor(errors: &mut Errors, path: &Path<'_>, name: &str) {
    if name.trim() != name {
        errors.invalid(path, &name.into(), "must not be padded with whitespace");
    } else if name.is_empty() {
        errors.required(path, "must be set when AppArmor type is Localhost");
    }
    if name.len() > PROFILE_PATH_MAX {
        errors.too_long(path, PROFILE_PATH_MAX);
    }
}

fn sysctls(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    static FORMAT: OnceLock<Regex> = OnceLock::new();
    let format = FORMAT.get_or_init(|| Regex::new(SYSCTL_FORMAT).expect("the pattern is constant"));
    let mut seen = HashSet::new();
    for (i, sysctl) in items(at(spec, "securityContext"), "sysctls")
        .iter()
        .enumerate()
    {
        let element = path.index(i);
        let path = element.child("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if name.len() > SYSCTL_MAX || !format.is_match(name) {
            let detail = format!(
                "must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_FORMAT}"
            );
            complain(errors, &path, name, vec![detail]);
        } else if !seen.insert(name) {
            errors.duplicate(&path, &name.into());
        }
        for (host, namespace) in [("hostNetwork", "net"), ("hostIPC", "ipc")] {
            if flag(spec, host) && sysctl_namespace(name) == Some(namespace) {
                let detail = format!("may not be specified when '{host}' is true");
                errors.invalid(&path, &name.into(), &detail);
            }
        }
    }
}

fn sysctl_namespace(name: &str) -> Option<&'static str> {
    let dotted = match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'/') => name.replace('.', "\0").replace('/', ".").replace('\0', "/"),
        _ => name.to_owned(),
    };
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if dotted == "kernel.sem" || ipc.iter().any(|prefix| dotted.starts_with(prefix)) {
        return Some("ipc");
    }
    dotted.starts_with("net.").then_some("net")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    fn pod(spec: Value) -> String {
        told(|e| of_pod(e, &Path::root("s"), &spec)).join("|")
    }

    fn container(context: Value, host_users: bool) -> String {
        told(|e| of_container(e, &Path::root("s"), &context, host_users)).join("|")
    }

    #[test]
    fn security_contexts_of_pods_are_checked() {
        let cases = [
            (
                json!({"runAsUser": 0, "fsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}}),
                "",
            ),
            (
                json!({"runAsUser": -1}),
                "s.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ),
            (
                json!({"supplementalGroups": [1, -2]}),
                "s.supplementalGroups[1]: Invalid value: -2: must be between 0 and 2147483647, inclusive",
            ),
            (
                json!({"fsGroupChangePolicy": "x"}),
                "s.fsGroupChangePolicy: Unsupported value: \"x\": supported values: \"Always\", \"OnRootMismatch\"",
            ),
            (
                json!({"seccompProfile": {"type": "Localhost"}}),
                "s.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ),
            (
                json!({"seccompProfile": {}}),
                "s.seccompProfile.type: Required value: type is required when seccompProfile is set",
            ),
            (
                json!({"appArmorProfile": {"type": "x"}}),
                "s.appArmorProfile.type: Unsupported value: \"x\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
            ),
            (
                json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": " x"}}),
                "s.appArmorProfile.localhostProfile: Invalid value: \" x\": must not be padded with whitespace",
            ),
            (
                json!({"sysctls": [{"name": "net.a"}, {"name": "net.a"}]}),
                "s.sysctls[1].name: Duplicate value: \"net.a\"",
            ),
        ];
        for (context, expected) in cases {
            assert_eq!(
                pod(json!({ "securityContext": context })),
                expected,
                "{context}"
            );
        }
        assert!(
            pod(json!({"securityContext": {"sysctls": [{"name": "a b"}]}})).contains("match regex")
        );
        assert_eq!(
            pod(
                json!({"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net/ipv4.x"}]}})
            ),
            "s.sysctls[0].name: Invalid value: \"net/ipv4.x\": may not be specified when 'hostNetwork' is true"
        );
        assert_eq!(
            pod(json!({"hostPID": true, "shareProcessNamespace": true})),
            "s.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"
        );
    }

    #[test]
    fn security_contexts_of_containers_are_checked() {
        assert_eq!(
            container(json!({"privileged": true, "procMount": "Unmasked"}), false),
            ""
        );
        assert_eq!(
            container(json!({"procMount": "Unmasked"}), true),
            "s.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"
        );
        assert_eq!(
            container(json!({"procMount": "x"}), true),
            "s.procMount: Unsupported value: \"x\": supported values: \"Default\", \"Unmasked\""
        );
        let both = container(
            json!({"privileged": true, "allowPrivilegeEscalation": false}),
            true,
        );
        assert!(
            both.ends_with(
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            ),
            "{both}"
        );
    }
}
