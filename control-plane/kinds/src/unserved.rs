//! Fields of the API that this version does not serve: what upstream's strategies drop from a write.
//!
//! A field behind a feature gate that is off by default exists in the schema, so clients may send
//! it, and it vanishes before validation unless the stored object has it already. The two data
//! source fields of a volume claim, which mean the same thing twice, are brought in line here too.

use serde_json::{Map, Value, json};

use crate::resources::Resource;

/// Fields behind gates that are off in 1.36, by kind.
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
];

/// Removes what is not served from an object on its way in; `old` is what is stored.
pub(crate) fn drop_fields(resource: &Resource, new: &mut Value, old: Option<&Value>) {
    let (group, kind) = (resource.gv.group, resource.kind);
    let gated = GATED.iter().filter(|row| (row.0, row.1) == (group, kind));
    for path in gated.flat_map(|row| row.2) {
        if old.is_none_or(|old| old.pointer(path).is_none()) {
            remove(new, path);
        }
    }
    match (group, kind) {
        ("", "PersistentVolumeClaim") => settle_data_source(new, old),
        ("discovery.k8s.io", "EndpointSlice") => drop_topology(new, old),
        _ => {}
    }
}

fn remove(object: &mut Value, path: &str) {
    if let Some((parent, field)) = path.rsplit_once('/')
        && let Some(Value::Object(parent)) = object.pointer_mut(parent)
    {
        parent.remove(field);
    }
}

// v1 shows the topology labels of v1beta1 and does not take them: they go with any change.
fn drop_topology(new: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| old["endpoints"] == new["endpoints"]) {
        return;
    }
    let endpoints = new.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        remove(endpoint, "/deprecatedTopology");
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
