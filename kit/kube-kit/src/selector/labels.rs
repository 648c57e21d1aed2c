//! Label selectors.

use std::fmt;

use serde_json::Value;

use super::syntax::{label_key_errors, label_value_errors};
use super::{SelectorError, invalid, parser, quoted};

/// How a requirement relates a label to its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key in (a,b)`.
    In,
    /// `key notin (a,b)`; also true without the label.
    NotIn,
    /// `key=a`.
    Equals,
    /// `key==a`, the same as [`Operator::Equals`] but printed as it was written.
    DoubleEquals,
    /// `key!=a`; also true without the label.
    NotEquals,
    /// `key`.
    Exists,
    /// `!key`.
    DoesNotExist,
    /// `key>1`.
    GreaterThan,
    /// `key<1`.
    LessThan,
}

impl Operator {
    /// The operator of a `matchExpressions` entry (`In`, `NotIn`, `Exists`, `DoesNotExist`).
    pub fn from_expression(name: &str) -> Option<Operator> {
        Some(match name {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        })
    }

    fn symbol(self) -> &'static str {
        match self {
            Operator::In => " in ",
            Operator::NotIn => " notin ",
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::Exists | Operator::DoesNotExist => "",
            Operator::GreaterThan => ">",
            Operator::LessThan => "<",
        }
    }

    /// The complaint about a number of values the operator cannot take.
    fn arity_error(self, count: usize) -> Option<&'static str> {
        match self {
            Operator::In | Operator::NotIn => {
                (count == 0).then_some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
                (count != 1).then_some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist => {
                (count != 0).then_some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan => {
                (count != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
        }
    }
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted, so that membership is a binary search and printing is canonical.
    values: Vec<String>,
}

impl Requirement {
    /// A checked requirement; the rules are those of upstream's `NewRequirement`.
    pub fn new(
        key: impl Into<String>,
        operator: Operator,
        values: Vec<String>,
    ) -> Result<Requirement, SelectorError> {
        let key = key.into();
        let errors = requirement_errors(&key, operator, &values);
        if errors.is_empty() {
            Ok(Requirement::unchecked(key, operator, values))
        } else {
            Err(SelectorError::joined(errors))
        }
    }

    fn unchecked(key: String, operator: Operator, mut values: Vec<String>) -> Requirement {
        values.sort_unstable();
        Requirement {
            key,
            operator,
            values,
        }
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, sorted.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Whether a label's value (none when the label is missing) satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        match (self.operator, value) {
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::NotIn | Operator::NotEquals, None) => true,
            (_, None) => false,
            (Operator::In | Operator::Equals | Operator::DoubleEquals, Some(value)) => {
                self.holds(value)
            }
            (Operator::NotIn | Operator::NotEquals, Some(value)) => !self.holds(value),
            (Operator::GreaterThan, Some(value)) => {
                self.compares(value, |label, bound| label > bound)
            }
            (Operator::LessThan, Some(value)) => self.compares(value, |label, bound| label < bound),
        }
    }

    fn holds(&self, value: &str) -> bool {
        self.values
            .binary_search_by(|v| v.as_str().cmp(value))
            .is_ok()
    }

    fn compares(&self, value: &str, relation: fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|v| v.parse().ok());
        matches!((value.parse(), bound), (Ok(label), Some(bound)) if relation(label, bound))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operator == Operator::DoesNotExist {
            f.write_str("!")?;
        }
        write!(f, "{}{}", self.key, self.operator.symbol())?;
        match self.operator {
            Operator::Exists | Operator::DoesNotExist => Ok(()),
            Operator::In | Operator::NotIn => write!(f, "({})", self.values.join(",")),
            _ => f.write_str(&self.values.join(",")),
        }
    }
}

fn requirement_errors(key: &str, operator: Operator, values: &[String]) -> Vec<String> {
    let mut errors = Vec::new();
    let key_errors = label_key_errors(key);
    if !key_errors.is_empty() {
        errors.push(invalid("key", &quoted(key), &key_errors.join("; ")));
    }
    if let Some(complaint) = operator.arity_error(values.len()) {
        errors.push(invalid("values", &go_list(values), complaint));
    }
    let takes_number = matches!(operator, Operator::GreaterThan | Operator::LessThan);
    for (i, value) in values.iter().enumerate() {
        if takes_number && value.parse::<i64>().is_err() {
            let complaint = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(invalid(&format!("values[{i}]"), &quoted(value), complaint));
        }
    }
    for (i, value) in values.iter().enumerate() {
        let complaints = label_value_errors(value).join("; ");
        if !complaints.is_empty() {
            errors.push(invalid(
                &format!("values[{i}][{key}]"),
                &quoted(value),
                &complaints,
            ));
        }
    }
    errors
}

/// A list as Go prints it in a field error: JSON, and an empty one is nil.
fn go_list(values: &[String]) -> String {
    if values.is_empty() {
        "null".to_owned()
    } else {
        Value::from(values.to_vec()).to_string()
    }
}

/// A conjunction of requirements on labels, or the selector that matches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key; none is the selector that matches nothing (a null `LabelSelector`).
    requirements: Option<Vec<Requirement>>,
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> LabelSelector {
        LabelSelector {
            requirements: Some(Vec::new()),
        }
    }

    /// Matches no object.
    pub fn nothing() -> LabelSelector {
        LabelSelector { requirements: None }
    }

    /// From the text of a `labelSelector` parameter.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        parser::parse(text).map(LabelSelector::all_of)
    }

    /// All of these.
    pub fn all_of(mut requirements: Vec<Requirement>) -> LabelSelector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector {
            requirements: Some(requirements),
        }
    }

    /// From a `LabelSelector` object: null selects nothing, an empty object everything.
    pub fn from_object(selector: &Value) -> Result<LabelSelector, SelectorError> {
        if selector.is_null() {
            return Ok(LabelSelector::nothing());
        }
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(
                key.as_str(),
                Operator::Equals,
                vec![value],
            )?);
        }
        for expression in selector["matchExpressions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            requirements.push(from_expression(expression)?);
        }
        Ok(LabelSelector::all_of(requirements))
    }

    /// From a plain map of labels (`spec.selector` of a Service), unchecked as upstream's
    /// `SelectorFromSet`; null and an empty map select everything.
    pub fn from_map(labels: &Value) -> LabelSelector {
        let equals = |(key, value): (&String, &Value)| {
            let value = value.as_str().unwrap_or_default().to_owned();
            Requirement::unchecked(key.clone(), Operator::Equals, vec![value])
        };
        LabelSelector::all_of(
            labels
                .as_object()
                .into_iter()
                .flatten()
                .map(equals)
                .collect(),
        )
    }

    /// Whether the selector restricts nothing.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether the selector is the one that matches nothing.
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }

    /// Whether labels match; `lookup` gives a label's value.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.requirements {
            Some(requirements) => requirements.iter().all(|r| r.matches(lookup(&r.key))),
            None => false,
        }
    }

    /// Whether the labels of a JSON map (`metadata.labels`; null is no labels) match.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        self.matches(|key| labels.get(key).and_then(Value::as_str))
    }

    /// The single value a label must have, when the selector says so.
    pub fn exact_value(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements().iter().find(|r| r.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements().iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, SelectorError> {
    let name = expression["operator"].as_str().unwrap_or_default();
    let operator = Operator::from_expression(name).ok_or_else(|| {
        SelectorError::new(format!(
            "{} is not a valid label selector operator",
            quoted(name)
        ))
    })?;
    let values = expression["values"].as_array().into_iter().flatten();
    let values = values
        .map(|v| v.as_str().unwrap_or_default().to_owned())
        .collect();
    Requirement::new(
        expression["key"].as_str().unwrap_or_default(),
        operator,
        values,
    )
}

#[cfg(test)]
mod tests;
