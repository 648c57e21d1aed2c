//! Operating systems: what Windows pods may set, and what only they may.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, flag, has, items, text};
use crate::validation::rules::complain;

const CREDENTIALS_MAX_KIB: usize = 64;
const DOMAIN_MAX: usize = 256;
const USER_MAX: usize = 104;
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";
const NOT_ON_LINUX: &str = "windows options cannot be set for a linux pod";
const SPEC_FIELDS: [&str; 4] = ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"];
const POD_FIELDS: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The operating system a pod names, and the fields that go with it.
pub(crate) fn operating_system(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    if !has(spec, "os") {
        return;
    }
    let os_path = path.child("os");
    match text(at(spec, "os"), "name") {
        "" => errors.required(&os_path.child("name"), ""),
        "linux" => only_linux(errors, path, spec),
        "windows" => only_windows(errors, path, spec),
        other => errors.not_supported(&os_path, &other.into(), &["linux", "windows"]),
    }
}

fn only_linux(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let forbid = |errors: &mut Errors, path: &Path<'_>, owner: &Value| {
        if has(at(owner, "securityContext"), "windowsOptions") {
            let path = path.child("securityContext");
            errors.forbidden(&path.child("windowsOptions"), NOT_ON_LINUX);
        }
    };
    forbid(errors, path, spec);
    for_each_container(path, spec, |path, container| {
        forbid(errors, path, container)
    });
}

fn only_windows(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    for field in SPEC_FIELDS {
        let is_pointer = matches!(field, "hostUsers" | "shareProcessNamespace");
        if flag(spec, field) || (is_pointer && has(spec, field)) {
            errors.forbidden(&path.child(field), NOT_ON_WINDOWS);
        }
    }
    forbid_fields(errors, path, spec, &POD_FIELDS);
    for_each_container(path, spec, |path, container| {
        forbid_fields(errors, path, container, &CONTAINER_FIELDS);
    });
}

fn forbid_fields(errors: &mut Errors, path: &Path<'_>, owner: &Value, fields: &[&str]) {
    let path = path.child("securityContext");
    for field in fields
        .iter()
        .filter(|field| has(at(owner, "securityContext"), field))
    {
        errors.forbidden(&path.child(field), NOT_ON_WINDOWS);
    }
}

/// Visits every container of a pod spec with its path, init containers first.
pub(crate) fn for_each_container(
    path: &Path<'_>,
    spec: &Value,
    mut visit: impl FnMut(&Path<'_>, &Value),
) {
    for list in LISTS {
        let path = path.child(list);
        for (i, container) in items(spec, list).iter().enumerate() {
            visit(&path.index(i), container);
        }
    }
}

/// Containers that are processes of the host come all together, and on the host's network.
pub(crate) fn host_processes(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let own = |owner: &Value| {
        at(
            at(at(owner, "securityContext"), "windowsOptions"),
            "hostProcess",
        )
        .as_bool()
    };
    let of_pod = own(spec);
    let (mut all, mut host) = (0, 0);
    for_each_container(path, spec, |path, container| {
        all += 1;
        let of_container = own(container);
        if of_container.or(of_pod) == Some(true) {
            host += 1;
        }
        if let (Some(pod), Some(container)) = (of_pod, of_container)
            && pod != container
        {
            let context = path.child("securityContext");
            let options = context.child("windowsOptions");
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&options.child("hostProcess"), &container.into(), &detail);
        }
    });
    if host == 0 {
        return;
    }
    if host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, &"".into(), detail);
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), &false.into(), detail);
    }
}

/// Windows options of a security context.
pub(crate) fn options(errors: &mut Errors, path: &Path<'_>, options: &Value) {
    if has(options, "gmsaCredentialSpecName") {
        let name = text(options, "gmsaCredentialSpecName");
        let path = path.child("gmsaCredentialSpecName");
        complain(errors, &path, name, names::dns1123_subdomain(name));
    }
    if has(options, "gmsaCredentialSpec") {
        let path = path.child("gmsaCredentialSpec");
        let credentials = text(options, "gmsaCredentialSpec");
        if credentials.is_empty() {
            let detail = "gmsaCredentialSpec cannot be an empty string";
            errors.invalid(&path, &"".into(), detail);
        } else if credentials.len() > CREDENTIALS_MAX_KIB * 1024 {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIALS_MAX_KIB} KiB");
            errors.invalid(&path, &credentials.into(), &detail);
        }
    }
    if has(options, "runAsUserName") {
        let name = text(options, "runAsUserName");
        complain(errors, &path.child("runAsUserName"), name, user_name(name));
    }
}

fn user_name(name: &str) -> Vec<String> {
    let say = |text: &str| vec![format!("runAsUserName{text}")];
    if name.is_empty() {
        return say(" cannot be an empty string");
    }
    if name.bytes().any(|b| b.is_ascii_control()) {
        return say(" cannot contain control characters");
    }
    if name.matches('\\').count() > 1 {
        return say(" cannot contain more than one backslash");
    }
    let (domain, user) = match name.split_once('\\') {
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut complaints = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX) {
        complaints.extend(say(&format!(
            "'s Domain length must be under {DOMAIN_MAX} characters"
        )));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_dns(domain)) {
        complaints.extend(say(
            "'s Domain doesn't match the NetBios nor the DNS format",
        ));
    }
    if user.is_empty() {
        complaints.extend(say("'s User cannot be empty"));
    } else if user.len() > USER_MAX {
        let limit = format!("'s User length must not be longer than {USER_MAX} characters");
        complaints.extend(say(&limit));
    }
    if !user.is_empty() && user.bytes().all(|b| matches!(b, b'.' | b' ')) {
        complaints.extend(say("'s User cannot contain only periods or spaces"));
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        complaints.extend(say(
            "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        ));
    }
    complaints
}

fn is_net_bios(domain: &str) -> bool {
    let length = domain.chars().count();
    (1..=15).contains(&length)
        && !domain.starts_with('.')
        && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_dns(domain: &str) -> bool {
    names::dns1123_subdomain_caseless(domain).is_empty()
        && domain.split('.').all(|label| label.len() <= 63)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    #[test]
    fn fields_go_with_the_system() {
        let check =
            |spec: Value| told(|e| operating_system(e, &Path::root("spec"), &spec)).join("|");
        let windows = json!({"windowsOptions": {}});
        assert_eq!(
            check(json!({"os": {"name": "windows"}, "securityContext": windows})),
            ""
        );
        assert_eq!(
            check(json!({"os": {"name": "linux"}, "containers": [{"securityContext": windows}]})),
            "spec.containers[0].securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"
        );
        assert_eq!(
            check(
                json!({"os": {"name": "windows"}, "hostPID": true, "securityContext": {"fsGroup": 1}})
            ),
            "spec.hostPID: Forbidden: cannot be set for a windows pod|spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod"
        );
        assert_eq!(
            check(json!({"os": {"name": ""}})),
            "spec.os.name: Required value"
        );
        assert_eq!(
            check(json!({"os": {"name": "plan9"}})),
            "spec.os: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\""
        );
    }

    #[test]
    fn host_processes_come_together() {
        let process =
            |flag: bool| json!({"securityContext": {"windowsOptions": {"hostProcess": flag}}});
        let check = |spec: Value| told(|e| host_processes(e, &Path::root("spec"), &spec)).join("|");
        assert_eq!(
            check(json!({"hostNetwork": true, "containers": [process(true)]})),
            ""
        );
        assert_eq!(check(json!({"containers": [process(false)]})), "");
        assert_eq!(
            check(json!({"containers": [process(true)]})),
            "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers"
        );
        assert!(
            check(json!({"hostNetwork": true, "containers": [process(true), {}]}))
                .contains("all containers must be HostProcess containers")
        );
    }

    #[test]
    fn windows_user_names_are_checked() {
        for fine in ["user", "DOMAIN\\user", "a.example.com\\some user"] {
            assert_eq!(user_name(fine), Vec::<String>::new(), "{fine}");
        }
        for (name, complaint) in [
            ("", "cannot be an empty string"),
            ("a\\b\\c", "more than one backslash"),
            ("..", "only periods or spaces"),
            ("a@b", "cannot contain the following characters"),
            ("a:b\\c", "neither"),
        ] {
            let found = user_name(name).join("|");
            let expected = if complaint == "neither" {
                "NetBios nor the DNS"
            } else {
                complaint
            };
            assert!(found.contains(expected), "{name}: {found}");
        }
    }
}
