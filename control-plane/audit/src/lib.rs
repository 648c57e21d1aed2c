//! Audit: who asked for what, and what became of it, as audit.k8s.io/v1 has it.
//!
//! ```text
//! request ─► policy (which level, which stages) ─► event ─┬─► log, in a file that is turned over
//!                                                         └─► batches ─► whoever delivers them
//! ```
//!
//! [`policy`] and [`event`] are pure. A record that cannot be kept is counted and said in the log, never lost silently.

mod batch;
pub mod event;
mod log;
mod metrics;
pub mod policy;
mod truncate;

use std::sync::Arc;

use prometheus_client::registry::Registry;

use batch::Batches;
pub use batch::{Boxed, Deliver, Limits};
pub use event::Event;
pub use log::{Format, Log, LogFile};
pub use policy::{Decision, Level, Policy, Question, Stage};

use metrics::Metrics;
pub use metrics::register_nothing;
use truncate::Truncating;
pub use truncate::Truncation;

/// How records reach their file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The request waits until its record is written.
    Blocking,
    /// As `Blocking`, and a request whose receipt cannot be recorded is refused.
    BlockingStrict,
    /// Records are written some time later, many at once.
    Batch,
}

/// A record could not be kept, and the request must not go on without it.
#[derive(Debug, thiserror::Error)]
#[error("failed to store audit event")]
pub struct NotKept;

/// Where records go.
#[derive(Debug)]
pub struct Backends {
    log: Option<(Arc<Log>, Mode, Option<Truncation>)>,
    batches: Vec<Batches>,
    metrics: Metrics,
}

impl Backends {
    /// A log, and others that take batches; each with how large its records may be, if that is limited.
    pub fn new(
        log: Option<(Log, Mode, Limits, Option<Truncation>)>,
        others: Vec<(Box<dyn Deliver>, Limits, Option<Truncation>)>,
    ) -> Backends {
        let metrics = Metrics::default();
        let start = |inner: Box<dyn Deliver>, limits, sizes: Option<Truncation>| {
            let deliver: Box<dyn Deliver> = match sizes {
                None => inner,
                Some(sizes) => Box::new(Truncating {
                    inner,
                    sizes,
                    metrics: metrics.clone(),
                }),
            };
            Batches::start(deliver, limits, metrics.clone())
        };
        let mut batches: Vec<Batches> = others
            .into_iter()
            .map(|(deliver, limits, sizes)| start(deliver, limits, sizes))
            .collect();
        let log = log.and_then(|(log, mode, limits, sizes)| match mode {
            Mode::Batch => {
                batches.push(start(Box::new(log), limits, sizes));
                None
            }
            _ => Some((Arc::new(log), mode, sizes)),
        });
        Backends {
            log,
            batches,
            metrics,
        }
    }

    /// Keeps a record.
    pub fn keep(&self, event: Event) -> Result<(), NotKept> {
        self.metrics.events.inc();
        let event = Arc::new(event);
        for batches in &self.batches {
            batches.push(&event);
        }
        let Some((log, mode, sizes)) = &self.log else {
            return Ok(());
        };
        let written = match sizes {
            None => log.write(std::slice::from_ref(&event)),
            Some(sizes) => {
                let fitting = sizes.apply(std::slice::from_ref(&event), &self.metrics);
                log.write(&fitting.concat())
            }
        };
        let Err(error) = written else {
            return Ok(());
        };
        self.metrics.failed("log", 1, &error);
        match (mode, event.stage) {
            (Mode::BlockingStrict, Stage::RequestReceived) => {
                self.metrics.rejected.inc();
                Err(NotKept)
            }
            _ => Ok(()),
        }
    }

    /// Counts a request by the level that a policy gave it.
    pub fn count(&self, level: Level) {
        self.metrics.level(level);
    }

    /// Publishes what is counted.
    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Delivers what is still under way, within the patience of each.
    pub async fn close(&self) {
        for batches in &self.batches {
            batches.close().await;
        }
    }
}
