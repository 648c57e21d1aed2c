//! What of another server's OpenAPI document (v2) belongs into ours: its paths of one version, and what they refer to. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha512};

/// The part of a document that is about one version of a group.
#[derive(Debug)]
pub(crate) struct Described {
    /// Another when the part is another.
    pub(crate) hash: String,
    pub(crate) definitions: Map<String, Value>,
    pub(crate) paths: Map<String, Value>,
}

impl PartialEq for Described {
    fn eq(&self, other: &Described) -> bool {
        self.hash == other.hash
    }
}

const PREFIX: &str = "#/definitions/";

/// What the program's own document defines: that stands, whoever else defines it.
static OWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Document {
        definitions: HashMap<String, IgnoredAny>,
    }
    let document: Option<Document> = serde_json::from_slice(&openapi::v2().json()).ok();
    let definitions = document.map(|document| document.definitions);
    definitions.unwrap_or_default().into_keys().collect()
});

impl Described {
    /// The part of a document that is about this version; nothing if it has none.
    pub(crate) fn new(document: &Value, group: &str, version: &str) -> Option<Described> {
        let root = format!("/apis/{group}/{version}/");
        let all = document["paths"].as_object()?;
        let own = |(path, _): &(&String, &Value)| {
            path.starts_with(&root) || **path == root[..root.len() - 1]
        };
        let paths: Map<String, Value> = all
            .iter()
            .filter(own)
            .map(|(path, item)| (path.clone(), item.clone()))
            .collect();
        if paths.is_empty() {
            return None;
        }
        let definitions = referred(&paths, &document["definitions"]);
        let mut digest = Sha512::new();
        for part in [&paths, &definitions] {
            serde_json::to_writer(&mut digest, part).expect("a digest takes everything");
        }
        Some(Described {
            hash: format!("{:X}", digest.finalize()),
            definitions,
            paths,
        })
    }
}

// What is referred to from there, and from that, and so on.
fn referred(paths: &Map<String, Value>, definitions: &Value) -> Map<String, Value> {
    let mut found = Map::new();
    let mut open = BTreeSet::new();
    paths.values().for_each(|item| references(item, &mut open));
    while let Some(name) = open.pop_first() {
        if found.contains_key(&name) || OWN.contains(&name) {
            continue;
        }
        if let Some(definition) = definitions.get(&name) {
            references(definition, &mut open);
            found.insert(name, definition.clone());
        }
    }
    found
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let to = map.get("$ref").and_then(Value::as_str);
            found.extend(to.and_then(|to| to.strip_prefix(PREFIX)).map(str::to_owned));
            map.values().for_each(|below| references(below, found));
        }
        Value::Array(items) => items.iter().for_each(|below| references(below, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_version_has_and_needs_is_taken() {
        let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
        let to = |name: &str| json!({"$ref": format!("{PREFIX}{name}")});
        let document = json!({
            "paths": {
                "/apis/": {"get": {}},
                "/apis/behind.example.com/v1/": {"get": {}},
                "/apis/behind.example.com/v1/gadgets": {"get": {"responses": {"200": {"schema": to("Gadget")}}}},
                "/apis/behind.example.com/v1beta1/gadgets": {"get": {"responses": {"200": {"schema": to("Old")}}}},
            },
            "definitions": {
                "Gadget": {"properties": {"metadata": to(meta), "part": {"items": to("Part")}}},
                "Part": {"properties": {"whole": to("Gadget")}},
                "Old": {}, "Other": {}, (meta): {"description": "theirs"},
            },
        });
        let found = Described::new(&document, "behind.example.com", "v1").expect("there");
        let names: Vec<&String> = found.definitions.keys().collect();
        assert_eq!(names, ["Gadget", "Part"]);
        assert_eq!(found.paths.len(), 2);
        assert_eq!(Described::new(&document, "behind.example.com", "v2"), None);
        let again = Described::new(&document, "behind.example.com", "v1");
        assert_eq!(again, Some(found));
    }
}
