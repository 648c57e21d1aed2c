//! Checks of machines and nodes.

use jiff::Timestamp;
use serde_json::Value;

use super::words::{NOT_READY, next};
use super::{Finding, World, condition, items, name_of, text};

/// Under which share of its disk free a host gets into trouble, in percent.
const LITTLE: u64 = 5;
/// How far a clock may be off, in seconds: certificates and leases bear no more.
const AHEAD: i64 = 60;

pub(super) fn disk_of_this_host(world: &World) -> Vec<Finding> {
    let little = world.free_disk.filter(|free| *free < LITTLE);
    let found = little.map(|free| {
        Finding::new(
            "this host",
            format!("{free} % of its disk is free, and all machines share it"),
            "make room: `df -h`, then `docker system prune` or the like, or another --data-dir",
        )
    });
    found.into_iter().collect()
}

pub(super) fn machines_that_are_off(world: &World) -> Vec<Finding> {
    let off = world.machines.iter().filter(|machine| !machine.is_running);
    off.map(|machine| {
        let about = format!("machine {}", machine.name);
        Finding::new(&about, "does not run", "`kyanite up` boots it again")
    })
    .collect()
}

/// Upstream approves requests of nodes by itself; one that waits was made by somebody else, or for another name.
pub(super) fn requests_that_nobody_approved(world: &World) -> Vec<Finding> {
    let pending = world
        .requests
        .iter()
        .filter(|request| items(&request["status"]["conditions"]).next().is_none())
        .filter(|request| text(&request["spec"], "signerName").contains("kube"));
    pending
        .map(|request| {
            let (name, who) = (name_of(request), text(&request["spec"], "username"));
            let signer = text(&request["spec"], "signerName");
            Finding::new(
                &format!("certificate request {name}"),
                format!("nobody has approved what {who} asks of {signer}"),
                format!("if you know who that is: `kubectl certificate approve {name}`"),
            )
        })
        .collect()
}

pub(super) fn machines_that_did_not_join(world: &World) -> Vec<Finding> {
    let joined = |name: &str| world.nodes.iter().any(|node| name_of(node) == name);
    let away = world
        .machines
        .iter()
        .filter(|machine| machine.is_running && !joined(&machine.name));
    away.map(|machine| {
        let name = &machine.name;
        Finding::new(
            &format!("machine {name}"),
            "runs, but has not joined as a node",
            format!(
                "`kyanite machine exec {name} tail /var/log/azure/aks-node-controller.log` says how far it came; \
                 `kyanite up` starts it again"
            ),
        )
    })
    .collect()
}

pub(super) fn nodes_that_are_not_ready(world: &World) -> Vec<Finding> {
    let is_off = |name: &str| {
        let mut all = world.machines.iter();
        all.any(|machine| machine.name == name && !machine.is_running)
    };
    let mut found = Vec::new();
    // One whose machine is off has been named already.
    for node in world.nodes.iter().filter(|node| !is_off(name_of(node))) {
        let name = name_of(node);
        let ready = condition(node, "Ready").unwrap_or(&Value::Null);
        if ready["status"] == "True" {
            continue;
        }
        let message = match text(ready, "message") {
            "" => "has not said how it is",
            message => message,
        };
        let step = next(&NOT_READY, message).unwrap_or_default();
        found.push(Finding::new(
            &format!("node {name}"),
            format!("is not Ready: {message}"),
            step.replace("{node}", name),
        ));
    }
    found
}

/// Conditions that are bad when they are true.
const SHORT_OF: [(&str, &str, &str); 3] = [
    (
        "DiskPressure",
        "short of disk, and evicts pods",
        "make room on this host's disk (`df -h`), or remove images: `kyanite machine exec {node} crictl rmi --prune`",
    ),
    (
        "MemoryPressure",
        "short of memory, and evicts pods",
        "see who uses it: `kubectl top pods -A`, or free memory on this host",
    ),
    (
        "PIDPressure",
        "short of process numbers",
        "see who forks: `kyanite machine exec {node} ps -eLf`",
    ),
];

pub(super) fn nodes_that_are_short_of_something(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    for node in &world.nodes {
        let name = name_of(node);
        for (kind, wrong, step) in SHORT_OF {
            if condition(node, kind).is_some_and(|condition| condition["status"] == "True") {
                let about = format!("node {name}");
                found.push(Finding::new(&about, wrong, step.replace("{node}", name)));
            }
        }
    }
    found
}

/// A node whose last word lies ahead of us has another time.
pub(super) fn clocks(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    for node in &world.nodes {
        let heard = condition(node, "Ready").map(|ready| text(ready, "lastHeartbeatTime"));
        let heard: Option<Timestamp> = heard.and_then(|time| time.parse().ok());
        let ahead = heard.map_or(0, |time| time.as_second() - world.now.as_second());
        if ahead > AHEAD {
            found.push(Finding::new(
                &format!("node {}", name_of(node)),
                format!("its clock is {ahead} s ahead"),
                "set it by a time server (chrony, systemd-timesyncd): certificates and leases depend on it",
            ));
        }
    }
    found
}
