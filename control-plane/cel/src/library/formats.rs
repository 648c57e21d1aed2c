//! Named formats: what a name or a text must look like, and the words for when it does not.

use std::sync::LazyLock;

use regex::Regex;

use super::{Opaque, Table, opaque, text};
use crate::error::{Error, Result};
use crate::value::{Value, decode_base64};

/// A format, as a row of [`FORMATS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format(usize);

struct Row {
    name: &'static str,
    /// What upstream charges for its pattern.
    pattern_size: u64,
    check: fn(&str) -> Vec<String>,
}

const FORMATS: [Row; 13] = [
    row("dns1123Label", 30, |t| name(t, &LABEL, 63, false)),
    row("dns1123Subdomain", 60, |t| name(t, &SUBDOMAIN, 253, false)),
    row("dns1035Label", 30, |t| name(t, &LABEL_1035, 63, false)),
    row("qualifiedName", 60, qualified),
    row("dns1123LabelPrefix", 30, |t| name(t, &LABEL, 63, true)),
    row("dns1123SubdomainPrefix", 60, |t| {
        name(t, &SUBDOMAIN, 253, true)
    }),
    row("dns1035LabelPrefix", 30, |t| name(t, &LABEL_1035, 63, true)),
    row("labelValue", 40, |t| match t.is_empty() {
        true => Vec::new(),
        false => name(t, &LABEL_VALUE, 63, false),
    }),
    row("uri", 1, uri),
    row("uuid", 50, |t| match UUID.is_match(t) {
        true => Vec::new(),
        false => vec!["does not match the UUID format".into()],
    }),
    row("byte", 1, |t| match decode_base64(t) {
        Some(_) => Vec::new(),
        None => vec!["invalid base64".into()],
    }),
    row("date", 1, |t| {
        match t.len() == 10 && t.parse::<jiff::civil::Date>().is_ok() {
            true => Vec::new(),
            false => vec!["invalid date".into()],
        }
    }),
    row("datetime", 1, |t| match crate::time::timestamp(t) {
        Some(_) => Vec::new(),
        None => vec!["invalid datetime".into()],
    }),
];

const fn row(name: &'static str, pattern_size: u64, check: fn(&str) -> Vec<String>) -> Row {
    Row {
        name,
        pattern_size,
        check,
    }
}

macro_rules! named {
    ($($function:literal)*) => {
        &[
            ("format.named", |args| {
                let found = find(text(args, 0)?);
                Ok(match found {
                    Some(format) => Value::some(Value::opaque(Opaque::Format(format))),
                    None => Value::Optional(None),
                })
            }),
            ("validate", validate),
            $((concat!("format.", $function), |_| make($function)),)*
        ]
    };
}

pub(super) const TABLE: Table = named!(
    "dns1123Label" "dns1123Subdomain" "dns1035Label" "qualifiedName" "dns1123LabelPrefix"
    "dns1123SubdomainPrefix" "dns1035LabelPrefix" "labelValue" "uri" "uuid" "byte" "date" "datetime"
);

fn find(name: &str) -> Option<Format> {
    FORMATS.iter().position(|row| row.name == name).map(Format)
}

fn make<'a>(name: &str) -> Result<Value<'a>> {
    let format = find(name).ok_or_else(Error::no_overload)?;
    Ok(Value::opaque(Opaque::Format(format)))
}

impl Format {
    pub(crate) fn pattern_size(self) -> u64 {
        FORMATS[self.0].pattern_size
    }
}

fn validate<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let Opaque::Format(format) = opaque(args, 0)? else {
        return Err(Error::no_overload());
    };
    let problems = (FORMATS[format.0].check)(text(args, 1)?);
    Ok(match problems.is_empty() {
        true => Value::Optional(None),
        false => Value::some(Value::list(
            problems.into_iter().map(Value::string).collect(),
        )),
    })
}

/// A pattern with the words for what does not match it.
struct Named {
    regex: LazyLock<Regex>,
    words: &'static str,
}

macro_rules! pattern {
    ($name:ident, $pattern:literal, $words:literal) => {
        static $name: Named = Named {
            regex: LazyLock::new(|| {
                Regex::new(concat!("^", $pattern, "$")).expect("the pattern is a constant")
            }),
            words: concat!($words, ", regex used for validation is '", $pattern, "')"),
        };
    };
}

pattern!(
    LABEL,
    "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc'"
);
pattern!(
    SUBDOMAIN,
    "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com'"
);
pattern!(
    LABEL_1035,
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'"
);
pattern!(
    LABEL_VALUE,
    "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345'"
);
pattern!(
    QUALIFIED,
    "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc'"
);

static UUID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")
        .expect("the pattern is a constant")
});

fn name(text: &str, pattern: &Named, max: usize, prefix: bool) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > max {
        problems.push(format!("must be no more than {max} bytes"));
    }
    // A prefix may end in a dash: something is put behind it.
    let tested = match (prefix, text.strip_suffix('-')) {
        (true, Some(start)) => format!("{start}a"),
        _ => text.to_owned(),
    };
    if !pattern.regex.is_match(&tested) {
        problems.push(pattern.words.to_owned());
    }
    problems
}

fn qualified(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name_part = match text.split_once('/') {
        Some((prefix, rest)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let found = name(prefix, &SUBDOMAIN, 253, false);
                problems.extend(found.into_iter().map(|why| format!("prefix part {why}")));
            }
            rest
        }
        None => text,
    };
    if name_part.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name_part.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !QUALIFIED.regex.is_match(name_part) {
        problems.push(QUALIFIED.words.to_owned());
    }
    problems
}

fn uri(text: &str) -> Vec<String> {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    let good = scheme
        .is_some_and(|s| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric()))
        || text.starts_with('/');
    match good && !text.contains(' ') {
        true => Vec::new(),
        false => vec![format!("parse {text:?}: invalid URI for request")],
    }
}
