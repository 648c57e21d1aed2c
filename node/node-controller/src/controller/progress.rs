//! What a run has done so far: lines that the run appends, and what `status` makes of them.

use std::time::Duration;

use ::steps::engine::Outcome;
use ::steps::host::Host;
use serde::{Deserialize, Serialize};

use super::wait::Watch;
use super::{lock, paths};

/// A line of the progress file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Line {
    /// A run began.
    Run {
        time: jiff::Timestamp,
        pid: u32,
        config: String,
        steps: Vec<String>,
    },
    /// A step began.
    Started { time: jiff::Timestamp, step: String },
    /// An attempt failed.
    Retrying {
        time: jiff::Timestamp,
        step: String,
        attempt: u32,
        cause: String,
    },
    /// A step ended.
    Finished {
        time: jiff::Timestamp,
        step: String,
        outcome: Outcome,
        milliseconds: u64,
        cause: String,
        remedy: String,
    },
    /// The run ended.
    Ended { time: jiff::Timestamp, code: u8 },
}

/// A run, as far as it has come.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Whether it goes on.
    pub state: RunState,
    /// The CSE exit code, once it has ended.
    pub code: Option<u8>,
    /// Who runs it.
    pub pid: u32,
    /// Which configuration.
    pub config: String,
    /// When it began.
    pub started: jiff::Timestamp,
    /// How long it has taken, or took.
    pub seconds: f64,
    /// Its steps, in the order of the table.
    pub steps: Vec<StepProgress>,
}

/// How a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Under way.
    Running,
    /// Ended, and all is well.
    Succeeded,
    /// Ended with a failure.
    Failed,
    /// Its process is gone and it left no result.
    Died,
}

/// A step, as far as it has come.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepProgress {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: StepState,
    /// How long it has taken, or took.
    pub milliseconds: u64,
    /// Which attempt this is.
    pub attempt: u32,
    /// Why it failed, or why its last attempt did.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// How a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// Not begun.
    Waiting,
    /// Under way.
    Running,
    /// Changed the host.
    Changed,
    /// Had nothing to do.
    Unchanged,
    /// Was content.
    Passed,
    /// Failed.
    Failed,
    /// Will not run any more.
    Skipped,
}

impl Progress {
    /// The last run of this boot, if there was one.
    pub fn read(host: &dyn Host) -> std::io::Result<Option<Progress>> {
        let Some(text) = host.files().text(paths::PROGRESS)? else {
            return Ok(None);
        };
        Ok(fold(&text, host.now(), lock::held(host.files())))
    }

    /// Calls `each` whenever there is news, until the run has ended; gives back how. Nothing if there is no run.
    pub fn follow(
        host: &dyn Host,
        mut each: impl FnMut(&Progress),
    ) -> std::io::Result<Option<Progress>> {
        let watch = Watch::new(host.files())?;
        loop {
            let Some(progress) = Progress::read(host)? else {
                return Ok(None);
            };
            each(&progress);
            if progress.state != RunState::Running {
                return Ok(Some(progress));
            }
            watch.sleep(Duration::from_secs(1))?;
        }
    }
}

/// What the lines say at this moment. A last line that is cut off is not there yet.
fn fold(text: &str, now: jiff::Timestamp, alive: bool) -> Option<Progress> {
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let mut lines = whole.lines().filter_map(|l| serde_json::from_str(l).ok());
    let Some(Line::Run {
        time,
        pid,
        config,
        steps,
    }) = lines.next()
    else {
        return None;
    };
    let waiting = |name: String| StepProgress {
        name,
        state: StepState::Waiting,
        milliseconds: 0,
        attempt: 0,
        cause: String::new(),
        remedy: String::new(),
    };
    let mut progress = Progress {
        state: if alive {
            RunState::Running
        } else {
            RunState::Died
        },
        code: None,
        pid,
        config,
        started: time,
        seconds: seconds(time, now),
        steps: steps.into_iter().map(waiting).collect(),
    };
    for line in lines {
        progress.learn(line, now);
    }
    Some(progress)
}

impl Progress {
    fn learn(&mut self, line: Line, now: jiff::Timestamp) {
        match line {
            Line::Run { .. } => {}
            Line::Started { time, step } => {
                if let Some(step) = self.step(&step) {
                    step.state = StepState::Running;
                    step.attempt = 1;
                    step.milliseconds = milliseconds(time, now);
                }
            }
            Line::Retrying {
                step,
                attempt,
                cause,
                ..
            } => {
                if let Some(step) = self.step(&step) {
                    step.attempt = attempt + 1;
                    step.cause = cause;
                }
            }
            Line::Finished {
                step,
                outcome,
                milliseconds,
                cause,
                remedy,
                ..
            } => {
                if let Some(step) = self.step(&step) {
                    step.state = state_of(outcome);
                    step.milliseconds = milliseconds;
                    step.cause = cause;
                    step.remedy = remedy;
                }
            }
            Line::Ended { time, code } => {
                self.code = Some(code);
                self.state = if code == 0 {
                    RunState::Succeeded
                } else {
                    RunState::Failed
                };
                self.seconds = seconds(self.started, time);
                for step in self
                    .steps
                    .iter_mut()
                    .filter(|s| s.state == StepState::Waiting)
                {
                    step.state = StepState::Skipped;
                }
            }
        }
    }

    fn step(&mut self, name: &str) -> Option<&mut StepProgress> {
        self.steps.iter_mut().find(|s| s.name == name)
    }
}

fn state_of(outcome: Outcome) -> StepState {
    match outcome {
        Outcome::Changed => StepState::Changed,
        Outcome::Unchanged => StepState::Unchanged,
        Outcome::Passed => StepState::Passed,
        Outcome::Failed => StepState::Failed,
        Outcome::Skipped => StepState::Skipped,
    }
}

fn milliseconds(from: jiff::Timestamp, to: jiff::Timestamp) -> u64 {
    let time = Duration::try_from(to.duration_since(from)).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn seconds(from: jiff::Timestamp, to: jiff::Timestamp) -> f64 {
    Duration::try_from(to.duration_since(from))
        .unwrap_or_default()
        .as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[Line]) -> String {
        let lines = lines
            .iter()
            .map(|l| serde_json::to_string(l).unwrap() + "\n");
        lines.collect()
    }

    fn at(second: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(second).unwrap()
    }

    fn begun() -> Vec<Line> {
        let steps = vec!["one".to_owned(), "two".to_owned()];
        vec![
            Line::Run {
                time: at(100),
                pid: 7,
                config: "f".to_owned(),
                steps,
            },
            Line::Started {
                time: at(101),
                step: "one".to_owned(),
            },
            Line::Retrying {
                time: at(102),
                step: "one".to_owned(),
                attempt: 1,
                cause: "no".to_owned(),
            },
        ]
    }

    #[test]
    fn a_run_under_way_shows_what_it_waits_for() {
        let cut_off = text(&begun()) + "{\"Finished\":{\"step\":\"one";
        let progress = fold(&cut_off, at(110), true).unwrap();
        assert_eq!(
            (progress.state, progress.seconds, progress.code),
            (RunState::Running, 10.0, None)
        );
        let one = &progress.steps[0];
        assert_eq!(
            (one.state, one.attempt, one.milliseconds),
            (StepState::Running, 2, 9000)
        );
        assert_eq!(one.cause, "no");
        assert_eq!(progress.steps[1].state, StepState::Waiting);
        assert_eq!(
            fold(&cut_off, at(110), false).unwrap().state,
            RunState::Died
        );
    }

    #[test]
    fn a_run_that_ended_keeps_its_time_and_skips_what_never_began() {
        let mut lines = begun();
        lines.push(Line::Finished {
            time: at(103),
            step: "one".to_owned(),
            outcome: Outcome::Failed,
            milliseconds: 2000,
            cause: "really no".to_owned(),
            remedy: "try".to_owned(),
        });
        lines.push(Line::Ended {
            time: at(104),
            code: 50,
        });
        let progress = fold(&text(&lines), at(999), false).unwrap();
        assert_eq!(
            (progress.state, progress.seconds, progress.code),
            (RunState::Failed, 4.0, Some(50))
        );
        assert_eq!(progress.steps[0].cause, "really no");
        assert_eq!(progress.steps[1].state, StepState::Skipped);
        assert_eq!(fold("", at(1), false), None);
    }
}
