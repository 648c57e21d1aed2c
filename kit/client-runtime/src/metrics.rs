//! What queues of this process have to do, under upstream's names. A process has one page, whatever roles it has.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

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
    /// What each queue that is still there works on.
    at_work: Mutex<Vec<(Name, Weak<AtWork>)>>,
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
            at_work: Mutex::default(),
        }
    }
}

/// When work on each key began that has not ended.
#[derive(Debug, Default)]
pub(crate) struct AtWork(Mutex<Vec<Instant>>);

impl AtWork {
    pub(crate) fn begins(&self, since: Instant) {
        lock(&self.0).push(since);
    }

    pub(crate) fn ends(&self, since: Instant) {
        let mut began = lock(&self.0);
        if let Some(place) = began.iter().position(|began| *began == since) {
            began.swap_remove(place);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long work goes on that has not ended: known only when somebody asks.
#[derive(Debug)]
struct Unfinished;

impl Unfinished {
    /// For each queue, all of it together and the longest.
    fn now(queues: &Queues) -> BTreeMap<&'static str, (Duration, Duration)> {
        let now = Instant::now();
        let mut at_work = lock(&queues.at_work);
        at_work.retain(|(_, work)| work.strong_count() > 0);
        let mut figures: BTreeMap<_, (Duration, Duration)> = BTreeMap::new();
        for (name, work) in at_work.iter() {
            let (all, longest) = figures.entry(name.name).or_default();
            for began in work.upgrade().iter().flat_map(|work| lock(&work.0).clone()) {
                let time = now.duration_since(began);
                *all += time;
                *longest = time.max(*longest);
            }
        }
        figures
    }
}

impl Collector for Unfinished {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let figures = Unfinished::now(&QUEUES);
        let all: Family<Name, Gauge<f64, AtomicU64>> = Family::default();
        let longest = Family::<Name, Gauge<f64, AtomicU64>>::default();
        for (name, (sum, most)) in figures {
            all.get_or_create(&Name { name }).set(sum.as_secs_f64());
            longest
                .get_or_create(&Name { name })
                .set(most.as_secs_f64());
        }
        let rows = [
            (
                "workqueue_unfinished_work_seconds",
                "How long keys have been worked on, all together",
                all,
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How long the longest work on a key goes on",
                longest,
            ),
        ];
        for (name, help, family) in rows {
            family.encode(encoder.encode_descriptor(name, help, None, family.metric_type())?)?;
        }
        Ok(())
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
    registry.register_collector(Box::new(Unfinished));
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
    pub(crate) at_work: Arc<AtWork>,
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
        let at_work = Arc::new(AtWork::default());
        lock(&queues.at_work).push((name.clone(), Arc::downgrade(&at_work)));
        Meter {
            depth: queues.depth.get_or_create(name).clone(),
            adds: queues.adds.get_or_create(name).clone(),
            retries: queues.retries.get_or_create(name).clone(),
            waited: queues.waited.get_or_create(name).clone(),
            worked: queues.worked.get_or_create(name).clone(),
            at_work,
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
        queue.next().await;
        tokio::time::advance(Duration::from_secs(3)).await;
        let (mut registry, mut text) = (Registry::default(), String::new());
        register(&mut registry);
        encode(&mut text, &registry).expect("memory");
        for line in [
            "workqueue_adds_total{name=\"endpoint_slice\"} 2",
            "workqueue_depth{name=\"endpoint_slice\"} 0",
            "workqueue_retries_total{name=\"endpoint_slice\"} 1",
            "workqueue_queue_duration_seconds_count{name=\"endpoint_slice\"} 2",
            "workqueue_work_duration_seconds_count{name=\"endpoint_slice\"} 1",
            "workqueue_unfinished_work_seconds{name=\"endpoint_slice\"} 3.0",
            "workqueue_longest_running_processor_seconds{name=\"endpoint_slice\"} 3.0",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
