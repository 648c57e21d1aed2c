//! Label and field selectors: parse, match, print back.
//!
//! The grammars and every message are those of `apimachinery/pkg/labels/selector.go` and
//! `apimachinery/pkg/fields/selector.go`, because a client sees them in a 400 answer. Reading is linear
//! in the text and matching a value set is a binary search, so that the largest selector a request
//! can carry ([`MAX_SELECTOR_BYTES`]) stays cheap.

mod fields;
mod labels;
mod lexer;
mod parser;
mod syntax;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{LabelSelector, Operator, Requirement};
pub use syntax::{label_key_errors, label_value_errors};

/// The longest selector text that is read: what fits in the headers of one request upstream.
pub const MAX_SELECTOR_BYTES: usize = 1 << 20;

/// Why a selector was refused, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl SelectorError {
    fn new(message: impl Into<String>) -> SelectorError {
        SelectorError(message.into())
    }

    /// Several field errors as one message: alone as it is, more as `[a, b]`, each text once.
    fn joined(messages: Vec<String>) -> SelectorError {
        let mut unique: Vec<String> = Vec::with_capacity(messages.len());
        for message in messages {
            if !unique.contains(&message) {
                unique.push(message);
            }
        }
        match unique.len() {
            1 => SelectorError(unique.remove(0)),
            _ => SelectorError(format!("[{}]", unique.join(", "))),
        }
    }
}

fn check_length(text: &str) -> Result<(), SelectorError> {
    if text.len() <= MAX_SELECTOR_BYTES {
        return Ok(());
    }
    Err(SelectorError::new(format!(
        "selector must be no more than {MAX_SELECTOR_BYTES} bytes"
    )))
}

/// The message of a field error of type Invalid.
fn invalid(field: &str, value: &str, complaint: &str) -> String {
    format!("{field}: Invalid value: {value}: {complaint}")
}

/// A text as Go's `%q` quotes it.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\t' | '\n' | '\r' => quoted.extend(c.escape_default()),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if !c.is_ascii() && !c.escape_debug().eq([c]) => {
                let number = u32::from(c);
                let escape = if number > 0xffff {
                    format!("\\U{number:08x}")
                } else {
                    format!("\\u{number:04x}")
                };
                quoted.push_str(&escape);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, expected) in [
            ("a'b", "\"a'b\""),
            ("\"\\", r#""\"\\""#),
            ("\0\x01\x7f", r#""\x00\x01\x7f""#),
            ("\t\n\r\u{7}\u{b}", r#""\t\n\r\a\v""#),
            ("é漢", "\"é漢\""),
            ("\u{85}\u{200b}\u{e0001}", r#""\u0085\u200b\U000e0001""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
