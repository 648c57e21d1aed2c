//! What evaluating costs: cel-go's model with Kubernetes' rows, for what is actually evaluated.

use crate::library::Opaque;
use crate::value::Value;

/// A name or a field.
pub(crate) const SELECT: u64 = 1;
/// Making a list.
pub(crate) const LIST: u64 = 10;
/// Making a map.
pub(crate) const MAP: u64 = 30;
/// Making an object.
pub(crate) const STRUCT: u64 = 40;
/// Going over a text, for each character.
pub(crate) const TEXT: f64 = 0.1;
/// A pattern, for each of its characters.
pub(crate) const PATTERN: f64 = 0.25;
/// A question to the authorizer: two fit into one expression.
pub(crate) const CHECK: u64 = 350_000;

/// How a function's cost depends on its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Always one.
    One,
    /// Nothing of its own: indexing counts as a selection.
    Select,
    Check,
    Selector,
    /// Over the first argument as text.
    Text,
    /// Over the first argument, twice.
    TwiceText,
    /// Over the result, twice.
    TwiceResult,
    /// Over all parts of the first argument.
    Whole,
    Matches,
    Contains,
    In,
    /// Over the smaller of two.
    Smaller,
    /// The same; values of libraries are compared at once.
    Equality,
    Plus,
    Ip,
    ContainsIp,
    ContainsCidr,
    Format,
    /// Conversions between texts and bytes.
    Conversion,
    /// Each with each, so many times.
    Sets(u8),
    /// The elements of the result, and a list.
    Made,
    Distinct,
    Flatten,
}

impl Class {
    pub(crate) fn of(function: &str) -> Class {
        match function {
            "_[_]" | "_[?_]" => Class::Select,
            "check" => Class::Check,
            "fieldSelector" | "labelSelector" => Class::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Class::Whole,
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "startsWith"
            | "endsWith"
            | "strings.quote"
            | "format" => Class::Text,
            "replace" | "split" | "ip.isCanonical" => Class::TwiceText,
            "join" => Class::TwiceResult,
            "find" | "findAll" | "matches" => Class::Matches,
            "contains" => Class::Contains,
            "@in" => Class::In,
            "_==_" | "_!=_" => Class::Equality,
            "_<_" | "_<=_" | "_>_" | "_>=_" => Class::Smaller,
            "_+_" => Class::Plus,
            "ip" => Class::Ip,
            "containsIP" => Class::ContainsIp,
            "containsCIDR" => Class::ContainsCidr,
            "validate" => Class::Format,
            "bytes" | "string" => Class::Conversion,
            "sets.contains" | "sets.intersects" => Class::Sets(1),
            "sets.equivalent" => Class::Sets(2),
            "slice" | "reverse" | "lists.range" => Class::Made,
            "distinct" | "sort" | "@sortByAssociatedKeys" => Class::Distinct,
            "flatten" => Class::Flatten,
            _ => Class::One,
        }
    }
}

pub(crate) fn text(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

fn matching(size: u64, pattern: u64) -> u64 {
    // One more than the text has, so that an empty text does not make an expensive pattern free.
    text(size + 1, TEXT).saturating_mul(text(pattern, PATTERN))
}

/// The cost of a call, as far as its arguments decide it.
pub(crate) fn actual(class: Class, args: &[Value<'_>]) -> u64 {
    let size = |index: usize| args.get(index).map_or(0, Value::size);
    match class {
        Class::One | Class::Select => 1,
        Class::Check => CHECK,
        Class::Selector => {
            // Requirements of at least two characters, each a struct and a list.
            let length = size(1);
            LIST + text(length, TEXT) + text(length, 0.5) * (LIST + STRUCT)
        }
        Class::Text => text(size(0), TEXT),
        Class::TwiceText => text(size(0), 2.0 * TEXT),
        Class::TwiceResult | Class::Made | Class::Flatten => 0,
        Class::Whole => args.first().map_or(0, whole),
        Class::Matches => matching(size(0), size(1)),
        Class::Contains => text(size(0), TEXT) * text(size(1), TEXT),
        Class::In => match args.get(1) {
            Some(Value::List(list)) => list.len() as u64,
            _ => 1,
        },
        Class::Equality if matches!(args.first(), Some(Value::Opaque(_))) => 1,
        Class::Equality => text(size(0).min(size(1)), TEXT),
        Class::Smaller => match args.first() {
            Some(Value::String(_) | Value::Bytes(_)) => text(size(0).min(size(1)), TEXT),
            _ => 1,
        },
        Class::Plus => match args.first() {
            Some(Value::String(_) | Value::Bytes(_)) => text(size(0) + size(1), TEXT),
            _ => 1,
        },
        Class::Ip => match args.first() {
            Some(Value::String(_)) => text(size(0), TEXT),
            _ => 1,
        },
        Class::ContainsIp => text(size(0) * 2, TEXT) + of_text(args.get(1)),
        Class::ContainsCidr => {
            text(size(0) * 2, TEXT) + text(size(0), TEXT) + 1 + of_text(args.get(1))
        }
        Class::Format => {
            let longest = match args.first() {
                Some(Value::Opaque(value)) => match &**value {
                    Opaque::Format(format) => format.pattern_size(),
                    _ => 0,
                },
                _ => 0,
            };
            matching(size(1), longest)
        }
        Class::Conversion => match args.first() {
            Some(Value::String(_) | Value::Bytes(_)) => text(size(0), TEXT),
            _ => 1,
        },
        Class::Sets(times) => 1 + size(0).saturating_mul(size(1)).saturating_mul(times.into()),
        Class::Distinct => {
            let size = size(0);
            LIST + 1 + size.saturating_mul(size).saturating_mul(2)
        }
    }
}

/// What the size of the result adds.
pub(crate) fn of_result(class: Class, result: &Value<'_>) -> u64 {
    match class {
        Class::TwiceResult => text(result.size(), 2.0 * TEXT),
        Class::Made | Class::Flatten => LIST + 1 + result.size(),
        _ => 0,
    }
}

fn of_text(value: Option<&Value<'_>>) -> u64 {
    match value {
        Some(value @ Value::String(_)) => text(value.size(), TEXT),
        _ => 0,
    }
}

fn whole(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * TEXT) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TEXT) as u64,
        Value::List(list) => list.iter().map(|item| whole(&item)).sum(),
        Value::Map(map) => map.iter().map(|(k, v)| whole(&k) + whole(&v)).sum(),
        _ => 1,
    }
}
