//! Whether a value has its shape; the texts are upstream's.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::path_element;
use crate::fieldset::PathElement;
use crate::gotext;
use crate::shape::{Form, ListAtom, MapAtom, ScalarKind, Shape};

/// Whether elements of a keyed list may share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Live objects may have them.
    Allowed,
    /// Applied ones may not.
    Refused,
}

/// Everything that is wrong with a value: `(path, message)` pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaErrors(pub Vec<(String, String)>);

impl fmt::Display for SchemaErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(path, message): &(String, String)| match path.as_str() {
            "" => message.clone(),
            path => format!("{path}: {message}"),
        };
        if let [only] = self.0.as_slice() {
            return f.write_str(&line(only));
        }
        f.write_str("errors:")?;
        self.0
            .iter()
            .try_for_each(|error| write!(f, "\n  {}", line(error)))
    }
}

impl std::error::Error for SchemaErrors {}

/// Checks `value` against `shape`.
pub fn validate(
    shape: Shape<'_>,
    value: &Value,
    duplicates: Duplicates,
) -> Result<(), SchemaErrors> {
    let mut walk = Walk {
        path: Vec::new(),
        duplicates,
        errors: Vec::new(),
    };
    walk.value(shape, value);
    if walk.errors.is_empty() {
        Ok(())
    } else {
        Err(SchemaErrors(walk.errors))
    }
}

struct Walk {
    path: Vec<PathElement>,
    duplicates: Duplicates,
    errors: Vec<(String, String)>,
}

impl Walk {
    fn fail(&mut self, message: String) {
        let path = self.path.iter().map(ToString::to_string).collect();
        self.errors.push((path, message));
    }

    fn value(&mut self, shape: Shape<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        match (shape.atom().narrowed(Some(value)).form(), value) {
            (Form::Map(map), Value::Object(entries)) => self.entries(&map, entries),
            (Form::Map(_), other) => {
                self.fail(format!("expected map, got &{{{}}}", gotext::plain(other)));
            }
            (Form::Scalar(kind), value) => self.scalar(kind, value),
            (Form::List(list), Value::Array(items)) => self.items(&list, items),
            (Form::List(_), other) => {
                self.fail(format!("expected list, got &{{{}}}", gotext::plain(other)))
            }
        }
    }

    fn scalar(&mut self, kind: ScalarKind, value: &Value) {
        let message = match kind {
            ScalarKind::Numeric if !value.is_number() => {
                format!(
                    "expected numeric (int or float), got {}",
                    gotext::type_name(value)
                )
            }
            ScalarKind::String if !value.is_string() => {
                let value = gotext::source(value);
                format!("expected string, got &value.valueUnstructured{{Value:{value}}}")
            }
            ScalarKind::Boolean if !value.is_boolean() => {
                format!("expected boolean, got &{{{}}}", gotext::plain(value))
            }
            ScalarKind::Any if value.is_array() || value.is_object() => {
                format!("expected any scalar, got &{{{}}}", gotext::plain(value))
            }
            _ => return,
        };
        self.fail(message);
    }

    // Upstream stops at the first undeclared field of a struct.
    fn entries(&mut self, map: &MapAtom<'_>, entries: &Map<String, Value>) {
        for (name, value) in entries {
            self.path.push(PathElement::Field(name.clone()));
            let declared = map.entry(name);
            match declared {
                Some(shape) => self.value(shape, value),
                None => self.fail("field not declared in schema".to_owned()),
            }
            self.path.pop();
            if declared.is_none() {
                return;
            }
        }
    }

    fn items(&mut self, list: &ListAtom<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = if list.kind.is_atomic() {
                PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX))
            } else {
                match path_element(list, item) {
                    Ok(element) => element,
                    Err(error) => return self.fail(format!("element {at}: {error}")),
                }
            };
            let is_new = list.kind.is_atomic() || seen.insert(element.clone());
            if !is_new && self.duplicates == Duplicates::Refused {
                self.fail(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(list.element, item);
            self.path.pop();
        }
    }
}
