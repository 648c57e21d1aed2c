//! A deleted volume attributes class goes when no claim and no volume has it.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::Api;

use super::{CLASS_FINALIZER, Guarded, settle};
use crate::Manager;
use crate::watched::{ClaimState, VolumeState};
use client_runtime::Actor;
use client_runtime::Synced;
use client_runtime::enqueue_changes;
use client_runtime::{Cache, Change, ObjectKey};
use client_runtime::{End, Queue};

const ACCOUNT: &str = "volumeattributesclass-protection-controller";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let queue = Arc::new(Queue::new());
    let all: Api<VolumeAttributesClass> = Api::all(manager.client());
    let classes = manager.watch_metadata(None, all, |meta| Guarded::of(&meta, CLASS_FINALIZER));
    enqueue_changes(&classes, &queue);
    let users = Users {
        claims: manager.shared::<ClaimState>(),
        volumes: manager.shared::<VolumeState>(),
    };
    let noticed = Arc::clone(&queue);
    let notice =
        move |change: &Change<'_, ClaimState>| noticed.add_all(left(change, |c| &c.classes));
    users.claims.on_change(notice);
    let noticed = Arc::clone(&queue);
    let notice =
        move |change: &Change<'_, VolumeState>| noticed.add_all(left(change, |v| &v.classes));
    users.volumes.on_change(notice);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(
        name,
        queue,
        1,
        [
            classes.completion(),
            users.claims.completion(),
            users.volumes.completion(),
        ],
        move |key| sync(classes.clone(), users.clone(), actor.clone(), key),
    );
}

/// Those that may have a class.
#[derive(Clone)]
struct Users {
    claims: Cache<ClaimState>,
    volumes: Cache<VolumeState>,
}

impl Users {
    fn have(&self, class: &str) -> bool {
        let has = |classes: &[String]| classes.iter().any(|one| one == class);
        self.claims.any(|claim| has(&claim.classes))
            || self.volumes.any(|volume| has(&volume.classes))
    }
}

// Classes that somebody had and has no more.
fn left<'a, V>(change: &Change<'a, V>, classes: fn(&V) -> &Vec<String>) -> Vec<ObjectKey> {
    let now = change.after.map(classes);
    let before = change.before.map(classes).into_iter().flatten();
    before
        .filter(|class| now.is_none_or(|now| !now.contains(class)))
        .map(|class| ObjectKey::new("", class))
        .collect()
}

async fn sync(classes: Cache<Guarded>, users: Users, actor: Actor, key: ObjectKey) -> Synced {
    match classes.get(&key) {
        Some(class) if !is_settled(*class, &users, &key.name) => {
            settle::<VolumeAttributesClass>(&actor, &key, CLASS_FINALIZER).await
        }
        _ => Ok(End::Done),
    }
}

fn is_settled(class: Guarded, users: &Users, name: &str) -> bool {
    match class {
        Guarded::Safe | Guarded::Released => true,
        Guarded::Open => false,
        Guarded::Held => users.have(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(class: &str) -> VolumeState {
        VolumeState {
            guarded: Guarded::Safe,
            is_bound: true,
            classes: vec![class.to_owned()],
        }
    }

    fn claim(class: &str) -> ClaimState {
        ClaimState {
            guarded: Guarded::Safe,
            controller: None,
            classes: vec![class.to_owned()],
            cost: 0,
        }
    }

    #[test]
    fn a_class_is_held_while_a_claim_or_volume_has_it() {
        let users = Users {
            claims: Cache::new(),
            volumes: Cache::new(),
        };
        let held = || is_settled(Guarded::Held, &users, "gold");
        assert!(!held(), "nobody has it");
        users.claims.put(ObjectKey::new("team", "a"), claim("gold"));
        assert!(held());
        users
            .claims
            .put(ObjectKey::new("team", "a"), claim("silver"));
        assert!(!held());
        users.volumes.put(ObjectKey::new("", "v"), volume("gold"));
        assert!(held());
        assert!(
            !is_settled(Guarded::Open, &users, "gold"),
            "it gets its finalizer"
        );
    }

    #[test]
    fn a_class_is_looked_at_when_somebody_leaves_it() {
        let key = ObjectKey::new("", "v");
        let (gold, silver) = (volume("gold"), volume("silver"));
        for (after, classes) in [
            (Some(&silver), vec![ObjectKey::new("", "gold")]),
            (None, vec![ObjectKey::new("", "gold")]),
            (Some(&gold), vec![]),
        ] {
            let change = Change {
                key: &key,
                before: Some(&gold),
                after,
            };
            assert_eq!(left(&change, |v| &v.classes), classes);
        }
    }
}
