//! Policies and bindings as they are written, compiled; and what is wrong with their expressions.

use cel::shape::Shape;
use cel::{Env, Program, Type};
use kinds::field::{Errors, Path};
use kinds::resources::Resource;
use serde_json::Value;

use super::super::expressions::{self, CONDITIONS, Condition, POLICY};
use super::super::matching::Matcher;
use super::super::shape::{has, items, text};

/// A compiled expression, or why it cannot be evaluated.
pub(super) type Compiled = Result<Program, String>;

/// A policy.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) matcher: Matcher,
    pub(super) env: Env,
    pub(super) conditions: Vec<Condition>,
    pub(super) variables: Vec<(String, Compiled)>,
    pub(super) validations: Vec<Validation>,
    /// Values of audit annotations.
    pub(super) annotations: Vec<(String, Compiled)>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) fails_closed: bool,
    pub(super) reinvoked: bool,
    /// `apiVersion` and `kind` of parameters.
    pub(super) params: Option<(String, String)>,
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: String,
    pub(super) program: Compiled,
    pub(super) message: String,
    pub(super) message_program: Option<Compiled>,
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) json_patch: bool,
    pub(super) program: Compiled,
}

/// A binding.
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) matcher: Option<Matcher>,
    pub(super) params: Option<Value>,
    pub(super) actions: Vec<String>,
}

impl Binding {
    pub(super) fn read(name: &str, object: &Value) -> Binding {
        let spec = &object["spec"];
        let resources = &spec["matchResources"];
        let actions = items(&spec["validationActions"]).iter();
        Binding {
            name: name.to_owned(),
            policy: text(&spec["policyName"]).to_owned(),
            matcher: resources
                .is_object()
                .then(|| Matcher::read(resources, "resourceRules")),
            params: has(spec, "paramRef").then(|| spec["paramRef"].clone()),
            actions: actions.map(|action| text(action).to_owned()).collect(),
        }
    }
}

impl Policy {
    pub(super) fn read(name: &str, object: &Value) -> Policy {
        let spec = &object["spec"];
        let (env, variables) = environment(spec);
        let compiled = |expression: &Value, env: &Env| compile(text(expression), env);
        let conditions_env = conditions_env(spec);
        let validations = items(&spec["validations"]).iter().map(|item| Validation {
            expression: text(&item["expression"]).trim().to_owned(),
            program: compiled(&item["expression"], &env),
            message: text(&item["message"]).trim().to_owned(),
            message_program: has(item, "messageExpression")
                .then(|| compiled(&item["messageExpression"], &env)),
            reason: text(&item["reason"]).to_owned(),
        });
        let annotations = items(&spec["auditAnnotations"]).iter().map(|item| {
            let key = text(&item["key"]).to_owned();
            (key, compiled(&item["valueExpression"], &env))
        });
        let patching = env.clone().patches();
        let mutations = items(&spec["mutations"]).iter().map(|item| Mutation {
            json_patch: text(&item["patchType"]) == "JSONPatch",
            program: compiled(mutation(item), &patching),
        });
        let kind = &spec["paramKind"];
        Policy {
            name: name.to_owned(),
            matcher: Matcher::read(&spec["matchConstraints"], "resourceRules"),
            conditions: expressions::conditions(&spec["matchConditions"], conditions_env),
            validations: validations.collect(),
            annotations: annotations.collect(),
            mutations: mutations.collect(),
            fails_closed: text(&spec["failurePolicy"]) != "Ignore",
            reinvoked: text(&spec["reinvocationPolicy"]) == "IfNeeded",
            params: kind.is_object().then(|| {
                (
                    text(&kind["apiVersion"]).to_owned(),
                    text(&kind["kind"]).to_owned(),
                )
            }),
            variables,
            env,
        }
    }
}

fn compile(expression: &str, env: &Env) -> Compiled {
    Program::compile(expression, env).map_err(|issues| format!("compilation failed: {issues}"))
}

fn mutation(item: &Value) -> &Value {
    match text(&item["patchType"]) {
        "JSONPatch" => &item["jsonPatch"]["expression"],
        _ => &item["applyConfiguration"]["expression"],
    }
}

pub(super) fn conditions_env(spec: &Value) -> &'static Env {
    match spec["paramKind"].is_object() {
        true => &POLICY,
        false => &CONDITIONS,
    }
}

fn environment(spec: &Value) -> (Env, Vec<(String, Compiled)>) {
    with_variables(spec, conditions_env(spec).clone())
}

/// An environment with the variables of a policy. A variable sees those before it; everything else sees all.
pub(super) fn with_variables(spec: &Value, env: Env) -> (Env, Vec<(String, Compiled)>) {
    let typed = |fields: &[(&str, std::sync::Arc<Shape>)]| {
        Type::Object(Shape::object("kubernetes.variables", fields))
    };
    let mut env = env.variable("variables", typed(&[]));
    let mut fields = Vec::new();
    let mut variables = Vec::new();
    for item in items(&spec["variables"]) {
        let name = text(&item["name"]);
        let program = compile(text(&item["expression"]), &env);
        let ty = program.as_ref().map_or(Type::Dyn, |p| p.result().clone());
        fields.push((name, Shape::of_type(&ty)));
        env = env.variable("variables", typed(&fields));
        variables.push((name.to_owned(), program));
    }
    (env, variables)
}

/// What is wrong with the expressions of a policy or a webhook configuration. Those that an old object already has
/// stay as they are.
pub(in super::super) fn check(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Errors,
) {
    if resource.gv.group != super::GROUP {
        return;
    }
    match resource.kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            let root = Path::root("webhooks");
            for (index, hook) in items(&object["webhooks"]).iter().enumerate() {
                let path = root.index(index);
                each(hook, "matchConditions", &path, |item, path| {
                    one(
                        item,
                        "expression",
                        &CONDITIONS,
                        &[Type::Bool],
                        path,
                        old,
                        errors,
                    );
                });
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            policy(&object["spec"], old, errors);
        }
        _ => {}
    }
}

fn policy(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let (env, variables) = environment(spec);
    let variables_path = path.child("variables");
    for (index, (_, program)) in variables.iter().enumerate() {
        let item = &spec["variables"][index]["expression"];
        if let Err(why) = program
            && !is_known(old, text(item))
        {
            errors.invalid(&variables_path.index(index).child("expression"), item, why);
        }
    }
    each(spec, "matchConditions", &path, |item, path| {
        one(
            item,
            "expression",
            conditions_env(spec),
            &[Type::Bool],
            path,
            old,
            errors,
        );
    });
    each(spec, "validations", &path, |item, path| {
        one(item, "expression", &env, &[Type::Bool], path, old, errors);
        if has(item, "messageExpression") {
            one(
                item,
                "messageExpression",
                &env,
                &[Type::String],
                path,
                old,
                errors,
            );
        }
    });
    each(spec, "auditAnnotations", &path, |item, path| {
        let wanted = [Type::String, Type::Null];
        one(item, "valueExpression", &env, &wanted, path, old, errors);
    });
    let patching = env.clone().patches();
    each(spec, "mutations", &path, |item, path| {
        let field = match text(&item["patchType"]) {
            "JSONPatch" => "jsonPatch",
            _ => "applyConfiguration",
        };
        let path = path.child(field);
        one(
            &item[field],
            "expression",
            &patching,
            &[],
            &path,
            old,
            errors,
        );
    });
}

fn each(owner: &Value, list: &str, path: &Path<'_>, mut check: impl FnMut(&Value, &Path<'_>)) {
    let path = path.child(list);
    for (index, item) in items(&owner[list]).iter().enumerate() {
        check(item, &path.index(index));
    }
}

// `wanted` is empty where any type will do.
fn one(
    item: &Value,
    field: &str,
    env: &Env,
    wanted: &[Type],
    path: &Path<'_>,
    old: Option<&Value>,
    errors: &mut Errors,
) {
    let expression = text(&item[field]).trim();
    if expression.is_empty() || is_known(old, expression) {
        return;
    }
    let why = match compile(expression, env) {
        Err(why) => why,
        Ok(program) => {
            let found = program.result();
            if wanted.is_empty() || wanted.contains(found) || *found == Type::Dyn {
                return;
            }
            let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let names = names.join(" or ").replace("null", "null_type");
            format!("must evaluate to {names} but got {found}")
        }
    };
    errors.invalid(&path.child(field), &expression.into(), &why);
}

// Whether the old object has an expression already; then nothing new is wrong with it.
fn is_known(old: Option<&Value>, expression: &str) -> bool {
    fn within(value: &Value, expression: &str) -> bool {
        match value {
            Value::String(text) => text.trim() == expression,
            Value::Array(items) => items.iter().any(|item| within(item, expression)),
            Value::Object(fields) => fields.iter().any(|(key, value)| {
                !matches!(key.as_str(), "metadata" | "status") && within(value, expression)
            }),
            _ => false,
        }
    }
    old.is_some_and(|old| within(old, expression))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(spec: Value) -> Vec<String> {
        let resource = kinds::resources::find_kind(
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicy",
        );
        let mut errors = Errors::default();
        let object = json!({"spec": spec});
        check(resource.expect("exists"), &object, None, &mut errors);
        let shown = |e: &kinds::field::FieldError| format!("{}: {}", e.field, e.message);
        errors.0.iter().map(shown).collect()
    }

    #[test]
    fn expressions_are_judged_when_they_are_written() {
        let good = json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "variables": [{"name": "n", "expression": "object.spec.replicas"}, {"name": "m", "expression": "variables.n + 1"}],
            "validations": [{"expression": "variables.m < int(params.data.max)", "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"}],
            "matchConditions": [{"name": "a", "expression": "request.userInfo.username != 'x'"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "'v'"}],
        });
        assert_eq!(problems(good), Vec::<String>::new());
        let cases = [
            (
                json!({"validations": [{"expression": "1 + 1"}]}),
                "must evaluate to bool but got int",
            ),
            (
                json!({"validations": [{"expression": "params.x == 1"}]}),
                "undeclared reference to 'params'",
            ),
            (
                json!({"validations": [{"expression": "request.nope == 1"}]}),
                "undefined field 'nope'",
            ),
            (
                json!({"validations": [{"expression": "variables.nope"}]}),
                "undefined field 'nope'",
            ),
            (
                json!({"validations": [{"expression": "("}]}),
                "compilation failed: ERROR: <input>:1:2: Syntax error",
            ),
            (
                json!({"matchConditions": [{"name": "a", "expression": "variables.x"}]}),
                "undeclared reference to 'variables'",
            ),
        ];
        for (spec, wanted) in cases {
            let found = problems(spec.clone());
            assert!(
                found.len() == 1 && found[0].contains(wanted),
                "{spec}: {found:?}"
            );
        }
    }
}
