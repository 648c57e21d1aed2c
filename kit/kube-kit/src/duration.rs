//! Durations as people read them in `kubectl get` (upstream's `apimachinery/pkg/util/duration`), and as Go writes them.

pub mod go;

use jiff::{SignedDuration, Timestamp};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Two or three significant figures: `5m`, `4m10s`, `2d3h`, `47h`, `3y12d`.
///
/// Up to two seconds in the future count as now, because clocks differ; more is `<invalid>`.
pub fn human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two_units(seconds, (MINUTE, "m"), (1, "s")),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two_units(seconds, (HOUR, "h"), (MINUTE, "m")),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two_units(seconds, (DAY, "d"), (HOUR, "h")),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two_units(seconds, (YEAR, "y"), (DAY, "d")),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// One unit only: `59s`, `5m`, `23h`, `364d`, `3y`.
pub fn short_human(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < MINUTE => format!("{seconds}s"),
        _ if seconds < HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < DAY => format!("{}h", seconds / HOUR),
        _ if seconds < YEAR => format!("{}d", seconds / DAY),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The age of an RFC 3339 time, `<unknown>` when it is empty or no time.
pub fn age(since: &str, now: Timestamp) -> String {
    match since.parse::<Timestamp>() {
        Ok(since) => human(now.duration_since(since)),
        Err(_) => "<unknown>".to_owned(),
    }
}

fn two_units(
    seconds: i64,
    (large, large_unit): (i64, &str),
    (small, small_unit): (i64, &str),
) -> String {
    match seconds % large / small {
        0 => format!("{}{large_unit}", seconds / large),
        rest => format!("{}{large_unit}{rest}{small_unit}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_or_three_figures() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * 60 + 59, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 20 * MINUTE + 5, "3h20m"),
            (8 * HOUR + 20 * MINUTE, "8h"),
            (48 * HOUR - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3 * HOUR + 4 * MINUTE, "2d3h"),
            (8 * DAY + HOUR, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (3 * YEAR + 12 * DAY, "3y12d"),
            (8 * YEAR + 12 * DAY, "8y"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn short_ages_have_one_unit() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h"),
            (DAY, "1d"),
            (YEAR - 1, "364d"),
            (3 * YEAR, "3y"),
        ] {
            assert_eq!(
                short_human(SignedDuration::from_secs(seconds)),
                text,
                "{seconds}"
            );
        }
    }

    #[test]
    fn the_age_of_no_time_is_unknown() {
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().expect("a time");
        assert_eq!(age("2026-01-01T00:00:00Z", now), "5m");
        assert_eq!(age("2025-12-31T23:59:59.500000Z", now), "5m");
        assert_eq!(age("", now), "<unknown>");
    }
}
