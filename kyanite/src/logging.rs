//! Structured logs: on standard error, or in a file that does not grow without end.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::{LogFormat, Logging};
use crate::exit::{Code, Failure, Result};

/// A log of this size becomes the old one; there is one of these.
const MOST: u64 = 16 << 20;

/// Starts logging as the flags say.
pub(crate) fn start(flags: &Logging) -> Result<()> {
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    start_with(flags, std::io::stderr, is_terminal)
}

/// The same, into a file of a server that nobody looks at.
pub(crate) fn start_in(flags: &Logging, path: &Path) -> Result<()> {
    let log = LogFile::open(path, MOST).map_err(|e| Failure::file("open", path, &e))?;
    start_with(flags, Arc::new(log), false)
}

fn start_with<W>(flags: &Logging, writer: W, ansi: bool) -> Result<()>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&flags.log_level).map_err(|e| {
        Failure::new(
            Code::Usage,
            format!("`{}` is not a log filter: {e}", flags.log_level),
        )
        .hint("use a level such as `info`, or `info,apiserver=debug`")
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    let started = match flags.logging_format {
        LogFormat::Text => builder.with_ansi(ansi).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::new(Code::Failure, format!("logging cannot start: {e}")))
}

/// A log that is put aside when it has grown to `most` bytes.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    most: u64,
    open: Mutex<(File, u64)>,
}

impl LogFile {
    fn open(path: &Path, most: u64) -> std::io::Result<LogFile> {
        Ok(LogFile {
            path: path.to_owned(),
            most,
            open: Mutex::new(opened(path)?),
        })
    }
}

fn opened(path: &Path) -> std::io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.1 >= self.most {
            std::fs::rename(&self.path, self.path.with_extension("1"))?;
            *open = opened(&self.path)?;
        }
        let written = open.0.write(line)?;
        open.1 += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_log_never_grows_beyond_twice_its_size_and_the_newest_lines_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for round in 0..2 {
            let log = LogFile::open(&path, 1_000).unwrap();
            for line in 0..500 {
                // Events come whole, one at a write.
                let event = format!("round {round} line {line}\n");
                (&log).write_all(event.as_bytes()).unwrap();
            }
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let (old, new) = (read("log.1"), read("log"));
        assert!(old.len() < 1_100 && new.len() < 1_100);
        assert!(new.ends_with("round 1 line 499\n"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        let lines: Vec<&str> = old.lines().chain(new.lines()).collect();
        assert!(lines.iter().all(|line| line.starts_with("round 1 line ")));
    }
}
