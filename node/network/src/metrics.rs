//! The proxy's metrics, by upstream's names.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

type Seconds = Gauge<f64, AtomicU64>;

/// Which family a number is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByFamily {
    pub(crate) ip_family: &'static str,
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) sync_duration: Histogram,
    pub(crate) full_sync_duration: Histogram,
    pub(crate) partial_sync_duration: Histogram,
    pub(crate) last_sync: Seconds,
    pub(crate) last_queued: Seconds,
    pub(crate) service_changes: Counter,
    pub(crate) endpoint_changes: Counter,
    pub(crate) failures: Counter,
    pub(crate) forgotten: Family<ByFamily, Counter>,
}

fn duration() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::with_prefix("kubeproxy");
        let metrics = Metrics {
            sync_duration: duration(),
            full_sync_duration: duration(),
            partial_sync_duration: duration(),
            last_sync: Seconds::default(),
            last_queued: Seconds::default(),
            service_changes: Counter::default(),
            endpoint_changes: Counter::default(),
            failures: Counter::default(),
            forgotten: Family::default(),
            registry: Registry::default(),
        };
        let m = &metrics;
        registry.register(
            "sync_proxy_rules_duration_seconds",
            "Latency of writing rules",
            m.sync_duration.clone(),
        );
        registry.register(
            "sync_full_proxy_rules_duration_seconds",
            "Latency of writing all rules",
            m.full_sync_duration.clone(),
        );
        registry.register(
            "sync_partial_proxy_rules_duration_seconds",
            "Latency of writing changes",
            m.partial_sync_duration.clone(),
        );
        registry.register(
            "sync_proxy_rules_last_timestamp_seconds",
            "When rules were last written",
            m.last_sync.clone(),
        );
        registry.register(
            "sync_proxy_rules_last_queued_timestamp_seconds",
            "When a change was last noted",
            m.last_queued.clone(),
        );
        registry.register(
            "sync_proxy_rules_service_changes",
            "Changes of Services",
            m.service_changes.clone(),
        );
        registry.register(
            "sync_proxy_rules_endpoint_changes",
            "Changes of EndpointSlices",
            m.endpoint_changes.clone(),
        );
        registry.register(
            "sync_proxy_rules_nftables_sync_failures",
            "Transactions the kernel refused",
            m.failures.clone(),
        );
        registry.register(
            "conntrack_reconciler_deleted_entries",
            "Stale UDP connections forgotten",
            m.forgotten.clone(),
        );
        Metrics {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    /// As Prometheus reads it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
