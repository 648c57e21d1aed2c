//! How long to wait before something is tried again: doubling delays that are forgotten after a quiet time.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// Delays by key.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    delay: Duration,
    raised: Timestamp,
}

impl Backoff {
    /// From `first`, doubled up to `most`; forgotten after twice that without another try.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self {
            first: first.min(most),
            most,
            entries: BTreeMap::new(),
        }
    }

    /// The delay in force for a key.
    pub fn delay(&self, key: &str) -> Duration {
        self.entries.get(key).map_or(Duration::ZERO, |e| e.delay)
    }

    /// How long to wait yet after an event at `since`; nothing if it may go on.
    pub fn remaining(&self, key: &str, since: Timestamp, now: Timestamp) -> Option<Duration> {
        let entry = self.entries.get(key)?;
        if self.forgotten(entry, since) {
            return None;
        }
        let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        entry
            .delay
            .checked_sub(waited)
            .filter(|rest| !rest.is_zero())
    }

    /// Counts a try at `now` of something that last ended at `since`.
    pub fn raise(&mut self, key: &str, since: Timestamp, now: Timestamp) {
        let delay = match self.entries.get(key) {
            Some(entry) if !self.forgotten(entry, since) => (entry.delay * 2).min(self.most),
            _ => self.first,
        };
        self.entries
            .insert(key.to_owned(), Entry { delay, raised: now });
    }

    fn forgotten(&self, entry: &Entry, since: Timestamp) -> bool {
        let quiet = Duration::try_from(since.duration_since(entry.raised)).unwrap_or_default();
        quiet > Duration::from_secs(600).max(self.most * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn the_first_restart_is_at_once_and_delays_double_to_the_most() {
        let mut backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));
        let mut now = 1000;
        assert_eq!(backoff.remaining("c", at(now), at(now)), None);
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            backoff.raise("c", at(now), at(now));
            assert_eq!(backoff.delay("c").as_secs(), expected);
            let rest = backoff.remaining("c", at(now), at(now + 4));
            assert_eq!(rest.map(|r| r.as_secs()), Some(expected - 4));
            now += expected as i64;
            assert_eq!(
                backoff.remaining("c", at(now - expected as i64), at(now)),
                None
            );
        }
    }

    #[test]
    fn a_container_that_ran_long_starts_over() {
        let mut backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));
        backoff.raise("c", at(0), at(0));
        backoff.raise("c", at(10), at(10));
        // It ran until 700, which is more than ten minutes after the last try.
        assert_eq!(backoff.remaining("c", at(700), at(701)), None);
        backoff.raise("c", at(700), at(701));
        assert_eq!(backoff.delay("c").as_secs(), 10);
    }
}
