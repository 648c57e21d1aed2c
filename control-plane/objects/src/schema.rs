//! The table of built-in types: every field's JSON name, protobuf number, type and merge rules.
//!
//! `data/schema.tbl` holds one line per type and one indented line per field:
//!
//! ```text
//! core.v1.Container
//!  name 1 string r
//!  ports 6 []@core.v1.ContainerPort o patch=merge:containerPort list=map:containerPort,protocol
//! ```
//!
//! A field line is its JSON name, its protobuf number (0: not on the wire), its type and its flags.
//! Types: a scalar name, `@` another type, `[]` a list of, `{}` a map from string to. A field named
//! `-` with flag `inline` is a protobuf sub-message whose fields stand in the parent's JSON object.
//!
//! | flag | meaning |
//! |---|---|
//! | `p` | a pointer: present-and-zero differs from absent |
//! | `o`, `z` | Go's `omitempty`, `omitzero` |
//! | `r` | required by the published OpenAPI |
//! | `patch=` | strategic merge: `merge[:key]`, `retainKeys`, `replace`, comma-separated |
//! | `list=` | server-side apply: `atomic`, `set`, `map:key[,key]` |
//! | `map=` | server-side apply: `atomic` (the map or struct is one value) or `granular` |
//! | `default=` | the published default, as JSON |
//!
//! `data/kinds.tbl` maps `group version kind` to a type; `-` is the core group.

use std::collections::HashMap;
use std::sync::OnceLock;

const SCHEMA: &str = include_str!("../data/schema.tbl");
const KINDS: &str = include_str!("../data/kinds.tbl");

/// A leaf of the type system, by what it looks like in JSON and on the protobuf wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// UTF-8 text.
    String,
    /// 32-bit signed varint.
    Int32,
    /// 64-bit signed varint.
    Int64,
    /// 32-bit unsigned varint.
    Uint32,
    /// 64-bit unsigned varint.
    Uint64,
    /// `true` or `false`.
    Bool,
    /// Base64 text in JSON.
    Bytes,
    /// 64-bit float.
    Double,
    /// `resource.Quantity`: text or number in JSON, message `{1: string}` on the wire.
    Quantity,
    /// `intstr.IntOrString`: message `{1: type, 2: intVal, 3: strVal}`.
    IntOrString,
    /// `meta.v1.Time`: RFC 3339 seconds; message `{1: seconds, 2: nanos}`, empty when zero.
    Time,
    /// `meta.v1.MicroTime`: RFC 3339 with six digits; same message as `Time`.
    MicroTime,
    /// `meta.v1.Duration`: Go duration text; message `{1: int64 nanoseconds}`.
    Duration,
    /// `runtime.RawExtension`: any JSON object; message `{1: raw bytes}`.
    Raw,
    /// `meta.v1.FieldsV1`: any JSON object; message `{1: raw bytes}`.
    Fields,
    /// `apiextensions.JSON`: any JSON value; message `{1: raw bytes}`.
    Json,
    /// `JSONSchemaPropsOrBool`: `{1: allows, 2: schema}`.
    SchemaOrBool,
    /// `JSONSchemaPropsOrArray`: `{1: schema, 2: []schemas}`.
    SchemaOrArray,
    /// `JSONSchemaPropsOrStringArray`: `{1: schema, 2: []strings}`.
    SchemaOrStrings,
    /// A list of strings that is wrapped in a message `{1: []string}` on the wire (`ExtraValue`).
    StringsMessage,
    /// Any JSON value; never on the wire.
    Any,
}

/// The type of a field, list element or map value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldType {
    /// A leaf.
    Scalar(Scalar),
    /// Another type of the table.
    Object(TypeRef),
    /// A list.
    List(Box<FieldType>),
    /// A map from string.
    Map(Box<FieldType>),
}

/// A handle to a type of the table; cheap to copy, resolved by [`TypeRef::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeRef(u32);

impl TypeRef {
    /// The type itself.
    pub fn get(self) -> &'static Type {
        &schema().types[self.0 as usize]
    }
}

/// How server-side apply merges a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// The list is one value.
    Atomic,
    /// A set of scalars.
    Set,
    /// Elements are identified by these keys.
    Map(Vec<&'static str>),
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Merge the list instead of replacing it.
    pub merge: bool,
    /// Honour `$retainKeys`.
    pub retain_keys: bool,
    /// Replace the map instead of merging it.
    pub replace: bool,
    /// The key that identifies an element of a merged list of objects.
    pub merge_key: Option<&'static str>,
}

/// One field of a [`Type`].
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name; empty for an inlined message.
    pub name: &'static str,
    /// Protobuf field number; 0 when the field is not on the wire.
    pub number: u32,
    /// Its type.
    pub ty: FieldType,
    /// A Go pointer: present-and-zero differs from absent.
    pub pointer: bool,
    /// Go's `omitempty`: zero scalars, empty lists and maps are not printed (structs always are).
    pub omit_empty: bool,
    /// Go's `omitzero`: a zero struct is not printed either.
    pub omit_zero: bool,
    /// Required by the published OpenAPI.
    pub required: bool,
    /// A sub-message on the wire whose fields stand in the parent's JSON object.
    pub inline: bool,
    /// Strategic-merge rules.
    pub patch: PatchStrategy,
    /// Server-side-apply list type, when declared. Lists without one are atomic.
    pub list: Option<ListKind>,
    /// Server-side apply treats the map or struct as one value.
    pub map_atomic: bool,
    /// Server-side apply merges the struct field by field although its type is atomic.
    pub map_granular: bool,
    /// The published default, as JSON text.
    pub default: Option<&'static str>,
}

/// One built-in type.
#[derive(Debug)]
pub struct Type {
    /// Short name, such as `core.v1.PodSpec`.
    pub name: &'static str,
    /// Server-side apply treats values of this type as one value.
    pub atomic: bool,
    /// The fields as declared: what protobuf sees (inlined messages are single fields here).
    pub fields: Vec<Field>,
    /// Where each JSON name lives: the field's index in its owner. Inlined messages are owners too.
    /// Sorted by name: types are small, and a thousand hash tables are not.
    by_json: Vec<(&'static str, u32, TypeRef)>,
    /// The same places in declared order.
    flat: Vec<(u32, TypeRef)>,
    /// Indices into `fields` of what is on the wire, by ascending number.
    wire: Vec<u32>,
}

impl Type {
    /// The field with this JSON name, looking through inlined messages.
    pub fn field(&self, json_name: &str) -> Option<&'static Field> {
        let at = self
            .by_json
            .binary_search_by_key(&json_name, |(name, ..)| name)
            .ok()?;
        let (_, index, owner) = self.by_json[at];
        Some(&owner.get().fields[index as usize])
    }

    /// Every field that appears in this type's JSON, inlined messages flattened, in declared order.
    pub fn json_fields(&self) -> impl Iterator<Item = &'static Field> + '_ {
        self.flat
            .iter()
            .map(|(index, owner)| &owner.get().fields[*index as usize])
    }

    /// The fields that are on the wire, by ascending number, which is the order upstream writes.
    pub fn wire_fields(&self) -> impl DoubleEndedIterator<Item = &Field> {
        self.wire.iter().map(|index| &self.fields[*index as usize])
    }

    /// The field with this protobuf number.
    pub fn wire_field(&self, number: u32) -> Option<&Field> {
        let by_number = |index: &u32| self.fields[*index as usize].number;
        let at = self.wire.binary_search_by_key(&number, by_number).ok()?;
        Some(&self.fields[self.wire[at] as usize])
    }

    /// The name of the Go type, such as `PodSpec`.
    pub fn go_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// The name the published OpenAPI documents use, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn openapi_name(&self) -> String {
        let prefix = match self.name.split('.').next() {
            Some("meta") => "io.k8s.apimachinery.pkg.apis.",
            Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis.",
            Some("apiregistration") => "io.k8s.kube-aggregator.pkg.apis.",
            _ => "io.k8s.api.",
        };
        format!("{prefix}{}", self.name)
    }
}

struct Schema {
    types: Vec<Type>,
    by_name: HashMap<&'static str, TypeRef>,
    kinds: HashMap<(&'static str, &'static str, &'static str), TypeRef>,
}

/// The type with this short name.
pub fn lookup(name: &str) -> Option<TypeRef> {
    schema().by_name.get(name).copied()
}

/// The type of a kind. Option kinds (`DeleteOptions`, `WatchEvent`, …) exist in every group.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<TypeRef> {
    let s = schema();
    s.kinds
        .get(&(group, version, kind))
        .or_else(|| s.kinds.get(&("meta.k8s.io", "v1", kind)))
        .copied()
        .or_else(|| s.by_name.get(format!("meta.v1.{kind}").as_str()).copied())
}

/// Every `(group, version, kind, type)` of the table.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str, &'static str, TypeRef)> {
    schema().kinds.iter().map(|(&(g, v, k), &t)| (g, v, k, t))
}

fn schema() -> &'static Schema {
    static TABLE: OnceLock<Schema> = OnceLock::new();
    TABLE.get_or_init(parse)
}

// The table is part of the program and checked by a test; a bad line is a build defect, so parsing
// panics with the line instead of returning an error nobody could handle.
fn parse() -> Schema {
    let names = SCHEMA.lines().filter(|l| !l.starts_with([' ', '#']));
    let by_name: HashMap<_, _> = names
        .zip(0..)
        .map(|(line, i)| (line.split(' ').next().unwrap_or(line), TypeRef(i)))
        .collect();
    let mut types: Vec<Type> = Vec::with_capacity(by_name.len());
    for line in SCHEMA.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix(' ') {
            None => types.push(Type {
                name: line.split(' ').next().unwrap_or(line),
                atomic: line.ends_with(" atomic"),
                fields: Vec::new(),
                by_json: Vec::new(),
                flat: Vec::new(),
                wire: Vec::new(),
            }),
            Some(field) => types
                .last_mut()
                .unwrap_or_else(|| panic!("schema.tbl starts with a field: {line}"))
                .fields
                .push(parse_field(field, &by_name)),
        }
    }
    let json_names: Vec<_> = (0..types.len()).map(|i| json_names(&types, i)).collect();
    for (ty, names) in types.iter_mut().zip(json_names) {
        ty.flat = names
            .iter()
            .map(|(_, index, owner)| (*index, *owner))
            .collect();
        ty.wire = wire_order(&ty.fields);
        ty.by_json = names;
        ty.by_json.sort_unstable_by_key(|(name, ..)| *name);
    }
    let kinds = KINDS.lines().map(|line| {
        let mut words = line.split(' ');
        let mut word = || {
            words
                .next()
                .unwrap_or_else(|| panic!("kinds.tbl: short line: {line}"))
        };
        let (group, version, kind, name) = (word(), word(), word(), word());
        let group = if group == "-" { "" } else { group };
        let ty = by_name
            .get(name)
            .unwrap_or_else(|| panic!("kinds.tbl: no type {name}"));
        ((group, version, kind), *ty)
    });
    Schema {
        kinds: kinds.collect(),
        types,
        by_name,
    }
}

fn json_names(types: &[Type], index: usize) -> Vec<(&'static str, u32, TypeRef)> {
    let mut names = Vec::new();
    for (i, field) in (0u32..).zip(&types[index].fields) {
        match &field.ty {
            FieldType::Object(inner) if field.inline => {
                names.extend(json_names(types, inner.0 as usize));
            }
            _ => names.push((
                field.name,
                i,
                TypeRef(u32::try_from(index).expect("a table of some thousand types")),
            )),
        }
    }
    names
}

fn wire_order(fields: &[Field]) -> Vec<u32> {
    let numbered = (0u32..).zip(fields).filter(|(_, field)| field.number > 0);
    let mut order: Vec<_> = numbered
        .map(|(index, field)| (field.number, index))
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

fn parse_field(line: &'static str, by_name: &HashMap<&'static str, TypeRef>) -> Field {
    let mut words = line.split(' ');
    let mut word = || {
        words
            .next()
            .unwrap_or_else(|| panic!("schema.tbl: short line: {line}"))
    };
    let (name, number, ty) = (word(), word(), word());
    let mut field = Field {
        name: if name == "-" { "" } else { name },
        number: number
            .parse()
            .unwrap_or_else(|_| panic!("schema.tbl: bad number: {line}")),
        ty: parse_type(ty, by_name),
        pointer: false,
        omit_empty: false,
        omit_zero: false,
        required: false,
        inline: false,
        patch: PatchStrategy::default(),
        list: None,
        map_atomic: false,
        map_granular: false,
        default: None,
    };
    for flag in words {
        match flag.split_once('=') {
            None => match flag {
                "p" => field.pointer = true,
                "o" => field.omit_empty = true,
                "z" => field.omit_zero = true,
                "r" => field.required = true,
                "inline" => field.inline = true,
                _ => panic!("schema.tbl: flag {flag}: {line}"),
            },
            Some(("patch", value)) => field.patch = parse_patch(value),
            Some(("list", value)) => field.list = Some(parse_list(value)),
            Some(("map", "atomic")) => field.map_atomic = true,
            Some(("map", "granular")) => field.map_granular = true,
            Some(("default", value)) => field.default = Some(value),
            Some(_) => panic!("schema.tbl: flag {flag}: {line}"),
        }
    }
    field
}

fn parse_patch(value: &'static str) -> PatchStrategy {
    let (strategies, merge_key) = match value.split_once(':') {
        Some((s, key)) => (s, Some(key)),
        None => (value, None),
    };
    let has = |name| strategies.split(',').any(|s| s == name);
    PatchStrategy {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        merge_key,
    }
}

fn parse_list(value: &'static str) -> ListKind {
    match value.strip_prefix("map:") {
        Some(keys) => ListKind::Map(keys.split(',').collect()),
        None if value == "set" => ListKind::Set,
        None => ListKind::Atomic,
    }
}

fn parse_type(text: &'static str, by_name: &HashMap<&'static str, TypeRef>) -> FieldType {
    if let Some(inner) = text.strip_prefix("[]") {
        return FieldType::List(Box::new(parse_type(inner, by_name)));
    }
    if let Some(inner) = text.strip_prefix("{}") {
        return FieldType::Map(Box::new(parse_type(inner, by_name)));
    }
    if let Some(name) = text.strip_prefix('@') {
        let ty = by_name
            .get(name)
            .unwrap_or_else(|| panic!("schema.tbl: no type {name}"));
        return FieldType::Object(*ty);
    }
    FieldType::Scalar(match text {
        "string" => Scalar::String,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "uint32" => Scalar::Uint32,
        "uint64" => Scalar::Uint64,
        "bool" => Scalar::Bool,
        "bytes" => Scalar::Bytes,
        "double" => Scalar::Double,
        "quantity" => Scalar::Quantity,
        "intstr" => Scalar::IntOrString,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "duration" => Scalar::Duration,
        "raw" => Scalar::Raw,
        "fields" => Scalar::Fields,
        "json" => Scalar::Json,
        "schema-or-bool" => Scalar::SchemaOrBool,
        "schema-or-array" => Scalar::SchemaOrArray,
        "schema-or-strings" => Scalar::SchemaOrStrings,
        "strings-message" => Scalar::StringsMessage,
        "any" => Scalar::Any,
        other => panic!("schema.tbl: unknown scalar {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_parses_and_every_kind_has_a_type() {
        assert!(kinds().count() > 300);
        let pod = kind("", "v1", "Pod").expect("pods exist").get();
        assert_eq!(pod.name, "core.v1.Pod");
        assert_eq!(pod.openapi_name(), "io.k8s.api.core.v1.Pod");
    }

    #[test]
    fn fields_of_inlined_messages_are_found_by_their_json_name() {
        let volume = lookup("core.v1.Volume").expect("exists").get();
        assert!(volume.field("configMap").is_some());
        assert!(volume.json_fields().any(|f| f.name == "emptyDir"));
        assert!(volume.json_fields().all(|f| !f.inline));
    }

    #[test]
    fn no_type_has_two_fields_of_one_name() {
        for ty in &schema().types {
            let unique = ty.by_json.windows(2).all(|pair| pair[0].0 != pair[1].0);
            assert!(unique, "{}", ty.name);
        }
    }

    #[test]
    fn option_kinds_exist_in_every_group() {
        let options = kind("apps", "v1", "DeleteOptions").expect("exists");
        assert_eq!(options.get().name, "meta.v1.DeleteOptions");
    }
}
