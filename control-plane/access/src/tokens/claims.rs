//! Claims that every JWT may carry, and what time makes of them.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

/// How far clocks may differ: upstream's JWT library allows a minute.
pub(crate) const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Seconds since 1970, RFC 7519; a fraction is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct NumericDate(pub(crate) i64);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(|seconds| NumericDate(seconds as i64))
    }
}

impl NumericDate {
    pub(crate) fn of(time: Timestamp) -> NumericDate {
        NumericDate(time.as_second())
    }

    /// The moment, at the edge of time where it lies beyond.
    pub(crate) fn moment(self) -> Timestamp {
        let edge = if self.0 < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        Timestamp::from_second(self.0).unwrap_or(edge)
    }
}

/// The audiences of a token: RFC 7519 allows one string or a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Audience(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for Audience {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OneOrMany::deserialize(deserializer).map(|found| Audience(found.into_list()))
    }
}

/// A string, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_list(self) -> Vec<String> {
        match self {
            OneOrMany::One(only) => vec![only],
            OneOrMany::Many(list) => list,
        }
    }
}

/// `now` moved by some time, at the edge of time where that lies beyond.
pub(crate) fn shifted(now: Timestamp, by: SignedDuration) -> Timestamp {
    let edge = if by.is_negative() {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    now.checked_add(by).unwrap_or(edge)
}
