//! Who must go: tables.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use scheduler::{Budget, Place, Preempted, Selector};
use serde_json::{Value, json};

use super::world::{Mind, World, node, pod};

struct Case {
    mind: Mind,
    budgets: Vec<Budget>,
}

/// Nodes with four CPUs, and pods on them: node, name, CPUs, priority, start.
fn case(nodes: &[&str], pods: &[(&str, &str, &str, i32, &str)]) -> Case {
    let nodes = nodes
        .iter()
        .map(|name| node(name, &json!({}), &json!({})))
        .collect();
    let mut mind = Mind::of(&World {
        nodes,
        ..World::default()
    });
    for (node, name, cpu, priority, start) in pods {
        let more = json!({ "metadata": { "labels": { "app": name } }, "spec": { "priority": priority },
            "status": { "startTime": format!("2026-01-01T00:00:{start}Z") } });
        mind.put(&pod(name, cpu, &more), node);
    }
    Case {
        mind,
        budgets: Vec::new(),
    }
}

impl Case {
    fn protect(&mut self, app: &str) {
        let symbols = &mut self.mind.0.cluster.symbols;
        let selector: LabelSelector =
            serde_json::from_value(json!({ "matchLabels": { "app": app } })).unwrap();
        self.budgets.push(Budget {
            namespace: symbols.of("default"),
            selector: Selector::of(symbols, Some(&selector), &[]),
            allowed: 0,
            disrupted: Vec::new(),
        });
    }

    /// The node and the names of those that must go, or why not.
    fn preempt(&mut self, pod: &Value) -> Result<(String, Vec<String>), String> {
        let waiting = self.mind.waiting(pod);
        let Place::Nowhere(diagnosis) = self.mind.0.place(&waiting) else {
            panic!("it fits without preemption");
        };
        match self.mind.0.preempt(&waiting, &diagnosis, &self.budgets) {
            Preempted::Node(row, victims) => {
                let node = self.mind.0.cluster.name(row).to_owned();
                let mut names: Vec<String> = victims
                    .iter()
                    .map(|uid| uid.rsplit('/').next().unwrap().to_owned())
                    .collect();
                names.sort();
                Ok((node, names))
            }
            Preempted::NoHelp(why) => Err(why),
            Preempted::Ineligible(why) => Err(why.to_owned()),
        }
    }
}

fn important(cpu: &str) -> Value {
    pod("vip", cpu, &json!({ "spec": { "priority": 100 } }))
}

fn expect(node: &str, victims: &[&str]) -> Result<(String, Vec<String>), String> {
    Ok((
        node.to_owned(),
        victims.iter().map(|v| (*v).to_owned()).collect(),
    ))
}

#[test]
fn as_few_and_as_unimportant_as_possible_go() {
    let mut one = case(
        &["a"],
        &[("a", "low", "2", 1, "01"), ("a", "mid", "2", 50, "01")],
    );
    assert_eq!(one.preempt(&important("2")), expect("a", &["low"]));
    assert_eq!(one.preempt(&important("3")), expect("a", &["low", "mid"]));
    let mut two = case(
        &["a", "b"],
        &[
            ("a", "mid", "4", 50, "01"),
            ("b", "low1", "2", 1, "01"),
            ("b", "low2", "2", 1, "01"),
        ],
    );
    assert_eq!(two.preempt(&important("4")), expect("b", &["low1", "low2"]));
    let mut fewer = case(
        &["a", "b"],
        &[
            ("a", "one", "4", 1, "01"),
            ("b", "two", "2", 1, "01"),
            ("b", "three", "2", 1, "01"),
        ],
    );
    assert_eq!(fewer.preempt(&important("4")), expect("a", &["one"]));
    let mut younger = case(
        &["a", "b"],
        &[("a", "old", "4", 1, "01"), ("b", "young", "4", 1, "09")],
    );
    assert_eq!(younger.preempt(&important("4")), expect("b", &["young"]));
}

#[test]
fn budgets_are_broken_only_where_nothing_else_helps() {
    let mut either = case(
        &["a", "b"],
        &[("a", "kept", "4", 1, "09"), ("b", "other", "4", 50, "01")],
    );
    either.protect("kept");
    assert_eq!(either.preempt(&important("4")), expect("b", &["other"]));
    let mut only = case(&["a"], &[("a", "kept", "4", 1, "01")]);
    only.protect("kept");
    assert_eq!(only.preempt(&important("4")), expect("a", &["kept"]));
    let mut spared = case(
        &["a"],
        &[("a", "kept", "2", 1, "01"), ("a", "other", "2", 50, "01")],
    );
    spared.protect("kept");
    assert_eq!(spared.preempt(&important("2")), expect("a", &["other"]));
}

#[test]
fn where_it_does_not_help_that_is_said_node_by_node() {
    let mut equal = case(&["a"], &[("a", "same", "4", 100, "01")]);
    let none = "0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(equal.preempt(&important("4")), Err(none.into()));
    let mut large = case(&["a", "b"], &[("a", "low", "4", 1, "01")]);
    let not = "0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(large.preempt(&important("5")), Err(not.into()));
    let never = pod(
        "vip",
        "4",
        &json!({ "spec": { "priority": 100, "preemptionPolicy": "Never" } }),
    );
    let mut full = case(&["a"], &[("a", "low", "4", 1, "01")]);
    assert_eq!(
        full.preempt(&never),
        Err("not eligible due to preemptionPolicy=Never.".into())
    );
}

#[test]
fn a_promised_node_is_not_given_to_somebody_less_important() {
    let mut case = case(&["a"], &[]);
    let vip = case.mind.waiting(&important("4"));
    case.mind.0.promise(&vip, "a");
    let said = case.mind.place(&pod("small", "1", &json!({}))).unwrap_err();
    assert_eq!(said, "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(case.mind.place(&important("4")), Ok("a".into()));
    let greater = pod("greater", "1", &json!({ "spec": { "priority": 1000 } }));
    assert_eq!(case.mind.place(&greater), Ok("a".into()));
}
