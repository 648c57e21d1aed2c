//! Rolls deployments out: makes a replica set for each template, and moves replicas from the old sets to the new.
//!
//! What to do is decided in [`rollout`] from the deployment, its sets and, for `Recreate`, their pods.

mod limits;
mod progress;
mod rollout;
mod scaling;
mod sets;

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::Resource as _;

use client_runtime::{
    Actor, Cache, Change, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced,
};
use client_runtime::{enqueue_changes, is, is_namespace_ending, is_outdated};

use super::ownership::{self, Claim, Claimant, Claimed, Owner};
use super::pod_view::PodView;
use super::pods::reason;
use crate::Manager;
use rollout::{Action, Observed, decide};

const ACCOUNT: &str = "deployment-controller";
const KIND: &str = "Deployment";
/// Upstream's `--concurrent-deployment-syncs`.
const AT_ONCE: usize = 5;

struct Shell {
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    pods: Cache<PodView>,
    actor: Actor,
    recorder: Recorder,
    queue: Arc<Queue<ObjectKey>>,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        deployments: manager.whole::<Deployment>(),
        sets: manager.whole::<ReplicaSet>(),
        pods: manager.shared::<PodView>(),
        recorder: manager.recorder(ACCOUNT, actor.clone()),
        actor,
        queue: Arc::new(Queue::new()),
    });
    enqueue_changes(&shell.deployments, &shell.queue);
    let noticing = Arc::clone(&shell);
    shell
        .sets
        .on_change(move |change| noticing.notice_set(change));
    let noticing = Arc::clone(&shell);
    shell
        .pods
        .on_change(move |change| noticing.notice_pod(change));
    let ready = [
        shell.deployments.completion(),
        shell.sets.completion(),
        shell.pods.completion(),
    ];
    let queue = Arc::clone(&shell.queue);
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    fn notice_set(&self, change: &Change<'_, ReplicaSet>) {
        let namespace = &change.key.namespace;
        let owner = |set: Option<&ReplicaSet>| {
            let owner = set.and_then(|set| Owner::of(&set.metadata))?;
            (owner.kind == KIND).then(|| ObjectKey::new(namespace, owner.name))
        };
        let (before, after) = (owner(change.before), owner(change.after));
        if before != after {
            self.queue.add_all(before);
        }
        match (after, change.after) {
            (Some(key), _) => self.queue.add(key),
            (None, Some(orphan)) if Owner::of(&orphan.metadata).is_none() => {
                let labels = orphan.metadata.labels.clone().unwrap_or_default();
                let matching = self.deployments.within(namespace, |deployment| {
                    ownership::matches(&rollout::selector(deployment), &labels)
                });
                self.queue.add_all(matching.into_iter().map(|(key, _)| key));
            }
            _ => {}
        }
    }

    // A deployment that recreates waits for its last old pod to go.
    fn notice_pod(&self, change: &Change<'_, PodView>) {
        let (Some(gone), None) = (change.before, change.after) else {
            return;
        };
        let Some(owner) = gone
            .owner
            .as_ref()
            .filter(|owner| owner.kind == "ReplicaSet")
        else {
            return;
        };
        let set = self
            .sets
            .get(&ObjectKey::new(&change.key.namespace, &owner.name));
        let Some(deployment) = set.and_then(|set| Owner::of(&set.metadata)) else {
            return;
        };
        let key = ObjectKey::new(&change.key.namespace, deployment.name);
        if self
            .deployments
            .get(&key)
            .is_some_and(|found| rollout::recreates(&found))
        {
            self.queue.add(key);
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(deployment) = self.deployments.get(key) else {
            return Ok(End::Done);
        };
        if rollout::selector(&deployment).is_everything() {
            let text = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder
                .about(&*deployment, Severity::Warning, "SelectingAll", text);
            return self.observe_only(&deployment).await;
        }
        let sets = self.claim(&deployment).await?;
        let pods = self.pods_of(&deployment, &sets);
        let sets: Vec<&ReplicaSet> = sets.iter().map(|set| &**set).collect();
        let now = Timestamp::now();
        let decided = decide(&Observed {
            deployment: &deployment,
            sets: &sets,
            pods: &pods,
            now,
        });
        for action in decided.actions {
            match self.carry_out(&deployment, action).await {
                Ok(()) => {}
                // The cache is behind: what changed will bring the deployment back.
                Err(error) if is_outdated(&error) => return Ok(End::Done),
                Err(error) if is_namespace_ending(&error) => return Ok(End::Done),
                Err(error) => return Err(error),
            }
        }
        Ok(decided.again_after.map_or(End::Done, End::After))
    }

    async fn observe_only(&self, deployment: &Deployment) -> Synced {
        let generation = deployment.metadata.generation;
        let status = deployment.status.clone().unwrap_or_default();
        if status.observed_generation < generation {
            let mut seen = deployment.clone();
            seen.status.get_or_insert_default().observed_generation = generation;
            self.write_status(&seen).await?;
        }
        Ok(End::Done)
    }

    async fn claim(&self, deployment: &Deployment) -> Result<Vec<Arc<ReplicaSet>>, SyncError> {
        let selector = rollout::selector(deployment);
        let meta = &deployment.metadata;
        let (namespace, uid) = (
            meta.namespace.as_deref().unwrap_or_default(),
            meta.uid.as_deref(),
        );
        let uid = uid.unwrap_or_default();
        let claimant = Claimant {
            uid,
            is_deleted: meta.deletion_timestamp.is_some(),
            selector: &selector,
        };
        let mut ours = Vec::new();
        for (key, set) in self.sets.within(namespace, |_| true) {
            let owner = Owner::of(&set.metadata);
            let labels = set.metadata.labels.clone().unwrap_or_default();
            let claimed = Claimed {
                owner: owner.as_ref().map(|owner| owner.uid.as_str()),
                labels: &labels,
                is_deleted: set.metadata.deletion_timestamp.is_some(),
            };
            let set_uid = set.metadata.uid.as_deref().unwrap_or_default();
            match claimant.claim(&claimed) {
                Claim::Keep => ours.push(set),
                Claim::Adopt => {
                    let actor = &self.actor;
                    if ownership::adopt::<_, ReplicaSet>(actor, deployment, &key.name, set_uid, &[])
                        .await?
                    {
                        ours.push(set);
                    }
                }
                Claim::Release => {
                    let actor = &self.actor;
                    ownership::release::<_, ReplicaSet>(
                        actor, deployment, &key.name, set_uid, None,
                    )
                    .await?;
                }
                Claim::Ignore => {}
            }
        }
        Ok(ours)
    }

    fn pods_of(&self, deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Vec<Arc<PodView>> {
        if !rollout::recreates(deployment) {
            return Vec::new();
        }
        let uids: Vec<&str> = sets
            .iter()
            .filter_map(|set| set.metadata.uid.as_deref())
            .collect();
        let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
        let is_ours = |pod: &PodView| {
            pod.owner
                .as_ref()
                .is_some_and(|owner| uids.contains(&owner.uid.as_str()))
        };
        self.pods
            .within(namespace, is_ours)
            .into_iter()
            .map(|(_, pod)| pod)
            .collect()
    }

    async fn carry_out(&self, deployment: &Deployment, action: Action) -> Result<(), SyncError> {
        match action {
            Action::Create { set, then } => self.create_set(deployment, *set, *then).await,
            Action::Update { set, said } => {
                self.actor.replace(&*set).await?;
                if let Some(text) = said {
                    self.recorder
                        .about(deployment, Severity::Normal, "ScalingReplicaSet", text);
                }
                Ok(())
            }
            Action::Delete { name, uid } => {
                let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
                self.actor
                    .delete::<ReplicaSet>(namespace, &name, Some(&uid))
                    .await
            }
            Action::Write(deployment) => self.write_status(&deployment).await,
        }
    }

    async fn create_set(
        &self,
        deployment: &Deployment,
        set: ReplicaSet,
        then: Deployment,
    ) -> Result<(), SyncError> {
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        let name = set.metadata.name.clone().unwrap_or_default();
        match self.actor.create(&namespace, &set).await {
            Ok(made) => {
                let replicas = sets::replicas(&made);
                if replicas > 0 {
                    let text = format!("Scaled up replica set {name} from 0 to {replicas}");
                    self.recorder
                        .about(deployment, Severity::Normal, "ScalingReplicaSet", text);
                }
                self.write_status(&then).await
            }
            Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => {
                self.settle_collision(deployment, &namespace, &name).await
            }
            Err(error) if is_namespace_ending(&error) => Err(error),
            Err(error) => {
                let text = format!(
                    "Failed to create new replica set \"{name}\": {}",
                    reason(&error)
                );
                self.recorder.about(
                    deployment,
                    Severity::Warning,
                    "ReplicaSetCreateError",
                    &text,
                );
                if let Some(failed) = progress::not_created(deployment, &text, Timestamp::now()) {
                    self.write_status(&failed).await?;
                }
                Err(error)
            }
        }
    }

    // The name is taken: by our own set, which the cache does not show yet, or by another one with the same hash.
    async fn settle_collision(
        &self,
        deployment: &Deployment,
        namespace: &str,
        name: &str,
    ) -> Result<(), SyncError> {
        let Some(taken) = self.actor.get::<ReplicaSet>(namespace, name).await? else {
            return Err(SyncError::NotYet(format!(
                "replica set {name} went while it was asked for"
            )));
        };
        let owner = Owner::of(taken.meta()).map(|owner| owner.uid);
        if owner == deployment.metadata.uid && sets::has_template_of(&taken, deployment) {
            return Ok(());
        }
        let mut counted = deployment.clone();
        *counted
            .status
            .get_or_insert_default()
            .collision_count
            .get_or_insert(0) += 1;
        self.write_status(&counted).await
    }

    async fn write_status(&self, deployment: &Deployment) -> Result<(), SyncError> {
        self.actor
            .replace_part("status", deployment)
            .await
            .map(drop)
    }
}
