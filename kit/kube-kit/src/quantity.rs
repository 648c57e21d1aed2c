//! `resource.Quantity`: an exact amount with the suffix family it was written in.
//!
//! Upstream counts in whole nano-units: anything finer is rounded away from zero when parsed. So
//! does this type, in an `i128`; amounts beyond about `1.7e29` are refused where upstream would
//! fall back to arbitrary precision (and let one object stall every comparison).

use std::cmp::Ordering;
use std::fmt;
use std::ops::{AddAssign, Neg, SubAssign};
use std::str::FromStr;

const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// Upstream parses with machine integers up to this many digits and keeps such texts as written.
const FAST_DIGITS: usize = 18;

/// Decimal suffixes by power of ten, smallest first; the three letters below one come first.
const DECIMAL_SUFFIXES: [(i32, &str); 10] = [
    (-9, "n"),
    (-6, "u"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
    (18, "E"),
];

/// Binary suffixes; the index is the power of 1024.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Why a text is not a quantity, in upstream's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix at all.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number is out of range.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is made of the right letters but means nothing.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The suffix family a quantity is printed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `500m`, `2k`, `3G`.
    DecimalSi,
    /// `64Ki`, `2Gi`.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// An exact amount of some resource. Equality and order compare amounts, not spellings.
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    // Upstream prints back verbatim a text that its quick check takes for canonical, including
    // spellings such as `1.500` or `1E3`; clients compare these strings, so we keep them too.
    text: Option<Box<str>>,
}

impl Quantity {
    /// Zero, in decimal form.
    pub const ZERO: Quantity = Quantity {
        nanos: 0,
        format: Format::DecimalSi,
        text: None,
    };

    /// `value` whole units.
    pub fn from_integer(value: i64, format: Format) -> Self {
        Self::from_nanos(i128::from(value) * NANOS_PER_UNIT, format)
    }

    /// `value` thousandths of a unit.
    pub fn from_milli(value: i64, format: Format) -> Self {
        Self::from_nanos(i128::from(value) * (NANOS_PER_UNIT / 1000), format)
    }

    /// `nanos` billionths of a unit.
    pub fn from_nanos(nanos: i128, format: Format) -> Self {
        Quantity {
            nanos,
            format,
            text: None,
        }
    }

    /// The amount in billionths of a unit.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The amount in whole units, rounded away from zero, saturating.
    pub fn value(&self) -> i64 {
        clamp(divide_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// The amount in thousandths of a unit, rounded away from zero, saturating.
    pub fn milli_value(&self) -> i64 {
        clamp(divide_away_from_zero(self.nanos, NANOS_PER_UNIT / 1000))
    }

    /// The suffix family it prints in.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        match self.nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    fn canonical(&self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        match self.format {
            Format::DecimalSi => decimal_si(self.nanos),
            Format::DecimalExponent => decimal_exponent(self.nanos),
            // Small and fractional amounts would lose precision in powers of 1024.
            Format::BinarySi if self.nanos.abs() < 1024 * NANOS_PER_UNIT => decimal_si(self.nanos),
            Format::BinarySi if self.nanos % NANOS_PER_UNIT != 0 => decimal_si(self.nanos),
            Format::BinarySi => binary_si(self.nanos / NANOS_PER_UNIT),
        }
    }

    fn combine(&mut self, other: &Quantity, nanos: i128) {
        if self.nanos == 0 {
            self.format = other.format;
        }
        self.nanos = nanos;
        self.text = None;
    }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn divide_away_from_zero(value: i128, divisor: i128) -> i128 {
    let quotient = value / divisor;
    if value % divisor == 0 {
        quotient
    } else {
        quotient + value.signum()
    }
}

/// Mantissa and exponent with every factor of ten moved to the exponent, then the exponent brought
/// down to a multiple of three that is at most `ceiling`.
fn decimal_parts(nanos: i128, ceiling: i32) -> (i128, i32) {
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 || exponent > ceiling {
        mantissa *= 10;
        exponent -= 1;
    }
    (mantissa, exponent)
}

/// Beyond the largest suffix the mantissa grows; upstream loses the suffix there.
fn decimal_si(nanos: i128) -> String {
    let (mantissa, exponent) = decimal_parts(nanos, 18);
    let (_, suffix) = DECIMAL_SUFFIXES
        .iter()
        .find(|(power, _)| *power == exponent)
        .expect("decimal_parts yields multiples of three from -9 to its ceiling");
    format!("{mantissa}{suffix}")
}

fn decimal_exponent(nanos: i128) -> String {
    match decimal_parts(nanos, i32::MAX) {
        (mantissa, 0) => mantissa.to_string(),
        (mantissa, exponent) => format!("{mantissa}e{exponent}"),
    }
}

fn binary_si(units: i128) -> String {
    let (mut mantissa, mut power) = (units, 0);
    while mantissa % 1024 == 0 && power + 1 < BINARY_SUFFIXES.len() {
        mantissa /= 1024;
        power += 1;
    }
    format!("{mantissa}{}", BINARY_SUFFIXES[power])
}

/// A quantity's text taken apart, before any arithmetic.
struct Spelling<'a> {
    negative: bool,
    /// Integer digits without leading zeros; never empty.
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Spelling<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let digits_end = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let rest = rest.trim_start_matches('0');
        let (integer, rest) = rest.split_at(digits_end(rest));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits_end(rest)),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let integer = if integer.is_empty() { "0" } else { integer };
        Ok(Spelling {
            negative,
            integer,
            fraction,
            suffix,
        })
    }

    /// Upstream's quick test for "already canonical", applied to the spelling alone.
    fn keeps_text(&self, scale: Scale, nanos: i128) -> bool {
        let digits = self.integer.len() + self.fraction.len();
        match scale {
            Scale::Binary(power) => {
                let roughly_fits = digits + usize::from(power) * 3 <= 14;
                let whole = (nanos / NANOS_PER_UNIT) >> (10 * u32::from(power));
                self.fraction.is_empty() && roughly_fits && whole & 7 != 0
            }
            Scale::Decimal(exponent) | Scale::Exponent(exponent) => {
                let shifted = format!("{}{}", self.integer, self.fraction);
                let exponent = exponent - i64::try_from(self.fraction.len()).unwrap_or(i64::MAX);
                digits <= FAST_DIGITS
                    && exponent >= -9
                    && exponent % 3 == 0
                    && !shifted.ends_with("000")
                    && !shifted.starts_with('0')
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten written as a letter.
    Decimal(i64),
    /// A power of 1024.
    Binary(u8),
    /// A power of ten written as an exponent.
    Exponent(i64),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Scale> {
        if let Some((power, _)) = DECIMAL_SUFFIXES.iter().find(|(_, s)| *s == suffix) {
            return Some(Scale::Decimal(i64::from(*power)));
        }
        if let Some(power) = BINARY_SUFFIXES.iter().position(|s| *s == suffix) {
            return u8::try_from(power).ok().map(Scale::Binary);
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        exponent
            .parse::<i32>()
            .ok()
            .map(|e| Scale::Exponent(i64::from(e)))
    }
}

/// `digits * 10^power`, rounded up; `None` when it does not fit.
fn scale_decimal(digits: &str, power: i64) -> Option<i128> {
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    if power >= 0 {
        let factor = 10i128.checked_pow(u32::try_from(power).ok()?)?;
        return significant.parse::<i128>().ok()?.checked_mul(factor);
    }
    let dropped = usize::try_from(-power).ok()?;
    let kept = significant.len().saturating_sub(dropped);
    let whole = if kept == 0 {
        0
    } else {
        significant[..kept].parse::<i128>().ok()?
    };
    let lost = significant[kept..].bytes().any(|b| b != b'0');
    whole.checked_add(i128::from(lost))
}

/// `integer.fraction * 1024^power` in nanos, rounded up and capped like upstream's at the largest
/// `int64`. Fractions are exact to eighteen digits.
fn scale_binary(integer: &str, fraction: &str, power: u8) -> Option<i128> {
    let cap = i128::from(i64::MAX) * NANOS_PER_UNIT;
    let factor = 1i128 << (10 * u32::from(power));
    let (kept, lost) = fraction.split_at(fraction.len().min(FAST_DIGITS));
    let places = u32::try_from(kept.len()).ok()?;
    let mut part = if kept.is_empty() {
        0
    } else {
        kept.parse::<i128>().ok()?
    };
    part += i128::from(lost.bytes().any(|b| b != b'0'));
    // The fraction is below 10^18 and the factor at most 2^60, so this fits.
    let part = match places.checked_sub(9) {
        Some(excess) => divide_away_from_zero(part * factor, 10i128.pow(excess)),
        None => part * factor * 10i128.pow(9 - places),
    };
    let whole = integer
        .parse::<i128>()
        .ok()
        .and_then(|n| n.checked_mul(factor * NANOS_PER_UNIT));
    Some(whole.map_or(cap, |whole| whole.saturating_add(part).min(cap)))
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let spelling = Spelling::split(text)?;
        let scale = Scale::parse(spelling.suffix).ok_or(QuantityError::Suffix)?;
        let digits = format!("{}{}", spelling.integer, spelling.fraction);
        let places = i64::try_from(spelling.fraction.len()).map_err(|_| QuantityError::Numeric)?;
        let (magnitude, mut format) = match scale {
            Scale::Decimal(e) => (scale_decimal(&digits, e - places + 9), Format::DecimalSi),
            Scale::Exponent(e) => (
                scale_decimal(&digits, e - places + 9),
                Format::DecimalExponent,
            ),
            Scale::Binary(power) => (
                scale_binary(spelling.integer, spelling.fraction, power),
                Format::BinarySi,
            ),
        };
        let magnitude = magnitude.ok_or(QuantityError::Numeric)?;
        if format == Format::BinarySi && magnitude > 0 && magnitude < NANOS_PER_UNIT {
            format = Format::DecimalSi;
        }
        let text = spelling.keeps_text(scale, magnitude).then(|| text.into());
        let nanos = if spelling.negative {
            -magnitude
        } else {
            magnitude
        };
        Ok(Quantity {
            nanos,
            format,
            text,
        })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl AddAssign<&Quantity> for Quantity {
    /// Saturates; a zero takes the other's format, as upstream's `Add` does.
    fn add_assign(&mut self, other: &Quantity) {
        self.combine(other, self.nanos.saturating_add(other.nanos));
    }
}

impl SubAssign<&Quantity> for Quantity {
    /// Saturates; a zero takes the other's format, as upstream's `Sub` does.
    fn sub_assign(&mut self, other: &Quantity) {
        self.combine(other, self.nanos.saturating_sub(other.nanos));
    }
}

impl Neg for Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity::from_nanos(self.nanos.saturating_neg(), self.format)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    fn printed(text: &str) -> String {
        text.parse::<Quantity>().unwrap().to_string()
    }

    #[test]
    fn prints_upstreams_canonical_form() {
        let table = [
            ("0", "0"),
            ("0Mi", "0"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("0.500", "500m"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("1025Ki", "1025Ki"),
            ("2048", "2048"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.0001Ki", "102400u"),
            ("1000", "1k"),
            ("100k", "100k"),
            ("12e6", "12e6"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("1e-10", "1e-9"),
            ("0.0000000001", "1n"),
            ("-0.0000000001", "-1n"),
            ("-1500m", "-1500m"),
            ("8Ei", "9223372036854775807"),
            ("1.1n", "2n"),
            ("486545786.000000015406Gi", "522424559719153680542066541n"),
            ("-1091304399706138859.7152Ti", "-9223372036854775807"),
        ];
        for (text, want) in table {
            assert_eq!(printed(text), want, "{text}");
        }
    }

    #[test]
    fn spellings_that_upstream_takes_for_canonical_are_kept() {
        for text in ["1.500", "1E3", "+5", "005", "64Mi", "100m"] {
            assert_eq!(printed(text), text);
        }
    }

    #[test]
    fn refuses_what_upstream_refuses() {
        let table = [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("5 Gi", QuantityError::Format),
            ("5gi", QuantityError::Format),
            ("5GiB", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1kk", QuantityError::Suffix),
            ("1iK", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1e99999999999", QuantityError::Suffix),
        ];
        for (text, want) in table {
            assert_eq!(text.parse::<Quantity>().unwrap_err(), want, "{text}");
        }
    }

    #[test]
    fn amounts_beyond_the_range_are_refused_quickly() {
        assert_eq!(
            "1e2147483647".parse::<Quantity>().unwrap_err(),
            QuantityError::Numeric
        );
        assert_eq!(
            "1e-2147483647".parse::<Quantity>().unwrap().to_string(),
            "1e-9"
        );
    }

    #[test]
    fn rounds_away_from_zero_when_asked_for_integers() {
        let q: Quantity = "1500m".parse().unwrap();
        assert_eq!((q.value(), q.milli_value()), (2, 1500));
        assert_eq!((-q).value(), -2);
        assert_eq!("100E".parse::<Quantity>().unwrap().value(), i64::MAX);
    }

    #[test]
    fn a_zero_takes_the_format_of_what_is_added() {
        let mut sum = Quantity::ZERO;
        sum += &"1Gi".parse().unwrap();
        sum += &"1Gi".parse().unwrap();
        assert_eq!(sum.to_string(), "2Gi");
        sum -= &"2Gi".parse().unwrap();
        assert!(sum.is_zero());
    }

    fn any_format() -> impl Strategy<Value = Format> {
        prop::sample::select(vec![
            Format::DecimalSi,
            Format::BinarySi,
            Format::DecimalExponent,
        ])
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same_amount(nanos in any::<i128>(), format in any_format()) {
            let q = Quantity::from_nanos(nanos >> 8, format);
            let back: Quantity = q.to_string().parse().unwrap();
            prop_assert_eq!(&back, &q);
            prop_assert_eq!(back.to_string(), q.to_string());
        }

        #[test]
        fn parsing_never_panics(text in "[-+]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,10}") {
            if let Ok(q) = text.parse::<Quantity>() {
                let again: Quantity = q.to_string().parse().unwrap();
                prop_assert_eq!(again, q);
            }
        }

        #[test]
        fn adding_then_subtracting_changes_nothing(a in any::<i64>(), b in any::<i64>()) {
            let start = Quantity::from_milli(a, Format::DecimalSi);
            let step = Quantity::from_milli(b, Format::BinarySi);
            let mut q = start.clone();
            q += &step;
            q -= &step;
            prop_assert_eq!(q, start);
        }
    }
}
