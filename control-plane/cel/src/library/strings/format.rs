//! `"%s is %d".format([a, b])`: cel-go's verbs.

use super::{text, texts};
use crate::error::{Error, Result};
use crate::time;
use crate::value::Value;

/// A precision beyond this is refused: it would make much out of little.
const MAX_PRECISION: usize = 1000;

pub(super) fn run<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let pattern = text(args, 0)?;
    let Some(Value::List(values)) = args.get(1) else {
        return Err(Error::no_overload());
    };
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut next = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut precision = None;
        if chars.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            let parsed = digits.parse().ok().filter(|p| *p <= MAX_PRECISION);
            precision = Some(parsed.ok_or_else(|| Error::new("invalid precision in format"))?);
        }
        let Some(verb) = chars.next() else {
            return Err(Error::new("unexpected end of format string"));
        };
        let Some(value) = values.get(next) else {
            return Err(Error::new(format!("index {next} out of range")));
        };
        next += 1;
        out.push_str(&clause(verb, precision, &value)?);
    }
    Ok(Value::string(out))
}

fn clause(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String> {
    let wrong = || {
        Error::new(format!(
            "error during formatting: %{verb} cannot be used on {}",
            value.type_name()
        ))
    };
    match verb {
        's' => show(value),
        'd' => match value {
            Value::Int(value) => Ok(value.to_string()),
            Value::Uint(value) => Ok(value.to_string()),
            Value::Double(value) if !value.is_finite() => Ok(special(*value).to_owned()),
            _ => Err(wrong()),
        },
        'f' => {
            let double = number(value).ok_or_else(wrong)?;
            Ok(match double.is_finite() {
                true => format!("{double:.*}", precision.unwrap_or(6)),
                false => special(double).to_owned(),
            })
        }
        'e' => {
            let double = number(value).ok_or_else(wrong)?;
            if !double.is_finite() {
                return Ok(special(double).to_owned());
            }
            let text = format!("{double:.*e}", precision.unwrap_or(6));
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            Ok(format!("{digits}e{sign}{:02}", exponent.abs()))
        }
        'b' => match value {
            Value::Int(value) => Ok(signed(*value, |n| format!("{n:b}"))),
            Value::Uint(value) => Ok(format!("{value:b}")),
            Value::Bool(value) => Ok(u8::from(*value).to_string()),
            _ => Err(wrong()),
        },
        'o' => match value {
            Value::Int(value) => Ok(signed(*value, |n| format!("{n:o}"))),
            Value::Uint(value) => Ok(format!("{value:o}")),
            _ => Err(wrong()),
        },
        'x' | 'X' => {
            let text = match value {
                Value::Int(value) => signed(*value, |n| format!("{n:x}")),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                _ => return Err(wrong()),
            };
            Ok(match verb {
                'X' => text.to_uppercase(),
                _ => text,
            })
        }
        verb => Err(Error::new(format!(
            "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
        ))),
    }
}

fn signed(value: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", write(value.unsigned_abs()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn special(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::Int(value) => Some(*value as f64),
        Value::Uint(value) => Some(*value as f64),
        _ => None,
    }
}

/// Any value as `%s` shows it.
fn show(value: &Value<'_>) -> Result<String> {
    Ok(match value {
        Value::String(text) => (**text).to_owned(),
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) if !value.is_finite() => special(*value).to_owned(),
        Value::Double(value) => texts::show_double(*value),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => time::show_duration(*nanos),
        Value::Timestamp(at) => time::show(*at),
        Value::Type(name) => (**name).to_owned(),
        Value::List(list) => {
            let items: Result<Vec<String>> = list.iter().map(|item| show(&item)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.iter() {
                entries.push(format!("{}: {}", show(&key)?, show(&value)?));
            }
            entries.sort_unstable();
            format!("{{{}}}", entries.join(", "))
        }
        other => {
            return Err(Error::new(format!(
                "error during formatting: string clause can only be used on strings, bools, \
                 bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given {}",
                other.type_name()
            )));
        }
    })
}
