//! How long a request may take: `?timeout=`, in Go's notation, as far as the server's own limit.

use std::time::Duration;

use crate::request::Query;
use crate::status::{ApiError, Result};

/// What the client asks for, if it asks; zero and less mean that it does not.
pub(crate) fn asked(query: &Query) -> Result<Option<Duration>> {
    let Some(text) = query.get("timeout") else {
        return Ok(None);
    };
    let seconds = go_duration(text).map_err(|why| {
        ApiError::bad_request(format!(
            "invalid timeout specified in the request URL - time: {why}"
        ))
    })?;
    Ok((seconds > 0.0).then(|| Duration::from_secs_f64(seconds)))
}

/// Refuses a request that asks for a time that is none. What runs for long by its nature is not asked.
pub(crate) fn check(uri: &http::Uri) -> Result<()> {
    const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
    let Some(text) = uri.query().filter(|text| text.contains("timeout=")) else {
        return Ok(());
    };
    let query = Query::parse(Some(text));
    let path = crate::request::parse_path(uri.path()).unwrap_or_default();
    let subresource = path.subresource.as_deref().unwrap_or_default();
    let lasts = path.legacy_watch || query.flag("watch") || LONG_RUNNING.contains(&subresource);
    match lasts {
        true => Ok(()),
        false => asked(&query).map(|_| ()),
    }
}

/// Units of Go's `time.ParseDuration`, in seconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// The longest duration Go can hold: 2^63 nanoseconds.
const MAX_SECONDS: f64 = 9_223_372_036.0;

fn go_duration(text: &str) -> std::result::Result<f64, String> {
    let invalid = || format!("invalid duration {text:?}");
    let (sign, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if rest == "0" {
        return Ok(0.0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(is_numeric).len();
        let (number, tail) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let end = tail.find(is_numeric).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        total += number * unit_seconds(text, unit)?;
        rest = tail;
    }
    if total > MAX_SECONDS {
        return Err(invalid());
    }
    Ok(sign * total)
}

fn is_numeric(c: char) -> bool {
    c == '.' || c.is_ascii_digit()
}

fn unit_seconds(text: &str, unit: &str) -> std::result::Result<f64, String> {
    if unit.is_empty() {
        return Err(format!("missing unit in duration {text:?}"));
    }
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, seconds)| *seconds)
        .ok_or_else(|| format!("unknown unit {unit:?} in duration {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> std::result::Result<Option<Duration>, String> {
        asked(&Query::parse(Some(&format!("timeout={text}")))).map_err(|e| e.message)
    }

    #[test]
    fn durations_are_gos() {
        let cases = [
            ("", None),
            ("0", None),
            ("-1s", None),
            ("5s", Some(5_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("250ms", Some(250)),
        ];
        for (text, millis) in cases {
            assert_eq!(of(text), Ok(millis.map(Duration::from_millis)), "{text}");
        }
    }

    #[test]
    fn what_lasts_is_not_asked() {
        for (uri, refused) in [
            ("/api/v1/pods?timeout=x", true),
            ("/version?timeout=x", true),
            ("/api/v1/pods?watch=1&timeout=x", false),
            ("/api/v1/namespaces/n/pods/p/log?timeout=x", false),
        ] {
            let uri: http::Uri = uri.parse().expect("a URI");
            assert_eq!(check(&uri).is_err(), refused, "{uri}");
        }
    }

    #[test]
    fn refusals_are_in_gos_words() {
        let cases = [
            ("abc", "invalid duration \"abc\""),
            ("5", "missing unit in duration \"5\""),
            ("5x", "unknown unit \"x\" in duration \"5x\""),
            ("-", "invalid duration \"-\""),
            ("9999999999h", "invalid duration \"9999999999h\""),
        ];
        for (text, why) in cases {
            let message = format!("invalid timeout specified in the request URL - time: {why}");
            assert_eq!(of(text), Err(message), "{text}");
        }
    }
}
