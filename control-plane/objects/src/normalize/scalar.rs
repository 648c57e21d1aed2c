//! The leaves: how each scalar is read from JSON and printed back.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use kube_kit::duration::go;
use kube_kit::quantity::{Quantity, QuantityError};
use serde_json::{Number, Value};

use crate::instant::{Instant, Precision, TimeError};
use crate::path::Path;
use crate::schema::Scalar;

/// Go's decoder ignores the bits that padding leaves over.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Why a value does not fit its type, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// The wrong kind of JSON value for a field.
    #[error("json: cannot unmarshal {found} into Go struct field {place} of type {expected}")]
    Field {
        /// What was found: `string`, `number 1.5`, …
        found: String,
        /// The struct and the path of the field.
        place: String,
        /// The Go type.
        expected: String,
    },
    /// The wrong kind of JSON value for the whole object.
    #[error("json: cannot unmarshal {found} into Go value of type {expected}")]
    Root {
        /// What was found.
        found: String,
        /// The Go type.
        expected: String,
    },
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Not a time.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// Not base64.
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    /// Not a Go duration.
    #[error("time: invalid duration {0:?}")]
    Duration(String),
    /// Neither a schema nor a bool.
    #[error("boolean or JSON schema expected")]
    SchemaOrBool,
}

impl TypeError {
    pub(super) fn mismatch(found: &Value, at: &Path<'_>, expected: &str) -> Self {
        Self::found(kind_of(found).to_owned(), at, expected)
    }

    /// For a number of the right kind that does not fit, Go names the number.
    fn number(found: &Number, at: &Path<'_>, expected: &str) -> Self {
        Self::found(format!("number {found}"), at, expected)
    }

    fn found(found: String, at: &Path<'_>, expected: &str) -> Self {
        let expected = expected.to_owned();
        match at.go() {
            Some(place) => TypeError::Field {
                found,
                place,
                expected,
            },
            None => TypeError::Root { found, expected },
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The Go type a scalar is decoded into, as errors spell it.
pub(super) fn go_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String | Scalar::Time | Scalar::MicroTime | Scalar::Duration => "string",
        Scalar::Int32 | Scalar::IntOrString => "int32",
        Scalar::Int64 => "int64",
        Scalar::Uint32 => "uint32",
        Scalar::Uint64 => "uint64",
        Scalar::Bool => "bool",
        Scalar::Bytes => "[]uint8",
        Scalar::Double => "float64",
        Scalar::Quantity => "resource.Quantity",
        Scalar::Raw => "runtime.RawExtension",
        Scalar::Fields => "v1.FieldsV1",
        Scalar::Json => "v1.JSON",
        Scalar::SchemaOrBool => "v1.JSONSchemaPropsOrBool",
        Scalar::SchemaOrArray => "v1.JSONSchemaPropsOrArray",
        Scalar::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray",
        Scalar::StringsMessage => "[]string",
        Scalar::Any => "interface {}",
    }
}

/// What Go prints for a value that was never set.
pub(super) fn zero(scalar: Scalar) -> Value {
    match scalar {
        Scalar::String => Value::String(String::new()),
        Scalar::Int32 | Scalar::Int64 | Scalar::Uint32 | Scalar::Uint64 => Value::from(0),
        Scalar::Double | Scalar::IntOrString => Value::from(0),
        Scalar::Bool | Scalar::SchemaOrBool => Value::Bool(false),
        Scalar::Quantity => Value::from("0"),
        Scalar::Duration => Value::from("0s"),
        Scalar::Bytes
        | Scalar::Time
        | Scalar::MicroTime
        | Scalar::Raw
        | Scalar::Fields
        | Scalar::Json
        | Scalar::SchemaOrArray
        | Scalar::SchemaOrStrings
        | Scalar::StringsMessage
        | Scalar::Any => Value::Null,
    }
}

pub(super) fn normalize(scalar: Scalar, value: Value, at: &Path<'_>) -> Result<Value, TypeError> {
    let expected = go_type(scalar);
    match (scalar, value) {
        (Scalar::Raw | Scalar::Fields | Scalar::Json | Scalar::Any, value) => Ok(value),
        (scalar, Value::Null) => Ok(zero(scalar)),
        (Scalar::String, value @ Value::String(_)) => Ok(value),
        (Scalar::Bool, value @ Value::Bool(_)) => Ok(value),
        (Scalar::Int32, Value::Number(n)) => integer(n, at, expected, |i| i32::try_from(i).is_ok()),
        (Scalar::Int64, Value::Number(n)) => integer(n, at, expected, |_| true),
        (Scalar::Uint32, Value::Number(n)) => {
            integer(n, at, expected, |i| u32::try_from(i).is_ok())
        }
        (Scalar::Uint64, Value::Number(n)) if n.is_u64() => Ok(Value::Number(n)),
        (Scalar::Uint64, Value::Number(n)) => Err(TypeError::number(&n, at, expected)),
        (Scalar::Double, Value::Number(n)) => Ok(whole_float_as_integer(n)),
        (Scalar::Bytes, Value::String(s)) => bytes(&s),
        (Scalar::Bytes, Value::Array(items)) => byte_list(&items, at),
        (Scalar::Quantity, value) => quantity(&value),
        (Scalar::IntOrString, value @ Value::String(_)) => Ok(value),
        (Scalar::IntOrString, Value::Number(n)) => {
            integer(n, at, expected, |i| i32::try_from(i).is_ok())
        }
        (Scalar::Time, Value::String(s)) => time(&s, Precision::Seconds),
        (Scalar::MicroTime, Value::String(s)) => time(&s, Precision::Micros),
        (Scalar::Duration, Value::String(s)) => duration(&s),
        (Scalar::StringsMessage, Value::Array(items)) => strings(items, at),
        (_, value) => Err(TypeError::mismatch(&value, at, expected)),
    }
}

fn integer(
    number: Number,
    at: &Path<'_>,
    expected: &str,
    fits: impl FnOnce(i64) -> bool,
) -> Result<Value, TypeError> {
    match number.as_i64() {
        Some(i) if fits(i) => Ok(Value::Number(number)),
        _ => Err(TypeError::number(&number, at, expected)),
    }
}

/// Go prints a whole float without a fraction, so it is kept as an integer here.
pub(crate) fn whole_float_as_integer(number: Number) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(f) if f.fract() == 0.0 && f.abs() <= EXACT => {
            // Within 2^53 the conversion is exact.
            #[allow(
                clippy::cast_possible_truncation,
                reason = "checked to be whole and small"
            )]
            let whole = f as i64;
            Value::from(whole)
        }
        _ => Value::Number(number),
    }
}

fn bytes(text: &str) -> Result<Value, TypeError> {
    // Go's decoder skips line breaks.
    let clean: std::borrow::Cow<'_, str> = match text.contains(['\r', '\n']) {
        true => text.replace(['\r', '\n'], "").into(),
        false => text.into(),
    };
    let decoded = LENIENT_BASE64
        .decode(clean.as_bytes())
        .map_err(|e| match e {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => TypeError::Base64(at),
            base64::DecodeError::InvalidLength(at) => TypeError::Base64(at),
            base64::DecodeError::InvalidPadding => TypeError::Base64(clean.len()),
        })?;
    Ok(Value::String(STANDARD.encode(decoded)))
}

/// Go also reads bytes from a list of numbers.
fn byte_list(items: &[Value], at: &Path<'_>) -> Result<Value, TypeError> {
    let bytes = items.iter().map(|item| match item {
        Value::Null => Ok(0),
        Value::Number(n) => n
            .as_u64()
            .and_then(|n| u8::try_from(n).ok())
            .ok_or_else(|| TypeError::number(n, at, "uint8")),
        other => Err(TypeError::mismatch(other, at, "uint8")),
    });
    Ok(Value::String(
        STANDARD.encode(bytes.collect::<Result<Vec<u8>, _>>()?),
    ))
}

fn quantity(value: &Value) -> Result<Value, TypeError> {
    let parsed: Quantity = match value {
        Value::String(s) => s.trim().parse()?,
        Value::Number(n) => n.to_string().parse()?,
        _ => return Err(QuantityError::Format.into()),
    };
    Ok(Value::String(parsed.to_string()))
}

fn time(text: &str, precision: Precision) -> Result<Value, TypeError> {
    let instant = Instant::parse(text, precision)?;
    if instant.is_zero() {
        return Ok(Value::Null);
    }
    Ok(Value::String(instant.format(precision)?))
}

fn strings(items: Vec<Value>, at: &Path<'_>) -> Result<Value, TypeError> {
    let items = items.into_iter().enumerate();
    let items = items.map(|(i, item)| normalize(Scalar::String, item, &at.index(i)));
    Ok(Value::Array(items.collect::<Result<_, _>>()?))
}

fn duration(text: &str) -> Result<Value, TypeError> {
    let nanos = go::parse(text).map_err(|_| TypeError::Duration(text.into()))?;
    Ok(Value::String(go::format(nanos)))
}
