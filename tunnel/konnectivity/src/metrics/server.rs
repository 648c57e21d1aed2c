//! What a server counts.

use std::time::Duration;

use super::{Counter, Gauge, Histogram, Labelled, Page, Segments};

const DIAL: [f64; 9] = [
    0.000_001, 0.000_01, 0.000_1, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5,
];
const LIFE: [f64; 12] = [
    1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0,
];

/// The two gRPC methods.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Method {
    Proxy,
    Connect,
}
const METHODS: [&str; 2] = ["Proxy", "Connect"];

/// Why a dial came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialFailure {
    NoAgent,
    ErrorResponse,
    UnrecognizedResponse,
    SendResponse,
    BackendClose,
    BackendDialTimeout,
    FrontendClose,
}
const DIAL_FAILURES: [&str; 7] = [
    "no_agent",
    "error_response",
    "unrecognized_response",
    "send_rsp",
    "backend_close",
    "backend_dial_timeout",
    "frontend_close",
];

/// A server's numbers.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    pub(crate) agents: Segments,
    pub(crate) clients: Segments,
    pub(crate) dial_duration: Histogram,
    pub(crate) frontend_write: Histogram,
    pub(crate) connection_duration: Histogram,
    grpc: [Gauge; 2],
    pub(crate) http: Gauge,
    pub(crate) pending: Gauge,
    pub(crate) established: Gauge,
    dial_failures: [Counter; 7],
    pub(crate) culled_leases: Counter,
    pub(crate) lease_deletes: Labelled,
    pub(crate) lease_lists: Labelled,
    pub(crate) lease_delete_latency: Histogram,
    pub(crate) lease_list_latency: Histogram,
}

impl Default for ServerMetrics {
    fn default() -> ServerMetrics {
        ServerMetrics {
            agents: Segments::new(["from_agent", "to_agent"]),
            clients: Segments::new(["from_client", "to_client"]),
            dial_duration: Histogram::new(&DIAL),
            frontend_write: Histogram::new(&DIAL),
            connection_duration: Histogram::new(&LIFE),
            grpc: Default::default(),
            http: Gauge::default(),
            pending: Gauge::default(),
            established: Gauge::default(),
            dial_failures: Default::default(),
            culled_leases: Counter::default(),
            lease_deletes: Labelled::default(),
            lease_lists: Labelled::default(),
            lease_delete_latency: Histogram::new(&DIAL),
            lease_list_latency: Histogram::new(&DIAL),
        }
    }
}

impl ServerMetrics {
    pub(crate) fn grpc(&self, method: Method) -> &Gauge {
        &self.grpc[method as usize]
    }

    pub(crate) fn dial_failed(&self, why: DialFailure) {
        self.dial_failures[why as usize].add();
    }

    pub(crate) fn dialled(&self, took: Duration) {
        self.dial_duration.observe(took);
    }

    /// The page, with the number of agents that each strategy can choose from.
    pub(crate) fn page(&self, ready: &[(&'static str, usize)]) -> String {
        let mut page = Page::new("konnectivity_network_proxy_server_");
        page.histogram(
            "dial_duration_seconds",
            "Time from request to answer of a dial.",
            &self.dial_duration,
        );
        page.histogram(
            "frontend_write_duration_seconds",
            "Time a packet to a client took.",
            &self.frontend_write,
        );
        page.histogram(
            "connection_duration_seconds",
            "How long connections lived.",
            &self.connection_duration,
        );
        self.gauges(&mut page, ready);
        page.counters(
            "dial_failure_count",
            "Dials that failed, by reason.",
            ("reason", &DIAL_FAILURES),
            &self.dial_failures,
        );
        page.segments(&[&self.agents, &self.clients]);
        self.leases(&mut page);
        page.text
    }

    fn gauges(&self, page: &mut Page, ready: &[(&'static str, usize)]) {
        let full = [&self.clients.full, &self.agents.full];
        for (name, help, gauges) in [
            (
                "grpc_connections",
                "Open gRPC calls by method.",
                self.grpc.each_ref(),
            ),
            (
                "full_receive_channels",
                "Streams that wait for a slow reader, by method.",
                full,
            ),
        ] {
            page.family(name, "gauge", help);
            for (method, gauge) in METHODS.iter().zip(gauges) {
                page.sample(name, &format!("service_method=\"{method}\""), gauge.get());
            }
        }
        page.gauge(
            "http_connections",
            "Open HTTP CONNECT connections.",
            self.http.get(),
        );
        let first = ready.first().map_or(0, |(_, count)| *count);
        page.gauge(
            "ready_backend_connections",
            "Agents; ready_backends says it by strategy.",
            first as i64,
        );
        page.family("ready_backends", "gauge", "Agents by strategy.");
        for (strategy, count) in ready {
            page.sample(
                "ready_backends",
                &format!("proxy_strategy=\"{strategy}\""),
                count,
            );
        }
        page.gauge(
            "pending_backend_dials",
            "Dials without an answer yet.",
            self.pending.get(),
        );
        page.gauge(
            "established_connections",
            "Connections through agents.",
            self.established.get(),
        );
    }

    fn leases(&self, page: &mut Page) {
        page.family(
            "culled_leases_count",
            "counter",
            "Expired leases that were deleted.",
        );
        page.sample("culled_leases_count", "", self.culled_leases.value());
        page.labelled(
            "lease_delete_total",
            "Deletions of leases by answer.",
            &self.lease_deletes,
        );
        page.labelled(
            "lease_list_total",
            "Lists of leases by answer.",
            &self.lease_lists,
        );
        page.histogram(
            "lease_delete_latency_seconds",
            "Time of deletions of leases.",
            &self.lease_delete_latency,
        );
        page.histogram(
            "lease_list_latency_seconds",
            "Time of lists of leases.",
            &self.lease_list_latency,
        );
    }
}
