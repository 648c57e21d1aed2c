//! Records on their way to somebody who takes many at once.
//!
//! The queue is bounded. Who asks never waits for it: what does not fit is counted and said, and not kept.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::event::Event;
use crate::metrics::Metrics;

/// What a delivery promises.
pub type Boxed<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Somebody who takes records.
pub trait Deliver: std::fmt::Debug + Send + Sync {
    /// As metrics and logs name it.
    fn name(&self) -> &'static str;

    /// Takes some; says why when it cannot, after as many tries as it makes.
    fn deliver<'a>(&'a self, events: &'a [Arc<Event>]) -> Boxed<'a>;
}

/// How much waits, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// So many records wait at most.
    pub buffer: usize,
    /// So many are delivered at once.
    pub batch: usize,
    /// The first of a batch waits so long for others.
    pub wait: Duration,
    /// So many batches a second; nothing means as many as there are.
    pub per_second: Option<f64>,
    /// So many beyond that after a pause.
    pub burst: u32,
}

impl Limits {
    /// Upstream's for a webhook.
    pub const WEBHOOK: Limits = Limits {
        buffer: 10_000,
        batch: 400,
        wait: Duration::from_secs(30),
        per_second: Some(10.0),
        burst: 15,
    };

    /// Upstream's for a log: records are written one at a time, as they come.
    pub const LOG: Limits = Limits {
        buffer: 10_000,
        batch: 1,
        wait: Duration::ZERO,
        per_second: None,
        burst: 15,
    };
}

/// How long the end waits for what is still under way.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Records on their way.
#[derive(Debug)]
pub(crate) struct Batches {
    name: &'static str,
    queue: Mutex<Option<mpsc::Sender<Arc<Event>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    overflows: AtomicBool,
    metrics: Metrics,
}

impl Batches {
    pub(crate) fn start(deliver: Box<dyn Deliver>, limits: Limits, metrics: Metrics) -> Batches {
        let (queue, records) = mpsc::channel(limits.buffer.max(1));
        let name = deliver.name();
        let task = tokio::spawn(run(deliver, limits, records, metrics.clone()));
        Batches {
            name,
            queue: Mutex::new(Some(queue)),
            task: Mutex::new(Some(task)),
            overflows: AtomicBool::new(false),
            metrics,
        }
    }

    pub(crate) fn push(&self, event: &Arc<Event>) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let pushed = match &*queue {
            Some(queue) => queue
                .try_send(Arc::clone(event))
                .map_err(|_| "its buffer is full"),
            None => Err("it is closed"),
        };
        drop(queue);
        match pushed {
            Ok(()) => self.overflows.store(false, Ordering::Relaxed),
            Err(why) => self.lost(why),
        }
    }

    // Every record is counted; the log is told once, until there is room again.
    fn lost(&self, why: &str) {
        match self.overflows.swap(true, Ordering::Relaxed) {
            false => self.metrics.failed(self.name, 1, &why),
            true => self.metrics.count_failed(self.name, 1),
        }
    }

    pub(crate) async fn close(&self) {
        drop(
            self.queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut task) = task
            && tokio::time::timeout(LAST_PATIENCE, &mut task)
                .await
                .is_err()
        {
            task.abort();
            let why = "the server stops and they could not be delivered in time";
            self.metrics.failed(self.name, 1, &why);
        }
    }
}

async fn run(
    deliver: Box<dyn Deliver>,
    limits: Limits,
    mut records: mpsc::Receiver<Arc<Event>>,
    metrics: Metrics,
) {
    let mut pace = Pace::new(limits);
    while let Some(batch) = next(&mut records, limits).await {
        if !records.is_closed() {
            pace.turn().await;
        }
        if let Err(why) = deliver.deliver(&batch).await {
            metrics.failed(deliver.name(), batch.len(), &why);
        }
    }
}

// The first record, and those that come while it waits.
async fn next(records: &mut mpsc::Receiver<Arc<Event>>, limits: Limits) -> Option<Vec<Arc<Event>>> {
    let mut batch = vec![records.recv().await?];
    let due = Instant::now() + limits.wait;
    while batch.len() < limits.batch {
        match tokio::time::timeout_at(due, records.recv()).await {
            Ok(Some(event)) => batch.push(event),
            Ok(None) | Err(_) => break,
        }
    }
    Some(batch)
}

/// A bucket of turns that fills with time.
struct Pace {
    per_second: Option<f64>,
    burst: f64,
    turns: f64,
    at: Instant,
}

impl Pace {
    fn new(limits: Limits) -> Pace {
        Pace {
            per_second: limits.per_second.filter(|rate| *rate > 0.0),
            burst: f64::from(limits.burst.max(1)),
            turns: f64::from(limits.burst.max(1)),
            at: Instant::now(),
        }
    }

    async fn turn(&mut self) {
        let Some(rate) = self.per_second else { return };
        let now = Instant::now();
        let gained = (now - self.at).as_secs_f64() * rate;
        self.turns = (self.turns + gained).min(self.burst) - 1.0;
        self.at = now;
        if self.turns < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-self.turns / rate)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Level;
    use jiff::Timestamp;

    #[derive(Debug, Default)]
    struct Taker {
        sizes: Arc<Mutex<Vec<usize>>>,
        slow: Duration,
    }

    impl Deliver for Taker {
        fn name(&self) -> &'static str {
            "taker"
        }

        fn deliver<'a>(&'a self, events: &'a [Arc<Event>]) -> Boxed<'a> {
            Box::pin(async move {
                tokio::time::sleep(self.slow).await;
                self.sizes.lock().expect("whole").push(events.len());
                Ok(())
            })
        }
    }

    fn event() -> Arc<Event> {
        Arc::new(Event::received(
            Level::Metadata,
            "id".into(),
            Timestamp::UNIX_EPOCH,
        ))
    }

    fn limits(buffer: usize, batch: usize) -> Limits {
        Limits {
            buffer,
            batch,
            ..Limits::WEBHOOK
        }
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_full_or_due() {
        let taker = Taker::default();
        let sizes = Arc::clone(&taker.sizes);
        let batches = Batches::start(Box::new(taker), limits(100, 3), Metrics::default());
        for _ in 0..7 {
            batches.push(&event());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*sizes.lock().expect("whole"), [3, 3]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(*sizes.lock().expect("whole"), [3, 3, 1]);
        batches.push(&event());
        batches.close().await;
        assert_eq!(
            *sizes.lock().expect("whole"),
            [3, 3, 1, 1],
            "the rest goes at the end"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_is_counted() {
        let taker = Taker {
            slow: Duration::from_secs(3_600),
            ..Taker::default()
        };
        let metrics = Metrics::default();
        let batches = Batches::start(Box::new(taker), limits(2, 1), metrics.clone());
        for _ in 0..10 {
            batches.push(&event());
        }
        assert!(metrics.lost("taker") >= 7);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_more_often_than_told() {
        let taker = Taker::default();
        let sizes = Arc::clone(&taker.sizes);
        let pace = Limits {
            per_second: Some(1.0),
            burst: 2,
            ..limits(100, 1)
        };
        let batches = Batches::start(Box::new(taker), pace, Metrics::default());
        for _ in 0..10 {
            batches.push(&event());
        }
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        assert_eq!(sizes.lock().expect("whole").len(), 5);
        drop(batches);
    }
}
