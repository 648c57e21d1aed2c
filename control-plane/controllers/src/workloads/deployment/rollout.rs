//! What a deployment needs next (upstream's `syncDeployment`), decided from what was observed.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use kube_kit::selector::LabelSelector as Selector;

use super::super::ownership;
use super::super::pod_view::PodView;
use super::limits::Limits;
use super::progress;
use super::scaling::{self, Sized};
use super::sets::{self, REVISION, Sets, replicas};

/// What there is to decide from.
pub(super) struct Observed<'a> {
    pub(super) deployment: &'a Deployment,
    /// The sets that are the deployment's.
    pub(super) sets: &'a [&'a ReplicaSet],
    /// The pods of those sets; only a deployment that recreates asks for them.
    pub(super) pods: &'a [Arc<PodView>],
    pub(super) now: Timestamp,
}

/// One write.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Make the new set, and then write the deployment that knows of it.
    Create {
        set: Box<ReplicaSet>,
        then: Box<Deployment>,
    },
    /// Replace a set, and say what changed.
    Update {
        set: Box<ReplicaSet>,
        said: Option<String>,
    },
    /// Delete a set nobody needs any more.
    Delete { name: String, uid: String },
    /// Write the deployment's status, and the revision among its annotations.
    Write(Box<Deployment>),
}

/// The writes, in their order, and when to look again in any case.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decided {
    pub(super) actions: Vec<Action>,
    pub(super) again_after: Option<Duration>,
}

/// Which sets and pods are meant.
pub(super) fn selector(deployment: &Deployment) -> Selector {
    ownership::selector(deployment.spec.as_ref().map(|spec| &spec.selector))
}

/// Whether the old pods go before the new ones come.
pub(super) fn recreates(deployment: &Deployment) -> bool {
    let strategy = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.strategy.as_ref());
    strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate"))
}

pub(super) fn decide(observed: &Observed<'_>) -> Decided {
    let sets = Sets::of(observed.deployment, observed.sets);
    let mut decision = Decision {
        observed,
        limits: Limits::of(observed.deployment),
        next: observed.deployment.clone(),
        actions: Vec::new(),
    };
    let is_paused = observed.deployment.spec.as_ref().and_then(|s| s.paused) == Some(true);
    if observed.deployment.metadata.deletion_timestamp.is_some() {
        return decision.with_counts(&sets);
    }
    progress::note_pause(&mut decision.next, observed.now);
    if decision.refresh_new_set(&sets) {
        return decision.finished(None);
    }
    if is_paused || scaling::is_resized(observed.deployment, &sets) {
        decision.scale(&scaling::resize(observed.deployment, &sets));
        if is_paused {
            decision.clean_up(&sets);
        }
        return decision.with_counts(&sets);
    }
    match recreates(observed.deployment) {
        true => decision.recreate(&sets),
        false => decision.roll(&sets),
    }
}

struct Decision<'a> {
    observed: &'a Observed<'a>,
    limits: Limits,
    /// The deployment as it is to be written.
    next: Deployment,
    actions: Vec<Action>,
}

impl Decision<'_> {
    // What the deployment says about its new set is written on it before anything else happens. Gives whether it was
    // not there yet: then the rest waits for it.
    fn refresh_new_set(&mut self, sets: &Sets<'_>) -> bool {
        let Some(new) = sets.new else {
            return false;
        };
        let revision = sets.next_revision();
        if let Some(set) = sets::refreshed(new, self.observed.deployment, revision) {
            self.actions.push(Action::Update {
                set: Box::new(set),
                said: None,
            });
            return true;
        }
        let name = new.metadata.name.clone().unwrap_or_default();
        self.take_revision(sets::revision(&new.metadata));
        progress::note_new_set(&mut self.next, false, &name, self.observed.now);
        false
    }

    fn take_revision(&mut self, revision: i64) {
        let annotations = self.next.metadata.annotations.get_or_insert_default();
        annotations.insert(REVISION.into(), revision.to_string());
    }

    fn roll(mut self, sets: &Sets<'_>) -> Decided {
        let Some(new) = sets.new else {
            return self.make_new_set(sets);
        };
        let size = scaling::of_new(sets, replicas(new), self.limits, false);
        if size != replicas(new) {
            self.scale(&[(new, size)]);
            return self.with_progress(sets);
        }
        let smaller = scaling::of_old(sets, self.limits);
        if !smaller.is_empty() {
            self.scale(&smaller);
            return self.with_progress(sets);
        }
        self.clean_up_if_complete(sets);
        self.with_progress(sets)
    }

    fn recreate(mut self, sets: &Sets<'_>) -> Decided {
        let active = sets.old.iter().filter(|set| replicas(set) > 0);
        let emptied: Vec<Sized<'_>> = active.map(|set| (*set, 0)).collect();
        if !emptied.is_empty() {
            self.scale(&emptied);
            return self.with_progress(sets);
        }
        if self.old_pods_remain(sets) {
            return self.with_progress(sets);
        }
        let Some(new) = sets.new else {
            return self.make_new_set(sets);
        };
        if replicas(new) != self.limits.replicas {
            self.scale(&[(new, self.limits.replicas)]);
        }
        self.clean_up_if_complete(sets);
        self.with_progress(sets)
    }

    fn old_pods_remain(&self, sets: &Sets<'_>) -> bool {
        let counted = |set: &&ReplicaSet| set.status.as_ref().is_some_and(|s| s.replicas > 0);
        let new = sets.new.and_then(|new| new.metadata.uid.as_deref());
        let is_old = |pod: &PodView| pod.owner.as_ref().map(|owner| owner.uid.as_str()) != new;
        let mut running = self.observed.pods.iter().filter(|pod| !pod.is_finished());
        sets.old.iter().any(counted) || running.any(|pod| is_old(pod))
    }

    fn make_new_set(mut self, sets: &Sets<'_>) -> Decided {
        let deployment = self.observed.deployment;
        let size = scaling::of_new(sets, 0, self.limits, recreates(deployment));
        let revision = sets.next_revision();
        let set = sets::new_set(deployment, size, revision);
        let name = set.metadata.name.clone().unwrap_or_default();
        self.take_revision(revision);
        progress::note_new_set(&mut self.next, true, &name, self.observed.now);
        let with_new = Sets {
            new: Some(&set),
            old: sets.old.clone(),
        };
        self.next.status = Some(progress::rolling(&self.next, &with_new, self.observed.now));
        let again_after = self.look_again();
        let then = Box::new(self.next);
        self.actions.push(Action::Create {
            set: Box::new(set),
            then,
        });
        Decided {
            actions: self.actions,
            again_after,
        }
    }

    fn scale(&mut self, sized: &[Sized<'_>]) {
        for (set, size) in sized {
            let (before, name) = (
                replicas(set),
                set.metadata.name.as_deref().unwrap_or_default(),
            );
            let Some(next) = sets::with_replicas(set, *size, self.limits) else {
                continue;
            };
            let way = if *size > before { "up" } else { "down" };
            let text = format!("Scaled {way} replica set {name} from {before} to {size}");
            let said = (*size != before).then_some(text);
            self.actions.push(Action::Update {
                set: Box::new(next),
                said,
            });
        }
    }

    fn clean_up_if_complete(&mut self, sets: &Sets<'_>) {
        let status = self.observed.deployment.status.clone().unwrap_or_default();
        if progress::is_complete(self.observed.deployment, &status) {
            self.clean_up(sets);
        }
    }

    // Old sets beyond the history limit go, oldest revision first, if nothing of them runs (upstream's
    // `cleanupDeployment`).
    fn clean_up(&mut self, sets: &Sets<'_>) {
        let spec = self.observed.deployment.spec.as_ref();
        let limit = spec.and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else {
            return;
        };
        let alive = sets
            .old
            .iter()
            .filter(|set| set.metadata.deletion_timestamp.is_none());
        let mut alive: Vec<&ReplicaSet> = alive.copied().collect();
        alive.sort_by_key(|set| sets::revision(&set.metadata));
        let surplus = alive
            .len()
            .saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in alive.into_iter().take(surplus).filter(|set| is_empty(set)) {
            self.actions.push(Action::Delete {
                name: set.metadata.name.clone().unwrap_or_default(),
                uid: set.metadata.uid.clone().unwrap_or_default(),
            });
        }
    }

    fn with_counts(mut self, sets: &Sets<'_>) -> Decided {
        let status = progress::counted(&self.next, sets, self.observed.now);
        self.next.status = Some(status);
        self.finished(None)
    }

    fn with_progress(mut self, sets: &Sets<'_>) -> Decided {
        self.next.status = Some(progress::rolling(&self.next, sets, self.observed.now));
        let again_after = self.look_again();
        self.finished(again_after)
    }

    fn look_again(&self) -> Option<Duration> {
        let none = DeploymentStatus::default();
        let status = self.next.status.as_ref().unwrap_or(&none);
        progress::look_again(self.observed.deployment, status, self.observed.now)
    }

    fn finished(mut self, again_after: Option<Duration>) -> Decided {
        if self.next != *self.observed.deployment {
            self.actions.push(Action::Write(Box::new(self.next)));
        }
        Decided {
            actions: self.actions,
            again_after,
        }
    }
}

fn is_empty(set: &ReplicaSet) -> bool {
    let status = set.status.as_ref();
    let seen = status.and_then(|status| status.observed_generation);
    replicas(set) == 0
        && status.is_none_or(|status| status.replicas == 0)
        && set.metadata.generation <= seen
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
