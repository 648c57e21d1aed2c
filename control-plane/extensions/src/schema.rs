//! A structural schema as a tree that objects are walked along.
//!
//! The tree is read from the JSON of `openAPIV3Schema` without judging it: `structural` does that when a
//! definition is written. What an older server let pass is read as far as it can be.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::pattern;

/// What a value is, by its JSON type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `object`.
    Object,
    /// `array`.
    Array,
    /// `string`.
    String,
    /// `integer`.
    Integer,
    /// `number`.
    Number,
    /// `boolean`.
    Boolean,
}

impl Type {
    /// From a schema's `type`.
    pub fn parse(text: &str) -> Option<Type> {
        Some(match text {
            "object" => Type::Object,
            "array" => Type::Array,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => return None,
        })
    }

    /// As a schema writes it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }
}

/// What keys that are not properties may hold.
#[derive(Debug, Clone, Default)]
pub enum Additional {
    /// Nothing is said.
    #[default]
    Unsaid,
    /// They are forbidden, or anything.
    Allowed(bool),
    /// Values of this schema.
    Schema(Box<Node>),
}

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListType {
    /// They are not.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Map(Vec<String>),
}

/// One schema.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The type, when one is given.
    pub ty: Option<Type>,
    /// Whether null is a value.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserves: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// Known keys, sorted.
    pub properties: Vec<(String, Node)>,
    /// Other keys.
    pub additional: Additional,
    /// Elements.
    pub items: Option<Box<Node>>,
    /// What stands in for a missing value.
    pub default: Option<Value>,
    /// How a list merges.
    pub list: ListType,
    /// What values must be beyond their type.
    pub limits: Limits,
    /// Whether this node or anything below it has a default.
    pub has_defaults: bool,
}

/// What values must be beyond their type.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// `format`.
    pub format: String,
    /// `pattern`.
    pub pattern: Option<Pattern>,
    /// `enum`.
    pub allowed: Vec<Value>,
    /// `minimum`, and whether it is excluded itself.
    pub minimum: Option<(f64, bool)>,
    /// `maximum`, and whether it is excluded itself.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength`, `maxLength`.
    pub length: (Option<u64>, Option<u64>),
    /// `minItems`, `maxItems`.
    pub items: (Option<u64>, Option<u64>),
    /// `minProperties`, `maxProperties`.
    pub properties: (Option<u64>, Option<u64>),
    /// `required`.
    pub required: Vec<String>,
    /// `allOf`.
    pub all_of: Vec<Node>,
    /// `anyOf`.
    pub any_of: Vec<Node>,
    /// `oneOf`.
    pub one_of: Vec<Node>,
    /// `not`.
    pub not: Option<Box<Node>>,
}

/// A pattern that is compiled when the first text is held against it: compiled ones are large.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// As it was written.
    pub text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// A pattern of Go's syntax. One that cannot be read was refused when it was written, and refuses nothing.
    pub fn new(text: &str) -> Pattern {
        Pattern {
            text: text.to_owned(),
            compiled: OnceLock::new(),
        }
    }

    /// Whether a text has what is asked for.
    pub fn fits(&self, text: &str) -> bool {
        let compiled = || pattern::compile(&self.text).ok();
        let pattern = self.compiled.get_or_init(compiled).as_ref();
        pattern.is_none_or(|pattern| pattern.is_match(text))
    }
}

/// No schema is deeper than this; what is below is anything. Bodies that are deeper are refused before.
const MAX_DEPTH: usize = 256;

impl Node {
    /// Reads a schema.
    pub fn read(schema: &Value) -> Node {
        read(schema, 0)
    }

    /// The schema of a known key.
    pub fn property(&self, name: &str) -> Option<&Node> {
        let found = self
            .properties
            .binary_search_by(|(key, _)| key.as_str().cmp(name));
        found.ok().map(|at| &self.properties[at].1)
    }

    /// The schema of any key.
    pub fn entry(&self, name: &str) -> Option<&Node> {
        self.property(name).or(match &self.additional {
            Additional::Schema(node) => Some(node),
            _ => None,
        })
    }
}

fn read(schema: &Value, depth: usize) -> Node {
    let Some(map) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
        return Node {
            preserves: true,
            ..Node::default()
        };
    };
    let reader = Reader { map, depth };
    let mut node = Node {
        ty: reader.text("type").and_then(Type::parse),
        nullable: reader.flag("nullable"),
        int_or_string: reader.flag("x-kubernetes-int-or-string"),
        preserves: reader.flag("x-kubernetes-preserve-unknown-fields"),
        embedded: reader.flag("x-kubernetes-embedded-resource"),
        properties: reader.properties(),
        additional: match map.get("additionalProperties") {
            Some(Value::Bool(allowed)) => Additional::Allowed(*allowed),
            Some(schema @ Value::Object(_)) => Additional::Schema(Box::new(reader.below(schema))),
            _ => Additional::Unsaid,
        },
        items: map
            .get("items")
            .filter(|i| i.is_object())
            .map(|i| Box::new(reader.below(i))),
        default: map.get("default").filter(|d| !d.is_null()).cloned(),
        list: reader.list(),
        limits: reader.limits(),
        has_defaults: false,
    };
    node.has_defaults = node.default.is_some()
        || node.properties.iter().any(|(_, below)| below.has_defaults)
        || node.items.as_ref().is_some_and(|below| below.has_defaults)
        || matches!(&node.additional, Additional::Schema(below) if below.has_defaults);
    node
}

struct Reader<'s> {
    map: &'s Map<String, Value>,
    depth: usize,
}

impl Reader<'_> {
    fn below(&self, schema: &Value) -> Node {
        read(schema, self.depth + 1)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.map.get(key)?.as_str()
    }

    fn flag(&self, key: &str) -> bool {
        self.map.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.map.get(key)?.as_f64()
    }

    fn count(&self, key: &str) -> Option<u64> {
        self.map.get(key)?.as_u64()
    }

    fn texts(&self, key: &str) -> Vec<String> {
        let texts = self.map.get(key).and_then(Value::as_array);
        let texts = texts.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    fn schemas(&self, key: &str) -> Vec<Node> {
        let schemas = self.map.get(key).and_then(Value::as_array);
        schemas
            .into_iter()
            .flatten()
            .map(|s| self.below(s))
            .collect()
    }

    fn properties(&self) -> Vec<(String, Node)> {
        let properties = self.map.get("properties").and_then(Value::as_object);
        let mut all: Vec<_> = properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), self.below(schema)))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn list(&self) -> ListType {
        match self.text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(self.texts("x-kubernetes-list-map-keys")),
            _ => ListType::Atomic,
        }
    }

    fn limits(&self) -> Limits {
        let bound = |key, excluded| Some((self.number(key)?, self.flag(excluded)));
        Limits {
            format: self.text("format").unwrap_or_default().to_owned(),
            pattern: self
                .text("pattern")
                .filter(|p| !p.is_empty())
                .map(Pattern::new),
            allowed: self
                .map
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: self.number("multipleOf"),
            length: (self.count("minLength"), self.count("maxLength")),
            items: (self.count("minItems"), self.count("maxItems")),
            properties: (self.count("minProperties"), self.count("maxProperties")),
            required: self.texts("required"),
            all_of: self.schemas("allOf"),
            any_of: self.schemas("anyOf"),
            one_of: self.schemas("oneOf"),
            not: self
                .map
                .get("not")
                .filter(|n| n.is_object())
                .map(|n| Box::new(self.below(n))),
        }
    }
}
