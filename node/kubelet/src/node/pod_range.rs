//! Hands the node's range of pod addresses to the runtime, which makes the pod network's configuration of it
//! (upstream's `updatePodCIDR`; kubenet works that way).

use std::sync::Arc;
use std::time::Duration;

use client_runtime::{Cache, ObjectKey};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;

use crate::context::Context;
use crate::cri;

/// How long to wait before a runtime that did not take it is told again.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells the runtime at each start, and whenever the range changes; for ever.
pub(super) async fn hand_over(ctx: Arc<Context>, node: Cache<Node>) {
    let seen = watch::Sender::new(());
    let noticed = seen.clone();
    node.on_change(move |_| {
        noticed.send_replace(());
    });
    let mut seen = seen.subscribe();
    let mut told = String::new();
    loop {
        let known = node.get(&ObjectKey::new("", ctx.node()));
        let range = known.map(|node| range_of(&node)).unwrap_or_default();
        if range == told || range.is_empty() {
            // The sender lives in the cache's listener, as long as the kubelet does.
            let _ = seen.changed().await;
            continue;
        }
        let network_config = Some(cri::NetworkConfig {
            pod_cidr: range.clone(),
        });
        let request = cri::UpdateRuntimeConfigRequest {
            runtime_config: Some(cri::RuntimeConfig { network_config }),
        };
        match ctx.runtime.update_runtime_config(request).await {
            Ok(_) => {
                tracing::info!(range, "the runtime knows the pods' addresses");
                told = range;
            }
            Err(status) => {
                let error = status.message().to_owned();
                tracing::warn!(error, "the runtime does not take the pods' addresses yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Both families, in the order the node has them.
fn range_of(node: &Node) -> String {
    let spec = node.spec.as_ref();
    let both = spec.and_then(|spec| spec.pod_cidrs.clone());
    let one = || spec.and_then(|spec| spec.pod_cidr.clone());
    both.filter(|both| !both.is_empty())
        .map(|both| both.join(","))
        .or_else(one)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_that_of_all_families() {
        let node = |spec: serde_json::Value| -> Node {
            serde_json::from_value(serde_json::json!({"metadata": {}, "spec": spec}))
                .expect("a node")
        };
        for (spec, range) in [
            (serde_json::json!({}), ""),
            (
                serde_json::json!({"podCIDR": "10.244.0.0/24"}),
                "10.244.0.0/24",
            ),
            (
                serde_json::json!({"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24", "fd00::/64"]}),
                "10.244.0.0/24,fd00::/64",
            ),
        ] {
            assert_eq!(range_of(&node(spec)), range);
        }
    }
}
