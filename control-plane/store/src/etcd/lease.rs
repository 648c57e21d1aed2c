//! Leases for keys with a time to live, shared between keys.
//!
//! A lease per key would double the writes of a cluster that makes many events, so keys that are
//! written shortly after one another with the same time to live share one, as upstream's lease
//! manager does (`apiserver/pkg/storage/etcd3/lease_manager.go`): for a minute or a twentieth of the
//! time to live, whichever is shorter, and for at most a thousand keys. The lease lives that much
//! longer, so that no key ends early.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

const REUSE_LIMIT: u64 = 60;
const REUSE_DIVISOR: u64 = 20;
const KEYS_LIMIT: u32 = 1000;

/// The leases that may still take keys, by time to live in seconds.
#[derive(Debug, Default)]
pub(super) struct Leases {
    open: HashMap<u64, Lease>,
}

#[derive(Debug)]
struct Lease {
    id: i64,
    until: Instant,
    keys: u32,
}

/// A time to live in whole seconds, as leases count.
pub(super) fn seconds(ttl: Duration) -> u64 {
    (ttl.as_nanos().div_ceil(1_000_000_000) as u64).max(1)
}

/// How many seconds longer than the keys' time to live a lease is granted for.
pub(super) fn extra(ttl: u64) -> u64 {
    (ttl / REUSE_DIVISOR).min(REUSE_LIMIT)
}

impl Leases {
    /// A lease that takes another key with this time to live.
    pub(super) fn find(&mut self, ttl: u64, now: Instant) -> Option<i64> {
        self.open
            .retain(|_, lease| lease.until > now && lease.keys < KEYS_LIMIT);
        let lease = self.open.get_mut(&ttl)?;
        lease.keys += 1;
        Some(lease.id)
    }

    /// Remembers a lease that was just granted and has its first key.
    pub(super) fn add(&mut self, ttl: u64, id: i64, now: Instant) {
        let until = now + Duration::from_secs(extra(ttl));
        self.open.insert(ttl, Lease { id, until, keys: 1 });
    }

    /// Forgets a lease etcd does not know any more.
    pub(super) fn forget(&mut self, id: i64) {
        self.open.retain(|_, lease| lease.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_written_within_the_reuse_time_share_a_lease() {
        let mut leases = Leases::default();
        let start = Instant::now();
        leases.add(3600, 7, start);
        let minute = Duration::from_secs(60);
        assert_eq!(
            leases.find(3600, start + minute - Duration::from_secs(1)),
            Some(7)
        );
        assert_eq!(leases.find(600, start), None, "another time to live");
        assert_eq!(leases.find(3600, start + minute), None, "too late");
    }

    #[test]
    fn a_lease_takes_a_thousand_keys_and_no_more() {
        let mut leases = Leases::default();
        let now = Instant::now();
        leases.add(3600, 7, now);
        let shared = (0..2000).take_while(|_| leases.find(3600, now).is_some());
        assert_eq!(shared.count(), 999);
    }

    #[test]
    fn a_lease_outlives_its_keys_by_the_reuse_time() {
        assert_eq!(extra(3600), 60);
        assert_eq!(extra(100), 5);
        assert_eq!(extra(5), 0);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_millis(1500)), 2);
    }

    #[test]
    fn a_lease_etcd_forgot_is_not_used_again() {
        let mut leases = Leases::default();
        let now = Instant::now();
        leases.add(3600, 7, now);
        leases.forget(7);
        assert_eq!(leases.find(3600, now), None);
    }
}
