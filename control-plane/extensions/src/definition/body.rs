//! What a version says of its objects: kept compressed, and read when the first object is met.
//!
//! A cluster may have a thousand definitions and use ten of them. A schema as a tree takes twenty times the room of its
//! compressed text, so a tree is only made by whoever needs it: one to prune and validate by, one to merge by, the
//! columns, the rules. Documents are made of the text, which nobody keeps.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::columns::Columns;
use super::{Checked, Rules};
use crate::schema::Node;

/// The body of one version.
#[derive(Debug)]
pub(super) struct Body {
    packed: Packed,
    /// Whether the definition keeps unknown fields everywhere (`spec.preserveUnknownFields`).
    preserves: bool,
    node: OnceLock<Box<Node>>,
    merging: OnceLock<Value>,
    columns: OnceLock<Columns>,
    rules: OnceLock<Option<Arc<dyn Checked>>>,
}

impl Body {
    pub(super) fn read(version: &Value, preserves: bool) -> Body {
        let parts = json!([
            version["schema"]["openAPIV3Schema"],
            version["additionalPrinterColumns"]
        ]);
        Body {
            packed: Packed::new(&parts),
            preserves,
            node: OnceLock::new(),
            merging: OnceLock::new(),
            columns: OnceLock::new(),
            rules: OnceLock::new(),
        }
    }

    /// The schema as it was written.
    pub(super) fn schema(&self) -> Value {
        self.packed.open()[0].take()
    }

    /// What is the same as long as the schema is.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.packed.digest
    }

    /// The tree that objects are walked along.
    pub(super) fn node(&self) -> &Node {
        self.node.get_or_init(|| {
            let mut node = Node::read(&self.schema());
            node.preserves |= self.preserves;
            Box::new(node)
        })
    }

    /// What of the schema says how objects merge.
    pub(super) fn merging(&self) -> &Value {
        self.merging.get_or_init(|| merging(self.schema()))
    }

    pub(super) fn columns(&self) -> &Columns {
        let read = || Columns::read(&self.packed.open()[1]);
        self.columns.get_or_init(read)
    }

    pub(super) fn rules(&self, engine: Option<&Arc<dyn Rules>>) -> Option<&dyn Checked> {
        let compile = || engine.and_then(|engine| engine.compile(&self.schema()));
        self.rules.get_or_init(compile).as_deref()
    }
}

/// A value as compressed text.
#[derive(Debug)]
struct Packed {
    bytes: Box<[u8]>,
    digest: [u8; 32],
}

impl Packed {
    fn new(value: &Value) -> Packed {
        let text = value.to_string();
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(text.as_bytes());
        let bytes = written.and_then(|()| encoder.finish());
        Packed {
            bytes: bytes.expect("memory takes what is written").into(),
            digest: Sha256::digest(&text).into(),
        }
    }

    fn open(&self) -> Value {
        let mut text = Vec::new();
        let read = DeflateDecoder::new(&*self.bytes).read_to_end(&mut text);
        read.expect("it was compressed above");
        serde_json::from_slice(&text).expect("it was written as JSON above")
    }
}

/// The keys that `objects::shape` reads.
const MERGING: [&str; 7] = [
    "type",
    "format",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-map-type",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
];

fn merging(schema: Value) -> Value {
    let Value::Object(schema) = schema else {
        return schema;
    };
    let below = |(name, value): (String, Value)| match (name.as_str(), value) {
        ("properties", Value::Object(all)) => {
            let all = all.into_iter().map(|(name, below)| (name, merging(below)));
            Some((name, Value::Object(all.collect())))
        }
        ("items" | "additionalProperties", value) => Some((name, merging(value))),
        (key, value) => MERGING.contains(&key).then_some((name, value)),
    };
    Value::Object(schema.into_iter().filter_map(below).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_back_as_it_was_and_takes_little_room() {
        let word = "Everything has a description, and most of them are long. ".repeat(200);
        let schema = json!({"type": "object", "description": word, "properties": {
            "description": {"type": "string", "description": "a property of that name"}}});
        let version = json!({"schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}]});
        let body = Body::read(&version, true);
        assert_eq!(body.schema(), schema);
        assert!(body.packed.bytes.len() < word.len() / 20);
        assert!(body.node().preserves);
        assert_eq!(body.columns().all.len(), 2);
        let wanted = json!({"type": "object", "properties": {"description": {"type": "string"}}});
        assert_eq!(*body.merging(), wanted);
        assert_eq!(body.digest(), Body::read(&version, false).digest());
        assert!(body.rules(None).is_none());
    }
}
