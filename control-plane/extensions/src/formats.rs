//! Texts with a format: those that upstream's registry knows; any other format allows anything.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

type Check = fn(&str) -> bool;

/// Formats by their name without dashes, as upstream compares them.
const FORMATS: &[(&str, Check)] = &[
    ("bsonobjectid", |t| t.len() == 24 && is_hex(t)),
    ("uri", is_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", |t| t.parse::<Ipv4Addr>().is_ok()),
    ("ipv6", |t| t.contains(':') && t.parse::<Ipv6Addr>().is_ok()),
    ("cidr", is_cidr),
    ("mac", is_mac),
    ("uuid", |t| is_uuid(t, None)),
    ("uuid3", |t| is_uuid(t, Some('3'))),
    ("uuid4", |t| is_uuid(t, Some('4')) && has_variant(t)),
    ("uuid5", |t| is_uuid(t, Some('5')) && has_variant(t)),
    ("isbn", |t| is_isbn10(t) || is_isbn13(t)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |t| matches(&SSN, t)),
    ("hexcolor", |t| matches(&HEX_COLOR, t)),
    ("rgbcolor", |t| matches(&RGB_COLOR, t)),
    ("byte", is_base64),
    ("password", |_| true),
    ("date", |t| {
        t.len() == 10 && t.parse::<jiff::civil::Date>().is_ok()
    }),
    ("duration", is_duration),
    ("datetime", is_date_time),
    ("k8sshortname", |t| {
        kinds::validation::names::dns1123_label(t).is_empty()
    }),
    ("k8slongname", |t| {
        kinds::validation::names::dns1123_subdomain(t).is_empty()
    }),
];

/// What a client should hear about the formats of a definition's schemas that mean nothing, and that the stored
/// definition does not have already.
pub fn warnings(definition: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(unrecognized).unwrap_or_default();
    let now = unrecognized(definition).into_iter();
    now.filter(|format| !before.contains(format))
        .map(|format| format!("unrecognized format {format:?}"))
        .collect()
}

fn unrecognized(definition: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let versions = definition["spec"]["versions"].as_array();
    for version in versions.into_iter().flatten() {
        collect(&version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

/// Where a schema has others below it: alone or in a list, or by name.
const BELOW: [&str; 7] = [
    "items",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "additionalProperties",
    "additionalItems",
];
const BELOW_BY_NAME: [&str; 2] = ["properties", "patternProperties"];

fn collect<'v>(schema: &'v Value, found: &mut Vec<&'v str>) {
    let text = |field: &str| schema[field].as_str().unwrap_or_default();
    let format = text("format");
    if !format.is_empty() && !is_known(text("type"), format) {
        found.push(format);
    }
    for below in BELOW.iter().filter_map(|field| schema.get(field)) {
        match below {
            Value::Array(all) => all.iter().for_each(|one| collect(one, found)),
            one => collect(one, found),
        }
    }
    for below in BELOW_BY_NAME
        .iter()
        .filter_map(|field| schema[field].as_object())
    {
        below.values().for_each(|one| collect(one, found));
    }
}

/// Whether a format means something for a type.
fn is_known(ty: &str, format: &str) -> bool {
    match ty {
        "" | "string" => {
            let plain = format.replace('-', "");
            FORMATS.iter().any(|(name, _)| *name == plain)
        }
        "integer" => ["int32", "int64"].contains(&format),
        "number" => ["float", "double"].contains(&format),
        _ => false,
    }
}

/// Whether a text has a format.
pub fn is_valid(format: &str, text: &str) -> bool {
    if format.is_empty() {
        return true;
    }
    let plain = format.replace('-', "");
    let found = FORMATS.iter().find(|(name, _)| *name == plain);
    found.is_none_or(|(_, check)| check(text))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

// Go's ParseRequestURI: a scheme with something behind it, or a path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let mut chars = scheme.chars();
    let named = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    named && (!rest.starts_with("//") || !rest.contains(' '))
}

fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, address)) => address.strip_suffix('>').unwrap_or(address),
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let plain = |c: char| !c.is_whitespace() && !"()<>[]:;,\"\\@".contains(c);
    !local.is_empty() && !domain.is_empty() && local.chars().all(plain) && domain.chars().all(plain)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_' || !c.is_ascii())
    };
    text.len() <= 255
        && !text.is_empty()
        && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

fn is_cidr(text: &str) -> bool {
    text.contains('/') && text.parse::<ipnet::IpNet>().is_ok()
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = match text {
        t if t.contains(':') => t.split(':').collect(),
        t if t.contains('-') => t.split('-').collect(),
        t => {
            let groups: Vec<&str> = t.split('.').collect();
            return matches!(groups.len(), 3 | 4 | 10)
                && groups.iter().all(|g| g.len() == 4 && is_hex(g));
        }
    };
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| p.len() == 2 && is_hex(p))
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let plain = text.replace('-', "");
    let shaped = plain.len() == 32 && is_hex(&plain) && (text.len() == 32 || text.len() == 36);
    shaped && version.is_none_or(|v| plain.chars().nth(12) == Some(v))
}

fn has_variant(text: &str) -> bool {
    let plain = text.replace('-', "").to_ascii_lowercase();
    matches!(plain.as_bytes().get(16), Some(b'8' | b'9' | b'a' | b'b'))
}

fn digits(text: &str) -> Vec<char> {
    text.chars().filter(|c| !" -".contains(*c)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let all = digits(text);
    if all.len() != 10 {
        return false;
    }
    let value = |(i, c): (usize, &char)| match c {
        'X' | 'x' if i == 9 => Some(10),
        c => c.to_digit(10),
    };
    let sum = all.iter().enumerate().try_fold(0, |sum, (i, c)| {
        Some(sum + (10 - u32::try_from(i).ok()?) * value((i, c))?)
    });
    sum.is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let all = digits(text);
    let sum = all.iter().enumerate().try_fold(0, |sum, (i, c)| {
        Some(sum + c.to_digit(10)? * if i % 2 == 0 { 1 } else { 3 })
    });
    all.len() == 13 && sum.is_some_and(|sum| sum % 10 == 0)
}

fn is_credit_card(text: &str) -> bool {
    let all = digits(text);
    let sum = all.iter().rev().enumerate().try_fold(0, |sum, (i, c)| {
        let digit = c.to_digit(10)? * if i % 2 == 0 { 1 } else { 2 };
        Some(sum + digit / 10 + digit % 10)
    });
    (13..=19).contains(&all.len()) && sum.is_some_and(|sum| sum % 10 == 0)
}

static SSN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok());
static HEX_COLOR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static RGB_COLOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let part = "(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])";
    Regex::new(&format!(
        r"^rgb\([ \t]*{part}[ \t]*,[ \t]*{part}[ \t]*,[ \t]*{part}[ \t]*\)$"
    ))
    .ok()
});

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|p| p.is_match(text))
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text.replace(['\r', '\n'], ""))
        .is_ok()
}

// Go's durations, and upstream's own words for long ones.
fn is_duration(text: &str) -> bool {
    static LONG: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let units = "ns|nanoseconds?|nanos?|us|µs|microseconds?|micros?|ms|milliseconds?|millis?|s|seconds?|secs?|m|minutes?|mins?|h|hours?|hrs?|hr|d|days?|w|weeks?|wks?|wk";
        Regex::new(&format!(
            r"^[-+]?([ \t]*[0-9]+(\.[0-9]+)?[ \t]*({units}))+$|^0$"
        ))
        .ok()
    });
    matches(&LONG, text)
}

// RFC 3339 as strfmt reads it: the time, its fractions and the offset's colon are negotiable.
fn is_date_time(text: &str) -> bool {
    if text.is_empty() {
        return true;
    }
    static SHAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})([Tt ]|[ \t]+)?([0-9]{2}):([0-9]{2}):([0-9]{2})?(\.[0-9]+)?([Zz]|[+-][0-9]{2}:?[0-9]{2})$").ok()
    });
    let Some(parts) = SHAPE.as_ref().and_then(|s| s.captures(text)) else {
        return false;
    };
    let below = |i: usize, limit: u8| {
        parts
            .get(i)
            .is_none_or(|p| p.as_str().parse::<u8>().is_ok_and(|n| n < limit))
    };
    parts[1].parse::<jiff::civil::Date>().is_ok() && below(3, 24) && below(4, 60) && below(5, 61)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_are_those_of_upstreams_registry() {
        let cases = [
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0", false),
            ("ipv6", "::1", true),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0", false),
            ("date", "2026-11-18", true),
            ("date", "18.11.2026", false),
            ("date-time", "2026-11-18T04:00:00Z", true),
            ("date-time", "2026-11-18T04:00:00.5+01:00", true),
            ("date-time", "2026-13-18T04:00:00Z", false),
            ("datetime", "now", false),
            ("duration", "1h30m", true),
            ("duration", "3 days", true),
            ("duration", "soon", false),
            ("byte", "aGVsbG8=", true),
            ("byte", "a b", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", false),
            ("uri", "https://example.com/a", true),
            ("uri", "/a/b", true),
            ("uri", "a b", false),
            ("email", "a@example.com", true),
            ("email", "a", false),
            ("hostname", "a.example.com", true),
            ("mac", "01:23:45:67:89:ab", true),
            ("isbn10", "0-306-40615-2", true),
            ("isbn13", "978-0-306-40615-7", true),
            ("creditcard", "4111 1111 1111 1111", true),
            ("ssn", "111-11-1111", true),
            ("hexcolor", "#fff", true),
            ("rgbcolor", "rgb(1, 2, 255)", true),
            ("rgbcolor", "rgb(1, 2, 256)", false),
            ("k8s-short-name", "a-b", true),
            ("k8s-short-name", "a.b", false),
            ("whatever", "anything", true),
        ];
        for (format, text, valid) in cases {
            assert_eq!(is_valid(format, text), valid, "{format} {text}");
        }
    }

    #[test]
    fn formats_that_mean_nothing_for_their_type_are_said_once() {
        let definition = |formats: &[(&str, &str)]| {
            let fields = formats.iter().enumerate();
            let fields = fields
                .map(|(i, (ty, format))| (format!("f{i}"), json!({"type": ty, "format": format})));
            let properties: serde_json::Map<String, Value> = fields.collect();
            let list =
                json!({"type": "array", "items": {"type": "object", "properties": properties}});
            let schema = json!({"type": "object", "properties": {"list": list}});
            json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}})
        };
        let good = [
            ("string", "date-time"),
            ("integer", "int64"),
            ("number", "double"),
            ("string", "k8s-short-name"),
        ];
        assert_eq!(warnings(&definition(&good), None), [""; 0]);
        let bad = definition(&[
            ("string", "int32"),
            ("integer", "double"),
            ("boolean", "x"),
            ("string", "uri"),
        ]);
        let told = ["int32", "double", "x"].map(|format| format!("unrecognized format {format:?}"));
        assert_eq!(warnings(&bad, None), told);
        assert_eq!(warnings(&bad, Some(&bad)), [""; 0]);
    }
}
