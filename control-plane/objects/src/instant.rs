//! `meta.v1.Time` and `MicroTime`: RFC 3339 as Go's `time.Parse` reads it, errors included.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Go's zero time, 0001-01-01T00:00:00Z, in seconds since 1970.
const ZERO_SECONDS: i64 = -62_135_596_800;

/// Why a text is not a time, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// The text does not follow the layout.
    #[error("parsing time {value:?} as {layout:?}: cannot parse {rest:?} as {element:?}")]
    Layout {
        /// The whole text.
        value: String,
        /// Go's reference layout.
        layout: &'static str,
        /// What was left when parsing stopped.
        rest: String,
        /// The layout element that did not match.
        element: &'static str,
    },
    /// A number is too large for its place.
    #[error("parsing time {value:?}: {part} out of range")]
    Range {
        /// The whole text.
        value: String,
        /// Which number.
        part: &'static str,
    },
    /// Something follows a complete time.
    #[error("parsing time {value:?}: extra text: {extra:?}")]
    Extra {
        /// The whole text.
        value: String,
        /// What follows.
        extra: String,
    },
    /// Seconds on the wire that no four-digit year holds.
    #[error("time is outside the years 1 to 9999")]
    Seconds,
}

/// How finely a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// A point in time as the wire carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Instant {
    pub(crate) fn is_zero(self) -> bool {
        self.seconds == ZERO_SECONDS && self.nanos == 0
    }

    pub(crate) fn parse(text: &str, precision: Precision) -> Result<Self, TimeError> {
        Reader {
            value: text,
            rest: text,
            layout: precision.layout(),
        }
        .read(precision)
    }

    /// The canonical text, in UTC.
    pub(crate) fn format(self, precision: Precision) -> Result<String, TimeError> {
        let nanos = i32::try_from(self.nanos).map_err(|_| TimeError::Seconds)?;
        let stamp = jiff::Timestamp::new(self.seconds, nanos).map_err(|_| TimeError::Seconds)?;
        let at = TimeZone::UTC.to_datetime(stamp);
        if at.year() < 0 {
            return Err(TimeError::Seconds);
        }
        let (year, month, day) = (at.year(), at.month(), at.day());
        let (hour, minute, second) = (at.hour(), at.minute(), at.second());
        let micros = self.nanos / 1000;
        let fraction = match precision {
            Precision::Seconds => String::new(),
            Precision::Micros => format!(".{micros:06}"),
        };
        Ok(format!(
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"
        ))
    }
}

/// Reads the layout's elements one after another.
struct Reader<'a> {
    value: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn read(mut self, precision: Precision) -> Result<Instant, TimeError> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.digits(2, "01")?;
        self.check((1..=12).contains(&month), "month")?;
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        self.literal("T")?;
        let hour = self.hour()?;
        self.check(hour < 24, "hour")?;
        self.literal(":")?;
        let minute = self.digits(2, "04")?;
        self.check(minute < 60, "minute")?;
        self.literal(":")?;
        let second = self.digits(2, "05")?;
        self.check(second < 60, "second")?;
        let nanos = match precision {
            Precision::Seconds => self.optional_fraction(),
            Precision::Micros => self.six_digits()?,
        };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(TimeError::Extra {
                value: self.value.into(),
                extra: self.rest.into(),
            });
        }
        let seconds =
            utc_seconds([year, month, day, hour, minute, second]).ok_or(TimeError::Range {
                value: self.value.into(),
                part: "day",
            })?;
        Ok(Instant {
            seconds: seconds - offset,
            nanos,
        })
    }

    fn fail<T>(&self, element: &'static str) -> Result<T, TimeError> {
        Err(TimeError::Layout {
            value: self.value.into(),
            layout: self.layout,
            rest: self.rest.into(),
            element,
        })
    }

    fn check(&self, good: bool, part: &'static str) -> Result<(), TimeError> {
        if good {
            Ok(())
        } else {
            Err(TimeError::Range {
                value: self.value.into(),
                part,
            })
        }
    }

    fn literal(&mut self, text: &'static str) -> Result<(), TimeError> {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.fail(text),
        }
    }

    fn leading_digits(&self, limit: usize) -> usize {
        self.rest
            .bytes()
            .take(limit)
            .take_while(u8::is_ascii_digit)
            .count()
    }

    fn take(&mut self, count: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        taken
    }

    fn digits(&mut self, count: usize, element: &'static str) -> Result<u16, TimeError> {
        if self.leading_digits(count) < count {
            return self.fail(element);
        }
        Ok(self.take(count).parse().expect("at most four digits"))
    }

    /// The hour may have one digit: Go's layout element `15` is not fixed-width.
    fn hour(&mut self) -> Result<u16, TimeError> {
        match self.leading_digits(2) {
            0 => self.fail("15"),
            count => Ok(self.take(count).parse().expect("one or two digits")),
        }
    }

    /// A fraction that the layout does not mention is accepted after the seconds.
    fn optional_fraction(&mut self) -> u32 {
        let Some(digits) = self.rest.strip_prefix(['.', ',']) else {
            return 0;
        };
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return 0;
        }
        let nine: String = digits[..count]
            .chars()
            .chain("000000000".chars())
            .take(9)
            .collect();
        self.take(count + 1);
        nine.parse().expect("nine digits")
    }

    fn six_digits(&mut self) -> Result<u32, TimeError> {
        let fraction = self.rest.strip_prefix(['.', ',']);
        match fraction
            .and_then(|f| f.get(..6))
            .filter(|f| f.bytes().all(|b| b.is_ascii_digit()))
        {
            Some(six) => {
                self.take(7);
                Ok(six.parse::<u32>().expect("six digits") * 1000)
            }
            None => self.fail(".000000"),
        }
    }

    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let Some(&[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2]) =
            self.rest.as_bytes().first_chunk::<6>()
        else {
            return self.fail("Z07:00");
        };
        if ![h1, h2, m1, m2].iter().all(u8::is_ascii_digit) {
            return self.fail("Z07:00");
        }
        let number = |tens: u8, ones: u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
        let (hours, minutes) = (number(h1, h2), number(m1, m2));
        self.check(hours <= 24, "time zone offset hour")?;
        self.check(minutes < 60, "time zone offset minute")?;
        self.take(6);
        let seconds = hours * 3600 + minutes * 60;
        Ok(if sign == b'-' { -seconds } else { seconds })
    }
}

fn utc_seconds([year, month, day, hour, minute, second]: [u16; 6]) -> Option<i64> {
    let small = |n: u16| i8::try_from(n).ok();
    let at = DateTime::new(
        i16::try_from(year).ok()?,
        small(month)?,
        small(day)?,
        small(hour)?,
        small(minute)?,
        small(second)?,
        0,
    );
    Some(
        at.ok()?
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp()
            .as_second(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn seconds(text: &str) -> Result<String, String> {
        let instant = Instant::parse(text, Precision::Seconds).map_err(|e| e.to_string())?;
        instant
            .format(Precision::Seconds)
            .map_err(|e| e.to_string())
    }

    fn micros(text: &str) -> Result<String, String> {
        let instant = Instant::parse(text, Precision::Micros).map_err(|e| e.to_string())?;
        instant.format(Precision::Micros).map_err(|e| e.to_string())
    }

    #[test]
    fn times_are_printed_in_utc_without_fractions() {
        let table = [
            ("2024-02-29T01:02:03Z", "2024-02-29T01:02:03Z"),
            ("2024-02-29T01:02:03+02:00", "2024-02-28T23:02:03Z"),
            ("2024-01-01T00:00:00.999999999Z", "2024-01-01T00:00:00Z"),
            ("2024-01-01T3:00:00Z", "2024-01-01T03:00:00Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ];
        for (text, want) in table {
            assert_eq!(seconds(text).unwrap(), want);
        }
        assert!(
            Instant::parse("0001-01-01T00:00:00Z", Precision::Seconds)
                .unwrap()
                .is_zero()
        );
    }

    #[test]
    fn micro_times_need_and_print_exactly_six_digits() {
        assert_eq!(
            micros("2024-01-01T00:00:00.000001Z").unwrap(),
            "2024-01-01T00:00:00.000001Z"
        );
        assert_eq!(
            micros("2024-01-01T00:00:00Z").unwrap_err(),
            r#"parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn errors_read_like_gos() {
        let table = [
            (
                "today",
                r#"parsing time "today" as "2006-01-02T15:04:05Z07:00": cannot parse "today" as "2006""#,
            ),
            (
                "2024-13-01T00:00:00Z",
                r#"parsing time "2024-13-01T00:00:00Z": month out of range"#,
            ),
            (
                "2023-02-29T00:00:00Z",
                r#"parsing time "2023-02-29T00:00:00Z": day out of range"#,
            ),
            (
                "2024-01-01T00:00:00Zx",
                r#"parsing time "2024-01-01T00:00:00Zx": extra text: "x""#,
            ),
            (
                "2024-01-01T00:00:00",
                r#"parsing time "2024-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
        ];
        for (text, want) in table {
            assert_eq!(seconds(text).unwrap_err(), want);
        }
    }

    #[test]
    fn odd_text_is_refused_without_panicking() {
        for text in [
            "",
            "é",
            "2024-01-01T00:00:00é",
            "2024-01-01T00:00:00+é1:00",
            "2024-01-01T00:00:00.é",
        ] {
            assert!(seconds(text).is_err());
            assert!(micros(text).is_err());
        }
    }
}
