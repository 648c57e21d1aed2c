//! Parts of times and durations.

use jiff::Zoned;

use super::{Table, text};
use crate::error::{Error, Result};
use crate::time;
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("getFullYear", |args| part(args, |t| i64::from(t.year()))),
    ("getMonth", |args| part(args, |t| i64::from(t.month()) - 1)),
    ("getDayOfYear", |args| {
        part(args, |t| i64::from(t.day_of_year()) - 1)
    }),
    ("getDayOfMonth", |args| {
        part(args, |t| i64::from(t.day()) - 1)
    }),
    ("getDate", |args| part(args, |t| i64::from(t.day()))),
    ("getDayOfWeek", |args| {
        part(args, |t| i64::from(t.weekday().to_sunday_zero_offset()))
    }),
    ("getHours", |args| {
        either(args, 3_600_000_000_000, |t| i64::from(t.hour()))
    }),
    ("getMinutes", |args| {
        either(args, 60_000_000_000, |t| i64::from(t.minute()))
    }),
    ("getSeconds", |args| {
        either(args, 1_000_000_000, |t| i64::from(t.second()))
    }),
    ("getMilliseconds", |args| match &args[0] {
        // Of a duration only what is beyond whole seconds counts.
        Value::Duration(nanos) => Ok(Value::Int(nanos % 1_000_000_000 / 1_000_000)),
        _ => part(args, |t| i64::from(t.millisecond())),
    }),
];

fn part<'a>(args: &[Value<'a>], of: fn(&Zoned) -> i64) -> Result<Value<'a>> {
    let Value::Timestamp(at) = &args[0] else {
        return Err(Error::no_overload());
    };
    let zone = match args.len() {
        1 => None,
        _ => Some(text(args, 1)?),
    };
    Ok(Value::Int(of(&time::zoned(*at, zone)?)))
}

fn either<'a>(args: &[Value<'a>], unit: i64, of: fn(&Zoned) -> i64) -> Result<Value<'a>> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => part(args, of),
    }
}
