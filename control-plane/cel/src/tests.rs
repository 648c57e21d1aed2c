//! Expressions and what they yield, as tables.

mod hostile;
mod language;
mod libraries;

use serde_json::{Value as Json, json};

use crate::{Bindings, Budget, Env, Program, Type, Value};

fn env() -> Env {
    Env::new()
        .variable("object", Type::Dyn)
        .variable("count", Type::Int)
        .variable("words", Type::list(Type::String))
}

fn object() -> Json {
    json!({
        "metadata": {"name": "web", "labels": {"app": "web", "a-b": "x"}},
        "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 443}], "ratio": 0.5, "empty": null},
    })
}

/// What an expression yields, written as a literal would be, or its error.
fn eval(source: &str) -> String {
    let env = env();
    let program = match Program::compile(source, &env) {
        Ok(program) => program,
        Err(issues) => return issues.list()[0].message.to_string(),
    };
    let object = object();
    let values = Bindings::new(&env)
        .set(&env, "object", Value::json(&object))
        .set(&env, "count", Value::Int(2))
        .set(
            &env,
            "words",
            Value::list(vec![Value::text("b"), Value::text("a")]),
        );
    match program.evaluate(&values, &mut Budget::new(crate::PER_OBJECT)) {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error: {}", error.message),
    }
}

fn table(cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(source, expected)| {
            let found = eval(source);
            (found != *expected)
                .then(|| format!("{source}\n  is       {found}\n  expected {expected}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
