//! A deleted volume goes when it is not bound to a claim.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;

use super::{Guarded, VOLUME_FINALIZER, settle};
use crate::Manager;
use crate::watched::VolumeState;
use client_runtime::Actor;
use client_runtime::Synced;
use client_runtime::enqueue_changes;
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};

const ACCOUNT: &str = "pv-protection-controller";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let volumes = manager.shared::<VolumeState>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&volumes, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 1, [volumes.completion()], move |key| {
        sync(volumes.clone(), actor.clone(), key)
    });
}

async fn sync(volumes: Cache<VolumeState>, actor: Actor, key: ObjectKey) -> Synced {
    match volumes.get(&key) {
        Some(volume) if !is_settled(&volume) => {
            settle::<PersistentVolume>(&actor, &key, VOLUME_FINALIZER).await
        }
        _ => Ok(End::Done),
    }
}

fn is_settled(volume: &VolumeState) -> bool {
    match volume.guarded {
        Guarded::Safe | Guarded::Released => true,
        Guarded::Open => false,
        Guarded::Held => volume.is_bound,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_is_held_while_it_is_bound() {
        let held = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [VOLUME_FINALIZER] });
        for (meta, phase, settled) in [
            (
                &json!({ "finalizers": [VOLUME_FINALIZER] }),
                "Available",
                true,
            ),
            (&json!({}), "Bound", false),
            (&held, "Bound", true),
            (&held, "Available", false),
            (&held, "Released", false),
        ] {
            let volume = json!({ "metadata": meta, "status": { "phase": phase } });
            let state = VolumeState::of(&serde_json::from_value(volume).unwrap());
            assert_eq!(is_settled(&state), settled, "{meta} {phase}");
        }
    }
}
