//! Defaults: the values upstream fills in when a field is left out.
//!
//! Upstream has one function per type (`pkg/apis/*/v1/defaults.go`) and generated code that calls
//! them for every value of that type in an object. Here most of those functions are lines of
//! [`table::FILLS`]; the ones that look at other fields are functions of [`RULES`]. A walk over the
//! object's schema, cut down once to the types that have anything to fill in, applies them: the
//! outer type first, then its fields in declared order, as upstream does.
//!
//! Some of upstream's conversions are visible to clients in the same way as a default (the
//! `serviceAccount` alias, `stringData`, `podIPs`); they are applied here too.

mod cluster;
mod pod;
mod table;
mod workload;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use kube_kit::quantity::Quantity;
use objects::schema::{self, Field, FieldType, Scalar, TypeRef};
use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

type Rule = (&'static str, fn(&mut Object));

/// What a type needs beyond fixed values, by type name.
const RULES: &[Rule] = &[
    ("core.v1.Pod", pod::pod),
    ("core.v1.PodSpec", pod::pod_spec),
    ("core.v1.PodStatus", pod::pod_status),
    ("core.v1.Container", pod::container),
    ("core.v1.EphemeralContainer", pod::container),
    ("core.v1.Volume", pod::volume),
    ("apps.v1.Deployment", workload::deployment),
    ("apps.v1.DaemonSet", workload::daemon_set),
    ("apps.v1.StatefulSet", workload::stateful_set),
    ("batch.v1.Job", workload::job),
    (
        "core.v1.ReplicationController",
        workload::replication_controller,
    ),
    (
        "autoscaling.v1.HorizontalPodAutoscaler",
        workload::autoscaler_v1,
    ),
    (
        "autoscaling.v2.HorizontalPodAutoscaler",
        workload::autoscaler_v2,
    ),
    ("core.v1.Service", cluster::service),
    ("core.v1.Secret", cluster::secret),
    ("core.v1.ConfigMap", cluster::config_map),
    ("core.v1.Namespace", cluster::namespace),
    ("core.v1.NodeSpec", cluster::node_spec),
    ("core.v1.NodeStatus", cluster::node_status),
    ("core.v1.LimitRangeItem", cluster::limit_range_item),
    ("networking.v1.NetworkPolicy", cluster::network_policy),
    ("networking.v1.IngressClass", cluster::ingress_class),
    ("rbac.v1.Subject", cluster::rbac_subject),
    ("resource.v1.ExactDeviceRequest", cluster::device_request),
    ("resource.v1.DeviceSubRequest", cluster::device_request),
    ("resource.v1.Device", cluster::device),
    (
        "apiextensions.v1.CustomResourceDefinition",
        cluster::custom_resource_definition,
    ),
];

/// Fills in the defaults of an object of this type, in place. Applying it again changes nothing.
pub fn apply(ty: TypeRef, object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        visit(ty, map);
    }
}

/// Everything to do for the values of one type.
#[derive(Default)]
struct Plan {
    fills: Vec<Fill>,
    rules: Vec<fn(&mut Object)>,
    /// Resource lists, whose amounts are rounded up to thousandths.
    resource_lists: Vec<&'static str>,
    /// Fields below which there is something to do.
    children: Vec<(&'static str, &'static FieldType)>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.fills.is_empty() && self.rules.is_empty() && self.resource_lists.is_empty()
    }
}

/// A fixed value for a field left out.
struct Fill {
    /// Structs to go through; they are part of their parent and thus always there.
    parents: Vec<&'static str>,
    field: &'static str,
    /// A pointer may hold zero on purpose; for other fields zero means left out.
    pointer: bool,
    value: Value,
}

impl Fill {
    fn apply(&self, map: &mut Object) {
        let mut map = map;
        for parent in &self.parents {
            map = child(map, parent);
        }
        let left_out = match map.get(self.field) {
            None | Some(Value::Null) => true,
            Some(value) => !self.pointer && is_zero(value),
        };
        if left_out {
            map.insert(self.field.to_owned(), self.value.clone());
        }
    }
}

fn visit(ty: TypeRef, map: &mut Object) {
    let Some(plan) = plans().get(&ty) else { return };
    plan.fills.iter().for_each(|fill| fill.apply(map));
    plan.rules.iter().for_each(|rule| rule(map));
    for name in &plan.resource_lists {
        if let Some(Value::Object(list)) = map.get_mut(*name) {
            list.values_mut().for_each(round_up_to_milli);
        }
    }
    for (name, ty) in &plan.children {
        if let Some(value) = map.get_mut(*name) {
            descend(ty, value);
        }
    }
}

fn descend(ty: &FieldType, value: &mut Value) {
    match (ty, value) {
        (FieldType::Object(ty), Value::Object(map)) => visit(*ty, map),
        (FieldType::List(inner), Value::Array(list)) => {
            list.iter_mut().for_each(|item| descend(inner, item));
        }
        (FieldType::Map(inner), Value::Object(map)) => {
            map.values_mut().for_each(|item| descend(inner, item));
        }
        _ => {}
    }
}

// Upstream keeps thousandths at most in every `ResourceList`. Amounts that are finer print with
// `n`, `u` or a negative exponent; the common ones are recognised without parsing.
fn round_up_to_milli(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    if !text.contains(['n', 'u', '-', '.']) {
        return;
    }
    let Ok(amount) = text.parse::<Quantity>() else {
        return;
    };
    const NANOS_PER_MILLI: i128 = 1_000_000;
    if amount.nanos() % NANOS_PER_MILLI != 0 {
        let milli = amount.nanos().div_euclid(NANOS_PER_MILLI) + 1;
        let rounded = Quantity::from_nanos(milli * NANOS_PER_MILLI, amount.format());
        *value = rounded.to_string().into();
    }
}

fn plans() -> &'static HashMap<TypeRef, Plan> {
    static PLANS: OnceLock<HashMap<TypeRef, Plan>> = OnceLock::new();
    PLANS.get_or_init(build_plans)
}

fn build_plans() -> HashMap<TypeRef, Plan> {
    let types = reachable_types();
    let mut plans: HashMap<TypeRef, Plan> = types
        .iter()
        .map(|ty| (*ty, own_plan(*ty)))
        .filter(|(_, p)| !p.is_empty())
        .collect();
    let mut needed: HashSet<TypeRef> = plans.keys().copied().collect();
    // A type is needed when a field leads to a needed one; types may contain themselves.
    loop {
        let before = needed.len();
        for ty in &types {
            if ty.get().json_fields().any(|f| leads_to(&f.ty, &needed)) {
                needed.insert(*ty);
            }
        }
        if needed.len() == before {
            break;
        }
    }
    for ty in &needed {
        let fields = ty.get().json_fields().filter(|f| leads_to(&f.ty, &needed));
        plans.entry(*ty).or_default().children = fields.map(|f| (f.name, &f.ty)).collect();
    }
    plans
}

fn reachable_types() -> HashSet<TypeRef> {
    let mut todo: Vec<TypeRef> = schema::kinds().map(|(_, _, _, ty)| ty).collect();
    let mut seen: HashSet<TypeRef> = HashSet::new();
    while let Some(ty) = todo.pop() {
        if seen.insert(ty) {
            todo.extend(ty.get().json_fields().filter_map(|f| target(&f.ty)));
        }
    }
    seen
}

fn leads_to(ty: &FieldType, needed: &HashSet<TypeRef>) -> bool {
    target(ty).is_some_and(|ty| needed.contains(&ty))
}

// The type of a field's values, looking through lists and maps.
fn target(ty: &FieldType) -> Option<TypeRef> {
    match ty {
        FieldType::Object(ty) => Some(*ty),
        FieldType::List(inner) | FieldType::Map(inner) => target(inner),
        FieldType::Scalar(_) => None,
    }
}

fn own_plan(ty: TypeRef) -> Plan {
    let mut plan = Plan::default();
    for name in inlined_names(ty) {
        let fills = table::FILLS.iter().filter(|(owner, _, _)| *owner == name);
        plan.fills
            .extend(fills.map(|(_, path, json)| table_fill(ty, path, json)));
        let rules = RULES.iter().filter(|(owner, _)| *owner == name);
        plan.rules.extend(rules.map(|(_, rule)| *rule));
    }
    for field in ty.get().json_fields() {
        plan.fills.extend(published_fill(field));
        if is_resource_list(ty, field) {
            plan.resource_lists.push(field.name);
        }
    }
    plan
}

// A type and the types whose fields stand in its own JSON object.
fn inlined_names(ty: TypeRef) -> Vec<&'static str> {
    let mut names = vec![ty.get().name];
    for field in ty.get().fields.iter().filter(|f| f.inline) {
        names.extend(target(&field.ty).into_iter().flat_map(inlined_names));
    }
    names
}

// `ResourceList` is the only map of quantities in these packages.
fn is_resource_list(ty: TypeRef, field: &Field) -> bool {
    let quantities =
        matches!(&field.ty, FieldType::Map(v) if **v == FieldType::Scalar(Scalar::Quantity));
    quantities
        && ["core.v1.", "node.v1."]
            .iter()
            .any(|p| ty.get().name.starts_with(p))
}

fn table_fill(ty: TypeRef, path: &'static str, json: &str) -> Fill {
    let mut parents: Vec<&'static str> = path.split('.').collect();
    let field = parents.pop().unwrap_or(path);
    let owner = parents.iter().fold(ty, |ty, name| {
        let parent = ty.get().field(name).and_then(|f| target(&f.ty));
        parent.unwrap_or_else(|| panic!("defaults: no struct {name} in {}", ty.get().name))
    });
    let pointer = owner
        .get()
        .field(field)
        .unwrap_or_else(|| panic!("defaults: no field {field} in {}", owner.get().name))
        .pointer;
    Fill {
        parents,
        field,
        pointer,
        value: parse(json),
    }
}

fn published_fill(field: &'static Field) -> Option<Fill> {
    let value = parse(field.default?);
    Some(Fill {
        parents: Vec::new(),
        field: field.name,
        pointer: field.pointer,
        value,
    })
}

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| panic!("defaults: not JSON: {json}"))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Whether a field is absent, null or the zero value of its kind.
fn unset(map: &Object, name: &str) -> bool {
    map.get(name).is_none_or(is_zero)
}

/// Sets a field that is absent or null.
fn fill(map: &mut Object, name: &str, value: impl Into<Value>) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_owned(), value.into());
    }
}

/// The struct in this field, made when it is missing.
fn child<'a>(map: &'a mut Object, name: &str) -> &'a mut Object {
    let value = map.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("just made an object")
}

/// The objects of a list field.
fn objects<'a>(map: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    map.get_mut(name)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// The text of a field, empty when it has none.
fn text<'a>(map: &'a Object, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
