//! Lists, maps, objects that an expression makes, and texts whose form can be judged before anything runs.

use std::sync::Arc;

use super::{Checker, node};
use crate::ast::{Const, Entry, Field, Item};
use crate::env::Made;
use crate::functions::Function;
use crate::node::{EntryNode, FieldNode, ItemNode, Node, NodeKind};
use crate::shape::Shape;
use crate::types::{Type, most_general};

impl Checker<'_> {
    pub(super) fn list(&mut self, at: u32, items: &[Item]) -> Node {
        let mut of: Option<Type> = None;
        let mut checked = Vec::with_capacity(items.len());
        for item in items {
            let value = self.node(&item.value);
            let ty = self.unwrapped(item.optional, &value);
            of = Some(self.joined(value.at, of, ty));
            checked.push(ItemNode {
                optional: item.optional,
                value,
            });
        }
        let of = of.unwrap_or_else(|| self.bound.fresh());
        node(at, Type::list(of), NodeKind::List(checked))
    }

    pub(super) fn map(&mut self, at: u32, entries: &[Entry]) -> Node {
        let (mut keys, mut values): (Option<Type>, Option<Type>) = (None, None);
        let mut checked = Vec::with_capacity(entries.len());
        for entry in entries {
            let (key, value) = (self.node(&entry.key), self.node(&entry.value));
            let ty = self.unwrapped(entry.optional, &value);
            keys = Some(self.joined(key.at, keys, key.ty.clone()));
            values = Some(self.joined(value.at, values, ty));
            checked.push(EntryNode {
                optional: entry.optional,
                key,
                value,
            });
        }
        let key = keys.unwrap_or_else(|| self.bound.fresh());
        let value = values.unwrap_or_else(|| self.bound.fresh());
        node(at, Type::map(key, value), NodeKind::Map(checked))
    }

    // The type that an entry contributes: what is inside an optional one.
    fn unwrapped(&mut self, optional: bool, value: &Node) -> Type {
        if !optional {
            return value.ty.clone();
        }
        match self.bound.resolved(&value.ty, false) {
            ty if ty.is_dyn() => Type::Dyn,
            ty => match ty.optional_of() {
                Some(inner) => inner.clone(),
                None => {
                    let wanted = Type::optional(ty.clone());
                    self.mismatch(value.at, &wanted, &ty);
                    Type::Error
                }
            },
        }
    }

    // Upstream asks for literals of one type.
    fn joined(&mut self, at: u32, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if self.bound.assignable(&before, &ty) {
            let (a, b) = (
                self.bound.resolved(&before, false),
                self.bound.resolved(&ty, false),
            );
            return most_general(&a, &b);
        }
        if self.mixed == 0 {
            self.mismatch(at, &before, &ty);
        }
        Type::Dyn
    }

    pub(super) fn made(&mut self, at: u32, name: &str, fields: &[Field]) -> Node {
        let Some(made) = self.env.made(name) else {
            return self.undeclared(at, name);
        };
        let mut checked = Vec::with_capacity(fields.len());
        for field in fields {
            let value = self.node(&field.value);
            let ty = self.unwrapped(field.optional, &value);
            self.check_field(field, &made, &ty);
            checked.push(FieldNode {
                optional: field.optional,
                name: field.name.clone(),
                value,
            });
        }
        let ty = match made {
            Made::Declared(shape) => Type::Object(shape),
            Made::Open => Type::Object(open(name)),
        };
        node(at, ty, NodeKind::Struct(name.to_owned(), checked))
    }

    fn check_field(&mut self, field: &Field, made: &Made, ty: &Type) {
        let Made::Declared(shape) = made else { return };
        let Some(declared) = shape.field(&field.name) else {
            self.report(field.at, format!("undefined field '{}'", field.name));
            return;
        };
        let wanted = Type::of(&declared.shape);
        if !self.bound.assignable(ty, &wanted) {
            let ty = self.bound.resolved(ty, true);
            let message = format!(
                "expected type of field '{}' is '{wanted}' but provided type is '{ty}'",
                field.name
            );
            self.report(field.at, message);
        }
    }

    /// Durations, times and patterns that stand in the text must be ones.
    pub(super) fn validate_literals(&mut self, function: &Function, args: &[Node]) {
        let index = match function.name {
            "duration" | "timestamp" => 0,
            "matches" => 1,
            _ => return,
        };
        let Some(arg) = args.get(index) else { return };
        let NodeKind::Const(Const::String(text)) = &arg.kind else {
            return;
        };
        let good = match function.name {
            "duration" => crate::time::duration(text).is_some(),
            "timestamp" => crate::time::timestamp(text).is_some(),
            _ => crate::pattern::compile(text).is_ok(),
        };
        if !good {
            self.report(arg.at, format!("invalid {} argument", function.name));
        }
    }
}

// An object of any fields: what it may hold is found out when it is merged.
fn open(name: &str) -> Arc<Shape> {
    Shape::object(name, &[])
}
