//! Runs the graph of steps: in parallel, each within its limits, all within the run's.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::apply::{Application, Workshop};
use super::compare::Difference;
use super::graph::{GraphError, Schedule};
use super::journal::Journal;
use super::step::{Failure, Scene, Step, Work};
use super::stop::{Reason, Stop};
use crate::host::Host;

/// The exit code of a run that took too long, as timeout(1) gives it.
const CODE_TIMEOUT: u8 = 124;
/// The exit code of a run that was told to end, as upstream reports a child that a signal ended.
const CODE_CANCELLED: u8 = 255;
/// The exit code of a run that could not even begin, and of a step that panicked.
const CODE_CONTROLLER: u8 = 240;

/// How long commands of other steps may go on after a step has failed.
const LINGER: Duration = Duration::from_secs(60);
/// How often that is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Everything a run needs besides its steps.
pub struct Engine<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Where the journal is: a private directory of the machine.
    pub state: PathBuf,
    /// Ends the run early.
    pub stop: Stop,
    /// Hears what happens.
    pub watcher: &'a dyn Watcher,
    /// How many steps may run at once.
    pub workers: usize,
    /// How long the whole run may take.
    pub deadline: Duration,
}

/// Hears what happens during a run, from several threads.
pub trait Watcher: Send + Sync {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}

/// What happens during a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A step begins.
    Started {
        /// Its name.
        step: &'a str,
    },
    /// A step is about to change something.
    Changing {
        /// The step's name.
        step: &'a str,
        /// What.
        difference: &'a Difference,
    },
    /// An attempt failed and another follows.
    Retrying {
        /// The step's name.
        step: &'a str,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Why.
        failure: &'a Failure,
    },
    /// A step fetches something.
    Fetching {
        /// The step's name.
        step: &'a str,
        /// How much there is by now.
        bytes: u64,
        /// How much there will be, where the server says it.
        total: Option<u64>,
        /// How much of it came over this connection, and in which time.
        fresh: u64,
        /// Since the connection was asked for.
        time: Duration,
    },
    /// A step has ended.
    Finished(&'a StepReport),
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    /// It changed the host.
    Changed,
    /// The host was as it should be.
    Unchanged,
    /// A probe was content.
    Passed,
    /// It failed.
    Failed,
    /// It did not run, because the run ended before.
    Skipped,
}

/// How a step went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began, since the run did.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// How often it was tried.
    pub attempts: u32,
    /// What a probe had to say.
    pub note: String,
    /// Why it failed, with the code that counts.
    pub failure: Option<(u8, Failure)>,
}

/// How a run went.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// All steps, in the order of the table.
    pub steps: Vec<StepReport>,
    /// The first failure: its step (none if the run could not begin), its code and itself.
    pub failure: Option<(Option<String>, u8, Failure)>,
    /// How long it took.
    pub duration: Duration,
}

impl Report {
    /// The CSE exit code: 0 if all went well.
    pub fn code(&self) -> u8 {
        self.failure.as_ref().map_or(0, |(_, code, _)| *code)
    }

    fn not_begun(failure: Failure) -> Report {
        Report {
            failure: Some((None, failure.code.unwrap_or(CODE_CONTROLLER), failure)),
            ..Report::default()
        }
    }
}

/// What the workers share.
struct Floor {
    workers: usize,
    schedule: Schedule,
    reports: Vec<Option<StepReport>>,
    first_failure: Option<usize>,
}

impl Engine<'_> {
    /// Runs all steps. What an interrupted run left half done is cleaned up first.
    pub fn run(&self, steps: &[Step]) -> Report {
        let begin = self.host.elapsed();
        let schedule = match Schedule::new(steps) {
            Ok(schedule) => schedule,
            Err(error) => return Report::not_begun(nonsense(&error)),
        };
        let journal = Journal::open(self.host.files(), &self.state)
            .and_then(|journal| journal.sweep().map(|()| journal));
        let workshop = match journal {
            Ok(journal) => Workshop {
                journal,
                systemd: Mutex::new(()),
            },
            Err(failure) => return Report::not_begun(failure),
        };
        let workers = self.workers.clamp(1, steps.len().max(1));
        let floor = Mutex::new(Floor {
            workers,
            schedule,
            reports: steps.iter().map(|_| None).collect(),
            first_failure: None,
        });
        let news = Condvar::new();
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(steps, &workshop, &floor, &news, begin));
            }
            self.watch(&floor, &news);
        });
        let floor = floor.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.report(steps, floor, begin)
    }

    /// One worker: takes steps as they become ready, until none will.
    fn work(
        &self,
        steps: &[Step],
        workshop: &Workshop<'_>,
        floor: &Mutex<Floor>,
        news: &Condvar,
        begin: Duration,
    ) {
        let mut guard = floor.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = match self.stop.reason() {
                None => guard.schedule.take(),
                Some(_) => None,
            };
            let Some(number) = next else {
                if !guard.schedule.busy() || self.stop.reason().is_some() {
                    break;
                }
                guard = news.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(guard);
            let report = self.step(&steps[number], workshop, begin);
            self.watcher.event(&Event::Finished(&report));
            guard = floor.lock().unwrap_or_else(PoisonError::into_inner);
            match report.outcome {
                Outcome::Failed => {
                    guard.schedule.failed(number);
                    guard.first_failure.get_or_insert(number);
                    self.stop.pull(Reason::Failed);
                }
                _ => guard.schedule.succeeded(number),
            }
            guard.reports[number] = Some(report);
            news.notify_all();
        }
        guard.workers -= 1;
        news.notify_all();
    }

    /// Once a step has failed, commands of others may come to their end, but not at their leisure: somebody waits for the
    /// result.
    fn watch(&self, floor: &Mutex<Floor>, news: &Condvar) {
        let mut failed_at = None;
        let mut guard = floor.lock().unwrap_or_else(PoisonError::into_inner);
        while guard.workers > 0 {
            if self.stop.reason() != Some(Reason::Failed) {
                guard = news.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let since = *failed_at.get_or_insert_with(|| self.host.elapsed());
            if self.host.elapsed().saturating_sub(since) >= LINGER {
                self.stop.pull(Reason::Cancelled);
            }
            let waited = news.wait_timeout(guard, TICK);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// One step with all its attempts.
    fn step(&self, step: &Step, workshop: &Workshop<'_>, begin: Duration) -> StepReport {
        self.watcher.event(&Event::Started { step: step.name });
        let start = self.host.elapsed();
        let end = start
            .saturating_add(step.deadline)
            .min(begin.saturating_add(self.deadline));
        let mut attempts = 1;
        let ended = loop {
            match self.attempt(step, workshop, end) {
                Err(failure) if self.again(step, attempts, end, &failure) => {
                    self.watcher.event(&Event::Retrying {
                        step: step.name,
                        attempt: attempts,
                        failure: &failure,
                    });
                    self.host.sleep(step.retry.pause, &self.stop);
                    if self.stop.reason().is_some() {
                        break Err(failure);
                    }
                    attempts += 1;
                }
                ended => break ended,
            }
        };
        let (outcome, note, failure) = match ended {
            Ok((outcome, note)) => (outcome, note, None),
            Err(failure) => {
                let failure = self.judge(step, failure, begin);
                (Outcome::Failed, String::new(), Some(failure))
            }
        };
        StepReport {
            name: step.name.to_owned(),
            outcome,
            start: start.saturating_sub(begin),
            duration: self.host.elapsed().saturating_sub(start),
            attempts,
            note,
            failure,
        }
    }

    /// Whether another attempt is worth it.
    fn again(&self, step: &Step, attempts: u32, end: Duration, failure: &Failure) -> bool {
        let next = self.host.elapsed().saturating_add(step.retry.pause);
        !failure.permanent
            && attempts < step.retry.attempts
            && next < end
            && self.stop.reason().is_none()
    }

    /// One attempt. A panic is a failure of this step, not the end of the process.
    fn attempt(
        &self,
        step: &Step,
        workshop: &Workshop<'_>,
        end: Duration,
    ) -> Result<(Outcome, String), Failure> {
        let scene = Scene {
            host: self.host,
            stop: &self.stop,
            until: self
                .host
                .elapsed()
                .saturating_add(step.retry.attempt)
                .min(end),
            planning: false,
        };
        let work = || match &step.work {
            Work::Probe(probe) => probe(&scene).map(|note| (Outcome::Passed, note)),
            Work::Changes(desired) => {
                let application = Application {
                    step: step.name,
                    scene: &scene,
                    workshop,
                    watcher: self.watcher,
                };
                let changed = application.apply(&desired(&scene)?)?;
                Ok(match changed {
                    0 => (Outcome::Unchanged, String::new()),
                    n => (Outcome::Changed, format!("{n} changes")),
                })
            }
        };
        std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            Err(Failure::permanent(
                "the node controller has a bug in this step: it panicked",
                "report it with the log of this run",
            )
            .with_code(CODE_CONTROLLER))
        })
    }

    /// The code that a failure counts as: the end of the run's time and a cancellation outrank the step's own.
    fn judge(&self, step: &Step, failure: Failure, begin: Duration) -> (u8, Failure) {
        let code = failure.code.unwrap_or(step.code);
        if self.stop.cancelled() {
            return (CODE_CANCELLED, failure);
        }
        if self.host.elapsed().saturating_sub(begin) < self.deadline {
            return (code, failure);
        }
        let cause = format!(
            "the {} s of the whole run were over in step `{}`, which would have failed with {code}: {}",
            self.deadline.as_secs(),
            step.name,
            failure.cause
        );
        (CODE_TIMEOUT, Failure { cause, ..failure })
    }

    fn report(&self, steps: &[Step], floor: Floor, begin: Duration) -> Report {
        let reports = floor.reports.into_iter().zip(steps);
        let reports: Vec<_> = reports
            .map(|(report, step)| report.unwrap_or_else(|| skipped(step)))
            .collect();
        let first = floor.first_failure.and_then(|n| {
            let (code, failure) = reports[n].failure.clone()?;
            Some((Some(reports[n].name.clone()), code, failure))
        });
        let cancelled = || {
            let failure = Failure::permanent(
                "the run was cancelled",
                "run again: it goes on where it stopped",
            );
            self.stop
                .cancelled()
                .then_some((None, CODE_CANCELLED, failure))
        };
        Report {
            failure: first.or_else(cancelled),
            duration: self.host.elapsed().saturating_sub(begin),
            steps: reports,
        }
    }
}

fn skipped(step: &Step) -> StepReport {
    StepReport {
        name: step.name.to_owned(),
        outcome: Outcome::Skipped,
        start: Duration::ZERO,
        duration: Duration::ZERO,
        attempts: 0,
        note: String::new(),
        failure: None,
    }
}

fn nonsense(error: &GraphError) -> Failure {
    Failure::permanent(error.to_string(), "report it: the table of steps is wrong")
}
