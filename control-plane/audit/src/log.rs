//! The log: lines in a file that is put aside when it is full.
//!
//! Old files are named as upstream's (`audit-2026-01-02T03-04-05.000.log`), so that whatever collects those collects
//! these.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::batch::{Boxed, Deliver};
use crate::event::Event;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object each.
    Json,
    /// For people.
    Legacy,
}

/// Where lines go, and for how long they stay there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// The file; nothing means standard output.
    pub path: Option<PathBuf>,
    /// How lines are written.
    pub format: Format,
    /// Old files go after so many days; never where this is zero.
    pub max_age_days: u32,
    /// So many old files stay; all where this is zero.
    pub max_backups: usize,
    /// A file is put aside before it has more than so many megabytes; never where this is zero.
    pub max_megabytes: u64,
    /// Whether old files are compressed.
    pub compress: bool,
}

/// A log that is open.
#[derive(Debug)]
pub struct Log {
    settings: LogFile,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    file: Option<File>,
    size: u64,
}

impl Log {
    /// Opens the file, so that one that cannot be written is known at the start.
    pub fn open(settings: LogFile) -> io::Result<Log> {
        let log = Log {
            settings,
            open: Mutex::default(),
        };
        if let Some(path) = &log.settings.path {
            let open = open(path)?;
            *log.open.lock().unwrap_or_else(PoisonError::into_inner) = open;
        }
        Ok(log)
    }

    /// Writes records, each as a line, all with one call.
    pub fn write(&self, events: &[Arc<Event>]) -> io::Result<()> {
        let lines = events.iter().map(|event| match self.settings.format {
            Format::Json => event.json(),
            Format::Legacy => event.legacy(),
        });
        let lines = lines.collect::<Vec<_>>().concat();
        let Some(path) = &self.settings.path else {
            return io::stdout().lock().write_all(&lines);
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.make_room(path, &mut open, lines.len() as u64)?;
        let Some(file) = &mut open.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let written = file.write_all(&lines);
        match written {
            Ok(()) => open.size += lines.len() as u64,
            // The next record finds the file anew.
            Err(_) => *open = Open::default(),
        }
        written
    }

    fn make_room(&self, path: &Path, held: &mut Open, more: u64) -> io::Result<()> {
        if held.file.is_none() {
            *held = open(path)?;
        }
        let most = self.settings.max_megabytes << 20;
        if most == 0 || held.size == 0 || held.size + more <= most {
            return Ok(());
        }
        *held = Open::default();
        let aside = free(path, Timestamp::now());
        fs::rename(path, &aside)?;
        *held = open(path)?;
        self.tidy(path, &aside);
        Ok(())
    }

    // What goes wrong here costs room on the disk, and no record.
    fn tidy(&self, path: &Path, newest: &Path) {
        if self.settings.compress
            && let Err(error) = compress(newest)
        {
            tracing::warn!(file = %newest.display(), %error, "an old audit log stays uncompressed");
        }
        let age = Duration::from_secs(u64::from(self.settings.max_age_days) * 86_400);
        for old in outdated(
            &backups(path),
            self.settings.max_backups,
            age,
            SystemTime::now(),
        ) {
            if let Err(error) = fs::remove_file(&old) {
                tracing::warn!(file = %old.display(), %error, "an old audit log cannot be removed");
            }
        }
    }
}

fn open(path: &Path) -> io::Result<Open> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(path)?;
    let size = file.metadata()?.len();
    Ok(Open {
        file: Some(file),
        size,
    })
}

fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map_or(String::new(), |p| p.to_string_lossy().into_owned())
    };
    let extension = match text(path.extension()) {
        empty if empty.is_empty() => empty,
        extension => format!(".{extension}"),
    };
    (format!("{}-", text(path.file_stem())), extension)
}

// The first name from a moment on that no file has: two files can be full within a millisecond.
fn free(path: &Path, mut at: Timestamp) -> PathBuf {
    loop {
        let aside = aside(path, at);
        let mut compressed = aside.clone().into_os_string();
        compressed.push(".gz");
        if !aside.exists() && !Path::new(&compressed).exists() {
            return aside;
        }
        at += jiff::SignedDuration::from_millis(1);
    }
}

// The name of a file that is put aside.
fn aside(path: &Path, at: Timestamp) -> PathBuf {
    let (stem, extension) = parts(path);
    path.with_file_name(format!(
        "{stem}{}{extension}",
        at.strftime("%Y-%m-%dT%H-%M-%S%.3f")
    ))
}

/// The files that were put aside, the newest first, with the time of their last change.
fn backups(path: &Path) -> Vec<(PathBuf, SystemTime)> {
    let (stem, extension) = parts(path);
    let Some(entries) = path.parent().and_then(|parent| fs::read_dir(parent).ok()) else {
        return Vec::new();
    };
    let mut found: Vec<(PathBuf, SystemTime)> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = name.strip_suffix(".gz").unwrap_or(&name);
            let middle = name
                .strip_prefix(&stem)
                .and_then(|rest| rest.strip_suffix(&extension));
            // As long as a time is, and beginning with a year.
            middle.is_some_and(|at| at.len() == 23 && at.starts_with(|c: char| c.is_ascii_digit()))
        })
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.modified().ok()?)))
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0));
    found
}

fn outdated(
    backups: &[(PathBuf, SystemTime)],
    most: usize,
    age: Duration,
    now: SystemTime,
) -> Vec<PathBuf> {
    let too_many = |index: usize| most > 0 && index >= most;
    let too_old =
        |at: SystemTime| !age.is_zero() && now.duration_since(at).is_ok_and(|past| past > age);
    let rows = backups.iter().enumerate();
    rows.filter(|(index, (_, at))| too_many(*index) || too_old(*at))
        .map(|(_, (path, _))| path.clone())
        .collect()
}

fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let mut options = OpenOptions::new();
    let target = options.write(true).create(true).truncate(true).mode(0o600);
    let out = target.open(&name)?;
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::remove_file(path)
}

impl Deliver for Log {
    fn name(&self) -> &'static str {
        "log"
    }

    fn deliver<'a>(&'a self, events: &'a [Arc<Event>]) -> Boxed<'a> {
        Box::pin(async move { self.write(events).map_err(|error| error.to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Level;

    fn settings(path: PathBuf) -> LogFile {
        LogFile {
            path: Some(path),
            format: Format::Json,
            max_age_days: 0,
            max_backups: 0,
            max_megabytes: 0,
            compress: false,
        }
    }

    fn event(filler: usize) -> Arc<Event> {
        let mut event = Event::received(Level::Metadata, "id".into(), Timestamp::UNIX_EPOCH);
        event.request_uri = "x".repeat(filler);
        Arc::new(event)
    }

    #[test]
    fn a_full_file_is_put_aside_and_no_line_is_lost() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/audit.log");
        let log = Log::open(LogFile {
            max_megabytes: 1,
            compress: true,
            ..settings(path.clone())
        });
        let log = log.expect("opens");
        for _ in 0..5 {
            log.write(&[event(400 << 10)]).expect("written");
        }
        let olds = backups(&path);
        assert_eq!(olds.len(), 2, "{olds:?}");
        let lines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
        let mut found = lines(&fs::read(&path).expect("there"));
        for (old, _) in &olds {
            assert!(old.to_string_lossy().ends_with(".log.gz"));
            let mut text = Vec::new();
            let mut decoder = flate2::read::GzDecoder::new(File::open(old).expect("there"));
            io::Read::read_to_end(&mut decoder, &mut text).expect("gzip");
            found += lines(&text);
        }
        assert_eq!(found, 5);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(&path).expect("there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn old_files_go_by_number_and_by_age() {
        let now = SystemTime::now();
        let day = Duration::from_secs(86_400);
        let rows: Vec<(PathBuf, SystemTime)> = (0..4)
            .map(|n| (PathBuf::from(format!("{n}")), now - day * n))
            .collect();
        let gone = |most, days: u32| outdated(&rows, most, day * days, now).len();
        assert_eq!(gone(0, 0), 0);
        assert_eq!(gone(3, 0), 1);
        assert_eq!(gone(0, 1), 2);
        assert_eq!(gone(1, 1), 3);
    }
}
