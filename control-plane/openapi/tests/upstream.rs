//! The documents against those of a real server, when `KYANITE_FIXTURES` names the directory of
//! the recorded ones.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Keys that upstream has and we leave out: we do not serve CBOR.
const LEFT_OUT: [&str; 3] = [
    "application/apply-patch+cbor",
    "application/cbor",
    "application/cbor-seq",
];

/// The directory of recorded documents; `None`, and a word about it, when it is not given.
fn recorded() -> Option<PathBuf> {
    let Some(directory) = std::env::var_os("KYANITE_FIXTURES") else {
        eprintln!("SKIPPED: KYANITE_FIXTURES not set, nothing to compare the documents with");
        return None;
    };
    Some(Path::new(&directory).join("kubernetes-1.36/openapi-v3"))
}

fn file_name(path: &str) -> String {
    format!("{}_openapi.json", path.replace('/', "__"))
}

/// The document without what may differ: sentences (operations and parameters have our own, lists
/// and watch events partly) and [`LEFT_OUT`].
fn comparable(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, inner)| {
                let is_sentence = key == "description" && inner.is_string();
                !is_sentence && !LEFT_OUT.contains(&key.as_str())
            });
            Value::Object(kept.map(|(key, inner)| (key, comparable(inner))).collect())
        }
        Value::Array(list) => list.into_iter().map(comparable).collect(),
        other => other,
    }
}

fn differences(at: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().filter(|key| !b.contains_key(*key)) {
                found.push(format!("{at}/{key}: only ours"));
            }
            for (key, theirs) in b {
                match a.get(key) {
                    Some(ours) => differences(&format!("{at}/{key}"), ours, theirs, found),
                    None => found.push(format!("{at}/{key}: only upstream's")),
                }
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{at}: {ours} instead of {theirs}")),
    }
}

/// Schema names, properties, references, required fields, defaults and extensions; paths,
/// operations, their ids, actions, parameters, bodies and answers: all as upstream has them.
#[test]
fn every_document_is_shaped_like_upstreams() {
    let Some(directory) = recorded() else { return };
    let mut found = Vec::new();
    for document in openapi::documents() {
        let text = std::fs::read(directory.join(file_name(document.path))).unwrap();
        let theirs = comparable(serde_json::from_slice(&text).unwrap());
        let ours = comparable(serde_json::from_slice(&document.json()).unwrap());
        differences(document.path, &ours, &theirs, &mut found);
    }
    assert!(
        found.is_empty(),
        "{} differences:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Field by field, `kubectl explain` says what it says of a real cluster.
#[test]
fn types_are_described_as_upstream_describes_them() {
    let Some(directory) = recorded() else { return };
    let mut found = Vec::new();
    for document in openapi::documents() {
        let text = std::fs::read(directory.join(file_name(document.path))).unwrap();
        let theirs: Value = serde_json::from_slice(&text).unwrap();
        let ours: Value = serde_json::from_slice(&document.json()).unwrap();
        let schemas = ours["components"]["schemas"]
            .as_object()
            .into_iter()
            .flatten();
        for (name, schema) in schemas.filter(|(name, _)| !has_our_own_words(name)) {
            let published = &theirs["components"]["schemas"][name];
            compare_sentences(name, schema, published, &mut found);
        }
    }
    assert!(
        found.is_empty(),
        "{} differences:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Our source of sentences has none about lists, and those about watch events in another place.
fn has_our_own_words(type_name: &str) -> bool {
    let meta = type_name.contains(".meta.v1.");
    (type_name.ends_with("List") && !meta) || type_name.ends_with(".WatchEvent")
}

fn compare_sentences(name: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    if ours["description"] != theirs["description"] {
        found.push(name.to_owned());
    }
    for (field, property) in ours["properties"].as_object().into_iter().flatten() {
        if property["description"] != theirs["properties"][field]["description"] {
            found.push(format!("{name}.{field}"));
        }
    }
}

/// No group version of general availability is missing.
#[test]
fn every_stable_document_of_upstream_has_one_of_ours() {
    let Some(directory) = recorded() else { return };
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = name.trim_end_matches("_openapi.json").replace("__", "/");
        let version = path.rsplit('/').next().unwrap_or_default();
        let is_stable = version
            .strip_prefix('v')
            .is_some_and(|n| n.parse::<u8>().is_ok());
        if is_stable {
            assert!(openapi::document(&path).is_some(), "{path}");
        }
    }
}
