//! The type checker: cel-go's rules and words.

mod literals;
mod loops;

use crate::ast::{Const, Expr, Kind};
use crate::env::Env;
use crate::functions::{self, Function};
use crate::issues::{Issue, Issues};
use crate::node::{Call, Node, NodeKind};
use crate::types::{Bound, Type};

/// Checks an expression and resolves its names.
pub(crate) fn check(source: &str, expr: &Expr, env: &Env) -> Result<Node, Issues> {
    let mut checker = Checker {
        env,
        bound: Bound::default(),
        issues: Vec::new(),
        locals: Vec::new(),
        mixed: 0,
    };
    let mut node = checker.node(expr);
    if !checker.issues.is_empty() {
        return Err(Issues::new(source, checker.issues));
    }
    checker.finish(&mut node);
    Ok(node)
}

struct Checker<'e> {
    env: &'e Env,
    bound: Bound,
    issues: Vec<Issue>,
    /// Variables of the loops around, innermost last.
    locals: Vec<(String, Type)>,
    /// Inside the arguments of `format`, whose lists may be of mixed types.
    mixed: usize,
}

impl Checker<'_> {
    fn report(&mut self, at: u32, message: String) {
        self.issues.push(Issue { at, message });
    }

    fn mismatch(&mut self, at: u32, wanted: &Type, found: &Type) {
        let (wanted, found) = (
            self.bound.resolved(wanted, true),
            self.bound.resolved(found, true),
        );
        self.report(at, format!("expected type '{wanted}' but found '{found}'"));
    }

    // Types are final once everything has been seen.
    fn finish(&self, node: &mut Node) {
        node.ty = self.bound.resolved(&node.ty, true);
        for child in node.children_mut() {
            self.finish(child);
        }
    }

    fn node(&mut self, expr: &Expr) -> Node {
        match &expr.kind {
            Kind::Const(value) => node(expr.at, constant(value), NodeKind::Const(value.clone())),
            Kind::Ident(name) => self.ident(expr.at, name),
            Kind::Select {
                operand,
                field,
                test,
            } => self.select(expr, operand, field, *test),
            Kind::Call {
                function,
                target,
                args,
            } => self.call(expr.at, function, target.as_deref(), args),
            Kind::List(items) => self.list(expr.at, items),
            Kind::Map(entries) => self.map(expr.at, entries),
            Kind::Struct { name, fields } => self.made(expr.at, name, fields),
            Kind::Fold(fold) => self.fold(expr.at, fold),
        }
    }

    fn undeclared(&mut self, at: u32, name: &str) -> Node {
        self.report(
            at,
            format!("undeclared reference to '{name}' (in container '')"),
        );
        node(at, Type::Error, NodeKind::Const(Const::Null))
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|(known, _)| known == name)
    }

    fn ident(&mut self, at: u32, name: &str) -> Node {
        if let Some(index) = self.local(name) {
            let ty = self.locals[index].1.clone();
            return node(at, ty, NodeKind::Local(index));
        }
        if let Some((slot, ty)) = self.env.slot(name) {
            return node(at, ty.clone(), NodeKind::Variable(slot, name.to_owned()));
        }
        match functions::type_name(name) {
            Some(name) => node(at, Type::Type, NodeKind::TypeName(name)),
            None => self.undeclared(at, name),
        }
    }

    // A dotted name may be a variable's as a whole: `authorizer.requestResource`.
    fn dotted(&mut self, expr: &Expr) -> Option<Node> {
        let name = expr.qualified_name()?;
        let root = name.split('.').next().unwrap_or_default();
        if self.local(root).is_some() {
            return None;
        }
        let known = self.env.slot(&name).is_some() || functions::type_name(&name).is_some();
        known.then(|| self.ident(expr.at, &name))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Node {
        if !test && let Some(found) = self.dotted(expr) {
            return found;
        }
        let operand = self.node(operand);
        let ty = self.field_type(expr.at, &operand.ty.clone(), field, false);
        let ty = match (test, &ty) {
            (true, _) => Type::Bool,
            (false, _) => ty,
        };
        let kind = NodeKind::Select {
            operand: Box::new(operand),
            field: field.to_owned(),
            test,
            optional: false,
        };
        node(expr.at, ty, kind)
    }

    fn field_type(&mut self, at: u32, operand: &Type, field: &str, optional: bool) -> Type {
        let operand = self.bound.resolved(operand, false);
        let (inner, was_optional) = match operand.optional_of() {
            Some(inner) => (inner.clone(), true),
            None => (operand, false),
        };
        let found = match &inner {
            Type::Map(of) => of.1.clone(),
            Type::Object(shape) => match shape.field(field) {
                Some(field) => Type::of(&field.shape),
                None => {
                    self.report(at, format!("undefined field '{field}'"));
                    return Type::Error;
                }
            },
            Type::Param(_) => {
                self.bound.assignable(&Type::Dyn, &inner);
                Type::Dyn
            }
            ty if ty.is_dyn() => Type::Dyn,
            ty => {
                let message = format!("type '{ty}' does not support field selection");
                self.report(at, message);
                return Type::Error;
            }
        };
        match was_optional || optional {
            true => Type::optional(found),
            false => found,
        }
    }

    fn call(&mut self, at: u32, name: &str, target: Option<&Expr>, args: &[Expr]) -> Node {
        if name == "_?._" {
            return self.optional_select(at, args);
        }
        let mixed = usize::from(name == "format");
        self.mixed += mixed;
        let checked: Vec<Node> = args.iter().map(|arg| self.node(arg)).collect();
        self.mixed -= mixed;
        let Some(target) = target else {
            return match functions::find(name) {
                Some(function) => self.resolve(at, function, false, checked),
                None => self.undeclared(at, name),
            };
        };
        if let Some(prefix) = target.qualified_name()
            && let Some(function) = functions::find(&format!("{prefix}.{name}"))
        {
            return self.resolve(at, function, false, checked);
        }
        let target = self.node(target);
        match functions::find(name) {
            Some(function) => {
                let args = std::iter::once(target).chain(checked).collect();
                self.resolve(at, function, true, args)
            }
            None => self.undeclared(at, name),
        }
    }

    fn optional_select(&mut self, at: u32, args: &[Expr]) -> Node {
        let operand = self.node(&args[0]);
        let Kind::Const(Const::String(field)) = &args[1].kind else {
            self.report(at, "unsupported optional field selection".to_owned());
            return node(at, Type::Error, NodeKind::Const(Const::Null));
        };
        let ty = self.field_type(at, &operand.ty.clone(), field, true);
        let kind = NodeKind::Select {
            operand: Box::new(operand),
            field: field.clone(),
            test: false,
            optional: true,
        };
        node(at, ty, kind)
    }

    fn resolve(
        &mut self,
        at: u32,
        function: &'static Function,
        member: bool,
        args: Vec<Node>,
    ) -> Node {
        if matches!(function.name, "_&&_" | "_||_") {
            return self.logic(at, function.name, args);
        }
        let given: Vec<Type> = args.iter().map(|arg| arg.ty.clone()).collect();
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in function.overloads.iter().filter(|o| o.member == member) {
            let mut types: Vec<&Type> = vec![&overload.result];
            types.extend(&overload.parameters);
            let mut types = self.bound.instantiate(&types);
            let returned = types.remove(0);
            if !self.bound.all_assignable(&given, &types) {
                continue;
            }
            fitting.push(overload.id);
            let returned = self.bound.resolved(&returned, false);
            result = Some(match result {
                None => returned,
                Some(known) if known.is_dyn() || known == returned => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            self.no_overload(at, function.name, member, &given);
            return node(at, Type::Error, NodeKind::Const(Const::Null));
        };
        self.validate_literals(function, &args);
        node(at, result, resolved_call(function, args, fitting))
    }

    fn no_overload(&mut self, at: u32, name: &str, member: bool, given: &[Type]) {
        let shown: Vec<String> = given
            .iter()
            .map(|ty| self.bound.resolved(ty, true).to_string())
            .collect();
        let signature = match (member, shown.split_first()) {
            (true, Some((target, args))) => format!("{target}.({})", args.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.report(
            at,
            format!("found no matching overload for '{name}' applied to '{signature}'"),
        );
    }

    fn logic(&mut self, at: u32, name: &str, args: Vec<Node>) -> Node {
        for arg in &args {
            if !self.bound.assignable(&arg.ty, &Type::Bool) {
                self.mismatch(arg.at, &Type::Bool, &arg.ty);
            }
        }
        let Ok(terms) = <[Node; 2]>::try_from(args) else {
            self.report(
                at,
                format!("found no matching overload for '{name}' applied to '()'"),
            );
            return node(at, Type::Error, NodeKind::Const(Const::Null));
        };
        let terms = Box::new(terms);
        let kind = match name {
            "_&&_" => NodeKind::And(terms),
            _ => NodeKind::Or(terms),
        };
        node(at, Type::Bool, kind)
    }
}

fn node(at: u32, ty: Type, kind: NodeKind) -> Node {
    Node { at, ty, kind }
}

fn constant(value: &Const) -> Type {
    match value {
        Const::Null => Type::Null,
        Const::Bool(_) => Type::Bool,
        Const::Int(_) => Type::Int,
        Const::Uint(_) => Type::Uint,
        Const::Double(_) => Type::Double,
        Const::String(_) => Type::String,
        Const::Bytes(_) => Type::Bytes,
    }
}

// Calls that need not evaluate all their arguments are kinds of nodes of their own.
fn resolved_call(
    function: &'static Function,
    mut args: Vec<Node>,
    overloads: Vec<&'static str>,
) -> NodeKind {
    match function.name {
        "_?_:_" => match <[Node; 3]>::try_from(args) {
            Ok(parts) => return NodeKind::Conditional(Box::new(parts)),
            Err(given) => args = given,
        },
        "@not_strictly_false" if args.len() == 1 => {
            return NodeKind::NotStrictlyFalse(Box::new(args.remove(0)));
        }
        _ => {}
    }
    let pattern = match (function.name, args.get(1).map(|arg| &arg.kind)) {
        ("matches" | "find" | "findAll", Some(NodeKind::Const(Const::String(pattern)))) => {
            crate::pattern::compile(pattern).ok()
        }
        _ => None,
    };
    NodeKind::Call(Box::new(Call {
        function,
        args,
        overloads: overloads.into(),
        pattern,
    }))
}
