//! Static pods: those that files on this machine describe, and the mirror pods that show them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use sha2::{Digest as _, Sha256};

use crate::spec;

/// The annotation that says where a pod comes from.
pub const SOURCE: &str = "kubernetes.io/config.source";
/// The annotation with the hash of the file.
pub const HASH: &str = "kubernetes.io/config.hash";
/// The annotation of mirror pods, with the hash of the pod they show.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation with when the pod was first seen.
pub const SEEN: &str = "kubernetes.io/config.seen";

/// How often the directory is read.
pub const EVERY: Duration = Duration::from_secs(20);

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
}

/// Whether a pod comes from a file.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api")
}

/// Whether a pod of the API server only shows one that comes from a file.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// Whether a mirror pod shows this static pod as it is.
pub fn shows(mirror: &Pod, pod: &Pod) -> bool {
    annotation(mirror, MIRROR) == annotation(pod, HASH)
}

/// Every pod of a directory's files, by UID. A file that cannot be read as a pod is named and passed over.
pub fn read(directory: &Path, node: &str) -> BTreeMap<String, Arc<Pod>> {
    let mut pods = BTreeMap::new();
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    for file in files {
        let hidden = file.file_name().to_string_lossy().starts_with('.');
        if hidden || !file.path().is_file() {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(file.path()) else {
            continue;
        };
        match parse(&text, &file.path().display().to_string(), node) {
            Ok(pod) => drop(pods.insert(spec::uid(&pod).to_owned(), Arc::new(pod))),
            Err(error) => {
                tracing::warn!(file = %file.path().display(), error, "this file describes no pod")
            }
        }
    }
    pods
}

/// The pod that a file describes, as upstream completes it.
pub fn parse(text: &str, path: &str, node: &str) -> Result<Pod, String> {
    let mut pod: Pod = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let Some(name) = pod.metadata.name.clone() else {
        return Err("it has no name".to_owned());
    };
    if pod.spec.is_none() {
        return Err("it has no spec".to_owned());
    }
    let digest = Sha256::digest(format!("{node}\n{path}\n{text}").as_bytes());
    let hash: String = digest[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let meta = &mut pod.metadata;
    meta.uid = Some(
        meta.uid
            .clone()
            .filter(|uid| !uid.is_empty())
            .unwrap_or_else(|| hash.clone()),
    );
    meta.name = Some(format!("{name}-{node}"));
    meta.namespace.get_or_insert_with(|| "default".to_owned());
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(SOURCE.to_owned(), "file".to_owned());
    annotations.insert(HASH.to_owned(), hash);
    annotations.insert(SEEN.to_owned(), Timestamp::now().to_string());
    meta.creation_timestamp
        .get_or_insert_with(|| Time(Timestamp::now()));
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.enable_service_links.get_or_insert(true);
    spec.restart_policy
        .get_or_insert_with(|| "Always".to_owned());
    spec.dns_policy
        .get_or_insert_with(|| "ClusterFirst".to_owned());
    spec.termination_grace_period_seconds.get_or_insert(30);
    // Nothing that taints the node ends what belongs to the machine.
    spec.tolerations.get_or_insert_default().push(Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    });
    pod.status = None;
    Ok(pod)
}

/// The mirror of a static pod.
pub fn mirror(pod: &Pod, node: &str, node_uid: &str) -> Pod {
    let mut mirror = pod.clone();
    let hash = annotation(pod, HASH).unwrap_or_default().to_owned();
    let meta = &mut mirror.metadata;
    meta.uid = None;
    meta.creation_timestamp = None;
    meta.annotations
        .get_or_insert_default()
        .insert(MIRROR.to_owned(), hash);
    meta.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: node_uid.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    mirror.status = None;
    mirror
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: i\n";

    #[test]
    fn a_file_becomes_a_pod_of_this_node() {
        let pod = parse(FILE, "/m/web.yaml", "node1").expect("a pod");
        assert_eq!(spec::name(&pod), "web-node1");
        assert!(is_static(&pod) && !is_mirror(&pod));
        assert_eq!(spec::uid(&pod).len(), 32);
        let again = parse(FILE, "/m/web.yaml", "node1").expect("a pod");
        assert_eq!(spec::uid(&pod), spec::uid(&again));
        let changed = parse(
            &FILE.replace("image: i", "image: j"),
            "/m/web.yaml",
            "node1",
        )
        .expect("a pod");
        assert_ne!(spec::uid(&pod), spec::uid(&changed));
    }

    #[test]
    fn a_mirror_shows_one_version_of_its_pod() {
        let pod = parse(FILE, "/m/web.yaml", "n").expect("a pod");
        let changed =
            parse(&FILE.replace("image: i", "image: j"), "/m/web.yaml", "n").expect("a pod");
        let mirror = mirror(&pod, "n", "uid");
        assert!(is_mirror(&mirror));
        assert!(shows(&mirror, &pod));
        assert!(!shows(&mirror, &changed));
        assert_eq!(mirror.metadata.uid, None);
    }
}
