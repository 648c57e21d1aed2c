//! Nodes and what the cluster as a whole has: classes, certificates, devices, component health.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use kube_kit::duration;
use serde_json::Value;

use super::column::{AGE, NAME, boolean, integer, text, wide};
use super::row::{self, Row, condition, is_set};
use super::{Column, Printer};

pub(super) const PRINTERS: [Printer; 9] = [
    Printer("", "Node", &NODE, node),
    Printer("", "ComponentStatus", &COMPONENT_STATUS, component_status),
    Printer(
        "scheduling.k8s.io",
        "PriorityClass",
        &PRIORITY_CLASS,
        priority_class,
    ),
    Printer("node.k8s.io", "RuntimeClass", &RUNTIME_CLASS, runtime_class),
    Printer(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        &SIGNING_REQUEST,
        signing_request,
    ),
    Printer("resource.k8s.io", "DeviceClass", &[NAME, AGE], |row| {
        vec![row.name(), row.age()]
    }),
    Printer(
        "resource.k8s.io",
        "ResourceClaimTemplate",
        &[NAME, AGE],
        |row| vec![row.name(), row.age()],
    ),
    Printer(
        "resource.k8s.io",
        "ResourceClaim",
        &RESOURCE_CLAIM,
        resource_claim,
    ),
    Printer(
        "resource.k8s.io",
        "ResourceSlice",
        &RESOURCE_SLICE,
        resource_slice,
    ),
];

const NODE: [Column; 10] = [
    NAME,
    text(
        "Status",
        "Whether the node is ready, and closed to new pods.",
    ),
    text("Roles", "Roles of the node, from its labels."),
    AGE,
    text("Version", "Version of the node's kubelet."),
    wide("Internal-IP", "First internal address."),
    wide("External-IP", "First external address."),
    wide("OS-Image", "Operating system."),
    wide("Kernel-Version", "Kernel and architecture."),
    wide("Container-Runtime", "Container runtime and its version."),
];

fn node(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        node_status(row).into(),
        node_roles(row),
        row.age(),
        row.text("/status/nodeInfo/kubeletVersion").into(),
        node_address(row, "InternalIP").into(),
        node_address(row, "ExternalIP").into(),
        row.text_or("/status/nodeInfo/osImage", "<unknown>"),
        node_kernel(row).into(),
        row.text_or("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
    ]
}

// With two conditions of one type upstream takes the last.
fn node_status(row: &Row<'_>) -> String {
    let ready = row
        .list("/status/conditions")
        .iter()
        .rfind(|condition| row::text(condition, "/type") == "Ready");
    let status = match ready.map(|condition| row::text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    match row.flag("/spec/unschedulable") {
        true => format!("{status},SchedulingDisabled"),
        false => status.to_owned(),
    }
}

fn node_roles(row: &Row<'_>) -> Value {
    let labels = row.object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten();
    let role = |(key, value): (&'_ String, &'_ Value)| match key
        .strip_prefix("node-role.kubernetes.io/")
    {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> = labels
        .filter_map(role)
        .filter(|role| !role.is_empty())
        .collect();
    let roles = roles.into_iter().collect::<Vec<_>>().join(",");
    row::non_empty(&roles, "<none>").into()
}

fn node_address<'a>(row: &Row<'a>, ty: &str) -> &'a str {
    let address = condition(row.list("/status/addresses"), ty);
    address.map_or("<none>", |address| row::text(address, "/address"))
}

fn node_kernel(row: &Row<'_>) -> String {
    let kernel = row::non_empty(row.text("/status/nodeInfo/kernelVersion"), "<unknown>");
    match row.text("/status/nodeInfo/architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    }
}

const COMPONENT_STATUS: [Column; 4] = [
    NAME,
    text("Status", "Whether the component is healthy."),
    text("Message", "What the component says."),
    text("Error", "What went wrong."),
];

fn component_status(row: &Row<'_>) -> Vec<Value> {
    let Some(healthy) = condition(row.list("/conditions"), "Healthy") else {
        return vec![row.name(), "Unknown".into(), "".into(), "".into()];
    };
    let status = if row::text(healthy, "/status") == "True" {
        "Healthy"
    } else {
        "Unhealthy"
    };
    vec![
        row.name(),
        status.into(),
        row::text(healthy, "/message").into(),
        row::text(healthy, "/error").into(),
    ]
}

const PRIORITY_CLASS: [Column; 5] = [
    NAME,
    integer("Value", "Priority of pods of the class."),
    boolean(
        "Global-Default",
        "Whether pods without a class get this one.",
    ),
    AGE,
    text(
        "PreemptionPolicy",
        "Whether pods of the class may displace others.",
    ),
];

fn priority_class(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.int("/value").into(),
        row.flag("/globalDefault").into(),
        row.age(),
        row.text("/preemptionPolicy").into(),
    ]
}

const RUNTIME_CLASS: [Column; 3] = [
    NAME,
    text("Handler", "Configuration of the container runtime to use."),
    AGE,
];

fn runtime_class(row: &Row<'_>) -> Vec<Value> {
    vec![row.name(), row.text("/handler").into(), row.age()]
}

const SIGNING_REQUEST: [Column; 6] = [
    NAME,
    AGE,
    text("SignerName", "Who is asked to sign."),
    text("Requestor", "Who asks."),
    text(
        "RequestedDuration",
        "How long the certificate should be valid.",
    ),
    text("Condition", "What became of the request."),
];

fn signing_request(row: &Row<'_>) -> Vec<Value> {
    let seconds = row.int("/spec/expirationSeconds");
    let duration = match is_set(row.object, "/spec/expirationSeconds") {
        true => duration::human(SignedDuration::from_secs(seconds)),
        false => "<none>".to_owned(),
    };
    vec![
        row.name(),
        row.age(),
        row.text_or("/spec/signerName", "<none>"),
        row.text("/spec/username").into(),
        duration.into(),
        signing_condition(row).into(),
    ]
}

// A denial outweighs an approval.
fn signing_condition(row: &Row<'_>) -> String {
    let conditions = row.list("/status/conditions");
    let has = |ty: &str| condition(conditions, ty).is_some();
    let mut status = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !row.text("/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    status
}

const RESOURCE_CLAIM: [Column; 3] = [
    NAME,
    text("State", "Whether devices are allocated and reserved."),
    AGE,
];

fn resource_claim(row: &Row<'_>) -> Vec<Value> {
    let allocated = is_set(row.object, "/status/allocation");
    let states = [
        ("deleted", row.is_deleting()),
        ("pending", !allocated && !row.is_deleting()),
        ("allocated", allocated),
        (
            "reserved",
            allocated && row.count("/status/reservedFor") > 0,
        ),
    ];
    let states = states
        .into_iter()
        .filter(|(_, holds)| *holds)
        .map(|(state, _)| state);
    vec![row.name(), row::joined(states, ","), row.age()]
}

const RESOURCE_SLICE: [Column; 5] = [
    NAME,
    text("Node", "Node that has the devices."),
    text("Driver", "Driver of the devices."),
    text("Pool", "Pool the devices belong to."),
    AGE,
];

fn resource_slice(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        row.text("/spec/nodeName").into(),
        row.text("/spec/driver").into(),
        row.text("/spec/pool/name").into(),
        row.age(),
    ]
}
