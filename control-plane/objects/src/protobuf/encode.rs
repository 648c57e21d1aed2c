//! From normal form to the wire.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_kit::duration::go;
use serde_json::{Map, Value};

use super::EncodeError;
use super::wire::{FIXED64, Writer};
use crate::instant::{Instant, Precision};
use crate::normalize::json_schema;
use crate::schema::{Field, FieldType, Scalar, Type};

type Encoded = Result<(), EncodeError>;

pub(super) fn root(writer: &mut Writer, ty: &Type, object: &Value) -> Encoded {
    let place = Place {
        owner: ty.name,
        field: "",
    };
    message(writer, ty, as_object(object, place)?)
}

/// Where a value stands, for errors only.
#[derive(Clone, Copy)]
struct Place {
    owner: &'static str,
    field: &'static str,
}

impl Place {
    fn expected<T>(self, expected: &str, found: &Value) -> Result<T, EncodeError> {
        let mut text = found.to_string();
        if let Some((end, _)) = text.char_indices().nth(40) {
            text.truncate(end);
        }
        let place = match self.field {
            "" => self.owner.to_owned(),
            field => format!("{}.{field}", self.owner),
        };
        Err(EncodeError {
            place,
            found: text,
            expected: expected.to_owned(),
        })
    }
}

fn as_object(value: &Value, place: Place) -> Result<&Map<String, Value>, EncodeError> {
    match value {
        Value::Object(map) => Ok(map),
        _ => place.expected("object", value),
    }
}

fn as_array(value: &Value, place: Place) -> Result<&Vec<Value>, EncodeError> {
    match value {
        Value::Array(items) => Ok(items),
        _ => place.expected("list", value),
    }
}

fn message(writer: &mut Writer, ty: &Type, object: &Map<String, Value>) -> Encoded {
    for field in ty.wire_fields().rev() {
        match &field.ty {
            FieldType::Object(inner) if field.inline => {
                writer.delimited(field.number, |w| message(w, inner.get(), object))?;
            }
            _ => {
                let value = object.get(field.name).filter(|v| !v.is_null());
                encode_field(writer, ty, field, value)?;
            }
        }
    }
    Ok(())
}

fn encode_field(
    writer: &mut Writer,
    owner: &Type,
    field: &Field,
    value: Option<&Value>,
) -> Encoded {
    let place = Place {
        owner: owner.name,
        field: field.name,
    };
    match (&field.ty, value) {
        (FieldType::List(_) | FieldType::Map(_), None) => Ok(()),
        (FieldType::List(element), Some(value)) => {
            let mut items = as_array(value, place)?.iter().rev();
            items.try_for_each(|item| one(writer, field.number, element, item, place))
        }
        (FieldType::Map(element), Some(value)) => entries(
            writer,
            field.number,
            element,
            as_object(value, place)?,
            place,
        ),
        (_, None) if field.pointer => Ok(()),
        (ty, value) => one(
            writer,
            field.number,
            ty,
            value.unwrap_or(&Value::Null),
            place,
        ),
    }
}

/// Map entries are messages of key and value, in the order of their keys.
fn entries(
    writer: &mut Writer,
    number: u32,
    element: &FieldType,
    map: &Map<String, Value>,
    place: Place,
) -> Encoded {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries.into_iter().rev().try_for_each(|(key, value)| {
        writer.delimited(number, |writer| {
            one(writer, 2, element, value, place)?;
            writer.bytes_field(1, key.as_bytes());
            Ok(())
        })
    })
}

/// One value with its tag. A null is the type's zero, which is written all the same.
fn one(writer: &mut Writer, number: u32, ty: &FieldType, value: &Value, place: Place) -> Encoded {
    match ty {
        FieldType::Scalar(scalar) => encode_scalar(writer, number, *scalar, value, place),
        FieldType::Object(ty) if value.is_null() => {
            writer.delimited(number, |w| message(w, ty.get(), &Map::new()))
        }
        FieldType::Object(ty) => {
            let object = as_object(value, place)?;
            writer.delimited(number, |w| message(w, ty.get(), object))
        }
        FieldType::List(_) | FieldType::Map(_) => {
            place.expected("value: protobuf has no lists of lists", value)
        }
    }
}

fn encode_scalar(
    writer: &mut Writer,
    number: u32,
    scalar: Scalar,
    value: &Value,
    place: Place,
) -> Encoded {
    match scalar {
        Scalar::String => writer.bytes_field(number, text(value, place)?.as_bytes()),
        // Negative numbers take ten bytes, sign-extended.
        Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 => {
            writer.varint_field(number, integer(value, place)?.cast_unsigned());
        }
        Scalar::Uint64 => match value {
            Value::Null => writer.varint_field(number, 0),
            _ => match value.as_u64() {
                Some(n) => writer.varint_field(number, n),
                None => return place.expected("number", value),
            },
        },
        Scalar::Bool => match value {
            Value::Null | Value::Bool(false) => writer.varint_field(number, 0),
            Value::Bool(true) => writer.varint_field(number, 1),
            _ => return place.expected("bool", value),
        },
        Scalar::Double => {
            let Some(float) = (if value.is_null() {
                Some(0.0)
            } else {
                value.as_f64()
            }) else {
                return place.expected("number", value);
            };
            writer.bytes(&float.to_le_bytes());
            writer.tag(number, FIXED64);
        }
        // A nil slice is absent, an empty one is not.
        Scalar::Bytes if value.is_null() => {}
        Scalar::Bytes => match STANDARD.decode(text(value, place)?) {
            Ok(bytes) => writer.bytes_field(number, &bytes),
            Err(_) => return place.expected("base64 text", value),
        },
        _ => return writer.delimited(number, |w| wrapped(w, scalar, value, place)),
    }
    Ok(())
}

/// The scalars that are messages of their own.
fn wrapped(writer: &mut Writer, scalar: Scalar, value: &Value, place: Place) -> Encoded {
    match scalar {
        Scalar::Quantity if value.is_null() => writer.bytes_field(1, b"0"),
        Scalar::Quantity => writer.bytes_field(1, text(value, place)?.as_bytes()),
        Scalar::IntOrString => {
            let (kind, number, string) = match value {
                Value::String(s) => (1, 0, s.as_str()),
                value => (0, integer(value, place)?, ""),
            };
            writer.bytes_field(3, string.as_bytes());
            writer.varint_field(2, number.cast_unsigned());
            writer.varint_field(1, kind);
        }
        Scalar::Time => timestamp(writer, value, Precision::Seconds, place)?,
        Scalar::MicroTime => timestamp(writer, value, Precision::Micros, place)?,
        Scalar::Duration => {
            let nanos = match value {
                Value::Null => Some(0),
                value => go::parse(text(value, place)?).ok(),
            };
            match nanos {
                Some(nanos) => writer.varint_field(1, nanos.cast_unsigned()),
                None => return place.expected("duration", value),
            }
        }
        Scalar::Raw | Scalar::Fields | Scalar::Json if value.is_null() => {}
        Scalar::Raw | Scalar::Fields | Scalar::Json => {
            writer.bytes_field(1, value.to_string().as_bytes());
        }
        Scalar::StringsMessage if value.is_null() => {}
        Scalar::StringsMessage => strings(writer, 1, value, place)?,
        Scalar::SchemaOrBool | Scalar::SchemaOrArray | Scalar::SchemaOrStrings => {
            schema_or(writer, scalar, value, place)?;
        }
        _ => return place.expected("value that is on the wire", value),
    }
    Ok(())
}

fn schema_or(writer: &mut Writer, scalar: Scalar, value: &Value, place: Place) -> Encoded {
    let schema = FieldType::Object(json_schema());
    match (scalar, value) {
        (Scalar::SchemaOrBool, Value::Object(_)) => {
            one(writer, 2, &schema, value, place)?;
            writer.varint_field(1, 1);
            Ok(())
        }
        (Scalar::SchemaOrBool, Value::Bool(allows)) => {
            writer.varint_field(1, u64::from(*allows));
            Ok(())
        }
        (_, Value::Null) => Ok(()),
        (_, Value::Object(_)) => one(writer, 1, &schema, value, place),
        (Scalar::SchemaOrArray, Value::Array(items)) => items
            .iter()
            .rev()
            .try_for_each(|item| one(writer, 2, &schema, item, place)),
        (Scalar::SchemaOrStrings, Value::Array(_)) => strings(writer, 2, value, place),
        _ => place.expected("schema or its alternative", value),
    }
}

fn strings(writer: &mut Writer, number: u32, value: &Value, place: Place) -> Encoded {
    as_array(value, place)?.iter().rev().try_for_each(|item| {
        writer.bytes_field(number, text(item, place)?.as_bytes());
        Ok(())
    })
}

fn timestamp(writer: &mut Writer, value: &Value, precision: Precision, place: Place) -> Encoded {
    if value.is_null() {
        return Ok(());
    }
    let Ok(instant) = Instant::parse(text(value, place)?, precision) else {
        return place.expected("time", value);
    };
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => instant.nanos,
    };
    writer.varint_field(2, u64::from(nanos));
    writer.varint_field(1, instant.seconds.cast_unsigned());
    Ok(())
}

fn text(value: &Value, place: Place) -> Result<&str, EncodeError> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => place.expected("string", value),
    }
}

fn integer(value: &Value, place: Place) -> Result<i64, EncodeError> {
    match value {
        Value::Null => Ok(0),
        _ => match value.as_i64() {
            Some(number) => Ok(number),
            None => place.expected("integer", value),
        },
    }
}
