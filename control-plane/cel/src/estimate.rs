//! What an expression may cost at most, before anything is evaluated: cel-go's estimate with Kubernetes' rows.
//!
//! Sizes come from what is declared (`shape`) along the *place* of a value: where it lies below the variable that a
//! rule is about. What has no place and no size of its own may have any size.

mod calls;

use std::sync::Arc;

use crate::ast::Const;
use crate::cost;
use crate::node::{FoldNode, Node, NodeKind};
use crate::shape::{Kind, Shape};
use crate::types::Type;

/// At least, and at most so many characters, elements or entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    least: u64,
    most: u64,
}

impl Size {
    const UNKNOWN: Size = Size {
        least: 0,
        most: u64::MAX,
    };

    const fn exactly(size: u64) -> Size {
        Size {
            least: size,
            most: size,
        }
    }

    fn either(self, other: Size) -> Size {
        Size {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    fn plus(self, other: Size) -> Size {
        Size {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }

    fn times(self, other: Size) -> Size {
        Size {
            least: self.least.saturating_mul(other.least),
            most: self.most.saturating_mul(other.most),
        }
    }

    /// What it costs to go over it.
    fn cost(self, each: f64) -> u64 {
        scaled(self.most, each)
    }
}

// Casts of numbers that are too large end at the largest.
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Where a value lies.
#[derive(Debug, Clone)]
enum Place {
    /// Nowhere: it was made.
    Made,
    /// Below the root, where this is declared, or nothing that is known.
    Declared(Option<Arc<Shape>>),
}

/// The sizes of what is in a list or a map.
#[derive(Debug, Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Size,
    value: Size,
}

impl Entry {
    fn either(self, other: Entry) -> Entry {
        Entry {
            is_list: self.is_list,
            key: self.key.either(other.key),
            value: self.value.either(other.value),
        }
    }
}

/// What is known of an expression.
#[derive(Debug, Clone)]
struct Estimate<'n> {
    node: &'n Node,
    cost: u64,
    size: Option<Size>,
    place: Place,
    entry: Option<Entry>,
}

impl Estimate<'_> {
    fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

/// A variable of a loop.
#[derive(Debug, Clone)]
struct Local {
    size: Option<Size>,
    place: Place,
    entry: Option<Entry>,
}

/// The most that evaluating may cost, where `root` is declared of the variable that the expression is about.
pub(crate) fn most(node: &Node, root: &Arc<Shape>) -> u64 {
    let mut estimator = Estimator {
        root,
        locals: Vec::new(),
    };
    estimator.node(node).cost
}

struct Estimator<'r> {
    root: &'r Arc<Shape>,
    locals: Vec<Local>,
}

impl Estimator<'_> {
    fn node<'n>(&mut self, node: &'n Node) -> Estimate<'n> {
        match &node.kind {
            NodeKind::Const(_) => self.made(node, 0),
            NodeKind::Variable(..) => {
                let place = Place::Declared(Some(Arc::clone(self.root)));
                self.known(node, cost::SELECT, place, None, None)
            }
            NodeKind::TypeName(_) => self.made(node, cost::SELECT),
            NodeKind::Local(index) | NodeKind::Take(index) => {
                let local = self.locals[*index].clone();
                self.known(node, cost::SELECT, local.place, local.size, local.entry)
            }
            NodeKind::Select {
                operand,
                field,
                test,
                optional,
            } => self.select(node, operand, field, *test, *optional),
            NodeKind::And(terms) | NodeKind::Or(terms) => {
                let cost = self.sum(terms.iter());
                self.made(node, cost)
            }
            NodeKind::Conditional(parts) => self.conditional(node, parts),
            NodeKind::NotStrictlyFalse(inner) => {
                let cost = self.node(inner).cost.saturating_add(1);
                self.made(node, cost)
            }
            NodeKind::Call(call) => self.call(node, call),
            NodeKind::List(items) => {
                let items = items.iter().map(|item| &item.value).collect();
                self.collection(node, Vec::new(), items, cost::LIST)
            }
            NodeKind::Map(entries) => {
                let keys = entries.iter().map(|entry| &entry.key).collect();
                let values = entries.iter().map(|entry| &entry.value).collect();
                self.collection(node, keys, values, cost::MAP)
            }
            NodeKind::Struct(_, fields) => {
                let cost = self.sum(fields.iter().map(|field| &field.value));
                self.made(node, cost.saturating_add(cost::STRUCT))
            }
            NodeKind::Fold(fold) => self.fold(node, fold),
        }
    }

    fn sum<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>) -> u64 {
        nodes.fold(0, |sum, node| sum.saturating_add(self.node(node).cost))
    }

    fn made<'n>(&self, node: &'n Node, cost: u64) -> Estimate<'n> {
        self.known(node, cost, Place::Made, None, None)
    }

    // A size that stands in the text is what it is; then what is declared counts, then the type, then what a variable
    // was bound to.
    fn known<'n>(
        &self,
        node: &'n Node,
        cost: u64,
        place: Place,
        bound: Option<Size>,
        entry: Option<Entry>,
    ) -> Estimate<'n> {
        let declared = match &place {
            Place::Declared(Some(shape)) => Some(Size {
                least: 0,
                most: shape.max_elements,
            }),
            _ => None,
        };
        let size = in_text(node).or(declared).or(of_type(&node.ty)).or(bound);
        Estimate {
            node,
            cost,
            size,
            place,
            entry,
        }
    }

    fn select<'n>(
        &mut self,
        node: &'n Node,
        operand: &'n Node,
        field: &str,
        test: bool,
        optional: bool,
    ) -> Estimate<'n> {
        let operand = self.node(operand);
        if test {
            return self.made(node, operand.cost);
        }
        let charged = optional
            || matches!(
                operand.node.ty,
                Type::Map(_) | Type::Object(_) | Type::Param(_)
            );
        let cost = operand.cost.saturating_add(u64::from(charged));
        let place = match (optional, operand.place) {
            (true, _) => Place::Made,
            (false, Place::Made) => Place::Declared(Some(Arc::clone(self.root))),
            (false, Place::Declared(shape)) => Place::Declared(below(shape.as_ref(), field)),
        };
        self.known(node, cost, place, None, None)
    }

    fn conditional<'n>(&mut self, node: &'n Node, parts: &'n [Node; 3]) -> Estimate<'n> {
        let [condition, yes, no] = parts.each_ref().map(|part| self.node(part));
        let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
        let mut estimate = self.made(node, cost);
        estimate.size = Some(yes.size().either(no.size()));
        estimate.entry = yes.entry.zip(no.entry).map(|(a, b)| a.either(b));
        estimate
    }

    fn collection<'n>(
        &mut self,
        node: &'n Node,
        keys: Vec<&'n Node>,
        values: Vec<&'n Node>,
        base: u64,
    ) -> Estimate<'n> {
        let is_list = keys.is_empty() && base == cost::LIST;
        let mut sum = base;
        let mut sizes = |nodes: Vec<&'n Node>| {
            let sizes = nodes.into_iter().map(|node| {
                let estimate = self.node(node);
                sum = sum.saturating_add(estimate.cost);
                estimate.size()
            });
            sizes.reduce(Size::either).unwrap_or(Size::exactly(0))
        };
        let key = sizes(keys);
        let entry = Entry {
            is_list,
            key: if is_list { Size::exactly(1) } else { key },
            value: sizes(values),
        };
        self.known(node, sum, Place::Made, None, Some(entry))
    }

    fn fold<'n>(&mut self, node: &'n Node, fold: &'n FoldNode) -> Estimate<'n> {
        let range = self.node(&fold.range);
        let init = self.node(&fold.init);
        let depth = self.locals.len();
        self.locals.push(Local {
            size: init.size,
            place: init.place.clone(),
            entry: init.entry,
        });
        if is_binding(fold) {
            let result = self.node(&fold.result);
            self.locals.truncate(depth);
            let cost = [range.cost, init.cost, result.cost];
            return Estimate {
                node,
                cost: cost.into_iter().fold(0, u64::saturating_add),
                place: Place::Made,
                ..result
            };
        }
        self.variables(&range, fold.two);
        let condition = self.node(&fold.condition);
        let step = self.node(&fold.step);
        self.locals.truncate(depth + 1);
        let result = self.node(&fold.result);
        self.locals.truncate(depth);
        let turns = range.size();
        let turn = condition.cost.saturating_add(step.cost);
        let costs = [
            range.cost,
            init.cost,
            result.cost,
            turns.most.saturating_mul(turn),
        ];
        let cost = costs.into_iter().fold(0, u64::saturating_add);
        let mut estimate = self.made(node, cost);
        match &fold.init.kind {
            NodeKind::Const(_) => estimate.size = init.size,
            NodeKind::List(_) | NodeKind::Map(_) => {
                estimate.size = Some(turns);
                estimate.entry = step.entry;
            }
            _ => {}
        }
        estimate
    }

    fn variables(&mut self, range: &Estimate<'_>, two: bool) {
        let is_list = match (range.entry, &range.node.ty) {
            (Some(entry), _) => entry.is_list,
            (None, ty) => matches!(ty, Type::List(_)),
        };
        let key = range.entry.map(|entry| entry.key);
        let value = range.entry.map(|entry| entry.value);
        let keys = if is_list { "@indices" } else { "@keys" };
        let values = if is_list { "@items" } else { "@values" };
        let variables = match (two, is_list) {
            (true, _) => vec![(keys, key), (values, value)],
            (false, true) => vec![(values, value)],
            (false, false) => vec![(keys, key)],
        };
        for (step, size) in variables {
            let place = self.step(&range.place, step);
            self.locals.push(Local {
                size,
                place,
                entry: None,
            });
        }
    }

    // Upstream cuts the first step of a path off, which mostly is a variable. Where it is not, the rest leads from the
    // root all the same.
    fn step(&self, place: &Place, step: &str) -> Place {
        Place::Declared(match place {
            Place::Made => Some(Arc::clone(self.root)),
            Place::Declared(shape) => below(shape.as_ref(), step),
        })
    }
}

// A name for a value, as `optMap` and `sortBy` make it: a loop over nothing.
fn is_binding(fold: &FoldNode) -> bool {
    let nothing = matches!(&fold.range.kind, NodeKind::List(items) if items.is_empty());
    nothing && matches!(fold.condition.kind, NodeKind::Const(Const::Bool(false)))
}

fn below(shape: Option<&Arc<Shape>>, step: &str) -> Option<Arc<Shape>> {
    let shape = shape?;
    match (step, &shape.kind) {
        ("@items" | "@values", Kind::List { items, .. } | Kind::Map(items)) => {
            Some(Arc::clone(items))
        }
        // Keys have no bound of their own, and count for nothing.
        ("@keys", Kind::Map(_)) => Some(Shape::sized(Kind::String, 0, 2)),
        (field, _) => shape.field(field).map(|field| Arc::clone(&field.shape)),
    }
}

fn in_text(node: &Node) -> Option<Size> {
    let size = match &node.kind {
        NodeKind::Const(Const::String(text)) => text.chars().count(),
        NodeKind::Const(Const::Bytes(bytes)) => bytes.len(),
        NodeKind::Const(_) => 1,
        NodeKind::List(items) => items.len(),
        NodeKind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(Size::exactly(size as u64))
}

fn of_type(ty: &Type) -> Option<Size> {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            Some(Size::exactly(1))
        }
        other => other.optional_of().and_then(of_type),
    }
}

#[cfg(test)]
mod tests;
