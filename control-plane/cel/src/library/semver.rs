//! Semantic versions (2.0.0).

use std::cmp::Ordering;

use super::{Opaque, Table, opaque, text};
use crate::error::{Error, Result};
use crate::value::Value;

pub(super) const TABLE: Table = &[
    ("semver", |args| {
        let version = read(args)?.map_err(Error::new)?;
        Ok(Value::opaque(Opaque::Semver(version)))
    }),
    ("isSemver", |args| Ok(Value::Bool(read(args)?.is_ok()))),
    ("major", |args| {
        Ok(Value::Int(version(args)?.numbers[0] as i64))
    }),
    ("minor", |args| {
        Ok(Value::Int(version(args)?.numbers[1] as i64))
    }),
    ("patch", |args| {
        Ok(Value::Int(version(args)?.numbers[2] as i64))
    }),
];

/// A version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<String>,
}

fn version<'v>(args: &'v [Value<'_>]) -> Result<&'v Semver> {
    match opaque(args, 0)? {
        Opaque::Semver(version) => Ok(version),
        _ => Err(Error::no_overload()),
    }
}

fn read(args: &[Value<'_>]) -> Result<std::result::Result<Semver, String>> {
    let written = text(args, 0)?;
    Ok(match args.get(1) {
        Some(Value::Bool(true)) => Semver::parse(&normalized(written)),
        _ => Semver::parse(written),
    })
}

// `v1.0`, `01.02` and the like are brought into form.
fn normalized(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(end);
    let strip = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        stripped => stripped.to_owned(),
    };
    let mut parts: Vec<String> = core.splitn(3, '.').map(strip).collect();
    while parts.len() < 3 {
        parts.push("0".into());
    }
    format!("{}{rest}", parts.join("."))
}

impl Semver {
    fn parse(text: &str) -> std::result::Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let (rest, build) = match text.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (text, None),
        };
        let (core, pre) = match rest.split_once('-') {
            Some((core, pre)) => (core, Some(pre)),
            None => (rest, None),
        };
        let parts: Vec<&str> = core.split('.').collect();
        let [major, minor, patch] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let mut numbers = [0; 3];
        for (place, part) in numbers.iter_mut().zip([major, minor, patch]) {
            *place = number(part)
                .ok_or_else(|| format!("Invalid character(s) found in version number {part:?}"))?;
        }
        let idents = |list: Option<&str>| -> Vec<String> {
            list.map(|list| list.split('.').map(str::to_owned).collect())
                .unwrap_or_default()
        };
        let (pre, build) = (idents(pre), idents(build));
        let fits = |part: &String| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let leading = |part: &String| {
            part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit())
        };
        if !pre.iter().chain(&build).all(fits) || pre.iter().any(leading) {
            return Err("Invalid character(s) found in prerelease or build metadata".into());
        }
        Ok(Semver { numbers, pre })
    }

    /// By precedence; build metadata does not count.
    pub(super) fn order(&self, other: &Semver) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let parts = self.pre.iter().zip(&other.pre);
                let first = parts.map(|(a, b)| part_order(a, b)).find(|o| o.is_ne());
                first.unwrap_or(self.pre.len().cmp(&other.pre.len()))
            }
        })
    }
}

fn number(part: &str) -> Option<u64> {
    let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let leading = part.len() > 1 && part.starts_with('0');
    (digits && !leading).then(|| part.parse().ok()).flatten()
}

// Numbers come before words and go by value.
fn part_order(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}
