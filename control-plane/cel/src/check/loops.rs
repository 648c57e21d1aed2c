//! Loops: the types of their variables, and that a step yields what it started with.

use super::{Checker, node};
use crate::ast::{Expr, Fold, Kind};
use crate::node::{FoldNode, Node, NodeKind};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn fold(&mut self, at: u32, fold: &Fold) -> Node {
        let range = self.node(&fold.range);
        let init = self.node(&fold.init);
        let (first, second) = self.variables(&range, fold.second.is_some());
        let accumulator = init.ty.clone();
        let depth = self.locals.len();
        self.locals
            .push((fold.accumulator.clone(), accumulator.clone()));
        self.locals.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.locals.push((name.clone(), second));
        }
        let condition = self.node(&fold.condition);
        if !self.bound.assignable(&condition.ty, &Type::Bool) {
            self.mismatch(condition.at, &Type::Bool, &condition.ty);
        }
        let mut step = self.node(&fold.step);
        if !self.bound.assignable(&step.ty, &accumulator) {
            self.mismatch(step.at, &accumulator, &step.ty);
        }
        take_accumulator(&mut step, &fold.step, &fold.accumulator, depth);
        self.locals.truncate(depth + 1);
        let result = self.node(&fold.result);
        self.locals.truncate(depth);
        let ty = self.bound.resolved(&result.ty, false);
        let kind = FoldNode {
            two: fold.second.is_some(),
            range,
            init,
            condition,
            step,
            result,
        };
        node(at, ty, NodeKind::Fold(Box::new(kind)))
    }

    fn variables(&mut self, range: &Node, two: bool) -> (Type, Type) {
        let ty = self.bound.resolved(&range.ty, false);
        match &ty {
            Type::Map(of) => (of.0.clone(), of.1.clone()),
            Type::List(of) if two => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Param(_) => {
                self.bound.assignable(&Type::Dyn, &ty);
                (Type::Dyn, Type::Dyn)
            }
            ty if ty.is_dyn() => (Type::Dyn, Type::Dyn),
            ty => {
                let message = format!(
                    "expression of type '{ty}' cannot be range of a comprehension \
                     (must be list, map, or dynamic)"
                );
                self.report(range.at, message);
                (Type::Error, Type::Error)
            }
        }
    }
}

// A step that appends to its accumulator may take it: nobody reads it in between, and a list that is not
// shared grows in place. Only what the macros themselves wrote has this form.
fn take_accumulator(step: &mut Node, expr: &Expr, accumulator: &str, index: usize) {
    let is_accumulator =
        |expr: &Expr| matches!(&expr.kind, Kind::Ident(name) if name == accumulator);
    let Kind::Call { args, .. } = &expr.kind else {
        return;
    };
    match &mut step.kind {
        NodeKind::Conditional(parts) if args.len() == 3 => {
            take_accumulator(&mut parts[1], &args[1], accumulator, index);
        }
        NodeKind::Call(call)
            if matches!(call.function.name, "_+_" | "cel.@mapInsert")
                && args.first().is_some_and(is_accumulator) =>
        {
            if let Some(first) = call.args.first_mut() {
                first.kind = NodeKind::Take(index);
            }
        }
        _ => {}
    }
}
