//! From the wire to JSON, not yet in normal form: absent fields are still absent.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_kit::duration::go;
use serde_json::{Map, Number, Value};

use super::DecodeError;
use super::wire::{DELIMITED, FIXED64, Reader, VARINT, WireError};
use crate::MAX_PARTS;
use crate::instant::{Instant, Precision};
use crate::normalize::json_schema;
use crate::schema::{Field, FieldType, Scalar, Type};

/// The deepest nesting of messages; real objects stay far below.
const MAX_DEPTH: usize = 100;

type Object = Map<String, Value>;

/// How much more may come: two bytes of a message may be a part that takes hundreds in memory.
#[derive(Clone, Copy)]
struct Left<'p> {
    depth: usize,
    parts: &'p Cell<usize>,
}

impl Left<'_> {
    fn deeper(self) -> Result<Self, WireError> {
        let depth = self.depth.checked_sub(1);
        Ok(Left {
            depth: depth.ok_or(WireError::Depth(MAX_DEPTH))?,
            ..self
        })
    }

    fn one_part(self) -> Result<(), WireError> {
        let rest = self.parts.get().checked_sub(1);
        self.parts.set(rest.ok_or(WireError::Parts(MAX_PARTS))?);
        Ok(())
    }
}

pub(super) fn root(ty: &Type, bytes: &[u8]) -> Result<Object, DecodeError> {
    let mut object = Object::new();
    let left = Left {
        depth: MAX_DEPTH,
        parts: &Cell::new(MAX_PARTS),
    };
    message(ty, bytes, &mut object, left)?;
    Ok(object)
}

/// Reads a message into `object`; what is already there is merged with, as protobuf asks.
fn message(
    ty: &Type,
    bytes: &[u8],
    object: &mut Object,
    left: Left<'_>,
) -> Result<(), DecodeError> {
    let left = left.deeper()?;
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.tag()? {
        match ty.wire_field(number) {
            None => reader.skip(wire)?,
            Some(field) => {
                let input = Input {
                    reader: &mut reader,
                    wire,
                    field,
                    left,
                };
                input.read_into(object)?;
            }
        }
    }
    Ok(())
}

/// A field's value on the wire, its tag already read.
struct Input<'r, 'a, 'f> {
    reader: &'r mut Reader<'a>,
    wire: u8,
    field: &'f Field,
    left: Left<'r>,
}

impl<'a> Input<'_, 'a, '_> {
    fn read_into(mut self, object: &mut Object) -> Result<(), DecodeError> {
        self.left.one_part()?;
        let field = self.field;
        match &field.ty {
            FieldType::Object(inner) if field.inline => {
                message(inner.get(), self.delimited()?, object, self.left)
            }
            FieldType::Object(inner) => {
                let bytes = self.delimited()?;
                let slot = slot(object, field.name, || Value::Object(Object::new()));
                match slot {
                    Value::Object(existing) => message(inner.get(), bytes, existing, self.left),
                    _ => unreachable!("only this arm fills the slot of a message field"),
                }
            }
            FieldType::List(element) => {
                let slot = slot(object, field.name, || Value::Array(Vec::new()));
                match slot {
                    Value::Array(items) => self.read_items(element, items),
                    _ => unreachable!("only this arm fills the slot of a repeated field"),
                }
            }
            FieldType::Map(element) => {
                let slot = slot(object, field.name, || Value::Object(Object::new()));
                match slot {
                    Value::Object(map) => self.read_entry(element, map),
                    _ => unreachable!("only this arm fills the slot of a map field"),
                }
            }
            FieldType::Scalar(scalar) => {
                let value = self.scalar(*scalar)?;
                object.insert(field.name.to_owned(), value);
                Ok(())
            }
        }
    }

    fn delimited(&mut self) -> Result<&'a [u8], WireError> {
        match self.wire {
            DELIMITED => self.reader.delimited(self.wire),
            found => Err(WireError::WireType {
                found,
                field: self.field.name.to_owned(),
            }),
        }
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        match self.wire {
            VARINT => self.reader.varint(),
            found => Err(WireError::WireType {
                found,
                field: self.field.name.to_owned(),
            }),
        }
    }

    fn text(&mut self) -> Result<String, WireError> {
        let bytes = self.delimited()?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| WireError::Utf8)
    }

    /// One element, or a packed run of numbers, which every decoder must accept.
    fn read_items(
        mut self,
        element: &FieldType,
        items: &mut Vec<Value>,
    ) -> Result<(), DecodeError> {
        if !(self.wire == DELIMITED && is_varint(element)) {
            items.push(self.value(element)?);
            return Ok(());
        }
        let mut packed = Reader::new(self.delimited()?);
        while !packed.is_empty() {
            let mut number = Input {
                reader: &mut packed,
                wire: VARINT,
                field: self.field,
                left: self.left,
            };
            self.left.one_part()?;
            items.push(number.value(element)?);
        }
        Ok(())
    }

    /// A map entry: a message with the key at 1 and the value at 2, either of which may be absent.
    fn read_entry(mut self, element: &FieldType, map: &mut Object) -> Result<(), DecodeError> {
        let mut entry = Reader::new(self.delimited()?);
        let mut key = String::new();
        let mut value = match element {
            // Upstream starts from an empty, not a nil, slice.
            FieldType::Scalar(Scalar::Bytes) => Value::String(String::new()),
            _ => Value::Null,
        };
        while let Some((number, wire)) = entry.tag()? {
            let mut part = Input {
                reader: &mut entry,
                wire,
                field: self.field,
                left: self.left,
            };
            match number {
                1 => key = part.text()?,
                2 => value = part.value(element)?,
                _ => entry.skip(wire)?,
            }
        }
        map.insert(key, value);
        Ok(())
    }

    fn value(&mut self, ty: &FieldType) -> Result<Value, DecodeError> {
        match ty {
            FieldType::Scalar(scalar) => self.scalar(*scalar),
            FieldType::Object(ty) => {
                let mut object = Object::new();
                message(ty.get(), self.delimited()?, &mut object, self.left)?;
                Ok(Value::Object(object))
            }
            FieldType::List(_) | FieldType::Map(_) => Err(self.no_json_form()),
        }
    }

    fn no_json_form(&self) -> DecodeError {
        WireError::Value(self.field.name.to_owned()).into()
    }

    fn scalar(&mut self, scalar: Scalar) -> Result<Value, DecodeError> {
        Ok(match scalar {
            Scalar::String => Value::String(self.text()?),
            // Upstream keeps the low 32 bits of an int32, as protobuf asks.
            #[allow(clippy::cast_possible_truncation, reason = "protobuf truncates")]
            Scalar::Int32 => Value::from(self.varint()? as i32),
            Scalar::Int64 => Value::from(self.varint()?.cast_signed()),
            #[allow(clippy::cast_possible_truncation, reason = "protobuf truncates")]
            Scalar::Uint32 => Value::from(self.varint()? as u32),
            Scalar::Uint64 => Value::from(self.varint()?),
            Scalar::Bool => Value::Bool(self.varint()? != 0),
            Scalar::Bytes => Value::String(STANDARD.encode(self.delimited()?)),
            Scalar::Double => self.double()?,
            Scalar::Any => return Err(self.no_json_form()),
            _ => {
                let bytes = self.delimited()?;
                self.wrapped(scalar, bytes)?
            }
        })
    }

    fn double(&mut self) -> Result<Value, DecodeError> {
        if self.wire != FIXED64 {
            let field = self.field.name.to_owned();
            return Err(WireError::WireType {
                found: self.wire,
                field,
            }
            .into());
        }
        let float = f64::from_le_bytes(self.reader.fixed64()?);
        match Number::from_f64(float) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(self.no_json_form()),
        }
    }

    /// The scalars that are messages of their own.
    fn wrapped(&self, scalar: Scalar, bytes: &[u8]) -> Result<Value, DecodeError> {
        let parts = Parts::read(scalar, bytes, self)?;
        Ok(match scalar {
            Scalar::Quantity => parts.text.map_or(Value::Null, Value::String),
            Scalar::IntOrString => match parts.numbers[1] {
                #[allow(clippy::cast_possible_truncation, reason = "protobuf truncates")]
                0 => Value::from(parts.numbers[2] as i32),
                1 => Value::String(parts.text.unwrap_or_default()),
                _ => return Err(self.no_json_form()),
            },
            Scalar::Time => parts.timestamp(bytes, Precision::Seconds)?,
            Scalar::MicroTime => parts.timestamp(bytes, Precision::Micros)?,
            Scalar::Duration => Value::String(go::format(parts.numbers[1].cast_signed())),
            Scalar::Raw | Scalar::Fields | Scalar::Json => match parts.raw {
                None | Some([]) => Value::Null,
                Some(raw) => serde_json::from_slice(raw).map_err(|e| WireError::Json {
                    field: self.field.name.to_owned(),
                    reason: e.to_string(),
                })?,
            },
            Scalar::StringsMessage if parts.items.is_empty() => Value::Null,
            Scalar::StringsMessage => Value::Array(parts.items),
            Scalar::SchemaOrBool => parts.schema.unwrap_or(Value::Bool(parts.numbers[1] != 0)),
            Scalar::SchemaOrArray | Scalar::SchemaOrStrings if parts.items.is_empty() => {
                parts.schema.unwrap_or(Value::Null)
            }
            Scalar::SchemaOrArray | Scalar::SchemaOrStrings => Value::Array(parts.items),
            _ => return Err(self.no_json_form()),
        })
    }
}

/// The fields of the small messages behind wrapped scalars, each where its scalar looks for it.
#[derive(Default)]
struct Parts<'a> {
    /// Varints by field number; 0 is unused.
    numbers: [u64; 3],
    text: Option<String>,
    raw: Option<&'a [u8]>,
    schema: Option<Value>,
    items: Vec<Value>,
}

/// What a field of a wrapper message is.
#[derive(Clone, Copy)]
enum Part {
    Number,
    Text,
    Raw,
    Schema,
    Item(Scalar),
    Schemas,
}

/// The wrapper messages: scalar, field number, what it is.
const PARTS: &[(Scalar, u32, Part)] = &[
    (Scalar::Quantity, 1, Part::Text),
    (Scalar::IntOrString, 1, Part::Number),
    (Scalar::IntOrString, 2, Part::Number),
    (Scalar::IntOrString, 3, Part::Text),
    (Scalar::Time, 1, Part::Number),
    (Scalar::Time, 2, Part::Number),
    (Scalar::MicroTime, 1, Part::Number),
    (Scalar::MicroTime, 2, Part::Number),
    (Scalar::Duration, 1, Part::Number),
    (Scalar::Raw, 1, Part::Raw),
    (Scalar::Fields, 1, Part::Raw),
    (Scalar::Json, 1, Part::Raw),
    (Scalar::StringsMessage, 1, Part::Item(Scalar::String)),
    (Scalar::SchemaOrBool, 1, Part::Number),
    (Scalar::SchemaOrBool, 2, Part::Schema),
    (Scalar::SchemaOrArray, 1, Part::Schema),
    (Scalar::SchemaOrArray, 2, Part::Schemas),
    (Scalar::SchemaOrStrings, 1, Part::Schema),
    (Scalar::SchemaOrStrings, 2, Part::Item(Scalar::String)),
];

impl<'a> Parts<'a> {
    fn read(scalar: Scalar, bytes: &'a [u8], at: &Input<'_, '_, '_>) -> Result<Self, DecodeError> {
        let left = at.left.deeper()?;
        let schema = || FieldType::Object(json_schema());
        let mut parts = Parts::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.tag()? {
            let part = PARTS.iter().find(|(s, n, _)| *s == scalar && *n == number);
            let mut input = Input {
                reader: &mut reader,
                wire,
                field: at.field,
                left,
            };
            left.one_part()?;
            match part.map(|(_, _, part)| *part) {
                None => reader.skip(wire)?,
                Some(Part::Number) => parts.numbers[number as usize] = input.varint()?,
                Some(Part::Text) => parts.text = Some(input.text()?),
                Some(Part::Raw) => parts.raw = Some(input.delimited()?),
                Some(Part::Schema) => parts.schema = Some(input.value(&schema())?),
                Some(Part::Schemas) => parts.items.push(input.value(&schema())?),
                Some(Part::Item(scalar)) => parts.items.push(input.scalar(scalar)?),
            }
        }
        Ok(parts)
    }

    /// An empty message is the zero time; any other is seconds and nanoseconds since 1970.
    fn timestamp(&self, bytes: &[u8], precision: Precision) -> Result<Value, DecodeError> {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        let nanos = u32::try_from(self.numbers[2]).unwrap_or(u32::MAX);
        let instant = Instant {
            seconds: self.numbers[1].cast_signed(),
            nanos,
        };
        let text = instant
            .format(precision)
            .map_err(crate::normalize::TypeError::from)?;
        Ok(Value::String(text))
    }
}

fn slot<'a>(object: &'a mut Object, name: &str, new: impl FnOnce() -> Value) -> &'a mut Value {
    object.entry(name).or_insert_with(new)
}

fn is_varint(ty: &FieldType) -> bool {
    use Scalar::{Bool, Int32, Int64, Uint32, Uint64};
    matches!(
        ty,
        FieldType::Scalar(Int32 | Int64 | Uint32 | Uint64 | Bool)
    )
}
