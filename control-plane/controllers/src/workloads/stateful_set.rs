//! Keeps stateful sets: pods with names and storage of their own, in their order.

mod decision;
mod making;

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};

use client_runtime::{
    Actor, Cache, Change, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced,
};
use client_runtime::{enqueue_changes, is, is_namespace_ending, is_outdated};

use super::batches;
use super::owned_pods::claim;
use super::ownership;
use super::pod_view::PodView;
use super::pods::reason;
use super::revisions::{self, REVISION_LABEL};
use crate::Manager;
use decision::{Action, Observed, decide, ordinal, ordinals};

const ACCOUNT: &str = "statefulset-controller";
const KIND: &str = "StatefulSet";
/// Upstream's `--concurrent-statefulset-syncs`.
const AT_ONCE: usize = 5;

struct Shell {
    sets: Cache<StatefulSet>,
    pods: Cache<PodView>,
    revisions: Cache<ControllerRevision>,
    actor: Actor,
    recorder: Recorder,
    queue: Arc<Queue<ObjectKey>>,
}

/// A set in work: its spec and the revisions that pods are made from.
struct Work<'a> {
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    current: Arc<ControllerRevision>,
    update: Arc<ControllerRevision>,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        sets: manager.whole::<StatefulSet>(),
        pods: manager.shared::<PodView>(),
        revisions: manager.whole::<ControllerRevision>(),
        recorder: manager.recorder(ACCOUNT, actor.clone()),
        actor,
        queue: Arc::new(Queue::new()),
    });
    enqueue_changes(&shell.sets, &shell.queue);
    let noticing = Arc::clone(&shell);
    shell.pods.on_change(move |change| noticing.notice(change));
    let ready = [
        shell.sets.completion(),
        shell.pods.completion(),
        shell.revisions.completion(),
    ];
    let queue = Arc::clone(&shell.queue);
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    fn notice(&self, change: &Change<'_, PodView>) {
        let namespace = &change.key.namespace;
        for pod in [change.before, change.after].into_iter().flatten() {
            match &pod.owner {
                Some(owner) if owner.kind == KIND => {
                    self.queue.add(ObjectKey::new(namespace, &owner.name));
                }
                Some(_) => {}
                None => {
                    let matching = self.sets.within(namespace, |set| {
                        ownership::matches(&selector(set), &pod.labels)
                    });
                    self.queue.add_all(matching.into_iter().map(|(key, _)| key));
                }
            }
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(set) = self.sets.get(key) else {
            return Ok(End::Done);
        };
        let Some(spec) = &set.spec else {
            return Ok(End::Done);
        };
        match self.bring_about(&set, spec).await {
            Ok(end) => Ok(end),
            Err(error) if is_namespace_ending(&error) => Ok(End::Done),
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Err(error) => Err(error),
        }
    }

    async fn bring_about(&self, set: &StatefulSet, spec: &StatefulSetSpec) -> Synced {
        let pods = self.claim(set).await?;
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let known = revisions::of_owner(&self.revisions, namespace, uid);
        let collisions = set
            .status
            .as_ref()
            .and_then(|status| status.collision_count);
        let update =
            revisions::ensure(&self.actor, set, &spec.template, collisions, &known).await?;
        let Some(update) = update else {
            return self.count_collision(set).await;
        };
        let status = set.status.as_ref();
        let name = status.and_then(|status| status.current_revision.as_deref());
        let current = known
            .iter()
            .find(|revision| Some(revisions::name(revision)) == name);
        let work = Work {
            set,
            spec,
            current: Arc::clone(current.unwrap_or(&update)),
            update,
        };
        let decided = decide(&Observed {
            set,
            spec,
            pods: &pods,
            current: revisions::name(&work.current),
            update: revisions::name(&work.update),
            now: Timestamp::now(),
        });
        let failure = self.carry_out(&work, &decided.actions).await;
        if set.status.as_ref() != Some(&decided.status) {
            let changed = StatefulSet {
                status: Some(decided.status),
                ..set.clone()
            };
            self.actor.replace_part("status", &changed).await?;
        }
        self.keep_claims(&work, &pods).await?;
        self.trim(&work, &known, &pods).await?;
        match failure {
            Some(error) => Err(error),
            None => Ok(decided.again_after.map_or(End::Done, End::After)),
        }
    }

    async fn count_collision(&self, set: &StatefulSet) -> Synced {
        let mut counted = set.clone();
        *counted
            .status
            .get_or_insert_default()
            .collision_count
            .get_or_insert(0) += 1;
        self.actor.replace_part("status", &counted).await?;
        Ok(End::Done)
    }

    // Only pods that are called as its own can be a set's.
    async fn claim(&self, set: &StatefulSet) -> Result<Vec<Arc<PodView>>, SyncError> {
        let meta = &set.metadata;
        let (name, uid) = (
            meta.name.as_deref().unwrap_or_default(),
            meta.uid.as_deref(),
        );
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let candidates = self.pods.within(namespace, |pod| match &pod.owner {
            Some(owner) => Some(owner.uid.as_str()) == uid,
            None => ordinal(name, &pod.name).is_some(),
        });
        let candidates = candidates.into_iter().map(|(_, pod)| pod);
        claim(&self.actor, set, &selector(set), candidates, None).await
    }

    async fn carry_out(&self, work: &Work<'_>, actions: &[Action]) -> Option<SyncError> {
        let outcome = batches::slow_start(actions.len(), |number| async move {
            match &actions[number] {
                Action::Create {
                    ordinal,
                    is_current,
                } => self.create(work, *ordinal, *is_current).await,
                Action::Replace(pod) => {
                    let (way, name) = (ended(pod), &pod.name);
                    let set = work.set.metadata.name.as_deref().unwrap_or_default();
                    let namespace = work.set.metadata.namespace.as_deref().unwrap_or_default();
                    let text =
                        format!("StatefulSet {namespace}/{set} is recreating {way} Pod {name}");
                    self.recorder
                        .about(work.set, Severity::Warning, "RecreatingFailedPod", text);
                    self.delete(work, pod).await
                }
                Action::Condemn(pod) | Action::Update(pod) => self.delete(work, pod).await,
            }
        });
        outcome.await.error
    }

    // Storage comes before the pod that wants it.
    async fn create(
        &self,
        work: &Work<'_>,
        ordinal: i32,
        is_current: bool,
    ) -> Result<(), SyncError> {
        let namespace = work.set.metadata.namespace.as_deref().unwrap_or_default();
        for claim in making::claims(work.set, work.spec, ordinal) {
            self.create_claim(work, &claim, ordinal).await?;
        }
        let revision = if is_current {
            &work.current
        } else {
            &work.update
        };
        let old: Option<PodTemplateSpec> = revisions::template(revision).filter(|_| is_current);
        let template = old.as_ref().unwrap_or(&work.spec.template);
        let pod = making::pod(
            work.set,
            work.spec,
            template,
            revisions::name(revision),
            ordinal,
        );
        match self.actor.create(namespace, &pod).await {
            // The cache does not show it yet.
            Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => Ok(()),
            made => self.say(
                work,
                "create",
                pod.metadata.name.as_deref().unwrap_or_default(),
                made,
            ),
        }
    }

    async fn create_claim(
        &self,
        work: &Work<'_>,
        claim: &PersistentVolumeClaim,
        ordinal: i32,
    ) -> Result<(), SyncError> {
        let namespace = work.set.metadata.namespace.as_deref().unwrap_or_default();
        let set = work.set.metadata.name.as_deref().unwrap_or_default();
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let about = format!("Claim {name} Pod {set}-{ordinal} in StatefulSet {set}");
        match self.actor.create(namespace, claim).await {
            Ok(_) => {
                let text = format!("create {about} success");
                self.recorder
                    .about(work.set, Severity::Normal, "SuccessfulCreate", text);
                Ok(())
            }
            Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => Ok(()),
            Err(error) => {
                let text = format!("create {about} failed error: {}", reason(&error));
                self.recorder
                    .about(work.set, Severity::Warning, "FailedCreate", text);
                Err(error)
            }
        }
    }

    async fn delete(&self, work: &Work<'_>, pod: &PodView) -> Result<(), SyncError> {
        let namespace = work.set.metadata.namespace.as_deref().unwrap_or_default();
        self.own_claims(work, pod).await?;
        let deleted = self
            .actor
            .delete::<Pod>(namespace, &pod.name, Some(&pod.uid))
            .await;
        self.say(work, "delete", &pod.name, deleted)
    }

    fn say<T>(
        &self,
        work: &Work<'_>,
        verb: &str,
        pod: &str,
        done: Result<T, SyncError>,
    ) -> Result<(), SyncError> {
        let set = work.set.metadata.name.as_deref().unwrap_or_default();
        let about = format!("{verb} Pod {pod} in StatefulSet {set}");
        let noun = if verb == "create" { "Create" } else { "Delete" };
        match done {
            Ok(_) => {
                let reason = format!("Successful{noun}");
                self.recorder.about(
                    work.set,
                    Severity::Normal,
                    &reason,
                    format!("{about} successful"),
                );
                Ok(())
            }
            Err(error) => {
                let text = format!("{about} failed error: {}", reason(&error));
                let reason = format!("Failed{noun}");
                self.recorder
                    .about(work.set, Severity::Warning, &reason, text);
                Err(error)
            }
        }
    }

    // Who asked for claims to go with pods or the set finds them owned so.
    async fn keep_claims(&self, work: &Work<'_>, pods: &[Arc<PodView>]) -> Result<(), SyncError> {
        if !making::has_retention(work.spec) {
            return Ok(());
        }
        for pod in pods {
            self.own_claims(work, pod).await?;
        }
        Ok(())
    }

    async fn own_claims(&self, work: &Work<'_>, pod: &PodView) -> Result<(), SyncError> {
        let set = work.set.metadata.name.as_deref().unwrap_or_default();
        let Some(number) = ordinal(set, &pod.name).filter(|_| making::has_retention(work.spec))
        else {
            return Ok(());
        };
        let namespace = work.set.metadata.namespace.as_deref().unwrap_or_default();
        let is_condemned = !ordinals(work.spec).contains(&number);
        for template in work.spec.volume_claim_templates.iter().flatten() {
            let name = making::claim_name(work.set, template, number);
            let claim: Option<PersistentVolumeClaim> = self.actor.get(namespace, &name).await?;
            let next = claim.and_then(|claim| {
                making::with_owners(&claim, work.set, work.spec, pod, is_condemned)
            });
            if let Some(next) = next {
                self.actor.replace(&next).await?;
            }
        }
        Ok(())
    }

    async fn trim(
        &self,
        work: &Work<'_>,
        known: &[Arc<ControllerRevision>],
        pods: &[Arc<PodView>],
    ) -> Result<(), SyncError> {
        let limit = work.spec.revision_history_limit.unwrap_or(10);
        let used: Vec<&str> = pods
            .iter()
            .filter_map(|pod| pod.labels.get(REVISION_LABEL).map(String::as_str))
            .chain([
                revisions::name(&work.current),
                revisions::name(&work.update),
            ])
            .collect();
        revisions::trim(&self.actor, known, limit, |one| {
            used.contains(&revisions::name(one))
        })
        .await
    }
}

fn ended(pod: &PodView) -> &'static str {
    match pod.phase {
        super::pod_view::Phase::Succeeded => "terminated",
        _ => "failed",
    }
}

fn selector(set: &StatefulSet) -> kube_kit::selector::LabelSelector {
    ownership::selector(set.spec.as_ref().map(|spec| &spec.selector))
}
