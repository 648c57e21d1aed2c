//! The objects every cluster has from its first second on.

mod policy;
pub(crate) mod trust;

use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::{try_join, try_join_all, try_join3};
use kinds::resources::{self, GroupVersion, Resource};
use objects::managed;
use serde_json::{Value, json};
use store::{Change, Expect};

use crate::api::Api;
use crate::settings::Authentication;
use crate::status::{ApiError, Result};
use crate::writing::flow_schemas::dangling;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Name, value, description.
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "for pods the cluster cannot do without; they may run on any node",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "for pods their node cannot do without; they stay where they are",
    ),
];

/// Creates what is missing and mends what belongs to this server. The objects do not depend on each
/// other, so they are written together and share a commit.
pub(crate) async fn run(
    api: &Api,
    address: SocketAddr,
    authentication: &Authentication,
) -> Result<()> {
    let objects = namespaces()
        .chain(priority_classes())
        .chain([service_range(api), token_tracking(api)])
        .chain(api_services(api))
        .chain(own_service(api, address));
    let basic = objects.map(|(group, plural, object)| ensure(api, group, plural, object));
    try_join3(try_join_all(basic), fairness(api), policy::reconcile(api)).await?;
    api.services.audit(api).await?;
    try_join(
        own_endpoints(api, address),
        trust::publish(api, authentication),
    )
    .await?;
    Ok(())
}

/// Group, plural and object.
type Wanted = (&'static str, &'static str, Value);

fn namespaces() -> impl Iterator<Item = Wanted> {
    NAMESPACES.into_iter().map(|name| {
        let metadata = json!({"name": name, "labels": {"kubernetes.io/metadata.name": name}});
        let spec = json!({"finalizers": ["kubernetes"]});
        (
            "",
            "namespaces",
            json!({"metadata": metadata, "spec": spec, "status": {"phase": "Active"}}),
        )
    })
}

fn priority_classes() -> impl Iterator<Item = Wanted> {
    PRIORITY_CLASSES
        .into_iter()
        .map(|(name, value, description)| {
            let class = json!({"metadata": {"name": name, "generation": 1}, "value": value,
            "description": description, "preemptionPolicy": "PreemptLowerPriority"});
            ("scheduling.k8s.io", "priorityclasses", class)
        })
}

fn service_range(api: &Api) -> Wanted {
    let ready = json!({"type": "Ready", "status": "True", "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": api.clock.seconds()});
    let ranges = api.services.ranges().iter();
    let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
    let range = json!({"metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ranges}, "status": {"conditions": [ready]}});
    ("networking.k8s.io", "servicecidrs", range)
}

/// Since when the use of old service account tokens is noted: the token cleaner's starting point.
fn token_tracking(api: &Api) -> Wanted {
    let now = api.clock.seconds();
    let since = now.split('T').next().unwrap_or_default();
    let metadata = json!({"namespace": "kube-system",
        "name": "kube-apiserver-legacy-service-account-token-tracking"});
    (
        "",
        "configmaps",
        json!({"metadata": metadata, "data": {"since": since}}),
    )
}

/// One local APIService per group and version, as upstream's autoregistration makes them.
fn api_services(api: &Api) -> impl Iterator<Item = Wanted> {
    let mut versions: Vec<GroupVersion> = resources::all().iter().map(|r| r.gv).collect();
    versions.dedup();
    versions.into_iter().zip(0..).map(|(gv, position)| {
        let priority = 18_000_i64 - position * 100;
        let mut spec = json!({"version": gv.version, "groupPriorityMinimum": priority, "versionPriority": 15});
        if !gv.group.is_empty() {
            spec["group"] = gv.group.into();
        }
        let available = json!({"type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": api.clock.seconds()});
        let labels = json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"});
        let name = format!("{}.{}", gv.version, gv.group);
        let object = json!({"metadata": {"name": name, "labels": labels}, "spec": spec,
            "status": {"conditions": [available]}});
        ("apiregistration.k8s.io", "apiservices", object)
    })
}

/// Flow schemas and priority levels; their specs follow upstream's for as long as nobody says otherwise.
async fn fairness(api: &Api) -> Result<()> {
    const GROUP: &str = "flowcontrol.apiserver.k8s.io";
    const AUTOUPDATE: &str = "/metadata/annotations/apf.kubernetes.io~1autoupdate-spec";
    let each = fairness::objects()
        .into_iter()
        .map(async |(plural, mut object)| {
            if plural == "flowschemas" {
                let level = &object["spec"]["priorityLevelConfiguration"]["name"];
                let level = level.as_str().unwrap_or_default();
                let found = dangling(level, true, &api.clock.seconds());
                object["status"] = json!({"conditions": [found]});
            }
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let resource = resource(GROUP, plural)?;
            let collection = api.collection(resource)?;
            let existing = api.fetch(&collection, &collection.key("", name)).await?;
            match existing.map(|e| e.value()) {
                Some(own) if own.pointer(AUTOUPDATE).is_none_or(|v| v != "true") => Ok(()),
                _ => keep(api, GROUP, plural, object, "spec").await,
            }
        });
    try_join_all(each).await?;
    Ok(())
}

/// default/kubernetes: the API server as a service, and its address.
fn own_service(api: &Api, address: SocketAddr) -> impl Iterator<Item = Wanted> {
    let ip = api.services.first_ip();
    let family = match ip {
        Some(std::net::IpAddr::V6(_)) => "IPv6",
        _ => "IPv4",
    };
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": [family], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": address.port()}],
        },
    });
    let address = json!({
        "metadata": {"name": ip, "labels": {"ipaddress.kubernetes.io/ip-family": family,
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": "default", "name": "kubernetes"}},
    });
    [
        ("", "services", service),
        ("networking.k8s.io", "ipaddresses", address),
    ]
    .into_iter()
}

/// The only endpoint of default/kubernetes: this server, wherever it listens now.
async fn own_endpoints(api: &Api, address: SocketAddr) -> Result<()> {
    let ip = address.ip().to_string();
    let port = json!({"name": "https", "port": address.port(), "protocol": "TCP"});
    let endpoints = json!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": ip}], "ports": [port]}],
    });
    let slice = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": [port],
    });
    try_join(
        keep(api, "", "endpoints", endpoints, "subsets"),
        keep(
            api,
            "discovery.k8s.io",
            "endpointslices",
            slice,
            "endpoints",
        ),
    )
    .await?;
    Ok(())
}

fn resource(group: &str, plural: &str) -> Result<&'static Arc<Resource>> {
    resources::find(group, "v1", plural)
        .ok_or_else(|| ApiError::internal(format!("no resource {plural}")))
}

/// Creates an object unless it exists.
async fn ensure(api: &Api, group: &str, plural: &str, object: Value) -> Result<()> {
    let resource = resource(group, plural)?;
    let collection = api.collection(resource)?;
    let part = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let key = collection.key(&part("namespace"), &part("name"));
    if api.store.get(&key).await?.is_some() {
        return Ok(());
    }
    let value = collection.form.encode(&complete(api, resource, object));
    api.store
        .write(&key, Expect::Absent, Change::Put { value, ttl: None })
        .await?;
    Ok(())
}

/// As [`ensure`], and brings one field of an existing object up to date.
async fn keep(api: &Api, group: &str, plural: &str, object: Value, field: &str) -> Result<()> {
    ensure(api, group, plural, object.clone()).await?;
    let resource = resource(group, plural)?;
    let part = |field: &str| {
        object["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let stored = api
        .must_fetch(resource, &part("namespace"), &part("name"))
        .await?;
    let mut present = stored.value();
    let wanted = complete(api, resource, object.clone());
    if present[field] == wanted[field] {
        return Ok(());
    }
    for name in [field, "ports"] {
        if wanted.get(name).is_some() {
            present[name] = wanted[name].clone();
        }
    }
    let collection = api.collection(resource)?;
    let key = collection.key(&part("namespace"), &part("name"));
    let value = collection.form.encode(&present);
    // Another server may have been quicker; its state is as good as ours.
    api.store
        .write(
            &key,
            Expect::Modified(stored.revision),
            Change::Put { value, ttl: None },
        )
        .await?;
    Ok(())
}

/// An object that the server makes for itself, as it is stored: whole, and owned by the server.
pub(crate) fn complete(api: &Api, resource: &Resource, mut object: Value) -> Value {
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.gv.to_string().into();
    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    object["metadata"]["creationTimestamp"] = api.clock.seconds().into();
    let mut whole = (resource.ty.normalize(object))
        .expect("the objects in this file fit their types; a test boots with them")
        .value;
    let entries = entries(api, resource, &whole);
    if !entries.is_empty() {
        whole["metadata"]["managedFields"] = entries.into();
    }
    whole
}

/// Who owns the fields of such an object: the server, in its two roles.
fn entries(api: &Api, resource: &Resource, object: &Value) -> Vec<Value> {
    // What allocation fills in has no owner.
    const ALLOCATED: [&str; 2] = ["clusterIPs", "ipFamilies"];
    let mut sent = object.clone();
    if let Some(spec) = sent["spec"].as_object_mut() {
        spec.retain(|name, _| !ALLOCATED.contains(&name.as_str()));
    }
    let (api_version, time) = (resource.gv.to_string(), api.clock.seconds());
    let filter = crate::writing::rest::tracked_fields(resource, "");
    let request = managed::Request {
        manager: "kube-apiserver",
        api_version: &api_version,
        kind: resource.kind,
        subresource: "",
        time: &time,
        force: false,
        reset: false,
        filter: &filter,
    };
    managed::update(resource.ty.shape(), None, &mut sent, &request);
    let created = sent["metadata"]["managedFields"].as_array().cloned();
    let condition = (resource.kind == "ServiceCIDR").then(|| {
        json!({
            "manager": "kubernetes-service-cidr-controller", "operation": "Apply",
            "apiVersion": api_version, "subresource": "status", "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {
                ".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:status": {}, "f:type": {},
            }}}},
        })
    });
    condition
        .into_iter()
        .chain(created.into_iter().flatten())
        .collect()
}
