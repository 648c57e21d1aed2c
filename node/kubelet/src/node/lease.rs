//! The node's lease: that it lives, every ten seconds.

use std::time::Duration;

use client_runtime::SyncError;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

use crate::context::Context;

const NAMESPACE: &str = "kube-node-lease";

/// Renews for ever.
pub(super) async fn renew(ctx: &Context) {
    let seconds = ctx.settings.config.node_lease_duration_seconds.max(4);
    let every = Duration::from_secs(seconds as u64) / 4;
    let mut known: Option<Lease> = None;
    loop {
        let result = match known.take() {
            Some(lease) => ctx.actor.replace(&renewed(lease, ctx, seconds)).await,
            None => take(ctx, seconds).await,
        };
        match result {
            Ok(lease) => {
                known = Some(lease);
                let jitter = 1.0 + rand::random::<f64>() * 0.04;
                tokio::time::sleep(every.mul_f64(jitter)).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the node's lease is not renewed yet");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

async fn take(ctx: &Context, seconds: i32) -> Result<Lease, SyncError> {
    if let Some(lease) = ctx.actor.get::<Lease>(NAMESPACE, ctx.node()).await? {
        return ctx.actor.replace(&renewed(lease, ctx, seconds)).await;
    }
    let Some(node) = ctx.actor.get::<Node>("", ctx.node()).await? else {
        return Err(SyncError::NotYet("the node is not there".to_owned()));
    };
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: ctx.node().to_owned(),
        uid: node.metadata.uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(ctx.node().to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    ctx.actor
        .create(NAMESPACE, &renewed(lease, ctx, seconds))
        .await
}

fn renewed(mut lease: Lease, ctx: &Context, seconds: i32) -> Lease {
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    spec.holder_identity = Some(ctx.node().to_owned());
    spec.lease_duration_seconds = Some(seconds);
    spec.renew_time = Some(MicroTime(Timestamp::now()));
    lease
}
