//! What is declared of JSON values: the types of fields, how lists compare, how large things may get.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A declared type, with what the cost of rules is reckoned from.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// What it is.
    pub kind: Kind,
    /// How many elements, characters or entries there can be at most.
    pub max_elements: u64,
    /// How many characters of JSON it takes at least.
    pub min_size: u64,
}

/// The kinds of declared types.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Anything.
    Dyn,
    /// A number or a text.
    IntOrString,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `double`.
    Double,
    /// `string`.
    String,
    /// Text that is base64 of bytes.
    Bytes,
    /// Text that is a duration.
    Duration,
    /// Text that is a date, or a date with a time.
    Timestamp,
    /// A list.
    List {
        /// What is in it.
        items: Arc<Shape>,
        /// How lists compare and join.
        how: ListKind,
    },
    /// A map from texts.
    Map(Arc<Shape>),
    /// An object with declared fields.
    Object {
        /// The name that errors show.
        name: Arc<str>,
        /// Fields under the names that expressions use.
        fields: BTreeMap<Arc<str>, Field>,
    },
}

/// A field of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Its name in JSON.
    pub json: Arc<str>,
    /// What it is.
    pub shape: Arc<Shape>,
}

/// How a list's items relate (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// By position.
    Atomic,
    /// Each item once, in any order.
    Set,
    /// By these fields of each item, in any order.
    Map(Vec<Arc<str>>),
}

/// The largest request: what is not bounded by a schema is bounded by this.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

impl Shape {
    /// A type without parts, of any size that fits a request.
    pub fn plain(kind: Kind) -> Arc<Shape> {
        let (max_elements, min_size) = match kind {
            Kind::String | Kind::Bytes => (MAX_REQUEST - 2, 2),
            Kind::Dyn | Kind::IntOrString => (MAX_REQUEST - 2, 1),
            Kind::Duration => (32, 3),
            Kind::Timestamp => (32, 21),
            Kind::Bool => (0, 4),
            _ => (0, 1),
        };
        Shape::sized(kind, max_elements, min_size)
    }

    /// A type without parts, of a size that is known.
    pub fn sized(kind: Kind, max_elements: u64, min_size: u64) -> Arc<Shape> {
        Arc::new(Shape {
            kind,
            max_elements,
            min_size,
        })
    }

    /// A list by position.
    pub fn list(items: Arc<Shape>) -> Arc<Shape> {
        Shape::listed(items, ListKind::Atomic, None)
    }

    /// A list of so many items at most; without a bound, of what fits a request.
    pub fn listed(items: Arc<Shape>, how: ListKind, most: Option<u64>) -> Arc<Shape> {
        let fitting = (MAX_REQUEST - 2) / (items.min_size + 1);
        Shape::sized(Kind::List { items, how }, most.unwrap_or(fitting), 2)
    }

    /// A map from texts.
    pub fn map(values: Arc<Shape>) -> Arc<Shape> {
        Shape::mapped(values, None)
    }

    /// A map of so many entries at most; without a bound, of what fits a request.
    pub fn mapped(values: Arc<Shape>, most: Option<u64>) -> Arc<Shape> {
        // Quotes, a colon, a comma, and a key of at least a character.
        let fitting = (MAX_REQUEST - 2) / (values.min_size + 6);
        Shape::sized(Kind::Map(values), most.unwrap_or(fitting), 2)
    }

    /// How often values of this shape may stand in one object, where nothing bounds their number.
    pub fn cardinality(&self) -> u64 {
        MAX_REQUEST / (self.min_size + 1)
    }

    /// An object; names of fields are as in JSON, whatever they are: only what a schema declares is escaped, and
    /// `request.namespace` is a selection like any other.
    pub fn object(name: &str, fields: &[(&str, Arc<Shape>)]) -> Arc<Shape> {
        let fields = fields.iter().map(|(json, shape)| {
            let field = Field {
                json: (*json).into(),
                shape: Arc::clone(shape),
            };
            (Arc::from(*json), field)
        });
        let kind = Kind::Object {
            name: name.into(),
            fields: fields.collect(),
        };
        Shape::sized(kind, 0, 2)
    }

    /// The shape of what has a type, as far as shapes can say it; the rest is anything.
    pub fn of_type(ty: &crate::Type) -> Arc<Shape> {
        use crate::Type;
        match ty {
            Type::Bool => Shape::plain(Kind::Bool),
            Type::Int => Shape::plain(Kind::Int),
            Type::Double => Shape::plain(Kind::Double),
            Type::String => Shape::plain(Kind::String),
            Type::Bytes => Shape::plain(Kind::Bytes),
            Type::Duration => Shape::plain(Kind::Duration),
            Type::Timestamp => Shape::plain(Kind::Timestamp),
            Type::List(of) => Shape::list(Shape::of_type(of)),
            Type::Map(of) if of.0 == Type::String => Shape::map(Shape::of_type(&of.1)),
            Type::Object(shape) => Arc::clone(shape),
            _ => Shape::plain(Kind::Dyn),
        }
    }

    /// The name that errors show; only objects have one.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Object { name, .. } => name,
            _ => "",
        }
    }

    /// A field, by the name that expressions use.
    pub fn field(&self, name: &str) -> Option<&Field> {
        match &self.kind {
            Kind::Object { fields, .. } => fields.get(name),
            _ => None,
        }
    }
}

/// Words that cannot be names in expressions.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name under which expressions find a property, or nothing when they cannot.
pub fn escaped(property: &str) -> Option<String> {
    if RESERVED.contains(&property) {
        return Some(format!("__{property}__"));
    }
    let first = property.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    let mut out = String::with_capacity(property.len());
    let mut rest = property;
    while let Some(c) = rest.chars().next() {
        let step = match c {
            '_' if rest.starts_with("__") => {
                out.push_str("__underscores__");
                2
            }
            '.' => {
                out.push_str("__dot__");
                1
            }
            '-' => {
                out.push_str("__dash__");
                1
            }
            '/' => {
                out.push_str("__slash__");
                1
            }
            c if c == '_' || c.is_ascii_alphanumeric() => {
                out.push(c);
                1
            }
            _ => return None,
        };
        rest = &rest[step..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_have_names_that_expressions_can_use() {
        let cases = [
            ("replicas", Some("replicas")),
            (
                "x-kubernetes/a.b",
                Some("x__dash__kubernetes__slash__a__dot__b"),
            ),
            ("a__b", Some("a__underscores__b")),
            ("namespace", Some("__namespace__")),
            ("1st", None),
            ("a b", None),
            ("", None),
        ];
        for (property, name) in cases {
            assert_eq!(escaped(property).as_deref(), name, "{property}");
        }
    }
}
