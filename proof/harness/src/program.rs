//! A client program that has run or is running, with assertions on what it printed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How long a program may take to end or to print the next expected line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that has ended. The assertions return `self`, so that they chain.
#[derive(Debug)]
pub struct Finished {
    command: String,
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Finished {
    /// Runs the command to its end, with `input` on its standard input.
    pub fn run(command: &mut Command, input: &str) -> Self {
        let shown = shown(command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        // A program that does not read its input closes the pipe early; that is its right.
        let _ = child
            .stdin
            .take()
            .expect("piped")
            .write_all(input.as_bytes());
        let output = child
            .wait_with_output()
            .expect("the child can be waited for");
        Self::from_output(shown, output)
    }

    fn from_output(command: String, output: Output) -> Self {
        Self {
            command,
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Ended with exit code 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.exits_with(0)
    }

    /// Ended with this exit code.
    #[track_caller]
    pub fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "exit code of {self}");
        self
    }

    /// Printed `text` on standard output.
    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert!(
            self.stdout.contains(text),
            "no {text:?} in stdout of {self}"
        );
        self
    }

    /// Printed nothing like `text` on standard output.
    #[track_caller]
    pub fn prints_no(self, text: &str) -> Self {
        assert!(
            !self.stdout.contains(text),
            "unexpected {text:?} in stdout of {self}"
        );
        self
    }

    /// Printed exactly `text` on standard output, apart from white space around it.
    #[track_caller]
    pub fn prints_only(self, text: &str) -> Self {
        assert_eq!(self.stdout.trim(), text.trim(), "stdout of {self}");
        self
    }

    /// Printed `text` on standard error.
    #[track_caller]
    pub fn complains(self, text: &str) -> Self {
        assert!(
            self.stderr.contains(text),
            "no {text:?} in stderr of {self}"
        );
        self
    }

    /// The columns of the first line on standard output, as kubectl aligns them.
    #[track_caller]
    pub fn has_columns(self, columns: &str) -> Self {
        let header = self.stdout.lines().next().unwrap_or_default();
        let found: Vec<&str> = header
            .split("  ")
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        let wanted: Vec<&str> = columns.split('|').collect();
        assert_eq!(found, wanted, "columns of {self}");
        self
    }

    /// The words of the first line on standard output that starts with `first_word`.
    #[track_caller]
    pub fn row(&self, first_word: &str) -> Vec<String> {
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mut rows = self.stdout.lines().map(words);
        rows.find(|row| row.first().is_some_and(|word| word == first_word))
            .unwrap_or_else(|| panic!("no row {first_word:?} in {self}"))
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {self}"))
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            code,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "`{command}` (exit code {code:?})\n--- stdout\n{stdout}\n--- stderr\n{stderr}"
        )
    }
}

/// A program that still runs; killed when dropped.
pub struct Running {
    command: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Starts it.
    pub fn spawn(command: &mut Command) -> Self {
        let shown = shown(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        let lines = lines_of(
            child.stdout.take().expect("piped"),
            child.stderr.take().expect("piped"),
        );
        Self {
            command: shown,
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// Waits for a line, of either output, that contains all of `words`.
    #[track_caller]
    pub fn wait_for_line(&mut self, words: &[&str]) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if words.iter().all(|word| line.contains(word)) {
                        return line;
                    }
                }
                Err(end) => panic!(
                    "`{}` printed no line with {words:?} ({end}); saw {:#?}",
                    self.command, self.seen
                ),
            }
        }
    }

    /// Waits for the end and gives the exit code and every line that was printed.
    #[track_caller]
    pub fn finish(mut self) -> (i32, String) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("`{}` does not end; saw {:#?}", self.command, self.seen)
                }
            }
        }
        let status = self.child.wait().expect("the child can be waited for");
        (
            status.code().unwrap_or(-1),
            std::mem::take(&mut self.seen).join("\n"),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both outputs, line by line; the channel ends when both are closed.
fn lines_of(
    stdout: impl Read + Send + 'static,
    stderr: impl Read + Send + 'static,
) -> Receiver<String> {
    let (sender, receiver) = sync_channel(10_000);
    let to_stderr = sender.clone();
    let forward = |output: Box<dyn Read + Send>, sender: std::sync::mpsc::SyncSender<String>| {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        })
    };
    forward(Box::new(stdout), sender);
    forward(Box::new(stderr), to_stderr);
    receiver
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
