//! Discovery: what the API serves, in the legacy and the aggregated form.
//!
//! All documents follow from the resources that are served, and are made anew when those change.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kinds::resources::{GroupVersion, Resource, Subresource};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};

use crate::outward::aggregation::discovery::{self as remote, RemoteVersion};

/// The discovery documents.
#[derive(Debug)]
pub(crate) struct Discovery {
    /// Path to document: `/apis`, `/apis/apps`, `/apis/apps/v1`, `/api/v1`.
    documents: HashMap<String, Value>,
    core: Aggregated,
    groups: Aggregated,
}

/// An aggregated document and the tag by which a client asks whether it has changed.
#[derive(Debug)]
pub(crate) struct Aggregated {
    /// JSON text.
    pub(crate) text: String,
    /// Quoted upper-case hex SHA-512 of the text.
    pub(crate) etag: String,
}

impl Aggregated {
    fn of(groups: &[Vec<&Resource>], remotes: &[Vec<&RemoteVersion>]) -> Aggregated {
        let mut items: Vec<Value> = groups
            .iter()
            .map(|versions| aggregated_group(versions))
            .collect();
        for remote in remotes {
            join(
                &mut items,
                remote::aggregated(remote),
                &["metadata", "name"],
            );
        }
        let value = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        });
        let text = value.to_string();
        let etag = format!("\"{:X}\"", Sha512::digest(&text));
        Aggregated { text, etag }
    }
}

impl Discovery {
    /// Makes every document.
    pub(crate) fn new(
        server_address: &str,
        resources: &[Arc<Resource>],
        remotes: &[RemoteVersion],
    ) -> Discovery {
        let (groups, remotes) = (grouped(resources), remote::by_group(remotes));
        let mut documents = HashMap::new();
        for resources in &groups {
            for gv in versions(resources) {
                let path = if gv.group.is_empty() {
                    format!("/api/{}", gv.version)
                } else {
                    format!("/apis/{gv}")
                };
                documents.insert(path, resource_list(gv, resources));
            }
        }
        let (core, named): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|resources| resources[0].gv.group.is_empty());
        let mut list: Vec<Value> = named
            .iter()
            .map(|resources| group_document(resources))
            .collect();
        for remote in &remotes {
            join(&mut list, remote::group_row(remote), &["name"]);
        }
        for group in &list {
            let mut document = group.clone();
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            let name = group["name"].as_str().unwrap_or_default();
            documents.insert(format!("/apis/{name}"), document);
        }
        documents.insert(
            "/apis".into(),
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}),
        );
        let versions = json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
        });
        documents.insert("/api".into(), versions);
        Discovery {
            documents,
            core: Aggregated::of(&core, &[]),
            groups: Aggregated::of(&named, &remotes),
        }
    }

    /// The legacy document at a path.
    pub(crate) fn document(&self, path: &str) -> Option<&Value> {
        self.documents.get(path.strip_suffix('/').unwrap_or(path))
    }

    /// The aggregated document at `/api` or `/apis`.
    pub(crate) fn aggregated(&self, path: &str) -> Option<&Aggregated> {
        match path.strip_suffix('/').unwrap_or(path) {
            "/api" => Some(&self.core),
            "/apis" => Some(&self.groups),
            _ => None,
        }
    }
}

// A group of another server joins ours of the same name, with the versions that ours does not have.
fn join(groups: &mut Vec<Value>, mut other: Value, name: &[&str]) {
    let name_of = |group: &Value| {
        name.iter()
            .fold(group.clone(), |value, part| value[*part].clone())
    };
    let wanted = name_of(&other);
    let Some(own) = groups.iter_mut().find(|group| name_of(group) == wanted) else {
        groups.push(other);
        return;
    };
    let more = other["versions"].as_array_mut().map(std::mem::take);
    let Some(versions) = own["versions"].as_array_mut() else {
        return;
    };
    for version in more.unwrap_or_default() {
        versions.retain(|known| known["version"] != version["version"]);
        versions.push(version);
    }
}

// Resources by group, groups in the order in which the table first names them.
fn grouped(resources: &[Arc<Resource>]) -> Vec<Vec<&Resource>> {
    let mut groups: Vec<Vec<&Resource>> = Vec::new();
    for resource in resources {
        match groups
            .iter_mut()
            .find(|g| g[0].gv.group == resource.gv.group)
        {
            Some(group) => group.push(resource),
            None => groups.push(vec![resource]),
        }
    }
    groups
}

// Versions in the table's order: the preferred one stands first.
fn versions(group: &[&Resource]) -> Vec<GroupVersion> {
    let mut found: Vec<GroupVersion> = Vec::new();
    for resource in group {
        if !found.contains(&resource.gv) {
            found.push(resource.gv);
        }
    }
    found
}

fn group_document(resources: &[&Resource]) -> Value {
    let versions: Vec<Value> = versions(resources)
        .iter()
        .map(|gv| json!({"groupVersion": gv.to_string(), "version": gv.version}))
        .collect();
    json!({
        "name": resources[0].gv.group,
        "preferredVersion": versions[0],
        "versions": versions,
    })
}

fn resource_list(gv: GroupVersion, resources: &[&Resource]) -> Value {
    let mut list = Vec::new();
    for resource in resources.iter().filter(|r| r.gv == gv) {
        list.push(api_resource(resource));
        list.extend(
            resource
                .subresources
                .iter()
                .map(|sub| api_subresource(resource, sub)),
        );
    }
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": gv.to_string(), "resources": list});
    // Upstream leaves the apiVersion out of the core list only.
    if !gv.group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    document
}

fn api_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.is_virtual {
        entry["storageVersionHash"] = storage_version_hash(resource).into();
    }
    entry
}

fn api_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, sub.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if let Some(gv) = sub.gv {
        entry["group"] = gv.group.into();
        entry["version"] = gv.version.into();
    }
    entry
}

// Upstream: the first eight bytes of SHA-256 over group/version/kind of the stored version.
fn storage_version_hash(resource: &Resource) -> String {
    let GroupVersion { group, version } = resource.hashed;
    let digest = Sha256::digest(format!("{group}/{version}/{}", resource.kind));
    STANDARD.encode(&digest[..8])
}

fn aggregated_group(resources: &[&Resource]) -> Value {
    let versions: Vec<Value> = versions(resources)
        .into_iter()
        .map(|gv| {
            let of_version = resources.iter().filter(|r| r.gv == gv);
            let list: Vec<Value> = of_version.map(|r| aggregated_resource(r)).collect();
            json!({"version": gv.version, "freshness": "Current", "resources": list})
        })
        .collect();
    let metadata = match resources[0].gv.group {
        "" => json!({}),
        group => json!({"name": group}),
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(aggregated_subresource)
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = Value::Array(subresources);
    }
    entry
}

fn aggregated_subresource(sub: &Subresource) -> Value {
    let gv = sub.gv.unwrap_or(GroupVersion {
        group: "",
        version: "",
    });
    json!({
        "subresource": sub.name,
        "responseKind": {"group": gv.group, "version": gv.version, "kind": sub.kind},
        "verbs": sub.verbs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_upstreams() {
        let maps = kinds::resources::find("", "v1", "configmaps").expect("exists");
        assert_eq!(storage_version_hash(maps), "qFsyl6wFWjQ=");
        let pods = kinds::resources::find("", "v1", "pods").expect("exists");
        assert_eq!(storage_version_hash(pods), "xPOwRZ+Yhw8=");
    }

    #[test]
    fn every_document_is_at_its_path() {
        let discovery = Discovery::new("127.0.0.1:6443", kinds::resources::all(), &[]);
        for path in [
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/apis/autoscaling/v2",
            "/apis/",
        ] {
            assert!(discovery.document(path).is_some(), "{path}");
        }
        assert_eq!(
            discovery.document("/apis/autoscaling").expect("exists")["preferredVersion"]["version"],
            "v2"
        );
        assert!(discovery.document("/apis/nothing").is_none());
    }

    /// Compares with the real server's documents where they are at hand.
    #[test]
    fn documents_equal_the_real_ones_for_the_served_groups() {
        let Some(fixtures) = std::env::var_os("KYANITE_FIXTURES") else {
            eprintln!(
                "SKIPPED: KYANITE_FIXTURES not set: discovery is not compared with recorded documents"
            );
            return;
        };
        let dir = std::path::Path::new(&fixtures).join("kubernetes-1.36/discovery");
        let read = |name: &str| -> Value {
            let text = std::fs::read_to_string(dir.join(name)).expect(name);
            serde_json::from_str(&text).expect("JSON")
        };
        let ours = Discovery::new("10.10.10.10:8050", kinds::resources::all(), &[]);
        let mut compared = 0;
        for path in ours
            .documents
            .keys()
            .filter(|p| p.matches('/').count() != 1)
        {
            let name = format!("{}.json", path[1..].replace('/', "__"));
            let (ours, mut theirs) = (&ours.documents[path], read(&name));
            if theirs["kind"] == "APIGroup" {
                // Only versions that are on by default are served.
                let served = ours["versions"].as_array().expect("a list").clone();
                theirs["versions"]
                    .as_array_mut()
                    .expect("a list")
                    .retain(|v| served.contains(v));
            }
            assert_eq!(*ours, theirs, "{path}");
            compared += 1;
        }
        assert!(compared > 40, "{compared}");
        let theirs = read("aggregated_v2.json");
        let aggregated: Value = serde_json::from_str(&ours.groups.text).expect("JSON");
        for group in aggregated["items"].as_array().expect("a list") {
            let mut real = theirs["items"]
                .as_array()
                .expect("a list")
                .iter()
                .find(|g| g["metadata"] == group["metadata"])
                .expect("the group exists")
                .clone();
            let served: Vec<&Value> = group["versions"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|v| &v["version"])
                .collect();
            real["versions"]
                .as_array_mut()
                .expect("a list")
                .retain(|v| served.contains(&&v["version"]));
            assert_eq!(*group, real);
        }
    }
}
