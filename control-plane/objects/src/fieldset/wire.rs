//! The `fieldsV1` form: `{"f:spec": {"f:replicas": {}}}`.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::{FieldSet, Literal, PathElement};

/// Why a `fieldsV1` value is none.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum FieldsError {
    /// A level of the tree is not an object.
    #[error("expected a map of path elements")]
    NotAMap,
    /// A key is too short to hold a kind.
    #[error("parsing key as path element: key must be 2 characters long:")]
    TooShort,
    /// A key has no colon after its kind.
    #[error("parsing key as path element: missing colon: {0}")]
    MissingColon(String),
    /// The value, key fields or index after the colon cannot be read.
    #[error("parsing key as path element: {0}")]
    BadContent(String),
}

impl FieldSet {
    /// Reads a `fieldsV1` value. Kinds of path elements nobody knows are dropped, as upstream does.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        match fields {
            Value::Null => Ok(Self::default()),
            Value::Object(map) => Ok(read_level(map)?.0.unwrap_or_default()),
            _ => Err(FieldsError::NotAMap),
        }
    }

    /// The set as a `fieldsV1` value.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.level(false))
    }

    /// The set as upstream's exact `fieldsV1` text, elements in canonical order.
    pub fn to_fields_v1_text(&self) -> String {
        serde_json::to_string(self).expect("a set holds nothing JSON cannot")
    }

    fn level(&self, is_member: bool) -> Map<String, Value> {
        let empty = || Value::Object(Map::new());
        let mut out = Map::new();
        if is_member {
            out.insert(".".to_owned(), empty());
        }
        out.extend(self.members.iter().map(|member| (text(member), empty())));
        for (element, child) in &self.children {
            let child = child.level(self.members.contains(element));
            out.insert(text(element), Value::Object(child));
        }
        out
    }
}

/// One level of the canonical text: the set below a path, and whether that path is a member.
struct Level<'s> {
    set: Option<&'s FieldSet>,
    is_member: bool,
}

impl Serialize for FieldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Level {
            set: Some(self),
            is_member: false,
        }
        .serialize(serializer)
    }
}

impl Serialize for Level<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(set) = self.set else {
            return serializer.serialize_map(Some(0))?.end();
        };
        let mut map = serializer.serialize_map(None)?;
        if self.is_member {
            map.serialize_entry(
                ".",
                &Level {
                    set: None,
                    is_member: false,
                },
            )?;
        }
        let mut levels: BTreeMap<_, _> = set
            .children
            .iter()
            .map(|(e, child)| (e, (Some(child), false)))
            .collect();
        for member in &set.members {
            levels.entry(member).or_insert((None, true)).1 = true;
        }
        for (element, (set, is_member)) in levels {
            map.serialize_entry(&text(element), &Level { set, is_member })?;
        }
        map.end()
    }
}

// A level is the set below a path, and whether the path itself is a member. A path without
// anything below it is a member even without the dot.
fn read_level(map: &Map<String, Value>) -> Result<(Option<FieldSet>, bool), FieldsError> {
    let mut set: Option<FieldSet> = None;
    for (key, value) in map.iter().filter(|(key, _)| *key != ".") {
        let Some(element) = parse(key)? else { continue };
        let (below, is_member) = match value {
            Value::Null => (None, true),
            Value::Object(map) => read_level(map)?,
            _ => return Err(FieldsError::NotAMap),
        };
        let set = set.get_or_insert_default();
        if is_member {
            set.members.insert(element.clone());
        }
        if let Some(below) = below {
            set.children.insert(element, below);
        }
    }
    let is_member = set.is_none() || map.contains_key(".");
    Ok((set, is_member))
}

/// Reads one key; `None` for a kind of element this version does not know.
fn parse(key: &str) -> Result<Option<PathElement>, FieldsError> {
    if key.len() < 2 {
        return Err(FieldsError::TooShort);
    }
    let (kind, content) = match key.split_once(':') {
        Some((kind, content)) if kind.len() == 1 => (kind, content),
        _ => return Err(FieldsError::MissingColon(key.to_owned())),
    };
    let bad = |e: &dyn std::fmt::Display| FieldsError::BadContent(e.to_string());
    Ok(Some(match kind {
        "f" => PathElement::Field(content.to_owned()),
        "v" => PathElement::Value(Literal(serde_json::from_str(content).map_err(|e| bad(&e))?)),
        "i" => PathElement::Index(content.parse().map_err(|e| bad(&e))?),
        "k" => {
            let fields: Map<String, Value> = serde_json::from_str(content).map_err(|e| bad(&e))?;
            PathElement::key(fields.into_iter().map(|(k, v)| (k, Literal(v))).collect())
        }
        _ => return Ok(None),
    }))
}

fn text(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Value(value) => format!("v:{}", json_text(&value.0)),
        PathElement::Index(at) => format!("i:{at}"),
        PathElement::Key(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(k, v)| {
                    format!(
                        "{}:{}",
                        json_text(&Value::from(k.as_str())),
                        json_text(&v.0)
                    )
                })
                .collect();
            format!("k:{{{}}}", fields.join(","))
        }
    }
}

// Upstream's encoder escapes what would matter inside HTML; the text is an identity, so we do too.
fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}
