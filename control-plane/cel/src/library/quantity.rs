//! Amounts, and comparisons that amounts share with versions.

use kube_kit::quantity::{Format, Quantity};

use super::{Opaque, Table, opaque, semver, text};
use crate::error::{Error, Result};
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("quantity", parse),
    ("isQuantity", |args| {
        Ok(Value::Bool(text(args, 0)?.parse::<Quantity>().is_ok()))
    }),
    ("sign", |args| {
        Ok(Value::Int(amount(args, 0)?.signum().into()))
    }),
    ("isInteger", |args| {
        Ok(Value::Bool(whole(amount(args, 0)?).is_some()))
    }),
    ("asInteger", as_integer),
    ("asApproximateFloat", |args| {
        Ok(Value::Double(
            amount(args, 0)?.nanos() as f64 / NANOS as f64,
        ))
    }),
    ("add", |args| combined(args, false)),
    ("sub", |args| combined(args, true)),
    ("isLessThan", |args| Ok(Value::Bool(order(args)?.is_lt()))),
    ("isGreaterThan", |args| {
        Ok(Value::Bool(order(args)?.is_gt()))
    }),
    ("compareTo", |args| Ok(Value::Int(order(args)? as i64))),
];

const NANOS: i128 = 1_000_000_000;

fn amount<'v>(args: &'v [Value<'_>], index: usize) -> Result<&'v Quantity> {
    match opaque(args, index)? {
        Opaque::Quantity(quantity) => Ok(quantity),
        _ => Err(Error::no_overload()),
    }
}

fn parse<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let quantity = text(args, 0)?.parse();
    let quantity =
        quantity.map_err(|why: kube_kit::quantity::QuantityError| Error::new(why.to_string()))?;
    Ok(Value::opaque(Opaque::Quantity(quantity)))
}

fn whole(quantity: &Quantity) -> Option<i64> {
    let nanos = quantity.nanos();
    (nanos % NANOS == 0)
        .then(|| i64::try_from(nanos / NANOS).ok())
        .flatten()
}

fn as_integer<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let value = whole(amount(args, 0)?);
    value
        .map(Value::Int)
        .ok_or_else(|| Error::new("cannot convert value to integer"))
}

fn combined<'a>(args: &mut [Value<'a>], minus: bool) -> Result<Value<'a>> {
    let mut total = amount(args, 0)?.clone();
    let other = match &args[1] {
        Value::Int(value) => Quantity::from_integer(*value, Format::DecimalSi),
        _ => amount(args, 1)?.clone(),
    };
    match minus {
        true => total -= &other,
        false => total += &other,
    }
    Ok(Value::opaque(Opaque::Quantity(total)))
}

fn order(args: &[Value<'_>]) -> Result<std::cmp::Ordering> {
    match (opaque(args, 0)?, opaque(args, 1)?) {
        (Opaque::Quantity(a), Opaque::Quantity(b)) => Ok(a.cmp(b)),
        (Opaque::Semver(a), Opaque::Semver(b)) => Ok(semver::Semver::order(a, b)),
        _ => Err(Error::no_overload()),
    }
}
