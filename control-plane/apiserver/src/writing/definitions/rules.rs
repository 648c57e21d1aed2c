//! Rules of custom resources (`x-kubernetes-validations`): compiled with their schema, asked about every write.

mod check;
mod shape;

use std::sync::Arc;

use cel::shape::Shape;
use cel::{Bindings, Budget, Env, Program, Type, Value as Cel};
use extensions::Rules;
use extensions::definition::Checked;
use kinds::field::{FieldError, Reason};
use serde_json::Value;

pub(crate) use check::check;

/// The engine that definitions are read with.
#[derive(Debug)]
pub(super) struct Engine;

impl Rules for Engine {
    fn compile(&self, schema: &Value) -> Option<Arc<dyn Checked>> {
        let tree = Tree::read(schema, true)?;
        Some(Arc::new(tree))
    }
}

/// A node of a schema that has rules, or nodes below it that do.
#[derive(Debug)]
struct Tree {
    own: Option<Own>,
    /// Keys of a list whose items are told apart by them.
    keys: Vec<String>,
    properties: Vec<(String, Tree)>,
    items: Option<Box<Tree>>,
    additional: Option<Box<Tree>>,
}

/// The rules of a node, and what they see of it.
#[derive(Debug)]
struct Own {
    shape: Arc<Shape>,
    env: Env,
    optional_env: Env,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    program: Result<Program, String>,
    message: String,
    /// What makes the message, where something does.
    message_program: Option<Result<Program, String>>,
    reason: Reason,
    field_path: String,
    /// Whether it compares with what was.
    transition: bool,
    optional_old: bool,
}

/// The longest message that an expression may make.
const LONGEST_MESSAGE: usize = 5 * 1024;

impl Checked for Tree {
    fn check(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.check_at(new, old, "")
    }
}

impl Tree {
    // What is seen of a node is only worked out where there are rules: most schemas are large and have few.
    fn read(schema: &Value, root: bool) -> Option<Tree> {
        let below = |name: &str| Tree::read(schema.get(name)?, false).map(Box::new);
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flatten();
        let tree = Tree {
            own: Own::read(schema, root),
            keys: match schema["x-kubernetes-list-type"].as_str() {
                Some("map") => texts(&schema["x-kubernetes-list-map-keys"]),
                _ => Vec::new(),
            },
            properties: properties
                .filter_map(|(name, schema)| Some((name.clone(), Tree::read(schema, false)?)))
                .collect(),
            items: below("items"),
            additional: below("additionalProperties"),
        };
        tree.has_rules().then_some(tree)
    }

    fn check_at(&self, new: &Value, old: Option<&Value>, path: &str) -> Vec<FieldError> {
        let mut walk = Walk {
            budget: Budget::new(cel::PER_OBJECT),
            found: Vec::new(),
            exhausted: false,
        };
        walk.node(self, new, old, path);
        walk.found
    }

    fn has_rules(&self) -> bool {
        self.own.is_some()
            || !self.properties.is_empty()
            || self.items.is_some()
            || self.additional.is_some()
    }
}

impl Own {
    fn read(schema: &Value, root: bool) -> Option<Own> {
        let listed = schema.get("x-kubernetes-validations")?.as_array()?;
        let shape = shape::of(schema, "selfType", root)?;
        let own = Type::of(&shape);
        let env = Env::new()
            .variable("self", own.clone())
            .variable("oldSelf", own.clone());
        let optional_env = env.clone().variable("oldSelf", Type::optional(own));
        let rules = listed
            .iter()
            .map(|rule| Rule::read(rule, &env, &optional_env));
        Some(Own {
            rules: rules.collect(),
            shape,
            env,
            optional_env,
        })
    }
}

impl Rule {
    fn read(rule: &Value, env: &Env, optional_env: &Env) -> Rule {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().trim().to_owned();
        let optional_old = rule["optionalOldSelf"] == true;
        let env = if optional_old { optional_env } else { env };
        let program = compile(&text("rule"), env);
        let made = text("messageExpression");
        let message_program = (!made.is_empty()).then(|| compile_message(&made, env));
        Rule {
            transition: program.as_ref().is_ok_and(|p| p.uses("oldSelf")),
            program,
            message: text("message"),
            message_program,
            reason: match rule["reason"].as_str() {
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field_path: text("fieldPath"),
            text: text("rule"),
            optional_old,
        }
    }

    fn said(&self) -> &str {
        match self.message.is_empty() {
            true => &self.text,
            false => &self.message,
        }
    }

    fn shown(&self) -> String {
        match self.message.is_empty() {
            true => format!("failed rule: {}", self.text),
            false => self.message.clone(),
        }
    }
}

fn compile(rule: &str, env: &Env) -> Result<Program, String> {
    let program = Program::compile(rule, env).map_err(|e| format!("compilation failed: {e}"))?;
    match program.result() {
        Type::Bool | Type::Dyn => Ok(program),
        _ => Err("cel expression must evaluate to a bool".into()),
    }
}

fn compile_message(expression: &str, env: &Env) -> Result<Program, String> {
    let program = Program::compile(expression, env);
    let program = program.map_err(|e| format!("messageExpression compilation failed: {e}"))?;
    match program.result() {
        Type::String | Type::Dyn => Ok(program),
        _ => Err("messageExpression must evaluate to a string".into()),
    }
}

/// What the schema of a custom resource declares; nothing where expressions can see nothing.
pub(crate) fn shape_of(schema: &Value, name: &str) -> Option<Arc<Shape>> {
    shape::of(schema, name, true)
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// A walk over an object.
struct Walk {
    budget: Budget,
    found: Vec<FieldError>,
    exhausted: bool,
}

impl Walk {
    // Rules of the node come first, then those below it. What is null has no rules.
    fn node(&mut self, tree: &Tree, new: &Value, old: Option<&Value>, path: &str) {
        if new.is_null() || self.exhausted {
            return;
        }
        if let Some(own) = &tree.own {
            for rule in &own.rules {
                self.rule(own, rule, new, old, path);
            }
        }
        for (name, below) in &tree.properties {
            let path = match path.is_empty() {
                true => name.clone(),
                false => format!("{path}.{name}"),
            };
            if let Some(value) = new.get(name) {
                self.node(below, value, old.and_then(|old| old.get(name)), &path);
            }
        }
        if let (Some(below), Some(items)) = (&tree.items, new.as_array()) {
            for (index, item) in items.iter().enumerate() {
                let old = old.and_then(|old| correlated(old, item, &tree.keys));
                self.node(below, item, old, &format!("{path}[{index}]"));
            }
        }
        if let (Some(below), Some(entries)) = (&tree.additional, new.as_object()) {
            for (key, value) in entries {
                let old = old.and_then(|old| old.get(key));
                self.node(below, value, old, &format!("{path}[{key}]"));
            }
        }
    }

    fn rule(&mut self, own: &Own, rule: &Rule, new: &Value, old: Option<&Value>, path: &str) {
        if self.exhausted || (rule.transition && !rule.optional_old && old.is_none()) {
            return;
        }
        let env = if rule.optional_old {
            &own.optional_env
        } else {
            &own.env
        };
        let before = old.map(|old| Cel::shaped(old, &own.shape));
        let before = match rule.optional_old {
            true => Some(before.map_or(Cel::Optional(None), Cel::some)),
            false => before,
        };
        let mut values = Bindings::new(env).set(env, "self", Cel::shaped(new, &own.shape));
        if let Some(before) = before {
            values = values.set(env, "oldSelf", before);
        }
        let program = match &rule.program {
            Ok(program) => program,
            Err(why) => {
                let shown = Value::from(type_name(&own.shape));
                let detail = format!("rule compile error: {why}");
                let found = failure(Reason::Invalid, path.to_owned(), &shown, &detail);
                return self.found.push(found);
            }
        };
        let outcome = program.evaluate(&values, &mut self.budget);
        match outcome {
            Ok(Cel::Bool(true)) => {}
            // What was wrong before and did not change is let be.
            Ok(_) if !rule.transition && old == Some(new) => {}
            Ok(_) => {
                let detail = message(rule, &values, &mut self.budget);
                let field = format!("{path}{}", rule.field_path);
                self.found.push(failure(rule.reason, field, new, &detail));
            }
            Err(error) => {
                self.exhausted |= error.too_costly;
                let spent = self.budget.left() == 0;
                let shown = Value::from(type_name(&own.shape));
                let detail = evaluation_error(&error, spent, rule.said());
                self.found
                    .push(failure(Reason::Invalid, path.to_owned(), &shown, &detail));
            }
        }
    }
}

fn evaluation_error(error: &cel::Error, spent: bool, rule: &str) -> String {
    match error.too_costly {
        true if spent => "validation failed due to running out of cost budget, no further validation rules will be run".into(),
        true => format!(
            "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
        ),
        false if error.message.starts_with("no such overload") => format!(
            "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
        ),
        false => format!("{error} evaluating rule: {rule}"),
    }
}

// The type of a schema, which upstream shows in place of a value that a rule could not be evaluated for.
fn type_name(shape: &Shape) -> &'static str {
    use cel::shape::Kind;
    match shape.kind {
        Kind::Dyn | Kind::IntOrString => "",
        Kind::Bool => "boolean",
        Kind::Int => "integer",
        Kind::Double => "number",
        Kind::String | Kind::Bytes | Kind::Duration | Kind::Timestamp => "string",
        Kind::List { .. } => "array",
        Kind::Map(_) | Kind::Object { .. } => "object",
    }
}

// What the rule's own expression says, if that is usable; what it has in store otherwise.
fn message<'a>(rule: &'a Rule, values: &Bindings<'a>, budget: &mut Budget) -> String {
    let made = rule.message_program.as_ref().and_then(|p| p.as_ref().ok());
    let made = made.and_then(|program| program.evaluate(values, budget).ok());
    let made = made.as_ref().and_then(Cel::as_str).map(str::trim);
    let usable = |text: &&str| {
        !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains(['\n', '\r'])
    };
    made.filter(usable)
        .map_or_else(|| rule.shown(), str::to_owned)
}

// The item of the old list that has the same keys; without keys nothing is known to be the same.
fn correlated<'o>(old: &'o Value, item: &Value, keys: &[String]) -> Option<&'o Value> {
    let same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
    if keys.is_empty() {
        return None;
    }
    old.as_array()?.iter().find(same)
}

// Values of objects and lists are not shown.
fn failure(reason: Reason, field: String, value: &Value, detail: &str) -> FieldError {
    let message = match (reason, value) {
        (Reason::Required, _) => format!("Required value: {detail}"),
        (Reason::Forbidden, _) => format!("Forbidden: {detail}"),
        (Reason::Duplicate, value) => format!("Duplicate value: {value}"),
        (_, Value::Object(_) | Value::Array(_)) => format!("Invalid value: {detail}"),
        (_, value) => format!("Invalid value: {value}: {detail}"),
    };
    let field = match field.is_empty() {
        true => "<nil>".to_owned(),
        false => field,
    };
    FieldError {
        reason,
        field,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(schema: &Value, new: &Value, old: Option<&Value>) -> Vec<String> {
        let rules = Engine.compile(schema).expect("has rules");
        let found = rules.check(new, old);
        found
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message))
            .collect()
    }

    fn schema() -> Value {
        json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.min <= self.max", "messageExpression": "'min ' + string(self.min) + ' is too large'"},
                {"rule": "!has(oldSelf.max) || self.max >= oldSelf.max", "message": "may only grow", "fieldPath": ".max", "reason": "FieldValueForbidden"},
            ],
            "properties": {
                "min": {"type": "integer"},
                "max": {"type": "integer"},
                "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string",
                    "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]}},
                "x-y": {"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self > duration('1s')"}]},
            },
        }}})
    }

    #[test]
    fn rules_are_asked_where_they_stand() {
        let schema = schema();
        let object = |spec: Value| json!({"spec": spec});
        let good = object(json!({"min": 1, "max": 2, "names": ["ab"], "x-y": "2s"}));
        assert_eq!(found(&schema, &good, None), Vec::<String>::new());
        let cases = [
            (
                json!({"min": 3, "max": 2}),
                "spec: Invalid value: min 3 is too large",
            ),
            (
                json!({"min": 1, "max": 2, "names": ["b"]}),
                "spec.names[0]: Invalid value: \"b\": failed rule: self.startsWith('a')",
            ),
            (
                json!({"min": 1, "max": 2, "x-y": "1ms"}),
                "spec.x-y: Invalid value: \"1ms\": failed rule: self > duration('1s')",
            ),
            (
                json!({"min": 1}),
                "spec: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max",
            ),
        ];
        for (spec, wanted) in cases {
            assert_eq!(found(&schema, &object(spec), None), [wanted]);
        }
        let smaller = object(json!({"min": 1, "max": 1}));
        assert_eq!(
            found(&schema, &smaller, Some(&good)),
            ["spec.max: Forbidden: may only grow"]
        );
        let bad = object(json!({"min": 3, "max": 2}));
        assert_eq!(
            found(&schema, &bad, Some(&bad)),
            Vec::<String>::new(),
            "it was so before"
        );
    }

    #[test]
    fn rules_that_do_not_compile_are_refused() {
        let mut schema = schema();
        let rules = &mut schema["properties"]["spec"]["x-kubernetes-validations"];
        rules[0] = json!({"rule": "self.mix > 1"});
        let definition = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let mut errors = kinds::field::Errors::default();
        check(&definition, None, &mut errors);
        assert_eq!(errors.0.len(), 1);
        assert_eq!(
            errors.0[0].field,
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
        );
        assert!(
            errors.0[0].message.contains("undefined field 'mix'"),
            "{}",
            errors.0[0].message
        );
        let mut errors = kinds::field::Errors::default();
        check(&definition, Some(&definition), &mut errors);
        assert!(errors.is_empty());
    }
}
