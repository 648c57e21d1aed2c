//! Makes a new node known by its machine: provider id, labels, addresses; and then lets pods in.

use std::sync::Arc;

use client_runtime::{Actor, Answer, End, Queue, Recorder, Severity, SyncError, is_outdated};
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use serde_json::{Map, Value, json};

use super::instances::Instances;
use super::machine::Metadata;
use super::{NodeView, change};
use crate::Manager;

/// Upstream's taint of nodes that nobody has looked at yet.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// How many nodes are looked at at once.
const AT_ONCE: usize = 30;

/// What a node should be given, beyond what it has; nothing where it has everything.
pub(crate) fn wanted(node: &NodeView, machine: &Metadata, beta: bool) -> Option<Value> {
    let mut patch = json!({});
    if node.provider_id.is_empty() {
        patch["spec"]["providerID"] = json!(machine.provider_id);
    }
    if node.has_taint(UNINITIALIZED) {
        let mut left = node.taints.clone();
        left.retain(|taint| taint.key != UNINITIALIZED);
        patch["spec"]["taints"] = json!(left);
    }
    let labels: Map<String, Value> = labels(machine, beta)
        .filter(|(name, value)| {
            !value.is_empty() && node.labels.get(*name).map(String::as_str) != Some(value)
        })
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    if !labels.is_empty() {
        patch["metadata"]["labels"] = Value::Object(labels);
    }
    (patch != json!({})).then_some(patch)
}

fn labels(machine: &Metadata, beta: bool) -> impl Iterator<Item = (&str, &str)> {
    let rows = [
        (
            "node.kubernetes.io/instance-type",
            &machine.instance_type,
            true,
        ),
        ("topology.kubernetes.io/zone", &machine.zone, true),
        ("topology.kubernetes.io/region", &machine.region, true),
        (
            "beta.kubernetes.io/instance-type",
            &machine.instance_type,
            beta,
        ),
        (
            "failure-domain.beta.kubernetes.io/zone",
            &machine.zone,
            beta,
        ),
        (
            "failure-domain.beta.kubernetes.io/region",
            &machine.region,
            beta,
        ),
    ];
    let kept = rows.into_iter().filter(|row| row.2);
    let own = machine.labels.iter();
    kept.map(|(name, value, _)| (name, value.as_str()))
        .chain(own.map(|(name, value)| (name.as_str(), value.as_str())))
}

/// The addresses a node should show. What the kubelet was told to use must be among those of its machine, and comes
/// first; a host name that only the kubelet knows is kept.
pub(crate) fn addresses(
    node: &NodeView,
    machine: &Metadata,
) -> Result<Vec<(String, String)>, String> {
    let mut found = machine.addresses.clone();
    if !found.iter().any(|(kind, _)| kind == "Hostname") {
        let own = node.addresses.iter().filter(|(kind, _)| kind == "Hostname");
        found.extend(own.cloned());
    }
    if node.provided.is_empty() {
        return Ok(found);
    }
    let mut chosen = Vec::new();
    for ip in &node.provided {
        let fits = found.iter().find(|(_, address)| address == ip);
        let fits = fits.ok_or_else(|| {
            format!(
                "the machine of node {} has no address {ip}, which its kubelet was told to use",
                node.name
            )
        })?;
        chosen.push(fits.clone());
    }
    let kinds: Vec<String> = chosen.iter().map(|(kind, _)| kind.clone()).collect();
    found.retain(|(kind, _)| !kinds.contains(kind));
    chosen.extend(found);
    Ok(chosen)
}

/// Writes addresses, if they are others than the node shows.
pub(crate) async fn write_addresses(
    actor: &Actor,
    node: &NodeView,
    wanted: Vec<(String, String)>,
) -> Answer<()> {
    if node.addresses == wanted {
        return Ok(());
    }
    let mut list: Vec<Value> = wanted
        .iter()
        .map(|(kind, address)| json!({"type": kind, "address": address}))
        .collect();
    // Without it what is gone would stay.
    list.push(json!({"$patch": "replace"}));
    let patch = Patch::Strategic(json!({"status": {"addresses": list}}));
    let place = ("", node.name.as_str());
    match actor.patch::<Node>(place, Some("status"), &patch).await {
        Err(error) if is_outdated(&error) => Ok(()),
        other => other.map(drop),
    }
}

/// Gives a node what its machine says: addresses first, so that no pod comes before them.
pub(crate) async fn apply(
    actor: &Actor,
    node: &NodeView,
    machine: &Metadata,
    beta: bool,
) -> Answer<()> {
    let shown = addresses(node, machine).map_err(SyncError::Other)?;
    write_addresses(actor, node, shown).await?;
    change(actor, node, |node| wanted(node, machine, beta)).await
}

/// Starts the controller: new nodes at once, all others now and then.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let nodes = manager.shared::<NodeView>();
    let actor = manager.act_as("node-controller");
    let shell = Shell {
        recorder: manager.recorder("cloud-node-controller", actor.clone()),
        actor,
        instances: manager.config.instances(),
    };
    let queue = Arc::new(Queue::new());
    let (noticed, again) = (
        Arc::clone(&queue),
        manager.config.node_status_update_frequency,
    );
    let with_strangers = manager.config.follows_strangers;
    nodes.on_change(move |change| {
        let is_new = change.before.is_none();
        if change
            .after
            .is_some_and(|node| node.has_taint(UNINITIALIZED) || is_new)
        {
            noticed.add(change.key.clone());
        }
    });
    let known = nodes.clone();
    manager.start_work(name, queue, AT_ONCE, [nodes.completion()], move |key| {
        let (shell, node) = (shell.clone(), known.get(&key));
        async move {
            let is_ours = |node: &Arc<NodeView>| {
                !node.deleting && node.is_managed() && (with_strangers || !node.is_stranger())
            };
            match node.filter(is_ours) {
                Some(node) => shell.sync(&node).await.map(|()| End::After(again)),
                None => Ok(End::Done),
            }
        }
    });
}

#[derive(Clone)]
struct Shell {
    actor: Actor,
    recorder: Recorder,
    instances: Arc<Instances>,
}

impl Shell {
    async fn sync(&self, node: &NodeView) -> Answer<()> {
        let found = self.instances.metadata(node).await;
        let found = found.map_err(|error| SyncError::Other(error.to_string()))?;
        let machine = found.ok_or_else(|| {
            SyncError::NotYet(format!("Azure knows no machine of node {} yet", node.name))
        })?;
        let is_new = node.has_taint(UNINITIALIZED);
        apply(&self.actor, node, &machine, true).await?;
        if is_new {
            let said = "Node synced successfully";
            self.recorder
                .event(node.reference(), Severity::Normal, "Synced", said);
            tracing::info!(
                node = node.name,
                provider_id = machine.provider_id,
                "a node is initialised"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use k8s_openapi::api::core::v1::Taint;

    fn machine() -> Metadata {
        Metadata {
            provider_id: "azure:///m".into(),
            instance_type: "D2".into(),
            region: "eastus".into(),
            zone: "eastus-1".into(),
            addresses: pairs(&[
                ("InternalIP", "10.0.0.4"),
                ("InternalIP", "10.0.0.5"),
                ("ExternalIP", "20.0.0.1"),
            ]),
            labels: pairs(&[("topology.kubernetes.azure.com/sub-fault-domain", "3")]),
        }
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect()
    }

    fn fresh() -> NodeView {
        let taint = |key: &str| Taint {
            key: key.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        NodeView {
            name: "n".into(),
            taints: vec![taint(UNINITIALIZED), taint("other")],
            addresses: pairs(&[("Hostname", "n")]),
            ..NodeView::default()
        }
    }

    #[test]
    fn a_new_node_gets_everything_and_loses_the_taint() {
        let patch = wanted(&fresh(), &machine(), false).unwrap();
        assert_eq!(patch["spec"]["providerID"], "azure:///m");
        assert_eq!(patch["spec"]["taints"].as_array().unwrap().len(), 1);
        assert_eq!(
            patch["metadata"]["labels"]["topology.kubernetes.io/zone"],
            "eastus-1"
        );
        assert_eq!(patch["metadata"]["labels"].as_object().unwrap().len(), 4);
        let beta = wanted(&fresh(), &machine(), true).unwrap();
        assert_eq!(beta["metadata"]["labels"].as_object().unwrap().len(), 7);
    }

    #[test]
    fn a_node_that_has_everything_is_left_alone() {
        let mut node = fresh();
        node.taints.remove(0);
        node.provider_id = "azure:///other".into();
        for (name, value) in labels(&machine(), false) {
            node.labels.insert(name.into(), value.into());
        }
        assert_eq!(wanted(&node, &machine(), false), None);
        node.labels.remove("topology.kubernetes.io/region");
        let patch = wanted(&node, &machine(), false).unwrap();
        assert_eq!(
            patch,
            json!({"metadata": {"labels": {"topology.kubernetes.io/region": "eastus"}}})
        );
    }

    #[test]
    fn addresses_and_what_the_kubelet_was_told() {
        let mut node = fresh();
        let all = addresses(&node, &machine()).unwrap();
        assert_eq!(all.last().unwrap(), &("Hostname".into(), "n".into()));
        node.provided = vec!["10.0.0.5".into()];
        let chosen = addresses(&node, &machine()).unwrap();
        let expected = [
            ("InternalIP", "10.0.0.5"),
            ("ExternalIP", "20.0.0.1"),
            ("Hostname", "n"),
        ];
        assert_eq!(chosen, pairs(&expected));
        node.provided = vec!["10.0.0.9".into()];
        assert!(addresses(&node, &machine()).is_err());
    }
}
