//! Numbers and texts in the forms Go writes.

/// A double as Go prints it: the shortest digits, an exponent where it is very large or small.
pub(crate) fn show_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let exponent: i32 = match value == 0.0 {
        true => 0,
        false => {
            let text = format!("{value:e}");
            let (_, exponent) = text.split_once('e').unwrap_or(("", "0"));
            exponent.parse().unwrap_or(0)
        }
    };
    if (-4..21).contains(&exponent) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    let (digits, _) = text.split_once('e').unwrap_or((&text, ""));
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// A text in double quotes, with escapes.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_printed_as_go_prints_them() {
        let cases = [
            (1.0, "1"),
            (1.5, "1.5"),
            (-0.25, "-0.25"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1e-5, "1e-05"),
            (0.0, "0"),
            (f64::INFINITY, "+Inf"),
        ];
        for (value, text) in cases {
            assert_eq!(show_double(value), text);
        }
        assert_eq!(quoted("a\"b\n"), r#""a\"b\n""#);
    }
}
