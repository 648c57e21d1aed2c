//! Makes resource claims from the templates pods name, and frees claims of pods that are over.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use serde_json::json;

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced};
use client_runtime::{is_namespace_ending, is_outdated};

use super::ownership::{Owner, owner_reference};
use super::pod_view::PodView;
use super::pods::reason;
use crate::Manager;

const ACCOUNT: &str = "resource-claim-controller";
/// Upstream's `--concurrent-resourceclaim-syncs`.
const AT_ONCE: usize = 50;
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

struct Shell {
    pods: Cache<PodView>,
    claims: Cache<ResourceClaim>,
    actor: Actor,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        pods: manager.shared::<PodView>(),
        claims: manager.whole::<ResourceClaim>(),
        recorder: manager.recorder("resource_claim", actor.clone()),
        actor,
    });
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    shell.pods.on_change(move |change| {
        let pods = [change.before, change.after];
        if pods
            .into_iter()
            .flatten()
            .any(|pod| pod.has_resource_claims)
        {
            noticed.add(change.key.clone());
        }
    });
    let ready = [shell.pods.completion(), shell.claims.completion()];
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    async fn sync(&self, key: &ObjectKey) -> Synced {
        let pod = self.pods.get(key);
        let done = match pod.filter(|pod| !pod.is_finished()) {
            None => self.free(key).await,
            Some(pod) if pod.is_deleted => return Ok(End::Done),
            Some(_) => self.make_all(key).await,
        };
        match done {
            Ok(()) => Ok(End::Done),
            Err(error) if is_namespace_ending(&error) => Ok(End::Done),
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Err(error) => Err(error),
        }
    }

    async fn make_all(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let Some(pod) = self.actor.get::<Pod>(&key.namespace, &key.name).await? else {
            return Ok(());
        };
        let mut made = Vec::new();
        for wanted in missing(&pod) {
            match self.make(key, &pod, wanted).await {
                Ok(name) => made.push(json!({ "name": wanted.name, "resourceClaimName": name })),
                Err(error) => {
                    let text = format!("PodResourceClaim {}: {}", wanted.name, reason(&error));
                    self.recorder.about(
                        &pod,
                        Severity::Warning,
                        "FailedResourceClaimCreation",
                        text,
                    );
                    return Err(error);
                }
            }
        }
        if !made.is_empty() {
            let patch = Patch::Strategic(json!({ "status": { "resourceClaimStatuses": made } }));
            self.actor
                .patch::<Pod>((&key.namespace, &key.name), Some("status"), &patch)
                .await?;
        }
        Ok(())
    }

    // The claim of a pod, found if it was made before.
    async fn make(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        wanted: &PodResourceClaim,
    ) -> Result<String, SyncError> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let known = self
            .claims
            .within(&key.namespace, |claim| is_for(claim, &uid, &wanted.name));
        if let Some((known, _)) = known.into_iter().next() {
            return Ok(known.name);
        }
        let template = wanted
            .resource_claim_template_name
            .as_deref()
            .unwrap_or_default();
        let found: Option<ResourceClaimTemplate> = self.actor.get(&key.namespace, template).await?;
        let Some(found) = found else {
            let text = format!("resource claim template \"{template}\" not found");
            return Err(SyncError::NotYet(text));
        };
        let claim = claim(pod, &wanted.name, found);
        let made = self.actor.create(&key.namespace, &claim).await?;
        Ok(made.metadata.name.unwrap_or_default())
    }

    // Claims that were made for a pod go with it (here when it has ended, else by their owner); others are free again.
    async fn free(&self, key: &ObjectKey) -> Result<(), SyncError> {
        let is_reserved = |claim: &ResourceClaim| {
            let status = claim.status.as_ref();
            let consumers = status.and_then(|status| status.reserved_for.as_deref());
            consumers
                .unwrap_or_default()
                .iter()
                .any(|one| one.resource == "pods" && one.name == key.name)
        };
        for (claim_key, claim) in self.claims.within(&key.namespace, is_reserved) {
            let alive = self
                .pods
                .get(key)
                .filter(|pod| !pod.is_finished())
                .map(|pod| pod.uid.clone());
            let mut next = (*claim).clone();
            let status = next.status.get_or_insert_default();
            if let Some(consumers) = &mut status.reserved_for {
                consumers.retain(|one| {
                    one.resource != "pods"
                        || one.name != key.name
                        || Some(&one.uid) == alive.as_ref()
                });
            }
            // What nobody has reserved is not allocated any more.
            if status.reserved_for.as_ref().is_some_and(Vec::is_empty) {
                status.reserved_for = None;
                status.allocation = None;
            }
            self.actor.replace_part("status", &next).await?;
            let owner = Owner::of(&claim.metadata);
            if owner.is_some_and(|owner| owner.is("Pod", &key.name)) {
                let uid = claim.metadata.uid.as_deref();
                self.actor
                    .delete::<ResourceClaim>(&claim_key.namespace, &claim_key.name, uid)
                    .await?;
            }
        }
        Ok(())
    }
}

fn is_for(claim: &ResourceClaim, pod_uid: &str, name: &str) -> bool {
    let annotation = claim
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(POD_CLAIM_NAME));
    annotation.map(String::as_str) == Some(name)
        && Owner::of(&claim.metadata).is_some_and(|owner| owner.uid == pod_uid)
}

// The claims a pod's templates ask for and its status does not name yet.
fn missing(pod: &Pod) -> Vec<&PodResourceClaim> {
    let known = pod
        .status
        .iter()
        .flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let known: Vec<&str> = known.map(|status| status.name.as_str()).collect();
    let wanted = pod
        .spec
        .iter()
        .flat_map(|spec| spec.resource_claims.iter().flatten());
    let by_template = wanted.filter(|claim| claim.resource_claim_template_name.is_some());
    by_template
        .filter(|claim| !known.contains(&claim.name.as_str()))
        .collect()
}

fn claim(pod: &Pod, name: &str, template: ResourceClaimTemplate) -> ResourceClaim {
    let meta = template.spec.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.into(), name.to_owned());
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(format!("{pod_name}-{name}-")),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_templates_without_a_claim_are_missing() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "web", "uid": "u" },
            "spec": { "containers": [], "resourceClaims": [
                { "name": "a", "resourceClaimTemplateName": "gpu" },
                { "name": "b", "resourceClaimTemplateName": "gpu" },
                { "name": "c", "resourceClaimName": "shared" }] },
            "status": { "resourceClaimStatuses": [{ "name": "a", "resourceClaimName": "web-a-x" }] } }))
        .unwrap();
        let names: Vec<&str> = missing(&pod)
            .iter()
            .map(|claim| claim.name.as_str())
            .collect();
        assert_eq!(names, ["b"]);
        let made = claim(&pod, "b", ResourceClaimTemplate::default());
        assert!(is_for(&made, "u", "b") && !is_for(&made, "u", "a"));
    }
}
