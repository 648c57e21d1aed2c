//! Expressions that select devices: they compile, or the class or claim is refused.

use std::sync::LazyLock;

use cel::shape::{Kind, Shape};
use cel::{Env, Program, Type};
use kinds::field::{Errors, FieldError, Reason};
use kinds::resources::Resource;
use serde_json::Value;

/// The longest that is looked at; longer ones are refused for that.
const LONGEST: usize = 10 * 1024;

/// What an expression sees of a device. Quantities and versions are found out when it runs.
static DEVICE: LazyLock<Env> = LazyLock::new(|| {
    let by_domain = || Shape::map(Shape::map(Shape::plain(Kind::Dyn)));
    let fields = [
        ("driver", Shape::plain(Kind::String)),
        ("attributes", by_domain()),
        ("capacity", by_domain()),
        ("allowMultipleAllocations", Shape::plain(Kind::Bool)),
    ];
    let device = Shape::object("kubernetes.DRADevice", &fields);
    Env::new().variable("device", Type::of(&device))
});

/// What is wrong with the selectors of an object; those that the old one has stay as they are.
pub(super) fn check(resource: &Resource, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let selects = ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate"];
    if resource.gv.group != "resource.k8s.io" || !selects.contains(&resource.kind) {
        return;
    }
    let mut known = Vec::new();
    if let Some(old) = old {
        each(&old["spec"], "spec", &mut |_, text| {
            known.push(text.to_owned())
        });
    }
    each(&object["spec"], "spec", &mut |path, text| {
        if text.len() > LONGEST || known.iter().any(|known| known == text) {
            return;
        }
        if let Some(why) = wrong(text) {
            let shown = Value::from(text);
            errors.0.push(FieldError {
                reason: Reason::Invalid,
                field: path.to_owned(),
                message: format!("Invalid value: {shown}: {why}"),
            });
        }
    });
}

fn wrong(expression: &str) -> Option<String> {
    // Upstream lets these bind names, which nothing else can do: they are believed.
    if expression.contains("cel.bind(") {
        return None;
    }
    match Program::compile(expression, &DEVICE) {
        Err(issues) => Some(format!("compilation failed: {issues}")),
        Ok(program) => match program.result() {
            Type::Bool | Type::Dyn => None,
            other => Some(format!(
                "must evaluate to bool or the unknown type, not {other}"
            )),
        },
    }
}

// Selectors stand at several places, and always as `cel: {expression: …}`.
fn each(value: &Value, path: &str, tell: &mut dyn FnMut(&str, &str)) {
    match value {
        Value::Object(map) => {
            if let Some(text) = map.get("cel").and_then(|cel| cel["expression"].as_str()) {
                tell(&format!("{path}.cel.expression"), text);
            }
            for (name, below) in map {
                each(below, &format!("{path}.{name}"), tell);
            }
        }
        Value::Array(items) => {
            for (index, below) in items.iter().enumerate() {
                each(below, &format!("{path}[{index}]"), tell);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_that_cannot_be_evaluated_are_refused() {
        let resource = kinds::resources::find_kind("resource.k8s.io", "v1", "DeviceClass");
        let told = |expression: &str, old: Option<&Value>| {
            let object = json!({"spec": {"selectors": [{"cel": {"expression": expression}}]}});
            let mut errors = Errors::default();
            check(resource.expect("exists"), &object, old, &mut errors);
            errors.0.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for good in [
            "device.driver == 'gpu.example.com'",
            "device.attributes['gpu.example.com'].model == 'a' && device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Gi'))",
            "cel.bind(d, device.attributes['x'], d.y)",
        ] {
            assert_eq!(told(good, None), Vec::<String>::new(), "{good}");
        }
        let said = told("device.nope", None);
        assert!(
            said[0].starts_with("spec.selectors[0].cel.expression: Invalid value: \"device.nope\": compilation failed: ERROR: ")
                && said[0].contains("undefined field 'nope'"),
            "{said:?}"
        );
        assert!(
            told("1 + 1", None)[0].ends_with("must evaluate to bool or the unknown type, not int")
        );
        let old = json!({"spec": {"selectors": [{"cel": {"expression": "device.nope"}}]}});
        assert_eq!(told("device.nope", Some(&old)), Vec::<String>::new());
    }
}
