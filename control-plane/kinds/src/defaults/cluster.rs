//! Services, configuration, nodes, policies: everything that is neither pod nor workload.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Object, child, fill, objects, text, unset};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const EXACT_COUNT: &str = "ExactCount";

/// Affinity, ports and traffic policies; addresses are allocated elsewhere.
pub(super) fn service(service: &mut Object) {
    let spec = child(service, "spec");
    session_affinity(spec);
    for port in objects(spec, "ports") {
        if unset(port, "protocol") {
            port.insert("protocol".to_owned(), "TCP".into());
        }
        if unset(port, "targetPort") {
            let number = port.get("port").cloned().unwrap_or(Value::from(0));
            port.insert("targetPort".to_owned(), number);
        }
    }
    let ty = text(spec, "type").to_owned();
    let takes_outside_traffic = matches!(ty.as_str(), "NodePort" | "LoadBalancer")
        || (ty == "ClusterIP" && !unset(spec, "externalIPs"));
    if takes_outside_traffic && unset(spec, "externalTrafficPolicy") {
        spec.insert("externalTrafficPolicy".to_owned(), "Cluster".into());
    }
    if matches!(ty.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if ty == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        ingress_modes(service);
    }
}

fn session_affinity(spec: &mut Object) {
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig");
            let timeout = config.and_then(|c| c.get("clientIP")?.get("timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                let config = json!({ "clientIP": { "timeoutSeconds": 10800 } });
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
}

fn ingress_modes(service: &mut Object) {
    let balancer = child(child(service, "status"), "loadBalancer");
    for ingress in objects(balancer, "ingress") {
        if !unset(ingress, "ip") {
            fill(ingress, "ipMode", "VIP");
        }
    }
}

/// `stringData` is only a way to write `data`.
pub(super) fn secret(secret: &mut Object) {
    let Some(Value::Object(plain)) = secret.remove("stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    let data = child(secret, "data");
    for (key, value) in plain {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, encoded.into());
    }
}

/// An empty map prints as nothing; a null one must not print as null.
pub(super) fn config_map(config_map: &mut Object) {
    if config_map.get("data").is_some_and(Value::is_null) {
        config_map.remove("data");
    }
}

/// Every namespace that has its name carries it as a label.
pub(super) fn namespace(namespace: &mut Object) {
    let metadata = child(namespace, "metadata");
    let name = text(metadata, "name").to_owned();
    if !name.is_empty() {
        child(metadata, "labels").insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

/// `podCIDR` and the first of `podCIDRs` say the same; the single one is believed.
pub(super) fn node_spec(spec: &mut Object) {
    let single = text(spec, "podCIDR").to_owned();
    let first = spec
        .get("podCIDRs")
        .and_then(|cidrs| cidrs.get(0)?.as_str());
    let first = first.unwrap_or_default().to_owned();
    if single.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".to_owned(), first.into());
    } else if single != first {
        spec.insert("podCIDRs".to_owned(), json!([single]));
    }
}

/// A node that reserves nothing offers all it has.
pub(super) fn node_status(status: &mut Object) {
    if let Some(capacity) = status.get("capacity").filter(|v| !v.is_null()).cloned() {
        fill(status, "allocatable", capacity);
    }
}

/// For containers, limits default to the maximum, requests to the limit and then to the minimum.
pub(super) fn limit_range_item(item: &mut Object) {
    if text(item, "type") != "Container" {
        return;
    }
    for (target, source) in [
        ("default", "max"),
        ("defaultRequest", "default"),
        ("defaultRequest", "min"),
    ] {
        let Some(Value::Object(amounts)) = item.get(source).cloned() else {
            continue;
        };
        let list = child(item, target);
        for (name, amount) in amounts {
            list.entry(name).or_insert(amount);
        }
    }
}

/// A policy is about ingress, and about egress when it has egress rules.
pub(super) fn network_policy(policy: &mut Object) {
    let spec = child(policy, "spec");
    if unset(spec, "policyTypes") {
        let types = if unset(spec, "egress") {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        spec.insert("policyTypes".to_owned(), types);
    }
}

/// Parameters belong to the cluster unless they say otherwise.
pub(super) fn ingress_class(class: &mut Object) {
    if let Some(Value::Object(parameters)) = child(class, "spec").get_mut("parameters") {
        fill(parameters, "scope", "Cluster");
    }
}

/// Users and groups are of the RBAC group, service accounts of the core group.
pub(super) fn rbac_subject(subject: &mut Object) {
    if unset(subject, "apiGroup") && matches!(text(subject, "kind"), "User" | "Group") {
        subject.insert("apiGroup".to_owned(), RBAC_GROUP.into());
    }
}

/// One device unless the request says otherwise.
pub(super) fn device_request(request: &mut Object) {
    if unset(request, "allocationMode") {
        request.insert("allocationMode".to_owned(), EXACT_COUNT.into());
    }
    if text(request, "allocationMode") == EXACT_COUNT && unset(request, "count") {
        request.insert("count".to_owned(), 1.into());
    }
}

/// What a device takes of the node counts once.
pub(super) fn device(device: &mut Object) {
    let Some(Value::Object(mappings)) = device.get_mut("nodeAllocatableResourceMappings") else {
        return;
    };
    for mapping in mappings.values_mut().filter_map(Value::as_object_mut) {
        fill(mapping, "allocationMultiplier", "1");
    }
}

/// Names follow from the kind, and what is stored from the first storage version.
pub(super) fn custom_resource_definition(definition: &mut Object) {
    let spec = child(definition, "spec");
    let names = child(spec, "names");
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() && unset(names, "singular") {
        names.insert("singular".to_owned(), kind.to_lowercase().into());
    }
    if !kind.is_empty() && unset(names, "listKind") {
        names.insert("listKind".to_owned(), format!("{kind}List").into());
    }
    let stored = objects(spec, "versions")
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| text(version, "name").to_owned());
    let status = definition
        .entry("status")
        .or_insert_with(|| Value::Object(Map::new()));
    if let (Some(name), Value::Object(status)) = (stored, status)
        && unset(status, "storedVersions")
    {
        status.insert("storedVersions".to_owned(), json!([name]));
    }
}
