//! What is counted, by CoreDNS' names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::message::{Code, kind};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    proto: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    rcode: &'static str,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Asked, Counter>,
    responses: Family<Answered, Counter>,
    duration: Histogram,
    /// Answers from the cache.
    pub(crate) hits: Counter,
    /// Questions that were not in it.
    pub(crate) misses: Counter,
    /// Questions nobody answered.
    pub(crate) forward_failures: Counter,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let metrics = Metrics {
            registry: Registry::default(),
            requests: Family::default(),
            responses: Family::default(),
            duration: Histogram::new(exponential_buckets(0.00025, 2.0, 16)),
            hits: Counter::default(),
            misses: Counter::default(),
            forward_failures: Counter::default(),
        };
        let mut registry = Registry::with_prefix("coredns");
        let m = &metrics;
        registry.register("dns_requests", "Questions", m.requests.clone());
        registry.register("dns_responses", "Answers", m.responses.clone());
        registry.register(
            "dns_request_duration_seconds",
            "How long answers took",
            m.duration.clone(),
        );
        registry.register("cache_hits", "Answers from the cache", m.hits.clone());
        registry.register(
            "cache_misses",
            "Questions that were not in the cache",
            m.misses.clone(),
        );
        registry.register(
            "forward_healthcheck_broken",
            "Questions nobody answered",
            m.forward_failures.clone(),
        );
        Metrics {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    pub(crate) fn asked(&self, proto: &'static str, kind: u16) {
        let r#type = name_of(kind);
        self.requests.get_or_create(&Asked { proto, r#type }).inc();
    }

    pub(crate) fn answered(&self, code: Code, took: Duration) {
        let rcode = code.name();
        self.responses.get_or_create(&Answered { rcode }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// As Prometheus reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn name_of(number: u16) -> &'static str {
    match number {
        kind::A => "A",
        kind::AAAA => "AAAA",
        kind::CNAME => "CNAME",
        kind::NS => "NS",
        kind::PTR => "PTR",
        kind::SOA => "SOA",
        kind::SRV => "SRV",
        kind::TXT => "TXT",
        _ => "other",
    }
}
