//! Lists: Kubernetes' and cel-go's extensions, and sets.

use std::cmp::Ordering;

use super::{Table, int, strings};
use crate::error::{Error, Result};
use crate::value::{List, Value};

pub(super) const TABLE: Table = &[
    ("isSorted", is_sorted),
    ("sum", sum),
    ("min", min),
    ("max", max),
    ("indexOf", index_of),
    ("lastIndexOf", last_index_of),
    ("slice", slice),
    ("flatten", flatten),
    ("sort", sort),
    ("@sortByAssociatedKeys", sort_by_keys),
    ("distinct", distinct),
    ("reverse", reverse),
    ("lists.range", range),
    ("sets.contains", contains),
    ("sets.equivalent", equivalent),
    ("sets.intersects", intersects),
];

type Args<'s, 'a> = &'s mut [Value<'a>];

/// `lists.range` makes no more than this: its cost is only known when it is done.
const MAX_RANGE: i64 = 1_000_000;

fn list<'v, 'a>(args: &'v [Value<'a>], index: usize) -> Result<&'v List<'a>> {
    match args.get(index) {
        Some(Value::List(list)) => Ok(list),
        _ => Err(Error::no_overload()),
    }
}

fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering> {
    Ok(a.order(b)?.unwrap_or(Ordering::Equal))
}

fn is_sorted<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let mut previous: Option<Value<'a>> = None;
    for item in list(args, 0)?.iter() {
        if let Some(previous) = &previous
            && order(previous, &item)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let mut items = list(args, 0)?.iter();
    // An empty list has no type that could be asked any more; whole numbers are what it mostly is.
    let Some(mut total) = items.next() else {
        return Ok(Value::Int(0));
    };
    let overflow = || Error::new("integer overflow");
    for item in items {
        total = match (total, item) {
            (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(b).ok_or_else(overflow)?),
            (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_add(b).ok_or_else(overflow)?),
            (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
            (Value::Duration(a), Value::Duration(b)) => {
                Value::Duration(a.checked_add(b).ok_or_else(overflow)?)
            }
            _ => return Err(Error::no_overload()),
        };
    }
    Ok(total)
}

fn extreme<'a>(args: Args<'_, 'a>, name: &str, better: Ordering) -> Result<Value<'a>> {
    let mut items = list(args, 0)?.iter();
    let Some(mut best) = items.next() else {
        return Err(Error::new(format!("{name} called on empty list")));
    };
    for item in items {
        if order(&item, &best)? == better {
            best = item;
        }
    }
    Ok(best)
}

fn min<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    extreme(args, "min", Ordering::Less)
}

fn max<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    extreme(args, "max", Ordering::Greater)
}

fn place<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(found.map_or(-1, |at| at as i64))
}

fn index_of<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::List(list) => Ok(place(list.iter().position(|item| item.equals(&args[1])))),
        _ => strings::index_of(args),
    }
}

fn last_index_of<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::List(list) => {
            let items: Vec<Value<'a>> = list.iter().collect();
            Ok(place(items.iter().rposition(|item| item.equals(&args[1]))))
        }
        _ => strings::last_index_of(args),
    }
}

fn slice<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (list, start, end) = (list(args, 0)?, int(args, 1)?, int(args, 2)?);
    let length = list.len() as i64;
    if start < 0 || end < 0 {
        let message = format!("cannot slice({start}, {end}), negative indexes not supported");
        return Err(Error::new(message));
    }
    if start > end {
        let message = format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        );
        return Err(Error::new(message));
    }
    if end > length {
        let message = format!("cannot slice({start}, {end}), list is length {length}");
        return Err(Error::new(message));
    }
    let items = list.iter().skip(start as usize);
    Ok(Value::list(items.take((end - start) as usize).collect()))
}

fn flatten<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let depth = match args.len() {
        1 => 1,
        _ => int(args, 1)?,
    };
    if depth < 0 {
        return Err(Error::new("level must be non-negative"));
    }
    let mut out = Vec::new();
    flat(list(args, 0)?, depth, &mut out);
    Ok(Value::list(out))
}

fn flat<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) {
    for item in list.iter() {
        match item {
            Value::List(inner) if depth > 0 => flat(&inner, depth - 1, out),
            other => out.push(other),
        }
    }
}

fn comparable(items: &[Value<'_>]) -> Result<()> {
    let Some(first) = items.first() else {
        return Ok(());
    };
    for item in items {
        if first.order(item).is_err() || first.type_name() != item.type_name() {
            return Err(Error::new("list elements must have the same type"));
        }
    }
    Ok(())
}

fn sort<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let mut items: Vec<Value<'a>> = list(args, 0)?.iter().collect();
    comparable(&items)?;
    items.sort_by(|a, b| order(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::list(items))
}

fn sort_by_keys<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let keys: Vec<Value<'a>> = list(args, 1)?.iter().collect();
    comparable(&keys)?;
    let mut pairs: Vec<_> = keys.into_iter().zip(list(args, 0)?.iter()).collect();
    pairs.sort_by(|a, b| order(&a.0, &b.0).unwrap_or(Ordering::Equal));
    Ok(Value::list(
        pairs.into_iter().map(|(_, item)| item).collect(),
    ))
}

fn distinct<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let mut out: Vec<Value<'a>> = Vec::new();
    for item in list(args, 0)?.iter() {
        if !out.iter().any(|known| known.equals(&item)) {
            out.push(item);
        }
    }
    Ok(Value::list(out))
}

fn reverse<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let mut items: Vec<Value<'a>> = list(args, 0)?.iter().collect();
    items.reverse();
    Ok(Value::list(items))
}

fn range<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let end = int(args, 0)?;
    if end > MAX_RANGE {
        return Err(Error::too_costly());
    }
    Ok(Value::list((0..end).map(Value::Int).collect()))
}

fn contains<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (all, wanted) = (list(args, 0)?, list(args, 1)?);
    Ok(Value::Bool(wanted.iter().all(|item| all.contains(&item))))
}

fn equivalent<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (a, b) = (list(args, 0)?, list(args, 1)?);
    let within = |a: &List<'a>, b: &List<'a>| a.iter().all(|item| b.contains(&item));
    Ok(Value::Bool(within(a, b) && within(b, a)))
}

fn intersects<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (a, b) = (list(args, 0)?, list(args, 1)?);
    Ok(Value::Bool(a.iter().any(|item| b.contains(&item))))
}
