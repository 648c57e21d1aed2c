//! What an operator can measure, under upstream's names where upstream has the metric.

use probes::process::Process;
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
    /// Subresource, or empty.
    pub(crate) subresource: String,
    /// `cluster`, `namespace`, `resource` or empty.
    pub(crate) scope: &'static str,
    /// Upstream's name for this program.
    pub(crate) component: &'static str,
    /// `All`, or empty.
    pub(crate) dry_run: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: String,
    scope: &'static str,
    component: &'static str,
    dry_run: &'static str,
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
    /// The same without what is meant to last: what objectives are about.
    objectives: Family<RequestLabels, Histogram>,
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
    process: Process,
}

/// Adds a family to a page.
type Add = fn(&Metrics, &mut Registry, &'static str, &'static str);

/// Every family, with what it says; counters get their `_total` from the format.
const FAMILIES: [(&str, &str, Add); 12] = [
    (
        "apiserver_request",
        "Requests by verb, resource and code",
        |m, r, name, help| {
            r.register(name, help, m.requests.clone());
        },
    ),
    (
        "apiserver_request_duration_seconds",
        "Latency of requests",
        |m, r, name, help| {
            r.register(name, help, m.durations.clone());
        },
    ),
    (
        "apiserver_request_sli_duration_seconds",
        "Latency of requests, without watches and connections",
        |m, r, name, help| r.register(name, help, m.objectives.clone()),
    ),
    (
        "apiserver_flowcontrol_rejected_requests",
        "Requests that got no turn",
        |m, r, name, help| {
            r.register(name, help, m.refused.clone());
        },
    ),
    (
        "apiserver_flowcontrol_current_executing_seats",
        "Seats in use, by priority level",
        |m, r, name, help| r.register(name, help, m.executing.clone()),
    ),
    (
        "apiserver_flowcontrol_current_inqueue_requests",
        "Requests waiting for a turn, by priority level",
        |m, r, name, help| r.register(name, help, m.queued.clone()),
    ),
    (
        "apiserver_current_inflight_requests",
        "Requests being answered",
        |m, r, name, help| {
            r.register(name, help, m.inflight.clone());
        },
    ),
    (
        "apiserver_longrunning_requests",
        "Watches under way",
        |m, r, name, help| {
            r.register(name, help, m.watches.clone());
        },
    ),
    (
        "apiserver_storage_objects",
        "Objects by resource",
        |m, r, name, help| {
            r.register(name, help, m.objects.clone());
        },
    ),
    (
        "apiserver_storage_size_bytes",
        "Bytes the store occupies",
        |m, r, name, help| {
            r.register(name, help, m.size.clone());
        },
    ),
    (
        "apiserver_client_certificate_expiration_seconds",
        "Time left of the client certificates that requests are made with",
        |m, r, name, help| r.register(name, help, m.client_certificates.clone()),
    ),
    (
        "kyanite_certificate_expiry_seconds",
        "When a certificate of the cluster ends, in seconds since 1970",
        |m, r, name, help| r.register(name, help, m.expiries.clone()),
    ),
];

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = Registry::default();
        let mut metrics = Metrics {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            objectives: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            inflight: Family::default(),
            watches: Gauge::default(),
            objects: Family::default(),
            size: Gauge::default(),
            client_certificates: Histogram::new(CERTIFICATE_BUCKETS),
            expiries: Family::default(),
            refused: Family::default(),
            executing: Family::default(),
            queued: Family::default(),
            process: Process::register(&mut registry, &crate::build()),
            registry: Registry::default(),
        };
        for (name, help, add) in FAMILIES {
            add(&metrics, &mut registry, name, help);
        }
        metrics.registry = registry;
        metrics
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
        self.requests
            .get_or_create(&CodeLabels {
                verb: labels.verb,
                group: labels.group,
                version: labels.version,
                resource: labels.resource,
                subresource: labels.subresource.clone(),
                scope: labels.scope,
                component: labels.component,
                dry_run: labels.dry_run,
                code,
            })
            .inc();
        self.durations.get_or_create(labels).observe(seconds);
        if !["WATCH", "CONNECT"].contains(&labels.verb) {
            self.objectives.get_or_create(labels).observe(seconds);
        }
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
        self.process.measure();
        let mut out = String::new();
        encode(&mut out, &self.registry).expect("writing to memory cannot fail");
        out
    }
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
            subresource: String::new(),
            scope: "resource",
            component: "apiserver",
            dry_run: "",
        };
        metrics.finished(&labels, 200, 0.002);
        let text = metrics.text([("pods".to_owned(), 3)].into_iter(), 10);
        let expected = [
            "apiserver_request_total{verb=\"GET\",group=\"\",version=\"v1\",resource=\"pods\",subresource=\"\",scope=\"resource\",component=\"apiserver\",dry_run=\"\",code=\"200\"} 1",
            "apiserver_request_sli_duration_seconds_bucket{",
            "kubernetes_build_info{major=\"1\"",
            "process_cpu_seconds_total ",
            "process_start_time_seconds 1",
            "process_max_fds ",
            "apiserver_request_duration_seconds_bucket{",
            "apiserver_storage_objects{resource=\"pods\"} 3",
            "process_resident_memory_bytes",
        ];
        for line in expected {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
