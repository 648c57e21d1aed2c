//! Manifests that are part of the program: documents of YAML, and where the objects in them are kept.

use serde_json::Value;

use crate::exit::{Code, Failure, Result};

/// Kinds that manifests have, and where their objects are kept; `{}` is the namespace.
const COLLECTIONS: [(&str, &str); 8] = [
    ("Namespace", "/api/v1/namespaces"),
    ("ServiceAccount", "/api/v1/namespaces/{}/serviceaccounts"),
    (
        "ClusterRole",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ),
    (
        "ClusterRoleBinding",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ),
    ("ConfigMap", "/api/v1/namespaces/{}/configmaps"),
    ("Service", "/api/v1/namespaces/{}/services"),
    ("DaemonSet", "/apis/apps/v1/namespaces/{}/daemonsets"),
    ("Deployment", "/apis/apps/v1/namespaces/{}/deployments"),
];

/// The objects of a manifest, in its order; `of` says whose it is when it is wrong.
pub(crate) fn objects(of: &str, text: &str) -> Result<Vec<Value>> {
    let wrong = |e: &dyn std::fmt::Display| {
        Failure::new(Code::Failure, format!("the manifest of {of}: {e}"))
    };
    let read = |document: &str| {
        let parsed = objects::yaml::parse(document.as_bytes());
        parsed.map(|parsed| parsed.value).map_err(|e| wrong(&e))
    };
    text.split("\n---\n").map(read).collect()
}

/// Where an object is.
pub(crate) fn path_of(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let collection = collection(kind, meta("namespace")).ok_or_else(|| {
        let what = format!("a manifest has a {kind}, which has no place here");
        Failure::new(Code::Failure, what)
    })?;
    Ok(format!("{collection}/{}", meta("name")))
}

/// Where objects of a kind are kept; in every namespace, if none is named.
pub(crate) fn collection(kind: &str, namespace: &str) -> Option<String> {
    let mut all = COLLECTIONS.iter();
    let (_, collection) = all.find(|(known, _)| *known == kind)?;
    Some(match namespace {
        "" => collection.replace("namespaces/{}/", ""),
        namespace => collection.replace("{}", namespace),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn objects_are_where_their_kind_and_namespace_say() {
        let text = "kind: Service\nmetadata: {name: a, namespace: b}\n---\nkind: Namespace\nmetadata: {name: c}";
        let read = objects("a test", text).unwrap();
        let paths: Vec<_> = read.iter().map(|object| path_of(object).unwrap()).collect();
        assert_eq!(
            paths,
            ["/api/v1/namespaces/b/services/a", "/api/v1/namespaces/c"]
        );
        assert_eq!(
            collection("Deployment", "").unwrap(),
            "/apis/apps/v1/deployments"
        );
        assert!(path_of(&serde_json::json!({"kind": "Dream"})).is_err());
        assert!(objects("a test", "a: [").is_err());
    }
}
