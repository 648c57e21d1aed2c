//! How much a caller may ask: buckets that fill again with time, as ARM's.

use std::collections::HashMap;

use http::Method;
use jiff::Timestamp;

/// The sizes of ARM's buckets for a principal in a subscription, and what comes back in a second.
const READS: (f64, f64) = (250.0, 25.0);
const WRITES: (f64, f64) = (200.0, 10.0);
const DELETES: (f64, f64) = (200.0, 10.0);

/// What callers have left.
#[derive(Debug, Default)]
pub(crate) struct Buckets(HashMap<(String, &'static str), (f64, Timestamp)>);

/// What kind of request a method is, in the words of ARM's headers.
pub(crate) fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "reads",
        Method::DELETE => "deletes",
        _ => "writes",
    }
}

/// The header that says what is left.
pub(crate) fn header(method: &Method) -> &'static str {
    match word(method) {
        "reads" => "x-ms-ratelimit-remaining-subscription-global-reads",
        "deletes" => "x-ms-ratelimit-remaining-subscription-global-deletes",
        _ => "x-ms-ratelimit-remaining-subscription-global-writes",
    }
}

/// What Azure says is left to somebody who asked for the first time.
pub(crate) fn full(method: &Method) -> &'static str {
    match word(method) {
        "reads" => "16499",
        "deletes" => "17999",
        _ => "11999",
    }
}

impl Buckets {
    /// Takes one out of a caller's bucket: what is left, or how many seconds to wait.
    pub(crate) fn take(
        &mut self,
        caller: &str,
        method: &Method,
        now: Timestamp,
    ) -> Result<u32, u32> {
        let word = word(method);
        let (size, rate) = match word {
            "reads" => READS,
            "deletes" => DELETES,
            _ => WRITES,
        };
        let entry = self
            .0
            .entry((caller.to_owned(), word))
            .or_insert((size, now));
        let passed = now.duration_since(entry.1).as_secs_f64().max(0.0);
        let level = (entry.0 + passed * rate).min(size);
        *entry = match level >= 1.0 {
            true => (level - 1.0, now),
            false => (level, now),
        };
        match level >= 1.0 {
            true => Ok((level - 1.0) as u32),
            false => Err(((1.0 - level) / rate).ceil().max(1.0) as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_bucket_is_empty_after_its_size_and_fills_again() {
        let mut buckets = Buckets::default();
        let start = Timestamp::UNIX_EPOCH;
        for left in (0..200).rev() {
            assert_eq!(buckets.take("me", &Method::PUT, start), Ok(left));
        }
        assert_eq!(buckets.take("me", &Method::PUT, start), Err(1));
        assert!(buckets.take("you", &Method::PUT, start).is_ok());
        assert!(buckets.take("me", &Method::GET, start).is_ok());
        let later = start + SignedDuration::from_secs(1);
        assert_eq!(buckets.take("me", &Method::PUT, later), Ok(9));
    }
}
