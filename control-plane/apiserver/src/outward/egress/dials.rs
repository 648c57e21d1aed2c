//! Dials through tunnels, counted under upstream's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Which tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    /// `grpc` or `http_connect`.
    pub(super) protocol: &'static str,
    /// `uds` or `tcp`.
    pub(super) transport: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    protocol: &'static str,
    transport: &'static str,
    stage: &'static str,
}

/// Upstream's buckets, in seconds.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 2.5, 12.5];

/// What is counted.
#[derive(Debug)]
pub(crate) struct Dials {
    starts: Family<Labels, Counter>,
    durations: Family<Labels, Histogram>,
    // A gauge, because a counter's name would get the ending `_total`, which upstream's has not.
    failures: Family<FailureLabels, Gauge>,
}

impl Default for Dials {
    fn default() -> Dials {
        Dials {
            starts: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            failures: Family::default(),
        }
    }
}

impl Dials {
    /// Adds them to what is published.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("apiserver_egress_dialer");
        registry.register("dial_start", "Dials through a tunnel", self.starts.clone());
        let durations = self.durations.clone();
        registry.register("dial_duration_seconds", "How long dials took", durations);
        let failures = self.failures.clone();
        registry.register(
            "dial_failure_count",
            "Dials that failed, by stage",
            failures,
        );
    }

    pub(super) fn start(&self, labels: Labels) {
        self.starts.get_or_create(&labels).inc();
    }

    pub(super) fn done(&self, labels: Labels, seconds: f64) {
        self.durations.get_or_create(&labels).observe(seconds);
    }

    /// `stage` is `connect` on the way to the tunnel's server, `proxy` beyond it.
    pub(super) fn failed(
        &self,
        Labels {
            protocol,
            transport,
        }: Labels,
        stage: &'static str,
    ) {
        let labels = FailureLabels {
            protocol,
            transport,
            stage,
        };
        self.failures.get_or_create(&labels).inc();
    }
}
