//! The cgroups above pods: what all of them may use together, and what the classes get when processors are short.

use client_runtime::Severity;
use k8s_openapi::api::core::v1::Pod;

use crate::cgroups::Allowance;
use crate::context::Context;
use crate::node;
use crate::resources::{self, Qos};

/// What has been written.
#[derive(Debug, Default)]
pub(crate) struct Above {
    /// Whether the last try to bound all pods succeeded; nothing before the first.
    bounded: Option<bool>,
    burstable: Option<i64>,
}

impl Above {
    /// Writes what has changed. What fails is tried again with the next look.
    pub(crate) async fn keep(&mut self, ctx: &Context, pods: impl Iterator<Item = &Pod>) {
        let config = &ctx.settings.config;
        let enforced = config
            .enforce_node_allocatable
            .iter()
            .any(|part| part == "pods");
        if config.cgroups_per_qos && enforced && self.bounded != Some(true) {
            let all = Allowance::of_node(&ctx.machine, config);
            let bounded = ctx.cgroups.bound(&all).await;
            let said = self.bounded.replace(bounded.is_ok());
            match bounded {
                Ok(()) => {
                    let text = "Updated Node Allocatable limit across pods";
                    node::say(ctx, Severity::Normal, "NodeAllocatableEnforced", text);
                }
                Err(error) if said.is_none() => {
                    let text = format!("Failed to update Node Allocatable Limits: {error}");
                    let reason = "FailedNodeAllocatableEnforcement";
                    node::say(ctx, Severity::Warning, reason, &text);
                }
                Err(_) => {}
            }
        }
        let asked = burstable(pods);
        if config.cgroups_per_qos && self.burstable != Some(asked) {
            match ctx.cgroups.share(asked).await {
                Ok(()) => self.burstable = Some(asked),
                Err(error) => tracing::warn!(%error, "the classes of pods keep their shares"),
            }
        }
    }
}

/// What burstable pods ask for together, in thousandths of processors.
fn burstable<'a>(pods: impl Iterator<Item = &'a Pod>) -> i64 {
    let of_class = pods.filter(|pod| resources::qos(pod) == Qos::Burstable);
    of_class.map(|pod| resources::pod_request(pod, "cpu")).sum()
}
