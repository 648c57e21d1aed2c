//! Nodes whose machines are gone are deleted, and those whose machines are off are marked.
//!
//! A node is deleted only after several fresh answers in a row that say that its machine is gone: lists of a cloud lag
//! behind, and a node that is deleted by mistake takes its pods with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use azure::Error;
use client_runtime::{Actor, Answer, Cache, Recorder, Severity};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

use super::instances::Instances;
use super::machine::State;
use super::{NodeView, change};
use crate::Manager;

/// Upstream's taint of nodes whose machines are off.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Lets volumes be taken from a node that is off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// How many fresh answers in a row must say that a machine is gone.
const MISSES: u32 = 3;

/// What is to be done about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    Delete,
    /// These taints are to be there, and no others of ours.
    Mark(&'static [(&'static str, &'static str)]),
}

const OFF: &[(&str, &str)] = &[(SHUTDOWN, "NoSchedule"), (OUT_OF_SERVICE, "NoExecute")];
/// Its pods may still run: nobody may take their volumes yet.
const GOING_OFF: &[(&str, &str)] = &[(SHUTDOWN, "NoSchedule")];

/// How often in a row each node's machine was gone, by the node's uid.
#[derive(Debug, Default)]
pub(crate) struct Misses(HashMap<String, u32>);

impl Misses {
    /// Decides about a node; `state` is what a fresh answer says of its machine, nothing where the cloud was not asked
    /// because the node is well.
    pub(crate) fn decide(
        &mut self,
        node: &NodeView,
        state: Option<&Result<State, Error>>,
        grace: Duration,
        now: Timestamp,
    ) -> Act {
        match state {
            None => {
                self.0.remove(&node.uid);
                Act::Mark(&[])
            }
            // Nobody knows: what was known still counts.
            Some(Err(_)) => Act::Nothing,
            Some(Ok(State::Gone)) => {
                let misses = self.0.entry(node.uid.clone()).or_default();
                *misses += 1;
                let age = node
                    .created
                    .map_or(SignedDuration::MAX, |at| now.duration_since(at));
                let is_young = age.as_secs() < i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
                match *misses >= MISSES && !is_young {
                    true => Act::Delete,
                    false => Act::Nothing,
                }
            }
            Some(Ok(State::Stopped)) => {
                self.0.remove(&node.uid);
                Act::Mark(if node.ready { GOING_OFF } else { OFF })
            }
            Some(Ok(State::There)) => {
                self.0.remove(&node.uid);
                match node.ready {
                    true => Act::Mark(&[]),
                    false => Act::Nothing,
                }
            }
        }
    }

    /// Forgets nodes that are no more.
    pub(crate) fn keep(&mut self, nodes: &[Arc<NodeView>]) {
        self.0
            .retain(|uid, _| nodes.iter().any(|node| node.uid == *uid));
    }
}

/// The patch that leaves exactly these taints of ours; nothing where it is so already.
fn marked(node: &NodeView, wanted: &[(&str, &str)]) -> Option<Value> {
    let ours = |taint: &Taint| OFF.iter().any(|(key, _)| taint.key == *key);
    let is_so = OFF
        .iter()
        .all(|(key, _)| node.has_taint(key) == wanted.iter().any(|(wanted, _)| wanted == key));
    if is_so {
        return None;
    }
    let mut taints: Vec<Taint> = node.taints.clone();
    taints.retain(|taint| !ours(taint));
    taints.extend(wanted.iter().map(|(key, effect)| Taint {
        key: (*key).to_owned(),
        effect: (*effect).to_owned(),
        ..Taint::default()
    }));
    Some(json!({"spec": {"taints": taints}}))
}

/// Starts the controller: a look at all nodes every `--node-monitor-period`.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let nodes = manager.shared::<NodeView>();
    let actor = manager.act_as("node-controller");
    let config = &manager.config;
    let shell = Shell {
        instances: config.instances(),
        period: config.node_monitor_period,
        with_strangers: config.follows_strangers,
        with_well: config.asks_about_well,
        grace: Duration::from_secs(config.cloud.node_instance_not_found_grace_period_in_seconds),
        recorder: manager.recorder("cloud-node-lifecycle-controller", actor.clone()),
        actor,
        nodes,
    };
    manager.spawn(shell.run(name));
}

struct Shell {
    actor: Actor,
    recorder: Recorder,
    nodes: Cache<NodeView>,
    instances: Arc<Instances>,
    period: Duration,
    grace: Duration,
    with_strangers: bool,
    with_well: bool,
}

impl Shell {
    async fn run(self, controller: &'static str) {
        self.nodes.completion().reached().await;
        let mut misses = Misses::default();
        loop {
            self.look(controller, &mut misses).await;
            tokio::time::sleep(self.period).await;
        }
    }

    async fn look(&self, controller: &'static str, misses: &mut Misses) {
        let all = self.nodes.all().into_iter().map(|(_, node)| node);
        let is_followed = |node: &Arc<NodeView>| self.with_strangers || !node.is_stranger();
        let all: Vec<Arc<NodeView>> = all.filter(is_followed).collect();
        misses.keep(&all);
        let is_asked = |node: &Arc<NodeView>| self.with_well || !node.ready;
        let (asked, well): (Vec<_>, Vec<_>) = all.into_iter().partition(is_asked);
        for node in well {
            let act = misses.decide(&node, None, self.grace, Timestamp::now());
            self.act(controller, &node, act).await;
        }
        if asked.is_empty() {
            return;
        }
        let states = self.instances.states(&asked).await;
        for (node, state) in asked.iter().zip(&states) {
            if let Err(error) = state {
                tracing::warn!(controller, node = node.name, %error, "its machine cannot be asked about");
            }
            let act = misses.decide(node, Some(state), self.grace, Timestamp::now());
            self.act(controller, node, act).await;
        }
    }

    async fn act(&self, controller: &'static str, node: &NodeView, act: Act) {
        let outcome = match act {
            Act::Nothing => Ok(()),
            Act::Mark(taints) => change(&self.actor, node, |node| marked(node, taints)).await,
            Act::Delete => self.delete(node).await,
        };
        if let Err(error) = outcome {
            tracing::warn!(controller, node = node.name, %error, "will be looked at again");
        }
    }

    async fn delete(&self, node: &NodeView) -> Answer<()> {
        let name = &node.name;
        tracing::info!(node = name, "its machine is gone, and so is the node");
        let message =
            format!("Deleting node {name} because it does not exist in the cloud provider");
        self.recorder
            .event(node.reference(), Severity::Normal, "DeletingNode", message);
        let deleted = self.actor.delete::<Node>("", name, Some(&node.uid)).await;
        if let Err(error) = &deleted {
            let message = format!("Failed to delete node {name}: {error}");
            self.recorder.event(
                node.reference(),
                Severity::Warning,
                "DeletingNodeFailed",
                message,
            );
        }
        deleted
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn node() -> NodeView {
        NodeView {
            name: "n".into(),
            uid: "u".into(),
            created: Some(Timestamp::from_second(1000).unwrap()),
            ..NodeView::default()
        }
    }

    /// What is decided on each of these answers in turn.
    fn acts(answers: &[Option<Result<State, ()>>], grace: u64, now: i64) -> Vec<Act> {
        let mut misses = Misses::default();
        let now = Timestamp::from_second(now).unwrap();
        let one = |answer: &Option<Result<State, ()>>| {
            let answer = answer.map(|a| a.map_err(|()| Error::Config("x".into())));
            misses.decide(&node(), answer.as_ref(), Duration::from_secs(grace), now)
        };
        answers.iter().map(one).collect()
    }

    #[test]
    fn a_node_goes_after_several_answers_in_a_row() {
        let (gone, lost) = (Some(Ok(State::Gone)), Some(Err(())));
        let there = Some(Ok(State::There));
        let wait = Act::Nothing;
        let go = || Act::Delete;
        assert_eq!(
            acts(&[gone, gone, gone], 0, 2000),
            [wait.clone(), wait.clone(), go()]
        );
        assert_eq!(
            acts(&[gone, gone, there, gone], 0, 2000),
            vec![wait.clone(); 4]
        );
        assert_eq!(acts(&[gone, lost, gone, gone], 0, 2000)[3], go());
        assert_eq!(
            acts(&[lost, lost, lost, lost], 0, 2000),
            vec![wait.clone(); 4]
        );
        assert_eq!(acts(&[gone, None, gone, gone], 0, 2000)[3], wait.clone());
        assert_eq!(acts(&[gone, gone, gone], 1001, 2000), vec![wait; 3]);
        assert_eq!(acts(&[gone, gone, gone], 1000, 2000)[2], go());
    }

    #[test]
    fn a_machine_that_is_off_marks_its_node_until_it_is_well() {
        let off = acts(&[Some(Ok(State::Stopped))], 0, 2000).remove(0);
        assert_eq!(off, Act::Mark(OFF));
        let mut node = node();
        let patch = marked(&node, OFF).unwrap();
        node.taints = serde_json::from_value(patch["spec"]["taints"].clone()).unwrap();
        node.taints.push(Taint {
            key: "other".into(),
            ..Taint::default()
        });
        assert_eq!(marked(&node, OFF), None);
        let cleared = marked(&node, &[]).unwrap();
        assert_eq!(cleared["spec"]["taints"].as_array().unwrap().len(), 1);
        assert_eq!(acts(&[None], 0, 2000), [Act::Mark(&[])]);
    }

    #[test]
    fn a_node_that_is_well_while_its_machine_is_not() {
        let well = NodeView {
            ready: true,
            ..node()
        };
        let now = Timestamp::from_second(2000).unwrap();
        for (state, expected) in [
            (State::There, Act::Mark(&[])),
            (State::Stopped, Act::Mark(GOING_OFF)),
            (State::Gone, Act::Nothing),
        ] {
            let mut misses = Misses::default();
            let act = misses.decide(&well, Some(&Ok(state)), Duration::ZERO, now);
            assert_eq!(act, expected, "{state:?}");
        }
        let mut off = node();
        let patch = marked(&off, OFF).unwrap();
        off.taints = serde_json::from_value(patch["spec"]["taints"].clone()).unwrap();
        let patch = marked(&off, GOING_OFF).unwrap();
        assert_eq!(patch["spec"]["taints"].as_array().unwrap().len(), 1);
    }
}
