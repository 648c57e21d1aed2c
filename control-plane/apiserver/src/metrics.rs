//! What an operator can measure, under upstream's names where upstream has the metric.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    /// Upper-case verb, `WATCH` and `LIST` included.
    pub(crate) verb: &'static str,
    /// Group.
    pub(crate) group: &'static str,
    /// Version.
    pub(crate) version: &'static str,
    /// Plural resource.
    pub(crate) resource: &'static str,
    /// `cluster`, `namespace`, `resource` or empty.
    pub(crate) scope: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    scope: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    request_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabels {
    flow_schema: String,
    priority_level: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabel {
    priority_level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabel {
    resource: String,
}

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 15] = [
    0.001, 0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
];

/// How long a client certificate may still have: from gone to a year, upstream's steps.
const CERTIFICATE_BUCKETS: [f64; 14] = [
    0.0,
    1_800.0,
    3_600.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// Every metric of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<CodeLabels, Counter>,
    durations: Family<RequestLabels, Histogram>,
    inflight: Family<KindLabel, Gauge>,
    /// Watches under way.
    pub(crate) watches: Gauge,
    objects: Family<ResourceLabel, Gauge>,
    size: Gauge,
    client_certificates: Histogram,
    expiries: Family<NameLabel, Gauge>,
    refused: Family<FlowLabels, Counter>,
    executing: Family<LevelLabel, Gauge>,
    queued: Family<LevelLabel, Gauge>,
    resident: Gauge,
    cpu: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::default();
        let metrics = Metrics {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            inflight: Family::default(),
            watches: Gauge::default(),
            objects: Family::default(),
            size: Gauge::default(),
            client_certificates: Histogram::new(CERTIFICATE_BUCKETS),
            expiries: Family::default(),
            refused: Family::default(),
            executing: Family::default(),
            queued: Family::default(),
            resident: Gauge::default(),
            cpu: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "apiserver_request",
            "Requests by verb, resource and code",
            metrics.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Latency of requests",
            metrics.durations.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests that got no turn",
            metrics.refused.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_executing_seats",
            "Seats in use, by priority level",
            metrics.executing.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests waiting for a turn, by priority level",
            metrics.queued.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests being answered",
            metrics.inflight.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Watches under way",
            metrics.watches.clone(),
        );
        registry.register(
            "apiserver_storage_objects",
            "Objects by resource",
            metrics.objects.clone(),
        );
        registry.register(
            "apiserver_storage_size_bytes",
            "Bytes the store occupies",
            metrics.size.clone(),
        );
        registry.register(
            "apiserver_client_certificate_expiration_seconds",
            "Time left of the client certificates that requests are made with",
            metrics.client_certificates.clone(),
        );
        registry.register(
            "kyanite_certificate_expiry_seconds",
            "When a certificate of the cluster ends, in seconds since 1970",
            metrics.expiries.clone(),
        );
        registry.register(
            "process_resident_memory_bytes",
            "Resident memory",
            metrics.resident.clone(),
        );
        registry.register("process_cpu_seconds", "CPU time used", metrics.cpu.clone());
        Metrics {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    /// Publishes what somebody else counts.
    pub(crate) fn publish(mut self, register: impl FnOnce(&mut Registry)) -> Metrics {
        register(&mut self.registry);
        self
    }

    /// Counts a finished request.
    pub(crate) fn finished(&self, labels: &RequestLabels, code: u16, seconds: f64) {
        let RequestLabels {
            verb,
            group,
            version,
            resource,
            scope,
        } = *labels;
        self.requests
            .get_or_create(&CodeLabels {
                verb,
                group,
                version,
                resource,
                scope,
                code,
            })
            .inc();
        self.durations.get_or_create(labels).observe(seconds);
    }

    /// The gauge of requests being answered.
    pub(crate) fn inflight(&self, mutating: bool) -> Gauge {
        let request_kind = if mutating { "mutating" } else { "readOnly" };
        self.inflight
            .get_or_create(&KindLabel { request_kind })
            .clone()
    }

    /// Notes a request that got no turn.
    pub(crate) fn refused(&self, class: &fairness::Class, why: fairness::Refused) {
        let labels = FlowLabels {
            flow_schema: class.schema.to_string(),
            priority_level: class.level.to_string(),
            reason: why.as_str(),
        };
        self.refused.get_or_create(&labels).inc();
    }

    /// Notes who sits and waits: level, seats in use, requests waiting.
    pub(crate) fn turns(&self, counts: Vec<(std::sync::Arc<str>, u32, usize)>) {
        for (level, used, waiting) in counts {
            let label = LevelLabel {
                priority_level: level.to_string(),
            };
            self.executing.get_or_create(&label).set(i64::from(used));
            let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
            self.queued.get_or_create(&label).set(waiting);
        }
    }

    /// Notes a request made with a certificate that has so many seconds left.
    pub(crate) fn client_certificate(&self, left: i64) {
        self.client_certificates.observe(left as f64);
    }

    /// Notes when a certificate of the cluster ends, in Unix seconds.
    pub(crate) fn certificate_expires(&self, name: &str, at: i64) {
        let name = name.to_owned();
        self.expiries.get_or_create(&NameLabel { name }).set(at);
    }

    /// The text Prometheus reads.
    pub(crate) fn text(&self, objects: impl Iterator<Item = (String, usize)>, size: u64) -> String {
        for (resource, count) in objects {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.objects
                .get_or_create(&ResourceLabel { resource })
                .set(count);
        }
        self.size.set(i64::try_from(size).unwrap_or(i64::MAX));
        self.measure_process();
        let mut out = String::new();
        encode(&mut out, &self.registry).expect("writing to memory cannot fail");
        out
    }

    fn measure_process(&self) {
        if let Some(pages) = proc_field("/proc/self/statm", 1) {
            self.resident
                .set(i64::try_from(pages * 4096).unwrap_or(i64::MAX));
        }
        // Fields 14 and 15 of stat: user and system time in ticks of 10 ms.
        let ticks = proc_field("/proc/self/stat", 13).zip(proc_field("/proc/self/stat", 14));
        if let Some((user, system)) = ticks {
            self.cpu.set((user + system) as f64 / 100.0);
        }
    }
}

fn proc_field(path: &str, index: usize) -> Option<u64> {
    std::fs::read_to_string(path)
        .ok()?
        .split(' ')
        .nth(index)?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_upstreams_names() {
        let metrics = Metrics::default();
        let labels = RequestLabels {
            verb: "GET",
            group: "",
            version: "v1",
            resource: "pods",
            scope: "resource",
        };
        metrics.finished(&labels, 200, 0.002);
        let text = metrics.text([("pods".to_owned(), 3)].into_iter(), 10);
        let expected = [
            "apiserver_request_total{verb=\"GET\",group=\"\",version=\"v1\",resource=\"pods\",scope=\"resource\",code=\"200\"} 1",
            "apiserver_request_duration_seconds_bucket{",
            "apiserver_storage_objects{resource=\"pods\"} 3",
            "process_resident_memory_bytes",
        ];
        for line in expected {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
