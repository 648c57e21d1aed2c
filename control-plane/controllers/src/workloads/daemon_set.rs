//! Runs a pod of each daemon set on every node that should have one.

mod decision;
mod placing;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use client_runtime::{Cache, Change, End, ObjectKey, Severity, SyncError, Synced, enqueue_changes};
use client_runtime::{is_namespace_ending, is_outdated};

use super::node_view::NodeView;
use super::owned_pods::OwnedPods;
use super::ownership;
use super::pod_view::{Phase, PodView};
use super::pods::{pod_from_template, reason};
use super::revisions::{self, REVISION_LABEL};
use crate::Manager;
use decision::{Observed, decide};

const ACCOUNT: &str = "daemon-set-controller";
const KIND: &str = "DaemonSet";
/// Upstream's `--concurrent-daemonset-syncs`.
const AT_ONCE: usize = 2;
/// Upstream's `BurstReplicas` of daemon sets.
const BURST: usize = 250;
/// How long a node waits for its next pod after one has failed, doubled by each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(900);

struct Shell {
    sets: Cache<DaemonSet>,
    nodes: Cache<NodeView>,
    revisions: Cache<ControllerRevision>,
    owned: OwnedPods,
    /// When a pod of a set on a node last failed, and how long to wait from then on.
    failures: Mutex<HashMap<(String, String), (Instant, Duration)>>,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let owned = OwnedPods::new(manager, KIND, ACCOUNT, "daemonset-controller");
    let shell = Arc::new(Shell {
        sets: manager.whole::<DaemonSet>(),
        nodes: manager.shared::<NodeView>(),
        revisions: manager.whole::<ControllerRevision>(),
        owned,
        failures: Mutex::new(HashMap::new()),
    });
    enqueue_changes(&shell.sets, &shell.owned.queue);
    let noticing = Arc::clone(&shell);
    shell
        .owned
        .pods
        .on_change(move |change| noticing.notice_pod(change));
    let noticing = Arc::clone(&shell);
    shell
        .nodes
        .on_change(move |change| noticing.notice_node(change));
    let ready = [
        shell.sets.completion(),
        shell.owned.pods.completion(),
        shell.nodes.completion(),
        shell.revisions.completion(),
    ];
    let queue = Arc::clone(&shell.owned.queue);
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    fn notice_pod(&self, change: &Change<'_, PodView>) {
        let Some(orphan) = self.owned.notice(change) else {
            return;
        };
        let matching = self.sets.within(&change.key.namespace, |set| {
            ownership::matches(&selector(set), &orphan.labels)
        });
        self.owned
            .queue
            .add_all(matching.into_iter().map(|(key, _)| key));
    }

    // A node matters to the sets for which it fits otherwise than before.
    fn notice_node(&self, change: &Change<'_, NodeView>) {
        for (key, set) in self.sets.all() {
            let Some(spec) = &set.spec else {
                continue;
            };
            let fit = |node: Option<&NodeView>| {
                node.map(|node| placing::fit(&spec.template, &change.key.name, node))
            };
            if fit(change.before) != fit(change.after) {
                self.owned.queue.add(key);
            }
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(set) = self.sets.get(key) else {
            self.owned.expectations.forget(key);
            return Ok(End::Done);
        };
        let Some(spec) = &set.spec else {
            return Ok(End::Done);
        };
        if selector(&set).is_everything() {
            let text = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.owned
                .control
                .recorder
                .about(&*set, Severity::Warning, "SelectingAll", text);
            return Ok(End::Done);
        }
        match self.bring_about(key, &set, spec).await {
            Ok(end) => Ok(end),
            Err(error) if is_namespace_ending(&error) => Ok(End::Done),
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Err(error) => Err(error),
        }
    }

    async fn bring_about(&self, key: &ObjectKey, set: &DaemonSet, spec: &DaemonSetSpec) -> Synced {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let known = revisions::of_owner(&self.revisions, &key.namespace, uid);
        let collisions = set
            .status
            .as_ref()
            .and_then(|status| status.collision_count);
        let revision = revisions::ensure(
            &self.owned.control.actor,
            set,
            &spec.template,
            collisions,
            &known,
        )
        .await?;
        let Some(revision) = revision else {
            return self.count_collision(set).await;
        };
        let hash = revisions::hash(&revision);
        let pods = self.owned.claim(set, &selector(set), None).await?;
        let nodes: BTreeMap<String, Arc<NodeView>> = self
            .nodes
            .all()
            .into_iter()
            .map(|(key, node)| (key.name, node))
            .collect();
        let may_change = self.owned.expectations.are_met(key);
        let now = Timestamp::now();
        let mut decided = decide(&Observed {
            set,
            spec,
            nodes: &nodes,
            pods: &pods,
            hash,
            now,
        });
        let mut failure = None;
        if may_change {
            let (doomed, wait) = self.doomed(set, uid, decided.delete, decided.ended);
            decided.again_after = [decided.again_after, wait].into_iter().flatten().min();
            failure = self.change(key, set, &decided.create, &doomed, hash).await;
        }
        if set.status.as_ref() != Some(&decided.status) {
            let changed = DaemonSet {
                status: Some(decided.status),
                ..set.clone()
            };
            self.owned
                .control
                .actor
                .replace_part("status", &changed)
                .await?;
        }
        let used: Vec<&str> = pods
            .iter()
            .filter_map(|pod| pod.labels.get(REVISION_LABEL).map(String::as_str))
            .collect();
        let limit = spec.revision_history_limit.unwrap_or(10);
        let is_used = |one: &ControllerRevision| {
            revisions::hash(one) == hash || used.contains(&revisions::hash(one))
        };
        revisions::trim(&self.owned.control.actor, &known, limit, is_used).await?;
        match failure {
            Some(error) => Err(error),
            None => Ok(decided.again_after.map_or(End::Done, End::After)),
        }
    }

    async fn count_collision(&self, set: &DaemonSet) -> Synced {
        let mut counted = set.clone();
        *counted
            .status
            .get_or_insert_default()
            .collision_count
            .get_or_insert(0) += 1;
        self.owned
            .control
            .actor
            .replace_part("status", &counted)
            .await?;
        Ok(End::Done)
    }

    // What goes now, and when to look again for what failed too soon after the last failure.
    fn doomed(
        &self,
        set: &DaemonSet,
        uid: &str,
        mut delete: Vec<Arc<PodView>>,
        ended: Vec<(String, Arc<PodView>)>,
    ) -> (Vec<Arc<PodView>>, Option<Duration>) {
        let mut wait: Option<Duration> = None;
        for (node, pod) in ended {
            if pod.phase == Phase::Failed
                && let Some(left) = self.must_wait(uid, &node)
            {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
                continue;
            }
            self.say_ended(set, &node, &pod);
            delete.push(pod);
        }
        (delete, wait)
    }

    fn must_wait(&self, uid: &str, node: &str) -> Option<Duration> {
        let mut failures = self
            .failures
            .lock()
            .expect("nothing panics while it holds the failures");
        let (now, key) = (Instant::now(), (uid.to_owned(), node.to_owned()));
        let (since, wait) = failures.get(&key).copied().unwrap_or((now, Duration::ZERO));
        let age = now.duration_since(since);
        if age < wait {
            return Some(wait - age);
        }
        // One that lived for long starts anew.
        let next = if age > LONGEST_WAIT * 2 {
            FIRST_WAIT
        } else {
            (wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT)
        };
        failures.retain(|_, (since, _)| now.duration_since(*since) < LONGEST_WAIT * 2);
        failures.insert(key, (now, next));
        None
    }

    fn say_ended(&self, set: &DaemonSet, node: &str, pod: &PodView) {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let (reason, severity, word) = match pod.phase {
            Phase::Succeeded => ("SucceededDaemonPod", Severity::Normal, "succeeded"),
            _ => ("FailedDaemonPod", Severity::Warning, "failed"),
        };
        let verb = if word == "failed" { "kill" } else { "delete" };
        let name = &pod.name;
        let text = format!(
            "Found {word} daemon pod {namespace}/{name} on node {node}, will try to {verb} it"
        );
        self.owned
            .control
            .recorder
            .about(set, severity, reason, text);
    }

    async fn change(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        nodes: &[String],
        doomed: &[Arc<PodView>],
        hash: &str,
    ) -> Option<SyncError> {
        let nodes = &nodes[..nodes.len().min(BURST)];
        let doomed = &doomed[..doomed.len().min(BURST)];
        if nodes.is_empty() && doomed.is_empty() {
            return None;
        }
        let uids = doomed.iter().map(|pod| pod.uid.clone());
        self.owned.expectations.expect(key, nodes.len(), uids);
        let make = |number: usize| pod(set, &nodes[number], hash);
        let not_made = self.owned.create_all(key, set, nodes.len(), make).await;
        let not_ended = self.owned.delete_all(key, set, doomed).await;
        not_made.or(not_ended)
    }
}

fn pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let spec = set.spec.clone().unwrap_or_default();
    let mut pod = pod_from_template(set, &spec.template);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_LABEL.into(), hash.to_owned());
    let inside = pod.spec.get_or_insert_default();
    inside.tolerations = Some(placing::tolerations(inside));
    placing::pin(inside, node);
    pod
}

fn selector(set: &DaemonSet) -> kube_kit::selector::LabelSelector {
    ownership::selector(set.spec.as_ref().map(|spec| &spec.selector))
}
