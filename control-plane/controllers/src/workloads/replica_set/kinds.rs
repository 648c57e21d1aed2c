//! The two kinds that keep a number of pods, seen as one.

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition,
    ReplicationControllerStatus,
};
use kube_kit::selector::LabelSelector as Selector;
use serde_json::json;

use client_runtime::Object;

use super::super::ownership;

/// A kind that keeps a number of pods.
pub(super) trait ReplicaKind: Object + Clone + Send + Sync + 'static {
    const KIND: &'static str;
    /// Upstream's name of the service account, and of the source of events.
    const ACCOUNT: &'static str;

    fn replicas(&self) -> i32;
    fn min_ready_seconds(&self) -> i32;
    fn selector(&self) -> Selector;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn status(&self) -> ReplicaSetStatus;
    fn with_status(&self, status: ReplicaSetStatus) -> Self;

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn is_deleted(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }
}

impl ReplicaKind for ReplicaSet {
    const KIND: &'static str = "ReplicaSet";
    const ACCOUNT: &'static str = "replicaset-controller";

    fn replicas(&self) -> i32 {
        self.spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or(0)
    }

    fn selector(&self) -> Selector {
        ownership::selector(self.spec.as_ref().map(|spec| &spec.selector))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        ReplicaSet {
            status: Some(status),
            ..self.clone()
        }
    }
}

impl ReplicaKind for ReplicationController {
    const KIND: &'static str = "ReplicationController";
    const ACCOUNT: &'static str = "replication-controller";

    fn replicas(&self) -> i32 {
        self.spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec
            .as_ref()
            .and_then(|spec| spec.min_ready_seconds)
            .unwrap_or(0)
    }

    fn selector(&self) -> Selector {
        let labels = self.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        match labels.filter(|labels| !labels.is_empty()) {
            Some(labels) => Selector::from_map(&json!(labels)),
            None => Selector::nothing(),
        }
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let condition = |c: ReplicationControllerCondition| ReplicaSetCondition {
            last_transition_time: c.last_transition_time,
            message: c.message,
            reason: c.reason,
            status: c.status,
            type_: c.type_,
        };
        let conditions = status.conditions;
        ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let condition = |c: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: c.last_transition_time,
            message: c.message,
            reason: c.reason,
            status: c.status,
            type_: c.type_,
        };
        let conditions = status.conditions;
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        ReplicationController {
            status: Some(status),
            ..self.clone()
        }
    }
}
