//! YAML in and out, as far as Kubernetes uses it: YAML that means the same as some JSON.
//!
//! Upstream reads YAML 1.1 and turns it into JSON first, so `yes` is a bool, `0755` is octal, and
//! a whole float such as `1.0` or `1e3` arrives as an integer.

mod duplicates;
mod emit;

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options};

pub use emit::to_string;

use crate::normalize::whole_float_as_integer;

/// How deep block YAML may nest. The reader recurses, and this many of its frames fit a thread's
/// stack with room to spare; JSON, which clients send as YAML too, has its own limit.
const MAX_DEPTH: usize = 64;

/// The most nodes a document may have, aliases expanded; a key is one, too.
const MAX_NODES: usize = 2 * crate::MAX_PARTS;

/// The most nodes that may sit under anchors or come from aliases: manifests use few, bombs many.
const MAX_ALIASED: usize = 100_000;

/// Why a text is not YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error converting YAML to JSON: yaml: {0}")]
pub struct YamlError(String);

/// A parsed document.
#[derive(Debug)]
pub struct Parsed {
    /// The value. The last of several duplicates wins.
    pub value: Value,
    /// What a strict decoder would refuse: one message about all duplicate keys, if there are any.
    pub strict: Vec<String>,
}

/// Parses one YAML document.
pub fn parse(bytes: &[u8]) -> Result<Parsed, YamlError> {
    // kubectl sends JSON as YAML, and the JSON reader is quicker.
    if bytes.trim_ascii_start().starts_with(b"{")
        && let Ok(mut parsed) = crate::json::parse(bytes)
    {
        integers(&mut parsed.value);
        let strict = match parsed.strict.is_empty() {
            true => Vec::new(),
            false => in_yaml_words(bytes).unwrap_or(parsed.strict),
        };
        return Ok(Parsed {
            value: parsed.value,
            strict,
        });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| YamlError("control characters are not allowed".to_owned()))?;
    match read(text, DuplicateKeyPolicy::Error) {
        Ok(value) => Ok(Parsed {
            value,
            strict: Vec::new(),
        }),
        Err(error) => match duplicate(&error) {
            None => Err(YamlError(error.to_string())),
            Some(first) => {
                let value = read(text, DuplicateKeyPolicy::LastWins)
                    .map_err(|e| YamlError(e.to_string()))?;
                Ok(Parsed {
                    value,
                    strict: vec![duplicates::find(text).unwrap_or(first)],
                })
            }
        },
    }
}

fn in_yaml_words(bytes: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(vec![duplicates::find(text)?])
}

fn read(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Value, serde_saphyr::Error> {
    let options = options(duplicates);
    let mut value = serde_saphyr::from_str_with_options::<Value>(text, options)?;
    integers(&mut value);
    Ok(value)
}

fn options(duplicates: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_documents: 2,
            max_recorded_anchor_events: MAX_ALIASED,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIASED,
        },
        duplicate_keys: duplicates,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// Upstream's words for a duplicate key.
fn duplicate(error: &serde_saphyr::Error) -> Option<String> {
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error else {
        return None;
    };
    let key = key.as_deref().unwrap_or_default();
    let line = location.line();
    Some(format!(
        "yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map"
    ))
}

fn integers(value: &mut Value) {
    match value {
        Value::Number(number) => *value = whole_float_as_integer(number.clone()),
        Value::Array(items) => items.iter_mut().for_each(integers),
        Value::Object(map) => map.values_mut().for_each(integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
