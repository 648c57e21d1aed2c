//! OpenAPI of what definitions have brought: documents beside those of the program, made when asked for and
//! kept, compressed, for as long as their resources stay the same.
//!
//! The document of everything (v2) is the program's own with parts put into it, one for each group and version, so that a
//! definition more costs its own group.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use extensions::openapi::{self as documents, Dialect};
use kinds::resources::Resource;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

use super::packing::{self, Part};
use crate::outward::aggregation::openapi::Described;

/// The documents of custom resources.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// By their place below `/openapi/v3/`.
    groups: BTreeMap<String, Arc<Group>>,
    /// What servers behind this one say of theirs.
    remotes: Vec<Remote>,
    index: OnceLock<String>,
    v2: OnceLock<Page>,
    v2_protobuf: OnceLock<Page>,
}

/// The custom resources of one group and version.
#[derive(Debug)]
struct Group {
    resources: Vec<Arc<Resource>>,
    hash: OnceLock<String>,
    page: OnceLock<Page>,
    v2: OnceLock<Additions>,
    v2_protobuf: OnceLock<Part>,
}

/// A version that another server serves.
#[derive(Debug, Clone)]
struct Remote {
    described: Arc<Described>,
    v2: Arc<OnceLock<Additions>>,
    v2_protobuf: Arc<OnceLock<Part>>,
}

/// What is put into the program's own document.
#[derive(Debug)]
struct Additions {
    definitions: Part,
    paths: Part,
}

/// A document as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// JSON text, or protobuf, compressed with gzip.
    pub(crate) gzip: Bytes,
    /// Another when the text is another: a digest of what it is made of, in upper-case hexadecimal.
    pub(crate) hash: String,
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

/// The program's own document, cut where definitions and paths begin.
static OWN: LazyLock<[Part; 3]> = LazyLock::new(|| {
    let text = String::from_utf8(openapi::v2().json()).unwrap_or_default();
    let after = |opening: &str| {
        let at = text.find(opening).unwrap_or_default();
        at + opening.find('{').unwrap_or_default() + 1
    };
    // A property of that name is no path: those begin with a slash.
    let (definitions, paths) = (after("\"definitions\":{"), after("\"paths\":{\"/"));
    let parts = [
        &text[..definitions],
        &text[definitions..paths],
        &text[paths..],
    ];
    parts.map(|part| Part::new(part.as_bytes()))
});

static OWN_PROTOBUF: LazyLock<Part> = LazyLock::new(|| Part::new(&openapi::v2_protobuf().json()));

impl Published {
    pub(crate) fn new(resources: &[Arc<Resource>], remotes: Vec<Arc<Described>>) -> Published {
        let mut groups: BTreeMap<String, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in resources.iter().filter(|r| r.ty.defined().is_some()) {
            let place = format!("apis/{}", resource.gv);
            groups.entry(place).or_default().push(Arc::clone(resource));
        }
        let groups = groups
            .into_iter()
            .map(|(place, resources)| (place, Arc::new(Group::new(resources))));
        let remote = |described| Remote {
            described,
            v2: Arc::default(),
            v2_protobuf: Arc::default(),
        };
        Published {
            groups: groups.collect(),
            remotes: remotes.into_iter().map(remote).collect(),
            ..Published::default()
        }
    }

    /// The documents of these resources, those that are the same as before as they were.
    pub(crate) fn renewed(
        &self,
        resources: &[Arc<Resource>],
        remotes: Vec<Arc<Described>>,
    ) -> Published {
        let mut next = Published::new(resources, remotes);
        for remote in &mut next.remotes {
            let mut before = self.remotes.iter();
            if let Some(before) = before.find(|b| b.described == remote.described) {
                *remote = before.clone();
            }
        }
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
                let address = format!("/openapi/v3/{place}?hash={}", group.hash());
                index["paths"][place] = json!({"serverRelativeURL": address});
            }
            index.to_string()
        })
    }

    /// The OpenAPI v2 document of everything; `None` when that is the program's own.
    pub(crate) fn v2(&self) -> Option<&Page> {
        if self.is_empty() {
            return None;
        }
        let page = self.v2.get_or_init(|| {
            let all = || {
                let groups = self.groups.values().map(|group| group.v2());
                groups.chain(self.remotes.iter().map(Remote::v2))
            };
            let [before, between, after] = &*OWN;
            let parts = std::iter::once(before)
                .chain(all().map(|added| &added.definitions))
                .chain([between])
                .chain(all().map(|added| &added.paths))
                .chain([after]);
            self.page(openapi::v2().hash, packing::gzip(parts))
        });
        Some(page)
    }

    /// The same as protobuf: messages one after the other are one that has the parts of all.
    pub(crate) fn v2_protobuf(&self) -> Option<&Page> {
        if self.is_empty() {
            return None;
        }
        let page = self.v2_protobuf.get_or_init(|| {
            let groups = self.groups.values().map(|group| group.v2_protobuf());
            let all = groups.chain(self.remotes.iter().map(Remote::v2_protobuf));
            let parts = std::iter::once(&*OWN_PROTOBUF).chain(all);
            self.page(openapi::v2_protobuf().hash, packing::gzip(parts))
        });
        Some(page)
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.remotes.is_empty()
    }

    fn page(&self, own: &str, gzip: Bytes) -> Page {
        let remotes = self.remotes.iter().map(|remote| &*remote.described.hash);
        let hashes = self
            .groups
            .values()
            .map(|group| group.hash())
            .chain(remotes);
        Page {
            hash: hash(std::iter::once(own).chain(hashes)),
            gzip,
        }
    }
}

fn hash(parts: impl Iterator<Item = impl AsRef<[u8]>>) -> String {
    let mut digest = Sha512::new();
    for part in parts {
        digest.update(part.as_ref());
        digest.update([0]);
    }
    format!("{:X}", digest.finalize())
}

impl Group {
    fn new(resources: Vec<Arc<Resource>>) -> Group {
        Group {
            resources,
            hash: OnceLock::new(),
            page: OnceLock::new(),
            v2: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
        }
    }

    fn is_of(&self, resources: &[Arc<Resource>]) -> bool {
        let same = |(a, b): (&Arc<Resource>, &Arc<Resource>)| Arc::ptr_eq(a, b);
        self.resources.len() == resources.len() && self.resources.iter().zip(resources).all(same)
    }

    /// Of everything that the documents show.
    fn hash(&self) -> &str {
        self.hash
            .get_or_init(|| hash(self.resources.iter().map(|r| shown(r))))
    }

    fn page(&self) -> &Page {
        self.page.get_or_init(|| {
            let resources: Vec<&Resource> = self.resources.iter().map(|r| &**r).collect();
            let text = documents::v3(&resources, &KNOWN).to_string();
            Page {
                gzip: packing::gzip(std::iter::once(&Part::new(text.as_bytes()))),
                hash: self.hash().to_owned(),
            }
        })
    }

    fn v2(&self) -> &Additions {
        self.v2.get_or_init(|| {
            let (mut definitions, mut paths) = (String::new(), String::new());
            for resource in &self.resources {
                let (types, places) = parts(resource);
                add(&mut definitions, &types);
                add(&mut paths, &places);
            }
            Additions::new(&definitions, &paths)
        })
    }

    fn v2_protobuf(&self) -> &Part {
        self.v2_protobuf.get_or_init(|| {
            let all = self.resources.iter().flat_map(|resource| {
                let (definitions, paths) = parts(resource);
                openapi::gnostic::encode(&json!({"definitions": definitions, "paths": paths}))
            });
            Part::new(&all.collect::<Vec<u8>>())
        })
    }
}

impl Additions {
    fn new(definitions: &str, paths: &str) -> Additions {
        Additions {
            definitions: Part::new(definitions.as_bytes()),
            paths: Part::new(paths.as_bytes()),
        }
    }
}

impl Remote {
    fn v2(&self) -> &Additions {
        self.v2.get_or_init(|| {
            let (mut definitions, mut paths) = (String::new(), String::new());
            add(&mut definitions, &self.described.definitions);
            add(&mut paths, &self.described.paths);
            Additions::new(&definitions, &paths)
        })
    }

    fn v2_protobuf(&self) -> &Part {
        self.v2_protobuf.get_or_init(|| {
            let (definitions, paths) = (&self.described.definitions, &self.described.paths);
            let both = json!({"definitions": definitions, "paths": paths});
            Part::new(&openapi::gnostic::encode(&both))
        })
    }
}

fn parts(resource: &Resource) -> (Map<String, Value>, Map<String, Value>) {
    let definitions = documents::definitions(resource, Dialect::V2);
    (definitions, documents::paths(resource, Dialect::V2))
}

// Members as they stand before others in an object's text.
fn add(text: &mut String, members: &Map<String, Value>) {
    for (name, value) in members {
        // Writing into a text does not fail.
        let _ = write!(text, "{}:{value},", Value::String(name.clone()));
    }
}

fn shown(resource: &Resource) -> Vec<u8> {
    let below: Vec<&str> = resource.subresources.iter().map(|sub| sub.name).collect();
    let names = [
        resource.plural,
        resource.kind,
        resource.list_kind,
        if resource.namespaced {
            "namespaced"
        } else {
            ""
        },
        &below.join(","),
    ];
    let digest = resource.ty.defined().map(|d| d.digest());
    let mut shown = names.join("/").into_bytes();
    shown.extend(digest.unwrap_or_default());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lamps() -> Vec<Arc<Resource>> {
        let names =
            json!({"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"});
        let schema = json!({"openAPIV3Schema": {"type": "object", "description": "shines"}});
        let definition = json!({
            "metadata": {"name": "lamps.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
            "status": {"acceptedNames": names, "conditions": [{"type": "NamesAccepted", "status": "True"}]},
        });
        extensions::Definitions::default().read(&definition)
    }

    #[test]
    fn a_custom_resource_is_put_into_the_document_of_everything() {
        let published = Published::new(&lamps(), Vec::new());
        let page = published.v2().expect("there is something to say");
        let text: Vec<Bytes> = packing::unpacked(page.gzip.clone()).collect();
        let merged: Value = serde_json::from_slice(&text.concat()).expect("still JSON");
        let own: Value = serde_json::from_slice(&openapi::v2().json()).expect("JSON");
        let definition = &merged["definitions"]["com.example.v1.Lamp"];
        assert_eq!(definition["description"], "shines");
        assert!(merged["paths"]["/apis/example.com/v1/lamps"]["get"].is_object());
        for part in ["definitions", "paths"] {
            let all = own[part].as_object().expect("an object");
            let kept = all.iter().all(|(name, value)| merged[part][name] == *value);
            assert!(kept, "what the program has in {part} is there as it was");
        }
        assert!(KNOWN.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    }

    #[test]
    fn documents_stay_while_their_resources_do() {
        let lamps = lamps();
        let first = Published::new(&lamps, Vec::new());
        let page = first.document("apis/example.com/v1").expect("published");
        let second = first.renewed(&lamps, Vec::new());
        let again = second.document("apis/example.com/v1").expect("published");
        assert_eq!(page.gzip.as_ptr(), again.gzip.as_ptr());
        assert!(first.index().contains(&page.hash));
        assert!(Published::new(&[], Vec::new()).v2().is_none());
        let document = json!({"paths": {"/apis/behind.example.com/v1/gadgets": {"get": {}}}});
        let remote = Described::new(&document, "behind.example.com", "v1").map(Arc::new);
        let remotes = || remote.clone().into_iter().collect();
        let third = Published::new(&[], remotes());
        let text = |page: &Page| {
            packing::unpacked(page.gzip.clone())
                .collect::<Vec<_>>()
                .concat()
        };
        let merged: Value =
            serde_json::from_slice(&text(third.v2().expect("theirs"))).expect("JSON");
        assert!(merged["paths"]["/apis/behind.example.com/v1/gadgets"].is_object());
        let fourth = third.renewed(&[], remotes());
        assert!(Arc::ptr_eq(&third.remotes[0].v2, &fourth.remotes[0].v2));
    }
}
