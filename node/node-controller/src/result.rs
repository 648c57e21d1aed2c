//! What a run leaves for those who wait: `provision.json`, which readers know as CSEStatus.
//!
//! Every value of upstream's keys is a string, and the keys are PascalCase. Ours besides: `Steps`. The whole travels
//! through the extension's status, which cuts it off at about 4 KiB, so it is made to fit.

mod boot;

use std::time::Duration;

use ::steps::engine::{Outcome, Report, StepReport};
use serde::Serialize;

pub use boot::BootTimes;

/// What the extension's status has room for, with some to spare for its own words.
const ROOM: usize = 4000;
/// How much of the transcript upstream keeps.
const OUTPUT: usize = 3000;
/// How long `Error` may be.
const ERROR: usize = 1200;

/// `provision.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CseStatus {
    /// A decimal number.
    pub exit_code: String,
    /// The end of the transcript.
    pub output: String,
    /// Step, cause and remedy of the first failure.
    pub error: String,
    /// Whole seconds.
    pub exec_duration: String,
    /// When the kernel started, as systemd prints it; so the next five.
    pub kernel_start_time: String,
    /// `cloud-init-local`.
    pub cloud_init_local_start_time: String,
    /// `cloud-init`.
    pub cloud_init_start_time: String,
    /// `cloud-final`.
    pub cloud_final_start_time: String,
    /// `systemd-networkd`.
    pub networkd_start_time: String,
    /// When this run began, as date(1) prints it.
    #[serde(rename = "CSEStartTime")]
    pub cse_start_time: String,
    /// `walinuxagent.service`.
    pub guest_agent_start_time: String,
    /// What systemd-analyze says.
    pub systemd_summary: String,
    /// The four moments that dashboards read.
    pub boot_datapoints: BootDatapoints,
    /// How the steps went. Those that say least are left out when there is no room for all.
    pub steps: Vec<StepStatus>,
}

/// The four moments that dashboards read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
#[expect(missing_docs, reason = "the names say it")]
pub struct BootDatapoints {
    pub kernel_start_time: String,
    #[serde(rename = "CSEStartTime")]
    pub cse_start_time: String,
    pub guest_agent_start_time: String,
    pub kubelet_start_time: String,
}

/// A step in the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct StepStatus {
    /// Its name.
    pub name: String,
    /// Changed, Unchanged, Passed, Failed or Skipped.
    pub outcome: String,
    /// Milliseconds with their unit.
    pub duration: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
}

/// What the result is made of.
pub struct Ending<'a> {
    /// How the steps went.
    pub report: &'a Report,
    /// What was said on the way.
    pub transcript: &'a str,
    /// When the machine and its services started.
    pub boot: &'a BootTimes,
    /// When the run began, in the machine's own zone.
    pub start: jiff::Zoned,
    /// How long it took.
    pub duration: Duration,
}

impl CseStatus {
    /// The result of a run.
    pub fn new(ending: &Ending<'_>) -> CseStatus {
        let cse_start_time = ending.start.strftime("%a %b %e %H:%M:%S %Z %Y").to_string();
        let boot = ending.boot.clone();
        let mut status = CseStatus {
            exit_code: ending.report.code().to_string(),
            output: tail(ending.transcript, OUTPUT).to_owned(),
            error: head(&error_text(ending.report), ERROR).to_owned(),
            exec_duration: ending.duration.as_secs().to_string(),
            boot_datapoints: BootDatapoints {
                kernel_start_time: boot.kernel.clone(),
                cse_start_time: cse_start_time.clone(),
                guest_agent_start_time: boot.guest_agent.clone(),
                kubelet_start_time: boot.kubelet,
            },
            kernel_start_time: boot.kernel,
            cloud_init_local_start_time: boot.cloud_init_local,
            cloud_init_start_time: boot.cloud_init,
            cloud_final_start_time: boot.cloud_final,
            networkd_start_time: boot.networkd,
            cse_start_time,
            guest_agent_start_time: boot.guest_agent,
            systemd_summary: boot.summary,
            steps: ending.report.steps.iter().map(StepStatus::new).collect(),
        };
        status.fit();
        status
    }

    /// The file's content.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("the result has string keys only")
    }

    /// Leaves out what says least until all of it fits: the beginning of the transcript, then steps that had nothing to do,
    /// then those that went well.
    fn fit(&mut self) {
        const DISPENSABLE: [&str; 4] = ["Skipped", "Unchanged", "Passed", "Changed"];
        self.shorten_output(OUTPUT / 3);
        for outcome in DISPENSABLE {
            if self.json().len() <= ROOM {
                return;
            }
            self.steps.retain(|s| s.outcome != outcome);
        }
        self.shorten_output(0);
    }

    /// Cuts the transcript from its beginning, but not below `least` bytes.
    fn shorten_output(&mut self, least: usize) {
        loop {
            let excess = self.json().len().saturating_sub(ROOM);
            let keep = self.output.len().saturating_sub(excess).max(least);
            if excess == 0 || keep >= self.output.len() {
                return;
            }
            self.output = tail(&self.output, keep).to_owned();
        }
    }
}

impl StepStatus {
    fn new(report: &StepReport) -> StepStatus {
        let cause = report
            .failure
            .as_ref()
            .map(|(_, f)| head(&f.cause, 300).to_owned());
        let outcome = match report.outcome {
            Outcome::Changed => "Changed",
            Outcome::Unchanged => "Unchanged",
            Outcome::Passed => "Passed",
            Outcome::Failed => "Failed",
            Outcome::Skipped => "Skipped",
        };
        StepStatus {
            name: report.name.clone(),
            outcome: outcome.to_owned(),
            duration: format!("{}ms", report.duration.as_millis()),
            cause: cause.unwrap_or_default(),
        }
    }
}

fn error_text(report: &Report) -> String {
    let Some((step, _, failure)) = &report.failure else {
        return String::new();
    };
    let step = step.as_ref().map(|s| format!("{s}: ")).unwrap_or_default();
    match failure.remedy.is_empty() {
        true => format!("{step}{}", failure.cause),
        false => format!("{step}{}; hint: {}", failure.cause, failure.remedy),
    }
}

/// At most `limit` bytes of the end, whole characters only.
fn tail(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// At most `limit` bytes of the beginning, whole characters only.
fn head(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
