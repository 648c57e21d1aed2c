//! Makes the claims of pods' ephemeral volumes.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced};
use client_runtime::{is, is_namespace_ending};

use super::ownership::{Owner, owner_reference};
use super::pod_view::PodView;
use super::pods::reason;
use crate::Manager;

const ACCOUNT: &str = "ephemeral-volume-controller";
/// Upstream's `--concurrent-ephemeralvolume-syncs`.
const AT_ONCE: usize = 5;

struct Shell {
    pods: Cache<PodView>,
    actor: Actor,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        pods: manager.shared::<PodView>(),
        recorder: manager.recorder("ephemeral_volume", actor.clone()),
        actor,
    });
    let queue = Arc::new(Queue::new());
    let noticed = Arc::clone(&queue);
    shell.pods.on_change(move |change| {
        let is_new = |pod: &PodView| !pod.ephemeral_volumes.is_empty() && !pod.is_deleted;
        // A pod's volumes never change: once is enough, and again when everything is looked at again.
        let is_first = change.before.is_none_or(|before| {
            change
                .after
                .is_some_and(|after| std::ptr::eq(before, after))
        });
        if is_first && change.after.is_some_and(is_new) {
            noticed.add(change.key.clone());
        }
    });
    let ready = [shell.pods.completion()];
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    async fn sync(&self, key: &ObjectKey) -> Synced {
        if self.pods.get(key).is_none_or(|pod| pod.is_deleted) {
            return Ok(End::Done);
        }
        // The templates are not in the view: few pods have such volumes.
        let Some(pod) = self.actor.get::<Pod>(&key.namespace, &key.name).await? else {
            return Ok(End::Done);
        };
        for claim in claims(&pod) {
            match self.make(key, &pod, &claim).await {
                Err(error) if is_namespace_ending(&error) => return Ok(End::Done),
                other => other?,
            }
        }
        Ok(End::Done)
    }

    async fn make(
        &self,
        key: &ObjectKey,
        pod: &Pod,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), SyncError> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let error = match self.actor.create(&key.namespace, claim).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let SyncError::Api(api) = &error else {
            return Err(error);
        };
        if !is(api, StatusCode::CONFLICT) {
            let text = format!("create PVC {name}: {}", reason(&error));
            self.recorder
                .about(pod, Severity::Warning, "FailedBinding", text);
            return Err(error);
        }
        let taken: Option<PersistentVolumeClaim> = self.actor.get(&key.namespace, name).await?;
        let owner = taken
            .and_then(|claim| Owner::of(&claim.metadata))
            .map(|owner| owner.uid);
        if owner == pod.metadata.uid {
            return Ok(());
        }
        let text = format!(
            "PVC \"{}/{name}\" was not created for pod \"{}/{}\" (pod is not owner)",
            key.namespace, key.namespace, key.name
        );
        self.recorder
            .about(pod, Severity::Warning, "FailedBinding", &text);
        Err(SyncError::NotYet(text))
    }
}

fn claims(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let templates = volumes.filter_map(|volume| {
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let meta = template.metadata.clone().unwrap_or_default();
        Some(PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(format!("{name}-{}", volume.name)),
                labels: meta.labels,
                annotations: meta.annotations,
                owner_references: Some(vec![owner_reference(pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        })
    });
    templates.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_called_after_its_pod_and_belongs_to_it() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "web", "uid": "u" }, "spec": { "containers": [],
            "volumes": [{ "name": "plain", "emptyDir": {} },
                { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "metadata": { "labels": { "a": "b" } }, "spec": {} } } }] } }))
        .unwrap();
        let claims = claims(&pod);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].metadata.name.as_deref(), Some("web-scratch"));
        assert_eq!(
            claims[0].metadata.owner_references.as_ref().unwrap()[0].uid,
            "u"
        );
    }
}
