//! What happens below the requests: events of watches, the store, admission. Under upstream's names.

use std::time::Instant;

use kinds::resources::Resource;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::status::Result;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stored {
    operation: &'static str,
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Admitted {
    name: &'static str,
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Step {
    operation: &'static str,
    rejected: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Converted {
    crd_name: String,
    from_version: String,
    to_version: &'static str,
    succeeded: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    result: &'static str,
    failure_type: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Upstream's steps for its store, and for admission.
const STORE: [f64; 16] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0,
];
const CONVERSION: [f64; 15] = [
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0,
];
const ADMISSION: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// All of them.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    events: Family<Watched, Counter>,
    sizes: Histograms<Watched>,
    requests: Family<Stored, Counter>,
    errors: Family<Stored, Counter>,
    latencies: Histograms<Stored>,
    steps: Histograms<Step>,
    plugins: Histograms<Admitted>,
    conversions: Histograms<Converted>,
    converters: Family<Asked, Counter>,
    converter_latencies: Histograms<Asked>,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            events: Family::default(),
            sizes: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(1024.0, 2.0, 8))
            }),
            requests: Family::default(),
            errors: Family::default(),
            latencies: Family::new_with_constructor(|| Histogram::new(STORE)),
            steps: Family::new_with_constructor(|| Histogram::new(ADMISSION)),
            plugins: Family::new_with_constructor(|| Histogram::new(ADMISSION)),
            conversions: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            converters: Family::default(),
            converter_latencies: Family::new_with_constructor(|| Histogram::new(CONVERSION)),
        }
    }
}

/// Adds a family to a page.
type Add = fn(&Meters, &mut Registry, &'static str, &'static str);

const FAMILIES: [(&str, &str, Add); 10] = [
    (
        "apiserver_watch_events",
        "Events sent to watchers",
        |m, r, name, help| {
            r.register(name, help, m.events.clone());
        },
    ),
    (
        "apiserver_watch_events_sizes",
        "Bytes of events sent to watchers",
        |m, r, name, help| {
            r.register(name, help, m.sizes.clone());
        },
    ),
    (
        "etcd_requests",
        "Requests to the store",
        |m, r, name, help| {
            r.register(name, help, m.requests.clone());
        },
    ),
    (
        "etcd_request_errors",
        "Requests to the store that failed",
        |m, r, name, help| {
            r.register(name, help, m.errors.clone());
        },
    ),
    (
        "etcd_request_duration_seconds",
        "Latency of the store",
        |m, r, name, help| {
            r.register(name, help, m.latencies.clone());
        },
    ),
    (
        "apiserver_admission_step_admission_duration_seconds",
        "Latency of a phase of admission",
        |m, r, name, help| r.register(name, help, m.steps.clone()),
    ),
    (
        "apiserver_admission_controller_admission_duration_seconds",
        "Latency of a plugin of admission",
        |m, r, name, help| r.register(name, help, m.plugins.clone()),
    ),
    (
        "apiserver_crd_conversion_webhook_duration_seconds",
        "Latency of conversions by a webhook, by definition",
        |m, r, name, help| r.register(name, help, m.conversions.clone()),
    ),
    (
        "apiserver_conversion_webhook_request",
        "Questions to webhooks that convert",
        |m, r, name, help| r.register(name, help, m.converters.clone()),
    ),
    (
        "apiserver_conversion_webhook_duration_seconds",
        "Latency of webhooks that convert",
        |m, r, name, help| r.register(name, help, m.converter_latencies.clone()),
    ),
];

/// What one watch counts: looked up once, as events are many.
#[derive(Debug, Clone)]
pub(crate) struct WatchMeter {
    events: Counter,
    sizes: Histogram,
}

impl WatchMeter {
    /// Counts an event.
    pub(crate) fn sent(&self, bytes: usize) {
        self.events.inc();
        self.sizes.observe(bytes as f64);
    }
}

impl Meters {
    /// Adds them to a page.
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (name, help, add) in FAMILIES {
            add(self, registry, name, help);
        }
    }

    /// For a watch of this resource.
    pub(crate) fn watch(&self, resource: &Resource) -> WatchMeter {
        let labels = Watched {
            group: resource.gv.group,
            version: resource.gv.version,
            resource: resource.plural,
        };
        WatchMeter {
            events: self.events.get_or_create(&labels).clone(),
            sizes: self.sizes.get_or_create(&labels).clone(),
        }
    }

    /// Counts a request to the store.
    pub(crate) fn stored<T, E>(
        &self,
        (operation, resource): (&'static str, &Resource),
        began: Instant,
        outcome: &std::result::Result<T, E>,
    ) {
        let labels = Stored {
            operation,
            group: resource.gv.group,
            resource: resource.plural,
        };
        self.requests.get_or_create(&labels).inc();
        if outcome.is_err() {
            self.errors.get_or_create(&labels).inc();
        }
        let latency = began.elapsed().as_secs_f64();
        self.latencies.get_or_create(&labels).observe(latency);
    }

    /// Counts a question to a webhook that converts objects of a definition; a failure has upstream's name.
    pub(crate) fn converted(
        &self,
        definition: &str,
        (from, to): (&str, &'static str),
        began: Instant,
        failure: Option<&'static str>,
    ) {
        let latency = began.elapsed().as_secs_f64();
        let labels = Converted {
            crd_name: definition.to_owned(),
            from_version: from.to_owned(),
            to_version: to,
            succeeded: if failure.is_none() { "true" } else { "false" },
        };
        self.conversions.get_or_create(&labels).observe(latency);
        let labels = Asked {
            result: if failure.is_none() {
                "success"
            } else {
                "failure"
            },
            failure_type: failure.unwrap_or_default(),
        };
        self.converters.get_or_create(&labels).inc();
        let latencies = &self.converter_latencies;
        latencies.get_or_create(&labels).observe(latency);
    }

    /// Counts a phase of admission, `admit` or `validate`.
    pub(crate) fn step(
        &self,
        (r#type, operation): (&'static str, &'static str),
        began: Instant,
        outcome: &Result<()>,
    ) {
        let labels = Step {
            operation,
            rejected: rejected(outcome),
            r#type,
        };
        let latency = began.elapsed().as_secs_f64();
        self.steps.get_or_create(&labels).observe(latency);
    }

    /// Counts a plugin's part of a phase.
    pub(crate) fn plugin(
        &self,
        name: &'static str,
        (r#type, operation): (&'static str, &'static str),
        began: Instant,
        outcome: &Result<()>,
    ) {
        let labels = Admitted {
            name,
            operation,
            rejected: rejected(outcome),
            r#type,
        };
        let latency = began.elapsed().as_secs_f64();
        self.plugins.get_or_create(&labels).observe(latency);
    }
}

fn rejected(outcome: &Result<()>) -> &'static str {
    match outcome {
        Ok(()) => "false",
        Err(_) => "true",
    }
}

#[cfg(test)]
mod tests {
    use kinds::resources;
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_page_has_upstreams_names_and_labels() {
        let meters = Meters::default();
        let pods = resources::find("", "v1", "pods").expect("in the table");
        meters.watch(pods).sent(100);
        let refused: std::result::Result<(), ()> = Err(());
        meters.stored(("update", pods), Instant::now(), &refused);
        meters.step(("admit", "CREATE"), Instant::now(), &Ok(()));
        meters.plugin(
            "NodeRestriction",
            ("admit", "CREATE"),
            Instant::now(),
            &Ok(()),
        );
        meters.converted(
            "lamps.example.com",
            ("v1", "v2"),
            Instant::now(),
            Some("conversion_webhook_call_failure"),
        );
        let (mut registry, mut text) = (Registry::default(), String::new());
        meters.register(&mut registry);
        encode(&mut text, &registry).expect("memory");
        for line in [
            "apiserver_watch_events_total{group=\"\",version=\"v1\",resource=\"pods\"} 1",
            "apiserver_watch_events_sizes_count{",
            "etcd_requests_total{operation=\"update\",group=\"\",resource=\"pods\"} 1",
            "etcd_request_errors_total{operation=\"update\"",
            "etcd_request_duration_seconds_count{",
            "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
            "apiserver_admission_controller_admission_duration_seconds_count{name=\"NodeRestriction\"",
            "apiserver_crd_conversion_webhook_duration_seconds_count{crd_name=\"lamps.example.com\",from_version=\"v1\",to_version=\"v2\",succeeded=\"false\"} 1",
            "apiserver_conversion_webhook_request_total{result=\"failure\",failure_type=\"conversion_webhook_call_failure\"} 1",
            "apiserver_conversion_webhook_duration_seconds_count{result=\"failure\"",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
