//! A deleted claim goes when no pod on a node uses it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::{CLAIM_FINALIZER, Guarded, settle};
use crate::Manager;
use crate::watched::{ClaimState, ClaimUse, PodState};
use client_runtime::Synced;
use client_runtime::enqueue_changes;
use client_runtime::{Actor, Answer};
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};

const ACCOUNT: &str = "pvc-protection-controller";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let (claims, pods) = (manager.shared::<ClaimState>(), manager.shared::<PodState>());
    let queue = Arc::new(Queue::new());
    enqueue_changes(&claims, &queue);
    let need = manager.need::<PodState>();
    claims.on_change(move |_| need.arises());
    let noticed = Arc::clone(&queue);
    pods.on_change(move |change| {
        for pod in change.before.iter().chain(&change.after) {
            for used in &pod.claims {
                noticed.add(ObjectKey::new(&change.key.namespace, used.name()));
            }
        }
    });
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(
        name,
        queue,
        1,
        [claims.completion(), pods.completion()],
        move |key| sync(claims.clone(), pods.clone(), actor.clone(), key),
    );
}

async fn sync(
    claims: Cache<ClaimState>,
    pods: Cache<PodState>,
    actor: Actor,
    key: ObjectKey,
) -> Synced {
    let Some(claim) = claims.get(&key) else {
        return Ok(End::Done);
    };
    let is_settled = match claim.guarded {
        Guarded::Safe | Guarded::Released => true,
        Guarded::Open => false,
        // What we know of pods may be old: those there now are asked for before the claim is given up.
        Guarded::Held => {
            pods.any_in(&key.namespace, |pod| uses(pod, &key.name, &claim))
                || is_used_now(&actor, &key, &claim).await?
        }
    };
    match is_settled {
        true => Ok(End::Done),
        false => settle::<PersistentVolumeClaim>(&actor, &key, CLAIM_FINALIZER).await,
    }
}

async fn is_used_now(actor: &Actor, key: &ObjectKey, claim: &ClaimState) -> Answer<bool> {
    let pods = actor.list::<Pod>(&key.namespace).await?;
    let mut states = pods.iter().map(PodState::of);
    Ok(states.any(|pod| uses(&pod, &key.name, claim)))
}

/// Whether a pod keeps a claim. One that is not on a node does not: a kubelet starts no pod whose claim
/// is deleted.
fn uses(pod: &PodState, name: &str, claim: &ClaimState) -> bool {
    pod.is_scheduled
        && pod.claims.iter().any(|used| match used {
            ClaimUse::Named(used) => used == name,
            ClaimUse::Ephemeral(used) => {
                used == name && !pod.is_shut_down && claim.controller.as_ref() == Some(&pod.uid)
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(controller: Option<&str>) -> ClaimState {
        ClaimState {
            guarded: Guarded::Held,
            controller: controller.map(str::to_owned),
            classes: Vec::new(),
            cost: 0,
        }
    }

    #[test]
    fn a_claim_is_used_by_pods_on_nodes() {
        let named = || ClaimUse::Named("data".into());
        let ephemeral = || ClaimUse::Ephemeral("data".into());
        for (used, is_scheduled, is_shut_down, controller, keeps) in [
            (named(), true, false, None, true),
            (named(), false, false, None, false),
            (named(), true, true, None, true),
            (ClaimUse::Named("other".into()), true, false, None, false),
            (ephemeral(), true, false, Some("pod"), true),
            (ephemeral(), true, false, Some("another"), false),
            (ephemeral(), true, false, None, false),
            (ephemeral(), true, true, Some("pod"), false),
            (ephemeral(), false, false, Some("pod"), false),
        ] {
            let what = format!("{used:?} {is_scheduled} {is_shut_down} {controller:?}");
            let pod = PodState {
                uid: "pod".into(),
                is_scheduled,
                is_shut_down,
                claims: vec![used],
                cost: 0,
            };
            assert_eq!(uses(&pod, "data", &claim(controller)), keeps, "{what}");
        }
    }
}
