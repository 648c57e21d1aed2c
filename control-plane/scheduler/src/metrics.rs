//! What the scheduler of this process does, under upstream's names.

use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::brain::Action;

static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::default);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    profile: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waits {
    queue: &'static str,
}

struct Metrics {
    attempts: Family<Attempt, Counter>,
    durations: Family<Attempt, Histogram, fn() -> Histogram>,
    pending: Family<Waits, Gauge>,
    preemptions: Counter,
    victims: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            attempts: Family::default(),
            // From a millisecond to sixteen seconds, upstream's steps.
            durations: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
            pending: Family::default(),
            preemptions: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
        }
    }
}

/// Adds them to a page.
pub fn register(registry: &mut Registry) {
    let metrics = &*METRICS;
    registry.register(
        "scheduler_schedule_attempts",
        "Attempts to find a node, by result",
        metrics.attempts.clone(),
    );
    registry.register(
        "scheduler_scheduling_attempt_duration_seconds",
        "How long an attempt takes",
        metrics.durations.clone(),
    );
    registry.register(
        "scheduler_pending_pods",
        "Pods that wait, by queue",
        metrics.pending.clone(),
    );
    registry.register(
        "scheduler_preemption_attempts",
        "Attempts to make room",
        metrics.preemptions.clone(),
    );
    registry.register(
        "scheduler_preemption_victims",
        "Pods that had to go for another",
        metrics.victims.clone(),
    );
}

/// Counts an attempt by what came of it.
pub(crate) fn attempted(actions: &[Action], took: Duration) {
    let result = match actions {
        [] => return,
        all if all.iter().any(|action| matches!(action, Action::Bind(..))) => "scheduled",
        _ => "unschedulable",
    };
    count(result, took);
    for action in actions {
        if let Action::Evict(_, _, victims) = action {
            METRICS.preemptions.inc();
            METRICS.victims.observe(victims.len() as f64);
        }
    }
}

/// Counts an attempt that the API server ended.
pub(crate) fn failed() {
    count("error", Duration::ZERO);
}

// Pods of other profiles are counted with these: which one a pod chose is not kept beyond the attempt.
fn count(result: &'static str, took: Duration) {
    let labels = Attempt {
        profile: "default-scheduler",
        result,
    };
    METRICS.attempts.get_or_create(&labels).inc();
    let durations = METRICS.durations.get_or_create(&labels);
    durations.observe(took.as_secs_f64());
}

/// Notes who waits: those who are ready, who pause, and who are stuck.
pub(crate) fn pending((active, backoff, unschedulable): (usize, usize, usize)) {
    let queues = [
        ("active", active),
        ("backoff", backoff),
        ("unschedulable", unschedulable),
    ];
    for (queue, length) in queues {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        METRICS.pending.get_or_create(&Waits { queue }).set(length);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_page_has_upstreams_names() {
        failed();
        pending((1, 2, 3));
        let (mut registry, mut text) = (Registry::default(), String::new());
        register(&mut registry);
        encode(&mut text, &registry).expect("memory");
        for line in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"error\"} ",
            "scheduler_scheduling_attempt_duration_seconds_bucket{",
            "scheduler_pending_pods{queue=\"unschedulable\"} 3",
            "scheduler_preemption_attempts_total 0",
            "scheduler_preemption_victims_count 0",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
