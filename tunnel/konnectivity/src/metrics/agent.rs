//! What an agent counts.

use super::{Counter, Gauge, Histogram, Labelled, Page, Segments};

const DIAL: [f64; 7] = [0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0];

/// Which way a server was lost.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    ToServer,
    FromServer,
}
const DIRECTIONS: [&str; 2] = ["to_server", "from_server"];

/// Why a destination was not reached.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DialFailed {
    Timeout,
    Unknown,
}
const DIAL_FAILED: [&str; 2] = ["timeout", "unknown"];

/// An agent's numbers.
#[derive(Debug)]
pub(crate) struct AgentMetrics {
    pub(crate) server: Segments,
    pub(crate) dial_duration: Histogram,
    server_failures: [Counter; 2],
    dial_failures: [Counter; 2],
    pub(crate) servers: Gauge,
    pub(crate) known_servers: Gauge,
    pub(crate) endpoints: Gauge,
    pub(crate) lease_lists: Labelled,
    pub(crate) lease_watches: Labelled,
    pub(crate) lease_list_latency: Histogram,
}

impl Default for AgentMetrics {
    fn default() -> AgentMetrics {
        AgentMetrics {
            server: Segments::new(["to_agent", "from_agent"]),
            dial_duration: Histogram::new(&DIAL),
            server_failures: Default::default(),
            dial_failures: Default::default(),
            servers: Gauge::default(),
            known_servers: Gauge::default(),
            endpoints: Gauge::default(),
            lease_lists: Labelled::default(),
            lease_watches: Labelled::default(),
            lease_list_latency: Histogram::new(&DIAL),
        }
    }
}

impl AgentMetrics {
    pub(crate) fn server_failed(&self, direction: Direction) {
        self.server_failures[direction as usize].add();
    }

    pub(crate) fn dial_failed(&self, why: DialFailed) {
        self.dial_failures[why as usize].add();
    }

    /// The page.
    pub(crate) fn page(&self) -> String {
        let mut page = Page::new("konnectivity_network_proxy_agent_");
        page.histogram(
            "dial_duration_seconds",
            "Time to connect to a destination.",
            &self.dial_duration,
        );
        page.counters(
            "server_connection_failure_count",
            "Servers that were lost, by direction.",
            ("direction", &DIRECTIONS),
            &self.server_failures,
        );
        page.counters(
            "endpoint_dial_failure_total",
            "Destinations that were not reached, by reason.",
            ("reason", &DIAL_FAILED),
            &self.dial_failures,
        );
        page.gauge(
            "open_server_connections",
            "Servers that are connected.",
            self.servers.get(),
        );
        page.gauge(
            "known_server_count",
            "Servers there should be.",
            self.known_servers.get(),
        );
        page.gauge(
            "open_endpoint_connections",
            "Connections to destinations.",
            self.endpoints.get(),
        );
        page.segments(&[&self.server]);
        page.labelled(
            "lease_lists_total",
            "Lists of leases by answer.",
            &self.lease_lists,
        );
        page.labelled(
            "lease_watches_total",
            "Watches of leases by answer.",
            &self.lease_watches,
        );
        page.histogram(
            "lease_list_latency_seconds",
            "Time of lists of leases.",
            &self.lease_list_latency,
        );
        page.text
    }
}
