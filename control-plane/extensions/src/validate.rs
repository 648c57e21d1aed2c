//! What is wrong with a custom resource, in the words of upstream's validator.
//!
//! Order and texts are those of `kube-openapi/pkg/validation/validate` and of the mapping to field errors in
//! `apiextensions/validation`. On an update, what is equal to its old value is not judged again
//! (ratcheting): objects, maps and keyed lists are compared part by part, other lists as a whole.

use std::fmt;

use kinds::field::{FieldError, Reason};
use objects::fieldset::equal;
use serde_json::{Map, Value};

use crate::formats;
use crate::schema::{Additional, ListType, Node, Type};

/// Where a value stands.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    /// The object itself.
    pub const ROOT: At<'static> = At {
        parent: None,
        step: Step::Root,
    };

    /// A key below.
    pub fn key(&'a self, key: &'a str) -> At<'a> {
        At {
            parent: Some(self),
            step: Step::Key(key),
        }
    }

    /// An element below.
    pub fn index(&'a self, index: usize) -> At<'a> {
        At {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    fn is_root(&self) -> bool {
        self.parent.is_none()
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Key(key) if self.parent.is_some_and(|p| p.is_root()) => f.write_str(key),
            Step::Key(key) => write!(f, ".{key}"),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Errors found, and how much was right: of several alternatives the best one's errors are told.
#[derive(Debug, Default)]
struct Found {
    errors: Vec<FieldError>,
    right: usize,
}

/// What a schema has against a value.
pub fn check(node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>) -> Vec<FieldError> {
    let mut found = Found::default();
    found.value(node, value, old, at);
    found.errors
}

// Where a value differs from what it was, the errors of its equal parts are left out.
fn is_same(value: &Value, old: Option<&Value>) -> bool {
    old.is_some_and(|old| equal(old, value))
}

impl Found {
    fn value(&mut self, node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>) {
        if is_same(value, old) {
            return;
        }
        let before = self.errors.len();
        self.ty(node, value, at);
        self.right += usize::from(self.errors.len() == before);
        if value.is_null() {
            return self.allowed(node, value, at);
        }
        self.junctors(node, value, old, at);
        match value {
            Value::String(text) => self.text(node, text, at),
            Value::Number(number) => self.number(node, value, number.as_f64().unwrap_or(0.0), at),
            Value::Array(items) => self.list(node, items, old, at),
            _ => {}
        }
        self.allowed(node, value, at);
        if let Value::Object(map) = value {
            self.object(node, map, old, at);
        }
    }

    fn ty(&mut self, node: &Node, value: &Value, at: &At<'_>) {
        let actual = match value {
            Value::Null if node.nullable => return,
            Value::Null => "null",
            Value::Object(_) => "object",
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_f64() => "number",
            Value::Number(_) => "integer",
        };
        let wanted = match (node.ty, node.int_or_string) {
            (_, true) if matches!(actual, "integer" | "string") => return,
            (_, true) => "integer,string",
            (Some(ty), false) => ty.name(),
            (None, false) => return,
        };
        let whole = || value.as_f64().is_some_and(|n| n.fract() == 0.0);
        let fits = wanted == actual
            || (wanted == "number" && actual == "integer")
            || (wanted == "integer" && actual == "number" && whole());
        if !fits {
            let why = format!("must be of type {wanted}: {actual:?}");
            self.refuse(Reason::TypeInvalid, at, &actual.into(), &why);
        }
    }

    fn junctors(&mut self, node: &Node, value: &Value, old: Option<&Value>, at: &At<'_>) {
        let limits = &node.limits;
        let tried = |below: &Node| {
            let mut found = Found::default();
            found.value(below, value, old, at);
            found
        };
        if !limits.any_of.is_empty() {
            let all: Vec<Found> = limits.any_of.iter().map(tried).collect();
            if all.iter().all(|f| !f.errors.is_empty()) {
                self.plain(format!(
                    "{:?} must validate at least one schema (anyOf)",
                    at.to_string()
                ));
                self.merge(best(all));
            }
        }
        if !limits.one_of.is_empty() {
            let all: Vec<Found> = limits.one_of.iter().map(tried).collect();
            let right = all.iter().filter(|f| f.errors.is_empty()).count();
            if right != 1 {
                let why = match right {
                    0 => "Found none valid".to_owned(),
                    n => format!("Found {n} valid alternatives"),
                };
                let text = at.to_string();
                self.plain(format!(
                    "{text:?} must validate one and only one schema (oneOf). {why}"
                ));
                if right == 0 {
                    self.merge(best(all));
                }
            }
        }
        if !limits.all_of.is_empty() {
            let all: Vec<Found> = limits.all_of.iter().map(tried).collect();
            let right = all.iter().filter(|f| f.errors.is_empty()).count();
            let of = all.len();
            for found in all {
                self.merge(found);
            }
            if right != of {
                let why = if right == 0 { ". None validated" } else { "" };
                let text = at.to_string();
                self.plain(format!(
                    "{text:?} must validate all the schemas (allOf){why}"
                ));
            }
        }
        if let Some(not) = &limits.not
            && tried(not).errors.is_empty()
        {
            self.plain(format!(
                "{:?} must not validate the schema (not)",
                at.to_string()
            ));
        }
    }

    // Of its length and its pattern only the first that is wrong is told.
    fn text(&mut self, node: &Node, text: &str, at: &At<'_>) {
        let limits = &node.limits;
        let length = text.chars().count() as u64;
        if let Some(max) = limits.length.1.filter(|max| length > *max) {
            let bytes = if max == 1 { "byte" } else { "bytes" };
            let message = format!("Too long: may not be more than {max} {bytes}");
            self.push(Reason::TooLong, at, message);
        } else if let Some(min) = limits.length.0.filter(|min| length < *min) {
            self.refuse(
                Reason::Invalid,
                at,
                &text.into(),
                &format!("should be at least {min} chars long"),
            );
        } else if let Some(pattern) = &limits.pattern
            && !pattern.fits(text)
        {
            self.refuse(
                Reason::Invalid,
                at,
                &text.into(),
                &format!("should match '{}'", pattern.text),
            );
        }
        let textual = node.ty.is_none_or(|ty| ty == Type::String);
        if textual && !formats::is_valid(&limits.format, text) {
            let why = format!("must be of type {}: {text:?}", limits.format);
            self.refuse(Reason::TypeInvalid, at, &text.into(), &why);
        }
    }

    fn number(&mut self, node: &Node, value: &Value, number: f64, at: &At<'_>) {
        let limits = &node.limits;
        if node.ty == Some(Type::Integer) && number.fract() != 0.0 {
            self.fraction(&limits.format, at);
        }
        self.multiple(limits.multiple_of, value, number, at);
        if let Some((max, excluded)) = limits.maximum
            && (number > max || (excluded && number == max))
        {
            let or_equal = if excluded { "" } else { "or equal to " };
            let why = format!("should be less than {or_equal}{}", go_number(max));
            self.refuse(Reason::Invalid, at, value, &why);
        }
        if let Some((min, excluded)) = limits.minimum
            && (number < min || (excluded && number == min))
        {
            let or_equal = if excluded { "" } else { "or equal to " };
            let why = format!("should be greater than {or_equal}{}", go_number(min));
            self.refuse(Reason::Invalid, at, value, &why);
        }
        let wide = match limits.format.as_str() {
            "int32" => number < f64::from(i32::MIN) || number > f64::from(i32::MAX),
            "int64" => value.as_i64().is_none() && !value.is_f64(),
            "float" => number.abs() > f64::from(f32::MAX),
            _ => false,
        };
        if wide {
            let why = format!("must be of type {}: {:?}", limits.format, value.to_string());
            self.refuse(Reason::TypeInvalid, at, value, &why);
        }
    }

    // A whole number is held against the whole part of a factor, as upstream does it, whatever that makes of the factor.
    fn multiple(&mut self, of: Option<f64>, value: &Value, number: f64, at: &At<'_>) {
        let Some(of) = of else { return };
        let of = if value.is_f64() { of } else { of.trunc() };
        if of <= 0.0 {
            let factor = go_number(of);
            let why = format!("factor MultipleOf declared for {at} must be positive: {factor}");
            self.push(
                Reason::Invalid,
                at,
                format!("Invalid value: {factor}: {why}"),
            );
        } else if (number / of).fract() != 0.0 {
            let why = format!("should be a multiple of {}", go_number(of));
            self.refuse(Reason::Invalid, at, value, &why);
        }
    }

    // Upstream tells of it once more, and of no place.
    fn fraction(&mut self, format: &str, at: &At<'_>) {
        let of = match format {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        self.plain(format!(
            "Checked value must be of type integer {of} in {at}"
        ));
    }

    fn list(&mut self, node: &Node, items: &[Value], old: Option<&Value>, at: &At<'_>) {
        let old = old.and_then(Value::as_array);
        if let Some(below) = &node.items {
            for (i, item) in items.iter().enumerate() {
                let was = correlated(&node.list, item, old);
                self.value(below, item, was, &at.index(i));
            }
        }
        let (min, max) = node.limits.items;
        let length = items.len() as u64;
        if let Some(min) = min.filter(|min| length < *min) {
            let why = format!("should have at least {min} items");
            self.refuse(Reason::Invalid, at, &length.into(), &why);
        }
        if let Some(max) = max.filter(|max| length > *max) {
            self.too_many(at, length, max);
        }
    }

    fn allowed(&mut self, node: &Node, value: &Value, at: &At<'_>) {
        let allowed = &node.limits.allowed;
        if allowed.is_empty() || (value.is_null() && node.nullable) {
            return;
        }
        if !allowed.iter().any(|a| equal(a, value)) {
            let shown: Vec<String> = allowed
                .iter()
                .map(|a| match a {
                    Value::String(text) => format!("{text:?}"),
                    other => format!("{:?}", other.to_string()),
                })
                .collect();
            let message = format!(
                "Unsupported value: {}: supported values: {}",
                shown_value(value),
                shown.join(", ")
            );
            self.push(Reason::NotSupported, at, message);
        }
    }

    fn object(&mut self, node: &Node, map: &Map<String, Value>, old: Option<&Value>, at: &At<'_>) {
        let (min, max) = node.limits.properties;
        let size = map.len() as u64;
        if let Some(min) = min.filter(|min| size < *min) {
            let why = format!("should have at least {min} properties");
            return self.refuse(Reason::Invalid, at, &size.into(), &why);
        }
        if let Some(max) = max.filter(|max| size > *max) {
            return self.too_many(at, size, max);
        }
        let old = old.and_then(Value::as_object);
        let was = |key: &str| old.and_then(|old| old.get(key));
        for (key, value) in map {
            if node.property(key).is_some() {
                continue;
            }
            match &node.additional {
                Additional::Schema(below) => self.value(below, value, was(key), &at.key(key)),
                Additional::Allowed(false) => {
                    let place = at.key(key);
                    self.refuse(Reason::Invalid, &place, value, "is a forbidden property");
                }
                _ => {}
            }
        }
        for (name, below) in &node.properties {
            if let Some(value) = map.get(name) {
                self.value(below, value, was(name), &at.key(name));
            }
        }
        for name in &node.limits.required {
            if !map.contains_key(name) {
                self.push(Reason::Required, &at.key(name), "Required value".to_owned());
            }
        }
    }

    fn too_many(&mut self, at: &At<'_>, actual: u64, max: u64) {
        let items = if max == 1 { "item" } else { "items" };
        self.push(
            Reason::TooMany,
            at,
            format!("Too many: {actual}: must have at most {max} {items}"),
        );
    }

    fn refuse(&mut self, reason: Reason, at: &At<'_>, value: &Value, why: &str) {
        let message = format!("Invalid value: {}: {at} in body {why}", shown_value(value));
        self.push(reason, at, message);
    }

    fn push(&mut self, reason: Reason, at: &At<'_>, message: String) {
        let field = match at.is_root() {
            true => "<nil>".to_owned(),
            false => at.to_string(),
        };
        self.errors.push(FieldError {
            reason,
            field,
            message,
        });
    }

    // Upstream's errors of junctors have no path of their own.
    fn plain(&mut self, why: String) {
        self.push(
            Reason::Invalid,
            &At::ROOT,
            format!("Invalid value: \"\": {why}"),
        );
    }

    fn merge(&mut self, other: Found) {
        self.errors.extend(other.errors);
        self.right += other.right;
    }
}

fn best(all: Vec<Found>) -> Found {
    let mut best = Found::default();
    for (i, found) in all.into_iter().enumerate() {
        if i == 0 || found.right > best.right {
            best = found;
        }
    }
    best
}

/// The old element that a new one continues, where elements can be told apart by keys.
fn correlated<'o>(list: &ListType, item: &Value, old: Option<&'o Vec<Value>>) -> Option<&'o Value> {
    let ListType::Map(keys) = list else {
        return None;
    };
    let key_of =
        |value: &Value| -> Vec<Value> { keys.iter().map(|k| value[k.as_str()].clone()).collect() };
    let wanted = key_of(item);
    old?.iter().find(|o| key_of(o) == wanted)
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

// A bound as Go prints a float64: with an exponent from a million on.
fn go_number(number: f64) -> String {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        -4..6 => number.to_string(),
        exponent if exponent < 0 => format!("{digits}e-{:02}", -exponent),
        exponent => format!("{digits}e+{exponent:02}"),
    }
}

/// Elements of sets and keyed lists that occur twice.
pub fn duplicates(node: &Node, value: &Value, at: &At<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            let keys = match &node.list {
                ListType::Atomic => None,
                ListType::Set => Some(None),
                ListType::Map(keys) => Some(Some(keys)),
            };
            if let Some(keys) = keys {
                repeated(items, keys, at, errors);
            }
            for (i, item) in items.iter().enumerate() {
                if let Some(below) = &node.items {
                    duplicates(below, item, &at.index(i), errors);
                }
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(below) = node.entry(key) {
                    duplicates(below, value, &at.key(key), errors);
                }
            }
        }
        _ => {}
    }
}

fn repeated(
    items: &[Value],
    keys: Option<&Vec<String>>,
    at: &At<'_>,
    errors: &mut Vec<FieldError>,
) {
    let identity = |item: &Value| match keys {
        None => item.clone(),
        Some(keys) => keys
            .iter()
            .filter_map(|k| Some((k.clone(), item.get(k)?.clone())))
            .collect::<Map<_, _>>()
            .into(),
    };
    let mut seen: std::collections::HashMap<String, bool> = std::collections::HashMap::new();
    for (i, item) in items.iter().enumerate() {
        let identity = identity(item);
        // A value that stands thrice is told once.
        match seen.insert(identity.to_string(), true) {
            None => {
                seen.insert(identity.to_string(), false);
            }
            Some(true) => {}
            Some(false) => errors.push(FieldError {
                reason: Reason::Duplicate,
                field: at.index(i).to_string(),
                message: format!("Duplicate value: {}", shown_value(&identity)),
            }),
        }
    }
}

/// Embedded resources that do not say what they are.
pub fn embedded(node: &Node, value: &Value, at: &At<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                if let Some(below) = &node.items {
                    embedded(below, item, &at.index(i), errors);
                }
            }
        }
        Value::Object(map) => {
            if node.embedded {
                for name in ["apiVersion", "kind"] {
                    if map
                        .get(name)
                        .and_then(Value::as_str)
                        .is_none_or(str::is_empty)
                    {
                        errors.push(FieldError {
                            reason: Reason::Required,
                            field: at.key(name).to_string(),
                            message: "Required value: must not be empty".to_owned(),
                        });
                    }
                }
            }
            for (key, value) in map {
                if let Some(below) = node.entry(key) {
                    embedded(below, value, &at.key(key), errors);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
