//! JSON values as Go's `fmt` prints them, for the error texts clients already know.

use std::fmt::Write;

use serde_json::{Number, Value};

/// Go's `%v`: `map[a:1 b:[x y]]`, `<nil>` for null.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => number(n),
        Value::String(s) => s.clone(),
        Value::Array(items) => plain_list(items),
        Value::Object(map) => {
            let fields: Vec<_> = map
                .iter()
                .map(|(k, v)| format!("{k}:{}", plain(v)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// Go's `%v` of a `[]interface{}`.
pub(crate) fn plain_list(items: &[Value]) -> String {
    format!(
        "[{}]",
        items.iter().map(plain).collect::<Vec<_>>().join(" ")
    )
}

/// Go's `%#v`: the value as Go source.
pub(crate) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(s) => quoted(s),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(source).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<_> = map
                .iter()
                .map(|(k, v)| format!("{}:{}", quoted(k), source(v)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        scalar => plain(scalar),
    }
}

/// Go's `%T` of the value in a decoded JSON document.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Go's `%q`.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                write!(out, "\\x{:02x}", u32::from(c)).expect("writing to a String cannot fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Go's `%v` of a number: integers in full, floats in their shortest form.
pub(crate) fn number(n: &Number) -> String {
    match n.as_f64() {
        Some(f) if n.is_f64() => float(f),
        _ => n.to_string(),
    }
}

// Go's %v switches to an exponent below 1e-4 and from 1e21 on, and writes at least two digits.
fn float(f: f64) -> String {
    let magnitude = f.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{f:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(e) => ('-', e),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{f}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_go_prints_them() {
        let value = json!({"b": [1, "x", null], "a": {"c": true}});
        assert_eq!(plain(&value), "map[a:map[c:true] b:[1 x <nil>]]");
        assert_eq!(
            source(&json!({"a": ["x", 1.5]})),
            r#"map[string]interface {}{"a":[]interface {}{"x", 1.5}}"#
        );
        assert_eq!(quoted("a\"b\n"), r#""a\"b\n""#);
        assert_eq!(type_name(&json!(1)), "int64");
        assert_eq!(type_name(&json!(1.0)), "float64");
    }

    #[test]
    fn floats_use_the_shortest_form() {
        for (value, text) in [(0.5, "0.5"), (3.0, "3"), (1e-5, "1e-05"), (1e21, "1e+21")] {
            assert_eq!(float(value), text);
        }
    }
}
