//! JSON as ARM takes it, which is more than JSON: comments, names without quotes, texts over several lines.
//!
//! az itself relies on it: it sends a template's file as it is, comments and all, after the bare word `template`.

use std::iter::Peekable;
use std::str::Chars;

/// The text as strict JSON; what is wrong beyond that is left for the parser to name.
pub(super) fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' | '\'' => quoted(&mut rest, c, &mut out),
            '/' if rest.peek() == Some(&'/') => skip_line(&mut rest),
            '/' if rest.peek() == Some(&'*') => skip_block(&mut rest),
            '}' | ']' => {
                // A comma before the end of a list says nothing.
                let kept = out.trim_end().trim_end_matches(',').len();
                out.truncate(kept);
                out.push(c);
            }
            c if c.is_ascii_alphabetic() || c == '_' || c == '$' => bare(&mut rest, c, &mut out),
            c => out.push(c),
        }
    }
    out
}

fn skip_line(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| *c != '\n').is_some() {}
}

fn skip_block(rest: &mut Peekable<Chars<'_>>) {
    let mut last = ' ';
    rest.next();
    for c in rest.by_ref() {
        if last == '*' && c == '/' {
            return;
        }
        last = c;
    }
}

fn quoted(rest: &mut Peekable<Chars<'_>>, quote: char, out: &mut String) {
    out.push('"');
    while let Some(c) = rest.next() {
        match c {
            c if c == quote => break,
            '\\' => match rest.next() {
                Some('\'') => out.push('\''),
                Some(escaped) => out.extend(['\\', escaped]),
                None => {}
            },
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn bare(rest: &mut Peekable<Chars<'_>>, first: char, out: &mut String) {
    let mut word = String::from(first);
    // The exponent of a number is no word.
    let is_number = out.ends_with(|c: char| c.is_ascii_digit());
    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$')) {
        word.push(c);
    }
    match word.as_str() {
        "true" | "false" | "null" => out.push_str(&word),
        _ if is_number => out.push_str(&word),
        _ => out.extend(["\"", &word, "\""]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_az_sends_of_a_template_is_understood() {
        for (text, expected) in [
            (
                r#"{"properties": {"mode": "Incremental", template:{"a": 1, /* b */ "c": [1, 2,], // d
                "e": true,}}}"#,
                json!({"properties": {"mode": "Incremental", "template": {"a": 1, "c": [1, 2], "e": true}}}),
            ),
            ("{'a': 'it\\'s \"b\"'}", json!({"a": "it's \"b\""})),
            (
                "{\"a\": \"two\nlines // no comment\"}",
                json!({"a": "two\nlines // no comment"}),
            ),
            (
                "{a: 1e3, b: null, $c: \"\\\\\"}",
                json!({"a": 1e3, "b": null, "$c": "\\"}),
            ),
            ("{\"a\": \",]\"}", json!({"a": ",]"})),
        ] {
            let found: Value = serde_json::from_str(&strict(text)).unwrap();
            assert_eq!(found, expected, "{text}");
        }
        for wrong in ["{", "{\"a\" 1}", "/* no end", "{\"a", "{'"] {
            assert!(
                serde_json::from_str::<Value>(&strict(wrong)).is_err(),
                "{wrong}"
            );
        }
    }
}
