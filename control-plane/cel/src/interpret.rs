//! The interpreter: a walk over the checked expression, with a meter running.

use std::rc::Rc;

use crate::ast::Const;
use crate::cost;
use crate::env::Bindings;
use crate::error::{Error, Result};
use crate::library;
use crate::meter::Meter;
use crate::node::{Call, EntryNode, FieldNode, FoldNode, ItemNode, Node, NodeKind};
use crate::value::{Map, Struct, Text, Value};

/// What an evaluation works with.
pub(crate) struct Run<'a, 'r> {
    pub(crate) bindings: &'r Bindings<'a>,
    pub(crate) meter: &'r mut Meter,
    /// Variables of loops. An accumulator may be an error that a later element makes irrelevant.
    pub(crate) locals: Vec<Result<Value<'a>>>,
}

impl<'a> Run<'a, '_> {
    pub(crate) fn eval(&mut self, node: &'a Node) -> Result<Value<'a>> {
        match &node.kind {
            NodeKind::Const(value) => Ok(constant(value)),
            NodeKind::Variable(slot, name) => {
                self.meter.charge(cost::SELECT)?;
                let found = self.bindings.get(*slot).cloned();
                found.ok_or_else(|| Error::new(format!("no such attribute(s): {name}")))
            }
            NodeKind::Local(index) => {
                self.meter.charge(cost::SELECT)?;
                self.locals[*index].clone()
            }
            NodeKind::Take(index) => {
                self.meter.charge(cost::SELECT)?;
                std::mem::replace(&mut self.locals[*index], Ok(Value::Null))
            }
            NodeKind::TypeName(name) => {
                self.meter.charge(cost::SELECT)?;
                Ok(Value::Type(Text::Borrowed(name)))
            }
            NodeKind::Select {
                operand,
                field,
                test,
                optional,
            } => self.select(operand, field, *test, *optional),
            NodeKind::And(terms) => self.logic(terms, false),
            NodeKind::Or(terms) => self.logic(terms, true),
            NodeKind::Conditional(parts) => match self.eval(&parts[0])? {
                Value::Bool(true) => self.eval(&parts[1]),
                Value::Bool(false) => self.eval(&parts[2]),
                _ => Err(Error::no_overload()),
            },
            NodeKind::NotStrictlyFalse(inner) => self.not_strictly_false(inner),
            NodeKind::Call(call) => self.call(call),
            NodeKind::List(items) => self.list(node, items),
            NodeKind::Map(entries) => self.map(node, entries),
            NodeKind::Struct(name, fields) => self.made(name, fields),
            NodeKind::Fold(fold) => self.fold(fold),
        }
    }

    // Either side may decide, whichever comes first and whatever becomes of the other.
    fn logic(&mut self, terms: &'a [Node; 2], decisive: bool) -> Result<Value<'a>> {
        let left = match self.eval(&terms[0]) {
            Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
            Ok(Value::Bool(_)) => Ok(()),
            Ok(_) => Err(Error::no_overload()),
            Err(error) if error.too_costly => return Err(error),
            Err(error) => Err(error),
        };
        match self.eval(&terms[1])? {
            Value::Bool(value) if value == decisive => Ok(Value::Bool(decisive)),
            Value::Bool(value) => left.map(|()| Value::Bool(value)),
            _ => left.and(Err(Error::no_overload())),
        }
    }

    fn not_strictly_false(&mut self, inner: &'a Node) -> Result<Value<'a>> {
        let value = match self.eval(inner) {
            Err(error) if error.too_costly => return Err(error),
            Ok(Value::Bool(value)) => value,
            Ok(_) | Err(_) => true,
        };
        self.meter.charge(1)?;
        Ok(Value::Bool(value))
    }

    fn select(
        &mut self,
        operand: &'a Node,
        field: &'a str,
        test: bool,
        optional: bool,
    ) -> Result<Value<'a>> {
        let operand = self.eval(operand)?;
        if !test {
            self.meter.charge(cost::SELECT)?;
        }
        match (operand, test) {
            (Value::Optional(inner), true) => Ok(Value::Bool(match inner {
                Some(inner) => self.field(&inner, field)?.is_some(),
                None => false,
            })),
            (Value::Optional(inner), false) => Ok(Value::Optional(match inner {
                Some(inner) => self.field(&inner, field)?.map(Rc::new),
                None => None,
            })),
            (operand, true) => Ok(Value::Bool(self.field(&operand, field)?.is_some())),
            (operand, false) if optional => {
                Ok(Value::Optional(self.field(&operand, field)?.map(Rc::new)))
            }
            (operand, false) => {
                let found = self.field(&operand, field)?;
                found.ok_or_else(|| Error::no_key(field))
            }
        }
    }

    fn field(&mut self, operand: &Value<'a>, field: &str) -> Result<Option<Value<'a>>> {
        match operand {
            Value::Map(map) => Ok(map.field(field)),
            Value::Lazy(lazy) => lazy.field(field, self.meter).transpose(),
            _ => Err(Error::no_overload()),
        }
    }

    fn call(&mut self, call: &'a Call) -> Result<Value<'a>> {
        // Most calls have one to three arguments, which need no list on the heap.
        match call.args.as_slice() {
            [a] => {
                let mut args = [self.eval(a)?];
                self.apply(call, &mut args)
            }
            [a, b] => {
                let mut args = [self.eval(a)?, self.eval(b)?];
                self.apply(call, &mut args)
            }
            [a, b, c] => {
                let mut args = [self.eval(a)?, self.eval(b)?, self.eval(c)?];
                self.apply(call, &mut args)
            }
            all => {
                let args: Result<Vec<_>> = all.iter().map(|arg| self.eval(arg)).collect();
                self.apply(call, &mut args?)
            }
        }
    }

    fn apply(&mut self, call: &Call, args: &mut [Value<'a>]) -> Result<Value<'a>> {
        self.meter.charge(cost::actual(call.function.cost, args))?;
        if let Some(pattern) = &call.pattern {
            return library::with_pattern(call.function.name, pattern, args);
        }
        let value = (call.function.run)(args).map_err(|error| error.of(call.function.name))?;
        match cost::of_result(call.function.cost, &value) {
            0 => {}
            more => self.meter.charge(more)?,
        }
        Ok(value)
    }

    fn list(&mut self, node: &Node, items: &'a [ItemNode]) -> Result<Value<'a>> {
        if !node.is_literal() {
            self.meter.charge(cost::LIST)?;
        }
        let mut made = Vec::with_capacity(items.len());
        for item in items {
            match (self.eval(&item.value)?, item.optional) {
                (value, false) => made.push(value),
                (Value::Optional(value), true) => made.extend(value.map(|v| (*v).clone())),
                _ => return Err(Error::no_overload()),
            }
        }
        Ok(Value::list(made))
    }

    fn map(&mut self, node: &Node, entries: &'a [EntryNode]) -> Result<Value<'a>> {
        if !node.is_literal() {
            self.meter.charge(cost::MAP)?;
        }
        let mut made: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = match (self.eval(&entry.value)?, entry.optional) {
                (value, false) => value,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                _ => return Err(Error::no_overload()),
            };
            library::check_key(&key)?;
            if made.iter().any(|(known, _)| known.equals(&key)) {
                let key = crate::value::shown(&key);
                return Err(Error::new(format!("Failed with repeated key: {key}")));
            }
            made.push((key, value));
        }
        Ok(Value::map(made))
    }

    fn made(&mut self, name: &'a str, fields: &'a [FieldNode]) -> Result<Value<'a>> {
        self.meter.charge(cost::STRUCT)?;
        let mut made = Vec::with_capacity(fields.len());
        for field in fields {
            let value = match (self.eval(&field.value)?, field.optional) {
                (value, false) => value,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                _ => return Err(Error::no_overload()),
            };
            made.push((Text::Borrowed(field.name.as_str()), value));
        }
        Ok(Value::Map(Map::Struct(Rc::new(Struct {
            name: Text::Borrowed(name),
            fields: made,
        }))))
    }

    fn fold(&mut self, fold: &'a FoldNode) -> Result<Value<'a>> {
        let range = self.eval(&fold.range)?;
        let init = self.eval(&fold.init)?;
        let depth = self.locals.len();
        self.locals.push(Ok(init));
        let outcome = self.elements(fold, &range, depth);
        self.locals.truncate(depth + 1);
        let result = outcome.and_then(|()| self.eval(&fold.result));
        self.locals.truncate(depth);
        result
    }

    fn elements(&mut self, fold: &'a FoldNode, range: &Value<'a>, depth: usize) -> Result<()> {
        match range {
            Value::List(list) => {
                for index in 0..list.len() {
                    let item = list.get(index).unwrap_or(Value::Null);
                    let (first, second) = match fold.two {
                        true => (Value::Int(index as i64), Some(item)),
                        false => (item, None),
                    };
                    if !self.turn(fold, depth, first, second)? {
                        break;
                    }
                }
                Ok(())
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    let second = fold.two.then_some(value);
                    if !self.turn(fold, depth, key, second)? {
                        break;
                    }
                }
                Ok(())
            }
            _ => Err(Error::no_overload()),
        }
    }

    // One element; says whether there is to be another.
    fn turn(
        &mut self,
        fold: &'a FoldNode,
        depth: usize,
        first: Value<'a>,
        second: Option<Value<'a>>,
    ) -> Result<bool> {
        self.locals.truncate(depth + 1);
        self.locals.push(Ok(first));
        self.locals.extend(second.map(Ok));
        if !matches!(self.eval(&fold.condition)?, Value::Bool(true)) {
            return Ok(false);
        }
        let step = self.eval(&fold.step);
        if let Err(error) = &step
            && error.too_costly
        {
            return Err(error.clone());
        }
        self.locals[depth] = step;
        Ok(true)
    }
}

fn constant(value: &Const) -> Value<'_> {
    match value {
        Const::Null => Value::Null,
        Const::Bool(value) => Value::Bool(*value),
        Const::Int(value) => Value::Int(*value),
        Const::Uint(value) => Value::Uint(*value),
        Const::Double(value) => Value::Double(*value),
        Const::String(text) => Value::text(text),
        Const::Bytes(bytes) => Value::Bytes(bytes.as_slice().into()),
    }
}
