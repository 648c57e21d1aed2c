//! Making and ending pods, and saying so.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use client_runtime::{Actor, Object, Recorder, Severity, SyncError, is_namespace_ending};

use super::ownership::owner_reference;
use super::pod_view::PodView;

/// Who makes pods: the requests, and the events about their owner.
#[derive(Clone)]
pub(crate) struct PodControl {
    pub(crate) actor: Actor,
    pub(crate) recorder: Recorder,
}

impl PodControl {
    /// Creates a pod for its owner; a namespace that ends is no reason for an event.
    pub(crate) async fn create<K: Object>(&self, owner: &K, pod: &Pod) -> Result<Pod, SyncError> {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        match self.actor.create(namespace, pod).await {
            Ok(made) => {
                let name = made.metadata.name.as_deref().unwrap_or_default();
                let text = format!("Created pod: {name}");
                self.recorder
                    .about(owner, Severity::Normal, "SuccessfulCreate", text);
                Ok(made)
            }
            Err(error) if is_namespace_ending(&error) => Err(error),
            Err(error) => {
                let text = format!("Error creating: {}", reason(&error));
                self.recorder
                    .about(owner, Severity::Warning, "FailedCreate", text);
                Err(error)
            }
        }
    }

    /// Deletes a pod of an owner.
    pub(crate) async fn delete<K: Object>(
        &self,
        owner: &K,
        pod: &PodView,
    ) -> Result<(), SyncError> {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        let deleted = self
            .actor
            .delete::<Pod>(namespace, &pod.name, Some(&pod.uid));
        match deleted.await {
            Ok(()) => {
                let text = format!("Deleted pod: {}", pod.name);
                self.recorder
                    .about(owner, Severity::Normal, "SuccessfulDelete", text);
                Ok(())
            }
            Err(error) => {
                let text = format!("Error deleting: {}", reason(&error));
                self.recorder
                    .about(owner, Severity::Warning, "FailedDelete", text);
                Err(error)
            }
        }
    }
}

/// A pod as its owner's template says (upstream's `GetPodFromTemplate`).
pub(crate) fn pod_from_template<K: Object>(owner: &K, template: &PodTemplateSpec) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.meta().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// What an error says, in the API server's own words where it spoke.
pub(crate) fn reason(error: &SyncError) -> String {
    match error {
        SyncError::Api(kube::Error::Api(status)) => status.message.clone(),
        other => other.to_string(),
    }
}
