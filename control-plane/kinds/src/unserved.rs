//! Fields of the API that this version does not serve: what upstream's strategies drop from a write.
//!
//! A field behind a feature gate that is off by default exists in the schema, so clients may send
//! it, and it vanishes before validation unless the stored object has it already. The two data
//! source fields of a volume claim, which mean the same thing twice, are brought in line here too.

use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// Fields behind gates that are off in 1.36, by kind. `*` is every entry of a list or map; what ends in `?` goes with its
/// last field.
const GATED: &[(&str, &str, &[&str])] = &[
    // CoordinatedLeaderElection
    (
        "coordination.k8s.io",
        "Lease",
        &["/spec/strategy", "/spec/preferredHolder"],
    ),
    // MaxUnavailableStatefulSet
    (
        "apps",
        "StatefulSet",
        &["/spec/updateStrategy/rollingUpdate/maxUnavailable"],
    ),
    // VolumeLimitScaling
    (
        "storage.k8s.io",
        "CSIDriver",
        &["/spec/preventPodSchedulingIfMissing"],
    ),
    // DRANodeAllocatableResources
    ("", "Pod", &["/status/nodeAllocatableResourceClaimStatuses"]),
    // DRANodeAllocatableResources, DRAListTypeAttributes
    (
        "resource.k8s.io",
        "ResourceSlice",
        &[
            "/spec/devices/*/nodeAllocatableResourceMappings",
            "/spec/devices/*/attributes/*/bools",
            "/spec/devices/*/attributes/*/ints",
            "/spec/devices/*/attributes/*/strings",
            "/spec/devices/*/attributes/*/versions",
        ],
    ),
];

/// The same in the spec of a pod, wherever that is.
const GATED_IN_PODS: &[&str] = &[
    // GenericWorkload
    "/schedulingGroup",
    // ClusterTrustBundleProjection, PodCertificateRequest
    "/volumes/*/projected/sources/*/clusterTrustBundle",
    "/volumes/*/projected/sources/*/podCertificate",
    // ContainerStopSignals
    "/containers/*/lifecycle?/stopSignal",
    "/initContainers/*/lifecycle?/stopSignal",
    "/ephemeralContainers/*/lifecycle?/stopSignal",
];

/// Where kinds have the spec of a pod.
const PODS: &[(&str, &str, &str)] = &[
    ("", "Pod", "/spec"),
    ("", "PodTemplate", "/template/spec"),
    ("", "ReplicationController", "/spec/template/spec"),
    ("apps", "Deployment", "/spec/template/spec"),
    ("apps", "ReplicaSet", "/spec/template/spec"),
    ("apps", "DaemonSet", "/spec/template/spec"),
    ("apps", "StatefulSet", "/spec/template/spec"),
    ("batch", "Job", "/spec/template/spec"),
    ("batch", "CronJob", "/spec/jobTemplate/spec/template/spec"),
];

/// Removes what is not served from an object on its way in; `old` is what is stored.
pub(crate) fn drop_fields(resource: &Resource, new: &mut Value, old: Option<&Value>) {
    let (group, kind) = (resource.gv.group, resource.kind);
    for row in GATED.iter().filter(|row| (row.0, row.1) == (group, kind)) {
        drop_gated(row.2, new, old);
    }
    for row in PODS.iter().filter(|row| (row.0, row.1) == (group, kind)) {
        let old = old.and_then(|old| old.pointer(row.2));
        if let Some(spec) = new.pointer_mut(row.2) {
            drop_gated(GATED_IN_PODS, spec, old);
        }
    }
    match (group, kind) {
        ("", "PersistentVolumeClaim") => settle_data_source(new, old),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(new, old),
        _ => {}
    }
}

/// Removes fields that the stored object has nowhere.
fn drop_gated(paths: &[&str], new: &mut Value, old: Option<&Value>) {
    for path in paths {
        let steps: Vec<&str> = path.split('/').skip(1).collect();
        if !old.is_some_and(|old| has(old, &steps)) {
            remove_at(new, &steps);
        }
    }
}

fn has(value: &Value, steps: &[&str]) -> bool {
    match (steps, value) {
        ([], value) => !value.is_null(),
        (["*", rest @ ..], Value::Array(items)) => items.iter().any(|item| has(item, rest)),
        (["*", rest @ ..], Value::Object(map)) => map.values().any(|item| has(item, rest)),
        ([step, rest @ ..], Value::Object(map)) => {
            let next = map.get(step.trim_end_matches('?'));
            next.is_some_and(|next| has(next, rest))
        }
        _ => false,
    }
}

fn remove_at(value: &mut Value, steps: &[&str]) {
    match (steps, value) {
        (["*", rest @ ..], Value::Array(items)) => {
            items.iter_mut().for_each(|item| remove_at(item, rest));
        }
        (["*", rest @ ..], Value::Object(map)) => {
            map.values_mut().for_each(|item| remove_at(item, rest));
        }
        ([last], Value::Object(map)) => _ = map.remove(*last),
        ([step, rest @ ..], Value::Object(map)) => {
            let name = step.trim_end_matches('?');
            let Some(next) = map.get_mut(name).filter(|next| has(next, rest)) else {
                return;
            };
            remove_at(next, rest);
            let is_empty = next.as_object().is_some_and(Map::is_empty);
            if step.ends_with('?') && is_empty {
                map.remove(name);
            }
        }
        _ => {}
    }
}

// v1 shows the topology labels of v1beta1 and does not take them: they go with any change.
fn drop_topology(new: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| old["endpoints"] == new["endpoints"]) {
        return;
    }
    let endpoints = new.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        remove_at(endpoint, &["deprecatedTopology"]);
    }
}

// CrossNamespaceVolumeDataSource is off; `dataSource` knows claims and snapshots only and drops
// anything else in silence; and each of the two fields is filled from the other.
fn settle_data_source(claim: &mut Value, old: Option<&Value>) {
    let had = |field: &str| old.is_some_and(|old| !old["spec"][field].is_null());
    let (had_source, had_ref) = (had("dataSource"), had("dataSourceRef"));
    let Some(Value::Object(spec)) = claim.get_mut("spec") else {
        return;
    };
    let text =
        |reference: &Value, field: &str| reference[field].as_str().unwrap_or_default().to_owned();
    let namespace = |spec: &Map<String, Value>| {
        spec.get("dataSourceRef")
            .map_or_else(String::new, |reference| text(reference, "namespace"))
    };
    if !namespace(spec).is_empty() && !had_ref {
        spec.remove("dataSourceRef");
    }
    if !had_source && !had_ref && is_absent(spec, "dataSourceRef") {
        let source = spec.get("dataSource").unwrap_or(&Value::Null);
        match (
            text(source, "apiGroup").as_str(),
            text(source, "kind").as_str(),
        ) {
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot") => {}
            _ => _ = spec.remove("dataSource"),
        }
    }
    if is_absent(spec, "dataSourceRef") {
        fill(spec, "dataSourceRef", "dataSource");
    } else if is_absent(spec, "dataSource") && namespace(spec).is_empty() {
        fill(spec, "dataSource", "dataSourceRef");
    }
}

fn is_absent(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_none_or(Value::is_null)
}

fn fill(spec: &mut Map<String, Value>, field: &str, from: &str) {
    if let Some(source) = spec.get(from).filter(|source| !source.is_null()) {
        let copy = json!({
            "apiGroup": source["apiGroup"], "kind": source["kind"], "name": source["name"],
        });
        spec.insert(field.to_owned(), copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;

    fn claim(spec: Value, old: Option<Value>) -> Value {
        let claims = find("", "v1", "persistentvolumeclaims").expect("exists");
        let mut object = json!({"spec": spec});
        let old = old.map(|spec| json!({"spec": spec}));
        drop_fields(claims, &mut object, old.as_ref());
        object["spec"].take()
    }

    #[test]
    fn each_data_source_field_is_filled_from_the_other() {
        let source = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "a"});
        let both = json!({"dataSource": source, "dataSourceRef": source});
        assert_eq!(claim(json!({"dataSource": source}), None), both);
        assert_eq!(claim(json!({"dataSourceRef": source}), None), both);
        assert_eq!(claim(json!({}), None), json!({}));
    }

    #[test]
    fn sources_nobody_can_fill_are_forgotten() {
        let odd = json!({"apiGroup": "example.com", "kind": "Populator", "name": "a"});
        assert_eq!(claim(json!({"dataSource": odd}), None), json!({}));
        assert_eq!(
            claim(json!({"dataSourceRef": odd}), None)["dataSource"],
            odd
        );
        let mut far = odd.clone();
        far["namespace"] = "b".into();
        assert_eq!(claim(json!({"dataSourceRef": far}), None), json!({}));
        let stored = json!({"dataSource": odd, "dataSourceRef": odd});
        assert_eq!(
            claim(json!({"dataSource": odd}), Some(stored.clone())),
            stored
        );
    }

    #[test]
    fn gated_fields_go_unless_they_are_stored() {
        let leases = find("coordination.k8s.io", "v1", "leases").expect("exists");
        let sent =
            json!({"spec": {"strategy": "Odd", "preferredHolder": "a", "holderIdentity": "b"}});
        let mut new = sent.clone();
        drop_fields(leases, &mut new, None);
        assert_eq!(new, json!({"spec": {"holderIdentity": "b"}}));
        let mut kept = sent.clone();
        drop_fields(leases, &mut kept, Some(&sent));
        assert_eq!(kept, sent);
    }

    #[test]
    fn gated_fields_of_pods_go_wherever_the_pod_is() {
        let container = json!({"name": "c", "lifecycle": {"stopSignal": "SIGUSR1"}});
        let other = json!({"name": "d", "lifecycle": {"stopSignal": "SIGUSR1", "preStop": {"sleep": {"seconds": 1}}}});
        let sources = json!([{"clusterTrustBundle": {"name": "a"}}, {"secret": {"name": "s"}}]);
        let spec = json!({"schedulingGroup": {"podGroupName": "g"}, "containers": [container, other],
            "volumes": [{"name": "v", "projected": {"sources": sources}}]});
        let kept = json!({"containers": [{"name": "c"}, {"name": "d", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}],
            "volumes": [{"name": "v", "projected": {"sources": [{}, {"secret": {"name": "s"}}]}}]});
        for (group, kind, path) in PODS {
            let mut all = crate::resources::all().iter();
            let resource = all.find(|r| (r.gv.group, r.kind) == (*group, *kind));
            let wrap = |spec: &Value| {
                let steps = path.split('/').skip(1).collect::<Vec<_>>();
                let outward = steps.iter().rev();
                outward.fold(spec.clone(), |inner, step| json!({ *step: inner }))
            };
            let (sent, expected) = (wrap(&spec), wrap(&kept));
            let mut new = sent.clone();
            drop_fields(resource.expect(kind), &mut new, None);
            assert_eq!(new, expected, "{kind}");
            let mut same = sent.clone();
            drop_fields(resource.expect(kind), &mut same, Some(&sent));
            assert_eq!(same, sent, "{kind}");
        }
    }

    #[test]
    fn topology_goes_with_a_change_of_the_endpoints() {
        let slices = find("discovery.k8s.io", "v1", "endpointslices").expect("exists");
        let stored =
            json!({"endpoints": [{"addresses": ["1.2.3.4"], "deprecatedTopology": {"a": "b"}}]});
        let mut same = stored.clone();
        drop_fields(slices, &mut same, Some(&stored));
        assert_eq!(same, stored);
        let mut new = stored.clone();
        drop_fields(slices, &mut new, None);
        assert_eq!(new, json!({"endpoints": [{"addresses": ["1.2.3.4"]}]}));
    }
}
