//! YAML out, in the block style of Go's encoder, quoting whatever any YAML reader might misread.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Words that some YAML version reads as something else than text.
const WORDS: [&str; 11] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf",
];

/// Readers only look this far for the colon after a key; longer keys are written with `?`.
const LONG_KEY: usize = 128;

/// The value as a YAML document.
pub fn to_string(value: &Value) -> String {
    let mut emitter = Emitter { out: String::new() };
    match value {
        Value::Object(map) if !map.is_empty() => emitter.map(map, 0),
        Value::Array(items) if !items.is_empty() => emitter.list(items, 0),
        leaf => {
            emitter.leaf(leaf, 0);
            emitter.out.push('\n');
        }
    }
    emitter.out
}

struct Emitter {
    out: String,
}

impl Emitter {
    fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// The entries of a map, the first one wherever the caller stands.
    fn map(&mut self, map: &Map<String, Value>, indent: usize) {
        for (i, (key, value)) in map.iter().enumerate() {
            if i > 0 {
                self.indent(indent);
            }
            let start = self.out.len();
            self.scalar_text(key);
            if self.out.len() - start > LONG_KEY {
                self.out.insert_str(start, "? ");
                self.out.push('\n');
                self.indent(indent);
            }
            self.out.push(':');
            self.entry(value, indent);
        }
    }

    fn entry(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                self.out.push('\n');
                self.indent(indent + 2);
                self.map(map, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                self.out.push('\n');
                self.indent(indent);
                self.list(items, indent);
            }
            leaf => {
                self.out.push(' ');
                self.leaf(leaf, indent + 2);
                self.out.push('\n');
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                self.indent(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.map(map, indent + 2),
                Value::Array(items) if !items.is_empty() => self.list(items, indent + 2),
                leaf => {
                    self.leaf(leaf, indent + 2);
                    self.out.push('\n');
                }
            }
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) if fits_literal_block(text) => self.literal_block(text, indent),
            Value::String(text) => self.scalar_text(text),
            // Empty containers, numbers, bools and null are the same in JSON.
            other => write!(self.out, "{other}").expect("writing to a string cannot fail"),
        }
    }

    fn scalar_text(&mut self, text: &str) {
        if is_plain(text) {
            self.out.push_str(text);
        } else {
            self.quoted(text);
        }
    }

    fn quoted(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            let code = u32::from(c);
            let result = match c {
                '"' => self.out.write_str("\\\""),
                '\\' => self.out.write_str("\\\\"),
                '\n' => self.out.write_str("\\n"),
                '\r' => self.out.write_str("\\r"),
                '\t' => self.out.write_str("\\t"),
                _ if is_printable(c) => self.out.write_char(c),
                _ if code < 0x100 => write!(self.out, "\\x{code:02x}"),
                _ if code < 0x1_0000 => write!(self.out, "\\u{code:04x}"),
                _ => write!(self.out, "\\U{code:08x}"),
            };
            result.expect("writing to a string cannot fail");
        }
        self.out.push('"');
    }

    fn literal_block(&mut self, text: &str, indent: usize) {
        let body = text.trim_end_matches('\n');
        let breaks = text.len() - body.len();
        self.out.push_str(match breaks {
            0 => "|-",
            1 => "|",
            _ => "|+",
        });
        for line in body.split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.indent(indent);
                self.out.push_str(line);
            }
        }
        // The caller ends the last line; `|+` keeps every further one.
        self.out
            .extend(std::iter::repeat_n('\n', breaks.saturating_sub(1)));
    }
}

/// Whether the text can stand unquoted in every context without being read as anything else.
fn is_plain(text: &str) -> bool {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let word = WORDS.iter().any(|w| w.eq_ignore_ascii_case(text));
    starts_well && !word && !text.ends_with([' ', ':']) && only_safe_characters(text)
}

fn only_safe_characters(text: &str) -> bool {
    let followers = text.chars().skip(1).chain(std::iter::once(' '));
    text.chars().zip(followers).all(|(c, next)| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '/' | '-' | '+' | '=' | '@' => true,
        ' ' => next.is_ascii_alphanumeric(),
        ':' => next.is_ascii_alphanumeric() || next == '/',
        _ => false,
    })
}

/// Whether the text reads best, and safely, as a `|` block: several lines of printable text whose
/// white space no reader could take for indentation or drop.
fn fits_literal_block(text: &str) -> bool {
    let starts_well = !text.starts_with([' ', '\t', '\n']);
    let clean = |line: &str| !line.ends_with([' ', '\t']);
    text.contains('\n')
        && starts_well
        && text
            .chars()
            .all(|c| c == '\n' || c == '\t' || is_printable(c))
        && text.split('\n').all(clean)
}

/// YAML's printable characters, less the breaks and marks that readers treat specially.
fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}
