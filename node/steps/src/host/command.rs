//! Commands as data, and how they end.

use std::time::Duration;

/// A program to run, without a shell. Arguments are logged: secrets go through `stdin`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Command {
    /// A name on the path, or an absolute path.
    pub program: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Added to the (small, fixed) environment.
    #[serde(default)]
    pub environment: Vec<(String, String)>,
    /// What it reads; never logged and never journaled.
    #[serde(skip)]
    pub stdin: Secret,
    /// How long it may take.
    pub timeout: Duration,
}

/// Bytes that no debug output shows.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

/// A command that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Finished {
    /// Exit status; 128 + signal number for one that was killed.
    pub status: i32,
    /// What it printed: the first 1 MiB.
    pub stdout: Vec<u8>,
    /// What it complained about: the first 1 MiB.
    pub stderr: Vec<u8>,
}

/// A command that did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such program.
    #[error("`{program}` is not installed")]
    Missing {
        /// What was called.
        program: String,
    },
    /// It could not be started or followed.
    #[error("`{program}` cannot be run: {source}")]
    Io {
        /// What was called.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It took too long and was stopped.
    #[error("`{command}` did not finish within {} s and was stopped", limit.as_secs())]
    TimedOut {
        /// Which.
        command: String,
        /// What it was given.
        limit: Duration,
    },
    /// The run was cancelled, and the command with it.
    #[error("`{command}` was stopped because the run was cancelled")]
    Cancelled {
        /// Which.
        command: String,
    },
}

impl Command {
    /// A command that may take a minute.
    pub fn new(program: &str, arguments: &[&str]) -> Command {
        Command {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            environment: Vec::new(),
            stdin: Secret::default(),
            timeout: Duration::from_secs(60),
        }
    }

    /// How long it may take.
    pub fn at_most(mut self, timeout: Duration) -> Command {
        self.timeout = timeout;
        self
    }

    /// What it reads.
    pub fn reading(mut self, stdin: impl Into<Vec<u8>>) -> Command {
        self.stdin = Secret(stdin.into());
        self
    }

    /// One more variable of its environment.
    pub fn with_variable(mut self, name: &str, value: &str) -> Command {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Enough of it to know it by, on one line: scripts are long.
    pub fn summary(&self) -> String {
        let line = self.line();
        let first = line.lines().next().unwrap_or_default();
        let short: String = first.chars().take(120).collect();
        match short.len() < line.len() {
            true => format!("{short} …"),
            false => short,
        }
    }

    /// As a person would type it.
    pub fn line(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.arguments);
        words.map(|w| quoted(w)).collect::<Vec<_>>().join(" ")
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

impl Finished {
    /// A command that succeeded and printed this.
    pub fn ok(stdout: impl Into<Vec<u8>>) -> Finished {
        Finished {
            stdout: stdout.into(),
            ..Finished::default()
        }
    }

    /// A command that failed and complained so.
    pub fn failed(status: i32, stderr: impl Into<Vec<u8>>) -> Finished {
        Finished {
            status,
            stderr: stderr.into(),
            ..Finished::default()
        }
    }

    /// Exit status 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }

    /// Standard output as text, without surrounding white space.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// The last line of its complaint, or of its output: the one that mostly says why.
    pub fn last_words(&self) -> String {
        let last = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().map(str::trim).rfind(|l| !l.is_empty());
            line.map(str::to_owned)
        };
        last(&self.stderr)
            .or_else(|| last(&self.stdout))
            .unwrap_or_default()
    }
}
