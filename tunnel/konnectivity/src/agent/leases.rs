//! How many servers there are, by their leases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};

use crate::kubernetes::outcome;
use crate::leases::valid_until;
use crate::metrics::AgentMetrics;

/// Between the end of a watch, or an error, and the next try.
const PAUSE: Duration = Duration::from_secs(1);

/// Which count is believed when servers are counted by leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountSource {
    /// The leases.
    Leases,
    /// The larger one of the leases and what servers say.
    Max,
}

/// Where leases are found.
#[derive(Clone)]
pub struct LeaseCounting {
    /// Who keeps them.
    pub client: kube::Client,
    /// Their namespace.
    pub namespace: String,
    /// How they are labelled.
    pub selector: String,
    /// Which count is believed.
    pub source: CountSource,
}

impl std::fmt::Debug for LeaseCounting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeaseCounting({} {})", self.namespace, self.selector)
    }
}

/// What is known of the servers' leases: until when each is believed.
#[derive(Default)]
pub(super) struct Count(Mutex<HashMap<String, Timestamp>>);

impl Count {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are valid at a moment; 0 while nothing is known.
    pub(super) fn get(&self, now: Timestamp) -> u32 {
        let valid = self.known().values().filter(|end| **end > now).count();
        u32::try_from(valid).unwrap_or(u32::MAX)
    }

    fn replace(&self, leases: &[Lease]) {
        *self.known() = leases.iter().filter_map(entry).collect();
    }

    fn see(&self, lease: &Lease) {
        self.known().extend(entry(lease));
    }

    fn forget(&self, lease: &Lease) {
        self.known()
            .remove(lease.metadata.name.as_deref().unwrap_or_default());
    }
}

fn entry(lease: &Lease) -> Option<(String, Timestamp)> {
    Some((lease.metadata.name.clone()?, valid_until(lease)?))
}

/// How many servers to connect to.
pub(super) fn wanted(leases: Option<(CountSource, u32)>, told: Option<u32>) -> u32 {
    let told = told.unwrap_or(1);
    let count = match leases {
        None => told,
        Some((CountSource::Leases, count)) => count,
        Some((CountSource::Max, count)) => count.max(told),
    };
    count.max(1)
}

/// Counts for ever: lists, then watches from there, as upstream's informer does.
pub(super) async fn count(settings: LeaseCounting, count: Arc<Count>, metrics: Arc<AgentMetrics>) {
    let watcher = Watcher {
        api: Api::namespaced(settings.client, &settings.namespace),
        selector: settings.selector,
        count,
        metrics,
    };
    loop {
        let ended = match watcher.list().await {
            Ok(version) => watcher.follow(version).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "servers' leases cannot be followed; trying again");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

struct Watcher {
    api: Api<Lease>,
    selector: String,
    count: Arc<Count>,
    metrics: Arc<AgentMetrics>,
}

impl Watcher {
    async fn list(&self) -> kube::Result<String> {
        let params = ListParams::default().labels(&self.selector);
        let began = Instant::now();
        let listed = self.api.list(&params).await;
        self.metrics.lease_list_latency.observe(began.elapsed());
        let (code, reason) = outcome(&listed);
        self.metrics
            .lease_lists
            .add(&[("http_response_code", &code), ("reason", &reason)]);
        let listed = listed?;
        self.count.replace(&listed.items);
        Ok(listed.metadata.resource_version.unwrap_or_default())
    }

    // Until the server has forgotten what happened since that version, or an error.
    async fn follow(&self, mut version: String) -> kube::Result<()> {
        let params = WatchParams::default().labels(&self.selector);
        loop {
            let opened = self.api.watch(&params, &version).await;
            let (code, reason) = outcome(&opened);
            self.metrics
                .lease_watches
                .add(&[("http_response_code", &code), ("reason", &reason)]);
            let mut events = std::pin::pin!(opened?);
            while let Some(event) = events.try_next().await? {
                match event {
                    WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                        self.count.see(&lease);
                        version = lease.metadata.resource_version.unwrap_or(version);
                    }
                    WatchEvent::Deleted(lease) => {
                        self.count.forget(&lease);
                        version = lease.metadata.resource_version.unwrap_or(version);
                    }
                    WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                    WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn servers_are_counted_as_the_source_says() {
        let cases = [
            (None, None, 1),
            (None, Some(3), 3),
            (Some((CountSource::Leases, 0)), Some(3), 1),
            (Some((CountSource::Leases, 2)), Some(3), 2),
            (Some((CountSource::Max, 2)), Some(3), 3),
            (Some((CountSource::Max, 4)), Some(3), 4),
        ];
        for (leases, told, expected) in cases {
            assert_eq!(wanted(leases, told), expected, "{leases:?} {told:?}");
        }
    }

    #[test]
    fn a_lease_that_nobody_renews_is_not_counted_for_ever() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let second = SignedDuration::from_secs(1);
        let of = |name: &str, since| crate::leases::lease(name, &BTreeMap::new(), None, since);
        let count = Count::default();
        count.replace(&[of("a", start), of("b", start)]);
        assert_eq!(count.get(start), 2);
        count.see(&of("b", start + second * 20));
        assert_eq!(count.get(start + second * 40), 1);
        count.forget(&of("b", start));
        assert_eq!(count.get(start), 1);
    }
}
