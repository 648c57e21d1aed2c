//! JSON in: a [`Value`], with what a strict decoder would have refused, in document order.

use std::cell::RefCell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

use crate::path::Path;
use crate::schema::{FieldType, Scalar, TypeRef};
use crate::strict::StrictErrors;

mod syntax;

/// Not JSON; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(String);

/// A parsed body.
#[derive(Debug)]
pub struct Parsed {
    /// The value. The last of several duplicates wins.
    pub value: Value,
    /// `duplicate field "…"` and, when parsed for a type, `unknown field "…"` messages.
    pub strict: Vec<String>,
}

/// Parses JSON without a schema: duplicates are reported everywhere.
pub fn parse(bytes: &[u8]) -> Result<Parsed, SyntaxError> {
    parse_shape(bytes, Shape::Free)
}

/// Parses JSON that is to become a `ty`: unknown fields are reported and dropped, and duplicates
/// are reported where upstream's typed decoder sees them, which is not inside raw values.
pub fn parse_as(ty: TypeRef, bytes: &[u8]) -> Result<Parsed, SyntaxError> {
    parse_shape(bytes, Shape::Struct(ty))
}

fn parse_shape(bytes: &[u8], shape: Shape<'_>) -> Result<Parsed, SyntaxError> {
    let strict = RefCell::new(StrictErrors::default());
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let seed = Node {
        shape,
        at: &Path::ROOT,
        strict: &strict,
    };
    let value = seed
        .deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value))
        .map_err(|e| SyntaxError(syntax::describe(bytes, &e)))?;
    Ok(Parsed {
        value,
        strict: strict.into_inner().into_messages(),
    })
}

/// What is known about the value being parsed.
#[derive(Clone, Copy)]
enum Shape<'a> {
    Struct(TypeRef),
    List(&'a FieldType),
    Map(&'a FieldType),
    /// No schema: duplicates are reported.
    Free,
    /// Taken as it is: nothing is reported.
    Opaque,
}

impl<'a> Shape<'a> {
    fn of(ty: &'a FieldType) -> Self {
        match ty {
            FieldType::Object(ty) => Shape::Struct(*ty),
            FieldType::List(element) => Shape::List(element),
            FieldType::Map(element) => Shape::Map(element),
            FieldType::Scalar(Scalar::Any) => Shape::Free,
            FieldType::Scalar(_) => Shape::Opaque,
        }
    }

    fn element(self) -> Shape<'a> {
        match self {
            Shape::List(element) => Shape::of(element),
            Shape::Free => Shape::Free,
            Shape::Struct(_) | Shape::Map(_) | Shape::Opaque => Shape::Opaque,
        }
    }
}

/// The seed that parses one value.
struct Node<'a> {
    shape: Shape<'a>,
    at: &'a Path<'a>,
    strict: &'a RefCell<StrictErrors>,
}

impl Node<'_> {
    fn object<'de, A: MapAccess<'de>>(self, ty: TypeRef, mut map: A) -> Result<Value, A::Error> {
        let ty = ty.get();
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let at = self.at.field(ty, &key);
            let Some(field) = ty.field(&key) else {
                self.strict.borrow_mut().unknown(&at);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if object.contains_key(&key) {
                self.strict.borrow_mut().duplicate(&at);
            }
            let child = Node {
                shape: Shape::of(&field.ty),
                at: &at,
                strict: self.strict,
            };
            let value = map.next_value_seed(child)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }

    fn keyed<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let shape = match self.shape {
            Shape::Map(element) => Shape::of(element),
            Shape::Free => Shape::Free,
            Shape::Struct(_) | Shape::List(_) | Shape::Opaque => Shape::Opaque,
        };
        let reports = matches!(self.shape, Shape::Map(_) | Shape::Free);
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let at = self.at.key(&key);
            if reports && object.contains_key(&key) {
                self.strict.borrow_mut().duplicate(&at);
            }
            let value = map.next_value_seed(Node {
                shape,
                at: &at,
                strict: self.strict,
            })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let shape = self.shape.element();
        let mut items = Vec::new();
        loop {
            let at = self.at.index(items.len());
            let element = Node {
                shape,
                at: &at,
                strict: self.strict,
            };
            match seq.next_element_seed(element)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        match self.shape {
            Shape::Struct(ty) => self.object(ty, map),
            _ => self.keyed(map),
        }
    }
}

/// The `apiVersion` and `kind` of a body, as far as it has them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct TypeMeta {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// The `apiVersion` and `kind` of a body that has been parsed without a schema.
pub(crate) fn type_meta(value: &Value) -> Result<TypeMeta, SyntaxError> {
    let found = RefCell::new(Found::default());
    let result: Result<(), serde_json::Error> = Peek { found: &found }.deserialize(value);
    into_type_meta(found.into_inner(), result)
}

/// Reads `apiVersion` and `kind` without building the object, stopping once both are known: Go's
/// encoders write them first. Syntax errors further on are found by the parse that follows.
pub(crate) fn peek(bytes: &[u8]) -> Result<TypeMeta, SyntaxError> {
    let found = RefCell::new(Found::default());
    let result =
        Peek { found: &found }.deserialize(&mut serde_json::Deserializer::from_slice(bytes));
    let result = result.map_err(|e| syntax::describe(bytes, &e));
    into_type_meta(found.into_inner(), result)
}

/// An error only counts when reading did not stop by itself.
fn into_type_meta<E: ToString>(
    found: Found,
    result: Result<(), E>,
) -> Result<TypeMeta, SyntaxError> {
    let complete = found.complete();
    match (found.mismatch, result) {
        (Some(mismatch), _) => Err(SyntaxError(mismatch)),
        (None, Err(e)) if !complete => Err(SyntaxError(e.to_string())),
        _ => Ok(TypeMeta {
            api_version: found.api_version.unwrap_or_default(),
            kind: found.kind.unwrap_or_default(),
        }),
    }
}

#[derive(Default)]
struct Found {
    api_version: Option<String>,
    kind: Option<String>,
    mismatch: Option<String>,
}

impl Found {
    fn complete(&self) -> bool {
        self.api_version.is_some() && self.kind.is_some()
    }
}

struct Peek<'a> {
    found: &'a RefCell<Found>,
}

/// How Go spells the anonymous struct that upstream decodes a body's type into.
const GO_TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";

impl Peek<'_> {
    fn refuse<E>(self, found: &str) -> Result<(), E> {
        self.found.borrow_mut().mismatch = Some(format!(
            "json: cannot unmarshal {found} into Go value of type {GO_TYPE_META}"
        ));
        Ok(())
    }

    fn take(&self, key: &str, value: Value) {
        let mut found = self.found.borrow_mut();
        let kind = match value {
            Value::String(text) if key == "kind" => return found.kind = Some(text),
            Value::String(text) => return found.api_version = Some(text),
            Value::Null => return,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        found.mismatch.get_or_insert_with(|| {
            format!("json: cannot unmarshal {kind} into Go struct field .{key} of type string")
        });
    }
}

impl<'de> DeserializeSeed<'de> for Peek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Peek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.refuse("bool")
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.refuse("number")
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.refuse("number")
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.refuse("number")
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.refuse("string")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        self.refuse("array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                "apiVersion" | "kind" => self.take(&key, map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
            if self.found.borrow().complete() {
                return Err(A::Error::custom("enough read"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::schema::kind;

    #[test]
    fn duplicates_are_reported_with_their_path_and_the_last_one_wins() {
        let parsed = parse(br#"{"a":1,"b":[{"c":1},{"c":1,"c":2}],"a":3}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": 3, "b": [{"c": 1}, {"c": 2}]}));
        assert_eq!(
            parsed.strict,
            [r#"duplicate field "b[1].c""#, r#"duplicate field "a""#]
        );
    }

    #[test]
    fn a_typed_parse_reports_in_document_order() {
        let body = br#"{"spec":{"zzz":1,"replicas":1,"aaa":{"x":1,"x":2},"replicas":2},
            "metadata":{"labels":{"a":"1","a":"2"}},"zzz":1}"#;
        let parsed = parse_as(kind("apps", "v1", "Deployment").unwrap(), body).unwrap();
        assert_eq!(
            parsed.strict,
            [
                r#"unknown field "spec.zzz""#,
                r#"unknown field "spec.aaa""#,
                r#"duplicate field "spec.replicas""#,
                r#"duplicate field "metadata.labels.a""#,
                r#"unknown field "zzz""#,
            ]
        );
        assert_eq!(
            parsed.value,
            json!({"spec": {"replicas": 2}, "metadata": {"labels": {"a": "2"}}})
        );
    }

    #[test]
    fn raw_values_are_taken_as_they_are() {
        let body = br#"{"data":{"x":1,"x":2,"anything":true}}"#;
        let parsed = parse_as(kind("apps", "v1", "ControllerRevision").unwrap(), body).unwrap();
        assert!(parsed.strict.is_empty());
        assert_eq!(parsed.value["data"], json!({"x": 2, "anything": true}));
    }

    #[test]
    fn integers_stay_integers() {
        let parsed = parse(b"[9223372036854775807,18446744073709551615,-1,1.0]").unwrap();
        assert_eq!(parsed.value, json!([i64::MAX, u64::MAX, -1, 1.0]));
        assert!(parsed.value[0].is_i64());
    }

    #[test]
    fn complaints_are_bounded() {
        let fields: Vec<_> = (0..500).map(|i| format!("\"f{i}\":1")).collect();
        let body = format!("{{{}}}", fields.join(","));
        let parsed = parse_as(kind("", "v1", "Pod").unwrap(), body.as_bytes()).unwrap();
        assert_eq!(parsed.strict.len(), 100);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let body = "[".repeat(100_000);
        assert_eq!(
            parse(body.as_bytes()).unwrap_err().to_string(),
            "exceeded max depth"
        );
    }

    #[test]
    fn peeking_finds_the_type_wherever_it_stands() {
        let meta =
            peek(br#"{"spec":{"kind":"No"},"kind":"Pod","apiVersion":"v1","broken"#).unwrap();
        assert_eq!(
            (meta.api_version.as_str(), meta.kind.as_str()),
            ("v1", "Pod")
        );
        assert_eq!(peek(b"null").unwrap(), TypeMeta::default());
        assert_eq!(peek(b"{}").unwrap(), TypeMeta::default());
    }

    #[test]
    fn peeking_refuses_other_values_in_gos_words() {
        assert_eq!(
            peek(b"[]").unwrap_err().to_string(),
            r#"json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#
        );
        assert_eq!(
            peek(br#"{"kind":1}"#).unwrap_err().to_string(),
            "json: cannot unmarshal number into Go struct field .kind of type string"
        );
    }
}
