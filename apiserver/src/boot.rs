//! The objects every cluster has from its first second on.

use std::net::SocketAddr;

use kinds::resources::{self, Resource};
use serde_json::{Value, json};
use store::{Change, Expect};

use crate::rest::Api;
use crate::status::{ApiError, Result};

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

/// Creates what is missing and mends what belongs to this server.
pub(crate) async fn run(api: &Api, address: SocketAddr) -> Result<()> {
    for name in NAMESPACES {
        let metadata = json!({"name": name, "labels": {"kubernetes.io/metadata.name": name}});
        let spec = json!({"finalizers": ["kubernetes"]});
        ensure(
            api,
            "",
            "namespaces",
            json!({"metadata": metadata, "spec": spec, "status": {"phase": "Active"}}),
        )
        .await?;
    }
    for (name, value, description) in PRIORITY_CLASSES {
        let class = json!({"metadata": {"name": name, "generation": 1}, "value": value,
            "description": description, "preemptionPolicy": "PreemptLowerPriority"});
        ensure(api, "scheduling.k8s.io", "priorityclasses", class).await?;
    }
    let range = json!({"metadata": {"name": "kubernetes", "finalizers": ["networking.k8s.io/service-cidr-finalizer"]},
        "spec": {"cidrs": [api.services.cidr().to_string()]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "", "message": "the range is in use",
            "lastTransitionTime": api.clock.seconds()}]}});
    ensure(api, "networking.k8s.io", "servicecidrs", range).await?;
    api_services(api).await?;
    own_service(api, address).await
}

/// One local APIService per group and version, as upstream's autoregistration makes them.
async fn api_services(api: &Api) -> Result<()> {
    let mut done = Vec::new();
    for (position, resource) in resources::all().iter().enumerate() {
        let gv = resource.gv;
        if done.contains(&gv) {
            continue;
        }
        done.push(gv);
        let name = format!("{}.{}", gv.version, gv.group);
        let priority = 18_000_i64
            .saturating_sub(i64::try_from(position).unwrap_or(0) * 100)
            .max(1);
        let mut spec =
            json!({"version": gv.version, "groupPriorityMinimum": priority, "versionPriority": 15});
        if !gv.group.is_empty() {
            spec["group"] = gv.group.into();
        }
        let object = json!({
            "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
            "spec": spec,
            "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local",
                "message": "served by this API server itself", "lastTransitionTime": api.clock.seconds()}]},
        });
        ensure(api, "apiregistration.k8s.io", "apiservices", object).await?;
    }
    Ok(())
}

/// default/kubernetes: the API server as a service, with its address as the only endpoint.
async fn own_service(api: &Api, address: SocketAddr) -> Result<()> {
    let ip = api.services.first_ip().to_string();
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": address.port()}],
        },
    });
    ensure(api, "", "services", service).await?;
    ensure(api, "networking.k8s.io", "ipaddresses", json!({
        "metadata": {"name": ip, "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": "default", "name": "kubernetes"}},
    })).await?;
    let mirrored = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let endpoints = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": mirrored},
        "subsets": [{"addresses": [{"ip": address.ip().to_string()}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}]}],
    });
    keep(api, "", "endpoints", endpoints, "subsets").await?;
    let slice = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    });
    keep(
        api,
        "discovery.k8s.io",
        "endpointslices",
        slice,
        "endpoints",
    )
    .await
}

fn resource(group: &str, plural: &str) -> Result<&'static Resource> {
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

fn complete(api: &Api, resource: &Resource, mut object: Value) -> Value {
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.gv.to_string().into();
    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    object["metadata"]["creationTimestamp"] = api.clock.seconds().into();
    objects::normalize::normalize(resource.ty, object)
        .expect("the objects in this file fit their types; a test boots with them")
        .value
}
