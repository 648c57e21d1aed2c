//! What a schema declares, as rules see it, with the sizes that their cost is reckoned from.

use std::sync::Arc;

use cel::shape::{Field, Kind, ListKind, Shape, escaped};
use serde_json::Value;

use super::texts;

/// A character takes four bytes at most.
const CHARACTER: u64 = 4;
/// A day in JSON.
const DATE: u64 = 12;

/// The shape of a schema; nothing where rules can see nothing.
pub(super) fn of(schema: &Value, name: &str, root: bool) -> Option<Arc<Shape>> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(text(schema, Kind::IntOrString));
    }
    let kind = match schema["type"].as_str()? {
        "object" => return object(schema, name, root),
        "array" => return list(schema, name),
        "boolean" => Kind::Bool,
        "integer" => Kind::Int,
        "number" => Kind::Double,
        "string" => match schema["format"].as_str() {
            Some("byte") => return Some(bytes(schema)),
            Some("duration") => Kind::Duration,
            Some("date") => return Some(Shape::sized(Kind::Timestamp, DATE, DATE)),
            Some("date-time") => Kind::Timestamp,
            _ => return Some(text(schema, Kind::String)),
        },
        _ => return None,
    };
    Some(Shape::plain(kind))
}

// As long as it may be, or as the longest of the words that it may be.
fn text(schema: &Value, kind: Kind) -> Arc<Shape> {
    let plain = Shape::plain(kind.clone());
    let words = schema["enum"].as_array().into_iter().flatten();
    let words = words.map(|word| word.as_str().map_or(0, str::len) as u64);
    let longest = words.max().filter(|_| kind == Kind::String);
    let most = bound(schema, "maxLength").map(|most| most.saturating_mul(CHARACTER));
    let most = most.or(longest).unwrap_or(plain.max_elements);
    Shape::sized(kind, most, plain.min_size)
}

fn bytes(schema: &Value) -> Arc<Shape> {
    let plain = Shape::plain(Kind::Bytes);
    let most = bound(schema, "maxLength").unwrap_or(plain.max_elements);
    Shape::sized(Kind::Bytes, most, plain.min_size)
}

/// A bound that a schema gives; those below nothing are nothing.
pub(super) fn bound(schema: &Value, name: &str) -> Option<u64> {
    let given = schema.get(name)?.as_i64()?;
    Some(u64::try_from(given).unwrap_or(0))
}

fn list(schema: &Value, name: &str) -> Option<Arc<Shape>> {
    let items = &schema["items"];
    let embedded = items["x-kubernetes-embedded-resource"] == true;
    let items = of(items, &format!("{name}.@idx"), embedded)?;
    let how = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = texts(&schema["x-kubernetes-list-map-keys"]);
            ListKind::Map(keys.iter().map(|key| Arc::from(key.as_str())).collect())
        }
        _ => ListKind::Atomic,
    };
    Some(Shape::listed(items, how, bound(schema, "maxItems")))
}

fn object(schema: &Value, name: &str, root: bool) -> Option<Arc<Shape>> {
    let additional = &schema["additionalProperties"];
    if additional.is_object() {
        let embedded = additional["x-kubernetes-embedded-resource"] == true;
        let values = of(additional, &format!("{name}.@elem"), embedded)?;
        return Some(Shape::mapped(values, bound(schema, "maxProperties")));
    }
    let required = texts(&schema["required"]);
    let mut least = 2;
    let declared = schema["properties"].as_object().into_iter().flatten();
    let mut fields: Vec<(String, Arc<Shape>)> = Vec::new();
    for (property, below) in declared {
        let embedded = below["x-kubernetes-embedded-resource"] == true;
        let Some(shape) = of(below, &format!("{name}.{property}"), embedded) else {
            continue;
        };
        if required.contains(property) && below.get("default").is_none_or(Value::is_null) {
            // Quotes, a colon and a comma.
            least += property.len() as u64 + shape.min_size + 4;
        }
        fields.push((property.clone(), shape));
    }
    if root || schema["x-kubernetes-embedded-resource"] == true {
        let text = || Shape::plain(Kind::String);
        let metadata = [("name", text()), ("generateName", text())];
        let metadata = Shape::object(&format!("{name}.metadata"), &metadata);
        fields.retain(|(known, _)| !matches!(known.as_str(), "apiVersion" | "kind" | "metadata"));
        fields.push(("apiVersion".into(), text()));
        fields.push(("kind".into(), text()));
        fields.push(("metadata".into(), metadata));
    }
    let fields = fields.into_iter().filter_map(|(json, shape)| {
        let json: Arc<str> = json.into();
        Some((Arc::from(escaped(&json)?), Field { json, shape }))
    });
    let kind = Kind::Object {
        name: name.into(),
        fields: fields.collect(),
    };
    Some(Shape::sized(kind, 0, least))
}
