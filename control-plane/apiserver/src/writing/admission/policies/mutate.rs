//! What a mutating policy makes of an object.

use cel::{Budget, Map, Value as Cel};
use kinds::defined::ObjectType;
use objects::schema::{FieldType, ListKind, TypeRef};
use serde_json::{Value, json};

use super::compile::{Binding, Mutation, Policy};
use super::evaluate::{Variables, outcome};
use super::{Scene, Subject, conditions, params};
use crate::api::Api;
use crate::status::{ApiError, Result};
use crate::writing::admission::expressions::{Asker, Input, Verdict};
use crate::writing::admission::rounds::Rounds;
use crate::writing::admission::{Attributes, asked};

/// The first phase: every policy with every binding and every parameter, one after the other.
pub(in super::super) async fn mutate(
    api: &Api,
    attributes: &Attributes<'_>,
    object: &mut Value,
    rounds: &mut Rounds,
) -> Result<()> {
    let state = api.policies.mutating.0.load_full();
    if state.is_idle() || object.is_null() {
        return Ok(());
    }
    let mut subject = Subject::new(api, attributes);
    for (policy, binding) in state.pairs() {
        let key = format!("policy {} {}", policy.name, binding.name);
        if !rounds.may_run(&key, policy.reinvoked) {
            continue;
        }
        let invoked = subject.invoked((policy, binding), Some(object)).await?;
        let Some(matched) = invoked else { continue };
        let before = object.clone();
        let found = params::of(api, attributes, policy, binding).await;
        let namespace = subject.namespace(Some(object)).await?.clone();
        let asker = Asker::new(&api.authorizer, attributes);
        let own = attributes.resource();
        let mut outcome = found
            .as_ref()
            .map(|_| object.clone())
            .map_err(String::clone);
        for params in found.iter().flatten() {
            let Ok(changed) = outcome else { break };
            let scene = Scene::new(api, attributes, matched.clone(), Some(&changed)).await?;
            let mut seen = scene.object.clone().unwrap_or(changed);
            let input = scene.input(attributes, None, &namespace, &asker);
            outcome = match apply(policy, attributes, &scene, &input, params, &mut seen) {
                Ok(()) => Ok(asked::back(api, seen, own, &matched).await?),
                Err(why) => Err(why),
            };
        }
        match outcome {
            Ok(changed) => *object = changed,
            Err(why) if policy.fails_closed => {
                return Err(refusal(attributes, object, policy, binding, &why));
            }
            Err(_) => {}
        }
        rounds.ran(key, *object != before);
    }
    Ok(())
}

// Upstream's quirk: the reason is Invalid while the code stays 403.
fn refusal(
    attributes: &Attributes<'_>,
    object: &Value,
    policy: &Policy,
    binding: &Binding,
    why: &str,
) -> ApiError {
    let why = format!(
        "policy '{}' with binding '{}' denied request: {why}",
        policy.name, binding.name
    );
    let mut error = attributes.forbid(Some(object), &why).cause("", why, "");
    error.reason = "Invalid";
    error
}

fn apply(
    policy: &Policy,
    attributes: &Attributes<'_>,
    scene: &Scene,
    input: &Input<'_>,
    params: &Value,
    object: &mut Value,
) -> Result<(), String> {
    for mutation in &policy.mutations {
        let current = object.clone();
        let input = Input {
            object: &current,
            ..*input
        };
        match conditions(policy, &input, params) {
            Verdict::Met => {}
            Verdict::NotMet => return Ok(()),
            Verdict::Failed(why) => return Err(why),
        }
        let resource = &scene.matched.resource;
        let (gv, kind) = asked::body_kind(resource, attributes.subresource);
        let ty = asked::body_type(resource, attributes.subresource);
        let patched = patched(policy, mutation, &input, params, &ty)?;
        if let Some(patched) = patched {
            let normal = ty.normalize(patched).map_err(|e| e.to_string())?;
            *object = normal.value;
            object["kind"] = kind.into();
            object["apiVersion"] = gv.to_string().into();
            ty.default(object);
        }
    }
    Ok(())
}

// The object after a mutation; nothing if a test of the patch says that it is not for this object.
fn patched(
    policy: &Policy,
    mutation: &Mutation,
    input: &Input<'_>,
    params: &Value,
    ty: &ObjectType,
) -> Result<Option<Value>, String> {
    let variables = Variables::new(policy, input, params);
    let mut budget = Budget::new(cel::PER_OBJECT);
    let made = outcome(&mutation.program, &variables.values(), &mut budget)?;
    match mutation.json_patch {
        true => json_patched(&made, input.object),
        false => configured(&made, input.object, ty).map(Some),
    }
}

fn configured(made: &Cel<'_>, object: &Value, ty: &ObjectType) -> Result<Value, String> {
    check_names(made, "Object")?;
    let mut config = made.to_json().map_err(|e| e.message)?;
    let mut atomics = Vec::new();
    if let Some(ty) = ty.built_in() {
        find_atomics(ty, &config, "", &mut atomics);
    }
    if !atomics.is_empty() {
        return Err(format!(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    config["apiVersion"] = object["apiVersion"].clone();
    config["kind"] = object["kind"].clone();
    Ok(objects::merge::merge(ty.shape(), object, &config))
}

// Types must be named for where they stand: `Object.spec.template`.
fn check_names(value: &Cel<'_>, path: &str) -> Result<(), String> {
    match value {
        Cel::Map(Map::Struct(made)) => {
            if *made.name != *path {
                return Err(format!(
                    "unexpected type name {:?}, expected {path:?}, which matches field name path from root Object type",
                    &*made.name
                ));
            }
            let mut fields = made.fields.iter();
            fields.try_for_each(|(name, value)| check_names(value, &format!("{path}.{}", &**name)))
        }
        Cel::List(list) => list.iter().try_for_each(|item| check_names(&item, path)),
        Cel::Map(map) => map.iter().try_for_each(|(key, value)| {
            let key = key.as_str().unwrap_or_default().to_owned();
            check_names(&value, &format!("{path}.{key}"))
        }),
        _ => Ok(()),
    }
}

fn find_atomics(ty: TypeRef, value: &Value, path: &str, found: &mut Vec<String>) {
    let Some(fields) = value.as_object() else {
        return;
    };
    if ty.get().atomic {
        found.push(path.to_owned());
    }
    for (name, value) in fields {
        let Some(field) = ty.get().field(name) else {
            continue;
        };
        let path = format!("{path}.{name}");
        match (&field.ty, value) {
            (FieldType::Object(inner), Value::Object(_)) => {
                if field.map_atomic {
                    found.push(path.clone());
                }
                find_atomics(*inner, value, &path, found);
            }
            (FieldType::Map(_), Value::Object(_)) if field.map_atomic => found.push(path),
            (FieldType::List(inner), Value::Array(items)) => {
                if matches!(field.list, None | Some(ListKind::Atomic)) {
                    found.push(path.clone());
                }
                if let FieldType::Object(inner) = **inner {
                    for (index, item) in items.iter().enumerate() {
                        find_atomics(inner, item, &format!("{path}[{index}]"), found);
                    }
                }
            }
            _ => {}
        }
    }
}

fn json_patched(made: &Cel<'_>, object: &Value) -> Result<Option<Value>, String> {
    let Cel::List(list) = made else {
        return Err(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, was {}",
            made.type_name()
        ));
    };
    let mut patch = Vec::new();
    for item in list.iter() {
        if item.type_name() != "JSONPatch" {
            let found = item.type_name();
            return Err(format!("type mismatch: expected JSONPatch, was {found}"));
        }
        patch.push(item.to_json().map_err(|e| e.message)?);
    }
    // A test that fails says that the rest is not for this object.
    for (index, operation) in patch.iter().enumerate() {
        if operation["op"] == "test" {
            let before = json!(patch[..index]);
            let state = objects::jsonpatch::json_patch(object, &before);
            let holds = state.is_ok_and(|state| {
                objects::jsonpatch::json_patch(&state, &json!([operation])).is_ok()
            });
            if !holds {
                return Ok(None);
            }
        }
    }
    let patched = objects::jsonpatch::json_patch(object, &Value::Array(patch));
    patched
        .map(Some)
        .map_err(|error| format!("JSON Patch: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cel::{Bindings, Env, Program, Type};

    fn run(expression: &str, object: &Value, json_patch: bool) -> Result<Option<Value>, String> {
        let env = Env::new().variable("object", Type::Dyn).patches();
        let program = Program::compile(expression, &env).map_err(|e| e.to_string())?;
        let values = Bindings::new(&env).set(&env, "object", Cel::json(object));
        let made = program.evaluate(&values, &mut Budget::new(cel::PER_OBJECT));
        let made = made.map_err(|e| e.message)?;
        let ty = objects::schema::kind("apps", "v1", "Deployment")
            .expect("exists")
            .into();
        match json_patch {
            true => json_patched(&made, object),
            false => configured(&made, object, &ty).map(Some),
        }
    }

    #[test]
    fn configurations_are_merged_and_patches_applied() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": {"replicas": 1}});
        let merged = run(
            "Object{metadata: Object.metadata{annotations: {'mutated-by': 'policy'}}, spec: Object.spec{replicas: object.spec.replicas + 1}}",
            &object,
            false,
        );
        let merged = merged.expect("merges").expect("changed");
        assert_eq!(
            merged["metadata"]["annotations"],
            json!({"x": "y", "mutated-by": "policy"})
        );
        assert_eq!(merged["spec"]["replicas"], 2);
        let misnamed = run("Object{spec: Object.status{replicas: 1}}", &object, false);
        assert!(
            misnamed
                .expect_err("misnamed")
                .contains("unexpected type name")
        );
        let atomic = run(
            "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}",
            &object,
            false,
        );
        assert!(atomic.expect_err("atomic").contains(".spec.selector"));
        let patch = "[JSONPatch{op: 'test', path: '/spec/replicas', value: 1}, JSONPatch{op: 'replace', path: '/spec/replicas', value: 9}]";
        let patched = run(patch, &object, true)
            .expect("applies")
            .expect("changed");
        assert_eq!(patched["spec"]["replicas"], 9);
        let other = patch.replace("value: 1}", "value: 2}");
        assert_eq!(run(&other, &object, true), Ok(None));
        let bad = run(
            "[JSONPatch{op: 'remove', path: '/spec/nope'}]",
            &object,
            true,
        );
        assert!(bad.expect_err("cannot").starts_with("JSON Patch: "));
    }
}
