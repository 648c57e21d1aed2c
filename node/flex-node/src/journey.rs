//! Bootstrap and unbootstrap: the steps with what is around them. One run at a time; what happens is told as it happens,
//! in phases with their times; how it ended is kept.

mod lock;
pub(crate) mod telling;
#[cfg(test)]
mod tests;
pub mod upgrade;

use std::path::Path;
use std::time::Duration;

use ::steps::engine::{Engine, Failure, Plan, PlanError, Report, Stop};
use ::steps::host::{Command, Host};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::steps::{Phase, Wish, phase_of, steps};
use crate::{codes, paths};
use lock::Lock;
use telling::Telling;
pub use telling::{News, Said, bar};

/// Steps at once: most wait for the disk, for systemd or for the network.
pub const WORKERS: usize = 8;
/// How long a whole run may take.
const DEADLINE: Duration = Duration::from_secs(1800);

/// A journey on a machine.
pub struct Journey<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Ends it early.
    pub stop: Stop,
    /// Hears what happens.
    pub news: &'a News<'a>,
    /// How many steps may run at once; [`WORKERS`] unless their order matters to somebody.
    pub workers: usize,
}

/// What is remembered of a bootstrap, so that its opposite needs no configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The node's name.
    pub node: String,
    /// The configuration's file.
    pub config: String,
    /// How this program was run.
    pub program: Vec<String>,
    /// How the kubelet proves who it is.
    pub join: String,
}

const MEMORY: &str = "/var/lib/aks-flex-node/node.json";

impl Memory {
    /// What the last bootstrap left.
    pub fn read(host: &dyn Host) -> Option<Memory> {
        let text = host.files().text(MEMORY).ok().flatten()?;
        serde_json::from_str(&text).ok()
    }
}

/// How a bootstrap ended.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// What each step did.
    pub report: Report,
    /// What kept it from beginning or from ending well.
    pub failure: Option<Failure>,
    /// The exit code.
    pub code: u8,
}

impl Journey<'_> {
    fn engine<'b>(&'b self, telling: &'b Telling<'b>) -> Engine<'b> {
        Engine {
            host: self.host,
            state: paths::STATE.into(),
            // A run that fails ends itself, and nobody who goes on after it.
            stop: self.stop.part().unwrap_or_else(|_| self.stop.clone()),
            watcher: telling,
            workers: self.workers,
            deadline: DEADLINE,
        }
    }

    /// What a bootstrap would do.
    pub fn plan(&self, wish: &Wish) -> Result<Plan, PlanError> {
        let telling = Telling::new(self.news, &[]);
        self.engine(&telling).plan(&steps(wish))
    }

    /// Makes the machine a node.
    pub fn bootstrap(&self, wish: &Wish) -> Arrival {
        let _lock = match Lock::take(self.host) {
            Ok(lock) => lock,
            Err(failure) => return not_begun(failure, codes::BUSY),
        };
        let steps = steps(wish);
        let telling = Telling::new(self.news, &steps);
        if let Err(failure) = self.remember(wish) {
            return not_begun(failure, codes::HOST);
        }
        let report = self.engine(&telling).run(&steps);
        let (code, failure) = match &report.failure {
            None => (0, None),
            Some((_, code, failure)) => (*code, Some(failure.clone())),
        };
        let arrival = Arrival {
            report,
            failure,
            code,
        };
        let text = format!("{:#}\n", arrival.value());
        let path = Path::new(paths::LAST_RUN);
        // A report that cannot be kept was told all the same.
        let _ = self.host.files().replace(path, text.as_bytes(), 0o600);
        arrival
    }

    fn remember(&self, wish: &Wish) -> Result<(), Failure> {
        let memory = Memory {
            node: wish.name.clone(),
            config: wish.file.clone(),
            program: wish.program.clone(),
            join: wish.config.join.name().to_owned(),
        };
        let text = serde_json::to_string(&memory).expect("a memory has string keys only");
        let (files, path) = (self.host.files(), Path::new(MEMORY));
        files
            .ensure_directory(Path::new(paths::STATE), 0o700)
            .and_then(|()| files.replace(path, text.as_bytes(), 0o600))
            .map_err(|e| Failure::file("write", path, &e))
    }
}

fn not_begun(failure: Failure, code: u8) -> Arrival {
    Arrival {
        report: Report::default(),
        failure: Some(failure),
        code,
    }
}

impl Arrival {
    /// For machines: upstream's fields, and ours.
    pub fn value(&self) -> Value {
        let steps: Vec<Value> = (self.report.steps.iter())
            .map(|step| {
                let error = step.failure.as_ref().map(|(_, failure)| &failure.cause);
                json!({"step_name": step.name, "success": step.failure.is_none(), "duration": step.duration.as_nanos() as u64,
                    "phase": phase_of(&step.name), "outcome": step.outcome, "attempts": step.attempts,
                    "note": step.note, "error": error})
            })
            .collect();
        let phases: Vec<Value> = (self.phases().iter())
            .map(|(phase, time)| json!({"phase": phase, "milliseconds": time.as_millis() as u64}))
            .collect();
        json!({"success": self.code == 0, "step_count": steps.len(), "duration": self.report.duration.as_nanos() as u64,
            "step_results": steps, "phases": phases, "code": self.code, "kind": codes::name(self.code),
            "error": self.failure.as_ref().map(|f| &f.cause), "remedy": self.failure.as_ref().map(|f| &f.remedy)})
    }

    /// How long each phase took, from the start of its first step to the end of its last.
    pub fn phases(&self) -> Vec<(Phase, Duration)> {
        let time = |phase: Phase| {
            let own = |s: &&::steps::engine::StepReport| {
                phase_of(&s.name) == Some(phase) && s.attempts > 0
            };
            let steps: Vec<_> = self.report.steps.iter().filter(own).collect();
            let start = steps.iter().map(|s| s.start).min()?;
            let end = steps.iter().map(|s| s.start + s.duration).max()?;
            Some((phase, end.saturating_sub(start)))
        };
        Phase::ALL.into_iter().filter_map(time).collect()
    }
}

/// How an unbootstrap ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Departure {
    /// There was nothing to take back.
    pub nothing: bool,
    /// How many things were looked at.
    pub restored: usize,
    /// What is still there that should not be, and what to do about it.
    pub left: Vec<Left>,
    /// Directories of ours in which others have put files, and which so stay.
    pub kept: Vec<String>,
    /// The exit code.
    pub code: u8,
}

/// Something that was left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Left {
    /// What, and why.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl From<Failure> for Left {
    fn from(failure: Failure) -> Left {
        Left {
            what: failure.cause,
            remedy: failure.remedy,
        }
    }
}

impl Journey<'_> {
    /// Takes the machine out of its cluster and back to what it was. Goes on past failures, and says what was left.
    /// `kubeconfig` is somebody who may delete nodes: a node may not delete itself.
    pub fn unbootstrap(&self, kubeconfig: Option<&str>) -> Departure {
        if Memory::read(self.host).is_some() {
            // It may be mending the node right now, and holds the lock while it does.
            let stop = Command::new("systemctl", &["stop", "aks-flex-node-agent.service"]);
            let _ = self.host.run(&stop, &self.stop);
        }
        let _lock = match Lock::take(self.host) {
            Ok(lock) => lock,
            Err(failure) => {
                return Departure {
                    left: vec![failure.into()],
                    code: codes::BUSY,
                    ..Departure::default()
                };
            }
        };
        let Some(memory) = Memory::read(self.host) else {
            // What a run that was killed at its very beginning or end has left.
            self.sweep();
            let _ = self.host.files().remove(Path::new(paths::STATE));
            return Departure {
                nothing: true,
                ..Departure::default()
            };
        };
        let mut departure = Departure::default();
        self.say(
            "node",
            || self.leave_cluster(&memory, kubeconfig),
            &mut departure.left,
        );
        let begin = self.host.elapsed();
        let telling = Telling::new(self.news, &[]);
        let undone = self.engine(&telling).undo();
        departure.restored = undone.restored;
        departure.kept = undone.kept;
        departure
            .left
            .extend(undone.failures.into_iter().map(Left::from));
        let remains = undone.remains.into_iter().map(|what| Left {
            what: format!("{what} was done, and nothing takes it back"),
            remedy: String::new(),
        });
        departure.left.extend(remains);
        (self.news)(&Said::Phase {
            name: "host",
            detail: format!("{} things are as they were", departure.restored),
            time: self.host.elapsed().saturating_sub(begin),
        });
        self.forget(&mut departure);
        if !departure.left.is_empty() {
            departure.code = codes::LEFT;
        }
        departure
    }

    fn say(
        &self,
        name: &'static str,
        act: impl FnOnce() -> Result<String, Failure>,
        left: &mut Vec<Left>,
    ) {
        let begin = self.host.elapsed();
        match act() {
            Ok(detail) => (self.news)(&Said::Phase {
                name,
                detail,
                time: self.host.elapsed().saturating_sub(begin),
            }),
            Err(failure) => left.push(failure.into()),
        }
    }

    /// The kubelet stops, else it would register again; then the node's object goes.
    fn leave_cluster(&self, memory: &Memory, kubeconfig: Option<&str>) -> Result<String, Failure> {
        let units = ["stop", "aks-flex-node-agent.service", "kubelet.service"];
        // Units that are not there need no stopping; undo looks at those that are.
        let _ = self
            .host
            .run(&Command::new("systemctl", &units), &self.stop);
        let (program, rest) = memory.program.split_first().ok_or_else(|| {
            Failure::permanent(
                "the memory of the bootstrap names no program",
                "delete the node by hand",
            )
        })?;
        let mut words: Vec<&str> = rest.iter().map(String::as_str).collect();
        words.extend(["node", "remove", "--name", &memory.node]);
        match kubeconfig {
            Some(file) => words.extend(["--kubeconfig", file]),
            // Whoever joined with Azure's help has somebody to ask.
            None if memory.join != "bootstrap token" => words.extend(["--config", &memory.config]),
            None => {}
        }
        let command = Command::new(program, &words).at_most(Duration::from_secs(30));
        let remedy = format!(
            "`kubectl delete node {}` as somebody who may, or run again with --kubeconfig",
            memory.node
        );
        let finished = self.host.run(&command, &self.stop).map_err(|e| {
            Failure::new(
                format!("node {} is still in the cluster: {e}", memory.node),
                remedy.clone(),
            )
        })?;
        match finished.success() {
            true => Ok(format!("{} is gone from the cluster", memory.node)),
            false => Err(Failure::new(
                format!(
                    "node {} is still in the cluster: {}",
                    memory.node,
                    finished.last_words()
                ),
                remedy,
            )),
        }
    }

    /// Half-written files of our own directory.
    fn sweep(&self) {
        let files = self.host.files();
        let names = files.list(paths::STATE).unwrap_or_default();
        let drafts = names
            .iter()
            .filter(|name| name.starts_with('.') && name.ends_with("-draft"));
        for name in drafts {
            // The directory that cannot be removed with it is said to be left.
            let _ = files.remove(&Path::new(paths::STATE).join(name));
        }
    }

    /// The last traces, once everything else is back.
    fn forget(&self, departure: &mut Departure) {
        self.sweep();
        let is_node_left = !departure.left.is_empty();
        let files = self.host.files();
        for name in files.list(paths::TOKENS).unwrap_or_default() {
            // A token that stays is found in its directory, which then cannot be removed and is said to be left.
            let _ = files.remove(&Path::new(paths::TOKENS).join(name));
        }
        let mut doomed = vec![
            paths::LAST_RUN,
            paths::CLUSTER,
            paths::STATUS,
            paths::TOKENS,
            crate::versions::FILE,
            upgrade::RECORD,
        ];
        // While something is left, another run must know what it was about.
        if !is_node_left {
            doomed.extend([MEMORY, paths::STATE]);
        }
        for path in doomed {
            let path = Path::new(path);
            if let Err(error) = files.remove(path) {
                departure
                    .left
                    .push(Failure::file("remove", path, &error).into());
            }
        }
    }
}
