//! What is counted of authorization and of its configuration, and of authentication's; under upstream's names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use access::chain::Verdict;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    r#type: &'static str,
    name: String,
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluated {
    name: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    status: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Upstream's steps.
const WEBHOOK: [f64; 9] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 15.0, 25.0];
const CONDITIONS: [f64; 14] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0,
];

/// All of them.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    decisions: Family<Decided, Counter>,
    evaluations: Family<Evaluated, Counter>,
    durations: Histograms<Evaluated>,
    failed_open: Family<Named, Counter>,
    conditions: Histograms<Named>,
    condition_errors: Family<Named, Counter>,
    condition_exclusions: Family<Named, Counter>,
    reloads: Family<Outcome, Counter>,
    reloaded_at: Family<Outcome, Gauge>,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            decisions: Family::default(),
            evaluations: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(WEBHOOK)),
            failed_open: Family::default(),
            conditions: Family::new_with_constructor(|| Histogram::new(CONDITIONS)),
            condition_errors: Family::default(),
            condition_exclusions: Family::default(),
            reloads: Family::default(),
            reloaded_at: Family::default(),
        }
    }
}

/// Adds a family to a page.
type Add = fn(&Meters, &mut Registry, &'static str, &'static str);

macro_rules! family {
    ($name:literal, $help:literal, $field:ident) => {
        ($name, $help, |m, r, name, help| {
            r.register(name, help, m.$field.clone());
        })
    };
}

/// Counters get their `_total` from the format.
const FAMILIES: [(&str, &str, Add); 9] = [
    family!(
        "apiserver_authorization_decisions",
        "Decisions of authorizers",
        decisions
    ),
    family!(
        "apiserver_authorization_webhook_evaluations",
        "Questions to webhooks",
        evaluations
    ),
    family!(
        "apiserver_authorization_webhook_duration_seconds",
        "Latency of webhooks",
        durations
    ),
    family!(
        "apiserver_authorization_webhook_evaluations_fail_open",
        "Questions that were passed on because a webhook failed",
        failed_open
    ),
    family!(
        "apiserver_authorization_match_condition_evaluation_seconds",
        "Latency of match conditions",
        conditions
    ),
    family!(
        "apiserver_authorization_match_condition_evaluation_errors",
        "Match conditions that could not be told",
        condition_errors
    ),
    family!(
        "apiserver_authorization_match_condition_exclusions",
        "Questions that match conditions kept from a webhook",
        condition_exclusions
    ),
    family!(
        "apiserver_authorization_config_controller_automatic_reloads",
        "Times the configuration was read again",
        reloads
    ),
    family!(
        "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
        "When the configuration was read again last",
        reloaded_at
    ),
];

impl Meters {
    /// Adds them to a page.
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (name, help, add) in FAMILIES {
            add(self, registry, name, help);
        }
    }

    /// A webhook has decided. Our own authorizers are too quick to be counted.
    pub(super) fn decided(&self, name: &str, allowed: bool) {
        let labels = Decided {
            r#type: "Webhook",
            name: name.to_owned(),
            decision: if allowed { "allowed" } else { "denied" },
        };
        self.decisions.get_or_create(&labels).inc();
    }

    pub(super) fn asked(&self, name: &str, result: &'static str, took: Duration) {
        let labels = Evaluated {
            name: name.to_owned(),
            result,
        };
        self.evaluations.get_or_create(&labels).inc();
        let latency = took.as_secs_f64();
        self.durations.get_or_create(&labels).observe(latency);
    }

    pub(super) fn failed_open(&self, name: &str) {
        self.failed_open.get_or_create(&named(name)).inc();
    }

    pub(super) fn conditions(&self, name: &str, verdict: &Verdict, took: Duration) {
        let labels = named(name);
        let latency = took.as_secs_f64();
        self.conditions.get_or_create(&labels).observe(latency);
        match verdict {
            Verdict::Met => {}
            Verdict::NotMet => drop(self.condition_exclusions.get_or_create(&labels).inc()),
            Verdict::Failed(_) => drop(self.condition_errors.get_or_create(&labels).inc()),
        }
    }

    pub(super) fn reloaded(&self, good: bool) {
        let labels = Outcome {
            status: if good { "success" } else { "failure" },
        };
        self.reloads.get_or_create(&labels).inc();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
        self.reloaded_at.get_or_create(&labels).set(now);
    }
}

fn named(name: &str) -> Named {
    Named {
        name: name.to_owned(),
    }
}
