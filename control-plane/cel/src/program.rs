//! A compiled expression.

use std::sync::Arc;

use crate::env::{Bindings, Env};
use crate::error::Result;
use crate::interpret::Run;
use crate::issues::Issues;
use crate::meter::{Budget, Meter};
use crate::node::{Node, NodeKind};
use crate::shape::Shape;
use crate::types::Type;
use crate::value::Value;
use crate::{check, estimate, parser};

/// An expression that can be evaluated.
#[derive(Debug, Clone)]
pub struct Program {
    root: Node,
    variables: Vec<String>,
    /// Fields that are selected straight from a variable, as in `claims.email`.
    fields: Vec<(String, String)>,
}

impl Program {
    /// Parses and checks an expression.
    pub fn compile(source: &str, env: &Env) -> std::result::Result<Program, Issues> {
        let expr = parser::parse(source)?;
        let mut root = check::check(source, &expr, env)?;
        let (mut variables, mut fields) = (Vec::new(), Vec::new());
        gather(&mut root, &mut variables, &mut fields);
        Ok(Program {
            root,
            variables,
            fields,
        })
    }

    /// The type of what it yields.
    pub fn result(&self) -> &Type {
        &self.root.ty
    }

    /// The most that evaluating it may cost, where `root` is declared of what the expression is about.
    pub fn estimate(&self, root: &Arc<Shape>) -> u64 {
        estimate::most(&self.root, root)
    }

    /// Evaluates, at the expense of a budget.
    pub fn evaluate<'a>(&'a self, values: &Bindings<'a>, budget: &mut Budget) -> Result<Value<'a>> {
        let mut meter = budget.meter();
        let value = self.run(values, &mut meter);
        budget.charge(&meter);
        value
    }

    /// Evaluates on somebody else's meter.
    pub fn run<'a>(&'a self, bindings: &Bindings<'a>, meter: &mut Meter) -> Result<Value<'a>> {
        let mut run = Run {
            bindings,
            meter,
            locals: Vec::new(),
        };
        run.eval(&self.root)
    }

    /// Whether a field of a variable is selected by its name, be it optionally.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|(known, selected)| (known.as_str(), selected.as_str()) == (variable, field))
    }

    /// Whether a variable is mentioned.
    pub fn uses(&self, variable: &str) -> bool {
        self.variables.iter().any(|known| known == variable)
    }
}

fn gather(node: &mut Node, found: &mut Vec<String>, fields: &mut Vec<(String, String)>) {
    match &node.kind {
        NodeKind::Variable(_, name) if !found.contains(name) => found.push(name.clone()),
        NodeKind::Select { operand, field, .. } => {
            if let NodeKind::Variable(_, name) = &operand.kind {
                fields.push((name.clone(), field.clone()));
            }
        }
        _ => {}
    }
    for child in node.children_mut() {
        gather(child, found, fields);
    }
}
