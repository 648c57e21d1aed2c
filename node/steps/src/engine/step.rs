//! What a step is: a name, what it needs, its limits, the code it fails with, and its work.

use std::fmt;
use std::time::Duration;

use super::change::Change;
use super::stop::Stop;
use crate::host::{Command, Finished, Host};

/// One unit of provisioning. Mostly data: the engine checks, plans, journals, applies and undoes.
pub struct Step {
    /// Unique; shown to people, part of the guest-agent event name and of `Steps` in the result.
    pub name: &'static str,
    /// Names of the steps that must have succeeded before. Names that are not in the run are ignored, so that
    /// a step may be left out without touching those that come after it.
    pub needs: Vec<&'static str>,
    /// The CSE exit code of the run when this step fails and its [`Failure`] names no other.
    pub code: u8,
    /// How long all attempts together may take.
    pub deadline: Duration,
    /// How often, how far apart and how long each attempt may be.
    pub retry: Retry,
    /// What it does.
    pub work: Work,
}

/// The two kinds of work.
pub enum Work {
    /// Says what the host should look like; the engine makes it so. Called once per attempt, after the steps it needs,
    /// with the host as it is then. Must not change the host itself.
    Changes(Box<WorkFn<Vec<Change>>>),
    /// Looks at the world and is content or not (connectivity, readiness). The sentence it returns is logged.
    Probe(Box<WorkFn<String>>),
}

/// A function of the host and the configuration that it captured.
pub type WorkFn<T> = dyn Fn(&Scene<'_>) -> Result<T, Failure> + Send + Sync;

/// How a step is repeated when it fails with a failure that may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all, at least 1.
    pub attempts: u32,
    /// Time between two attempts.
    pub pause: Duration,
    /// How long one attempt may take.
    pub attempt: Duration,
}

impl Retry {
    /// One attempt that may take as long as the step.
    pub const ONCE: Retry = Retry {
        attempts: 1,
        pause: Duration::ZERO,
        attempt: Duration::MAX,
    };

    /// `attempts` times, `pause` apart, each at most `attempt` long.
    pub const fn times(attempts: u32, pause: Duration, attempt: Duration) -> Retry {
        Retry {
            attempts,
            pause,
            attempt,
        }
    }
}

impl Step {
    /// A step that brings the host into a state.
    pub fn changes(
        name: &'static str,
        code: u8,
        work: impl Fn(&Scene<'_>) -> Result<Vec<Change>, Failure> + Send + Sync + 'static,
    ) -> Step {
        Step::new(name, code, Work::Changes(Box::new(work)))
    }

    /// A step that only looks.
    pub fn probe(
        name: &'static str,
        code: u8,
        work: impl Fn(&Scene<'_>) -> Result<String, Failure> + Send + Sync + 'static,
    ) -> Step {
        Step::new(name, code, Work::Probe(Box::new(work)))
    }

    fn new(name: &'static str, code: u8, work: Work) -> Step {
        Step {
            name,
            needs: Vec::new(),
            code,
            deadline: Duration::from_secs(60),
            retry: Retry::ONCE,
            work,
        }
    }

    /// Names of steps that come first.
    pub fn after(mut self, needs: &[&'static str]) -> Step {
        self.needs.extend_from_slice(needs);
        self
    }

    /// How long all attempts together may take; a minute unless told.
    pub fn within(mut self, deadline: Duration) -> Step {
        self.deadline = deadline;
        self
    }

    /// How often to try; once unless told.
    pub fn retrying(mut self, retry: Retry) -> Step {
        self.retry = retry;
        self
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name)
            .field("needs", &self.needs)
            .field("code", &self.code)
            .finish_non_exhaustive()
    }
}

/// Why a step could not do its work. The cause says what failed and why, the remedy what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Failure {
    /// A CSE exit code other than the step's own.
    pub code: Option<u8>,
    /// What failed, and why; no secrets.
    pub cause: String,
    /// What to check or do; empty if nothing can be said.
    pub remedy: String,
    /// Another attempt cannot help.
    pub permanent: bool,
}

impl Failure {
    /// A failure that another attempt may overcome.
    pub fn new(cause: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure {
            code: None,
            cause: cause.into(),
            remedy: remedy.into(),
            permanent: false,
        }
    }

    /// A failure that no further attempt can overcome.
    pub fn permanent(cause: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure {
            permanent: true,
            ..Failure::new(cause, remedy)
        }
    }

    /// The same failure under another CSE exit code than its step's.
    pub fn with_code(mut self, code: u8) -> Failure {
        self.code = Some(code);
        self
    }
}

/// What a step's work gets to see: the host, and how long it has.
pub struct Scene<'a> {
    /// The machine.
    pub host: &'a dyn Host,
    /// Ends waiting and commands when the run ends early.
    pub stop: &'a Stop,
    /// When this attempt must be over, on the host's own [`Host::elapsed`] clock.
    pub until: Duration,
    /// True while planning: nothing that came before has been applied, and nothing will be.
    pub planning: bool,
}

impl Scene<'_> {
    /// How much time this attempt still has.
    pub fn remaining(&self) -> Duration {
        self.until.saturating_sub(self.host.elapsed())
    }

    /// Runs a command to its end, whatever its exit status; at most as long as the attempt has.
    pub fn run(&self, command: &Command) -> Result<Finished, Failure> {
        let limited = command
            .clone()
            .at_most(command.timeout.min(self.remaining()));
        self.host.run(&limited, self.stop).map_err(Failure::from)
    }
}
