//! Durations and points in time, in the forms Go reads and writes.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::error::{Error, Result};

const SECOND: i64 = 1_000_000_000;
/// The years that a point in time may be in: 0001 to 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

/// Reads a duration as Go does: `1h2m3.5s`, `-100ms`.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        total = total.checked_add(scaled(number, nanos(unit)?)?)?;
        rest = after;
    }
    let total = if negative { -total } else { total };
    i64::try_from(total).ok()
}

fn nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    })
}

fn scaled(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || whole.len() > 19 {
        return None;
    }
    let parsed: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut total = parsed.checked_mul(unit.into())?;
    let mut scale = i128::from(unit);
    for digit in fraction.bytes() {
        scale *= 10;
        if scale > i128::from(i64::MAX) * 1_000_000_000 {
            break;
        }
        let unit = i128::from(unit);
        total += i128::from(digit - b'0') * unit * unit / scale;
    }
    Some(total)
}

/// A duration as CEL writes it: seconds.
pub(crate) fn show_duration(nanos: i64) -> String {
    let seconds = nanos as f64 / SECOND as f64;
    match nanos % SECOND {
        0 => format!("{}s", nanos / SECOND),
        _ => format!("{}s", crate::library::show_double(seconds)),
    }
}

/// Reads a point in time (RFC 3339).
pub(crate) fn timestamp(text: &str) -> Option<Timestamp> {
    // jiff would also take times without colons or with a space, which Go does not.
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes[16] == b':'
        && (text.ends_with('Z') || text.as_bytes().get(bytes.len() - 3) == Some(&b':'));
    shaped.then(|| text.parse().ok()).flatten()
}

/// Reads a date or a point in time, as the formats `date` and `date-time` have them.
pub(crate) fn date_or_time(text: &str) -> Option<Timestamp> {
    match text.len() {
        10 => {
            let date: jiff::civil::Date = text.parse().ok()?;
            date.to_zoned(TimeZone::UTC).ok().map(|z| z.timestamp())
        }
        _ => timestamp(text),
    }
}

/// A point in time as text.
pub(crate) fn show(time: Timestamp) -> String {
    time.to_string()
}

/// A point in time, if it is in the years that there are.
pub(crate) fn from_seconds(seconds: i64) -> Result<Timestamp> {
    checked(Timestamp::from_second(seconds).ok())
}

fn checked(time: Option<Timestamp>) -> Result<Timestamp> {
    time.filter(|time| (FIRST..=LAST).contains(&time.as_second()))
        .ok_or_else(|| Error::new("timestamp overflow"))
}

/// A point in time, later by so many nanoseconds.
pub(crate) fn later(time: Timestamp, nanos: i64) -> Result<Timestamp> {
    checked(time.checked_add(SignedDuration::from_nanos(nanos)).ok())
}

/// The time between two points.
pub(crate) fn between(later: Timestamp, earlier: Timestamp) -> Result<i64> {
    let nanos = later.as_nanosecond() - earlier.as_nanosecond();
    i64::try_from(nanos).map_err(|_| Error::new("integer overflow"))
}

/// A point in time in a zone: a name of the database, or hours and minutes off UTC.
pub(crate) fn zoned(time: Timestamp, zone: Option<&str>) -> Result<Zoned> {
    let zone = match zone {
        None | Some("" | "UTC") => TimeZone::UTC,
        Some(name) => match offset(name) {
            Some(zone) => zone,
            None => {
                TimeZone::get(name).map_err(|_| Error::new(format!("unknown time zone {name}")))?
            }
        },
    };
    Ok(time.to_zoned(zone))
}

fn offset(text: &str) -> Option<TimeZone> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds = hours
        .checked_mul(3600)?
        .checked_add(minutes.checked_mul(60)?)?;
    let seconds = if negative { -seconds } else { seconds };
    let offset = jiff::tz::Offset::from_seconds(seconds).ok()?;
    Some(TimeZone::fixed(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        let cases = [
            ("1h2m3s", Some(3_723 * SECOND)),
            ("1.5s", Some(1_500_000_000)),
            ("-100ms", Some(-100_000_000)),
            (".5h", Some(1_800 * SECOND)),
            ("0", Some(0)),
            ("1", None),
            ("", None),
            ("s", None),
            ("1d", None),
            ("9999999h", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(duration(text), nanos, "{text}");
        }
        assert_eq!(show_duration(1_500_000_000), "1.5s");
        assert_eq!(show_duration(-60 * SECOND), "-60s");
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        assert!(timestamp("2024-02-29T12:00:00.5Z").is_some());
        assert!(timestamp("2024-02-29T12:00:00+02:00").is_some());
        for bad in [
            "2024-02-30T12:00:00Z",
            "2024-02-29",
            "2024-02-29 12:00:00Z",
            "x",
        ] {
            assert_eq!(timestamp(bad), None, "{bad}");
        }
    }
}
