//! OpenAPI of what definitions have brought: documents beside those of the program, made when asked for and
//! kept for as long as their resources stay the same.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use extensions::openapi::{self as documents, Dialect};
use kinds::resources::Resource;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

/// The documents of custom resources.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// By their place below `/openapi/v3/`.
    groups: BTreeMap<String, Arc<Group>>,
    index: OnceLock<String>,
    v2: OnceLock<Page>,
    v2_protobuf: OnceLock<Page>,
}

/// The custom resources of one group and version.
#[derive(Debug)]
struct Group {
    resources: Vec<Arc<Resource>>,
    page: OnceLock<Page>,
}

/// A document as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// JSON text, or protobuf.
    pub(crate) text: Bytes,
    /// SHA-512 of the text in upper-case hexadecimal.
    pub(crate) hash: String,
}

impl Page {
    fn new(text: Vec<u8>) -> Page {
        Page {
            hash: format!("{:X}", Sha512::digest(&text)),
            text: text.into(),
        }
    }
}

/// What documents of custom resources refer to, out of a built-in one.
static KNOWN: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let document = openapi::document("apis/apps/v1").map(openapi::Document::json);
    let document: Value = document
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let schemas = document
        .pointer("/components/schemas")
        .and_then(Value::as_object);
    let referred = |name: &str| {
        name.starts_with("io.k8s.apimachinery.")
            || name.starts_with("io.k8s.api.autoscaling.v1.Scale")
    };
    let schemas = schemas
        .into_iter()
        .flatten()
        .filter(|(name, _)| referred(name));
    schemas
        .map(|(name, schema)| (name.clone(), schema.clone()))
        .collect()
});

impl Published {
    pub(crate) fn new(resources: &[Arc<Resource>]) -> Published {
        let mut groups: BTreeMap<String, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in resources.iter().filter(|r| r.ty.defined().is_some()) {
            let place = format!("apis/{}", resource.gv);
            groups.entry(place).or_default().push(Arc::clone(resource));
        }
        let groups = groups.into_iter().map(|(place, resources)| {
            let page = OnceLock::new();
            (place, Arc::new(Group { resources, page }))
        });
        Published {
            groups: groups.collect(),
            ..Published::default()
        }
    }

    /// The documents of these resources, those that are the same as before as they were.
    pub(crate) fn renewed(&self, resources: &[Arc<Resource>]) -> Published {
        let mut next = Published::new(resources);
        for (place, group) in &mut next.groups {
            let before = self
                .groups
                .get(place)
                .filter(|before| before.is_of(&group.resources));
            if let Some(before) = before {
                *group = Arc::clone(before);
            }
        }
        next
    }

    /// The OpenAPI v3 document at a place such as `apis/example.com/v1`.
    pub(crate) fn document(&self, place: &str) -> Option<&Page> {
        // What the program documents itself stays as it is.
        self.groups.get(place).map(|group| group.page())
    }

    /// The body of `/openapi/v3`.
    pub(crate) fn index(&self) -> &str {
        self.index.get_or_init(|| {
            let mut index: Value = serde_json::from_str(openapi::index()).unwrap_or_default();
            for (place, group) in &self.groups {
                let address = format!("/openapi/v3/{place}?hash={}", group.page().hash);
                index["paths"][place] = json!({"serverRelativeURL": address});
            }
            index.to_string()
        })
    }

    /// The OpenAPI v2 document of everything; `None` when that is the program's own.
    pub(crate) fn v2(&self) -> Option<&Page> {
        if self.groups.is_empty() {
            return None;
        }
        Some(self.v2.get_or_init(|| Page::new(self.merged())))
    }

    /// The same as protobuf.
    pub(crate) fn v2_protobuf(&self) -> Option<&Page> {
        if self.groups.is_empty() {
            return None;
        }
        let page = self.v2_protobuf.get_or_init(|| {
            let (definitions, paths) = self.parts();
            let new = json!({"definitions": definitions, "paths": paths});
            // Two messages one after the other are one that has the parts of both.
            let mut bytes = openapi::v2_protobuf().json();
            bytes.extend(openapi::gnostic::encode(&new));
            Page::new(bytes)
        });
        Some(page)
    }

    fn parts(&self) -> (Map<String, Value>, Map<String, Value>) {
        let resources = || self.groups.values().flat_map(|group| &group.resources);
        let definitions = resources().flat_map(|r| documents::definitions(r, Dialect::V2));
        let paths = resources().flat_map(|r| documents::paths(r, Dialect::V2));
        (definitions.collect(), paths.collect())
    }

    // The document of the program is large and never changes: what is new is put into its text.
    fn merged(&self) -> Vec<u8> {
        let mut text = String::from_utf8(openapi::v2().json()).unwrap_or_default();
        let (definitions, paths) = self.parts();
        insert(&mut text, "\"definitions\":{", definitions);
        // A property of that name is no path: those begin with a slash.
        insert(&mut text, "\"paths\":{\"/", paths);
        text.into_bytes()
    }
}

// Puts members into the object that a text opens, before the others.
fn insert(text: &mut String, opening: &str, members: Map<String, Value>) {
    let Some(at) = text.find(opening).filter(|_| !members.is_empty()) else {
        return;
    };
    let at = at + opening.find('{').unwrap_or(0) + 1;
    let members = Value::Object(members).to_string();
    let inside = &members[1..members.len() - 1];
    text.insert_str(at, &format!("{inside},"));
}

impl Group {
    fn is_of(&self, resources: &[Arc<Resource>]) -> bool {
        let same = |(a, b): (&Arc<Resource>, &Arc<Resource>)| Arc::ptr_eq(a, b);
        self.resources.len() == resources.len() && self.resources.iter().zip(resources).all(same)
    }

    fn page(&self) -> &Page {
        self.page.get_or_init(|| {
            let resources: Vec<&Resource> = self.resources.iter().map(|r| &**r).collect();
            Page::new(documents::v3(&resources, &KNOWN).to_string().into_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_put_where_their_object_begins() {
        let mut text = r#"{"definitions":{"a":1},"paths":{"/x":2}}"#.to_owned();
        let members: Map<String, Value> = [("b".to_owned(), json!(3))].into_iter().collect();
        insert(&mut text, "\"definitions\":{", members.clone());
        insert(&mut text, "\"paths\":{\"/", members);
        let merged: Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(
            merged,
            json!({"definitions": {"a": 1, "b": 3}, "paths": {"/x": 2, "b": 3}})
        );
    }

    #[test]
    fn the_programs_document_has_the_places() {
        let text = String::from_utf8(openapi::v2().json()).expect("text");
        assert!(text.contains("\"paths\":{\"/") && text.contains("\"definitions\":{"));
        assert!(KNOWN.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    }
}
