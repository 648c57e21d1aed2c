//! The log: one JSON object per line with `time`, `level`, `msg` and attributes, in upstream's file and to a second place.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ::steps::host::Host;
use serde_json::Value;

use super::paths;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Info,
    /// Odd.
    Warn,
    /// Wrong.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        }
    }
}

/// Writes lines to the log file of the host and to `echo` (standard error, usually). A log that cannot be written is no
/// reason to fail.
pub struct Log<'a> {
    host: &'a dyn Host,
    echo: Mutex<Box<dyn Write + Send>>,
}

impl<'a> Log<'a> {
    /// A log that also goes to `echo`.
    pub fn new(host: &'a dyn Host, echo: impl Write + Send + 'static) -> Log<'a> {
        Log {
            host,
            echo: Mutex::new(Box::new(echo)),
        }
    }

    /// One line.
    pub fn line(&self, level: Level, message: &str, attributes: &[(&str, &str)]) {
        let now = self.host.now().to_string();
        let head = [
            ("time", now.as_str()),
            ("level", level.name()),
            ("msg", message),
        ];
        // By hand, because readers know the order of the first three.
        let pair =
            |(key, value): &(&str, &str)| format!("{}:{}", Value::from(*key), Value::from(*value));
        let pairs: Vec<_> = head.iter().chain(attributes).map(pair).collect();
        let text = format!("{{{}}}\n", pairs.join(","));
        append(self.host, Path::new(paths::LOG), &text);
        let mut echo = self.echo.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = echo.write_all(text.as_bytes());
    }
}

/// Adds to a log file, whose directory is made if need be; what cannot be written is lost.
pub(super) fn append(host: &dyn Host, path: &Path, text: &str) {
    let files = host.files();
    let parent = path.parent().unwrap_or(Path::new("/"));
    let _ = files
        .ensure_directory(parent, 0o755)
        .and_then(|()| files.append(path, text.as_bytes(), 0o644, false));
}
