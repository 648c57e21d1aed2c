//! From JSON to messages, with protobuf's tolerance: both spellings of a name, numbers as strings, `null` for
//! nothing; unknown fields and enum names are left out and noted. What does not fit is an error with its place;
//! reading goes on after it, so that every such error is found.

use std::collections::BTreeMap;

use super::declare::{Message, Value};
use super::json::{self, Json, Node};

/// Something in a configuration, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The field in proto names, such as `cluster_config.vm_type`; empty for the whole text.
    pub path: String,
    /// What was found.
    pub problem: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

/// What was found beside the values.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings {
    /// What is wrong.
    pub errors: Vec<Finding>,
    /// What was left out: unknown fields and unknown enum names.
    pub notices: Vec<Finding>,
}

/// Reads `text` into `message`; every error and notice is in the answer.
pub fn decode(text: &[u8], message: &mut dyn Message) -> Findings {
    let mut decoder = Decoder {
        text,
        path: Vec::new(),
        findings: Findings::default(),
    };
    match json::parse(text) {
        Ok(node) => decoder.message(&node, message),
        Err(malformed) => decoder.error(malformed.at, malformed.problem),
    }
    decoder.findings
}

/// Where the reading stands and what it found.
pub struct Decoder<'a> {
    text: &'a [u8],
    path: Vec<String>,
    findings: Findings,
}

impl Decoder<'_> {
    /// Reads an object as a message.
    pub fn message(&mut self, node: &Node<'_>, message: &mut dyn Message) {
        let Json::Object(entries) = &node.value else {
            return self.unfit(node, "an object");
        };
        let rows = message.rows();
        let mut seen = vec![false; rows.len()];
        for entry in entries {
            let Some(index) = rows.iter().position(|row| row.is_spelled(&entry.key)) else {
                self.path.push(format!(".{}", entry.key));
                self.notice(entry.at, "unknown field, left out".into());
                self.path.pop();
                continue;
            };
            let name = rows[index].name;
            self.path.push(format!(".{name}"));
            if std::mem::replace(&mut seen[index], true) {
                self.error(entry.at, "given twice; a field has one value".into());
            } else if entry.node.value != Json::Null {
                let value = message.value_mut(name);
                let value = value.expect("every row of a message names one of its fields");
                value.decode(&entry.node, self);
            }
            self.path.pop();
        }
    }

    /// Reads a list of strings.
    pub fn list(&mut self, node: &Node<'_>, list: &mut Vec<String>) {
        let Json::List(items) = &node.value else {
            return self.unfit(node, "a list");
        };
        for (index, item) in items.iter().enumerate() {
            self.path.push(format!("[{index}]"));
            list.extend(self.text(item));
            self.path.pop();
        }
    }

    /// Reads an object as a map.
    pub fn map<T: Value + Default>(&mut self, node: &Node<'_>, map: &mut BTreeMap<String, T>) {
        let Json::Object(entries) = &node.value else {
            return self.unfit(node, "an object");
        };
        for entry in entries {
            self.path.push(format!("[{:?}]", entry.key));
            if map.contains_key(&*entry.key) {
                self.error(entry.at, "given twice; a key has one value".into());
            } else {
                let value = map.entry(entry.key.clone().into_owned()).or_default();
                value.decode(&entry.node, self);
            }
            self.path.pop();
        }
    }

    /// Reads a string.
    pub fn text(&mut self, node: &Node<'_>) -> Option<String> {
        match &node.value {
            Json::Text(text) => Some(text.clone().into_owned()),
            _ => self.unfit_none(node, "a string"),
        }
    }

    /// Reads a bool; the string "true" is none.
    pub fn flag(&mut self, node: &Node<'_>) -> Option<bool> {
        match node.value {
            Json::Bool(flag) => Some(flag),
            _ => self.unfit_none(node, "true or false"),
        }
    }

    /// Reads an int32: a whole number in any notation, perhaps in quotes.
    pub fn number(&mut self, node: &Node<'_>) -> Option<i32> {
        let number = numeral(&node.value).and_then(int32);
        number
            .or_else(|| self.unfit_none(node, "a whole number between -2147483648 and 2147483647"))
    }

    /// Reads a double, perhaps in quotes, where `NaN` and `Infinity` may stand.
    pub fn real(&mut self, node: &Node<'_>) -> Option<f64> {
        let named = match &node.value {
            Json::Text(text) => match &**text {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        let parsed = || {
            numeral(&node.value)?
                .parse()
                .ok()
                .filter(|real: &f64| real.is_finite())
        };
        named
            .or_else(parsed)
            .or_else(|| self.unfit_none(node, "a number"))
    }

    /// Reads an enum by name (`known` gives its number) or by number. An unknown name is left out and noted.
    pub fn choice(&mut self, node: &Node<'_>, known: &dyn Fn(&str) -> Option<i32>) -> Option<i32> {
        match &node.value {
            Json::Text(name) => {
                let number = known(name);
                if number.is_none() {
                    self.notice(node.at, format!("unknown value {name:?}, left out"));
                }
                number
            }
            Json::Number(text) => {
                int32(text).or_else(|| self.unfit_none(node, "the number of a value"))
            }
            _ => self.unfit_none(node, "the name of a value"),
        }
    }

    fn unfit_none<T>(&mut self, node: &Node<'_>, expected: &str) -> Option<T> {
        self.unfit(node, expected);
        None
    }

    // Says the kind and not the value: it may be a secret.
    fn unfit(&mut self, node: &Node<'_>, expected: &str) {
        let found = match &node.value {
            Json::Number(_) if expected.contains("number") => "this one",
            Json::Text(_) if expected.contains("number") => "this string",
            value => value.kind(),
        };
        self.error(node.at, format!("must be {expected}, not {found}"));
    }

    fn error(&mut self, at: usize, problem: String) {
        let finding = self.finding(at, problem);
        self.findings.errors.push(finding);
    }

    fn notice(&mut self, at: usize, problem: String) {
        let finding = self.finding(at, problem);
        self.findings.notices.push(finding);
    }

    fn finding(&self, at: usize, problem: String) -> Finding {
        let before = String::from_utf8_lossy(&self.text[..at.min(self.text.len())]);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let path = self.path.concat();
        Finding {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            path: path.strip_prefix('.').unwrap_or(&path).to_owned(),
            problem,
        }
    }
}

/// The text of a number, written as one or in quotes.
fn numeral<'n>(value: &'n Json<'_>) -> Option<&'n str> {
    match value {
        Json::Number(text) => Some(text),
        Json::Text(text) if json::is_number(text) => Some(text),
        _ => None,
    }
}

/// The int32 that a number is exactly: `1e3`, `1.50e1` and `-0` are whole, `1.5` is not.
fn int32(text: &str) -> Option<i32> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let negative = whole.starts_with('-');
    let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
    if digits.bytes().all(|b| b == b'0') {
        return Some(0);
    }
    let significant = digits.trim_end_matches('0');
    let whole_digits = i64::try_from(digits.len() - fraction.len()).ok()?;
    let point = whole_digits.checked_add(exponent.parse().ok()?)?;
    let zeros = point.checked_sub(i64::try_from(significant.len()).ok()?)?;
    let zeros = usize::try_from(zeros).ok().filter(|&zeros| zeros < 10)?;
    let magnitude: i64 = format!("{significant}{}", "0".repeat(zeros)).parse().ok()?;
    i32::try_from(if negative { -magnitude } else { magnitude }).ok()
}

#[cfg(test)]
mod tests;
