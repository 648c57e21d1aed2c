//! Operators.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use super::{Table, check_key};
use crate::error::{Error, Result};
use crate::shape::ListKind;
use crate::time;
use crate::value::{List, Map, Value, shown};

pub(super) const TABLE: Table = &[
    ("_+_", add),
    ("_-_", subtract),
    ("_*_", multiply),
    ("_/_", divide),
    ("_%_", modulo),
    ("-_", negate),
    ("!_", not),
    ("_==_", equals),
    ("_!=_", differs),
    ("_<_", less),
    ("_<=_", less_equal),
    ("_>_", greater),
    ("_>=_", greater_equal),
    ("@in", is_in),
    ("_[_]", index),
    ("_[?_]", optional_index),
    ("size", size),
    ("cel.@mapInsert", insert),
];

type Args<'s, 'a> = &'s mut [Value<'a>];

fn overflow<T>(value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::new("integer overflow"))
}

fn unsigned_overflow<T>(value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::new("unsigned integer overflow"))
}

fn add<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let [left, right] = args else {
        return Err(Error::no_overload());
    };
    Ok(match (&mut *left, &*right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(overflow(a.checked_add(*b))?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(unsigned_overflow(a.checked_add(*b))?),
        (Value::Double(a), Value::Double(b)) => Value::Double(*a + b),
        (Value::String(a), Value::String(b)) => {
            let mut joined = String::with_capacity(a.len() + b.len());
            joined.push_str(a);
            joined.push_str(b);
            Value::string(joined)
        }
        (Value::Bytes(a), Value::Bytes(b)) => Value::Bytes([&a[..], &b[..]].concat().into()),
        (Value::Duration(a), Value::Duration(b)) => Value::Duration(overflow(a.checked_add(*b))?),
        (Value::Timestamp(a), Value::Duration(b)) => Value::Timestamp(time::later(*a, *b)?),
        (Value::Duration(a), Value::Timestamp(b)) => Value::Timestamp(time::later(*b, *a)?),
        (Value::List(a), Value::List(b)) => Value::List(List::Own(joined(a, b))),
        _ => return Err(Error::no_overload()),
    })
}

fn joined<'a>(left: &mut List<'a>, right: &List<'a>) -> Rc<Vec<Value<'a>>> {
    match left.how().clone() {
        ListKind::Atomic => {}
        ListKind::Set => return Rc::new(union(left, right)),
        ListKind::Map(keys) => return Rc::new(merged(left, right, &keys)),
    }
    let mut items = match left {
        List::Own(items) => std::mem::take(items),
        json => Rc::new(json.iter().collect()),
    };
    // Grows in place where nobody else holds it: loops gather their results this way.
    Rc::make_mut(&mut items).extend(right.iter());
    items
}

// A set keeps its order and gets what it does not have.
fn union<'a>(left: &List<'a>, right: &List<'a>) -> Vec<Value<'a>> {
    let mut items: Vec<Value<'a>> = left.iter().collect();
    for item in right.iter() {
        if !items.iter().any(|known| known.equals(&item)) {
            items.push(item);
        }
    }
    items
}

// Items with the same keys are replaced where they are; others come behind.
fn merged<'a>(left: &List<'a>, right: &List<'a>, keys: &[Arc<str>]) -> Vec<Value<'a>> {
    let same = |a: &Value<'a>, b: &Value<'a>| {
        let (Value::Map(a), Value::Map(b)) = (a, b) else {
            return false;
        };
        keys.iter().all(|key| match (a.field(key), b.field(key)) {
            (Some(a), Some(b)) => a.equals(&b),
            (a, b) => a.is_none() && b.is_none(),
        })
    };
    let mut items: Vec<Value<'a>> = left.iter().collect();
    for item in right.iter() {
        match items.iter_mut().find(|known| same(known, &item)) {
            Some(known) => *known = item,
            None => items.push(item),
        }
    }
    items
}

fn subtract<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(match &*args {
        [Value::Int(a), Value::Int(b)] => Value::Int(overflow(a.checked_sub(*b))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(unsigned_overflow(a.checked_sub(*b))?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => Value::Duration(overflow(a.checked_sub(*b))?),
        [Value::Timestamp(a), Value::Timestamp(b)] => Value::Duration(time::between(*a, *b)?),
        [Value::Timestamp(a), Value::Duration(b)] => {
            Value::Timestamp(time::later(*a, overflow(b.checked_neg())?)?)
        }
        _ => return Err(Error::no_overload()),
    })
}

fn multiply<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(match &*args {
        [Value::Int(a), Value::Int(b)] => Value::Int(overflow(a.checked_mul(*b))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(unsigned_overflow(a.checked_mul(*b))?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return Err(Error::no_overload()),
    })
}

fn divide<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    const ZERO: &str = "division by zero";
    Ok(match &*args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Error::new(ZERO));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(overflow(a.checked_div(*b))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return Err(Error::no_overload()),
    })
}

fn modulo<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    const ZERO: &str = "modulus by zero";
    Ok(match &*args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(Error::new(ZERO));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(overflow(a.checked_rem(*b))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => return Err(Error::no_overload()),
    })
}

fn negate<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(match &*args {
        [Value::Int(a)] => Value::Int(overflow(a.checked_neg())?),
        [Value::Double(a)] => Value::Double(-a),
        _ => return Err(Error::no_overload()),
    })
}

fn not<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &*args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(Error::no_overload()),
    }
}

fn equals<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Bool(args[0].equals(&args[1])))
}

fn differs<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Bool(!args[0].equals(&args[1])))
}

fn ordered<'a>(args: Args<'_, 'a>, wanted: fn(Ordering) -> bool) -> Result<Value<'a>> {
    let order = args[0].order(&args[1])?;
    Ok(Value::Bool(order.is_some_and(wanted)))
}

fn less<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    ordered(args, Ordering::is_lt)
}

fn less_equal<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    ordered(args, Ordering::is_le)
}

fn greater<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    ordered(args, Ordering::is_gt)
}

fn greater_equal<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    ordered(args, Ordering::is_ge)
}

fn is_in<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Bool(match &*args {
        [value, Value::List(list)] => list.contains(value),
        [key, Value::Map(map)] => map.get(&whole(key)).is_some(),
        _ => return Err(Error::no_overload()),
    }))
}

// Numbers that are whole index like whole numbers.
fn whole<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Double(double) if double.fract() == 0.0 => Value::Int(*double as i64),
        other => other.clone(),
    }
}

fn found<'a>(from: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>> {
    let key = whole(key);
    match (from, &key) {
        (Value::List(list), Value::Int(index)) => Ok(usize::try_from(*index)
            .ok()
            .and_then(|index| list.get(index))),
        (Value::List(list), Value::Uint(index)) => Ok(usize::try_from(*index)
            .ok()
            .and_then(|index| list.get(index))),
        (Value::Map(map), key) => Ok(map.get(key)),
        _ => Err(Error::no_overload()),
    }
}

fn index<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (from, key) = (&args[0], &args[1]);
    if let Value::Optional(inner) = from {
        return Ok(Value::Optional(match inner {
            Some(inner) => found(inner, key)?.map(Rc::new),
            None => None,
        }));
    }
    found(from, key)?.ok_or_else(|| match from {
        Value::List(_) => Error::new(format!("index out of bounds: {}", shown(key))),
        _ => Error::no_key(&shown(key)),
    })
}

fn optional_index<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let found = match &args[0] {
        Value::Optional(None) => None,
        Value::Optional(Some(inner)) => found(inner, &args[1])?,
        from => found(from, &args[1])?,
    };
    Ok(Value::Optional(found.map(Rc::new)))
}

fn size<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(Error::no_overload()),
    }
}

// Adds entries to the map that a loop gathers; a key must be new.
fn insert<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let new: Vec<(Value<'a>, Value<'a>)> = match &*args {
        [_, Value::Map(map)] => map.iter().collect(),
        [_, key, value] => vec![(key.clone(), value.clone())],
        _ => return Err(Error::no_overload()),
    };
    let mut entries = match std::mem::replace(&mut args[0], Value::Null) {
        Value::Map(Map::Own(entries)) => entries,
        Value::Map(map) => Rc::new(map.iter().collect()),
        _ => return Err(Error::no_overload()),
    };
    for (key, value) in new {
        check_key(&key)?;
        if entries.iter().any(|(known, _)| known.equals(&key)) {
            return Err(Error::new(format!(
                "insert failed: key {} already exists",
                shown(&key)
            )));
        }
        Rc::make_mut(&mut entries).push((key, value));
    }
    Ok(Value::Map(Map::Own(entries)))
}
