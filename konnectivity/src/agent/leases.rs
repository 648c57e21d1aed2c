//! How many servers there are, by their leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

use crate::kubernetes::outcome;
use crate::leases::is_valid;
use crate::metrics::AgentMetrics;

/// How often leases are listed: often enough to see one run out.
const LIST: Duration = Duration::from_secs(10);

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

/// The latest count; 0 while there is none.
#[derive(Default)]
pub(super) struct Count(AtomicU32);

impl Count {
    pub(super) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
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

/// Counts for ever.
pub(super) async fn count(settings: LeaseCounting, count: Arc<Count>, metrics: Arc<AgentMetrics>) {
    let api: Api<Lease> = Api::namespaced(settings.client, &settings.namespace);
    let params = ListParams::default().labels(&settings.selector);
    loop {
        let began = Instant::now();
        let listed = api.list(&params).await;
        metrics.lease_list_latency.observe(began.elapsed());
        let (code, reason) = outcome(&listed);
        metrics
            .lease_lists
            .add(&[("http_response_code", &code), ("reason", &reason)]);
        match listed {
            Ok(leases) => {
                let now = Timestamp::now();
                let valid = leases.iter().filter(|lease| is_valid(lease, now)).count();
                let valid = u32::try_from(valid).unwrap_or(u32::MAX);
                count.0.store(valid, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "servers' leases could not be listed"),
        }
        tokio::time::sleep(LIST).await;
    }
}

#[cfg(test)]
mod tests {
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
}
