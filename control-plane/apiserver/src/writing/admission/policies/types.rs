//! The types of the objects that a policy is about, and what its expressions make of them: the warnings in its status.
//!
//! A policy's expressions are compiled for objects of any type, for one policy may be about many. Those that name
//! their resources are compiled once more for each of the types (upstream's typechecking, ten at most), and what is
//! found is said in the status. It refuses nothing.

use std::sync::Arc;

use cel::shape::{Field, Kind, Shape};
use cel::{Env, Program, Type};
use kinds::defined::ObjectType;
use kinds::resources::Resource;
use objects::schema::{FieldType, Scalar, TypeRef, lookup};
use serde_json::{Value, json};

use super::super::shape::{has, items, text};
use super::compile;
use crate::registry::Live;
use crate::writing::definitions::rules;

/// So many types of one rule are looked at.
const MOST: usize = 10;

/// The warnings about a policy, each with the field that it is about.
pub(crate) fn warnings(policy: &Value, live: &Live) -> Vec<Value> {
    let spec = &policy["spec"];
    let types = subjects(spec, live);
    let params = params(spec, live);
    let mut found = Vec::new();
    for (index, item) in items(&spec["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            if !has(item, field) || text(&item[field]).is_empty() {
                continue;
            }
            let said = |resource: &Arc<Resource>| {
                let env = environment(spec, resource, params.as_ref());
                let issues = Program::compile(text(&item[field]), &env).err()?;
                let (gv, kind) = (resource.gv, resource.kind);
                let (group, version) = (gv.group, gv.version);
                Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
            };
            let said: Vec<String> = types.iter().filter_map(said).collect();
            if !said.is_empty() {
                found.push(
                    json!({"fieldRef": format!("spec.validations[{index}].{field}"),
                    "warning": said.join("\n")}),
                );
            }
        }
    }
    found
}

// Only rules that name everything say which types there are; subresources have types of their own and are left out.
fn subjects(spec: &Value, live: &Live) -> Vec<Arc<Resource>> {
    let mut found: Vec<Arc<Resource>> = Vec::new();
    for rule in items(&spec["matchConstraints"]["resourceRules"]) {
        let listed = |field: &str| -> Vec<&str> {
            let mut all: Vec<&str> = items(&rule[field]).iter().map(text).collect();
            all.sort_unstable();
            all
        };
        let (groups, versions) = (listed("apiGroups"), listed("apiVersions"));
        if groups
            .iter()
            .chain(&versions)
            .any(|name| name.contains('*'))
        {
            continue;
        }
        let mut resources = listed("resources");
        resources.retain(|name| !name.contains(['*', '/']));
        let mut places = Vec::new();
        for group in &groups {
            for version in &versions {
                places.extend(resources.iter().map(|plural| (*group, *version, *plural)));
            }
        }
        let kinds = places.iter().filter_map(|(g, v, r)| live.find(g, v, r));
        let kinds: Vec<_> = kinds.take(MOST).collect();
        let is_full = kinds.len() == MOST;
        found.extend(kinds);
        if is_full {
            break;
        }
    }
    found.sort_by_key(|r| (r.gv.group, r.gv.version, r.kind));
    found.dedup_by_key(|r| (r.gv.group, r.gv.version, r.kind));
    found
}

fn params(spec: &Value, live: &Live) -> Option<Type> {
    let kind = spec.get("paramKind").filter(|kind| kind.is_object())?;
    let (version, kind) = (text(&kind["apiVersion"]), text(&kind["kind"]));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let mut all = live.resources().iter();
    let found = all.find(|r| (r.gv.group, r.gv.version, r.kind) == (group, version, kind));
    found.map(|resource| type_of(resource))
}

fn environment(spec: &Value, resource: &Resource, params: Option<&Type>) -> Env {
    let object = type_of(resource);
    let mut env = compile::conditions_env(spec)
        .clone()
        .variable("object", object.clone())
        .variable("oldObject", object);
    if let Some(params) = params {
        env = env.variable("params", params.clone());
    }
    compile::with_variables(spec, env).0
}

fn type_of(resource: &Resource) -> Type {
    Type::of(&match &resource.ty {
        ObjectType::BuiltIn(ty) => object(*ty, &mut Vec::new()),
        ObjectType::Defined(definition) => custom(&definition.schema(), resource.kind),
    })
}

// Of a custom resource all metadata can be seen here, other than by its own rules.
fn custom(schema: &Value, kind: &str) -> Arc<Shape> {
    let Some(shape) = rules::shape_of(schema, kind) else {
        return Shape::plain(Kind::Dyn);
    };
    let mut shape = Shape::clone(&shape);
    let metadata = lookup("meta.v1.ObjectMeta").map(|ty| object(ty, &mut Vec::new()));
    if let (Kind::Object { fields, .. }, Some(shape)) = (&mut shape.kind, metadata) {
        let json = Arc::from("metadata");
        fields.insert(Arc::clone(&json), Field { json, shape });
    }
    Arc::new(shape)
}

// What is inside of itself is anything there.
fn object(ty: TypeRef, above: &mut Vec<TypeRef>) -> Arc<Shape> {
    if above.contains(&ty) {
        return Shape::plain(Kind::Dyn);
    }
    above.push(ty);
    let fields = ty.get().json_fields().filter_map(|field| {
        let shape = value(&field.ty, above)?;
        let json = Arc::from(field.name);
        let name = Arc::from(cel::shape::escaped(field.name)?);
        Some((name, Field { json, shape }))
    });
    let kind = Kind::Object {
        name: ty.get().name.into(),
        fields: fields.collect(),
    };
    above.pop();
    Shape::sized(kind, 0, 2)
}

// As the published documents declare it; what has no type there cannot be seen.
fn value(ty: &FieldType, above: &mut Vec<TypeRef>) -> Option<Arc<Shape>> {
    Some(match ty {
        FieldType::Object(ty) => object(*ty, above),
        FieldType::List(items) => Shape::list(value(items, above)?),
        FieldType::Map(values) => Shape::map(value(values, above)?),
        FieldType::Scalar(scalar) => Shape::plain(match scalar {
            Scalar::String | Scalar::Quantity | Scalar::Duration => Kind::String,
            Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 => Kind::Int,
            Scalar::Bool => Kind::Bool,
            Scalar::Bytes => Kind::Bytes,
            Scalar::Double => Kind::Double,
            Scalar::IntOrString => Kind::IntOrString,
            Scalar::Time | Scalar::MicroTime => Kind::Timestamp,
            Scalar::Raw | Scalar::Fields => {
                return Some(Shape::object("kubernetes.Object", &[]));
            }
            Scalar::StringsMessage => return Some(Shape::list(Shape::plain(Kind::String))),
            Scalar::Json
            | Scalar::SchemaOrBool
            | Scalar::SchemaOrArray
            | Scalar::SchemaOrStrings
            | Scalar::Any => return None,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn said(spec: Value) -> Vec<(String, String)> {
        let live = Registry::new("127.0.0.1:6443".into()).live();
        let found = warnings(&json!({ "spec": spec }), &live);
        let pair = |w: Value| {
            (
                text(&w["fieldRef"]).to_owned(),
                text(&w["warning"]).to_owned(),
            )
        };
        found.into_iter().map(pair).collect()
    }

    #[test]
    fn what_does_not_fit_the_types_is_said_for_each_of_them() {
        let rules = |groups: &[&str], versions: &[&str], resources: &[&str]| json!({"resourceRules": [{"apiGroups": groups, "apiVersions": versions, "resources": resources}]});
        let apps = rules(
            &["apps"],
            &["v1"],
            &["deployments", "statefulsets", "deployments/scale"],
        );
        let found = said(json!({"matchConstraints": apps,
        "variables": [{"name": "n", "expression": "object.spec.replicas"}],
        "validations": [
            {"expression": "object.spec.replicas > 1 && variables.n < 10 && has(object.metadata.labels)"},
            {"expression": "object.spec.strategy.type == 'Recreate'", "messageExpression": "object.nope"},
            {"expression": "object.spec.replicas > '1'"},
        ]}));
        let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.validations[1].expression",
                "spec.validations[1].messageExpression",
                "spec.validations[2].expression"
            ]
        );
        assert_eq!(
            found[0].1,
            "apps/v1, Kind=StatefulSet: ERROR: <input>:1:12: undefined field 'strategy'\n \
             | object.spec.strategy.type == 'Recreate'\n | ...........^\n"
        );
        assert!(
            found[1].1.contains("Kind=Deployment: ")
                && found[1].1.contains("\n\napps/v1, Kind=StatefulSet: ")
        );
        assert!(
            found[2]
                .1
                .contains("found no matching overload for '_>_' applied to '(int, string)'")
        );
        let pods = rules(&[""], &["v1"], &["pods"]);
        let found = said(json!({"matchConstraints": pods,
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [{"expression": "object.spec.containers.all(c, c.image in params.datum)"}]}));
        assert!(
            found[0].1.starts_with("/v1, Kind=Pod: ERROR: "),
            "{found:?}"
        );
        assert!(found[0].1.contains("undefined field 'datum'"));
        for open in [
            rules(&["*"], &["v1"], &["pods"]),
            rules(&[""], &["v1"], &["*"]),
        ] {
            let spec =
                json!({"matchConstraints": open, "validations": [{"expression": "object.nope"}]});
            assert_eq!(said(spec), [], "types that nobody names are not looked at");
        }
    }
}
