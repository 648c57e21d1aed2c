//! Containers: main, init and ephemeral ones.

use std::collections::HashSet;

use serde_json::Value;

use super::pod_spec::PodContext;
use super::{container_env, container_mounts, pod_security, probe, resources};
use crate::field::{Errors, Path};
use crate::pod_resources::is_sidecar;
use crate::validation::names;
use crate::validation::reading::{at, has, int, items, text};
use crate::validation::rules::complain;
use crate::validation::values::{choice, optional_choice};

const NOT_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";
const NOT_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const RULES_NEED_POLICY: &str = "must specify restartPolicy when restart rules are used";
/// What an ephemeral container may not have, in declared order.
const NOT_FOR_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];
/// Allowed pull policies.
pub(crate) const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// The main containers: at least one.
pub(crate) fn main_containers(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: &Value,
    pod: &PodContext<'_>,
) {
    let list = items(spec, "containers");
    if list.is_empty() {
        return errors.required(path, "");
    }
    let mut names = HashSet::new();
    for (i, container) in list.iter().enumerate() {
        let element = path.index(i);
        shared(errors, &element, container, pod);
        let name = text(container, "name");
        if !names.insert(name) {
            errors.duplicate(&element.child("name"), &name.into());
        }
        hooks_and_probes(errors, &element, container, pod);
        restart_policy(errors, &element, container);
    }
    unique_host_ports(errors, path, list);
}

/// Init containers; those that stay may have probes and hooks.
pub(crate) fn init_containers(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: &Value,
    pod: &PodContext<'_>,
) {
    let mut names: HashSet<&str> = items(spec, "containers")
        .iter()
        .map(|c| text(c, "name"))
        .collect();
    for (i, container) in items(spec, "initContainers").iter().enumerate() {
        let element = path.index(i);
        shared(errors, &element, container, pod);
        restart_policy(errors, &element, container);
        let name = text(container, "name");
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(&element.child("name"), &name.into());
        }
        // They run one after the other, so ports only clash within one.
        unique_host_ports(errors, path, std::slice::from_ref(container));
        if is_sidecar(container) {
            hooks_and_probes(errors, &element, container, pod);
            continue;
        }
        for field in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            if has(container, field) {
                errors.forbidden(&element.child(field), NOT_INIT);
            }
        }
        no_restart_on_resize(errors, &element, container);
    }
}

fn no_restart_on_resize(errors: &mut Errors, path: &Path<'_>, container: &Value) {
    for (i, policy) in items(container, "resizePolicy").iter().enumerate() {
        if text(policy, "restartPolicy") == "RestartContainer" {
            errors.invalid(
                &path.child("resizePolicy").index(i).child("restartPolicy"),
                at(policy, "restartPolicy"),
                "must not be set to 'RestartContainer' for non-sidecar initContainers",
            );
        }
    }
}

/// Ephemeral containers: no promises to keep, so no ports, probes, hooks or resources.
pub(crate) fn ephemeral_containers(
    errors: &mut Errors,
    path: &Path<'_>,
    spec: &Value,
    pod: &PodContext<'_>,
) {
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(spec, list))
        .map(|c| text(c, "name"))
        .collect();
    let mut names = others.clone();
    for (i, container) in items(spec, "ephemeralContainers").iter().enumerate() {
        let element = path.index(i);
        shared(errors, &element, container, pod);
        trimmed_image(errors, &element, container);
        let (name, target) = (
            text(container, "name"),
            text(container, "targetContainerName"),
        );
        if !names.insert(name) {
            errors.duplicate(&element.child("name"), &name.into());
        }
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&element.child("targetContainerName"), &target.into());
        }
        only_ephemeral_fields(errors, &element, container);
    }
}

fn only_ephemeral_fields(errors: &mut Errors, path: &Path<'_>, container: &Value) {
    for field in NOT_FOR_EPHEMERAL {
        let value = at(container, field);
        let is_empty = value
            .as_object()
            .is_some_and(|map| field == "resources" && map.is_empty());
        if !value.is_null() && !is_empty {
            errors.forbidden(&path.child(field), NOT_EPHEMERAL);
        }
    }
    let mounts = path.child("volumeMounts");
    for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text(mount, field).is_empty() {
                errors.forbidden(&mounts.index(i).child(field), NOT_EPHEMERAL);
            }
        }
    }
}

/// Pods only: templates may hold image names that something fills in later.
pub(crate) fn trimmed_images(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    for (i, container) in list.iter().enumerate() {
        trimmed_image(errors, &path.index(i), container);
    }
}

/// An image name without spaces around it.
pub(crate) fn trimmed_image(errors: &mut Errors, path: &Path<'_>, container: &Value) {
    let image = text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.invalid(&path.child("image"), &image.into(), detail);
    }
}

// What containers of every sort obey.
fn shared(errors: &mut Errors, path: &Path<'_>, container: &Value, pod: &PodContext<'_>) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        complain(
            errors,
            &path.child("name"),
            name,
            names::dns1123_label(name),
        );
    }
    if text(container, "image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    choice(
        errors,
        &path.child("terminationMessagePolicy"),
        text(container, "terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
    );
    ports(errors, &path.child("ports"), items(container, "ports"));
    container_env::variables(errors, &path.child("env"), items(container, "env"));
    container_env::variables_from(errors, &path.child("envFrom"), items(container, "envFrom"));
    container_mounts::mounts(errors, &path.child("volumeMounts"), container, pod);
    container_mounts::devices(errors, &path.child("volumeDevices"), container, pod);
    let pull_policy = text(container, "imagePullPolicy");
    choice(
        errors,
        &path.child("imagePullPolicy"),
        pull_policy,
        &PULL_POLICIES,
    );
    let requirements = at(container, "resources");
    resources::of_container(errors, &path.child("resources"), requirements, &pod.claims);
    resize_policy(
        errors,
        &path.child("resizePolicy"),
        container,
        pod.restart_policy,
    );
    let context = at(container, "securityContext");
    pod_security::of_container(
        errors,
        &path.child("securityContext"),
        context,
        pod.host_users,
    );
}

fn hooks_and_probes(errors: &mut Errors, path: &Path<'_>, container: &Value, pod: &PodContext<'_>) {
    let lifecycle = at(container, "lifecycle");
    if !lifecycle.is_null() {
        probe::lifecycle(
            errors,
            &path.child("lifecycle"),
            lifecycle,
            pod.grace_period,
            pod.os,
        );
    }
    probe::of_container(errors, path, container);
}

fn ports(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    let mut names = HashSet::new();
    for (i, port) in list.iter().enumerate() {
        let element = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if complaints.is_empty() && !names.insert(name) {
                errors.duplicate(&element.child("name"), &name.into());
            }
            complain(errors, &element.child("name"), name, complaints);
        }
        if int(port, "containerPort") == 0 {
            errors.required(&element.child("containerPort"), "");
        }
        for field in ["containerPort", "hostPort"] {
            let number = int(port, field);
            if number != 0 {
                for complaint in names::port_number(number) {
                    errors.invalid(&element.child(field), &number.into(), &complaint);
                }
            }
        }
        choice(
            errors,
            &element.child("protocol"),
            text(port, "protocol"),
            &PROTOCOLS,
        );
    }
}

fn unique_host_ports(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    let mut seen = HashSet::new();
    for (i, container) in list.iter().enumerate() {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let number = int(port, "hostPort");
            if number == 0 {
                continue;
            }
            let key = format!(
                "{}/{}/{number}",
                text(port, "protocol"),
                text(port, "hostIP")
            );
            if !seen.insert(key.clone()) {
                let element = path.index(i);
                let ports = element.child("ports");
                errors.duplicate(&ports.index(j).child("hostPort"), &key.into());
            }
        }
    }
}

fn resize_policy(errors: &mut Errors, path: &Path<'_>, container: &Value, pod_policy: &str) {
    let mut seen = HashSet::new();
    for (i, policy) in items(container, "resizePolicy").iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path.index(i), &resource.into());
        }
        choice(errors, path, resource, &["cpu", "memory"]);
        choice(errors, path, restart, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, &restart.into(), detail);
        }
    }
}

fn restart_policy(errors: &mut Errors, path: &Path<'_>, container: &Value) {
    let rules = items(container, "restartPolicyRules");
    if !has(container, "restartPolicy") && !rules.is_empty() {
        errors.required(&path.child("restartPolicy"), RULES_NEED_POLICY);
    }
    let policies = ["Always", "Never", "OnFailure"];
    optional_choice(errors, path, container, "restartPolicy", &policies);
    let rules_path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.too_many(&rules_path, rules.len(), 20);
    }
    for (i, rule) in rules.iter().enumerate() {
        restart_rule(errors, &rules_path.index(i), rule);
    }
}

fn restart_rule(errors: &mut Errors, path: &Path<'_>, rule: &Value) {
    let (action, codes) = (text(rule, "action"), at(rule, "exitCodes"));
    let actions = ["Restart", "RestartAllContainers"];
    if !actions.contains(&action) {
        errors.not_supported(&path.child("action"), &action.into(), &actions);
    }
    let codes_path = path.child("exitCodes");
    if codes.is_null() {
        return errors.required(&codes_path, "must be specified");
    }
    let operator = text(codes, "operator");
    let operators = ["In", "NotIn"];
    if !operators.contains(&operator) {
        errors.not_supported(&codes_path.child("operator"), &operator.into(), &operators);
    }
    let values = items(codes, "values");
    if values.len() > 255 {
        errors.too_many(&codes_path.child("values"), values.len(), 255);
    }
}

#[cfg(test)]
#[path = "container_tests.rs"]
mod tests;
