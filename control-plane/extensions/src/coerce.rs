//! What a definition makes of an object: fields it does not know go, nulls that mean nothing go, embedded
//! resources and metadata get their own types, and defaults are filled in.
//!
//! The order is upstream's (`schemaCoercingDecoder`, `structuraldefaulting`): prune, drop nulls, coerce what
//! is embedded, put the metadata back, default.

use objects::normalize::{self, Normalized, TypeError};
use objects::schema as types;
use serde_json::{Map, Value};

use crate::schema::{Additional, Node};

/// Fields that every resource has, whatever its schema says.
const OWN: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Upstream stops counting unknown fields here.
const MAX_UNKNOWN: usize = 100;

/// What happens to metadata that is not metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A client is told.
    Request,
    /// What is stored already is made to fit.
    Storage,
}

/// Brings an object into the form its schema gives it, defaults aside.
pub fn normalize(node: &Node, object: Value, source: Source) -> Result<Normalized, TypeError> {
    let Value::Object(mut map) = object else {
        return Ok(Normalized {
            value: Value::Object(Map::new()),
            unknown: Vec::new(),
        });
    };
    let mut walk = Walk {
        unknown: Vec::new(),
        source,
    };
    let own = OWN.map(|name| map.remove(name).map(|value| (name, value)));
    walk.object(node, &mut map, "", false)?;
    for (name, value) in own.into_iter().flatten() {
        map.insert(name.to_owned(), value);
    }
    walk.metadata(&mut map, "")?;
    Ok(Normalized {
        value: Value::Object(map),
        unknown: walk
            .unknown
            .iter()
            .map(|at| format!("unknown field {at:?}"))
            .collect(),
    })
}

struct Walk {
    unknown: Vec<String>,
    source: Source,
}

impl Walk {
    fn value(
        &mut self,
        node: &Node,
        value: &mut Value,
        at: &str,
        keeps: bool,
    ) -> Result<(), TypeError> {
        match value {
            Value::Object(map) if node.embedded => self.embedded(node, map, at, keeps),
            Value::Object(map) => self.object(node, map, at, keeps),
            Value::Array(items) => {
                let keeps = keeps || node.preserves;
                let (free, below) = (Node::default(), node.items.as_deref());
                for (i, item) in items.iter_mut().enumerate() {
                    self.value(below.unwrap_or(&free), item, &format!("{at}[{i}]"), keeps)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    // Under a node that keeps what it does not know, what it does know is still cut down by its own schema.
    fn object(
        &mut self,
        node: &Node,
        map: &mut Map<String, Value>,
        at: &str,
        keeps: bool,
    ) -> Result<(), TypeError> {
        let keeps = keeps || node.preserves || node.int_or_string;
        let allowed = keeps || matches!(node.additional, Additional::Allowed(true));
        let mut dropped = Vec::new();
        for (key, value) in map.iter_mut() {
            match node.entry(key) {
                Some(below) if value.is_null() && !below.nullable && below.default.is_none() => {
                    dropped.push(key.clone());
                }
                Some(below) => self.value(below, value, &child(at, key), false)?,
                None if allowed => {}
                None => {
                    dropped.push(key.clone());
                    self.note(child(at, key));
                }
            }
        }
        for key in dropped {
            map.remove(&key);
        }
        Ok(())
    }

    fn embedded(
        &mut self,
        node: &Node,
        map: &mut Map<String, Value>,
        at: &str,
        keeps: bool,
    ) -> Result<(), TypeError> {
        let own = OWN.map(|name| map.remove(name).map(|value| (name, value)));
        self.object(node, map, at, keeps)?;
        for (name, value) in own.into_iter().flatten() {
            let is_text = value.is_string() || name == "metadata";
            if is_text || self.source == Source::Request {
                map.insert(name.to_owned(), value);
            }
        }
        self.metadata(map, at)
    }

    fn metadata(&mut self, map: &mut Map<String, Value>, at: &str) -> Result<(), TypeError> {
        let Some(metadata) = map.remove("metadata") else {
            return Ok(());
        };
        if metadata.is_null() && !at.is_empty() {
            return Ok(());
        }
        match typed_metadata(metadata) {
            Ok((metadata, unknown)) => {
                for field in unknown {
                    self.note(child(at, &field));
                }
                map.insert("metadata".to_owned(), metadata);
                Ok(())
            }
            Err(_) if self.source == Source::Storage => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn note(&mut self, at: String) {
        if self.unknown.len() < MAX_UNKNOWN && !self.unknown.contains(&at) {
            self.unknown.push(at);
        }
    }
}

// Metadata as its own type prints it, and the fields that the type does not have.
fn typed_metadata(metadata: Value) -> Result<(Value, Vec<String>), TypeError> {
    let ty = types::lookup("meta.v1.PartialObjectMetadata").expect("in the table of types");
    let normal = normalize::normalize(ty, serde_json::json!({ "metadata": metadata }))?;
    let unknown = normal.unknown.iter().filter_map(|text| {
        let quoted = text.strip_prefix("unknown field \"")?;
        Some(quoted.strip_suffix('"')?.to_owned())
    });
    let unknown = unknown.collect();
    let mut value = normal.value;
    let mut metadata = value["metadata"].take();
    // Nobody has set it, and unstructured objects do not show what nobody has set.
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|name, value| name != "creationTimestamp" || !value.is_null());
    }
    Ok((metadata, unknown))
}

/// Fills in the defaults of an object.
pub fn default(node: &Node, value: &mut Value) {
    if !node.has_defaults {
        return;
    }
    match value {
        Value::Object(map) => {
            for (name, below) in &node.properties {
                if let Some(default) = &below.default {
                    let missing = map.get(name).is_none_or(|v| v.is_null() && !below.nullable);
                    if missing {
                        map.insert(name.clone(), default.clone());
                    }
                }
                if below.has_defaults
                    && let Some(value) = map.get_mut(name)
                {
                    self::default(below, value);
                }
            }
            if let Additional::Schema(below) = &node.additional {
                let others = map
                    .iter_mut()
                    .filter(|(name, _)| node.property(name).is_none());
                others.for_each(|(_, value)| element(below, value));
            }
        }
        Value::Array(items) => {
            if let Some(below) = &node.items {
                items.iter_mut().for_each(|item| element(below, item));
            }
        }
        _ => {}
    }
}

fn element(node: &Node, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, node.nullable, &node.default) {
        *value = default.clone();
    }
    default(node, value);
}

fn child(at: &str, key: &str) -> String {
    match at {
        "" => key.to_owned(),
        at => format!("{at}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pruned(schema: Value, object: Value) -> (Value, Vec<String>) {
        let normal = normalize(&Node::read(&schema), object, Source::Request).expect("fits");
        (normal.value, normal.unknown)
    }

    #[test]
    fn what_a_schema_does_not_know_goes_and_is_named() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"known": {"type": "object", "properties": {"x": {"type": "string"}}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "any": {"type": "object", "additionalProperties": true},
        }}}});
        let object = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "odd": 1}, "top": 1,
            "spec": {"a": "1", "b": 2, "free": {"y": 1, "known": {"x": "1", "z": 1}},
                "map": {"m": {"k": "1", "l": 1}}, "list": [{"n": 1, "o": 1}], "any": {"thing": {"deep": 1}}}});
        let (value, unknown) = pruned(schema, object);
        assert_eq!(
            value["spec"],
            json!({"a": "1", "free": {"y": 1, "known": {"x": "1"}}, "map": {"m": {"k": "1"}},
                "list": [{"n": 1}], "any": {"thing": {"deep": 1}}})
        );
        assert_eq!(value["metadata"], json!({"name": "n"}));
        let mut unknown = unknown;
        unknown.sort();
        let wanted = [
            "metadata.odd",
            "spec.b",
            "spec.free.known.z",
            "spec.list[0].o",
            "spec.map.m.l",
            "top",
        ];
        assert_eq!(unknown, wanted.map(|at| format!("unknown field {at:?}")));
    }

    #[test]
    fn nulls_are_kept_dropped_or_replaced_as_the_schema_says() {
        let schema = json!({"type": "object", "properties": {
            "kept": {"type": "string", "nullable": true},
            "dropped": {"type": "string"},
            "filled": {"type": "string", "default": "d"},
            "both": {"type": "string", "nullable": true, "default": "d"},
            "list": {"type": "array", "items": {"type": "string"}},
        }});
        let node = Node::read(&schema);
        let object =
            json!({"kept": null, "dropped": null, "filled": null, "both": null, "list": [null]});
        let mut value = normalize(&node, object, Source::Request)
            .expect("fits")
            .value;
        default(&node, &mut value);
        assert_eq!(
            value,
            json!({"kept": null, "filled": "d", "both": null, "list": [null]})
        );
    }

    #[test]
    fn defaults_reach_what_is_there_and_what_they_bring() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {
            "replicas": {"type": "integer", "default": 1},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"protocol": {"type": "string", "default": "TCP"}}}},
            "by": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": {"type": "integer", "default": 5}}}},
        }}}});
        let node = Node::read(&schema);
        let mut value = json!({});
        default(&node, &mut value);
        assert_eq!(value, json!({"spec": {"replicas": 1}}));
        let mut value = json!({"spec": {"replicas": 3, "ports": [{}], "by": {"a": {}}}});
        default(&node, &mut value);
        let wanted =
            json!({"spec": {"replicas": 3, "ports": [{"protocol": "TCP"}], "by": {"a": {"n": 5}}}});
        assert_eq!(value, wanted);
        let again = value.clone();
        default(&node, &mut value);
        assert_eq!(value, again, "applied again it changes nothing");
    }

    #[test]
    fn an_embedded_resource_has_metadata_of_its_own() {
        let schema = json!({"type": "object", "properties": {"template": {"type": "object",
            "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}});
        let object = json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "b": 1}, "other": 1}});
        let (value, unknown) = pruned(schema.clone(), object);
        assert_eq!(
            value["template"],
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
        );
        assert!(unknown.contains(&"unknown field \"template.metadata.b\"".to_owned()));
        let broken =
            json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 1}}});
        let node = Node::read(&schema);
        assert!(normalize(&node, broken.clone(), Source::Request).is_err());
        let stored = normalize(&node, broken, Source::Storage).expect("made to fit");
        assert!(stored.value["template"].get("metadata").is_none());
    }
}
