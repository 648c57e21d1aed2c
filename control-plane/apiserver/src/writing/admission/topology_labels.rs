//! PodTopologyLabels: a pod that is bound to a node learns where that node is.

use futures::FutureExt as _;
use serde_json::Value;

use super::shape::text;
use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::Result;

const LABELS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "PodTopologyLabels",
    handles: |attributes| {
        attributes.operation == Operation::Create
            && ["", "binding"].contains(&attributes.subresource)
            && attributes.is("", "pods")
    },
    mutate: Some(|api, attributes, object| mutate(api, attributes, object).boxed()),
    validate: None,
};

async fn mutate(api: &Api, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
    let name = node_of(attributes.subresource, object);
    if name.is_empty() {
        return Ok(());
    }
    let nodes = lookup::resource("", "v1", "nodes");
    // Whether the node exists is not this plugin's to say.
    if let Some(node) = lookup::get(api, nodes, "", name).await? {
        copy(&node, object);
    }
    Ok(())
}

fn node_of<'o>(subresource: &str, object: &'o Value) -> &'o str {
    match subresource {
        "binding" if object["target"]["kind"] == "Node" => text(&object["target"]["name"]),
        "binding" => "",
        _ => text(&object["spec"]["nodeName"]),
    }
}

fn copy(node: &Value, object: &mut Value) {
    for label in LABELS {
        if let Some(value) = node["metadata"]["labels"].get(label) {
            object["metadata"]["labels"][label] = value.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn zone_and_region_are_copied_over_what_is_there() {
        let node = json!({"metadata": {"labels": {LABELS[0]: "z1", "team": "a"}}});
        let mut pod = json!({"metadata": {"labels": {LABELS[0]: "mine", "app": "b"}}});
        copy(&node, &mut pod);
        assert_eq!(
            pod["metadata"]["labels"],
            json!({LABELS[0]: "z1", "app": "b"})
        );
        let mut bare = json!({"metadata": {}});
        copy(&json!({"metadata": {}}), &mut bare);
        assert_eq!(bare, json!({"metadata": {}}));
    }

    #[test]
    fn a_binding_names_its_target_and_a_pod_its_node() {
        let bound = |kind: &str| json!({"target": {"kind": kind, "name": "n1"}});
        assert_eq!(node_of("binding", &bound("Node")), "n1");
        assert_eq!(node_of("binding", &bound("")), "");
        assert_eq!(node_of("", &json!({"spec": {"nodeName": "n1"}})), "n1");
        assert_eq!(node_of("", &json!({"spec": {}})), "");
    }
}
