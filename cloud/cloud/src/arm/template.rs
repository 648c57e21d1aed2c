//! ARM templates: expressions, and the resources that come out of them.

pub(crate) mod expression;
mod functions;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document;
use super::fault::Fault;
use super::id::Id;
use crate::turn::Turn;
use expression::evaluate;

/// How deep templates may nest expressions and deployments.
pub(crate) const DEEPEST: usize = 32;

/// What expressions can ask about.
pub(crate) struct Scope<'s, 't> {
    pub(crate) turn: &'s Turn<'t>,
    pub(crate) subscription: String,
    pub(crate) group: Option<String>,
    pub(crate) deployment: String,
    pub(crate) parameters: Map<String, Value>,
    variables: Map<String, Value>,
    solved: RefCell<BTreeMap<String, Value>>,
    /// The turns of copy loops that are under way: name and index.
    loops: RefCell<Vec<(String, usize)>>,
    depth: Cell<usize>,
}

/// A resource that a template asks for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) id: Id,
    pub(crate) body: Value,
    /// What has to be there first, as the template says it.
    pub(crate) after: Vec<String>,
    /// The name it has in templates that name their resources.
    pub(crate) symbol: Option<String>,
    pub(crate) is_existing: bool,
    /// The turns of copy loops that it came out of.
    pub(crate) loops: Vec<(String, usize)>,
}

pub(crate) fn invalid(message: impl Into<String>) -> Fault {
    Fault::bad(
        "InvalidTemplate",
        format!(
            "Deployment template validation failed: '{}'.",
            message.into()
        ),
    )
}

impl<'s, 't> Scope<'s, 't> {
    pub(crate) fn new(
        turn: &'s Turn<'t>,
        place: (&str, Option<&str>),
        deployment: &str,
        template: &Value,
        given: &Value,
    ) -> Result<Scope<'s, 't>, Fault> {
        let mut scope = Scope {
            turn,
            subscription: place.0.to_owned(),
            group: place.1.map(str::to_owned),
            deployment: deployment.to_owned(),
            parameters: Map::new(),
            variables: template["variables"]
                .as_object()
                .cloned()
                .unwrap_or_default(),
            solved: RefCell::default(),
            loops: RefCell::default(),
            depth: Cell::default(),
        };
        scope.take_parameters(template, given)?;
        scope.unfold_variables()?;
        Ok(scope)
    }

    fn take_parameters(&mut self, template: &Value, given: &Value) -> Result<(), Fault> {
        let known = template["parameters"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for name in given
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            if !known.keys().any(|k| k.eq_ignore_ascii_case(name)) {
                return Err(invalid(format!(
                    "The template parameters '{name}' in the parameters file are not valid; they \
                    are not present in the original template and can therefore not be provided at deployment time"
                )));
            }
        }
        for (name, definition) in known {
            let found = given
                .as_object()
                .into_iter()
                .flatten()
                .find(|(k, _)| k.eq_ignore_ascii_case(&name));
            let value = match found.map(|(_, v)| &v["value"]) {
                Some(value) if !value.is_null() => value.clone(),
                _ if definition.get("defaultValue").is_some() => {
                    self.resolve(&definition["defaultValue"])?
                }
                _ if definition["nullable"] == true => Value::Null,
                _ => {
                    return Err(invalid(format!(
                        "The value for the template parameter '{name}' is not provided. Please \
                    see https://aka.ms/arm-create-parameter-file for usage details"
                    )));
                }
            };
            check_parameter(&name, &definition, &value)?;
            self.parameters.insert(name.to_lowercase(), value);
        }
        Ok(())
    }

    // `copy` in variables makes arrays.
    fn unfold_variables(&mut self) -> Result<(), Fault> {
        let Some(copies) = self.variables.remove("copy") else {
            return Ok(());
        };
        for copy in copies.as_array().into_iter().flatten() {
            let name = copy["name"].as_str().unwrap_or_default();
            let made = self.repeat(copy, &copy["input"], name)?;
            self.variables.insert(name.to_owned(), made);
        }
        Ok(())
    }

    /// The elements of a copy loop.
    fn repeat(&self, copy: &Value, input: &Value, name: &str) -> Result<Value, Fault> {
        let count = self.resolve(&copy["count"])?;
        let count = count
            .as_u64()
            .ok_or_else(|| invalid("The count of a copy loop is no number"))?;
        if count > 800 {
            return Err(invalid("A copy loop may not have more than 800 turns"));
        }
        let mut made = Vec::new();
        for index in 0..count {
            self.loops
                .borrow_mut()
                .push((name.to_owned(), index as usize));
            let one = self.resolve(input);
            self.loops.borrow_mut().pop();
            made.push(one?);
        }
        Ok(Value::Array(made))
    }

    pub(crate) fn loop_index(&self, name: Option<&str>) -> Option<usize> {
        let loops = self.loops.borrow();
        let mut found = loops.iter().rev();
        match name {
            Some(name) => found
                .find(|(own, _)| own.eq_ignore_ascii_case(name))
                .map(|(_, index)| *index),
            None => found.next().map(|(_, index)| *index),
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Result<Value, Fault> {
        let key = name.to_lowercase();
        if let Some(solved) = self.solved.borrow().get(&key) {
            return Ok(solved.clone());
        }
        let found = self
            .variables
            .iter()
            .find(|(own, _)| own.eq_ignore_ascii_case(name));
        let (_, raw) =
            found.ok_or_else(|| invalid(format!("The template variable '{name}' is not found")))?;
        let value = self.resolve(raw)?;
        self.solved.borrow_mut().insert(key, value.clone());
        Ok(value)
    }

    /// A value of a resource that came out of copy loops.
    pub(crate) fn resolve_at(
        &self,
        loops: &[(String, usize)],
        value: &Value,
    ) -> Result<Value, Fault> {
        let outer = self.loops.replace(loops.to_vec());
        let outcome = self.resolve(value);
        self.loops.replace(outer);
        outcome
    }

    /// A value with every expression in it worked out.
    pub(crate) fn resolve(&self, value: &Value) -> Result<Value, Fault> {
        self.depth.set(self.depth.get() + 1);
        let outcome = match self.depth.get() > DEEPEST {
            true => Err(invalid(
                "The template goes round in circles, or its expressions are nested too deeply",
            )),
            false => self.resolve_once(value),
        };
        self.depth.set(self.depth.get() - 1);
        outcome
    }

    fn resolve_once(&self, value: &Value) -> Result<Value, Fault> {
        match value {
            Value::String(text) => evaluate(self, text),
            Value::Array(all) => all.iter().map(|one| self.resolve(one)).collect(),
            Value::Object(map) => {
                let mut made = Map::new();
                for (key, one) in map.iter().filter(|(key, _)| *key != "copy") {
                    let key = evaluate(self, key)?;
                    made.insert(
                        key.as_str().unwrap_or_default().to_owned(),
                        self.resolve(one)?,
                    );
                }
                // `copy` in properties makes an array beside the other fields.
                for copy in map
                    .get("copy")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    let name = copy["name"].as_str().unwrap_or_default();
                    made.insert(name.to_owned(), self.repeat(copy, &copy["input"], name)?);
                }
                Ok(Value::Object(made))
            }
            other => Ok(other.clone()),
        }
    }

    /// The resources a template asks for. References to others stay as they are until those are there.
    pub(crate) fn resources(&self, template: &Value) -> Result<Vec<Wanted>, Fault> {
        let mut wanted = Vec::new();
        match &template["resources"] {
            Value::Array(all) => {
                for raw in all {
                    self.resource(raw, None, None, &mut wanted)?;
                }
            }
            Value::Object(all) => {
                for (symbol, raw) in all {
                    self.resource(raw, None, Some(symbol), &mut wanted)?;
                }
            }
            _ => {}
        }
        Ok(wanted)
    }

    fn resource(
        &self,
        raw: &Value,
        parent: Option<&Id>,
        symbol: Option<&str>,
        wanted: &mut Vec<Wanted>,
    ) -> Result<(), Fault> {
        let copy = &raw["copy"];
        if !copy.is_object() {
            return self.one(raw, parent, symbol, wanted);
        }
        let name = copy["name"].as_str().unwrap_or_default();
        let count = self.resolve(&copy["count"])?.as_u64().unwrap_or(0);
        if count > 800 {
            return Err(invalid("A copy loop may not have more than 800 turns"));
        }
        for index in 0..count {
            self.loops
                .borrow_mut()
                .push((name.to_owned(), index as usize));
            let outcome = self.one(raw, parent, symbol, wanted);
            self.loops.borrow_mut().pop();
            outcome?;
        }
        Ok(())
    }

    fn one(
        &self,
        raw: &Value,
        parent: Option<&Id>,
        symbol: Option<&str>,
        wanted: &mut Vec<Wanted>,
    ) -> Result<(), Fault> {
        if !raw["condition"].is_null() && self.resolve(&raw["condition"])? != json!(true) {
            return Ok(());
        }
        let text = |field: &str| -> Result<String, Fault> {
            let value = self.resolve(&raw[field])?;
            let missing = || invalid(format!("The template resource has no '{field}'"));
            value.as_str().map(str::to_owned).ok_or_else(missing)
        };
        let id = self.id_of(raw, parent, &text("type")?, &text("name")?)?;
        let after = raw["dependsOn"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| {
                let value = self.resolve(one)?;
                Ok(value.as_str().unwrap_or_default().to_owned())
            });
        let after: Vec<String> = after.collect::<Result<_, Fault>>()?;
        let mut body = raw.clone();
        for field in [
            "type",
            "name",
            "apiVersion",
            "dependsOn",
            "condition",
            "copy",
            "comments",
            "resources",
            "scope",
            "existing",
            "metadata",
            "resourceGroup",
            "subscriptionId",
        ] {
            document::take(&mut body, &format!("/{field}"));
        }
        // What an iteration's index is must be known now; what refers to other resources must wait.
        let body = self.bound(&body)?;
        let is_existing = raw["existing"] == true;
        wanted.push(Wanted {
            id: id.clone(),
            body,
            after,
            symbol: symbol.map(str::to_owned),
            is_existing,
            loops: self.loops.borrow().clone(),
        });
        for child in raw["resources"].as_array().into_iter().flatten() {
            let mut inner = Vec::new();
            self.resource(child, Some(&id), None, &mut inner)?;
            inner
                .iter_mut()
                .for_each(|one| one.after.push(id.to_string()));
            wanted.append(&mut inner);
        }
        Ok(())
    }

    /// Inside a loop an expression is worked out at once, unless it asks about another resource.
    fn bound(&self, value: &Value) -> Result<Value, Fault> {
        match value {
            Value::String(text) if text.to_lowercase().contains("reference(") => Ok(value.clone()),
            Value::String(_) => self.resolve(value),
            Value::Array(all) => all.iter().map(|one| self.bound(one)).collect(),
            Value::Object(map) if map.contains_key("copy") => self.resolve(value),
            // A nested deployment's template is its own.
            Value::Object(map) => map
                .iter()
                .map(|(key, one)| match key.as_str() {
                    "template" => Ok((key.clone(), one.clone())),
                    _ => Ok((key.clone(), self.bound(one)?)),
                })
                .collect(),
            other => Ok(other.clone()),
        }
    }

    fn id_of(&self, raw: &Value, parent: Option<&Id>, kind: &str, name: &str) -> Result<Id, Fault> {
        if let Some(parent) = parent {
            let short = kind.rsplit('/').next().unwrap_or(kind);
            let own = name.rsplit('/').next().unwrap_or(name);
            return Ok(parent.child(short, own));
        }
        let explicit = self.resolve(&raw["scope"])?;
        let group = self.resolve(&raw["resourceGroup"])?;
        let own = match (explicit.as_str(), group.as_str(), &self.group) {
            (Some(scope), ..) if scope.starts_with('/') => scope.trim_end_matches('/').to_owned(),
            (Some(scope), ..) => format!("{}/providers/{scope}", self.place()),
            (None, Some(group), _) => super::id::group(&self.subscription, group),
            _ => self.place(),
        };
        let (types, names): (Vec<&str>, Vec<&str>) =
            (kind.split('/').skip(1).collect(), name.split('/').collect());
        if types.is_empty() || types.len() != names.len() {
            return Err(invalid(format!(
                "The template resource '{name}' for type '{kind}' has incorrect segment lengths. \
                A nested resource type must have identical number of segments as its resource name"
            )));
        }
        let pairs: Vec<String> = types
            .iter()
            .zip(&names)
            .map(|(t, n)| format!("{t}/{n}"))
            .collect();
        let namespace = kind.split('/').next().unwrap_or_default();
        let text = format!("{own}/providers/{namespace}/{}", pairs.join("/"));
        Id::parse(&text).ok_or_else(|| invalid(format!("'{text}' is no resource")))
    }

    /// What the deployment is made at.
    pub(crate) fn place(&self) -> String {
        match &self.group {
            Some(group) => super::id::group(&self.subscription, group),
            None => format!("/subscriptions/{}", self.subscription),
        }
    }
}

fn check_parameter(name: &str, definition: &Value, value: &Value) -> Result<(), Fault> {
    let kind = definition["type"]
        .as_str()
        .unwrap_or_default()
        .to_lowercase();
    let fits = match kind.as_str() {
        _ if value.is_null() => true,
        "string" | "securestring" => value.is_string(),
        "int" => value.is_i64() || value.is_u64(),
        "bool" => value.is_boolean(),
        "array" => value.is_array(),
        "object" | "secureobject" => value.is_object(),
        _ => true,
    };
    if !fits {
        return Err(invalid(format!(
            "Template parameter JToken type is not valid. Expected '{kind}' for the template \
            parameter '{name}'"
        )));
    }
    let allowed = definition["allowedValues"].as_array();
    if allowed.is_some_and(|allowed| !allowed.contains(value)) {
        return Err(invalid(format!(
            "The provided value for the template parameter '{name}' is not valid. The value \
            '{value}' is not part of the allowed value(s)"
        )));
    }
    let size = value
        .as_str()
        .map(|text| text.chars().count() as i64)
        .or_else(|| value.as_array().map(|a| a.len() as i64));
    let bounds = [
        ("minLength", size, true),
        ("maxLength", size, false),
        ("minValue", value.as_i64(), true),
        ("maxValue", value.as_i64(), false),
    ];
    for (bound, measured, is_least) in bounds {
        let (Some(limit), Some(measured)) = (definition[bound].as_i64(), measured) else {
            continue;
        };
        if (is_least && measured < limit) || (!is_least && measured > limit) {
            return Err(invalid(format!(
                "The provided value for the template parameter '{name}' is not valid: {bound} is {limit}"
            )));
        }
    }
    Ok(())
}
