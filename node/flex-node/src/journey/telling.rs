//! What is told while it happens: steps that end, and phases with their time once their last step has ended.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ::steps::engine::{Event, Outcome, Step, StepReport, Watcher};

use crate::steps::{Phase, phase_of};

/// Something to tell.
#[derive(Debug)]
pub enum Said<'a> {
    /// A step has ended.
    Step {
        /// How.
        report: &'a StepReport,
        /// Its phase.
        phase: Option<Phase>,
    },
    /// An attempt failed, and another follows.
    Again {
        /// The step.
        step: &'a str,
        /// Why.
        cause: &'a str,
    },
    /// Something is fetched.
    Fetching {
        /// The step.
        step: &'a str,
        /// How much there is by now.
        bytes: u64,
        /// How much there will be, where the server says it.
        total: Option<u64>,
        /// Bytes each second.
        rate: u64,
    },
    /// A part is over.
    Phase {
        /// Which.
        name: &'static str,
        /// What came of it.
        detail: String,
        /// How long it took.
        time: Duration,
    },
}

/// Hears it, from several threads.
pub type News<'a> = dyn Fn(&Said<'_>) + Send + Sync + 'a;

/// Counts the steps of each phase.
pub(crate) struct Telling<'a> {
    news: &'a News<'a>,
    phases: Mutex<BTreeMap<Phase, Part>>,
}

#[derive(Default)]
struct Part {
    open: usize,
    changed: usize,
    start: Option<Duration>,
    end: Duration,
    last: String,
}

impl<'a> Telling<'a> {
    pub(crate) fn new(news: &'a News<'a>, steps: &[Step]) -> Telling<'a> {
        let mut phases = BTreeMap::<Phase, Part>::new();
        for phase in steps.iter().filter_map(|step| phase_of(step.name)) {
            phases.entry(phase).or_default().open += 1;
        }
        Telling {
            news,
            phases: Mutex::new(phases),
        }
    }

    fn finished(&self, report: &StepReport) {
        let phase = phase_of(&report.name);
        (self.news)(&Said::Step { report, phase });
        let Some(phase) = phase else { return };
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(part) = phases.get_mut(&phase) else {
            return;
        };
        part.open = part.open.saturating_sub(1);
        part.changed += usize::from(report.outcome == Outcome::Changed);
        part.start = Some(part.start.map_or(report.start, |s| s.min(report.start)));
        part.end = part.end.max(report.start + report.duration);
        if report.outcome == Outcome::Failed {
            // Said by whoever says how the run ended.
            part.open = usize::MAX;
        }
        if report.outcome == Outcome::Passed && !report.note.is_empty() {
            part.last.clone_from(&report.note);
        }
        if part.open == 0 {
            let detail = match part.changed {
                0 => format!("nothing to do; {}", part.last),
                n => format!("{n} steps changed something; {}", part.last),
            };
            (self.news)(&Said::Phase {
                name: phase.name(),
                detail: detail.trim_end_matches("; ").to_owned(),
                time: part.end.saturating_sub(part.start.unwrap_or_default()),
            });
        }
    }
}

/// Bytes each second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1000) / milliseconds
}

/// How much of something has come, for people: `install-runc 4.2 of 10.5 MB [####......] 3.1 MB/s`.
pub fn bar(step: &str, bytes: u64, total: Option<u64>, rate: u64) -> String {
    const WIDTH: u64 = 20;
    let tenths = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
    let rate = format!("{} MB/s", tenths(rate));
    match total.filter(|total| *total > 0) {
        None => format!("{step} {} MB {rate}", tenths(bytes)),
        Some(total) => {
            let done = usize::try_from(bytes.min(total) * WIDTH / total).unwrap_or(0);
            let left = usize::try_from(WIDTH).unwrap_or(0) - done;
            let (done, left) = ("#".repeat(done), ".".repeat(left));
            format!(
                "{step} {} of {} MB [{done}{left}] {rate}",
                tenths(bytes),
                tenths(total)
            )
        }
    }
}

impl Watcher for Telling<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Retrying { step, failure, .. } => (self.news)(&Said::Again {
                step,
                cause: &failure.cause,
            }),
            Event::Finished(report) => self.finished(report),
            Event::Fetching {
                step,
                bytes,
                total,
                fresh,
                time,
            } => (self.news)(&Said::Fetching {
                step,
                bytes: *bytes,
                total: *total,
                rate: rate(*fresh, *time),
            }),
            Event::Started { .. } | Event::Changing { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_much_of_how_much_and_how_fast() {
        let second = Duration::from_secs(2);
        assert_eq!(rate(6_200_000, second), 3_100_000);
        assert_eq!(
            bar("runc", 5_000_000, Some(10_000_000), 3_100_000),
            "runc 5.0 of 10.0 MB [##########..........] 3.1 MB/s"
        );
        assert_eq!(bar("runc", 5_000_000, None, 0), "runc 5.0 MB 0.0 MB/s");
    }
}
