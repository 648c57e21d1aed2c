//! The schedule of a cron job: five fields or a descriptor, with the complaints of the parser
//! upstream uses (`robfig/cron`).

use kube_kit::duration::go;

/// One of the five fields: its range and the names of its values, from the lowest on.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds {
        min: 0,
        max: 59,
        names: &[],
    },
    Bounds {
        min: 0,
        max: 23,
        names: &[],
    },
    Bounds {
        min: 1,
        max: 31,
        names: &[],
    },
    Bounds {
        min: 1,
        max: 12,
        names: &MONTHS,
    },
    Bounds {
        min: 0,
        max: 6,
        names: &DAYS,
    },
];
const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Why a text is no schedule.
pub(crate) fn check(schedule: &str) -> Result<(), String> {
    let schedule = without_zone(schedule)?;
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (wanted, count) = (FIELDS.len(), fields.len());
        return Err(format!(
            "expected exactly {wanted} fields, found {count}: [{}]",
            fields.join(" ")
        ));
    }
    for (text, bounds) in fields.iter().zip(&FIELDS) {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

// A zone in front is read here and refused by the caller, as upstream does.
fn without_zone(schedule: &str) -> Result<&str, String> {
    if !schedule.starts_with("TZ=") && !schedule.starts_with("CRON_TZ=") {
        return Ok(schedule);
    }
    match schedule.split_once(' ') {
        Some((_, rest)) => Ok(rest.trim()),
        None => Err(
            "invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned(),
        ),
    }
}

fn descriptor(schedule: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&schedule) {
        return Ok(());
    }
    match schedule.strip_prefix("@every ") {
        Some(duration) => match go::parse(duration) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!("failed to parse duration {schedule}: {why}")),
        },
        None => Err(format!("unrecognized descriptor: {schedule}")),
    }
}

fn range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [only] => {
            let value = value(only, bounds)?;
            (value, value)
        }
        [first, last] => (value(first, bounds)?, value(last, bounds)?),
        _ => {
            value(ends[0], bounds)?;
            return Err(format!("too many hyphens: {text}"));
        }
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { min, max, .. } = bounds;
    if start < *min {
        return Err(format!(
            "beginning of range ({start}) below minimum ({min}): {text}"
        ));
    }
    if end > *max {
        return Err(format!(
            "end of range ({end}) above maximum ({max}): {text}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match (bounds.min..)
        .zip(bounds.names)
        .find(|(_, name)| **name == lower)
    {
        Some((value, _)) => Ok(value),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let reason = if is_number {
        "value out of range"
    } else {
        "invalid syntax"
    };
    let parsed: i64 = text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {reason}")
    })?;
    u64::try_from(parsed).map_err(|_| format!("negative number ({parsed}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_schedules_are_accepted() {
        for fine in [
            "* * * * *",
            "*/5 0-12,18 1 jan-MAR mon",
            "0 0 ? * 6",
            "5/15 * * * *",
            "@hourly",
            "@every 1h30m",
            "@every 1.5s",
            "TZ=UTC 0 0 * * *",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
    }

    #[test]
    fn complaints_are_upstreams() {
        for (schedule, complaint) in [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            (
                "a * * * *",
                "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("@often", "unrecognized descriptor: @often"),
            (
                "@every x",
                "failed to parse duration @every x: time: invalid duration \"x\"",
            ),
        ] {
            assert_eq!(check(schedule), Err(complaint.to_owned()), "{schedule}");
        }
        assert!(check("TZ=UTC").is_err());
    }
}
