//! Whose turn it is: buckets that we are told to keep to, and gates that Azure closes for a while.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::CloudConfig;

/// Buckets and gates, by family and by whether it is a read.
pub(super) struct Limits {
    config: CloudConfig,
    lanes: HashMap<(String, bool), Lane>,
}

/// One family's reads, or its writes.
struct Lane {
    bucket: Option<Bucket>,
    closed_until: Option<Instant>,
}

struct Bucket {
    per_second: f64,
    size: f64,
    /// What is in it, as of when.
    filled: (f64, Instant),
}

impl Limits {
    pub(super) fn new(config: CloudConfig) -> Limits {
        Limits {
            config,
            lanes: HashMap::new(),
        }
    }

    fn lane(&mut self, family: &str, is_read: bool, now: Instant) -> &mut Lane {
        let config = &self.config;
        self.lanes
            .entry((family.to_owned(), is_read))
            .or_insert_with(|| {
                let limits = config.limits(family);
                let limit = limits.map(|[reads, writes]| if is_read { reads } else { writes });
                Lane {
                    bucket: limit.map(|(per_second, size)| Bucket {
                        per_second,
                        size: f64::from(size.max(1)),
                        filled: (f64::from(size.max(1)), now),
                    }),
                    closed_until: None,
                }
            })
    }

    /// Takes a turn; or says how long to wait before asking again.
    pub(super) fn take(&mut self, family: &str, is_read: bool, now: Instant) -> Option<Duration> {
        let lane = self.lane(family, is_read, now);
        if let Some(until) = lane.closed_until.filter(|until| *until > now) {
            return Some(until - now);
        }
        lane.closed_until = None;
        lane.bucket.as_mut().and_then(|bucket| bucket.take(now))
    }

    /// Closes the gate: Azure said so.
    pub(super) fn close(&mut self, family: &str, is_read: bool, until: Instant) {
        let lane = self.lane(family, is_read, until);
        lane.closed_until = lane.closed_until.max(Some(until));
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> Option<Duration> {
        let (left, since) = self.filled;
        let gained = now.saturating_duration_since(since).as_secs_f64() * self.per_second;
        let left = (left + gained).min(self.size);
        if left >= 1.0 {
            self.filled = (left - 1.0, now);
            return None;
        }
        self.filled = (left, now);
        let wait = Duration::from_secs_f64((1.0 - left) / self.per_second);
        Some(wait.max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn limits(json: &str) -> Limits {
        Limits::new(CloudConfig::parse(json, |_| None).unwrap())
    }

    #[test]
    fn a_bucket_empties_and_fills() {
        let mut limits = limits(
            r#"{"cloudProviderRateLimit": true, "cloudProviderRateLimitQPS": 2, "cloudProviderRateLimitBucket": 3}"#,
        );
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(limits.take("loadbalancers", true, now), None);
        }
        let wait = limits.take("loadbalancers", true, now).unwrap();
        assert_eq!(wait, Duration::from_millis(500));
        assert_eq!(
            limits.take("loadbalancers", false, now),
            None,
            "writes apart"
        );
        assert_eq!(limits.take("routetables", true, now), None, "types apart");
        let later = now + Duration::from_millis(501);
        assert_eq!(limits.take("loadbalancers", true, later), None);
        assert!(limits.take("loadbalancers", true, later).is_some());
    }

    #[test]
    fn a_gate_is_closed_for_as_long_as_azure_said() {
        let mut limits = limits("{}");
        let now = Instant::now();
        limits.close("virtualmachines", true, now + Duration::from_secs(7));
        limits.close("virtualmachines", true, now + Duration::from_secs(3));
        let wait = limits.take("virtualmachines", true, now);
        assert_eq!(wait, Some(Duration::from_secs(7)));
        assert_eq!(limits.take("virtualmachines", false, now), None);
        let then = now + Duration::from_secs(7);
        assert_eq!(limits.take("virtualmachines", true, then), None);
    }
}
