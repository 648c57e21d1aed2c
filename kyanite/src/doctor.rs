//! What is wrong with a cluster's nodes and pods, and what to do next. Pure: a table of checks over its objects.

mod nodes;
mod pods;
mod words;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

/// What checks look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    /// When it was looked at.
    pub(crate) now: Timestamp,
    /// Objects, as the API server has them.
    pub(crate) nodes: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) events: Vec<Value>,
    pub(crate) requests: Vec<Value>,
    pub(crate) deployments: Vec<Value>,
    /// Machines of this host that are to be nodes.
    pub(crate) machines: Vec<Machine>,
    /// How much of the data directory's disk is free, in percent.
    pub(crate) free_disk: Option<u64>,
}

/// A machine of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) is_running: bool,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// With what, such as `pod default/web`.
    pub(crate) about: String,
    /// What.
    pub(crate) wrong: String,
    /// The next step.
    pub(crate) next: String,
}

impl Finding {
    fn new(about: &str, wrong: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding {
            about: about.to_owned(),
            wrong: wrong.into(),
            next: next.into(),
        }
    }
}

type Check = fn(&World) -> Vec<Finding>;

/// Every check, from what others follow from to what follows.
const CHECKS: [Check; 10] = [
    nodes::disk_of_this_host,
    nodes::machines_that_are_off,
    nodes::requests_that_nobody_approved,
    nodes::machines_that_did_not_join,
    nodes::nodes_that_are_not_ready,
    nodes::nodes_that_are_short_of_something,
    nodes::clocks,
    pods::without_a_node,
    pods::that_do_not_start,
    pods::deployments_that_cannot_make_pods,
];

/// Everything that is wrong.
pub(crate) fn findings(world: &World) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(world)).collect()
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(&object["status"]["conditions"]).find(|condition| condition["type"] == kind)
}
