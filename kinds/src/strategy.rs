//! How each kind reacts to writes: what a client may set, when `generation` moves, what a delete does.
//!
//! Upstream spreads this over a `strategy.go` per kind; the parts that differ are few, so here they
//! are a table. A kind without a row follows [`Strategy::PLAIN`].

use serde_json::{Map, Value};

use crate::qos;
use crate::resources::Resource;

/// When `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Never,
    /// It is 1 from creation on.
    One,
    /// It moves when anything outside metadata and status changes.
    Spec,
    /// As `Spec`, and when annotations change (Deployment).
    SpecOrAnnotations,
    /// As `Spec`, and when labels change (EndpointSlice).
    SpecOrLabels,
}

/// What a delete without an explicit propagation policy does with dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// The garbage collector deletes them in the background.
    Background,
    /// They stay (batch/v1 Job and v1 ReplicationController).
    Orphan,
    /// The kind takes no part in garbage collection (Event).
    Unsupported,
}

/// One kind's reactions.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    /// When `generation` moves.
    pub generation: Generation,
    /// PUT on a missing object creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites whatever is there.
    pub unconditional_update: bool,
    /// A finished delete answers with the object instead of a Status.
    pub delete_returns_object: bool,
    /// The default for dependents.
    pub dependents: Dependents,
    /// A client may set the status when it creates the object (Node: the kubelet registers so).
    pub status_on_create: bool,
}

impl Strategy {
    /// What most kinds do.
    pub const PLAIN: Strategy = Strategy {
        generation: Generation::Never,
        create_on_update: false,
        unconditional_update: true,
        delete_returns_object: false,
        dependents: Dependents::Background,
        status_on_create: false,
    };

    const fn generation(mut self, generation: Generation) -> Self {
        self.generation = generation;
        self
    }

    const fn create_on_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    const fn needs_version(mut self) -> Self {
        self.unconditional_update = false;
        self
    }

    const fn returns_object(mut self) -> Self {
        self.delete_returns_object = true;
        self
    }

    const fn dependents(mut self, dependents: Dependents) -> Self {
        self.dependents = dependents;
        self
    }

    const fn status_on_create(mut self) -> Self {
        self.status_on_create = true;
        self
    }
}

const P: Strategy = Strategy::PLAIN;
const SPEC: Strategy = P.generation(Generation::Spec);
const VERSIONED: Strategy = P.needs_version();

#[rustfmt::skip]
const TABLE: &[(&str, &str, Strategy)] = &[
    ("", "Pod", SPEC.returns_object()),
    ("", "PodTemplate", SPEC.returns_object()),
    ("", "ReplicationController", SPEC.dependents(Dependents::Orphan)),
    ("", "PersistentVolume", P.returns_object()),
    ("", "PersistentVolumeClaim", P.returns_object()),
    ("", "Namespace", P.returns_object()),
    ("", "Service", P.returns_object().create_on_update()),
    ("", "ServiceAccount", P.returns_object()),
    ("", "ResourceQuota", P.returns_object()),
    ("", "Node", P.status_on_create()),
    ("", "Endpoints", P.create_on_update()),
    ("", "LimitRange", P.create_on_update()),
    ("", "Event", P.create_on_update().dependents(Dependents::Unsupported)),
    ("events.k8s.io", "Event", P.create_on_update().dependents(Dependents::Unsupported)),
    ("apps", "Deployment", P.generation(Generation::SpecOrAnnotations)),
    ("apps", "ReplicaSet", SPEC),
    ("apps", "StatefulSet", SPEC),
    ("apps", "DaemonSet", SPEC),
    ("batch", "Job", SPEC.dependents(Dependents::Orphan)),
    ("batch", "CronJob", SPEC),
    ("policy", "PodDisruptionBudget", SPEC.needs_version()),
    ("networking.k8s.io", "Ingress", SPEC),
    ("networking.k8s.io", "IngressClass", SPEC),
    ("networking.k8s.io", "NetworkPolicy", SPEC),
    ("discovery.k8s.io", "EndpointSlice", P.generation(Generation::SpecOrLabels)),
    ("coordination.k8s.io", "Lease", VERSIONED.create_on_update()),
    ("node.k8s.io", "RuntimeClass", VERSIONED.create_on_update()),
    ("scheduling.k8s.io", "PriorityClass", P.generation(Generation::One)),
    ("storage.k8s.io", "StorageClass", P.returns_object()),
    ("storage.k8s.io", "CSIDriver", SPEC.needs_version().returns_object()),
    ("storage.k8s.io", "CSINode", VERSIONED.returns_object()),
    ("storage.k8s.io", "CSIStorageCapacity", VERSIONED),
    ("storage.k8s.io", "VolumeAttachment", VERSIONED.returns_object()),
    ("storage.k8s.io", "VolumeAttributesClass", P.returns_object()),
    ("rbac.authorization.k8s.io", "Role", P.create_on_update()),
    ("rbac.authorization.k8s.io", "RoleBinding", P.create_on_update()),
    ("rbac.authorization.k8s.io", "ClusterRole", P.create_on_update()),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", P.create_on_update()),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", SPEC.needs_version()),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", SPEC.needs_version()),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", SPEC.needs_version()),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", SPEC.needs_version()),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", SPEC.needs_version()),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", SPEC.needs_version()),
    ("apiextensions.k8s.io", "CustomResourceDefinition", SPEC.needs_version()),
    ("apiregistration.k8s.io", "APIService", SPEC.needs_version()),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", SPEC),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", SPEC),
    ("resource.k8s.io", "ResourceSlice", SPEC.returns_object()),
    ("resource.k8s.io", "DeviceClass", SPEC.returns_object()),
    ("resource.k8s.io", "ResourceClaim", P.returns_object()),
    ("resource.k8s.io", "ResourceClaimTemplate", P.returns_object()),
];

/// How this resource's kind reacts to writes.
pub fn of(resource: &Resource) -> Strategy {
    TABLE
        .iter()
        .find(|(group, kind, _)| *group == resource.gv.group && *kind == resource.kind)
        .map_or(Strategy::PLAIN, |(_, _, strategy)| *strategy)
}

/// Makes a new object the server's own: clears what clients may not set and fills what the kind
/// decides at creation. The caller brings the result back into normal form.
pub fn prepare_create(resource: &Resource, object: &mut Value) {
    let strategy = of(resource);
    if resource.subresource("status").is_some() && !strategy.status_on_create {
        object["status"] = Value::Object(Map::new());
    }
    match (resource.gv.group, resource.kind) {
        ("", "Pod") => {
            object["status"] = serde_json::json!({
                "phase": "Pending",
                "qosClass": qos::qos_class(object),
            });
        }
        ("", "Namespace") => prepare_namespace(object),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => {
            object["status"] = serde_json::json!({"phase": "Pending"});
        }
        ("batch", "Job") => prepare_job(object),
        _ => {}
    }
    if strategy.generation != Generation::Never {
        object["metadata"]["generation"] = 1.into();
    } else if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
}

/// Carries over what an update may not change and moves the generation where the kind says so.
pub fn prepare_update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    match subresource {
        "status" => keep_all_but_status(resource, new, old),
        _ if resource.subresource("status").is_some() => {
            new["status"] = old
                .get("status")
                .cloned()
                .unwrap_or_else(|| Value::Object(Map::new()));
        }
        _ => {}
    }
    if (resource.gv.group, resource.kind) == ("", "Namespace") && subresource != "finalize" {
        // The namespace controller empties these through /finalize and nobody else may.
        new["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
    }
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    let moved = subresource != "status" && generation_moves(of(resource).generation, new, old);
    let generation = generation + i64::from(moved);
    if let Some(metadata) = new["metadata"].as_object_mut() {
        if generation > 0 {
            metadata.insert("generation".into(), generation.into());
        } else {
            metadata.remove("generation");
        }
    }
    if moved && resource.kind == "DaemonSet" && new["spec"]["template"] != old["spec"]["template"] {
        let template = old["spec"]["templateGeneration"].as_i64().unwrap_or(0) + 1;
        let annotation = template.to_string();
        if let Some(annotations) = new["metadata"]["annotations"].as_object_mut()
            && annotations.contains_key("deprecated.daemonset.template.generation")
        {
            annotations.insert(
                "deprecated.daemonset.template.generation".into(),
                annotation.into(),
            );
        }
    }
}

// On /status the old spec stays; metadata may change, with the exceptions upstream makes.
fn keep_all_but_status(resource: &Resource, new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let mut kept = old.clone();
    kept["metadata"] = new["metadata"].clone();
    match (resource.gv.group, resource.kind) {
        ("apps", "Deployment") => keep(&mut kept, old, "labels"),
        ("", "Pod") => {
            keep(&mut kept, old, "ownerReferences");
            keep(&mut kept, old, "deletionTimestamp");
        }
        _ => {}
    }
    if let (Some(status), Some(object)) = (status, kept.as_object_mut()) {
        object.insert("status".into(), status);
    }
    *new = kept;
}

fn keep(object: &mut Value, old: &Value, field: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

fn generation_moves(rule: Generation, new: &Value, old: &Value) -> bool {
    let changed = |field: &str| new["metadata"].get(field) != old["metadata"].get(field);
    match rule {
        Generation::Never | Generation::One => false,
        Generation::Spec => body_differs(new, old),
        Generation::SpecOrAnnotations => body_differs(new, old) || changed("annotations"),
        Generation::SpecOrLabels => body_differs(new, old) || changed("labels"),
    }
}

fn body_differs(new: &Value, old: &Value) -> bool {
    const OUTSIDE: [&str; 4] = ["metadata", "status", "kind", "apiVersion"];
    let body = |object: &Value| -> Map<String, Value> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| !OUTSIDE.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    body(new) != body(old)
}

fn prepare_namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    let has_own = object["spec"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|f| f == "kubernetes"));
    if !has_own {
        match object["spec"]["finalizers"].as_array_mut() {
            Some(list) => list.push("kubernetes".into()),
            None => object["spec"]["finalizers"] = serde_json::json!(["kubernetes"]),
        }
    }
    object["status"] = serde_json::json!({"phase": "Active"});
}

// A job without a manual selector selects its pods by its own uid (upstream's generateSelector).
fn prepare_job(object: &mut Value) {
    if object["spec"]["manualSelector"].as_bool() == Some(true) {
        return;
    }
    let uid = object["metadata"]["uid"].clone();
    let name = object["metadata"]["name"].clone();
    let labels = &mut object["spec"]["template"]["metadata"]["labels"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[key] = value.clone();
    }
    object["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use serde_json::json;

    #[test]
    fn every_row_names_a_served_kind() {
        for (group, kind, _) in TABLE {
            let found = crate::resources::all()
                .iter()
                .any(|r| r.gv.group == *group && r.kind == *kind);
            assert!(found, "{group}/{kind}");
        }
    }

    #[test]
    fn status_updates_keep_the_spec_and_the_generation() {
        let deployments = find("apps", "v1", "deployments").expect("exists");
        let old = json!({"metadata": {"name": "a", "generation": 3, "labels": {"x": "1"}},
            "spec": {"replicas": 1}, "status": {}});
        let mut new = json!({"metadata": {"name": "a", "labels": {"x": "2"}},
            "spec": {"replicas": 9}, "status": {"replicas": 1}});
        prepare_update(deployments, "status", &mut new, &old);
        assert_eq!(new["spec"]["replicas"], 1);
        assert_eq!(new["status"]["replicas"], 1);
        assert_eq!(new["metadata"]["generation"], 3);
        assert_eq!(new["metadata"]["labels"]["x"], "1");
    }

    #[test]
    fn spec_updates_keep_the_status_and_move_the_generation() {
        let sets = find("apps", "v1", "replicasets").expect("exists");
        let old = json!({"metadata": {"generation": 3}, "spec": {"replicas": 1}, "status": {"replicas": 1}});
        let mut new = json!({"metadata": {}, "spec": {"replicas": 2}, "status": {"replicas": 7}});
        prepare_update(sets, "", &mut new, &old);
        assert_eq!(new["metadata"]["generation"], 4);
        assert_eq!(new["status"]["replicas"], 1);
        let mut same = old.clone();
        prepare_update(sets, "", &mut same, &old);
        assert_eq!(same["metadata"]["generation"], 3);
    }

    #[test]
    fn a_namespace_gets_its_label_finalizer_and_phase() {
        let namespaces = find("", "v1", "namespaces").expect("exists");
        let mut object = json!({"metadata": {"name": "a"}, "spec": {}, "status": {}});
        prepare_create(namespaces, &mut object);
        assert_eq!(
            object["metadata"]["labels"]["kubernetes.io/metadata.name"],
            "a"
        );
        assert_eq!(object["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(object["status"]["phase"], "Active");
    }
}
