//! The published sentence about every type and field, read out of `k8s-openapi`'s schemas.
//!
//! Those sentences are upstream's and stay upstream's: they pass from that crate into the built
//! documents and never stand in this repository. What that crate leaves out is said here in our
//! own words.

use std::collections::HashMap;

use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, apps::v1 as apps,
    authentication::v1 as authentication, authorization::v1 as authorization,
    autoscaling::v1 as autoscaling_v1, autoscaling::v2 as autoscaling_v2, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
    storagemigration::v1beta1 as storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1 as meta, version};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use schemars::SchemaGenerator;
use serde_json::Value;

/// Names every root type once; what they contain follows by itself.
macro_rules! describe {
    ($generator:expr; $($root:ty),+ $(,)?) => {
        $( let _ = $generator.subschema_for::<$root>(); )+
    };
}

/// What to say about types and fields, by published type name.
pub(crate) struct Descriptions(HashMap<String, TypeDescription>);

#[derive(Default)]
struct TypeDescription {
    own: Option<String>,
    fields: HashMap<String, String>,
}

impl Descriptions {
    /// Collects the descriptions of everything the resources are made of.
    pub(crate) fn collect() -> Descriptions {
        let mut generator = SchemaGenerator::default();
        describe_cluster_kinds(&mut generator);
        describe_workload_kinds(&mut generator);
        describe_shared_kinds(&mut generator);
        let definitions = generator.definitions().iter();
        Descriptions(
            definitions
                .map(|(name, schema)| (name.clone(), read(schema)))
                .collect(),
        )
    }

    /// Whether the type is known; a published type that is not was forgotten in this file.
    pub(crate) fn knows(&self, type_name: &str) -> bool {
        self.0.contains_key(type_name) || item_kind(type_name).is_some()
    }

    /// The sentence about a type.
    pub(crate) fn of_type(&self, type_name: &str) -> Option<String> {
        match item_kind(type_name).filter(|_| !self.0.contains_key(type_name)) {
            Some(kind) => Some(format!("{kind}List is a list of {kind} objects.")),
            None => self.0.get(type_name)?.own.clone(),
        }
    }

    /// The sentence about a field.
    pub(crate) fn of_field(&self, type_name: &str, field: &str) -> Option<String> {
        let described = self
            .0
            .get(type_name)
            .and_then(|t| t.fields.get(field))
            .cloned();
        described.or_else(|| self.of_left_out_field(type_name, field))
    }

    // k8s-openapi has one generic list type and one generic watch event, both without sentences
    // about their fields.
    fn of_left_out_field(&self, type_name: &str, field: &str) -> Option<String> {
        if type_name.ends_with(".WatchEvent") && field == "object" {
            return Some("The object the event is about, or a Status when it is an error.".into());
        }
        let kind = item_kind(type_name).filter(|_| !self.0.contains_key(type_name))?;
        match field {
            "items" => Some(format!("items holds the {kind} objects of the list.")),
            "metadata" => Some(
                "Metadata of the list: the resource version it was read at and, when it is one \
                 page of several, the token of the next page."
                    .into(),
            ),
            _ => self.of_field("io.k8s.api.core.v1.Pod", field),
        }
    }
}

fn item_kind(type_name: &str) -> Option<&str> {
    type_name
        .rsplit('.')
        .next()?
        .strip_suffix("List")
        .filter(|kind| !kind.is_empty())
}

fn read(schema: &Value) -> TypeDescription {
    let text = |schema: &Value| schema["description"].as_str().map(str::to_owned);
    let properties = schema["properties"].as_object();
    let fields = properties.into_iter().flatten();
    TypeDescription {
        own: text(schema),
        fields: fields
            .filter_map(|(name, field)| Some((name.clone(), text(field)?)))
            .collect(),
    }
}

fn describe_cluster_kinds(generator: &mut SchemaGenerator) {
    describe!(generator;
        admissionregistration::MutatingAdmissionPolicy,
        admissionregistration::MutatingAdmissionPolicyBinding,
        admissionregistration::MutatingWebhookConfiguration,
        admissionregistration::ValidatingAdmissionPolicy,
        admissionregistration::ValidatingAdmissionPolicyBinding,
        admissionregistration::ValidatingWebhookConfiguration,
        apiextensions::CustomResourceDefinition,
        apiregistration::APIService,
        authentication::SelfSubjectReview,
        authentication::TokenRequest,
        authentication::TokenReview,
        authorization::LocalSubjectAccessReview,
        authorization::SelfSubjectAccessReview,
        authorization::SelfSubjectRulesReview,
        authorization::SubjectAccessReview,
        certificates::CertificateSigningRequest,
        coordination::Lease,
        flowcontrol::FlowSchema,
        flowcontrol::PriorityLevelConfiguration,
        node::RuntimeClass,
        rbac::ClusterRole,
        rbac::ClusterRoleBinding,
        rbac::Role,
        rbac::RoleBinding,
        scheduling::PriorityClass,
        storage::CSIDriver,
        storage::CSINode,
        storage::CSIStorageCapacity,
        storage::StorageClass,
        storage::VolumeAttachment,
        storage::VolumeAttributesClass,
        storagemigration::StorageVersionMigration,
    );
}

fn describe_workload_kinds(generator: &mut SchemaGenerator) {
    describe!(generator;
        apps::ControllerRevision,
        apps::DaemonSet,
        apps::Deployment,
        apps::ReplicaSet,
        apps::StatefulSet,
        autoscaling_v1::HorizontalPodAutoscaler,
        autoscaling_v1::Scale,
        autoscaling_v2::HorizontalPodAutoscaler,
        batch::CronJob,
        batch::Job,
        core::Binding,
        core::ComponentStatus,
        core::ConfigMap,
        core::Endpoints,
        core::Event,
        core::LimitRange,
        core::Namespace,
        core::Node,
        core::PersistentVolume,
        core::PersistentVolumeClaim,
        core::Pod,
        core::PodTemplate,
        core::ReplicationController,
        core::ResourceQuota,
        core::Secret,
        core::Service,
        core::ServiceAccount,
        discovery::EndpointSlice,
        events::Event,
        networking::Ingress,
        networking::IngressClass,
        networking::IPAddress,
        networking::NetworkPolicy,
        networking::ServiceCIDR,
        policy::Eviction,
        policy::PodDisruptionBudget,
        resource::DeviceClass,
        resource::ResourceClaim,
        resource::ResourceClaimTemplate,
        resource::ResourceSlice,
    );
}

fn describe_shared_kinds(generator: &mut SchemaGenerator) {
    describe!(generator;
        meta::APIGroupList,
        meta::APIResourceList,
        meta::APIVersions,
        meta::DeleteOptions,
        meta::Patch,
        meta::Status,
        meta::WatchEvent<core::Pod>,
        version::Info,
    );
}
