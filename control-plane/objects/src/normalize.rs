//! The normal form: what upstream's Go types print after decoding the same JSON.
//!
//! Go decides per field whether a zero is printed: `omitempty` drops zero scalars, empty lists and
//! empty maps but never structs, and times, quantities and raw extensions are structs. So a Pod
//! always has `status: {}`, a condition without a time has `lastTransitionTime: null`, and a list
//! without `omitempty` that was never set prints `null`.

mod scalar;

use serde_json::{Map, Value};

use crate::path::Path;
use crate::schema::{Field, FieldType, Scalar, Type, TypeRef};
use crate::strict::StrictErrors;

pub use scalar::TypeError;
pub(crate) use scalar::whole_float_as_integer;

/// An object in normal form, and what a strict decoder would have refused.
#[derive(Debug)]
pub struct Normalized {
    /// The object.
    pub value: Value,
    /// `unknown field "…"`, one for each field that was dropped.
    pub unknown: Vec<String>,
}

/// Brings `value` into the normal form of `ty`. A null is the type's zero value.
pub fn normalize(ty: TypeRef, value: Value) -> Result<Normalized, TypeError> {
    let mut walk = Walk {
        strict: StrictErrors::default(),
        silent: false,
    };
    let value = walk.value(&FieldType::Object(ty), value, &Path::ROOT)?;
    Ok(Normalized {
        value,
        unknown: walk.strict.into_messages(),
    })
}

/// The zero value of `ty` in normal form.
pub fn zero(ty: TypeRef) -> Value {
    let mut object = Map::new();
    print_zeros(ty.get(), &mut object);
    Value::Object(object)
}

struct Walk {
    strict: StrictErrors,
    /// Inside values that upstream decodes with a decoder of their own, nothing is reported.
    silent: bool,
}

impl Walk {
    fn value(&mut self, ty: &FieldType, value: Value, at: &Path<'_>) -> Result<Value, TypeError> {
        match (ty, value) {
            (FieldType::Scalar(scalar), value) => self.scalar(*scalar, value, at),
            (FieldType::Object(ty), Value::Object(map)) => self.object(*ty, map, at),
            (FieldType::Object(ty), Value::Null) => Ok(zero(*ty)),
            (FieldType::List(element), Value::Array(items)) => self.list(element, items, at),
            (FieldType::Map(element), Value::Object(map)) => self.map(element, map, at),
            (FieldType::List(_) | FieldType::Map(_), Value::Null) => Ok(Value::Null),
            (ty, value) => Err(TypeError::mismatch(&value, at, &go_type(ty))),
        }
    }

    fn object(
        &mut self,
        ty: TypeRef,
        mut map: Map<String, Value>,
        at: &Path<'_>,
    ) -> Result<Value, TypeError> {
        let ty = ty.get();
        // In place: most objects are in normal form already, and building their maps anew costs more
        // than looking at them.
        let mut dropped = Vec::new();
        for (key, slot) in &mut map {
            let here = at.field(ty, key);
            let kept = match ty.field(key) {
                None if self.silent => None,
                None => {
                    self.strict.unknown(&here);
                    None
                }
                Some(field) => self.field(field, slot.take(), &here)?,
            };
            match kept {
                Some(value) => *slot = value,
                None => dropped.push(key.clone()),
            }
        }
        for key in dropped {
            map.remove(&key);
        }
        print_zeros(ty, &mut map);
        Ok(Value::Object(map))
    }

    /// The field as printed; `None` when `print_zeros` decides.
    fn field(
        &mut self,
        field: &Field,
        value: Value,
        at: &Path<'_>,
    ) -> Result<Option<Value>, TypeError> {
        if value.is_null() {
            return Ok(None);
        }
        let value = self.value(&field.ty, value, at)?;
        let dropped = !field.pointer
            && ((field.omit_empty && !is_struct(&field.ty) && is_empty(&value))
                || (field.omit_zero && value.is_null()));
        Ok(if dropped { None } else { Some(value) })
    }

    fn list(
        &mut self,
        element: &FieldType,
        mut items: Vec<Value>,
        at: &Path<'_>,
    ) -> Result<Value, TypeError> {
        for (i, slot) in items.iter_mut().enumerate() {
            *slot = self.value(element, slot.take(), &at.index(i))?;
        }
        Ok(Value::Array(items))
    }

    fn map(
        &mut self,
        element: &FieldType,
        mut map: Map<String, Value>,
        at: &Path<'_>,
    ) -> Result<Value, TypeError> {
        for (key, slot) in &mut map {
            *slot = self.value(element, slot.take(), &at.key(key))?;
        }
        Ok(Value::Object(map))
    }

    fn scalar(&mut self, scalar: Scalar, value: Value, at: &Path<'_>) -> Result<Value, TypeError> {
        match scalar {
            Scalar::SchemaOrBool | Scalar::SchemaOrArray | Scalar::SchemaOrStrings => {
                let reported = std::mem::replace(&mut self.silent, true);
                let result = self.schema_or(scalar, value, at);
                self.silent = reported;
                result
            }
            _ => scalar::normalize(scalar, value, at),
        }
    }

    /// The unions inside a JSON schema: an object is a schema, anything else the alternative.
    fn schema_or(
        &mut self,
        scalar: Scalar,
        value: Value,
        at: &Path<'_>,
    ) -> Result<Value, TypeError> {
        let schema = FieldType::Object(json_schema());
        match (scalar, value) {
            (_, value @ Value::Object(_)) => self.value(&schema, value, at),
            (Scalar::SchemaOrBool, value @ Value::Bool(_)) => Ok(value),
            (Scalar::SchemaOrBool, _) => Err(TypeError::SchemaOrBool),
            (Scalar::SchemaOrArray, value @ Value::Array(_)) => {
                let schemas = self.value(&FieldType::List(Box::new(schema)), value, at)?;
                Ok(if is_empty(&schemas) {
                    Value::Null
                } else {
                    schemas
                })
            }
            (_, value @ Value::Array(_)) => {
                let strings = FieldType::List(Box::new(FieldType::Scalar(Scalar::String)));
                let strings = self.value(&strings, value, at)?;
                Ok(if is_empty(&strings) {
                    Value::Null
                } else {
                    strings
                })
            }
            // Upstream ignores what is neither, without an error.
            (_, _) => Ok(Value::Null),
        }
    }
}

pub(crate) fn json_schema() -> TypeRef {
    crate::schema::lookup("apiextensions.v1.JSONSchemaProps")
        .expect("the table has the type that its schema unions refer to")
}

/// Whether the Go type is a struct, which `omitempty` never drops.
pub(crate) fn is_struct(ty: &FieldType) -> bool {
    match ty {
        FieldType::Object(_) => true,
        FieldType::List(_) | FieldType::Map(_) => false,
        FieldType::Scalar(scalar) => match scalar {
            Scalar::String
            | Scalar::Int32
            | Scalar::Int64
            | Scalar::Uint32
            | Scalar::Uint64
            | Scalar::Bool
            | Scalar::Bytes
            | Scalar::Double
            | Scalar::StringsMessage
            | Scalar::Any => false,
            Scalar::Quantity
            | Scalar::IntOrString
            | Scalar::Time
            | Scalar::MicroTime
            | Scalar::Duration
            | Scalar::Raw
            | Scalar::Fields
            | Scalar::Json
            | Scalar::SchemaOrBool
            | Scalar::SchemaOrArray
            | Scalar::SchemaOrStrings => true,
        },
    }
}

/// What `omitempty` takes for empty in a value that is not a struct.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Adds the fields that Go prints even when they were never set.
fn print_zeros(ty: &Type, object: &mut Map<String, Value>) {
    for field in ty.json_fields().filter(|f| prints_zero(f)) {
        if !object.contains_key(field.name) {
            object.insert(field.name.to_owned(), field_zero(ty, field));
        }
    }
}

fn prints_zero(field: &Field) -> bool {
    let omitted = field.omit_empty && (field.pointer || !is_struct(&field.ty));
    !omitted && !field.omit_zero
}

fn field_zero(owner: &Type, field: &Field) -> Value {
    if field.pointer {
        return Value::Null;
    }
    match &field.ty {
        FieldType::Object(ty) => zero(*ty),
        FieldType::Map(_) => Value::Null,
        // The API server allocates the items of every list it answers with.
        FieldType::List(_) if field.name == "items" && owner.name.ends_with("List") => {
            Value::Array(Vec::new())
        }
        FieldType::List(_) => Value::Null,
        FieldType::Scalar(scalar) => scalar::zero(*scalar),
    }
}

/// How Go spells the type in its errors. Named strings and numbers show as what they are.
fn go_type(ty: &FieldType) -> String {
    match ty {
        FieldType::Scalar(scalar) => scalar::go_type(*scalar).to_owned(),
        FieldType::List(element) => format!("[]{}", go_type(element)),
        FieldType::Map(element) => format!("map[string]{}", go_type(element)),
        FieldType::Object(ty) => {
            let name = ty.get().name;
            name.split_once('.')
                .map_or(name, |(_, versioned)| versioned)
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
