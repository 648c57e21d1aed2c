//! Counters under upstream's names, in Prometheus' text format.
//!
//! Every label has a few known values, so a sample is an atomic at a fixed place: counting a packet
//! costs no lookup.

mod agent;
mod server;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::packet::{NAMES, Packet};

pub(crate) use agent::AgentMetrics;
pub(crate) use agent::{DialFailed, Direction};
pub(crate) use server::ServerMetrics;
pub(crate) use server::{DialFailure, Method};

/// A number that goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn value(&self) -> String {
        self.0.load(Relaxed).to_string()
    }
}

/// A number that goes both ways.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    /// One more, until the result is dropped.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.0.fetch_add(1, Relaxed);
        Held(self)
    }

    pub(crate) fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// One of a gauge's count.
pub(crate) struct Held<'a>(&'a Gauge);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Durations by size.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    sum_micros: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_micros: AtomicU64::new(0),
        }
    }

    pub(crate) fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let place = self.bounds.iter().position(|bound| seconds <= *bound);
        self.buckets[place.unwrap_or(self.bounds.len())].fetch_add(1, Relaxed);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Relaxed);
    }
}

/// Counts by labels that cannot be listed beforehand: answers of an API server, gRPC codes.
#[derive(Debug, Default)]
pub(crate) struct Labelled(Mutex<BTreeMap<String, u64>>);

impl Labelled {
    pub(crate) fn add(&self, labels: &[(&str, &str)]) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(label_text(labels)).or_default() += 1;
    }
}

fn label_text(labels: &[(&str, &str)]) -> String {
    let shown: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", value.replace(['"', '\\', '\n'], "_")))
        .collect();
    shown.join(",")
}

/// Which way a packet went, seen from here.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Segment {
    In,
    Out,
}

/// The packets of one kind of stream.
#[derive(Debug)]
pub(crate) struct Segments {
    names: [&'static str; 2],
    packets: [[Counter; NAMES.len()]; 2],
    errors: Labelled,
    /// Streams that are not read because a connection on them is too slow.
    pub(crate) full: Gauge,
}

impl Segments {
    fn new(names: [&'static str; 2]) -> Segments {
        Segments {
            names,
            packets: Default::default(),
            errors: Labelled::default(),
            full: Gauge::default(),
        }
    }

    pub(crate) fn count(&self, segment: Segment, packet: &Packet) {
        self.packets[segment as usize][packet.name_index()].add();
    }

    pub(crate) fn error(&self, segment: Segment, code: &str) {
        let name = self.names[segment as usize];
        self.errors.add(&[
            ("segment", name),
            ("code", code),
            ("packet_type", "Unknown"),
        ]);
    }
}

/// The text that is being written.
struct Page {
    text: String,
    prefix: &'static str,
}

impl Page {
    fn new(prefix: &'static str) -> Page {
        let text = String::new();
        Page { text, prefix }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}"
        );
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let prefix = self.prefix;
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.text, "{prefix}{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: i64) {
        self.family(name, "gauge", help);
        self.sample(name, "", value);
    }

    /// Counters that differ in one label.
    fn counters(&mut self, name: &str, help: &str, label: (&str, &[&str]), counts: &[Counter]) {
        self.family(name, "counter", help);
        for (value, count) in label.1.iter().zip(counts) {
            self.sample(name, &format!("{}=\"{value}\"", label.0), count.value());
        }
    }

    fn labelled(&mut self, name: &str, help: &str, counts: &Labelled) {
        self.family(name, "counter", help);
        let counts = counts.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, count) in counts.iter() {
            self.sample(name, labels, count);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, "histogram", help);
        let mut total = 0;
        let bounds = histogram.bounds.iter().map(f64::to_string);
        let bounds = bounds.chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&histogram.buckets) {
            total += bucket.load(Relaxed);
            self.sample(&format!("{name}_bucket"), &format!("le=\"{bound}\""), total);
        }
        let sum = histogram.sum_micros.load(Relaxed) as f64 / 1e6;
        self.sample(&format!("{name}_sum"), "", sum);
        self.sample(&format!("{name}_count"), "", total);
    }

    fn segments(&mut self, all: &[&Segments]) {
        self.family(
            "stream_packets_total",
            "counter",
            "Packets by way and type.",
        );
        for segments in all {
            for (segment, counts) in segments.names.iter().zip(&segments.packets) {
                for (kind, count) in NAMES.iter().zip(counts) {
                    let labels = format!("segment=\"{segment}\",packet_type=\"{kind}\"");
                    self.sample("stream_packets_total", &labels, count.value());
                }
            }
        }
        self.family(
            "stream_errors_total",
            "counter",
            "Ends of streams by gRPC code.",
        );
        for segments in all {
            let counts = segments.errors.0.lock();
            for (labels, count) in counts.unwrap_or_else(PoisonError::into_inner).iter() {
                self.sample("stream_errors_total", labels, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: [&str; 18] = [
        "dial_duration_seconds_bucket{le=\"0.005\"} 1",
        "frontend_write_duration_seconds_count 0",
        "connection_duration_seconds_sum 0",
        "grpc_connections{service_method=\"Proxy\"} 1",
        "grpc_connections{service_method=\"Connect\"} 0",
        "http_connections 0",
        "ready_backend_connections 2",
        "ready_backends{proxy_strategy=\"destHost\"} 2",
        "pending_backend_dials 0",
        "established_connections 0",
        "full_receive_channels{service_method=\"Connect\"} 0",
        "dial_failure_count{reason=\"no_agent\"} 1",
        "dial_failure_count{reason=\"frontend_close\"} 0",
        "stream_packets_total{segment=\"to_agent\",packet_type=\"DRAIN\"} 1",
        "stream_errors_total{segment=\"from_client\",code=\"Canceled\",packet_type=\"Unknown\"} 1",
        "culled_leases_count 0",
        "lease_list_total{http_status_code=\"403\",reason=\"Forbidden\"} 1",
        "lease_delete_latency_seconds_count 0",
    ];
    const AGENT: [&str; 9] = [
        "dial_duration_seconds_count 0",
        "server_connection_failure_count{direction=\"to_server\"} 0",
        "endpoint_dial_failure_total{reason=\"timeout\"} 1",
        "open_server_connections 0",
        "known_server_count 3",
        "open_endpoint_connections 0",
        "stream_packets_total{segment=\"to_agent\",packet_type=\"DATA\"} 0",
        "lease_lists_total{http_response_code=\"200\",reason=\"\"} 1",
        "lease_list_latency_seconds_count 0",
    ];

    fn contains(page: &str, prefix: &str, lines: &[&str]) {
        for line in lines {
            let line = format!("{prefix}{line}");
            assert!(
                page.lines().any(|l| l == line),
                "{line} is missing in\n{page}"
            );
        }
    }

    #[test]
    fn samples_have_upstreams_names() {
        let server = ServerMetrics::default();
        let _call = server.grpc(Method::Proxy).hold();
        server.dialled(Duration::from_millis(2));
        server.dial_failed(DialFailure::NoAgent);
        server.agents.count(Segment::Out, &Packet::Drain);
        server.clients.error(Segment::In, "Canceled");
        server
            .lease_lists
            .add(&[("http_status_code", "403"), ("reason", "Forbidden")]);
        let page = server.page(&[("destHost", 2), ("default", 3)]);
        contains(&page, "konnectivity_network_proxy_server_", &SERVER);

        let agent = AgentMetrics::default();
        agent.dial_failed(DialFailed::Timeout);
        agent.known_servers.set(3);
        agent
            .lease_lists
            .add(&[("http_response_code", "200"), ("reason", "")]);
        contains(&agent.page(), "konnectivity_network_proxy_agent_", &AGENT);
    }
}
