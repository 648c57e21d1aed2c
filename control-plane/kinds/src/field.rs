//! Field errors: what is wrong with an object, where, and in the words clients know.
//!
//! The shapes and texts follow `apimachinery/pkg/util/validation/field/errors.go`: a cause has a
//! reason, a field path and a message, and the object's error joins `path: message` lines.

use serde_json::Value;

/// The kind of a field error; its [`Reason::name`] is what clients see in `details.causes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A required value is missing.
    Required,
    /// The value breaks a rule.
    Invalid,
    /// The value is not one of the allowed ones.
    NotSupported,
    /// The value occurs twice.
    Duplicate,
    /// The value may not be set here or now.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list is too long.
    TooMany,
    /// The value names something that does not exist.
    NotFound,
    /// The value has the wrong type.
    TypeInvalid,
    /// The rule could not be tried.
    Internal,
}

impl Reason {
    /// The cause's `reason` as clients see it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Required => "FieldValueRequired",
            Reason::Invalid => "FieldValueInvalid",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::NotFound => "FieldValueNotFound",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::Internal => "InternalError",
        }
    }
}

/// One thing wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// What kind of mistake.
    pub reason: Reason,
    /// Where, such as `spec.containers[0].name`.
    pub field: String,
    /// The whole message without the path, such as `Invalid value: "x": must be …`.
    pub message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// A path into an object, grown on the way down and rendered only for errors.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The path of a top-level field.
    pub const fn root(name: &'a str) -> Path<'a> {
        Path {
            parent: None,
            step: Step::Field(name),
        }
    }

    /// A named field below this path.
    pub fn child<'b>(&'b self, name: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path {
            parent: Some(self),
            step: Step::Field(name),
        }
    }

    /// A list element below this path.
    pub fn index<'b>(&'b self, index: usize) -> Path<'b>
    where
        'a: 'b,
    {
        Path {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    /// A map entry below this path.
    pub fn key<'b>(&'b self, key: &'b str) -> Path<'b>
    where
        'a: 'b,
    {
        Path {
            parent: Some(self),
            step: Step::Key(key),
        }
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => write!(f, "{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// How many errors of an object a client is told of; the others are counted.
pub const MOST_LISTED: usize = 100;

/// The errors of one object, collected on the way.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<FieldError>);

impl Errors {
    fn push(&mut self, reason: Reason, path: &Path<'_>, message: String) {
        self.0.push(FieldError {
            reason,
            field: path.to_string(),
            message,
        });
    }

    /// `Required value[: detail]`.
    pub fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.push(
            Reason::Required,
            path,
            with_detail("Required value", detail),
        );
    }

    /// `Invalid value: <value>: detail`.
    pub fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        let head = format!("Invalid value: {}", self.shown(value));
        self.push(Reason::Invalid, path, with_detail(&head, detail));
    }

    /// The same with the value's text.
    pub fn invalid_text(&mut self, path: &Path<'_>, shown: &str, detail: &str) {
        let head = format!("Invalid value: {shown}");
        self.push(Reason::Invalid, path, with_detail(&head, detail));
    }

    /// `Unsupported value: <value>: supported values: "a", "b"`.
    pub fn not_supported(&mut self, path: &Path<'_>, value: &Value, allowed: &[&str]) {
        let shown = self.shown(value);
        self.not_supported_text(path, &shown, allowed);
    }

    /// The same with the value's text.
    pub fn not_supported_text(&mut self, path: &Path<'_>, shown: &str, allowed: &[&str]) {
        let list = allowed
            .iter()
            .map(|a| format!("{a:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        let head = format!("Unsupported value: {shown}");
        let detail = if list.is_empty() {
            String::new()
        } else {
            format!("supported values: {list}")
        };
        self.push(Reason::NotSupported, path, with_detail(&head, &detail));
    }

    /// `Duplicate value: <value>`.
    pub fn duplicate(&mut self, path: &Path<'_>, value: &Value) {
        let shown = self.shown(value);
        self.duplicate_text(path, &shown, "");
    }

    /// `Duplicate value: <text>[: detail]`.
    pub fn duplicate_text(&mut self, path: &Path<'_>, shown: &str, detail: &str) {
        let head = format!("Duplicate value: {shown}");
        self.push(Reason::Duplicate, path, with_detail(&head, detail));
    }

    /// `Forbidden: detail`.
    pub fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.push(Reason::Forbidden, path, with_detail("Forbidden", detail));
    }

    /// `Internal error: detail`.
    pub fn internal(&mut self, path: &Path<'_>, detail: &str) {
        self.push(
            Reason::Internal,
            path,
            with_detail("Internal error", detail),
        );
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(&mut self, path: &Path<'_>, max: usize) {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {bytes}");
        self.push(Reason::TooLong, path, message);
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        let items = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {actual}: must have at most {max} {items}");
        self.push(Reason::TooMany, path, message);
    }

    /// `Not found: <value>`.
    pub fn not_found(&mut self, path: &Path<'_>, value: &Value) {
        self.push(
            Reason::NotFound,
            path,
            format!("Not found: {}", self.shown(value)),
        );
    }

    // Text is shown quoted, numbers and booleans bare, everything else as compact JSON. Errors that nobody will be told
    // of need no text: a long list with something wrong in each element would be written out for each.
    fn shown(&self, value: &Value) -> String {
        match value {
            _ if self.0.len() >= MOST_LISTED => String::new(),
            Value::String(text) => format!("{text:?}"),
            other => other.to_string(),
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}: {detail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_messages_read_as_upstreams() {
        let mut errors = Errors::default();
        let spec = Path::root("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        errors.invalid(&first.child("name"), &"A".into(), "must be lower case");
        errors.required(&Path::root("metadata").child("labels").key("x"), "");
        let text: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "spec.containers[0].name: Invalid value: \"A\": must be lower case",
                "metadata.labels[x]: Required value"
            ]
        );
    }
}
