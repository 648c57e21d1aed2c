//! When a line of cron fires, with the rules of the library upstream uses (robfig/cron, `ParseStandard`).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _, Unit, Zoned};
use kube_kit::duration::go;

/// A schedule that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schedule {
    /// At the minutes whose fields match.
    Fields(Box<Fields>),
    /// Again and again after this many seconds.
    Every(i64),
}

/// The numbers each field allows, as bits; a star is remembered because it changes what days mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
}

/// No schedule is looked for further ahead, as upstream.
const YEARS_AHEAD: i16 = 5;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// Reads a line; the error says what is wrong with it.
    pub(super) fn parse(line: &str) -> Result<Schedule, String> {
        let line = match line.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if let Some(every) = line.strip_prefix("@every ") {
            let nanos = go::parse(every)
                .map_err(|why| format!("failed to parse duration {line}: {why}"))?;
            return Ok(Schedule::Every((nanos / NANOS_PER_SECOND).max(1)));
        }
        if line.starts_with('@') {
            return Err(format!("unrecognized descriptor: {line}"));
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            let (count, list) = (fields.len(), fields.join(" "));
            return Err(format!(
                "expected exactly 5 fields, found {count}: [{list}]"
            ));
        };
        Ok(Schedule::Fields(Box::new(Fields {
            minutes: field(minute, 0, 59, &[])?,
            hours: field(hour, 0, 23, &[])?,
            days: field(day, 1, 31, &[])?,
            months: field(month, 1, 12, &MONTHS)?,
            weekdays: field(weekday, 0, 6, &WEEKDAYS)?,
            any_day: is_star(day),
            any_weekday: is_star(weekday),
        })))
    }

    /// The first time after `after`; none if there is none within some years.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Schedule::Every(seconds) => Timestamp::from_second(after.as_second() + seconds).ok(),
            Schedule::Fields(fields) => fields.next(after, zone),
        }
    }
}

fn is_star(field: &str) -> bool {
    field
        .split(',')
        .any(|part| matches!(part.split('/').next(), Some("*" | "?")))
}

fn field(text: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, String> {
    text.split(',')
        .try_fold(0, |bits, part| Ok(bits | range(part, least, most, names)?))
}

fn range(text: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, String> {
    let (span, step) = match text.split_once('/') {
        None => (text, None),
        Some((span, step)) => (span, Some(number(step, &[], 0)?)),
    };
    let (first, last) = match (span, span.split_once('-')) {
        ("*" | "?", _) => (least, most),
        (_, Some((first, last))) => (number(first, names, least)?, number(last, names, least)?),
        (_, None) => {
            let first = number(span, names, least)?;
            (first, if step.is_some() { most } else { first })
        }
    };
    let step = step.unwrap_or(1);
    if first < least {
        return Err(format!(
            "beginning of range ({first}) below minimum ({least}): {text}"
        ));
    }
    if last > most {
        return Err(format!(
            "end of range ({last}) above maximum ({most}): {text}"
        ));
    }
    if first > last {
        return Err(format!(
            "beginning of range ({first}) beyond end of range ({last}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let every = usize::try_from(step).unwrap_or(usize::MAX);
    Ok((first..=last)
        .step_by(every)
        .fold(0, |bits, number| bits | 1 << number))
}

fn number(text: &str, names: &[&str], least: u32) -> Result<u32, String> {
    let name = names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    if let Some(place) = name {
        return Ok(u32::try_from(place).unwrap_or(0) + least);
    }
    text.parse()
        .map_err(|_| format!("failed to parse int from {text}"))
}

impl Fields {
    // Steps in real time, so that hours that a clock change leaves out never fire, and those it repeats do twice.
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = after
            .checked_add(SignedDuration::from_secs(1))
            .ok()?
            .to_zoned(zone.clone());
        let mut at = ceiling(&start)?;
        let last_year = at.year() + YEARS_AHEAD;
        while at.year() <= last_year {
            if !has(self.months, at.month()) {
                at = first_of_next_month(&at)?;
            } else if !self.has_day(&at) {
                at = at.tomorrow().ok()?.start_of_day().ok()?;
            } else if !has(self.hours, at.hour()) {
                let left = 60 - i64::from(at.minute());
                at = at.checked_add(left.minutes()).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(1.minutes()).ok()?;
            } else {
                return Some(at.timestamp());
            }
        }
        None
    }

    fn has_day(&self, at: &Zoned) -> bool {
        let weekday = at.weekday().to_sunday_zero_offset();
        let (day, weekday) = (has(self.days, at.day()), has(self.weekdays, weekday));
        match self.any_day || self.any_weekday {
            true => day && weekday,
            false => day || weekday,
        }
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| bits & (1 << number) != 0)
}

// The first whole minute that is not before.
fn ceiling(at: &Zoned) -> Option<Zoned> {
    let seconds = i64::from(at.second());
    let whole = at
        .with()
        .nanosecond(0)
        .build()
        .ok()
        .filter(|_| at.subsec_nanosecond() == 0);
    if seconds == 0 && at.subsec_nanosecond() == 0 {
        return Some(at.clone());
    }
    let floor = whole.unwrap_or(at.with().subsec_nanosecond(0).build().ok()?);
    let next = floor.checked_add((60 - seconds).seconds()).ok()?;
    next.round(Unit::Minute).ok()
}

fn first_of_next_month(at: &Zoned) -> Option<Zoned> {
    let next: DateTime = at.datetime().first_of_month().checked_add(1.month()).ok()?;
    next.date().to_zoned(at.time_zone().clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(line: &str, after: &str, zone: &str) -> Option<String> {
        let zone = TimeZone::get(zone).unwrap();
        let next = Schedule::parse(line)
            .unwrap()
            .next(after.parse().unwrap(), &zone)?;
        Some(next.to_string())
    }

    #[test]
    fn lines_fire_when_they_say() {
        for (line, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
            (
                "*/15 * * * *",
                "2026-01-01T00:16:00Z",
                "2026-01-01T00:30:00Z",
            ),
            (
                "0 9-17/4 * * MON-FRI",
                "2026-01-02T17:00:00Z",
                "2026-01-05T09:00:00Z",
            ),
            (
                "30 4 1,15 * *",
                "2026-01-02T00:00:00Z",
                "2026-01-15T04:30:00Z",
            ),
            // A day of the month or a day of the week, if both are given.
            (
                "0 0 13 * FRI",
                "2026-01-03T00:00:00Z",
                "2026-01-09T00:00:00Z",
            ),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@yearly", "2026-05-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 90s", "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z"),
        ] {
            assert_eq!(
                next(line, after, "UTC").as_deref(),
                Some(expected),
                "{line}"
            );
        }
        assert_eq!(
            next("0 0 30 2 *", "2026-01-01T00:00:00Z", "UTC"),
            None,
            "it never fires"
        );
    }

    #[test]
    fn zones_and_their_clock_changes_count() {
        let berlin = |line, after| next(line, after, "Europe/Berlin");
        assert_eq!(
            berlin("0 12 * * *", "2026-01-01T00:00:00Z").as_deref(),
            Some("2026-01-01T11:00:00Z")
        );
        assert_eq!(
            berlin("0 12 * * *", "2026-07-01T00:00:00Z").as_deref(),
            Some("2026-07-01T10:00:00Z")
        );
        // 02:30 does not exist on 29 March 2026.
        assert_eq!(
            berlin("30 2 * * *", "2026-03-28T12:00:00Z").as_deref(),
            Some("2026-03-30T00:30:00Z")
        );
        // And exists twice on 25 October.
        assert_eq!(
            berlin("30 2 * * *", "2026-10-25T00:00:00Z").as_deref(),
            Some("2026-10-25T00:30:00Z")
        );
        assert_eq!(
            berlin("30 2 * * *", "2026-10-25T00:30:00Z").as_deref(),
            Some("2026-10-25T01:30:00Z")
        );
    }

    #[test]
    fn bad_lines_are_refused() {
        for line in [
            "",
            "* * * *",
            "60 * * * *",
            "* * 0 * *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@often",
        ] {
            assert!(Schedule::parse(line).is_err(), "{line}");
        }
    }
}
