//! Every key that a document sets twice in one mapping, in the words clients know.
//!
//! The reader stops at the first duplicate, and upstream's names them all. So a document that is
//! known to have one is read again into a tree that forgets nothing.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Spanned};

enum Node {
    Leaf,
    List(Vec<Node>),
    Map(Vec<(String, Spanned<Node>)>),
}

/// One message about all duplicates of a document, if it has any and can be read.
pub(super) fn find(text: &str) -> Option<String> {
    let options = super::options(DuplicateKeyPolicy::LastWins);
    let root = serde_saphyr::from_str_with_options::<Node>(text, options).ok()?;
    let mut lines = String::new();
    collect(&root, &mut lines);
    (!lines.is_empty()).then(|| format!("yaml: unmarshal errors:{lines}"))
}

// A duplicate is found when it is set, after everything below it, and its value's line is named.
fn collect(node: &Node, lines: &mut String) {
    match node {
        Node::Leaf => {}
        Node::List(items) => items.iter().for_each(|item| collect(item, lines)),
        Node::Map(entries) => {
            let mut seen = BTreeSet::new();
            for (key, value) in entries {
                collect(&value.value, lines);
                if !seen.insert(key) {
                    let line = value.referenced.line();
                    lines.push_str(&format!("\n  line {line}: key {key:?} already set in map"));
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! leaves {
    ($($visit:ident: $ty:ty),*) => {
        $(fn $visit<E>(self, _: $ty) -> Result<Node, E> {
            Ok(Node::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128,
        visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Node, D::Error> {
        IgnoredAny::deserialize(inner).map(|_| Node::Leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }
}
