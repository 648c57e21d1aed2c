//! `provision`: from a configuration file to a node, and a result in every case.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::steps::engine::{Engine, Failure, Report, Step, Stop};
use ::steps::host::Host;
use jiff::tz::TimeZone;
use serde_json::json;

use super::handover::{forget_last_result, leave, lock_or_refuse};
use super::log::{Level, Log};
use super::paths;
use super::reporter::Reporter;
use crate::codes::AKS_NODE_CONTROLLER_ERROR;
use crate::config::{self, Configuration};
use crate::result::{BootTimes, CseStatus, Ending};
use crate::validate::{self, Severity};

/// How long a run may take when the configuration does not say, or says nonsense.
const DEFAULT_DEADLINE: i32 = 900;
/// The longest deadline that is believed.
const LONGEST_DEADLINE: i32 = 21_600;
/// Steps at once. Most of them wait for the disk, for systemd or for the network.
const WORKERS: usize = 8;

/// The steps that a configuration asks for.
pub type StepsFor<'a> = dyn Fn(&Configuration) -> Vec<Step> + Sync + 'a;

/// A run of the node controller.
pub struct Provision<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// The configuration file, on the machine that runs this program.
    pub config: PathBuf,
    /// What to do.
    pub steps: &'a StepsFor<'a>,
    /// Ends the run early.
    pub stop: Stop,
    /// Where lines go.
    pub log: &'a Log<'a>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code of the process: the step's, or 1 for errors of the controller itself.
    pub exit: u8,
    /// What went wrong and what to do, if something did.
    pub failure: Option<Failure>,
}

impl Provision<'_> {
    /// Runs, and leaves a result whatever happens, unless another run is under way.
    pub fn run(&self) -> Ended {
        let lock = match lock_or_refuse(self.host, self.log) {
            Ok(lock) => lock,
            Err(ended) => return ended,
        };
        let start = self.host.now();
        let begin = self.host.elapsed();
        forget_last_result(self.host, self.log);
        let reporter = Reporter::new(self.host, self.log);
        self.log.line(
            Level::Info,
            "aks-node-controller started",
            &[("config", &self.config.display().to_string())],
        );
        reporter
            .events
            .send_timed("Provision", Level::Info, "Starting", start);
        let work = || self.work(&reporter);
        let (report, bake) =
            std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                let failure = Failure::permanent(
                    "the node controller panicked",
                    "report it with the log of this run",
                );
                (not_begun(failure), false)
            });
        let boot = BootTimes::ask(self.host, &fresh_stop(&self.stop));
        let status = CseStatus::new(&Ending {
            report: &report,
            transcript: &reporter.transcript(),
            boot: &boot,
            start: start.to_zoned(TimeZone::system()),
            duration: self.host.elapsed().saturating_sub(begin),
        });
        self.conclude(&reporter, &report, &status, start);
        let marker = match bake && report.code() == 0 {
            true => paths::BASE_PREP_COMPLETE,
            false => paths::COMPLETE,
        };
        let written = leave(self.host, self.log, &status.json(), marker);
        drop(lock);
        ended(&report, written)
    }

    /// Reads the configuration and runs its steps. Also says whether this is the first half of a two-stage bake.
    fn work(&self, reporter: &Reporter<'_>) -> (Report, bool) {
        let accepted = match read_config(&self.config) {
            Ok(accepted) => accepted,
            Err(failure) => {
                reporter.begin(&self.config.display().to_string(), &[]);
                return (not_begun(failure), false);
            }
        };
        for notice in &accepted.notices {
            let level = match notice {
                // Upstream's own level for it, which tests of clients look for.
                config::Notice::Deprecated => Level::Error,
                config::Notice::LeftOut(_) => Level::Warn,
            };
            self.log.line(level, &notice.to_string(), &[]);
        }
        let configuration = accepted.configuration;
        self.complain(&configuration);
        let steps = (self.steps)(&configuration);
        reporter.begin(&self.config.display().to_string(), &steps);
        let engine = Engine {
            host: self.host,
            state: paths::STATE.into(),
            stop: self.stop.clone(),
            watcher: reporter,
            workers: WORKERS,
            deadline: run_deadline(&configuration),
        };
        (engine.run(&steps), configuration.pre_provision_only)
    }

    /// What `validate` says of the configuration, in the log. The run goes on all the same, as upstream's does: what can
    /// be made of the node is made, and the step that cannot go on says so.
    fn complain(&self, configuration: &Configuration) {
        for problem in validate::broken_rules(configuration) {
            let level = match problem.severity {
                Severity::Error => Level::Error,
                Severity::Warning => Level::Warn,
            };
            let message = format!("configuration: {}: {}", problem.path, problem.rule);
            let attributes = [
                ("value", problem.value.as_str()),
                ("remedy", &problem.remedy),
            ];
            self.log.line(level, &message, &attributes);
        }
    }

    /// Tells everybody how it ended, before the sentinel does.
    fn conclude(
        &self,
        reporter: &Reporter<'_>,
        report: &Report,
        status: &CseStatus,
        start: jiff::Timestamp,
    ) {
        let code = status.exit_code.as_str();
        let level = match &report.failure {
            None => {
                self.log.line(
                    Level::Info,
                    "aks-node-controller finished successfully.",
                    &[],
                );
                reporter
                    .events
                    .send_timed("Provision", Level::Info, "Completed", start);
                Level::Info
            }
            Some(_) => {
                let attributes = [("exitCode", code), ("error", &status.error)];
                self.log
                    .line(Level::Error, "aks-node-controller failed", &attributes);
                let text = format!(
                    "aks-node-controller exited with code {code}: {}",
                    status.error
                );
                reporter
                    .events
                    .send_timed("Provision", Level::Error, &text, start);
                Level::Error
            }
        };
        let summary = json!({
            "ExitCode": code,
            "E2E": status.exec_duration,
            "KernelStartTime": status.kernel_start_time,
            "CloudInitLocalStartTime": status.cloud_init_local_start_time,
            "CloudInitStartTime": status.cloud_init_start_time,
            "CloudFinalStartTime": status.cloud_final_start_time,
            "NetworkDStartTime": status.networkd_start_time,
            "CSEStartTime": status.cse_start_time,
            "GuestAgentStartTime": status.guest_agent_start_time,
            "SystemdSummary": status.systemd_summary,
            "BootDatapoints": status.boot_datapoints,
            "ScriptlessMode": "cse_cmd",
        });
        reporter
            .events
            .send("AKS.CSE.cse_start", level, &summary.to_string(), start);
        reporter.end(report.code());
    }
}

/// The exit code of the process: what could not begin is an error of the controller itself.
fn ended(report: &Report, written: Result<(), Failure>) -> Ended {
    let (exit, failure) = match (&report.failure, written) {
        (None, Ok(())) => (0, None),
        (None, Err(failure)) => (1, Some(failure)),
        (Some((None, AKS_NODE_CONTROLLER_ERROR, failure)), _) => (1, Some(failure.clone())),
        (Some((_, code, failure)), _) => (*code, Some(failure.clone())),
    };
    Ended { exit, failure }
}

/// How long a run may take: `cse_timeout`, if it makes sense.
pub fn run_deadline(configuration: &Configuration) -> Duration {
    let sensible = |seconds: &i32| (1..=LONGEST_DEADLINE).contains(seconds);
    let seconds = configuration.cse_timeout.filter(sensible);
    let seconds = seconds.unwrap_or(DEFAULT_DEADLINE);
    Duration::from_secs(u64::try_from(seconds).expect("deadlines are positive"))
}

pub(super) fn read_config(path: &Path) -> Result<config::Accepted, Failure> {
    let text = std::fs::read(path).map_err(|e| {
        Failure::permanent(
            format!("open provision file {}: {e}", path.display()),
            "check that custom data wrote the configuration: see /var/log/cloud-init.log",
        )
    })?;
    config::read(&text).map_err(|e| {
        Failure::permanent(
            e.to_string(),
            format!(
                "see every problem at once with `aks-node-controller validate {}`",
                path.display()
            ),
        )
    })
}

fn not_begun(failure: Failure) -> Report {
    Report {
        failure: Some((None, AKS_NODE_CONTROLLER_ERROR, failure)),
        ..Report::default()
    }
}

/// What comes after a cancelled run is short, and not cancelled with it.
fn fresh_stop(stop: &Stop) -> Stop {
    Stop::new().unwrap_or_else(|_| stop.clone())
}
