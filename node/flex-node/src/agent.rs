//! The agent's loop: looks at the node every minute, decides what is the least that mends it, does that under a budget,
//! and says how things are in upstream's status file.
//!
//! `decide` is pure. Upstream bootstraps the whole node again whatever is wrong, without a limit; here the smallest thing
//! that can help comes first, each attempt waits longer than the one before, and at some point a person is asked.

mod decide;
mod look;
mod metrics;

use std::path::Path;
use std::time::Duration;

use ::steps::engine::Stop;
use ::steps::host::{Command, Host};
use jiff::Timestamp;
use serde_json::{Value, json};

pub use decide::{Decision, History, Observation, Readiness, decide};
use look::Looking;
pub use metrics::Metrics;

use crate::cluster::Seen;
use crate::journey::{Journey, WORKERS};
use crate::paths;
use crate::steps::Wish;

/// How often the node is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often its files are compared with what they should be: every so many looks.
const COMPARE_EVERY: u32 = 10;

/// Somebody who knows what the cluster says of the node.
pub type AskCluster<'a> = dyn Fn() -> Result<Seen, String> + 'a;

/// Somebody who knows which version the cluster wants here.
pub type AskGoal<'a> = dyn Fn() -> Option<String> + 'a;

/// The loop, until it is told to stop.
pub struct Agent<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Ends it.
    pub stop: Stop,
    /// What the node should be.
    pub wish: &'a Wish,
    /// What the cluster says of it.
    pub ask_cluster: &'a AskCluster<'a>,
    /// Which version the cluster wants.
    pub ask_goal: &'a AskGoal<'a>,
    /// What is told to Prometheus.
    pub metrics: &'a Metrics,
    /// Where lines go.
    pub log: &'a (dyn Fn(&str) + Sync),
}

impl Agent<'_> {
    /// Runs. With `looks` it ends after so many; else when it is stopped.
    pub fn run(&self, looks: Option<u32>) {
        let mut history = History::default();
        let mut count = 0;
        while looks.is_none_or(|looks| count < looks) && self.stop.reason().is_none() {
            let compares = count % COMPARE_EVERY == 0;
            self.turn(&mut history, compares);
            count += 1;
            if looks.is_none_or(|looks| count < looks) {
                self.host.sleep(LOOK_EVERY, &self.stop);
            }
        }
    }

    /// One look, and what follows from it.
    pub fn turn(&self, history: &mut History, compares: bool) -> Decision {
        let looking = Looking {
            host: self.host,
            stop: &self.stop,
            wish: self.wish,
            ask_cluster: self.ask_cluster,
            ask_goal: self.ask_goal,
        };
        let observation = looking.look(compares);
        let now = self.host.now();
        let may = self.wish.config.agent.remediates;
        let decision = decide(&observation, history, now, may);
        self.write_status(&looking.status(&observation, &decision, now));
        self.metrics.looked(&observation, &decision, history, now);
        match &decision {
            Decision::Well => history.well(now),
            Decision::Wait(why) | Decision::AskSomebody(why) => (self.log)(why),
            Decision::Restart(unit, why) => {
                (self.log)(&format!("{why}: restarting {unit}"));
                history.tried(now);
                let restart = Command::new("systemctl", &["restart", unit]);
                if let Err(error) = self.host.run(&restart, &self.stop) {
                    (self.log)(&error.to_string());
                }
            }
            Decision::Upgrade(version, why) => {
                (self.log)(&format!("{why}: upgrading"));
                history.tried(now);
                self.upgrade(version);
            }
            Decision::Converge(why) => {
                (self.log)(&format!("{why}: bringing it back"));
                history.tried(now);
                self.converge();
            }
        }
        decision
    }

    /// In a process of its own, as a person would: what ends it does not end the agent.
    fn upgrade(&self, version: &str) {
        let words = [
            "upgrade",
            "--config",
            &self.wish.file,
            "--kubernetes",
            version,
        ];
        let command = self.wish.own(&words).at_most(Duration::from_secs(3600));
        match self.host.run(&command, &self.stop) {
            Ok(finished) if finished.success() => (self.log)("it runs that version"),
            Ok(finished) => (self.log)(&finished.last_words()),
            Err(error) => (self.log)(&error.to_string()),
        }
    }

    fn converge(&self) {
        let journey = Journey {
            host: self.host,
            stop: self.stop.clone(),
            news: &|_| {},
            workers: WORKERS,
        };
        let arrival = journey.bootstrap(self.wish);
        match arrival.failure {
            None => (self.log)("it is as it should be again"),
            Some(failure) => (self.log)(&format!("{}; hint: {}", failure.cause, failure.remedy)),
        }
    }

    fn write_status(&self, status: &Value) {
        let path = Path::new(paths::STATUS);
        let text = format!("{status:#}\n");
        let files = self.host.files();
        let written = files
            .ensure_directory(Path::new(paths::VOLATILE), 0o755)
            .and_then(|()| files.replace(path, text.as_bytes(), 0o600));
        if let Err(error) = written {
            (self.log)(&format!("{} cannot be written: {error}", path.display()));
        }
    }
}

/// The unit that runs the loop.
pub fn unit(wish: &Wish) -> String {
    format!(
        "{}\n[Unit]\nDescription=AKS Flex Node agent\nAfter=network-online.target himdsd.service kubelet.service\n\
         Wants=network-online.target\nStartLimitIntervalSec=300\nStartLimitBurst=5\n\n\
         [Service]\nExecStart={} agent --config {}\nRestart=on-failure\nRestartSec=30\nTimeoutStopSec=60\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        crate::machine::MARK,
        wish.program.join(" "),
        wish.file,
    )
}

/// A time as upstream's files have it.
fn stamp(at: Timestamp) -> Value {
    json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
