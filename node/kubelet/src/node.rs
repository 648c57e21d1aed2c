//! This node at the API server: its registration, its status, its lease.

mod body;
mod lease;
mod pod_range;

pub use body::{Health, Reading, VERSION, initial, quantities, status};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client_runtime::{Cache, ObjectKey, Severity, SyncError};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::Patch;
use serde_json::{Value, json};

use crate::context::Context;
use crate::cri;
use crate::pleg::Pulse;

/// Registers the node, then keeps its status and its lease for ever.
pub async fn keep(ctx: Arc<Context>, node: Cache<Node>, pulse: Pulse) {
    let health = Arc::new(Health::default());
    let checking = check_runtime(Arc::clone(&ctx), Arc::clone(&health), pulse);
    let reporting = async {
        if ctx.settings.config.register_node {
            register(&ctx, &health).await;
        }
        tokio::join!(report(&ctx, &node, &health), lease::renew(&ctx));
    };
    let range = pod_range::hand_over(Arc::clone(&ctx), node.clone());
    tokio::join!(checking, reporting, range);
}

/// Asks the runtime how it is, every five seconds, and faster until it is well.
async fn check_runtime(ctx: Arc<Context>, health: Arc<Health>, pulse: Pulse) {
    loop {
        let mut problems = Vec::new();
        match ctx
            .runtime
            .status(cri::StatusRequest { verbose: false })
            .await
        {
            Ok(answer) => {
                health.answered();
                let conditions = answer.status.unwrap_or_default().conditions;
                let not = |kind: &str| {
                    conditions
                        .iter()
                        .find(|c| c.r#type == kind && !c.status)
                        .cloned()
                };
                let text = |c: cri::RuntimeCondition| {
                    format!(
                        "{}=false reason:{} message:{}",
                        c.r#type, c.reason, c.message
                    )
                };
                let network = not("NetworkReady");
                ctx.network_ready
                    .store(network.is_none(), Ordering::Relaxed);
                problems.extend(
                    not("RuntimeReady")
                        .map(|c| format!("container runtime not ready: {}", text(c))),
                );
                problems.extend(
                    network.map(|c| format!("container runtime network not ready: {}", text(c))),
                );
                ctx.users.set_handlers(answer.runtime_handlers.clone());
                health.set_handlers(answer.runtime_handlers, answer.features);
            }
            Err(status) => {
                tracing::warn!(
                    error = status.message(),
                    "the container runtime does not answer"
                );
                problems.extend(health.silence());
            }
        }
        problems.extend(pulse.problem());
        let well = problems.is_empty();
        health.set_problems(problems);
        let wait = if well {
            Duration::from_secs(5)
        } else {
            Duration::from_secs(1)
        };
        tokio::time::sleep(wait).await;
    }
}

async fn register(ctx: &Context, health: &Health) {
    let mut wait = Duration::from_millis(100);
    loop {
        let reading = read(ctx, health).await;
        let node = initial(ctx, &reading);
        match ctx.actor.create::<Node>("", &node).await {
            Ok(_) => {
                tracing::info!(node = ctx.node(), "the node is registered");
                return;
            }
            Err(SyncError::Api(error)) if known(&error) => match reconcile(ctx, &node).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the node cannot be brought up to date"),
            },
            Err(error) => tracing::warn!(%error, "the node cannot be registered yet"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(7));
    }
}

fn known(error: &kube::Error) -> bool {
    [StatusCode::CONFLICT, StatusCode::FORBIDDEN]
        .iter()
        .any(|code| client_runtime::is(error, *code))
}

/// A node that was there before gets the labels that are ours; all others stay.
async fn reconcile(ctx: &Context, node: &Node) -> Result<(), SyncError> {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
    let patch = Patch::Strategic(patch);
    let old: Option<Node> = ctx.actor.get("", ctx.node()).await?;
    if old.is_none() {
        return Err(SyncError::NotYet("the node is not there".to_owned()));
    }
    ctx.actor
        .patch::<Node>(("", ctx.node()), None, &patch)
        .await
        .map(drop)
}

/// Reads what the status is made of.
async fn read(ctx: &Context, health: &Health) -> Reading {
    let version = ctx
        .runtime
        .version(cri::VersionRequest::default())
        .await
        .unwrap_or_default();
    let images = ctx
        .runtime
        .list_images(cri::ListImagesRequest::default())
        .await
        .unwrap_or_default();
    Reading {
        now: Timestamp::now(),
        runtime: format!(
            "{}://{}",
            version.runtime_name,
            version.runtime_version.trim_start_matches('v')
        ),
        images: images.images,
        problems: problems(ctx, health),
        in_use: ctx.in_use.names(),
        pressures: ["MemoryPressure", "DiskPressure", "PIDPressure"]
            .into_iter()
            .filter(|kind| ctx.pressure.holds(kind))
            .collect(),
        handlers: health.handlers(),
        addresses: ctx.host_ips(),
    }
}

/// What keeps the node from being ready.
fn problems(ctx: &Context, health: &Health) -> Vec<String> {
    let mut problems = health.problems();
    if ctx.settings.config.register_node && !ctx.csi_ready.load(Ordering::Relaxed) {
        problems.push("CSINode is not yet initialized".to_owned());
    }
    if *ctx.shutting_down.borrow() {
        problems.push("node is shutting down".to_owned());
    }
    problems
}

/// Writes the status when it has changed, and now and then anyway. Quickly until the node is ready.
async fn report(ctx: &Context, cache: &Cache<Node>, health: &Health) {
    let config = &ctx.settings.config;
    let every = config
        .node_status_update_frequency
        .0
        .max(Duration::from_secs(1));
    let mut written: Option<(Value, Timestamp)> = None;
    let mut shutdown = ctx.shutting_down.subscribe();
    let begun = Timestamp::now();
    cache.completion().reached().await;
    loop {
        let reading = read(ctx, health).await;
        let old = cache.get(&ObjectKey::new("", ctx.node()));
        let old = match old {
            Some(node) => Some((*node).clone()),
            None => ctx
                .actor
                .get::<Node>("", ctx.node())
                .await
                .unwrap_or_default(),
        };
        let Some(old) = old else {
            tokio::time::sleep(every).await;
            continue;
        };
        let status = status(ctx, &reading, old.status.as_ref());
        let plain = body::without_heartbeats(&status);
        let age = written
            .as_ref()
            .map(|(_, at)| reading.now.duration_since(*at));
        let overdue = age.is_none_or(|age| {
            Duration::try_from(age).unwrap_or_default() >= config.node_status_report_frequency.0
        });
        let changed = written.as_ref().is_none_or(|(before, _)| *before != plain);
        if changed || overdue {
            say_flips(ctx, &old, &status);
            match write(ctx, &status).await {
                Ok(()) => {
                    written = Some((plain, reading.now));
                    ctx.in_use.tell(reading.in_use.clone());
                }
                Err(error) => {
                    tracing::warn!(%error, "the node's status cannot be written");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        let ready = reading.problems.is_empty();
        let young = Timestamp::now().duration_since(begun).as_secs() < 120;
        let wait = if !ready && young {
            Duration::from_millis(500)
        } else {
            every
        };
        tokio::select! {
            () = health.changed_or(wait) => {}
            () = ctx.in_use.differs() => {}
            Ok(()) = shutdown.changed() => {}
        }
    }
}

async fn write(
    ctx: &Context,
    status: &k8s_openapi::api::core::v1::NodeStatus,
) -> Result<(), SyncError> {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if status.volumes_in_use.is_none() {
        value["volumesInUse"] = Value::Null;
    }
    if let Some(addresses) = value.get_mut("addresses").and_then(Value::as_array_mut) {
        // Two addresses of one type would be merged into one.
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    let patch = Patch::Strategic(json!({"status": value}));
    ctx.actor
        .patch::<Node>(("", ctx.node()), Some("status"), &patch)
        .await
        .map(drop)
}

fn say_flips(ctx: &Context, old: &Node, status: &k8s_openapi::api::core::v1::NodeStatus) {
    let of = |conditions: Option<&Vec<k8s_openapi::api::core::v1::NodeCondition>>| -> BTreeMap<String, String> {
        let conditions = conditions.into_iter().flatten();
        conditions.map(|c| (c.type_.clone(), c.status.clone())).collect()
    };
    let before = of(old.status.as_ref().and_then(|s| s.conditions.as_ref()));
    let now = of(status.conditions.as_ref());
    if before.get("Ready") != now.get("Ready") {
        let reason = if now.get("Ready").map(String::as_str) == Some("True") {
            "NodeReady"
        } else {
            "NodeNotReady"
        };
        say(
            ctx,
            Severity::Normal,
            reason,
            &format!("Node {} status is now: {reason}", ctx.node()),
        );
    }
}

/// Says something about the node.
pub fn say(ctx: &Context, severity: Severity, reason: &str, message: &str) {
    let about = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(ctx.node().to_owned()),
        uid: Some(ctx.node().to_owned()),
        ..ObjectReference::default()
    };
    ctx.events.event(about, severity, reason, message);
}
