//! TaintNodesByCondition: a new node takes no work until a controller has seen it ready.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::shape::{items, push};
use super::{Operation, Plugin};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "TaintNodesByCondition",
    handles: |attributes| {
        attributes.operation == Operation::Create && attributes.is_main("", "nodes")
    },
    mutate: Some(|_, _, node| {
        taint(node);
        std::future::ready(Ok(())).boxed()
    }),
    validate: None,
};

fn taint(node: &mut Value) {
    let taints = &mut node["spec"]["taints"];
    let present = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == EFFECT;
    if !items(taints).iter().any(present) {
        push(taints, json!({"key": NOT_READY, "effect": EFFECT}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_node_is_tainted_once() {
        let not_ready = json!({"key": NOT_READY, "effect": EFFECT});
        let other = json!({"key": NOT_READY, "effect": "NoExecute"});
        for (before, after) in [
            (json!(null), json!([not_ready])),
            (json!([other]), json!([other, not_ready])),
            (json!([not_ready]), json!([not_ready])),
        ] {
            let mut node = json!({"spec": {"taints": before}});
            taint(&mut node);
            assert_eq!(node["spec"]["taints"], after);
        }
    }
}
