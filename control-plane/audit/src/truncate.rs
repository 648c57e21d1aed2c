//! Records that are too large for whoever takes them: their objects are left out, and that is said in the record.

use std::sync::Arc;

use crate::batch::{Boxed, Deliver};
use crate::event::Event;
use crate::metrics::Metrics;
use crate::policy::Level;

/// As metrics name it.
const NAME: &str = "truncate";
const ANNOTATION: &str = "audit.k8s.io/truncated";

/// How large records may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Bytes of one record.
    pub event: u64,
    /// Bytes of records that go together.
    pub batch: u64,
}

impl Truncation {
    /// Upstream's.
    pub const USUAL: Truncation = Truncation {
        event: 100 << 10,
        batch: 10 << 20,
    };

    /// What is wrong with the sizes, in upstream's words; `plugin` is what they are for.
    pub fn check(&self, plugin: &str) -> Result<(), String> {
        if self.event == 0 {
            return Err(format!(
                "invalid audit truncate {plugin} max event size 0, must be a positive number"
            ));
        }
        match self.batch < self.event {
            true => Err(format!(
                "invalid audit truncate {plugin} max batch size {}, must be greater than max event size ({})",
                self.batch, self.event
            )),
            false => Ok(()),
        }
    }

    /// The record with its size: as it is, or without its objects. Nothing if even that is too large.
    fn fit(&self, event: &Arc<Event>) -> Option<(Arc<Event>, u64)> {
        let size = |event: &Event| event.json().len() as u64;
        let whole = size(event);
        if whole <= self.event {
            return Some((Arc::clone(event), whole));
        }
        if event.level < Level::Request {
            return None;
        }
        let mut less = Event::clone(event);
        (less.request_object, less.response_object) = (None, None);
        less.annotations.insert(ANNOTATION.into(), "true".into());
        let left = size(&less);
        (left <= self.event).then(|| (Arc::new(less), left))
    }

    /// The records as they may go on, in batches that are not too large. Those that cannot go on are counted.
    pub(crate) fn apply(&self, events: &[Arc<Event>], metrics: &Metrics) -> Vec<Vec<Arc<Event>>> {
        let mut batches: Vec<Vec<Arc<Event>>> = Vec::new();
        let (mut filled, mut lost) = (0, 0);
        for event in events {
            let Some((event, size)) = self.fit(event) else {
                lost += 1;
                continue;
            };
            match batches.last_mut() {
                Some(batch) if filled + size <= self.batch => {
                    filled += size;
                    batch.push(event);
                }
                _ => {
                    filled = size;
                    batches.push(vec![event]);
                }
            }
        }
        if lost > 0 {
            metrics.failed(NAME, lost, &"event is too large even after truncating");
        }
        batches
    }
}

/// Somebody who takes records that are not too large.
#[derive(Debug)]
pub(crate) struct Truncating {
    pub(crate) inner: Box<dyn Deliver>,
    pub(crate) sizes: Truncation,
    pub(crate) metrics: Metrics,
}

impl Deliver for Truncating {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn deliver<'a>(&'a self, events: &'a [Arc<Event>]) -> Boxed<'a> {
        Box::pin(async move {
            let mut outcome = Ok(());
            for batch in self.sizes.apply(events, &self.metrics) {
                let delivered = self.inner.deliver(&batch).await;
                outcome = outcome.and(delivered);
            }
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::Value;

    use super::*;

    fn event(level: Level, object: usize, uri: usize) -> Arc<Event> {
        let mut event = Event::received(level, "id".into(), jiff::Timestamp::UNIX_EPOCH);
        event.request_object = (object > 0).then(|| Value::from("o".repeat(object)));
        event.request_uri = "u".repeat(uri);
        Arc::new(event)
    }

    #[test]
    fn objects_go_first_and_what_is_still_too_large_is_counted() {
        let sizes = Truncation {
            event: 1000,
            batch: 1500,
        };
        let metrics = Metrics::default();
        let given = [
            event(Level::Request, 10, 1),
            event(Level::Request, 5000, 1),
            event(Level::Metadata, 0, 5000),
            event(Level::RequestResponse, 10, 5000),
            event(Level::Request, 10, 700),
        ];
        let batches = sizes.apply(&given, &metrics);
        let kept: Vec<usize> = batches.iter().map(Vec::len).collect();
        assert_eq!(kept, [2, 1], "a batch has a size as well");
        let (whole, less) = (&batches[0][0], &batches[0][1]);
        assert!(whole.request_object.is_some() && whole.annotations.is_empty());
        assert!(less.request_object.is_none());
        assert_eq!(less.annotations[ANNOTATION], "true");
        assert_eq!(metrics.lost(NAME), 2);
    }

    #[test]
    fn sizes_have_to_make_sense() {
        assert_eq!(Truncation::USUAL.check("log"), Ok(()));
        let wrong = Truncation { event: 0, batch: 1 };
        assert!(
            wrong
                .check("log")
                .unwrap_err()
                .contains("must be a positive number")
        );
        let wrong = Truncation { event: 2, batch: 1 };
        assert!(
            wrong
                .check("webhook")
                .unwrap_err()
                .contains("greater than max event size (2)")
        );
    }
}
