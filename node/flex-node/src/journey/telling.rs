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
pub(super) struct Telling<'a> {
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
    pub(super) fn new(news: &'a News<'a>, steps: &[Step]) -> Telling<'a> {
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

impl Watcher for Telling<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Retrying { step, failure, .. } => (self.news)(&Said::Again {
                step,
                cause: &failure.cause,
            }),
            Event::Finished(report) => self.finished(report),
            Event::Started { .. } | Event::Changing { .. } => {}
        }
    }
}
