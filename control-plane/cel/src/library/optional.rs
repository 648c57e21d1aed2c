//! Values that may be missing.

use super::Table;
use crate::error::{Error, Result};
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("optional.of", of),
    ("optional.ofNonZeroValue", of_non_zero),
    ("optional.none", none),
    ("value", value),
    ("hasValue", has_value),
    ("or", or),
    ("orValue", or_value),
];

type Args<'s, 'a> = &'s mut [Value<'a>];

fn of<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::some(args[0].clone()))
}

fn of_non_zero<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let zero = match &args[0] {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) | Value::Duration(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.len() == 0,
        Value::Map(map) => map.len() == 0,
        Value::Optional(inner) => inner.is_none(),
        _ => false,
    };
    match zero {
        true => Ok(Value::Optional(None)),
        false => of(args),
    }
}

fn none<'a>(_: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Optional(None))
}

fn value<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => Err(Error::new("optional.none() dereference")),
        _ => Err(Error::no_overload()),
    }
}

fn has_value<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(Error::no_overload()),
    }
}

fn or<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(None) => Ok(args[1].clone()),
        Value::Optional(Some(_)) => Ok(args[0].clone()),
        _ => Err(Error::no_overload()),
    }
}

fn or_value<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(None) => Ok(args[1].clone()),
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        _ => Err(Error::no_overload()),
    }
}
