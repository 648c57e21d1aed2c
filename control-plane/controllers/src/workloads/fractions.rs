//! Numbers that may be given as a share of a whole.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a share is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// The number that is meant (upstream's `GetScaledValueFromIntOrPercent`); nothing if it is no number.
pub(crate) fn scaled(value: &IntOrString, whole: i32, rounding: Rounding) -> Option<i32> {
    let share = match value {
        IntOrString::Int(number) => return Some(*number),
        IntOrString::String(text) => text.strip_suffix('%')?.parse::<i64>().ok()?,
    };
    let hundredfold = share * i64::from(whole);
    let number = match rounding {
        Rounding::Up => (hundredfold + 99).div_euclid(100),
        Rounding::Down => hundredfold.div_euclid(100),
    };
    i32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_as_asked() {
        let of = |text: &str, whole, rounding| {
            scaled(&IntOrString::String(text.into()), whole, rounding)
        };
        assert_eq!(of("25%", 10, Rounding::Up), Some(3));
        assert_eq!(of("25%", 10, Rounding::Down), Some(2));
        assert_eq!(of("100%", 7, Rounding::Down), Some(7));
        assert_eq!(of("ten", 7, Rounding::Down), None);
        assert_eq!(scaled(&IntOrString::Int(4), 100, Rounding::Up), Some(4));
    }
}
