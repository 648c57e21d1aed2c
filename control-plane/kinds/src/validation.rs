//! Validation: what is wrong with an object before it is stored.
//!
//! [`create`] and [`update`] check the metadata every kind shares and then the rules of the kind,
//! which stand in one [`ROWS`] line each. All problems are reported at once, with the paths, reasons
//! and words of upstream's `pkg/apis/*/validation`.

pub mod access;
#[cfg(test)]
mod any_object;
#[cfg(test)]
mod cases;
pub mod cluster;
mod difference;
pub mod extensions;
mod internal;
pub mod metadata;
pub mod names;
pub mod network;
mod pem;
mod pods;
pub mod reading;
pub mod rules;
pub mod storage;
mod values;
pub mod workloads;

use access::{certificates, flowcontrol, rbac, reviews};
use cluster::{config, devices, events, lease, namespace, node, quota, scheduling};
use extensions::{admission, extension, webhooks};
use network::{discovery, ingress, networking, service};
use pods::pod;
use storage::{classes, migrations, volumes};
use workloads::{autoscaling, cron_job, job, policy, workload, workload_stateful};

use serde_json::Value;

use crate::field::Errors;
use crate::resources::Resource;

/// Checks a new object.
type Create = fn(&Value, &mut Errors);

/// Checks `(new, old, subresource)`; the subresource is empty for the resource itself.
type Update = fn(&Value, &Value, &str, &mut Errors);

/// The rules of one kind: group/version, kind, what a new object must obey, what a change must.
type Row = (&'static str, &'static str, Create, Update);

// One line per kind. Kinds without a line obey the metadata rules only.
const ROWS: &[Row] = &[
    ("v1", "Pod", pod::create, pod::update),
    (
        "v1",
        "PodTemplate",
        pod::create_template,
        pod::update_template,
    ),
    (
        "v1",
        "ReplicationController",
        workload::replication_controller,
        workload::replication_controller_update,
    ),
    (
        "apps/v1",
        "DaemonSet",
        workload::daemon_set,
        workload::daemon_set_update,
    ),
    (
        "apps/v1",
        "Deployment",
        workload::deployment,
        workload::deployment_update,
    ),
    (
        "apps/v1",
        "ReplicaSet",
        workload::replica_set,
        workload::replica_set_update,
    ),
    (
        "apps/v1",
        "StatefulSet",
        workload_stateful::create,
        workload_stateful::update,
    ),
    ("batch/v1", "CronJob", cron_job::create, cron_job::update),
    ("batch/v1", "Job", job::create, job::update),
    (
        "v1",
        "ConfigMap",
        config::config_map,
        config::config_map_update,
    ),
    (
        "v1",
        "Endpoints",
        discovery::endpoints,
        discovery::endpoints_update,
    ),
    ("v1", "Event", events::core, events::core_update),
    ("v1", "Namespace", namespace::create, namespace::update),
    ("v1", "Node", node::create, node::update),
    ("v1", "Secret", config::secret, config::secret_update),
    ("v1", "Service", service::create, service::update),
    (
        "coordination.k8s.io/v1",
        "Lease",
        lease::create,
        lease::update,
    ),
    (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        discovery::slice,
        discovery::slice_update,
    ),
    (
        "events.k8s.io/v1",
        "Event",
        events::new_style,
        events::new_style_update,
    ),
    (
        "networking.k8s.io/v1",
        "IPAddress",
        networking::ip_address,
        networking::ip_address_update,
    ),
    (
        "networking.k8s.io/v1",
        "Ingress",
        ingress::create,
        ingress::update,
    ),
    (
        "networking.k8s.io/v1",
        "IngressClass",
        ingress::class,
        ingress::class_update,
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        networking::network_policy,
        networking::network_policy_update,
    ),
    (
        "networking.k8s.io/v1",
        "ServiceCIDR",
        networking::service_cidr,
        networking::service_cidr_update,
    ),
    (
        "policy/v1",
        "PodDisruptionBudget",
        policy::budget,
        policy::budget_update,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        rbac::cluster_role,
        rbac::cluster_role_update,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        rbac::cluster_role_binding,
        rbac::cluster_role_binding_update,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "Role",
        rbac::role,
        rbac::role_update,
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        rbac::role_binding,
        rbac::role_binding_update,
    ),
    (
        "v1",
        "PersistentVolume",
        volumes::volume,
        volumes::volume_update,
    ),
    (
        "v1",
        "PersistentVolumeClaim",
        volumes::claim,
        volumes::claim_update,
    ),
    (
        "storage.k8s.io/v1",
        "CSIDriver",
        classes::csi_driver,
        classes::csi_driver_update,
    ),
    (
        "storage.k8s.io/v1",
        "CSINode",
        classes::csi_node,
        classes::csi_node_update,
    ),
    (
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        classes::capacity,
        classes::capacity_update,
    ),
    (
        "storage.k8s.io/v1",
        "StorageClass",
        classes::class,
        classes::class_update,
    ),
    (
        "storage.k8s.io/v1",
        "VolumeAttachment",
        classes::attachment,
        classes::attachment_update,
    ),
    (
        "storage.k8s.io/v1",
        "VolumeAttributesClass",
        classes::attributes_class,
        classes::attributes_class_update,
    ),
    (
        "storagemigration.k8s.io/v1beta1",
        "StorageVersionMigration",
        migrations::create,
        migrations::update,
    ),
    ("v1", "Binding", reviews::binding, never),
    (
        "v1",
        "LimitRange",
        quota::limit_range,
        quota::limit_range_update,
    ),
    ("v1", "ResourceQuota", quota::quota, quota::quota_update),
    (
        "apps/v1",
        "ControllerRevision",
        scheduling::revision,
        scheduling::revision_update,
    ),
    (
        "authorization.k8s.io/v1",
        "LocalSubjectAccessReview",
        reviews::local_subject_access_review,
        never,
    ),
    (
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
        reviews::self_subject_access_review,
        never,
    ),
    (
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        reviews::subject_access_review,
        never,
    ),
    (
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        autoscaling::create,
        autoscaling::update,
    ),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        autoscaling::create,
        autoscaling::update,
    ),
    (
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        certificates::create,
        certificates::update,
    ),
    (
        "node.k8s.io/v1",
        "RuntimeClass",
        scheduling::runtime_class,
        scheduling::runtime_class_update,
    ),
    (
        "scheduling.k8s.io/v1",
        "PriorityClass",
        scheduling::priority_class,
        scheduling::priority_class_update,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
        admission::mutating_policy,
        admission::mutating_policy_update,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
        admission::mutating_binding,
        admission::mutating_binding_update,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        webhooks::create,
        webhooks::update,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        admission::validating_policy,
        admission::validating_policy_update,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        admission::validating_binding,
        admission::validating_binding_update,
    ),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        webhooks::create,
        webhooks::update,
    ),
    (
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        extension::definition,
        extension::definition_update,
    ),
    (
        "apiregistration.k8s.io/v1",
        "APIService",
        extension::api_service,
        extension::api_service_update,
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "FlowSchema",
        flowcontrol::flow_schema,
        flowcontrol::flow_schema_update,
    ),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        "PriorityLevelConfiguration",
        flowcontrol::priority_level,
        flowcontrol::priority_level_update,
    ),
    (
        "resource.k8s.io/v1",
        "DeviceClass",
        devices::class,
        devices::class_update,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaim",
        devices::claim,
        devices::claim_update,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        devices::template,
        devices::template_update,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceSlice",
        devices::slice,
        devices::slice_update,
    ),
];

/// What is wrong with a new object.
pub fn create(resource: &Resource, object: &Value) -> Errors {
    let mut errors = Errors::default();
    if !resource.is_virtual {
        metadata::create(resource, object, &mut errors);
    }
    if let Some(definition) = resource.ty.defined() {
        definition.validate(object, &mut errors);
    } else if let Some((_, _, create, _)) = row(resource) {
        create(object, &mut errors);
    }
    errors
}

/// What is wrong with a changed object. `subresource` is empty for the resource itself.
pub fn update(resource: &Resource, new: &Value, old: &Value, subresource: &str) -> Errors {
    let mut errors = Errors::default();
    metadata::update(resource, new, old, &mut errors);
    // Upstream checks the metadata for all kinds and once more for each, and tells both.
    errors.0.extend_from_within(..);
    if let Some(definition) = resource.ty.defined() {
        definition.validate_update(new, old, subresource, &mut errors);
    } else if let Some((_, _, _, update)) = row(resource) {
        update(new, old, subresource, &mut errors);
    }
    errors
}

fn row(resource: &Resource) -> Option<&'static Row> {
    let gv = resource.gv.to_string();
    ROWS.iter()
        .find(|(row_gv, kind, _, _)| *row_gv == gv && *kind == resource.kind)
}

// What is never stored is never changed.
fn never(_new: &Value, _old: &Value, _subresource: &str, _errors: &mut Errors) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    // Kinds that obey the metadata rules only, or no rules at all.
    const WITHOUT_RULES: &[&str] = &[
        "ComponentStatus",
        "SelfSubjectReview",
        "SelfSubjectRulesReview",
        "ServiceAccount",
        "TokenReview",
    ];

    #[test]
    fn every_row_names_a_served_kind() {
        for (gv, kind, _, _) in ROWS {
            let is_it = |r: &Resource| r.gv.to_string() == *gv && r.kind == *kind;
            assert!(resources::all().iter().any(|r| is_it(r)), "{gv} {kind}");
        }
    }

    #[test]
    fn every_other_kind_needs_no_rules() {
        let without: Vec<_> = resources::all()
            .iter()
            .filter(|r| row(r).is_none())
            .map(|r| r.kind)
            .collect();
        assert_eq!(
            without
                .iter()
                .filter(|k| !WITHOUT_RULES.contains(k))
                .collect::<Vec<_>>(),
            Vec::<&&str>::new()
        );
    }
}
