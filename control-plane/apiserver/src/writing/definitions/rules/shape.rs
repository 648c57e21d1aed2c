//! What a schema declares, as rules see it.

use std::sync::Arc;

use cel::shape::{Field, Kind, ListKind, Shape, escaped};
use serde_json::Value;

use super::texts;

/// The shape of a schema; nothing where rules can see nothing.
pub(super) fn of(schema: &Value, name: &str, root: bool) -> Option<Arc<Shape>> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(Shape::plain(Kind::IntOrString));
    }
    let kind = match schema["type"].as_str()? {
        "object" => return object(schema, name, root),
        "array" => return list(schema, name),
        "boolean" => Kind::Bool,
        "integer" => Kind::Int,
        "number" => Kind::Double,
        "string" => match schema["format"].as_str() {
            Some("byte") => Kind::Bytes,
            Some("duration") => Kind::Duration,
            Some("date" | "date-time" | "datetime") => Kind::Timestamp,
            _ => Kind::String,
        },
        _ => return None,
    };
    Some(Shape::plain(kind))
}

fn list(schema: &Value, name: &str) -> Option<Arc<Shape>> {
    let items = of(&schema["items"], &format!("{name}.@idx"), false)?;
    let how = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = texts(&schema["x-kubernetes-list-map-keys"]);
            ListKind::Map(keys.iter().map(|key| Arc::from(key.as_str())).collect())
        }
        _ => ListKind::Atomic,
    };
    let most = schema["maxItems"].as_u64();
    let mut shape = Shape::clone(&Shape::list(Arc::clone(&items)));
    shape.kind = Kind::List { items, how };
    shape.max_elements = most.unwrap_or(shape.max_elements);
    Some(Arc::new(shape))
}

fn object(schema: &Value, name: &str, root: bool) -> Option<Arc<Shape>> {
    let additional = &schema["additionalProperties"];
    if additional.is_object() {
        let values = of(additional, &format!("{name}.@elem"), false)?;
        return Some(Shape::map(values));
    }
    let declared = schema["properties"].as_object().into_iter().flatten();
    let mut fields: Vec<(String, Arc<Shape>)> = declared
        .filter_map(|(property, schema)| {
            let shape = of(schema, &format!("{name}.{property}"), false)?;
            Some((property.clone(), shape))
        })
        .collect();
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
    Some(Arc::new(Shape {
        kind: Kind::Object {
            name: name.into(),
            fields: fields.collect(),
        },
        max_elements: 1,
    }))
}
