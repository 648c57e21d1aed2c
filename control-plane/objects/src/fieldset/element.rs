//! One step of a field path.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use crate::gotext;

/// How a path goes one level down. The order is upstream's: fields, keys, values, indices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A field of a struct or an entry of a map.
    Field(String),
    /// The list element whose key fields have these values; sorted by name.
    Key(Vec<(String, Literal)>),
    /// The element of a set that equals this.
    Value(Literal),
    /// The element at this place; only ever read, never produced.
    Index(i64),
}

impl PathElement {
    /// A key element; the fields may come in any order.
    pub fn key(mut fields: Vec<(String, Literal)>) -> Self {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(fields)
    }

    /// Whether this is the field `name`.
    pub fn is_field(&self, name: &str) -> bool {
        matches!(self, Self::Field(field) if field == name)
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// A JSON value with upstream's equality and order: `1` equals `1.0`, and the kinds are ordered
/// number, string, bool, list, map, null.
#[derive(Debug, Clone)]
pub struct Literal(pub Value);

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// Whether two values are equal when integers and floats are compared as numbers.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => compare_numbers(l, r) == Ordering::Equal,
        (Value::Array(l), Value::Array(r)) => {
            l.len() == r.len() && l.iter().zip(r).all(|(l, r)| equal(l, r))
        }
        (Value::Object(l), Value::Object(r)) => {
            l.len() == r.len() && l.iter().all(|(k, l)| r.get(k).is_some_and(|r| equal(l, r)))
        }
        _ => left == right,
    }
}

fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(l), Value::Number(r)) => compare_numbers(l, r),
        (Value::String(l), Value::String(r)) => l.cmp(r),
        (Value::Bool(l), Value::Bool(r)) => l.cmp(r),
        (Value::Array(l), Value::Array(r)) => {
            let differing = l
                .iter()
                .zip(r)
                .map(|(l, r)| compare(l, r))
                .find(|o| o.is_ne());
            differing.unwrap_or_else(|| l.len().cmp(&r.len()))
        }
        (Value::Object(l), Value::Object(r)) => {
            let pairs = l.iter().zip(r);
            let compare_pair = |((lk, lv), (rk, rv)): ((&String, _), (&String, _))| {
                lk.cmp(rk).then_with(|| compare(lv, rv))
            };
            let differing = pairs.map(compare_pair).find(|o| o.is_ne());
            differing.unwrap_or_else(|| l.len().cmp(&r.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(l), Some(r)) => l.cmp(&r),
        _ => {
            let float = |n: &Number| n.as_f64().unwrap_or_default();
            float(left).total_cmp(&float(right))
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Null => f.write_str("null"),
            Value::String(s) => f.write_str(&gotext::quoted(s)),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|i| Self(i.clone()).to_string()).collect();
                write!(f, "[{}]", items.join(","))
            }
            Value::Object(map) => map
                .iter()
                .try_for_each(|(k, v)| write!(f, "{k}={}", Self(v.clone()))),
            scalar => f.write_str(&gotext::plain(scalar)),
        }
    }
}
