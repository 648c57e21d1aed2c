//! What queues of this process have to do, under upstream's names. A process has one page, whatever roles it has.

use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

static QUEUES: LazyLock<Queues> = LazyLock::new(Queues::default);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    name: &'static str,
}

type Durations = Family<Name, Histogram, fn() -> Histogram>;

struct Queues {
    depth: Family<Name, Gauge>,
    adds: Family<Name, Counter>,
    retries: Family<Name, Counter>,
    waited: Durations,
    worked: Durations,
}

impl Default for Queues {
    fn default() -> Queues {
        // From ten nanoseconds to a quarter of an hour, upstream's steps.
        let durations: fn() -> Histogram = || Histogram::new(exponential_buckets(1e-8, 10.0, 12));
        Queues {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(durations),
            worked: Family::new_with_constructor(durations),
        }
    }
}

/// Adds them to a page.
pub fn register(registry: &mut Registry) {
    let queues = &*QUEUES;
    registry.register("workqueue_depth", "Keys that wait", queues.depth.clone());
    registry.register(
        "workqueue_adds",
        "Keys that were added",
        queues.adds.clone(),
    );
    registry.register(
        "workqueue_retries",
        "Keys that are tried again",
        queues.retries.clone(),
    );
    registry.register(
        "workqueue_queue_duration_seconds",
        "How long keys wait",
        queues.waited.clone(),
    );
    registry.register(
        "workqueue_work_duration_seconds",
        "How long work on a key takes",
        queues.worked.clone(),
    );
}

/// Queues that upstream calls otherwise than their controller.
const NAMES: [(&str, &str); 6] = [
    ("endpointslice", "endpoint_slice"),
    ("endpoints", "endpoint"),
    ("endpointslice-mirroring", "endpoint_slice_mirroring"),
    ("resourcequota", "resourcequota_primary"),
    ("root-ca-certificate-publisher", "root_ca_cert_publisher"),
    ("ttl-after-finished", "ttl_jobs_to_delete"),
];

/// The figures of one queue.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) waited: Histogram,
    pub(crate) worked: Histogram,
}

impl Meter {
    /// Those of a controller's queue.
    pub(crate) fn of(controller: &'static str) -> Meter {
        let short = controller.strip_suffix("-controller").unwrap_or(controller);
        let other = NAMES.iter().find(|(ours, _)| *ours == short);
        let name = &Name {
            name: other.map_or(short, |(_, theirs)| theirs),
        };
        let queues = &*QUEUES;
        Meter {
            depth: queues.depth.get_or_create(name).clone(),
            adds: queues.adds.get_or_create(name).clone(),
            retries: queues.retries.get_or_create(name).clone(),
            waited: queues.waited.get_or_create(name).clone(),
            worked: queues.worked.get_or_create(name).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::queue::{End, Queue};

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_counted_under_upstreams_name() {
        let queue = Queue::new();
        queue.add("before it has a name");
        queue.named("endpointslice-controller");
        queue.add("b");
        queue.add("b");
        let key = queue.next().await;
        queue.end(&key, End::Failed);
        let (mut registry, mut text) = (Registry::default(), String::new());
        register(&mut registry);
        encode(&mut text, &registry).expect("memory");
        for line in [
            "workqueue_adds_total{name=\"endpoint_slice\"} 2",
            "workqueue_depth{name=\"endpoint_slice\"} 1",
            "workqueue_retries_total{name=\"endpoint_slice\"} 1",
            "workqueue_queue_duration_seconds_count{name=\"endpoint_slice\"} 1",
            "workqueue_work_duration_seconds_count{name=\"endpoint_slice\"} 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
