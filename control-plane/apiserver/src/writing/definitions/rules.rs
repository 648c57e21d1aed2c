//! Rules of custom resources (`x-kubernetes-validations`): compiled with their schema, asked about every write.

mod shape;

use std::sync::Arc;

use cel::shape::Shape;
use cel::{Bindings, Budget, Env, Program, Type, Value as Cel};
use extensions::Rules;
use extensions::definition::Checked;
use kinds::field::{Errors, FieldError, Reason};
use serde_json::Value;

/// The engine that definitions are read with.
#[derive(Debug)]
pub(super) struct Engine;

impl Rules for Engine {
    fn compile(&self, schema: &Value) -> Option<Arc<dyn Checked>> {
        let tree = Tree::read(schema, true)?;
        tree.has_rules().then(|| Arc::new(tree) as Arc<dyn Checked>)
    }
}

/// A node of a schema, with the nodes below it that have rules.
#[derive(Debug)]
struct Tree {
    shape: Arc<Shape>,
    env: Env,
    optional_env: Env,
    rules: Vec<Rule>,
    /// Keys of a list whose items are told apart by them.
    keys: Vec<String>,
    properties: Vec<(String, Tree)>,
    items: Option<Box<Tree>>,
    additional: Option<Box<Tree>>,
}

#[derive(Debug)]
struct Rule {
    text: String,
    program: Result<Program, String>,
    message: String,
    message_program: Option<Program>,
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
        let mut walk = Walk {
            budget: Budget::new(cel::PER_OBJECT),
            found: Vec::new(),
            exhausted: false,
        };
        walk.node(self, new, old, "");
        walk.found
    }
}

impl Tree {
    fn read(schema: &Value, root: bool) -> Option<Tree> {
        let shape = shape::of(schema, "selfType", root)?;
        let own = Type::of(&shape);
        let env = Env::new()
            .variable("self", own.clone())
            .variable("oldSelf", own.clone());
        let optional_env = env.clone().variable("oldSelf", Type::optional(own));
        let listed = schema["x-kubernetes-validations"].as_array();
        let rules = listed
            .into_iter()
            .flatten()
            .map(|rule| Rule::read(rule, &env, &optional_env));
        let below = |schema: &Value| Tree::read(schema, false).filter(Tree::has_rules);
        let properties = schema["properties"].as_object().into_iter().flatten();
        let keys = match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => texts(&schema["x-kubernetes-list-map-keys"]),
            _ => Vec::new(),
        };
        Some(Tree {
            rules: rules.collect(),
            keys,
            properties: properties
                .filter_map(|(name, schema)| Some((name.clone(), below(schema)?)))
                .collect(),
            items: below(&schema["items"]).map(Box::new),
            additional: below(&schema["additionalProperties"]).map(Box::new),
            shape,
            env,
            optional_env,
        })
    }

    fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || !self.properties.is_empty()
            || self.items.is_some()
            || self.additional.is_some()
    }
}

impl Rule {
    fn read(rule: &Value, env: &Env, optional_env: &Env) -> Rule {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().trim().to_owned();
        let optional_old = rule["optionalOldSelf"] == true;
        let env = if optional_old { optional_env } else { env };
        let program = compile(&text("rule"), env);
        let message_program = Program::compile(&text("messageExpression"), env).ok();
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
        for rule in &tree.rules {
            self.rule(tree, rule, new, old, path);
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

    fn rule(&mut self, tree: &Tree, rule: &Rule, new: &Value, old: Option<&Value>, path: &str) {
        if self.exhausted || (rule.transition && !rule.optional_old && old.is_none()) {
            return;
        }
        let env = if rule.optional_old {
            &tree.optional_env
        } else {
            &tree.env
        };
        let before = old.map(|old| Cel::shaped(old, &tree.shape));
        let before = match rule.optional_old {
            true => Some(before.map_or(Cel::Optional(None), Cel::some)),
            false => before,
        };
        let mut values = Bindings::new(env).set(env, "self", Cel::shaped(new, &tree.shape));
        if let Some(before) = before {
            values = values.set(env, "oldSelf", before);
        }
        let outcome = match &rule.program {
            Ok(program) => program.evaluate(&values, &mut self.budget),
            Err(why) => Err(cel::Error::new(why.clone())),
        };
        let detail = match outcome {
            Ok(Cel::Bool(true)) => return,
            // What was wrong before and did not change is let be.
            Ok(_) if !rule.transition && old == Some(new) => return,
            Ok(_) => message(rule, &values, &mut self.budget),
            Err(error) if error.too_costly && self.budget.left() == 0 => {
                self.exhausted = true;
                "validation failed due to running out of cost budget, no further validation rules will be run".into()
            }
            Err(error) if error.too_costly => format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                rule.text
            ),
            Err(error) if error.message == "no such overload" => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.text
            ),
            Err(error) => format!("{error} evaluating rule: {}", rule.said()),
        };
        let field = format!("{path}{}", rule.field_path);
        self.found.push(failure(rule.reason, field, new, &detail));
    }
}

// What the rule's own expression says, if that is usable; what it has in store otherwise.
fn message<'a>(rule: &'a Rule, values: &Bindings<'a>, budget: &mut Budget) -> String {
    let made = rule.message_program.as_ref();
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

/// What is wrong with the rules of a definition.
pub(crate) fn check(definition: &Value, old: Option<&Value>, errors: &mut Errors) {
    let versions = definition["spec"]["versions"].as_array();
    let versions = versions.map_or(&[][..], Vec::as_slice);
    for (index, version) in versions.iter().enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        let known = old.map(|old| &old["spec"]["versions"][index]["schema"]["openAPIV3Schema"]);
        if known == Some(schema) {
            continue;
        }
        // Upstream hoists what all versions share, and names it so.
        let path = match versions.len() {
            1 => "spec.validation.openAPIV3Schema".to_owned(),
            _ => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        check_node(schema, true, &path, errors);
    }
}

fn check_node(schema: &Value, root: bool, path: &str, errors: &mut Errors) {
    if !schema.is_object() {
        return;
    }
    if let Some(tree) = Tree::read(schema, root) {
        for (index, rule) in tree.rules.iter().enumerate() {
            if let Err(why) = &rule.program {
                let field = format!("{path}.x-kubernetes-validations[{index}].rule");
                let value = Value::String(rule.text.clone());
                errors.0.push(failure(Reason::Invalid, field, &value, why));
            }
        }
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        check_node(below, false, &format!("{path}.properties[{name}]"), errors);
    }
    check_node(&schema["items"], false, &format!("{path}.items"), errors);
    let additional = format!("{path}.additionalProperties");
    check_node(&schema["additionalProperties"], false, &additional, errors);
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
                "spec: Invalid value: no such key: max evaluating rule: self.min <= self.max",
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
        schema["properties"]["spec"]["x-kubernetes-validations"][0]["rule"] = "self.mix > 1".into();
        let definition = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let mut errors = Errors::default();
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
        let mut errors = Errors::default();
        check(&definition, Some(&definition), &mut errors);
        assert!(errors.is_empty());
    }
}
