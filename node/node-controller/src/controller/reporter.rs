//! Tells everybody who wants to know what a run does: log, transcript, guest agent, progress file.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ::steps::engine::{Event, Outcome, Step, StepReport, Watcher};
use ::steps::host::Host;

use super::guest_events::GuestEvents;
use super::log::{Level, Log, append};
use super::paths;
use super::progress::Line;

/// Hears the engine.
pub(super) struct Reporter<'a> {
    host: &'a dyn Host,
    log: &'a Log<'a>,
    pub(super) events: GuestEvents<'a>,
    transcript: Mutex<String>,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(host: &'a dyn Host, log: &'a Log<'a>) -> Reporter<'a> {
        Reporter {
            host,
            log,
            events: GuestEvents::new(host),
            transcript: Mutex::default(),
        }
    }

    /// A run begins: what the last one left is history.
    pub(super) fn begin(&self, config: &str, steps: &[Step]) {
        let line = Line::Run {
            time: self.host.now(),
            pid: std::process::id(),
            config: config.to_owned(),
            steps: steps.iter().map(|s| s.name.to_owned()).collect(),
        };
        let files = self.host.files();
        let _ = files.remove(Path::new(paths::PROGRESS));
        self.progress(&line);
    }

    /// The run has ended, and its result is there.
    pub(super) fn end(&self, code: u8) {
        self.progress(&Line::Ended {
            time: self.host.now(),
            code,
        });
    }

    fn progress(&self, line: &Line) {
        let text = serde_json::to_string(line).expect("progress lines have string keys only");
        append(self.host, Path::new(paths::PROGRESS), &format!("{text}\n"));
    }

    /// A line for people.
    pub(super) fn say(&self, line: &str) {
        let now = self
            .host
            .now()
            .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
            .to_string();
        let text = format!("{now} {line}\n");
        append(self.host, Path::new(paths::TRANSCRIPT), &text);
        let mut transcript = self
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        transcript.push_str(&text);
    }

    /// Everything that was said in this run.
    pub(super) fn transcript(&self) -> String {
        let transcript = self
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        transcript.clone()
    }

    fn finished(&self, report: &StepReport) {
        let (code, cause, remedy) = match &report.failure {
            Some((code, failure)) => (*code, failure.cause.as_str(), failure.remedy.as_str()),
            None => (0, "", ""),
        };
        let milliseconds = u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX);
        self.progress(&Line::Finished {
            time: self.host.now(),
            step: report.name.clone(),
            outcome: report.outcome,
            milliseconds,
            cause: cause.to_owned(),
            remedy: remedy.to_owned(),
        });
        let task = format!("AKS.CSE.{}", report.name);
        let start = self.host.now() - report.duration;
        let name = &report.name;
        match report.outcome {
            Outcome::Failed => {
                self.say(&format!(
                    "{name}: failed with {code} after {milliseconds} ms: {cause}; {remedy}"
                ));
                let attributes = [
                    ("step", name.as_str()),
                    ("exitCode", &code.to_string()),
                    ("error", cause),
                    ("remedy", remedy),
                ];
                self.log.line(Level::Error, "step failed", &attributes);
                self.events.send(
                    &task,
                    Level::Error,
                    &format!("Failed: {name}: {cause}"),
                    start,
                );
            }
            Outcome::Unchanged | Outcome::Skipped => {}
            Outcome::Changed | Outcome::Passed => {
                self.say(&format!("{name}: {} in {milliseconds} ms", report.note));
                self.events
                    .send(&task, Level::Info, &format!("Completed: {name}"), start);
            }
        }
    }
}

impl Watcher for Reporter<'_> {
    fn event(&self, event: &Event<'_>) {
        match event {
            Event::Started { step } => self.progress(&Line::Started {
                time: self.host.now(),
                step: (*step).to_owned(),
            }),
            Event::Changing { step, difference } => {
                let attributes = [
                    ("step", *step),
                    ("action", difference.action),
                    ("subject", &difference.subject),
                    ("detail", &difference.detail),
                ];
                self.log.line(Level::Info, "change", &attributes);
            }
            // The log has its beginning and its end.
            Event::Fetching { .. } => {}
            Event::Retrying {
                step,
                attempt,
                failure,
            } => {
                self.progress(&Line::Retrying {
                    time: self.host.now(),
                    step: (*step).to_owned(),
                    attempt: *attempt,
                    cause: failure.cause.clone(),
                });
                let attributes = [
                    ("step", *step),
                    ("attempt", &attempt.to_string()),
                    ("error", &failure.cause),
                ];
                self.log.line(Level::Warn, "attempt failed", &attributes);
                self.say(&format!(
                    "{step}: attempt {attempt} failed: {}",
                    failure.cause
                ));
            }
            Event::Finished(report) => self.finished(report),
        }
    }
}
