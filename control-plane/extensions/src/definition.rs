//! One served version of a custom resource, and the resources that a definition brings.

mod body;
mod columns;
mod ranking;

use std::sync::Arc;

use jiff::Timestamp;
use kinds::defined::{Definition, ObjectType, ScalePaths};
use kinds::field::{Errors, FieldError, Reason};
use kinds::print::Column;
use kinds::resources::{GroupVersion, Resource, Subresource, intern};
use objects::normalize::{Normalized, TypeError};
use objects::shape::Shape;
use serde_json::Value;

pub use ranking::by_priority;

use self::body::Body;
use crate::coerce::{self, Source};
use crate::names;
use crate::paths;
use crate::schema::Node;
use crate::validate::{self, At};

/// Whoever evaluates `x-kubernetes-validations`.
pub trait Rules: std::fmt::Debug + Send + Sync {
    /// The rules of a schema, ready to be asked; `None` when it has none. Schemas are compiled once, when
    /// the first object is judged; what does not compile was refused when it was written.
    fn compile(&self, schema: &Value) -> Option<Arc<dyn Checked>>;
}

/// The rules of one schema.
pub trait Checked: std::fmt::Debug + Send + Sync {
    /// What they have against an object, given what it was before.
    fn check(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError>;
}

/// What all versions of a definition share.
#[derive(Debug)]
struct Shared {
    group: &'static str,
    kind: &'static str,
    /// Every version, the served and the others: objects may be stored in any.
    versions: Vec<(&'static str, Body)>,
    stored: &'static str,
    terminating: bool,
    webhook: Option<Value>,
    rules: Option<Arc<dyn Rules>>,
}

/// One version of a custom resource.
#[derive(Debug)]
struct Version {
    shared: Arc<Shared>,
    name: &'static str,
    position: usize,
    /// The fields that any version selects by; those of others are empty here.
    selectable: Vec<String>,
    selected: Vec<Vec<String>>,
    scale: Option<ScalePaths>,
    has_status: bool,
    deprecation: Option<String>,
}

/// Verbs in upstream's order for custom resources.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const DYING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];
const SCALE: GroupVersion = GroupVersion {
    group: "autoscaling",
    version: "v1",
};

/// Reads definitions.
#[derive(Debug, Clone, Default)]
pub struct Definitions {
    rules: Option<Arc<dyn Rules>>,
}

impl Definitions {
    /// With an engine for rules written in CEL.
    pub fn with_rules(rules: Arc<dyn Rules>) -> Definitions {
        Definitions { rules: Some(rules) }
    }

    /// The resources that a definition brings: one for each served version, the best version first.
    /// Empty while its names are not accepted.
    pub fn read(&self, definition: &Value) -> Vec<Arc<Resource>> {
        let usable = ["NamesAccepted", "Established"];
        if !usable
            .iter()
            .any(|condition| names::is_true(definition, condition))
        {
            return Vec::new();
        }
        let spec = &definition["spec"];
        let shared = Arc::new(self.shared(definition));
        let mut versions: Vec<(usize, &Value)> = versions(spec).enumerate().collect();
        versions.retain(|(_, version)| version["served"] == true);
        versions.sort_by(|(_, a), (_, b)| by_priority(text(b, "name"), text(a, "name")));
        let one = |(position, version): (usize, &Value)| {
            let version = read_version(spec, version, position, &shared);
            Arc::new(resource(definition, &shared, version))
        };
        versions.into_iter().map(one).collect()
    }

    fn shared(&self, definition: &Value) -> Shared {
        let spec = &definition["spec"];
        let preserves = spec["preserveUnknownFields"] == true;
        let read = |version: &Value| {
            (
                intern(text(version, "name")),
                Body::read(version, preserves),
            )
        };
        let stored = versions(spec).find(|v| v["storage"] == true);
        Shared {
            group: intern(text(spec, "group")),
            kind: intern(accepted(definition, "kind")),
            versions: versions(spec).map(read).collect(),
            stored: intern(stored.map_or("", |v| text(v, "name"))),
            terminating: names::is_true(definition, "Terminating"),
            webhook: (spec["conversion"]["strategy"] == "Webhook")
                .then(|| spec["conversion"]["webhook"].clone()),
            rules: self.rules.clone(),
        }
    }
}

fn read_version(spec: &Value, version: &Value, position: usize, shared: &Arc<Shared>) -> Version {
    let all = all_selectable(spec);
    let own: Vec<&str> = selectable(version).collect();
    let selected = all
        .iter()
        .map(|field| field.split('.').map(str::to_owned).collect());
    Version {
        name: shared.versions[position].0,
        position,
        selected: selected.collect(),
        selectable: all
            .into_iter()
            .map(|f| {
                if own.contains(&f.as_str()) {
                    f
                } else {
                    String::new()
                }
            })
            .collect(),
        scale: scale_paths(version),
        has_status: version["subresources"]
            .get("status")
            .is_some_and(|s| !s.is_null()),
        deprecation: deprecation(spec, version, shared),
        shared: Arc::clone(shared),
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"].as_array().into_iter().flatten()
}

// Names are those that were accepted, not those that are wished for.
fn accepted<'d>(definition: &'d Value, part: &str) -> &'d str {
    text(&definition["status"]["acceptedNames"], part)
}

fn resource(definition: &Value, shared: &Arc<Shared>, version: Version) -> Resource {
    let list = |part: &str| -> Vec<&'static str> {
        let names = definition["status"]["acceptedNames"][part].as_array();
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        names.map(intern).collect()
    };
    let gv = |version| GroupVersion {
        group: shared.group,
        version,
    };
    let verbs = match shared.terminating {
        true => DYING_VERBS.to_vec(),
        false => VERBS.to_vec(),
    };
    let mut subresources = Vec::new();
    let mut below = |name, kind, gv| {
        subresources.push(Subresource {
            name,
            kind,
            gv,
            verbs: SUBRESOURCE_VERBS.to_vec(),
        });
    };
    if version.has_status {
        below("status", shared.kind, None);
    }
    if version.scale.is_some() {
        below("scale", "Scale", Some(SCALE));
    }
    Resource {
        gv: gv(version.name),
        plural: intern(accepted(definition, "plural")),
        singular: intern(accepted(definition, "singular")),
        kind: shared.kind,
        list_kind: intern(accepted(definition, "listKind")),
        namespaced: definition["spec"]["scope"] == "Namespaced",
        verbs,
        short_names: list("shortNames"),
        categories: list("categories"),
        stored: gv(shared.stored),
        hashed: gv(shared.stored),
        is_virtual: false,
        subresources,
        ty: ObjectType::Defined(Arc::new(version)),
    }
}

fn selectable(version: &Value) -> impl Iterator<Item = &str> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    fields.filter_map(|f| text(f, "jsonPath").strip_prefix('.'))
}

fn all_selectable(spec: &Value) -> Vec<String> {
    let mut all: Vec<String> = versions(spec)
        .flat_map(selectable)
        .map(str::to_owned)
        .collect();
    all.sort();
    all.dedup();
    all
}

fn scale_paths(version: &Value) -> Option<ScalePaths> {
    let scale = version["subresources"]
        .get("scale")
        .filter(|s| !s.is_null())?;
    Some(ScalePaths {
        spec: paths::simple(text(scale, "specReplicasPath"))?,
        status: paths::simple(text(scale, "statusReplicasPath"))?,
        selector: paths::simple(text(scale, "labelSelectorPath")),
    })
}

fn deprecation(spec: &Value, version: &Value, shared: &Shared) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let name = text(version, "name");
    let better = versions(spec).filter(|v| {
        v["served"] == true && v["deprecated"] != true && by_priority(text(v, "name"), name).is_gt()
    });
    let newest = better
        .map(|v| text(v, "name"))
        .max_by(|a, b| by_priority(a, b));
    let (group, kind) = (shared.group, shared.kind);
    let instead = newest.map_or(String::new(), |newest| {
        format!("; use {group}/{newest} {kind}")
    });
    Some(format!("{group}/{name} {kind} is deprecated{instead}"))
}

impl Version {
    fn body(&self) -> &Body {
        &self.shared.versions[self.position].1
    }

    fn node(&self) -> &Node {
        self.body().node()
    }

    fn node_of(&self, version: &str) -> Option<&Node> {
        let mut all = self.shared.versions.iter();
        let found = all.find(|(name, _)| *name == version);
        found.map(|(_, body)| body.node())
    }

    // Without a webhook only the name of the version differs; the schema of the target does the rest.
    fn convert(&self, object: &mut Value, to: &str) {
        object["apiVersion"] = format!("{}/{to}", self.shared.group).into();
        if let Some(node) = self.node_of(to)
            && let Ok(normal) = coerce::normalize(node, std::mem::take(object), Source::Storage)
        {
            *object = normal.value;
            coerce::default(node, object);
        }
    }

    fn schema_errors(
        &self,
        new: &Value,
        old: Option<&Value>,
        subresource: &str,
    ) -> Vec<FieldError> {
        let (node, root) = (self.node(), At::ROOT);
        if subresource != "status" {
            return validate::check(node, new, old, &root);
        }
        let below = node.property("status").zip(new.get("status"));
        below.map_or_else(Vec::new, |(node, status)| {
            let old = old.and_then(|o| o.get("status"));
            validate::check(node, status, old, &root.key("status"))
        })
    }

    fn scale_errors(&self, object: &Value) -> Vec<FieldError> {
        let Some(scale) = &self.scale else {
            return Vec::new();
        };
        let check = |names: &Vec<String>| {
            let value = paths::at(object, names)?;
            let fits = value
                .as_i64()
                .is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n));
            (!fits && value.is_number()).then(|| FieldError {
                reason: Reason::Invalid,
                field: names.join("."),
                message: format!("Invalid value: {value}: should be a non-negative integer"),
            })
        };
        [&scale.spec, &scale.status]
            .into_iter()
            .filter_map(check)
            .collect()
    }

    fn errors(&self, new: &Value, old: Option<&Value>, subresource: &str, errors: &mut Errors) {
        let (node, root) = (self.node(), At::ROOT);
        let mut found = Vec::new();
        if new["kind"] != self.shared.kind {
            found.push(FieldError {
                reason: Reason::Invalid,
                field: "kind".into(),
                message: format!(
                    "Invalid value: {}: must be {}",
                    new["kind"], self.shared.kind
                ),
            });
        }
        found.extend(self.schema_errors(new, old, subresource));
        if subresource != "status" {
            found.extend(self.scale_errors(new));
            validate::embedded(node, new, &root, &mut found);
        }
        let mut had = Vec::new();
        if let Some(old) = old {
            validate::duplicates(node, old, &root, &mut had);
        }
        if had.is_empty() {
            validate::duplicates(node, new, &root, &mut found);
        }
        if let Some(rules) = self.body().rules(self.shared.rules.as_ref()) {
            match found.iter().any(|e| blocks_rules(e.reason)) {
                true => found.push(unchecked()),
                false => found.extend(rules.check(new, old)),
            }
        }
        errors.0.extend(found);
    }
}

// Rules are only asked about objects that have the form they were written for.
fn blocks_rules(reason: Reason) -> bool {
    use Reason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(
        reason,
        NotSupported | Required | TooLong | TooMany | TypeInvalid
    )
}

fn unchecked() -> FieldError {
    FieldError {
        reason: Reason::Invalid,
        field: "<nil>".into(),
        message: "Invalid value: null: some validation rules were not checked because the object was invalid; \
                  correct the existing errors to complete validation"
            .into(),
    }
}

impl Definition for Version {
    fn shape(&self) -> Shape<'_> {
        Shape::of_custom_resource(self.body().merging(), self.node().preserves)
    }

    fn normalize(&self, object: Value) -> Result<Normalized, TypeError> {
        let mut normal = coerce::normalize(self.node(), object, Source::Request)?;
        // Whoever asks for the name of an object without one finds that it has none.
        if let Some(map) = normal.value.as_object_mut() {
            map.entry("metadata")
                .or_insert_with(|| serde_json::json!({}));
        }
        Ok(normal)
    }

    fn default(&self, object: &mut Value) {
        coerce::default(self.node(), object);
    }

    fn validate(&self, object: &Value, errors: &mut Errors) {
        self.errors(object, None, "", errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
        self.errors(new, Some(old), subresource, errors);
    }

    fn columns(&self) -> &[Column] {
        &self.body().columns().all
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.body().columns().cells(object, now)
    }

    fn selectable(&self) -> &[String] {
        &self.selectable
    }

    fn selected(&self, object: &Value) -> Vec<String> {
        let one = |names: &Vec<String>| match paths::at(object, names) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        self.selected.iter().map(one).collect()
    }

    fn scale(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn serve(&self, object: &mut Value) {
        self.convert(object, self.name);
    }

    fn store(&self, object: &mut Value) {
        self.convert(object, self.shared.stored);
    }

    fn adopt(&self, mut object: Value) -> Value {
        let (group, stored) = (self.shared.group, self.shared.stored);
        let version = object["apiVersion"]
            .as_str()
            .and_then(|v| v.rsplit_once('/'));
        if let Some((_, version)) = version.filter(|(_, v)| *v != stored) {
            let version = version.to_owned();
            self.convert(&mut object, &version);
        }
        if self.shared.webhook.is_none() || object["apiVersion"].as_str().is_none() {
            object["apiVersion"] = format!("{group}/{stored}").into();
        }
        if object["apiVersion"] == format!("{group}/{stored}") {
            self.convert(&mut object, stored);
        }
        if object["metadata"].get("generation").is_none() {
            object["metadata"]["generation"] = 1.into();
        }
        object
    }

    fn webhook(&self) -> Option<&Value> {
        self.shared.webhook.as_ref()
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn is_terminating(&self) -> bool {
        self.shared.terminating
    }

    fn schema(&self) -> Value {
        self.body().schema()
    }

    fn digest(&self) -> [u8; 32] {
        self.body().digest()
    }
}

#[cfg(test)]
mod tests;
