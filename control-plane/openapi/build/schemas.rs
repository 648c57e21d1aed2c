//! `components.schemas`: the table of types written the way upstream's generator writes Go types.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use objects::schema::{self, Field, FieldType, ListKind, PatchStrategy, Scalar, Type, TypeRef};
use serde_json::{Map, Value, json};

use crate::descriptions::Descriptions;

const REF_PREFIX: &str = "#/components/schemas/";
const MACHINERY: &str = "io.k8s.apimachinery.pkg.";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

/// Published name of the type of discovery's list of resources.
pub(crate) const API_RESOURCE_LIST: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
/// Published name of the type of a delete request's body.
pub(crate) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
/// Published name of the type of a patch request's body.
pub(crate) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
/// Published name of the type of errors and of most deletions' answers.
pub(crate) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
/// Published name of the type of watch frames.
pub(crate) const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Types that belong to every group and version (upstream registers them with each).
const KINDS_OF_EVERY_GROUP: [&str; 2] = ["DeleteOptions", "WatchEvent"];
/// Types that belong to core `v1` although they are declared in `meta/v1`.
const KINDS_OF_CORE: [&str; 5] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "Status",
];

/// Zero values that upstream declares as defaults although the field may be absent.
const DECLARED_ZEROES: [(&str, &str); 13] = [
    ("autoscaling.v1.ScaleSpec", "replicas"),
    ("core.v1.AzureDiskVolumeSource", "readOnly"),
    ("core.v1.ConfigMapEnvSource", "name"),
    ("core.v1.ConfigMapKeySelector", "name"),
    ("core.v1.ConfigMapProjection", "name"),
    ("core.v1.ConfigMapVolumeSource", "name"),
    ("core.v1.FileKeySelector", "optional"),
    ("core.v1.GRPCAction", "service"),
    ("core.v1.LocalObjectReference", "name"),
    ("core.v1.ReplicationControllerSpec", "minReadySeconds"),
    ("core.v1.SecretEnvSource", "name"),
    ("core.v1.SecretKeySelector", "name"),
    ("core.v1.SecretProjection", "name"),
];

/// Unions: type, discriminator, and the fields of which one is set.
const UNIONS: [(&str, Option<&str>, &[&str]); 6] = [
    (
        "core.v1.AppArmorProfile",
        Some("type"),
        &["localhostProfile"],
    ),
    ("core.v1.PodSchedulingGroup", None, &["podGroupName"]),
    (
        "core.v1.SeccompProfile",
        Some("type"),
        &["localhostProfile"],
    ),
    ("flowcontrol.v1.LimitResponse", Some("type"), &["queuing"]),
    (
        "flowcontrol.v1.PriorityLevelConfigurationSpec",
        Some("type"),
        &["exempt", "limited"],
    ),
    (
        "flowcontrol.v1.Subject",
        Some("kind"),
        &["group", "serviceAccount", "user"],
    ),
];

/// Fields of `version.Info`, which is no API type and so not in the table; whether required.
const VERSION_FIELDS: [(&str, bool); 13] = [
    ("major", true),
    ("minor", true),
    ("emulationMajor", false),
    ("emulationMinor", false),
    ("minCompatibilityMajor", false),
    ("minCompatibilityMinor", false),
    ("gitVersion", true),
    ("gitCommit", true),
    ("gitTreeState", true),
    ("buildDate", true),
    ("goVersion", true),
    ("compiler", true),
    ("platform", true),
];

/// Types whose JSON form is their own: published name, and the shape instead of properties.
fn leaf_shape(name: &str) -> Option<Value> {
    let shape = match name.strip_prefix(MACHINERY) {
        Some("api.resource.Quantity") => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Some("util.intstr.IntOrString") => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Some("apis.meta.v1.Time" | "apis.meta.v1.MicroTime") => {
            json!({"format": "date-time", "type": "string"})
        }
        Some("apis.meta.v1.FieldsV1" | "apis.meta.v1.Patch" | "runtime.RawExtension") => {
            json!({"type": "object"})
        }
        Some("version.Info") => version_info(),
        None if is_any_value(name) => json!({}),
        _ => return None,
    };
    Some(shape)
}

/// `JSON` and the either-or types of custom resource schemas publish no type at all.
fn is_any_value(name: &str) -> bool {
    let kind = name.strip_prefix(EXTENSIONS).unwrap_or_default();
    kind == "JSON" || kind.starts_with("JSONSchemaPropsOr")
}

fn version_info() -> Value {
    let property = |required| match required {
        true => json!({"type": "string", "default": ""}),
        false => json!({"type": "string"}),
    };
    let properties: Map<String, Value> = VERSION_FIELDS
        .iter()
        .map(|(name, required)| ((*name).into(), property(*required)))
        .collect();
    let required: Vec<_> = VERSION_FIELDS.iter().filter(|f| f.1).map(|f| f.0).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// A reference to a published type.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REF_PREFIX}{name}")})
}

/// Writes the schemas of types by their published names.
pub(crate) struct SchemaWriter {
    descriptions: Descriptions,
    types: HashMap<String, TypeRef>,
    kinds: HashMap<&'static str, Vec<(&'static str, &'static str, &'static str)>>,
}

impl SchemaWriter {
    /// A writer over the whole table of types.
    pub(crate) fn new() -> SchemaWriter {
        let mut writer = SchemaWriter {
            descriptions: Descriptions::collect(),
            types: HashMap::new(),
            kinds: HashMap::new(),
        };
        for (group, version, kind, ty) in schema::kinds() {
            writer
                .kinds
                .entry(ty.get().name)
                .or_default()
                .push((group, version, kind));
            writer.add_type(ty);
        }
        for name in KINDS_OF_EVERY_GROUP.iter().chain(&KINDS_OF_CORE) {
            let ty = schema::kind("", "v1", name);
            writer.add_type(ty.unwrap_or_else(|| panic!("the table of types has no {name}")));
        }
        writer
    }

    fn add_type(&mut self, ty: TypeRef) {
        if self.types.insert(ty.get().openapi_name(), ty).is_none() {
            for field in ty.get().json_fields() {
                if let Some(inner) = object_of(&field.ty) {
                    self.add_type(inner);
                }
            }
        }
    }

    /// Every schema that `paths` refers to, directly or not, for the document of a group version.
    pub(crate) fn closure(&self, paths: &Value, group: &str, version: &str) -> Map<String, Value> {
        let mut pending = Vec::new();
        collect_references(paths, &mut pending);
        let mut schemas = BTreeMap::new();
        while let Some(name) = pending.pop() {
            if let Entry::Vacant(place) = schemas.entry(name) {
                let schema = self.schema(place.key(), group, version);
                collect_references(&schema, &mut pending);
                place.insert(schema);
            }
        }
        schemas.into_iter().collect()
    }

    fn schema(&self, name: &str, group: &str, version: &str) -> Value {
        assert!(
            self.descriptions.knows(name),
            "descriptions.rs does not reach {name}"
        );
        let mut schema = match leaf_shape(name) {
            Some(shape) => self.with_field_descriptions(name, shape),
            None => {
                let ty = self
                    .types
                    .get(name)
                    .unwrap_or_else(|| panic!("no published type {name}"));
                self.object(name, ty.get(), group, version)
            }
        };
        if let Some(text) = self.descriptions.of_type(name) {
            schema["description"] = text.into();
        }
        schema
    }

    fn with_field_descriptions(&self, name: &str, mut shape: Value) -> Value {
        let properties = shape.get_mut("properties").and_then(Value::as_object_mut);
        for (field, property) in properties.into_iter().flatten() {
            if let Some(text) = self.descriptions.of_field(name, field) {
                property["description"] = text.into();
            }
        }
        shape
    }

    fn object(&self, name: &str, ty: &Type, group: &str, version: &str) -> Value {
        let mut schema = json!({"type": "object"});
        let fields: Vec<_> = ty.json_fields().collect();
        if !fields.is_empty() {
            let describe = |field: &Field| self.descriptions.of_field(name, field.name);
            let properties = fields
                .iter()
                .map(|field| (field.name.to_owned(), property(ty, field, describe(field))));
            schema["properties"] = Value::Object(properties.collect());
        }
        let required: Vec<_> = fields
            .iter()
            .filter(|f| f.required)
            .map(|f| f.name)
            .collect();
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if ty.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        if let Some(union) = UNIONS.iter().find(|u| u.0 == ty.name) {
            schema["x-kubernetes-unions"] = union_extension(union.1, union.2);
        }
        let kinds = self.group_version_kinds(ty, group, version);
        if !kinds.is_empty() {
            schema["x-kubernetes-group-version-kind"] = kinds.into();
        }
        schema
    }

    fn group_version_kinds(&self, ty: &Type, group: &str, version: &str) -> Vec<Value> {
        let kind = ty.name.strip_prefix("meta.v1.").unwrap_or_default();
        if KINDS_OF_CORE.contains(&kind) {
            return vec![group_version_kind("", "v1", kind)];
        }
        if KINDS_OF_EVERY_GROUP.contains(&kind) {
            let mut kinds = vec![group_version_kind("", "v1", kind)];
            if !group.is_empty() {
                kinds.push(group_version_kind(group, version, kind));
            }
            return kinds;
        }
        let mut kinds = self.kinds.get(ty.name).cloned().unwrap_or_default();
        kinds.sort_unstable();
        kinds
            .into_iter()
            .map(|(g, v, k)| group_version_kind(g, v, k))
            .collect()
    }
}

/// The value of `x-kubernetes-group-version-kind`, or of one element of it.
pub(crate) fn group_version_kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn object_of(ty: &FieldType) -> Option<TypeRef> {
    match ty {
        FieldType::Scalar(_) => None,
        FieldType::Object(inner) => Some(*inner),
        FieldType::List(inner) | FieldType::Map(inner) => object_of(inner),
    }
}

fn collect_references(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            // A property may itself be called `$ref`; then its value is no text.
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                names.extend(name.strip_prefix(REF_PREFIX).map(str::to_owned));
            }
            map.values()
                .for_each(|inner| collect_references(inner, names));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|inner| collect_references(inner, names)),
        _ => {}
    }
}

fn property(owner: &Type, field: &Field, description: Option<String>) -> Value {
    let mut property = shape(&field.ty);
    if let Some(default) = default_of(owner, field) {
        property["default"] = default;
    }
    if let Some(text) = description {
        property["description"] = text.into();
    }
    add_merge_rules(&mut property, field);
    beside_reference(property)
}

/// OpenAPI 3.0 ignores what stands beside a `$ref`, so upstream moves the reference into `allOf`.
fn beside_reference(mut schema: Value) -> Value {
    let map = schema.as_object_mut().expect("every schema is an object");
    if map.len() > 1
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".into(), json!([{"$ref": reference}]));
    }
    schema
}

fn add_merge_rules(property: &mut Value, field: &Field) {
    match &field.list {
        Some(ListKind::Atomic) => property["x-kubernetes-list-type"] = "atomic".into(),
        Some(ListKind::Set) => property["x-kubernetes-list-type"] = "set".into(),
        Some(ListKind::Map(keys)) => {
            property["x-kubernetes-list-type"] = "map".into();
            property["x-kubernetes-list-map-keys"] = keys.clone().into();
        }
        None => {}
    }
    if field.map_atomic {
        property["x-kubernetes-map-type"] = "atomic".into();
    } else if field.map_granular {
        property["x-kubernetes-map-type"] = "granular".into();
    }
    if let Some(strategy) = patch_strategy(&field.patch) {
        property["x-kubernetes-patch-strategy"] = strategy.into();
    }
    if let Some(key) = field.patch.merge_key {
        property["x-kubernetes-patch-merge-key"] = key.into();
    }
}

fn patch_strategy(patch: &PatchStrategy) -> Option<String> {
    let strategies = [
        (patch.merge, "merge"),
        (patch.retain_keys, "retainKeys"),
        (patch.replace, "replace"),
    ];
    let declared: Vec<_> = strategies.iter().filter(|s| s.0).map(|s| s.1).collect();
    (!declared.is_empty()).then(|| declared.join(","))
}

/// Upstream publishes the zero value of every field that Go always writes: structs that are no
/// pointers, and scalars that are neither pointers nor `omitempty`.
fn default_of(owner: &Type, field: &Field) -> Option<Value> {
    if let Some(text) = field.default {
        let value = serde_json::from_str(text);
        return Some(value.unwrap_or_else(|e| panic!("default of {}: {e}", field.name)));
    }
    if DECLARED_ZEROES.contains(&(owner.name, field.name)) {
        return zero(&field.ty);
    }
    let always_written = match field.ty {
        FieldType::Object(_) => !field.pointer,
        _ => !field.pointer && !field.omit_empty && !field.omit_zero,
    };
    zero(&field.ty).filter(|_| always_written)
}

fn zero(ty: &FieldType) -> Option<Value> {
    match ty {
        FieldType::Object(_) => Some(json!({})),
        FieldType::List(_) | FieldType::Map(_) => None,
        FieldType::Scalar(scalar) => match scalar {
            Scalar::String => Some("".into()),
            Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 => Some(0.into()),
            Scalar::Double => Some(0.into()),
            Scalar::Bool => Some(false.into()),
            _ => None,
        },
    }
}

fn shape(ty: &FieldType) -> Value {
    match ty {
        FieldType::Object(inner) => reference(&inner.get().openapi_name()),
        FieldType::List(inner) => json!({"type": "array", "items": element(inner)}),
        FieldType::Map(inner) => json!({"type": "object", "additionalProperties": element(inner)}),
        FieldType::Scalar(scalar) => scalar_shape(*scalar),
    }
}

fn element(ty: &FieldType) -> Value {
    let mut schema = shape(ty);
    if let Some(default) = zero(ty) {
        schema["default"] = default;
    }
    beside_reference(schema)
}

fn scalar_shape(scalar: Scalar) -> Value {
    let machinery = |name: &str| reference(&format!("{MACHINERY}{name}"));
    let extensions = |name: &str| reference(&format!("{EXTENSIONS}{name}"));
    match scalar {
        Scalar::String => json!({"type": "string"}),
        Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
        Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 => {
            json!({"type": "integer", "format": "int64"})
        }
        Scalar::Bool => json!({"type": "boolean"}),
        Scalar::Bytes => json!({"type": "string", "format": "byte"}),
        Scalar::Double => json!({"type": "number", "format": "double"}),
        Scalar::Quantity => machinery("api.resource.Quantity"),
        Scalar::IntOrString => machinery("util.intstr.IntOrString"),
        Scalar::Time => machinery("apis.meta.v1.Time"),
        Scalar::MicroTime => machinery("apis.meta.v1.MicroTime"),
        Scalar::Duration => machinery("apis.meta.v1.Duration"),
        Scalar::Raw => machinery("runtime.RawExtension"),
        Scalar::Fields => machinery("apis.meta.v1.FieldsV1"),
        Scalar::Json => extensions("JSON"),
        Scalar::SchemaOrBool => extensions("JSONSchemaPropsOrBool"),
        Scalar::SchemaOrArray => extensions("JSONSchemaPropsOrArray"),
        Scalar::SchemaOrStrings => extensions("JSONSchemaPropsOrStringArray"),
        Scalar::StringsMessage => {
            json!({"type": "array", "items": {"type": "string", "default": ""}})
        }
        Scalar::Any => json!({"type": "object"}),
    }
}

fn union_extension(discriminator: Option<&str>, fields: &[&str]) -> Value {
    let by_field: Map<String, Value> = fields
        .iter()
        .map(|field| ((*field).to_owned(), capitalised(field).into()))
        .collect();
    let mut union = json!({"fields-to-discriminateBy": by_field});
    if let Some(field) = discriminator {
        union["discriminator"] = field.into();
    }
    json!([union])
}

/// The text with its first letter in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}
