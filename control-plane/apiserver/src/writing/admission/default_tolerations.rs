//! DefaultTolerationSeconds: pods stay five minutes on a node that is not ready or cannot be reached,
//! unless they say something else about it.

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::shape::{items, push, text};
use super::{Operation, Plugin};

const TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];
const SECONDS: i64 = 300;

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "DefaultTolerationSeconds",
    handles: |attributes| {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is_main("", "pods")
    },
    mutate: Some(|_, _, pod| {
        tolerate(pod);
        std::future::ready(Ok(())).boxed()
    }),
    validate: None,
};

fn tolerate(pod: &mut Value) {
    let tolerations = &mut pod["spec"]["tolerations"];
    for taint in TAINTS {
        let speaks_of = |toleration: &Value| {
            ["", taint].contains(&text(&toleration["key"]))
                && ["", "NoExecute"].contains(&text(&toleration["effect"]))
        };
        if !items(tolerations).iter().any(speaks_of) {
            push(
                tolerations,
                json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_says_nothing_tolerates_both_for_five_minutes() {
        let added = |taint: &str| json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let all = json!({"operator": "Exists"});
        let own = json!({"key": TAINTS[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1});
        let other = json!({"key": TAINTS[0], "operator": "Exists", "effect": "NoSchedule"});
        for (before, after) in [
            (json!(null), json!([added(TAINTS[0]), added(TAINTS[1])])),
            (json!([all]), json!([all])),
            (json!([own]), json!([own, added(TAINTS[1])])),
            (
                json!([other]),
                json!([other, added(TAINTS[0]), added(TAINTS[1])]),
            ),
        ] {
            let mut pod = json!({"spec": {"tolerations": before}});
            tolerate(&mut pod);
            assert_eq!(pod["spec"]["tolerations"], after);
        }
    }
}
