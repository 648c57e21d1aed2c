//! The spec of a pod, in a pod or in a template.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::pod_windows::for_each_container;
use super::{affinity, container, pod_annotations, pod_security, pod_windows, resources, volume};
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, flag, has, int, items, some_int, text, texts};
use crate::validation::rules::{complain, labels};
use crate::validation::values::{choice, optional_label, optional_subdomain};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;
const HOSTNAME_MAX: usize = 64;
const NOT_WITH_OWN_USERS: &str = "when `hostUsers` is false";

/// What the checks of a container need to know about its pod.
pub(crate) struct PodContext<'v> {
    /// The volumes that can be mounted, by name.
    pub(crate) volumes: HashMap<&'v str, &'v Value>,
    /// Names of the pod's resource claims.
    pub(crate) claims: BTreeSet<&'v str>,
    pub(crate) grace_period: Option<i64>,
    pub(crate) restart_policy: &'v str,
    pub(crate) os: Option<&'v str>,
    /// Whether the pod shares the users of its node.
    pub(crate) host_users: bool,
    /// A pod itself, not the template of one.
    pub(crate) is_pod: bool,
}

impl<'v> PodContext<'v> {
    /// What a spec says about itself.
    pub(crate) fn of(spec: &'v Value, is_pod: bool) -> PodContext<'v> {
        let claims = items(spec, "resourceClaims")
            .iter()
            .map(|claim| text(claim, "name"));
        PodContext {
            volumes: items(spec, "volumes")
                .iter()
                .map(|v| (text(v, "name"), v))
                .collect(),
            claims: claims.filter(|name| !name.is_empty()).collect(),
            grace_period: some_int(spec, "terminationGracePeriodSeconds"),
            restart_policy: text(spec, "restartPolicy"),
            os: has(spec, "os").then(|| text(at(spec, "os"), "name")),
            host_users: at(spec, "hostUsers") != &Value::Bool(false),
            is_pod,
        }
    }
}

/// Checks a pod spec at `path`. `metadata` is the pod's, or null for a template.
pub(crate) fn spec(errors: &mut Errors, path: &Path<'_>, spec: &Value, metadata: &Value) {
    let mut pod = PodContext::of(spec, !metadata.is_null());
    if pod.grace_period.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let pod_name = text(metadata, "name");
    let volumes_path = path.child("volumes");
    pod.volumes = volume::volumes(
        errors,
        &volumes_path,
        items(spec, "volumes"),
        pod_name,
        pod.is_pod,
    );
    resource_claims(errors, &path.child("resourceClaims"), spec, metadata);
    container::main_containers(errors, &path.child("containers"), spec, &pod);
    container::init_containers(errors, &path.child("initContainers"), spec, &pod);
    container::ephemeral_containers(errors, &path.child("ephemeralContainers"), spec, &pod);
    resources::of_pod(errors, &path.child("resources"), spec);
    if flag(spec, "hostNetwork") {
        host_network_ports(errors, &path.child("containers"), spec, pod.is_pod);
    }
    let policies = ["Always", "OnFailure", "Never"];
    choice(
        errors,
        &path.child("restartPolicy"),
        pod.restart_policy,
        &policies,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice(
        errors,
        &path.child("dnsPolicy"),
        text(spec, "dnsPolicy"),
        &policies,
    );
    labels(errors, path, spec, "nodeSelector");
    pod_security::of_pod(errors, &path.child("securityContext"), spec);
    affinity::affinity(errors, &path.child("affinity"), at(spec, "affinity"));
    dns_config(errors, &path.child("dnsConfig"), spec);
    gates(errors, path, spec);
    let constraints = items(spec, "topologySpreadConstraints");
    affinity::topology_spread(
        errors,
        &path.child("topologySpreadConstraints"),
        constraints,
    );
    pod_windows::host_processes(errors, path, spec);
    if !pod.host_users {
        own_users(errors, path, spec);
    }
    identity(errors, path, spec);
    affinity::tolerations(
        errors,
        &path.child("tolerations"),
        items(spec, "tolerations"),
    );
    host_aliases(
        errors,
        &path.child("hostAliases"),
        items(spec, "hostAliases"),
    );
    resources::overhead(errors, &path.child("overhead"), at(spec, "overhead"));
    pod_windows::operating_system(errors, path, spec);
    file_keys(errors, path, spec);
}

// Names the pod goes by and names it refers to.
fn identity(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    hostname_override(errors, path, spec);
    for name in ["serviceAccountName", "nodeName", "priorityClassName"] {
        optional_subdomain(errors, path, spec, name);
    }
    if let Some(seconds) = some_int(spec, "activeDeadlineSeconds") {
        for complaint in names::in_range(seconds, 1, i64::from(i32::MAX)) {
            errors.invalid(
                &path.child("activeDeadlineSeconds"),
                &seconds.into(),
                &complaint,
            );
        }
    }
    for name in ["hostname", "subdomain"] {
        optional_label(errors, path, spec, name);
    }
    if has(spec, "runtimeClassName") {
        let name = text(spec, "runtimeClassName");
        let path = path.child("runtimeClassName");
        complain(errors, &path, name, names::dns1123_subdomain(name));
    }
    if has(spec, "preemptionPolicy") {
        let policies = ["PreemptLowerPriority", "Never"];
        let policy = text(spec, "preemptionPolicy");
        choice(errors, &path.child("preemptionPolicy"), policy, &policies);
    }
}

fn hostname_override(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    if !has(spec, "hostnameOverride") {
        return;
    }
    let path = path.child("hostnameOverride");
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if flag(spec, field) {
            errors.forbidden(&path, &format!("may not be specified when {field} is true"));
        }
    }
    let name = text(spec, "hostnameOverride");
    if name.len() > HOSTNAME_MAX {
        errors.too_long(&path, HOSTNAME_MAX);
    }
    complain(errors, &path, name, names::dns1123_subdomain(name));
}

fn resource_claims(errors: &mut Errors, path: &Path<'_>, spec: &Value, metadata: &Value) {
    let is_static = at(metadata, "annotations")
        .get(pod_annotations::MIRROR)
        .is_some();
    let mut seen = HashSet::new();
    for (i, claim) in items(spec, "resourceClaims").iter().enumerate() {
        let element = path.index(i);
        if is_static {
            errors.forbidden(
                &Path::root(""),
                "static pods do not support resource claims",
            );
            continue;
        }
        match text(claim, "name") {
            "" => errors.required(&element.child("name"), ""),
            name if !seen.insert(name) => errors.duplicate(&element.child("name"), &name.into()),
            name => complain(
                errors,
                &element.child("name"),
                name,
                names::dns1123_label(name),
            ),
        }
        match (has(claim, "resourceClaimName"), has(claim, "resourceClaimTemplateName")) {
            (true, true) => errors.invalid(
                &element,
                claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => errors.invalid(
                &element,
                claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if has(claim, field) {
                let name = text(claim, field);
                complain(
                    errors,
                    &element.child(field),
                    name,
                    names::dns1123_subdomain(name),
                );
            }
        }
    }
}

// A template may leave the host port out, since the pod gets it filled in.
fn host_network_ports(errors: &mut Errors, path: &Path<'_>, spec: &Value, is_pod: bool) {
    for (i, container) in items(spec, "containers").iter().enumerate() {
        let element = path.index(i);
        let ports = element.child("ports");
        for (j, port) in items(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort");
            if (is_pod || host != 0) && host != int(port, "containerPort") {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&ports.index(j).child("hostPort"), &host.into(), detail);
            }
        }
    }
}

fn own_users(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    // Two of the paths are spelt like Go fields upstream.
    for (field, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if flag(spec, field) {
            errors.forbidden(&path.child(shown), NOT_WITH_OWN_USERS);
        }
    }
    for_each_container(path, spec, |path, container| {
        if !items(container, "volumeDevices").is_empty() {
            errors.forbidden(&path.child("volumeDevices"), NOT_WITH_OWN_USERS);
        }
    });
}

fn dns_config(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let config = at(spec, "dnsConfig");
    let servers = items(config, "nameservers");
    let servers_path = path.child("nameservers");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            return errors.required(path, detail);
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&servers_path, detail);
        }
    }
    if servers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.invalid(&servers_path, at(config, "nameservers"), &detail);
    }
    for (i, server) in texts(config, "nameservers").enumerate() {
        complain(errors, &servers_path.index(i), server, names::ip(server));
    }
    dns_searches(errors, &path.child("searches"), config);
    let options_path = path.child("options");
    for (i, option) in items(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&options_path.index(i), "must not be empty");
        }
    }
}

fn dns_searches(errors: &mut Errors, path: &Path<'_>, config: &Value) {
    let searches: Vec<&str> = texts(config, "searches").collect();
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.invalid(path, at(config, "searches"), &detail);
    }
    if searches.join(" ").len() > SEARCH_CHARACTERS_MAX {
        let detail = format!(
            "must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the search list"
        );
        errors.invalid(path, at(config, "searches"), &detail);
    }
    for (i, search) in searches
        .iter()
        .enumerate()
        .filter(|(_, search)| **search != ".")
    {
        let search = search.strip_suffix('.').unwrap_or(search);
        let complaints = names::dns1123_subdomain_with_underscore(search);
        complain(errors, &path.index(i), search, complaints);
    }
}

fn gates(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let readiness = path.child("readinessGates");
    for (i, gate) in items(spec, "readinessGates").iter().enumerate() {
        let ty = text(gate, "conditionType");
        let path = readiness.index(i);
        complain(
            errors,
            &path.child("conditionType"),
            ty,
            names::qualified_name(ty),
        );
    }
    let scheduling = path.child("schedulingGates");
    let mut seen = HashSet::new();
    for (i, gate) in items(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        complain(
            errors,
            &scheduling.index(i),
            name,
            names::qualified_name(name),
        );
        if !seen.insert(name) {
            errors.duplicate(&scheduling.index(i), &name.into());
        }
    }
}

fn host_aliases(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    for (i, alias) in list.iter().enumerate() {
        let element = path.index(i);
        let ip = text(alias, "ip");
        complain(errors, &element.child("ip"), ip, names::ip(ip));
        let hostnames = element.child("hostnames");
        for (j, name) in texts(alias, "hostnames").enumerate() {
            complain(
                errors,
                &hostnames.index(j),
                name,
                names::dns1123_subdomain(name),
            );
        }
    }
}

// Variables read from files come from empty directories that other containers fill.
fn file_keys(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    for_each_container(path, spec, |path, container| {
        let env = path.child("env");
        for (i, variable) in items(container, "env").iter().enumerate() {
            let source = at(at(variable, "valueFrom"), "fileKeyRef");
            if source.is_null() {
                continue;
            }
            let name = text(source, "volumeName");
            let element = env.index(i);
            let from = element.child("valueFrom");
            let source_path = from.child("fileKeyRef");
            let path = source_path.child("volumeName");
            match items(spec, "volumes")
                .iter()
                .find(|volume| text(volume, "name") == name)
            {
                None => errors.not_found(&path, &name.into()),
                Some(volume) if !has(volume, "emptyDir") => {
                    let detail = "referenced volume must be of type emptyDir";
                    errors.invalid(&path, &name.into(), detail);
                }
                Some(_) => {}
            }
        }
    });
}

#[cfg(test)]
#[path = "pod_spec_tests.rs"]
pub(crate) mod tests;
