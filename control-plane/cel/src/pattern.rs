//! Regular expressions as Go writes them, for an engine of the same family.
//!
//! Both take linear time and know no look-around. What is written differently is translated: `\d`, `\w`, `\s` and
//! `\b` are about ASCII in Go; inside brackets Go takes `[`, `&&`, `--` and `~~` as they stand; `\Q…\E` quotes.

use regex::{Regex, RegexBuilder};

/// A compiled pattern stays below this; Go bounds repetitions instead.
const MAX_SIZE: usize = 4 << 20;
/// Go's largest repetition.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated)
        .size_limit(MAX_SIZE)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        })
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\\' => taken = escape(rest, class, &mut out)?,
            '[' if class && rest.starts_with("[:") => out.push('['),
            '[' if class => out.push_str("\\["),
            '[' => {
                class = true;
                taken = open_class(rest, &mut out);
            }
            ']' => {
                class = false;
                out.push(']');
            }
            '&' | '-' | '~' if class && rest[1..].starts_with(c) => {
                out.push('\\');
                out.push(c);
                out.push('\\');
                out.push(c);
                taken = 2;
            }
            '{' if !class => check_repeat(rest, &mut out)?,
            c => out.push(c),
        }
        if c == '[' && class && rest.starts_with("[:") && taken == 1 {
            // A named class is copied as a whole: its brackets are not ours.
            if let Some(end) = rest.find(":]") {
                out.push_str(&rest[1..end + 2]);
                taken = end + 2;
            }
        }
        rest = &rest[taken..];
    }
    Ok(out)
}

// `[`, `[^`, and a closing bracket that comes first, which is one of the characters.
fn open_class(rest: &str, out: &mut String) -> usize {
    let head = if rest.starts_with("[^") { "[^" } else { "[" };
    out.push_str(head);
    match rest[head.len()..].starts_with(']') {
        true => {
            out.push_str("\\]");
            head.len() + 1
        }
        false => head.len(),
    }
}

fn escape(rest: &str, class: bool, out: &mut String) -> Result<usize, String> {
    let Some(c) = rest[1..].chars().next() else {
        return Err("trailing backslash at end of expression".into());
    };
    if c == 'Q' {
        let quoted = &rest[2..];
        let end = quoted.find("\\E").unwrap_or(quoted.len());
        out.push_str(&regex::escape(&quoted[..end]));
        return Ok((2 + end + 2).min(rest.len()));
    }
    let text = match (c, class) {
        ('d', true) => "0-9",
        ('d', false) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('w', true) => "0-9A-Za-z_",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('s', true) => "\\t\\n\\x0c\\r ",
        ('s', false) => "[\\t\\n\\x0c\\r ]",
        ('S', _) => "[^\\t\\n\\x0c\\r ]",
        ('b', false) => "(?-u:\\b)",
        ('z', false) => "\\z",
        _ => {
            out.push('\\');
            out.push(c);
            return Ok(1 + c.len_utf8());
        }
    };
    out.push_str(text);
    Ok(2)
}

// Braces that are no repetition are characters in Go.
fn check_repeat(rest: &str, out: &mut String) -> Result<(), String> {
    let inner = rest[1..].split_once('}').map(|(inner, _)| inner);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = inner.and_then(|inner| match inner.split_once(',') {
        None => is_number(inner).then(|| vec![inner]),
        Some((low, "")) => is_number(low).then(|| vec![low]),
        Some((low, high)) => (is_number(low) && is_number(high)).then(|| vec![low, high]),
    });
    let Some(numbers) = numbers else {
        out.push_str("\\{");
        return Ok(());
    };
    let too_many = |text: &&str| text.parse::<u32>().map_or(true, |n| n > MAX_REPEAT);
    if numbers.iter().any(too_many) {
        return Err(format!(
            "invalid repeat count: `{{{}}}`",
            inner.unwrap_or_default()
        ));
    }
    out.push('{');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let cases = [
            (r"^\d+$", "123", true),
            (r"^\d+$", "١٢٣", false),
            (r"^[\w.-]+$", "a.b-c_1", true),
            (r"[[:alpha:]]", "1a", true),
            (r"^[^]]+$", "abc", true),
            (r"^[]a]+$", "]a", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[a]+$", "[a", true),
            (r"\Qa.b\E$", "xa.b", true),
            (r"\Qa.b\E$", "xaxb", false),
            (r"\bfoo\b", "a foo b", true),
            (r"^a{2}$", "aa", true),
            (r"^a{$", "a{", true),
            (r"(?i)^FOO$", "foo", true),
            (r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true),
        ];
        for (pattern, text, matches) in cases {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(regex.is_match(text), matches, "{pattern} on {text}");
        }
        for bad in ["(", "a{1001}", "(?=a)", r"\"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
