//! What server-side apply needs to know about a value's type, whatever describes it: the table of
//! built-in types, a custom resource's structural schema, or nothing at all.
//!
//! The rules are those of `kube-openapi/pkg/schemaconv`: which lists are keyed, which maps are one
//! value, what an undeclared field may be.

use serde_json::{Map, Value};

use crate::schema::{self, Field, FieldType, ListKind, Scalar, TypeRef};

/// The type of one value.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'s> {
    source: Source<'s>,
    /// The field that holds the value overrides how its type merges (`map=atomic`, `granular`).
    atomic_override: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
enum Source<'s> {
    /// A built-in struct.
    Type(TypeRef),
    /// A value inside a built-in type; list rules come from the field.
    Value(&'static FieldType, Option<&'static Field>),
    /// A node of a custom resource's schema.
    Schema {
        node: &'s Map<String, Value>,
        keeps_unknown: bool,
        is_root: bool,
    },
    /// Anything; maps merge field by field, lists are one value.
    Deduced,
    /// Anything, as one value.
    Untyped,
}

impl From<TypeRef> for Shape<'static> {
    fn from(ty: TypeRef) -> Self {
        Self::new(Source::Type(ty))
    }
}

impl<'s> Shape<'s> {
    /// The shape of objects whose type nobody declared.
    pub const DEDUCED: Shape<'static> = Shape::new(Source::Deduced);

    /// The shape of a custom resource's objects, from its structural OpenAPI schema; the root
    /// always has `apiVersion`, `kind` and `metadata`.
    pub fn of_custom_resource(schema: &'s Value, preserve_unknown_fields: bool) -> Self {
        match schema {
            Value::Object(node) => Self::new(Source::Schema {
                node,
                keeps_unknown: preserve_unknown_fields,
                is_root: true,
            }),
            _ => Self::DEDUCED,
        }
    }

    const fn new(source: Source<'s>) -> Self {
        Self {
            source,
            atomic_override: None,
        }
    }

    fn of_field(field: &'static Field) -> Self {
        let atomic_override = if field.map_atomic {
            Some(true)
        } else {
            field.map_granular.then_some(false)
        };
        Self {
            source: Source::Value(&field.ty, Some(field)),
            atomic_override,
        }
    }

    /// The built-in struct this is, if it is one.
    pub(crate) fn as_type(self) -> Option<TypeRef> {
        match self.source {
            Source::Type(ty) => Some(ty),
            Source::Value(FieldType::Object(ty), _) => Some(*ty),
            _ => None,
        }
    }

    /// What a value of this shape may be, and how it merges.
    pub(crate) fn atom(self) -> Atom<'s> {
        match self.source {
            Source::Type(ty) => Atom::map(self.struct_of(ty)),
            Source::Value(ty, field) => self.atom_of_value(ty, field),
            Source::Schema {
                node,
                keeps_unknown,
                is_root,
            } => schema_atom(node, keeps_unknown, is_root),
            Source::Deduced => Atom::anything(false),
            Source::Untyped => Atom::anything(true),
        }
    }

    fn atom_of_value(self, ty: &'static FieldType, field: Option<&'static Field>) -> Atom<'s> {
        match ty {
            FieldType::Object(ty) => Atom::map(self.struct_of(*ty)),
            FieldType::Scalar(scalar) => scalar_atom(*scalar),
            FieldType::Map(value) => Atom::map(MapAtom {
                is_atomic: self.atomic_override.unwrap_or(false),
                fields: Fields::None,
                element: Some(Shape::new(Source::Value(value, None))),
            }),
            FieldType::List(element) => Atom::list(ListAtom {
                kind: field.map_or(Keyed::Atomic, list_kind),
                element: Shape::new(Source::Value(element, None)),
            }),
        }
    }

    fn struct_of(self, ty: TypeRef) -> MapAtom<'s> {
        MapAtom {
            is_atomic: self.atomic_override.unwrap_or(ty.get().atomic),
            fields: Fields::Type(ty),
            element: None,
        }
    }
}

// A list without a list type follows its patch strategy, as upstream's schema conversion does.
fn list_kind(field: &'static Field) -> Keyed<'static> {
    match (&field.list, field.patch.merge, &field.patch.merge_key) {
        (Some(ListKind::Atomic), ..) | (None, false, _) => Keyed::Atomic,
        (Some(ListKind::Set), ..) | (None, true, None) => Keyed::Set,
        (Some(ListKind::Map(keys)), ..) => Keyed::ByNames(keys),
        (None, true, Some(key)) => Keyed::ByNames(std::slice::from_ref(key)),
    }
}

fn scalar_atom(scalar: Scalar) -> Atom<'static> {
    match scalar {
        Scalar::String | Scalar::Bytes | Scalar::Duration => Atom::scalar(ScalarKind::String),
        Scalar::Bool => Atom::scalar(ScalarKind::Boolean),
        Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 | Scalar::Double => {
            Atom::scalar(ScalarKind::Numeric)
        }
        Scalar::Quantity | Scalar::IntOrString | Scalar::Time | Scalar::MicroTime => {
            Atom::scalar(ScalarKind::Any)
        }
        Scalar::StringsMessage => Atom::list(ListAtom {
            kind: Keyed::Atomic,
            element: Shape::new(Source::Value(&FieldType::Scalar(Scalar::String), None)),
        }),
        Scalar::Raw => Atom::anything(true),
        Scalar::Fields
        | Scalar::Json
        | Scalar::SchemaOrBool
        | Scalar::SchemaOrArray
        | Scalar::SchemaOrStrings
        | Scalar::Any => Atom::anything(false),
    }
}

fn schema_atom(node: &Map<String, Value>, keeps_unknown: bool, is_root: bool) -> Atom<'_> {
    let is_set = |key: &str| node.get(key).and_then(Value::as_bool) == Some(true);
    let keeps_unknown = keeps_unknown || is_set("x-kubernetes-preserve-unknown-fields");
    let has_meta = is_root || is_set("x-kubernetes-embedded-resource");
    let map = || schema_map(node, keeps_unknown, has_meta);
    match node.get("type").and_then(Value::as_str) {
        Some("object") => Atom::map(map()),
        Some("array") => Atom::list(schema_list(node, keeps_unknown)),
        Some("integer" | "number") => Atom::scalar(ScalarKind::Numeric),
        Some("boolean") => Atom::scalar(ScalarKind::Boolean),
        Some("string") => {
            let is_text = matches!(
                node.get("format").and_then(Value::as_str),
                None | Some("" | "byte")
            );
            Atom::scalar(if is_text {
                ScalarKind::String
            } else {
                ScalarKind::Any
            })
        }
        _ if is_root => Atom::map(map()),
        _ => Atom {
            scalar: Some(ScalarKind::Any),
            list: Some(schema_list(node, keeps_unknown)),
            map: Some(map()),
        },
    }
}

fn schema_map(node: &Map<String, Value>, keeps_unknown: bool, has_meta: bool) -> MapAtom<'_> {
    let properties = node.get("properties").and_then(Value::as_object);
    let element = match node.get("additionalProperties") {
        Some(Value::Object(node)) => Some(Shape::new(Source::Schema {
            node,
            keeps_unknown,
            is_root: false,
        })),
        Some(Value::Bool(true)) => Some(Shape::DEDUCED),
        Some(_) => None,
        None => (keeps_unknown || properties.is_none()).then_some(Shape::DEDUCED),
    };
    MapAtom {
        is_atomic: node.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
        fields: Fields::Schema {
            properties,
            keeps_unknown,
            has_meta,
        },
        element,
    }
}

fn schema_list(node: &Map<String, Value>, keeps_unknown: bool) -> ListAtom<'_> {
    let kind = match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Keyed::Set,
        Some("map") => match node
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
        {
            Some(keys) => Keyed::ByValues(keys),
            None => Keyed::Atomic,
        },
        _ => Keyed::Atomic,
    };
    let element = match node.get("items").and_then(Value::as_object) {
        Some(node) => Shape::new(Source::Schema {
            node,
            keeps_unknown,
            is_root: false,
        }),
        None => Shape::new(Source::Untyped),
    };
    ListAtom { kind, element }
}

/// The forms a value may take; usually exactly one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atom<'s> {
    pub(crate) scalar: Option<ScalarKind>,
    pub(crate) list: Option<ListAtom<'s>>,
    pub(crate) map: Option<MapAtom<'s>>,
}

impl<'s> Atom<'s> {
    const NONE: Self = Self {
        scalar: None,
        list: None,
        map: None,
    };

    fn scalar(kind: ScalarKind) -> Self {
        Self {
            scalar: Some(kind),
            ..Self::NONE
        }
    }

    fn list(list: ListAtom<'s>) -> Self {
        Self {
            list: Some(list),
            ..Self::NONE
        }
    }

    fn map(map: MapAtom<'s>) -> Self {
        Self {
            map: Some(map),
            ..Self::NONE
        }
    }

    fn anything(is_atomic: bool) -> Self {
        let untyped = Shape::new(Source::Untyped);
        let element = if is_atomic { untyped } else { Shape::DEDUCED };
        Self {
            scalar: Some(ScalarKind::Any),
            list: Some(ListAtom {
                kind: Keyed::Atomic,
                element: untyped,
            }),
            map: Some(MapAtom {
                is_atomic,
                fields: Fields::None,
                element: Some(element),
            }),
        }
    }

    /// Narrows to the form `value` has; unchanged when it has none of the allowed forms.
    pub(crate) fn narrowed(self, value: Option<&Value>) -> Self {
        let narrowed = match value {
            None | Some(Value::Null) => return self,
            Some(Value::Array(_)) => Self {
                list: self.list,
                ..Self::NONE
            },
            Some(Value::Object(_)) => Self {
                map: self.map,
                ..Self::NONE
            },
            Some(_) => Self {
                scalar: self.scalar,
                ..Self::NONE
            },
        };
        if narrowed.forms() == (false, false, false) {
            self
        } else {
            narrowed
        }
    }

    /// The form to treat a value as: upstream tries maps, then scalars, then lists.
    pub(crate) fn form(self) -> Form<'s> {
        let forms = [
            self.map.map(Form::Map),
            self.scalar.map(Form::Scalar),
            self.list.map(Form::List),
        ];
        forms
            .into_iter()
            .flatten()
            .next()
            .expect("every shape allows some form")
    }

    /// Which of scalar, list and map are allowed.
    pub(crate) fn forms(&self) -> (bool, bool, bool) {
        (
            self.scalar.is_some(),
            self.list.is_some(),
            self.map.is_some(),
        )
    }
}

/// One of the forms of an [`Atom`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'s> {
    Map(MapAtom<'s>),
    Scalar(ScalarKind),
    List(ListAtom<'s>),
}

/// What kind of scalar a leaf must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    String,
    Numeric,
    Boolean,
    Any,
}

/// How a list merges, and what it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListAtom<'s> {
    pub(crate) kind: Keyed<'s>,
    pub(crate) element: Shape<'s>,
}

/// What identifies the elements of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keyed<'s> {
    /// Nothing: the list is one value.
    Atomic,
    /// Their values.
    Set,
    /// These fields, named by the table.
    ByNames(&'static [&'static str]),
    /// These fields, named by a custom resource's schema.
    ByValues(&'s [Value]),
}

impl<'s> Keyed<'s> {
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic)
    }

    /// The key fields' names, as declared.
    pub(crate) fn names(self) -> Vec<&'s str> {
        match self {
            Self::Atomic | Self::Set => Vec::new(),
            Self::ByNames(names) => names.to_vec(),
            Self::ByValues(values) => values.iter().filter_map(Value::as_str).collect(),
        }
    }
}

/// How a map or struct merges, and what it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapAtom<'s> {
    pub(crate) is_atomic: bool,
    fields: Fields<'s>,
    element: Option<Shape<'s>>,
}

#[derive(Debug, Clone, Copy)]
enum Fields<'s> {
    None,
    Type(TypeRef),
    Schema {
        properties: Option<&'s Map<String, Value>>,
        keeps_unknown: bool,
        /// `apiVersion`, `kind` and `metadata` are there whatever the schema says.
        has_meta: bool,
    },
}

impl<'s> MapAtom<'s> {
    /// The shape of a declared field.
    pub(crate) fn field(&self, name: &str) -> Option<Shape<'s>> {
        match self.fields {
            Fields::None => None,
            Fields::Type(ty) => ty.get().field(name).map(Shape::of_field),
            Fields::Schema {
                properties,
                keeps_unknown,
                has_meta,
            } => {
                if has_meta && let Some(shape) = meta_field(name) {
                    return Some(shape);
                }
                let node = properties?.get(name)?.as_object()?;
                Some(Shape::new(Source::Schema {
                    node,
                    keeps_unknown,
                    is_root: false,
                }))
            }
        }
    }

    /// The shape of any entry: a declared field, or what undeclared ones may be.
    pub(crate) fn entry(&self, name: &str) -> Option<Shape<'s>> {
        self.field(name).or(self.element)
    }

    /// The published default of a declared field.
    pub(crate) fn default_of(&self, name: &str) -> Option<Value> {
        match self.fields {
            Fields::None => None,
            Fields::Type(ty) if (ty.get().name, name) == EMPTY_BY_DEFAULT => Some("".into()),
            Fields::Type(ty) => published_default(ty.get().field(name)?),
            Fields::Schema { properties, .. } => properties?.get(name)?.get("default").cloned(),
        }
    }

    /// Whether nothing is declared about the entries, so that schema changes cannot matter.
    pub(crate) fn is_deduced(&self) -> bool {
        let has_fields = match self.fields {
            Fields::None => false,
            Fields::Type(_) => true,
            Fields::Schema {
                properties,
                has_meta,
                ..
            } => has_meta || properties.is_some_and(|p| !p.is_empty()),
        };
        !has_fields && matches!(self.element.map(|e| e.source), Some(Source::Deduced))
    }
}

/// The one key field that is omitted when empty and still has the empty text as its default.
const EMPTY_BY_DEFAULT: (&str, &str) = ("core.v1.LocalObjectReference", "name");

// Upstream publishes the zero of every scalar that is always printed as its default.
fn published_default(field: &Field) -> Option<Value> {
    if let Some(text) = field.default {
        return serde_json::from_str(text).ok();
    }
    match &field.ty {
        _ if field.omit_empty || field.pointer => None,
        FieldType::Scalar(Scalar::String) => Some("".into()),
        FieldType::Scalar(Scalar::Int32 | Scalar::Int64) => Some(0.into()),
        FieldType::Scalar(Scalar::Bool) => Some(false.into()),
        _ => None,
    }
}

fn meta_field(name: &str) -> Option<Shape<'static>> {
    let object = schema::lookup("meta.v1.PartialObjectMetadata")?;
    matches!(name, "apiVersion" | "kind" | "metadata")
        .then(|| object.get().field(name).map(Shape::of_field))
        .flatten()
}
