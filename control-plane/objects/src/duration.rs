//! Go's `time.Duration` text, such as `1h30m0s`, in nanoseconds.

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

/// Reads what Go's `ParseDuration` reads; `None` for anything else, out of range included.
pub(crate) fn parse(text: &str) -> Option<i64> {
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
        let (amount, tail) = part(rest)?;
        total = total.checked_add(amount)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// One number with its unit, and what follows.
fn part(text: &str) -> Option<(i128, &str)> {
    let digits_end = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let (whole, rest) = text.split_at(digits_end(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits_end(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Nanoseconds end after fourteen decimals of an hour; more digits change nothing.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10i128.pow(u32::try_from(fraction.len()).ok()?);
    let part: i128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    Some((
        whole
            .checked_mul(*nanos)?
            .checked_add(part * nanos / scale)?,
        rest,
    ))
}

/// Go's `Duration.String`.
pub(crate) fn format(nanos: i64) -> String {
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
    fn reads_and_prints_like_go() {
        let table = [
            ("0", "0s"),
            ("90s", "1m30s"),
            ("1h", "1h0m0s"),
            ("1.5h", "1h30m0s"),
            ("-1.5s", "-1.5s"),
            ("1500us", "1.5ms"),
            ("1us", "1µs"),
            ("999ns", "999ns"),
            (".5s", "500ms"),
            ("9223372036854775807ns", "2562047h47m16.854775807s"),
        ];
        for (text, want) in table {
            assert_eq!(parse(text).map(format).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in ["", "-", "1", "s", "1x", "1h2", ".s", "3000000h", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
