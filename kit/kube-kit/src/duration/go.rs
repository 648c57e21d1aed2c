//! Go's `time.Duration` as text, such as `1h30m0s`: what `ParseDuration` reads and `String` prints.

use std::time::Duration;

/// Units and their nanoseconds. A millionth has two signs that look the same, and a letter.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Why a text is no duration, in the words of Go's `ParseDuration`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotADuration {
    /// No number where one belongs, or more than Go can hold.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number alone.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit that Go has not.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// What stands where a unit belongs.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Reads a duration, in nanoseconds. It may be negative.
pub fn parse(text: &str) -> Result<i64, NotADuration> {
    let invalid = || NotADuration::Invalid(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = Number::read(&mut rest).ok_or_else(invalid)?;
        let nanos = unit(&mut rest, text)?;
        let amount = number.times(nanos).ok_or_else(invalid)?;
        total = total.checked_add(amount).ok_or_else(invalid)?;
    }
    let signed = if negative { -total } else { total };
    i64::try_from(signed).map_err(|_| invalid())
}

/// Reads a duration that is not negative.
pub fn parse_unsigned(text: &str) -> Result<Duration, NotADuration> {
    let nanos = u64::try_from(parse(text)?);
    nanos
        .map(Duration::from_nanos)
        .map_err(|_| NotADuration::Invalid(text.to_owned()))
}

/// A flag's value: a duration that is not negative, or a sentence that says what one looks like.
pub fn flag(text: &str) -> Result<Duration, String> {
    parse_unsigned(text).map_err(|_| format!("`{text}` is not a duration such as 90s, 5m or 1h30m"))
}

/// A decimal number in its two parts.
struct Number<'a> {
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Number<'a> {
    // Takes it off the front of what is left.
    fn read(rest: &mut &'a str) -> Option<Number<'a>> {
        let whole = digits(rest);
        let fraction = match rest.strip_prefix('.') {
            Some(after) => {
                *rest = after;
                digits(rest)
            }
            None => "",
        };
        let is_number = !whole.is_empty() || !fraction.is_empty();
        is_number.then_some(Number { whole, fraction })
    }

    fn times(&self, nanos: i128) -> Option<i128> {
        let value = |digits: &str| match digits {
            "" => Some(0),
            digits => digits.parse::<i128>().ok(),
        };
        // Nanoseconds end after fourteen decimals of an hour; more digits change nothing.
        let fraction = &self.fraction[..self.fraction.len().min(15)];
        let scale = 10i128.pow(u32::try_from(fraction.len()).ok()?);
        let part = value(fraction)? * nanos / scale;
        value(self.whole)?.checked_mul(nanos)?.checked_add(part)
    }
}

fn digits<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    digits
}

// A unit's nanoseconds.
fn unit(rest: &mut &str, text: &str) -> Result<i128, NotADuration> {
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit());
    let (unit, after) = rest.split_at(end.unwrap_or(rest.len()));
    *rest = after;
    if unit.is_empty() {
        return Err(NotADuration::MissingUnit(text.to_owned()));
    }
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    let unknown = || NotADuration::UnknownUnit {
        unit: unit.to_owned(),
        text: text.to_owned(),
    };
    known.map(|(_, nanos)| *nanos).ok_or_else(unknown)
}

/// Prints nanoseconds.
pub fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(total, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(total, 1_000_000)),
        _ => {
            let minutes = total / 60_000_000_000;
            let seconds = decimal(total % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Prints a duration; longer than Go's longest is Go's longest.
pub fn print(duration: Duration) -> String {
    format(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

fn decimal(value: u64, unit: u64) -> String {
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    let fraction = fraction.trim_end_matches('0');
    match fraction {
        "" => (value / unit).to_string(),
        _ => format!("{}.{fraction}", value / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_like_go() {
        let table = [
            ("0", "0s"),
            ("90s", "1m30s"),
            ("1h", "1h0m0s"),
            ("1.5h", "1h30m0s"),
            ("4h0m0s", "4h0m0s"),
            ("1h15m30.918273645s", "1h15m30.918273645s"),
            ("-1.5s", "-1.5s"),
            ("+5s", "5s"),
            ("1500us", "1.5ms"),
            ("1us", "1µs"),
            ("1µs", "1µs"),
            ("1μs", "1µs"),
            ("999ns", "999ns"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", "-2562047h47m16.854775808s"),
        ];
        for (text, want) in table {
            assert_eq!(parse(text).map(format).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn refusals_are_in_gos_words() {
        let table = [
            ("", r#"invalid duration """#),
            ("-", r#"invalid duration "-""#),
            ("s", r#"invalid duration "s""#),
            (".s", r#"invalid duration ".s""#),
            ("abc", r#"invalid duration "abc""#),
            ("é", r#"invalid duration "é""#),
            ("3000000h", r#"invalid duration "3000000h""#),
            (
                "9223372036854775808ns",
                r#"invalid duration "9223372036854775808ns""#,
            ),
            ("1", r#"missing unit in duration "1""#),
            ("1h2", r#"missing unit in duration "1h2""#),
            ("1x", r#"unknown unit "x" in duration "1x""#),
            ("5d", r#"unknown unit "d" in duration "5d""#),
        ];
        for (text, why) in table {
            let refusal = parse(text).expect_err(text).to_string();
            assert_eq!(refusal, format!("time: {why}"), "{text}");
        }
    }

    #[test]
    fn flags_take_no_negative_time() {
        assert_eq!(flag("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(flag("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(flag("0"), Ok(Duration::ZERO));
        for bad in ["", "5", "x", "-1s", "5d"] {
            assert!(flag(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_printed_reads_back() {
        for nanos in [0, 1, 999, 1_000, 1_001, 61_000_000_001, i64::MAX, i64::MIN] {
            assert_eq!(parse(&format(nanos)), Ok(nanos), "{nanos}");
        }
        assert_eq!(print(Duration::from_secs(300)), "5m0s");
        assert_eq!(print(Duration::MAX), format(i64::MAX));
    }
}
