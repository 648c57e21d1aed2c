//! Regular expressions as Go writes them, for an engine that differs in a few places.
//!
//! Both are of the RE2 family. Go's `\d`, `\w`, `\s` and `\b` know ASCII only; inside brackets it takes
//! `[`, `&&`, `--` and `~~` for what they are; it has `\Q…\E` and `\z` and bounds repetitions at 1000.

use regex::{Regex, RegexBuilder};

/// How large a compiled expression may get, so that no schema takes the server's memory.
const MAX_SIZE: usize = 4 << 20;

/// Compiles an expression of Go's syntax; the error is for people.
pub fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(&translated(text))
        .size_limit(MAX_SIZE)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            text.lines().last().unwrap_or_default().trim().to_owned()
        })
}

fn translated(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                None => out.push('\\'),
                Some('Q') => quote(&mut chars, &mut out),
                Some(escaped) => out.push_str(&escape(escaped, in_class)),
            },
            '[' if in_class && chars.peek() == Some(&':') => out.push('['),
            '[' if in_class => out.push_str("\\["),
            '[' => {
                in_class = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                // A bracket that stands first is one of the characters.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            ']' if in_class => {
                // The end of `[:alpha:]` is not the end of the class.
                in_class = out.ends_with(':')
                    && out.rfind("[:").is_some_and(|at| !out[at..].contains(']'));
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && chars.peek() == Some(&'-') => out.push_str("\\-"),
            other => out.push(other),
        }
    }
    out
}

fn escape(c: char, in_class: bool) -> String {
    match (c, in_class) {
        ('d', false) => "[0-9]".into(),
        ('d', true) => "0-9".into(),
        ('D', false) => "[^0-9]".into(),
        ('w', false) => "[0-9A-Za-z_]".into(),
        ('w', true) => "0-9A-Za-z_".into(),
        ('W', false) => "[^0-9A-Za-z_]".into(),
        ('s', false) => "[\\t\\n\\f\\r ]".into(),
        ('s', true) => "\\t\\n\\f\\r ".into(),
        ('S', false) => "[^\\t\\n\\f\\r ]".into(),
        ('b', false) => "(?-u:\\b)".into(),
        // Go takes an escaped sign for itself; letters have meanings of their own.
        (other, _) if other.is_alphanumeric() || other == '_' => format!("\\{other}"),
        (other, _) => regex::escape(&other.to_string()),
    }
}

fn quote(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut quoted = String::new();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek() == Some(&'E') {
            chars.next();
            break;
        }
        quoted.push(c);
    }
    out.push_str(&regex::escape(&quoted));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[a-z[]+$", "a[", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]+$", "b", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[:alpha:]-]+$", "ab-", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^a\/b$", "a/b", true),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
            (r"^(\*|\d{1,2})$", "*", true),
            (r"\bab\b", "x ab y", true),
        ];
        for (pattern, text, matches) in cases {
            let compiled = compile(pattern).expect(pattern);
            assert_eq!(compiled.is_match(text), matches, "{pattern} {text}");
        }
        assert!(compile("a(b").is_err());
        assert!(compile("(?=a)").is_err(), "Go has no looking ahead either");
    }
}
