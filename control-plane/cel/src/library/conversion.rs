//! From one type to another.

use super::{Opaque, Table, texts};
use crate::error::{Error, Result};
use crate::time;
use crate::value::{Text, Value};

pub(super) const TABLE: Table = &[
    ("bool", to_bool),
    ("int", to_int),
    ("uint", to_uint),
    ("double", to_double),
    ("string", to_string),
    ("bytes", to_bytes),
    ("duration", to_duration),
    ("timestamp", to_timestamp),
    ("type", type_of),
    ("dyn", same),
];

type Args<'s, 'a> = &'s mut [Value<'a>];

fn range() -> Error {
    Error::new("integer overflow")
}

fn unparsable(text: &str, what: &str) -> Error {
    Error::new(format!(
        "type conversion error from 'string' to '{what}': {text:?}"
    ))
}

fn same<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(args[0].clone())
}

fn type_of<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Type(Text::from(args[0].type_name().to_owned())))
}

fn to_bool<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" | "T" => Ok(Value::Bool(true)),
            "0" | "f" | "false" | "FALSE" | "False" | "F" => Ok(Value::Bool(false)),
            text => Err(unparsable(text, "bool")),
        },
        _ => Err(Error::no_overload()),
    }
}

fn to_int<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Int(match &args[0] {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| range())?,
        Value::Double(value) => {
            match *value > -9_223_372_036_854_775_808.0 && *value < 9_223_372_036_854_775_808.0 {
                true => *value as i64,
                false => return Err(range()),
            }
        }
        Value::String(text) => text.parse().map_err(|_| unparsable(text, "int"))?,
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(time) => time.as_second(),
        _ => return Err(Error::no_overload()),
    }))
}

fn to_uint<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let range = || Error::new("unsigned integer overflow");
    Ok(Value::Uint(match &args[0] {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| range())?,
        Value::Double(value) if *value >= 0.0 && *value < 18_446_744_073_709_551_616.0 => {
            *value as u64
        }
        Value::Double(_) => return Err(range()),
        Value::String(text) => text.parse().map_err(|_| unparsable(text, "uint"))?,
        _ => return Err(Error::no_overload()),
    }))
}

fn to_double<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Double(match &args[0] {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => text.parse().map_err(|_| unparsable(text, "double"))?,
        _ => return Err(Error::no_overload()),
    }))
}

fn to_string<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(match &args[0] {
        Value::String(text) => Value::String(text.clone()),
        Value::Bool(value) => Value::string(value.to_string()),
        Value::Int(value) => Value::string(value.to_string()),
        Value::Uint(value) => Value::string(value.to_string()),
        Value::Double(value) => Value::string(texts::show_double(*value)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::string(text),
            Err(_) => {
                return Err(Error::new(
                    "invalid UTF-8 in bytes, cannot convert to string",
                ));
            }
        },
        Value::Duration(nanos) => Value::string(time::show_duration(*nanos)),
        Value::Timestamp(at) => Value::string(time::show(*at)),
        Value::Opaque(value) => match &**value {
            Opaque::Ip(ip) => Value::string(ip.to_string()),
            Opaque::Cidr(cidr) => Value::string(cidr.to_string()),
            _ => return Err(Error::no_overload()),
        },
        _ => return Err(Error::no_overload()),
    })
}

fn to_bytes<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(Error::no_overload()),
    }
}

fn to_duration<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Duration(match &args[0] {
        Value::Duration(nanos) | Value::Int(nanos) => *nanos,
        Value::String(text) => time::duration(text)
            .ok_or_else(|| Error::new(format!("time: invalid duration {}", texts::quoted(text))))?,
        _ => return Err(Error::no_overload()),
    }))
}

fn to_timestamp<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Timestamp(match &args[0] {
        Value::Timestamp(time) => *time,
        Value::Int(seconds) => time::from_seconds(*seconds)?,
        Value::String(text) => {
            time::timestamp(text).ok_or_else(|| unparsable(text, "timestamp"))?
        }
        _ => return Err(Error::no_overload()),
    }))
}
