//! Texts: the standard functions, cel-go's string extension, and patterns.

mod format;

use regex::Regex;

use super::{Table, int, text, texts};
use crate::error::{Error, Result};
use crate::pattern;
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("contains", contains),
    ("startsWith", starts_with),
    ("endsWith", ends_with),
    ("matches", matches),
    ("find", find),
    ("findAll", find_all),
    ("charAt", char_at),
    ("format", format::run),
    ("join", join),
    ("lowerAscii", lower),
    ("upperAscii", upper),
    ("replace", replace),
    ("split", split),
    ("substring", substring),
    ("trim", trim),
    ("strings.quote", quote),
    ("jsonpatch.escapeKey", escape_key),
];

type Args<'s, 'a> = &'s mut [Value<'a>];

fn contains<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Bool(text(args, 0)?.contains(text(args, 1)?)))
}

fn starts_with<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Bool(text(args, 0)?.starts_with(text(args, 1)?)))
}

fn ends_with<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::Bool(text(args, 0)?.ends_with(text(args, 1)?)))
}

fn compiled(args: &[Value<'_>]) -> Result<Regex> {
    let pattern = text(args, 1)?;
    pattern::compile(pattern)
        .map_err(|why| Error::new(format!("error parsing regexp: {why}: `{pattern}`")))
}

fn matches<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    with_pattern("matches", &compiled(args)?, args)
}

fn find<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    with_pattern("find", &compiled(args)?, args)
}

fn find_all<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    with_pattern("findAll", &compiled(args)?, args)
}

/// What a function does with a pattern that is compiled.
pub(super) fn with_pattern<'a>(
    function: &str,
    pattern: &Regex,
    args: &[Value<'a>],
) -> Result<Value<'a>> {
    let within = text(args, 0)?;
    Ok(match function {
        "matches" => Value::Bool(pattern.is_match(within)),
        "find" => Value::string(pattern.find(within).map_or("", |found| found.as_str())),
        _ => {
            let limit = match args.get(2) {
                Some(_) => usize::try_from(int(args, 2)?).unwrap_or(usize::MAX),
                None => usize::MAX,
            };
            let found = pattern.find_iter(within).take(limit);
            Value::list(found.map(|found| Value::string(found.as_str())).collect())
        }
    })
}

fn char_at<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (within, index) = (text(args, 0)?, int(args, 1)?);
    let length = within.chars().count() as i64;
    if index < 0 || index > length {
        return Err(Error::new(format!("index out of range: {index}")));
    }
    let found = within.chars().nth(index as usize);
    Ok(Value::string(found.map(String::from).unwrap_or_default()))
}

/// Where a text is in another, in code points.
pub(super) fn index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>> {
    let (within, wanted): (Vec<char>, Vec<char>) = (
        text(args, 0)?.chars().collect(),
        text(args, 1)?.chars().collect(),
    );
    let from = match args.get(2) {
        Some(_) => offset(int(args, 2)?, within.len())?,
        None => 0,
    };
    if wanted.is_empty() {
        return Ok(Value::Int(from as i64));
    }
    let found = (from..within.len()).find(|at| within[*at..].starts_with(&wanted));
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

/// Where it is for the last time.
pub(super) fn last_index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>> {
    let (within, wanted): (Vec<char>, Vec<char>) = (
        text(args, 0)?.chars().collect(),
        text(args, 1)?.chars().collect(),
    );
    let last = match args.get(2) {
        Some(_) => offset(int(args, 2)?, within.len())?,
        None => within.len(),
    };
    if wanted.is_empty() {
        return Ok(Value::Int(last as i64));
    }
    let mut places = (0..=last.min(within.len().saturating_sub(1))).rev();
    let found = places.find(|at| within[*at..].starts_with(&wanted));
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

fn offset(index: i64, length: usize) -> Result<usize> {
    usize::try_from(index)
        .ok()
        .filter(|index| *index <= length)
        .ok_or_else(|| Error::new(format!("index out of range: {index}")))
}

fn join<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let separator = match args.len() {
        1 => "",
        _ => text(args, 1)?,
    };
    let Value::List(list) = &args[0] else {
        return Err(Error::no_overload());
    };
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            out.push_str(separator);
        }
        match item {
            Value::String(text) => out.push_str(&text),
            other => {
                return Err(Error::new(format!(
                    "join: invalid input: {}",
                    other.type_name()
                )));
            }
        }
    }
    Ok(Value::string(out))
}

fn lower<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::string(text(args, 0)?.to_ascii_lowercase()))
}

fn upper<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::string(text(args, 0)?.to_ascii_uppercase()))
}

fn replace<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (within, from, to) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let limit = match args.get(3) {
        Some(_) => int(args, 3)?,
        None => -1,
    };
    let grown = within.len().saturating_add(
        to.len()
            .saturating_mul(within.len() / from.len().max(1) + 1),
    );
    // Longer than any request; the cost of making it was not charged for.
    if grown > 64 << 20 {
        return Err(Error::new("replace: the result is too long"));
    }
    Ok(Value::string(match usize::try_from(limit) {
        Ok(limit) => within.replacen(from, to, limit),
        Err(_) => within.replace(from, to),
    }))
}

fn split<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let (within, separator) = (text(args, 0)?, text(args, 1)?);
    let limit = match args.get(2) {
        Some(_) => int(args, 2)?,
        None => -1,
    };
    let limit = match limit {
        0 => return Ok(Value::list(Vec::new())),
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let parts: Vec<Value<'a>> = match separator.is_empty() {
        // Go splits between characters, and leaves what is over in the last part.
        true => {
            let mut parts = Vec::new();
            let mut rest = within;
            while let Some(c) = rest.chars().next() {
                if parts.len() + 1 == limit {
                    parts.push(Value::string(rest));
                    break;
                }
                parts.push(Value::string(c.to_string()));
                rest = &rest[c.len_utf8()..];
            }
            parts
        }
        false => within.splitn(limit, separator).map(Value::string).collect(),
    };
    Ok(Value::list(parts))
}

fn substring<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let within = text(args, 0)?;
    let length = within.chars().count();
    let start = offset(int(args, 1)?, length)?;
    let end = match args.get(2) {
        Some(_) => offset(int(args, 2)?, length)?,
        None => length,
    };
    if start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(Error::new(message));
    }
    let part: String = within.chars().skip(start).take(end - start).collect();
    Ok(Value::string(part))
}

fn trim<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::string(text(args, 0)?.trim()))
}

fn quote<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    Ok(Value::string(texts::quoted(text(args, 0)?)))
}

// A key as a part of a JSON pointer.
fn escape_key<'a>(args: Args<'_, 'a>) -> Result<Value<'a>> {
    let key = text(args, 0)?;
    Ok(Value::string(key.replace('~', "~0").replace('/', "~1")))
}
