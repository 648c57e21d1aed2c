//! The few CEL expressions that claim mappings commonly are, and no more.
//!
//! Understood: `claims.a.b`, `claims['a']`, `claims.?a.orValue(x)`, text, whole numbers, `true`, `false`, `+` of
//! texts, `==`, `!=`, `in`, `&&`, `||`, `!`, `.startsWith()`, `.endsWith()`, `.contains()`, `list.all(x, …)` and
//! `list.exists(x, …)`. Anything else is refused when the configuration is loaded, never when a token comes.

mod parser;

use std::collections::BTreeMap;

use serde_json::Value;

/// An expression that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(Value),
    /// A variable and the fields followed from it.
    Path(String, Vec<String>),
    /// The same, with what it is where a field is missing.
    Optional(Box<Node>, Value),
    Sum(Vec<Node>),
    Equal(Box<Node>, Box<Node>),
    In(Box<Node>, Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Test(Test, Box<Node>, Box<Node>),
    /// Whether a condition on a variable holds for all, or for any, of a list.
    Each {
        all: bool,
        list: Box<Node>,
        variable: String,
        condition: Box<Node>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    StartsWith,
    EndsWith,
    Contains,
}

type Variables<'v> = BTreeMap<&'v str, &'v Value>;

impl Expression {
    /// Reads an expression about one variable, `claims` or `user`.
    pub fn parse(text: &str, variable: &str) -> Result<Expression, String> {
        let root = parser::parse(text, variable)?;
        Ok(Expression {
            text: text.to_owned(),
            root,
        })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the expression looks at a field of the variable.
    pub fn uses(&self, variable: &str, field: &str) -> bool {
        self.root.uses(variable, field)
    }

    /// What the expression is for a value of its variable.
    pub fn value(&self, variable: &str, value: &Value) -> Result<Value, String> {
        self.root.value(&Variables::from([(variable, value)]))
    }
}

impl Node {
    fn uses(&self, variable: &str, field: &str) -> bool {
        match self {
            Node::Literal(_) => false,
            Node::Path(root, fields) => {
                root == variable && fields.first().is_some_and(|first| first == field)
            }
            Node::Optional(inner, _) | Node::Not(inner) => inner.uses(variable, field),
            Node::Sum(nodes) | Node::And(nodes) | Node::Or(nodes) => {
                nodes.iter().any(|n| n.uses(variable, field))
            }
            Node::Equal(left, right) | Node::In(left, right) | Node::Test(_, left, right) => {
                left.uses(variable, field) || right.uses(variable, field)
            }
            Node::Each {
                list, condition, ..
            } => list.uses(variable, field) || condition.uses(variable, field),
        }
    }

    fn value(&self, variables: &Variables<'_>) -> Result<Value, String> {
        Ok(match self {
            Node::Literal(value) => value.clone(),
            Node::Path(root, fields) => follow(variables, root, fields)?,
            Node::Optional(inner, otherwise) => {
                inner.value(variables).unwrap_or_else(|_| otherwise.clone())
            }
            Node::Sum(nodes) => Value::String(joined(nodes, variables)?),
            Node::Equal(left, right) => {
                Value::Bool(left.value(variables)? == right.value(variables)?)
            }
            Node::In(item, list) => {
                Value::Bool(items(&list.value(variables)?)?.contains(&item.value(variables)?))
            }
            Node::And(nodes) => Value::Bool(!any(nodes, variables, false)?),
            Node::Or(nodes) => Value::Bool(any(nodes, variables, true)?),
            Node::Not(inner) => Value::Bool(!inner.truth(variables)?),
            Node::Test(test, subject, other) => Value::Bool(test.holds(
                &text(subject.value(variables)?)?,
                &text(other.value(variables)?)?,
            )),
            Node::Each {
                all,
                list,
                variable,
                condition,
            } => Value::Bool(each(
                *all,
                &list.value(variables)?,
                variable,
                condition,
                variables,
            )?),
        })
    }

    fn truth(&self, variables: &Variables<'_>) -> Result<bool, String> {
        self.value(variables)?
            .as_bool()
            .ok_or_else(|| "no such overload: not a condition".to_owned())
    }
}

impl Test {
    fn holds(self, subject: &str, other: &str) -> bool {
        match self {
            Test::StartsWith => subject.starts_with(other),
            Test::EndsWith => subject.ends_with(other),
            Test::Contains => subject.contains(other),
        }
    }
}

fn follow(variables: &Variables<'_>, root: &str, fields: &[String]) -> Result<Value, String> {
    let mut value = *variables
        .get(root)
        .ok_or_else(|| format!("undeclared reference to '{root}'"))?;
    for field in fields {
        value = value
            .get(field)
            .ok_or_else(|| format!("no such key: {field}"))?;
    }
    Ok(value.clone())
}

fn joined(nodes: &[Node], variables: &Variables<'_>) -> Result<String, String> {
    nodes
        .iter()
        .map(|node| text(node.value(variables)?))
        .collect()
}

/// Whether any condition is `wanted`. As in CEL, one that is decides even where others cannot be told.
fn any(nodes: &[Node], variables: &Variables<'_>, wanted: bool) -> Result<bool, String> {
    let truths: Vec<_> = nodes.iter().map(|node| node.truth(variables)).collect();
    if truths.contains(&Ok(wanted)) {
        return Ok(true);
    }
    truths
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map(|_| false)
}

fn each(
    all: bool,
    list: &Value,
    variable: &str,
    condition: &Node,
    outer: &Variables<'_>,
) -> Result<bool, String> {
    let mut troubled = None;
    for item in items(list)? {
        let mut variables = outer.clone();
        variables.insert(variable, item);
        match condition.truth(&variables) {
            Ok(truth) if truth != all => return Ok(!all),
            Ok(_) => (),
            Err(why) => troubled = Some(why),
        }
    }
    troubled.map_or(Ok(all), Err)
}

fn items(list: &Value) -> Result<&Vec<Value>, String> {
    list.as_array()
        .ok_or_else(|| "no such overload: not a list".to_owned())
}

fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err("no such overload: not text".to_owned()),
    }
}

#[cfg(test)]
mod tests;
