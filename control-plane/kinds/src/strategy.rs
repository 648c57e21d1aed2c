//! How each kind reacts to writes: what a client may set, when `generation` moves, what a delete does.
//!
//! Upstream spreads this over a `strategy.go` per kind; the parts that differ are few, so here they
//! are a table. A kind without a row follows [`Strategy::PLAIN`].

use serde_json::{Map, Value};

use crate::resources::Resource;
use crate::{qos, service_type, unserved};

/// When `metadata.generation` moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Never,
    /// It is 1 from creation on.
    One,
    /// It moves when anything outside metadata and status changes.
    Spec,
    /// It moves when anything outside metadata changes, the status included (custom resources without
    /// the status subresource).
    Body,
    /// As `Spec`, but a new object has none (CSIDriver).
    SpecAfterCreate,
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
    ("storage.k8s.io", "CSIDriver", VERSIONED.generation(Generation::SpecAfterCreate).returns_object()),
    ("storage.k8s.io", "CSINode", VERSIONED.returns_object()),
    ("storage.k8s.io", "CSIStorageCapacity", VERSIONED),
    ("storage.k8s.io", "VolumeAttachment", VERSIONED.returns_object()),
    ("storage.k8s.io", "VolumeAttributesClass", P.returns_object()),
    ("storagemigration.k8s.io", "StorageVersionMigration", SPEC.needs_version()),
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
    ("apiregistration.k8s.io", "APIService", VERSIONED),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", SPEC),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", SPEC),
    ("resource.k8s.io", "ResourceSlice", SPEC.returns_object()),
    ("resource.k8s.io", "DeviceClass", SPEC.returns_object()),
    ("resource.k8s.io", "ResourceClaim", P.returns_object()),
    ("resource.k8s.io", "ResourceClaimTemplate", P.returns_object()),
];

/// How this resource's kind reacts to writes.
pub fn of(resource: &Resource) -> Strategy {
    if resource.ty.defined().is_some() {
        return match resource.subresource("status") {
            Some(_) => SPEC.needs_version(),
            None => VERSIONED.generation(Generation::Body),
        };
    }
    TABLE
        .iter()
        .find(|(group, kind, _)| *group == resource.gv.group && *kind == resource.kind)
        .map_or(Strategy::PLAIN, |(_, _, strategy)| *strategy)
}

/// Makes a new object the server's own: clears what clients may not set and fills what the kind
/// decides at creation. The caller brings the result back into normal form.
pub fn prepare_create(resource: &Resource, object: &mut Value) {
    let strategy = of(resource);
    unserved::drop_fields(resource, object, None);
    if resource.subresource("status").is_some() && !strategy.status_on_create {
        set_status(resource, object, None);
    }
    match (resource.gv.group, resource.kind) {
        ("", "Pod") => {
            object["status"] = serde_json::json!({
                "phase": "Pending",
                "qosClass": qos::qos_class(object),
            });
            if object["spec"]["schedulingGates"]
                .as_array()
                .is_some_and(|gates| !gates.is_empty())
            {
                object["status"]["conditions"] = serde_json::json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "lastTransitionTime": object["metadata"]["creationTimestamp"],
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }]);
            }
        }
        ("", "Namespace") => prepare_namespace(object),
        ("", "PersistentVolume") => {
            let now = object["metadata"]["creationTimestamp"].clone();
            object["status"] =
                serde_json::json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }
        ("", "PersistentVolumeClaim") => object["status"] = serde_json::json!({"phase": "Pending"}),
        ("batch", "Job") => prepare_job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            remember_storage_version(object);
        }
        ("apps", "DaemonSet") => {
            object["metadata"]["annotations"][TEMPLATE_GENERATION] = "1".into()
        }
        _ => {}
    }
    if !matches!(
        strategy.generation,
        Generation::Never | Generation::SpecAfterCreate
    ) {
        object["metadata"]["generation"] = 1.into();
    }
}

/// Carries over what an update may not change and moves the generation where the kind says so.
pub fn prepare_update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    restrict(resource, subresource, new, old);
    if subresource.is_empty() {
        unserved::drop_fields(resource, new, Some(old));
        if is(resource, "", "Service") {
            service_type::drop_dependent_fields(new, old);
        }
    }
    if is(resource, "apiextensions.k8s.io", "CustomResourceDefinition") && subresource.is_empty() {
        remember_storage_version(new);
    }
    if is(resource, "", "Namespace") && subresource != "finalize" {
        // The namespace controller empties these through /finalize and nobody else may.
        new["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
    }
    let moves = !matches!(subresource, "status" | "approval" | "binding" | "finalize");
    let moved = moves && generation_moves(of(resource).generation, new, old);
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + i64::from(moved);
    if let Some(metadata) = new["metadata"].as_object_mut() {
        if generation > 0 {
            metadata.insert("generation".into(), generation.into());
        } else {
            metadata.remove("generation");
        }
    }
    if is(resource, "apps", "DaemonSet") {
        carry_template_generation(new, old);
    }
}

// What each endpoint may change; the rest of the object stays as it is.
fn restrict(resource: &Resource, subresource: &str, new: &mut Value, old: &Value) {
    match subresource {
        "status" => keep_all_but_status(resource, new, old),
        "approval" => {
            let conditions = new["status"]["conditions"].take();
            *new = with_metadata_of(old, new);
            put(&mut new["status"], "conditions", conditions);
        }
        "ephemeralcontainers" => {
            let containers = new["spec"]["ephemeralContainers"].take();
            *new = with_metadata_of(old, new);
            put(&mut new["spec"], "ephemeralContainers", containers);
        }
        "resize" => keep_all_but_resources(new, old),
        "binding" => {}
        // The request is what was signed for; only conditions and certificate change, elsewhere.
        _ if is(resource, "certificates.k8s.io", "CertificateSigningRequest") => {
            *new = with_metadata_of(old, new);
        }
        "scale" if resource.ty.defined().is_some() => {}
        _ if resource.subresource("status").is_some() => {
            set_status(resource, new, old.get("status").cloned());
        }
        _ => {}
    }
}

// A built-in object always has a status, if only an empty one; a custom one has what it was given.
fn set_status(resource: &Resource, object: &mut Value, status: Option<Value>) {
    let status = match (status, resource.ty.defined()) {
        (Some(status), _) => status,
        (None, Some(_)) => Value::Null,
        (None, None) => Value::Object(Map::new()),
    };
    put(object, "status", status);
}

fn is(resource: &Resource, group: &str, kind: &str) -> bool {
    resource.gv.group == group && resource.kind == kind
}

fn with_metadata_of(old: &Value, new: &Value) -> Value {
    let mut kept = old.clone();
    kept["metadata"] = new["metadata"].clone();
    kept
}

fn put(object: &mut Value, field: &str, value: Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    if value.is_null() {
        object.remove(field);
    } else {
        object.insert(field.into(), value);
    }
}

// pods/resize may change what containers ask for and nothing else.
fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let mut kept = with_metadata_of(old, new);
    for list in ["containers", "initContainers"] {
        for container in kept["spec"][list].as_array_mut().into_iter().flatten() {
            let asked = new["spec"][list].as_array().into_iter().flatten();
            let Some(asked) = asked.into_iter().find(|c| c["name"] == container["name"]) else {
                continue;
            };
            for field in ["resources", "resizePolicy"] {
                put(container, field, asked[field].clone());
            }
        }
    }
    put(
        &mut kept["spec"],
        "resources",
        new["spec"]["resources"].clone(),
    );
    *new = kept;
}

// On /status the old spec stays; metadata may change, with the exceptions upstream makes.
fn keep_all_but_status(resource: &Resource, new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let mut kept = with_metadata_of(old, new);
    match (resource.gv.group, resource.kind) {
        ("apps", "Deployment") => keep(&mut kept, old, "labels"),
        // Its finalizer is dropped through /status.
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {}
        ("", "Pod") => {
            keep(&mut kept, old, "ownerReferences");
            keep(&mut kept, old, "deletionTimestamp");
        }
        _ if resets_metadata_on_status(resource) => {
            let entries = kept["metadata"]
                .get("managedFields")
                .cloned()
                .unwrap_or_default();
            kept["metadata"] = old["metadata"].clone();
            put(&mut kept["metadata"], "managedFields", entries);
        }
        _ => {}
    }
    if let (Some(status), Some(object)) = (status, kept.as_object_mut()) {
        object.insert("status".into(), status);
    }
    if is(resource, "", "Pod") && kept["status"].get("qosClass").is_none() {
        put(
            &mut kept["status"],
            "qosClass",
            old["status"]["qosClass"].clone(),
        );
    }
    *new = kept;
}

/// Kinds whose /status takes nothing of the metadata a client sends.
pub fn resets_metadata_on_status(resource: &Resource) -> bool {
    const KINDS: [&str; 8] = [
        "ServiceCIDR",
        "VolumeAttachment",
        "ValidatingAdmissionPolicy",
        "FlowSchema",
        "PriorityLevelConfiguration",
        "APIService",
        "ResourceClaim",
        "CustomResourceDefinition",
    ];
    resource.ty.defined().is_some() || KINDS.contains(&resource.kind)
}

/// The annotation through which apps/v1 shows a field that the version no longer has.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Brings out what upstream's internal form has and a request need not name: whoever writes a whole
/// DaemonSet owns the annotation, too.
pub fn show_hidden_fields(resource: &Resource, object: &mut Value) {
    if !is(resource, "apps", "DaemonSet") {
        return;
    }
    let annotations = &mut object["metadata"]["annotations"];
    if annotations.get(TEMPLATE_GENERATION).is_none() {
        annotations[TEMPLATE_GENERATION] = "0".into();
    }
}

fn carry_template_generation(new: &mut Value, old: &Value) {
    let before = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
    let before: i64 = before.and_then(|text| text.parse().ok()).unwrap_or(0);
    let moved = new["spec"]["template"] != old["spec"]["template"];
    let text = (before + i64::from(moved)).to_string();
    new["metadata"]["annotations"][TEMPLATE_GENERATION] = text.into();
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
        Generation::Spec | Generation::SpecAfterCreate => body_differs(new, old),
        Generation::Body => body_differs(new, old) || new.get("status") != old.get("status"),
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

// A version that objects may have been stored in stays known until somebody has migrated them.
fn remember_storage_version(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array();
    let stored = versions
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true);
    let stored: Vec<Value> = stored.map(|v| v["name"].clone()).collect();
    let known = &mut definition["status"]["storedVersions"];
    let mut all = known.as_array().cloned().unwrap_or_default();
    all.extend(
        stored
            .into_iter()
            .filter(|s| !known.as_array().is_some_and(|k| k.contains(s))),
    );
    *known = all.into();
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
    if object["metadata"]
        .get("labels")
        .is_none_or(|labels| labels.as_object().is_none_or(Map::is_empty))
    {
        object["metadata"]["labels"] = object["spec"]["template"]["metadata"]["labels"].clone();
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
    fn a_gated_pod_says_since_when_it_waits() {
        let pods = find("", "v1", "pods").expect("exists");
        let mut object = json!({"metadata": {"creationTimestamp": "2024-01-02T03:04:05Z"},
            "spec": {"schedulingGates": [{"name": "a"}]}});
        prepare_create(pods, &mut object);
        let condition = &object["status"]["conditions"][0];
        assert_eq!(condition["reason"], "SchedulingGated");
        assert_eq!(condition["lastTransitionTime"], "2024-01-02T03:04:05Z");
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

    #[test]
    fn an_approval_changes_conditions_and_nothing_else() {
        let requests =
            find("certificates.k8s.io", "v1", "certificatesigningrequests").expect("exists");
        let old = json!({"metadata": {"name": "a"}, "spec": {"request": "x"}, "status": {"certificate": "c"}});
        let mut new = json!({"metadata": {"name": "a"}, "spec": {"request": "y"},
            "status": {"conditions": [{"type": "Approved"}], "certificate": "d"}});
        prepare_update(requests, "approval", &mut new, &old);
        assert_eq!(new["spec"]["request"], "x");
        assert_eq!(
            new["status"],
            json!({"certificate": "c", "conditions": [{"type": "Approved"}]})
        );
    }

    #[test]
    fn a_resize_changes_resources_and_the_generation() {
        let pods = find("", "v1", "pods").expect("exists");
        let old = json!({"metadata": {"generation": 1},
            "spec": {"containers": [{"name": "a", "image": "i", "resources": {}}]}, "status": {"phase": "Running"}});
        let mut new = json!({"metadata": {"generation": 1}, "spec": {"containers":
            [{"name": "a", "image": "other", "resources": {"requests": {"cpu": "1"}}}]}, "status": {}});
        prepare_update(pods, "resize", &mut new, &old);
        assert_eq!(new["spec"]["containers"][0]["image"], "i");
        assert_eq!(
            new["spec"]["containers"][0]["resources"]["requests"]["cpu"],
            "1"
        );
        assert_eq!(new["metadata"]["generation"], 2);
        assert_eq!(new["status"]["phase"], "Running");
    }

    #[test]
    fn a_binding_sets_the_node_without_moving_the_generation() {
        let pods = find("", "v1", "pods").expect("exists");
        let old = json!({"metadata": {"generation": 1}, "spec": {}, "status": {}});
        let mut new = json!({"metadata": {"generation": 1}, "spec": {"nodeName": "n"},
            "status": {"conditions": [{"type": "PodScheduled"}]}});
        prepare_update(pods, "binding", &mut new, &old);
        assert_eq!(new["metadata"]["generation"], 1);
        assert_eq!(new["status"]["conditions"][0]["type"], "PodScheduled");
    }
}
