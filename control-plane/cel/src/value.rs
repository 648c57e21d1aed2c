//! Values. JSON is looked at where it is: nothing of an object is copied to evaluate an expression over it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::library::Opaque;
use crate::meter::Meter;
use crate::shape::{Kind, ListKind, Shape};

/// A text, borrowed where it can be.
#[derive(Clone)]
pub enum Text<'a> {
    /// Part of the input.
    Borrowed(&'a str),
    /// Made on the way.
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text::Shared(text.into())
    }
}

/// Something with fields that are worked out when they are asked for.
pub trait Lazy<'a> {
    /// The value of a field; what it costs goes to the meter of whoever asks first.
    fn field(&'a self, name: &str, meter: &mut Meter) -> Option<Result<Value<'a>>>;
}

/// What expressions work on.
#[derive(Clone)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A truth.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number without a sign.
    Uint(u64),
    /// A number.
    Double(f64),
    /// A text.
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A value that may be missing.
    Optional(Option<Rc<Value<'a>>>),
    /// The name of a type.
    Type(Text<'a>),
    /// A value of a library.
    Opaque(Rc<Opaque<'a>>),
    /// Fields that are worked out when they are asked for.
    Lazy(&'a dyn Lazy<'a>),
}

/// A list, in JSON or made on the way.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// In JSON, with what is declared of the list.
    Json(&'a [Json], Option<&'a Shape>),
    /// Made on the way.
    Own(Rc<Vec<Value<'a>>>),
}

/// A map, in JSON or made on the way.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// In JSON, with what is declared of the object or map.
    Json(&'a serde_json::Map<String, Json>, Option<&'a Shape>),
    /// Made on the way: keys with their values, in order.
    Own(Rc<Vec<(Value<'a>, Value<'a>)>>),
    /// `Name{field: value}`.
    Struct(Rc<Struct<'a>>),
}

/// An object that an expression made.
#[derive(Debug, Clone)]
pub struct Struct<'a> {
    /// The name of its type.
    pub name: Text<'a>,
    /// Its fields.
    pub fields: Vec<(Text<'a>, Value<'a>)>,
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Uint(value) => write!(f, "{value}u"),
            Value::Double(value) => write!(f, "{value:?}"),
            Value::String(text) => write!(f, "{text:?}"),
            Value::Bytes(bytes) => write!(f, "b{bytes:?}"),
            Value::Duration(nanos) => write!(f, "duration({nanos}ns)"),
            Value::Timestamp(time) => write!(f, "timestamp({time})"),
            Value::List(list) => f.debug_list().entries(list.iter()).finish(),
            Value::Map(map) => f.debug_map().entries(map.iter()).finish(),
            Value::Optional(None) => f.write_str("optional.none()"),
            Value::Optional(Some(value)) => write!(f, "optional.of({value:?})"),
            Value::Type(name) => f.write_str(name),
            Value::Opaque(value) => write!(f, "{value:?}"),
            Value::Lazy(_) => f.write_str("{…}"),
        }
    }
}

impl<'a> Value<'a> {
    /// JSON, with nothing declared of it.
    pub fn json(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Value::Int(int),
                (None, Some(uint)) => Value::Uint(uint),
                (None, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::String(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List::Json(items, None)),
            Json::Object(fields) => Value::Map(Map::Json(fields, None)),
        }
    }

    /// JSON of a declared shape. What does not have it is taken as it is.
    pub fn shaped(json: &'a Json, shape: &'a Shape) -> Value<'a> {
        match (&shape.kind, json) {
            (Kind::Double, Json::Number(number)) => {
                Value::Double(number.as_f64().unwrap_or(f64::NAN))
            }
            (Kind::Int, Json::Number(number)) if number.is_f64() => {
                // 1e3 and 1.0 are whole numbers too.
                let whole = number.as_f64().filter(|f| f.fract() == 0.0);
                whole.map_or_else(|| Value::json(json), |f| Value::Int(f as i64))
            }
            (Kind::Bytes, Json::String(text)) => match decode_base64(text) {
                Some(bytes) => Value::Bytes(bytes.into()),
                None => Value::json(json),
            },
            (Kind::Duration, Json::String(text)) => match crate::time::duration(text) {
                Some(nanos) => Value::Duration(nanos),
                None => Value::json(json),
            },
            (Kind::Timestamp, Json::String(text)) => match crate::time::date_or_time(text) {
                Some(time) => Value::Timestamp(time),
                None => Value::json(json),
            },
            (Kind::List { .. }, Json::Array(items)) => Value::List(List::Json(items, Some(shape))),
            (Kind::Map(_) | Kind::Object { .. }, Json::Object(fields)) => {
                Value::Map(Map::Json(fields, Some(shape)))
            }
            _ => Value::json(json),
        }
    }

    /// A text of the input.
    pub fn text(text: &'a str) -> Value<'a> {
        Value::String(Text::Borrowed(text))
    }

    /// A text that was made on the way.
    pub fn string(text: impl Into<String>) -> Value<'a> {
        Value::String(Text::from(text.into()))
    }

    /// A list that was made on the way.
    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Own(Rc::new(items)))
    }

    /// A map that was made on the way.
    pub fn map(entries: Vec<(Value<'a>, Value<'a>)>) -> Value<'a> {
        Value::Map(Map::Own(Rc::new(entries)))
    }

    /// A value that is there.
    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Rc::new(value)))
    }

    pub(crate) fn opaque(value: Opaque<'a>) -> Value<'a> {
        Value::Opaque(Rc::new(value))
    }

    /// The text, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// What `type()` says.
    pub fn type_name(&self) -> &str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(Map::Struct(made)) => &made.name,
            Value::Map(Map::Json(_, Some(shape))) if !shape.name().is_empty() => shape.name(),
            Value::Map(_) | Value::Lazy(_) => "map",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
            Value::Opaque(value) => value.type_name(),
        }
    }

    /// How large it is, as far as costs are concerned.
    pub(crate) fn size(&self) -> u64 {
        let size = match self {
            Value::String(text) => text.chars().count(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            Value::Optional(Some(value)) => return value.size(),
            Value::Opaque(value) => return value.size(),
            _ => 1,
        };
        size as u64
    }

    /// Whether two values are the same; numbers of different types are compared as numbers.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) => **a == **b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::List(a), Value::List(b)) => a.equals(b),
            (Value::Map(a), Value::Map(b)) => a.equals(b),
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Value::Type(a), Value::Type(b)) => **a == **b,
            (Value::Opaque(a), Value::Opaque(b)) => a.equals(b),
            _ => self.number_order(other) == Some(Ordering::Equal),
        }
    }

    fn number_order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Int(a), Value::Double(b)) => whole_order(i128::from(*a), *b),
            (Value::Uint(a), Value::Double(b)) => whole_order(i128::from(*a), *b),
            (Value::Double(a), Value::Int(b)) => {
                whole_order(i128::from(*b), *a).map(Ordering::reverse)
            }
            (Value::Double(a), Value::Uint(b)) => {
                whole_order(i128::from(*b), *a).map(Ordering::reverse)
            }
            _ => None,
        }
    }

    /// Which of two values comes first. Not a number is neither, which is no error.
    pub(crate) fn order(&self, other: &Value<'_>) -> Result<Option<Ordering>> {
        Ok(match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => self.number_order(other),
            _ => return Err(Error::no_overload()),
        })
    }

    /// The value as JSON, for what leaves the language: patches, annotations.
    pub fn to_json(&self) -> Result<Json> {
        Ok(match self {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => serde_json::Number::from_f64(*value)
                .map(Json::Number)
                .ok_or_else(|| Error::new(format!("{value} cannot be written as JSON")))?,
            Value::String(text) => Json::String((**text).to_owned()),
            Value::Bytes(bytes) => {
                use base64::Engine as _;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Value::Duration(nanos) => Json::String(crate::time::show_duration(*nanos)),
            Value::Timestamp(time) => Json::String(crate::time::show(*time)),
            Value::List(List::Json(items, _)) => Json::Array(items.to_vec()),
            Value::Map(Map::Json(fields, _)) => Json::Object((*fields).clone()),
            Value::List(list) => Json::Array(
                list.iter()
                    .map(|item| item.to_json())
                    .collect::<Result<_>>()?,
            ),
            Value::Map(map) => {
                let entries = map.iter().map(|(key, value)| {
                    let key = key.as_str().map(str::to_owned);
                    let key = key.ok_or_else(|| Error::new("JSON has only texts as keys"))?;
                    Ok((key, value.to_json()?))
                });
                Json::Object(entries.collect::<Result<_>>()?)
            }
            Value::Optional(Some(value)) => value.to_json()?,
            Value::Optional(None) => Json::Null,
            other => {
                return Err(Error::new(format!(
                    "a value of type {} cannot be written as JSON",
                    other.type_name()
                )));
            }
        })
    }
}

fn whole_order(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Beyond these no 64-bit number is; the cast then saturates the right way.
    let floor = double.floor();
    let order = whole.cmp(&(floor as i128));
    match order {
        Ordering::Equal if double > floor => Some(Ordering::Less),
        order => Some(order),
    }
}

pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
    STANDARD
        .decode(text)
        .or_else(|_| STANDARD_NO_PAD.decode(text))
        .ok()
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Own(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Json(items, shape) => items.get(index).map(|item| item_of(item, *shape)),
            List::Own(items) => items.get(index).cloned(),
        }
    }

    /// The items, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(crate) fn how(&self) -> &ListKind {
        match self {
            List::Json(
                _,
                Some(Shape {
                    kind: Kind::List { how, .. },
                    ..
                }),
            ) => how,
            _ => &ListKind::Atomic,
        }
    }

    fn equals(&self, other: &List<'_>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        match self.how() {
            ListKind::Atomic => self.iter().zip(other.iter()).all(|(a, b)| a.equals(&b)),
            // In any order; each item is there once, so one direction will do.
            ListKind::Set | ListKind::Map(_) => {
                let others: Vec<Value<'_>> = other.iter().collect();
                self.iter().all(|a| others.iter().any(|b| a.equals(b)))
            }
        }
    }

    pub(crate) fn contains(&self, wanted: &Value<'_>) -> bool {
        match (self, wanted) {
            (List::Json(items, None), Value::String(text)) => {
                items.iter().any(|item| item.as_str() == Some(text))
            }
            _ => self.iter().any(|item| item.equals(wanted)),
        }
    }
}

fn item_of<'a>(item: &'a Json, list: Option<&'a Shape>) -> Value<'a> {
    match list.map(|shape| &shape.kind) {
        Some(Kind::List { items, .. }) => Value::shaped(item, items),
        _ => Value::json(item),
    }
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Map::Json(fields, _) => fields.len(),
            Map::Own(entries) => entries.len(),
            Map::Struct(made) => made.fields.len(),
        }
    }

    /// The value under a key that is a text.
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(fields, None) => fields.get(name).map(Value::json),
            Map::Json(fields, Some(shape)) => match &shape.kind {
                Kind::Map(values) => fields.get(name).map(|value| Value::shaped(value, values)),
                Kind::Object { fields: known, .. } => {
                    let known = known.get(name)?;
                    let value = fields.get(&*known.json)?;
                    // Rules do not see what is null.
                    (!value.is_null()).then(|| Value::shaped(value, &known.shape))
                }
                _ => fields.get(name).map(Value::json),
            },
            Map::Own(entries) => {
                let mut entries = entries.iter();
                let found = entries.find(|(key, _)| key.as_str() == Some(name));
                found.map(|(_, value)| value.clone())
            }
            Map::Struct(made) => {
                let found = made.fields.iter().find(|(key, _)| **key == *name);
                found.map(|(_, value)| value.clone())
            }
        }
    }

    pub(crate) fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name),
            (Map::Own(entries), key) => {
                let found = entries.iter().find(|(known, _)| known.equals(key));
                found.map(|(_, value)| value.clone())
            }
            _ => None,
        }
    }

    /// Keys with their values. Maps have no order; JSON's is the one it was read in.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Value<'a>, Value<'a>)> + '_> {
        match self {
            Map::Json(fields, shape) => {
                let shape = *shape;
                Box::new(fields.iter().map(move |(key, value)| {
                    let value = match shape.map(|shape| &shape.kind) {
                        Some(Kind::Map(values)) => Value::shaped(value, values),
                        Some(Kind::Object { fields, .. }) => {
                            let known = fields.values().find(|field| *field.json == **key);
                            known.map_or(Value::json(value), |f| Value::shaped(value, &f.shape))
                        }
                        _ => Value::json(value),
                    };
                    (Value::text(key), value)
                }))
            }
            Map::Own(entries) => Box::new(entries.iter().cloned()),
            Map::Struct(made) => {
                let fields = made.fields.iter();
                Box::new(fields.map(|(key, value)| (Value::String(key.clone()), value.clone())))
            }
        }
    }

    fn equals(&self, other: &Map<'_>) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(key, value)| other.get(&key).is_some_and(|found| value.equals(&found)))
    }
}

/// A text for messages, whichever way it comes.
pub(crate) fn shown(value: &Value<'_>) -> Cow<'static, str> {
    match value {
        Value::String(text) => Cow::Owned((**text).to_owned()),
        Value::Int(value) => Cow::Owned(value.to_string()),
        Value::Uint(value) => Cow::Owned(value.to_string()),
        Value::Bool(value) => Cow::Owned(value.to_string()),
        Value::Double(value) => Cow::Owned(crate::library::show_double(*value)),
        other => Cow::Owned(format!("{other:?}")),
    }
}
