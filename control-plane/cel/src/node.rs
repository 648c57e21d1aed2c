//! Checked expressions: names are places, calls know their functions, everything has a type.

use regex::Regex;

use crate::ast::Const;
use crate::functions::Function;
use crate::types::Type;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) at: u32,
    pub(crate) ty: Type,
    pub(crate) kind: NodeKind,
}

#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Const(Const),
    /// A variable of the environment, by its place.
    Variable(usize, String),
    /// A variable of a loop, by its place on the stack.
    Local(usize),
    /// A loop's accumulator, taken out of its place: the step puts a new one there.
    Take(usize),
    /// A type as a value.
    TypeName(&'static str),
    Select {
        operand: Box<Node>,
        field: String,
        test: bool,
        optional: bool,
    },
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    NotStrictlyFalse(Box<Node>),
    Call(Box<Call>),
    List(Vec<ItemNode>),
    Map(Vec<EntryNode>),
    Struct(String, Vec<FieldNode>),
    Fold(Box<FoldNode>),
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    pub(crate) args: Vec<Node>,
    /// The overloads that fit, as cost models call them: several where a type is only known later.
    pub(crate) overloads: Box<[&'static str]>,
    /// The pattern, if it stands in the text.
    pub(crate) pattern: Option<Regex>,
}

#[derive(Debug, Clone)]
pub(crate) struct ItemNode {
    pub(crate) optional: bool,
    pub(crate) value: Node,
}

#[derive(Debug, Clone)]
pub(crate) struct EntryNode {
    pub(crate) optional: bool,
    pub(crate) key: Node,
    pub(crate) value: Node,
}

#[derive(Debug, Clone)]
pub(crate) struct FieldNode {
    pub(crate) optional: bool,
    pub(crate) name: String,
    pub(crate) value: Node,
}

#[derive(Debug, Clone)]
pub(crate) struct FoldNode {
    pub(crate) two: bool,
    pub(crate) range: Node,
    pub(crate) init: Node,
    pub(crate) condition: Node,
    pub(crate) step: Node,
    pub(crate) result: Node,
}

impl Node {
    /// Whether it stands in the text as a whole: evaluating it costs nothing.
    pub(crate) fn is_literal(&self) -> bool {
        match &self.kind {
            NodeKind::Const(_) => true,
            NodeKind::List(items) => items.iter().all(|i| !i.optional && i.value.is_literal()),
            NodeKind::Map(entries) => entries
                .iter()
                .all(|e| !e.optional && e.key.is_literal() && e.value.is_literal()),
            _ => false,
        }
    }

    /// Everything directly below, for passes that treat all alike.
    pub(crate) fn children_mut(&mut self) -> Vec<&mut Node> {
        match &mut self.kind {
            NodeKind::Const(_)
            | NodeKind::Variable(..)
            | NodeKind::Local(_)
            | NodeKind::Take(_)
            | NodeKind::TypeName(_) => Vec::new(),
            NodeKind::Select { operand, .. } | NodeKind::NotStrictlyFalse(operand) => {
                vec![operand]
            }
            NodeKind::And(terms) | NodeKind::Or(terms) => terms.iter_mut().collect(),
            NodeKind::Conditional(parts) => parts.iter_mut().collect(),
            NodeKind::Call(call) => call.args.iter_mut().collect(),
            NodeKind::List(items) => items.iter_mut().map(|item| &mut item.value).collect(),
            NodeKind::Map(entries) => entries
                .iter_mut()
                .flat_map(|entry| [&mut entry.key, &mut entry.value])
                .collect(),
            NodeKind::Struct(_, fields) => {
                fields.iter_mut().map(|field| &mut field.value).collect()
            }
            NodeKind::Fold(fold) => vec![
                &mut fold.range,
                &mut fold.init,
                &mut fold.condition,
                &mut fold.step,
                &mut fold.result,
            ],
        }
    }
}
