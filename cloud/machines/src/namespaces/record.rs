//! What is known about a machine on disk: enough to find everything it is made of after any crash.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::disks::{Plug, Plugged, Wanted};
use crate::{Disk, Error, Spec};

/// The directory of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

/// What runs, or ran when its supervisor was killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The control group: made anew for each start, named before it is made.
    pub(crate) group: Option<String>,
    /// Process 1, as this host counts.
    pub(crate) init: Option<Process>,
    /// The disks that its `/dev` shows.
    #[serde(default)]
    pub(crate) disks: Vec<Plug>,
}

/// A process that is not mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// In clock ticks since the host started.
    pub(crate) started: u64,
}

impl Home {
    pub(crate) fn at(path: PathBuf) -> Home {
        Home(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn plan(&self) -> Result<Spec, Error> {
        read_json(&self.file("plan.json"))
    }

    pub(crate) fn write_plan(&self, spec: &Spec) -> Result<(), Error> {
        write_json(&self.file("plan.json"), spec)
    }

    /// What runs; nothing when nothing was ever recorded.
    pub(crate) fn record(&self) -> Result<Record, Error> {
        read_if_there(&self.file("record.json"))
    }

    /// Which disks the machine is to have.
    pub(crate) fn disks(&self) -> Result<Wanted, Error> {
        read_if_there(&self.file("disks.json"))
    }

    /// Changes that; gives the count of changes.
    pub(crate) fn write_disks(&self, disks: &[Disk]) -> Result<u64, Error> {
        let before = self.disks()?;
        // What went wrong is tried again.
        if before.disks == disks && self.plugged()?.trouble.is_none() {
            return Ok(before.count);
        }
        let (count, disks) = (before.count + 1, disks.to_vec());
        write_json(&self.file("disks.json"), &Wanted { count, disks })?;
        Ok(count)
    }

    /// How far a supervisor has come with that.
    pub(crate) fn plugged(&self) -> Result<Plugged, Error> {
        read_if_there(&self.file("plugged.json"))
    }

    pub(crate) fn write_plugged(&self, plugged: &Plugged) -> Result<(), Error> {
        write_json(&self.file("plugged.json"), plugged)
    }

    pub(crate) fn write_record(&self, record: &Record) -> Result<(), Error> {
        write_json(&self.file("record.json"), record)
    }

    /// Takes the supervisor's lock; nothing when a living supervisor has it.
    pub(crate) fn lock(&self) -> Result<Option<fs::File>, Error> {
        let path = self.file("lock");
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::file("open", &path))?;
        try_lock(file, &path, FlockOperation::NonBlockingLockExclusive)
    }

    /// Whether a living supervisor has the lock. Any number may ask at once, and asking leaves nothing: the machine may
    /// just be removed.
    pub(crate) fn is_watched(&self) -> Result<bool, Error> {
        let path = self.file("lock");
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(Error::file("open", &path))?,
        };
        let free = try_lock(file, &path, FlockOperation::NonBlockingLockShared)?;
        Ok(free.is_none())
    }
}

fn try_lock(file: fs::File, path: &Path, how: FlockOperation) -> Result<Option<fs::File>, Error> {
    match rustix::fs::flock(&file, how) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(Error::file("lock", path)(error)),
    }
}

impl Process {
    /// The process with this number, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, started) = state_and_start(&stat)?;
        Some(Process { pid, started })
    }

    /// Whether it still runs; one that only waits to be buried does not.
    pub(crate) fn is_alive(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        state_and_start(&stat)
            .is_some_and(|(state, started)| started == self.started && !matches!(state, 'Z' | 'X'))
    }
}

// The name in parentheses may itself have spaces and parentheses, so fields are counted from its end.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // The third field is the state, the 22nd the start time.
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

fn read_if_there<T: DeserializeOwned + Default>(path: &Path) -> Result<T, Error> {
    match path.exists() {
        true => read_json(path),
        false => Ok(T::default()),
    }
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = fs::read(path).map_err(Error::file("read", path))?;
    serde_json::from_slice(&text).map_err(Error::file("understand", path))
}

/// Writes a file that only root may read, wholly or not at all.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(value).map_err(Error::file("write", path))?;
    let fresh = path.with_extension("new");
    let write = || {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let own = Process::of(std::process::id()).expect("this process runs");
        assert!(own.is_alive());
        let other = Process {
            started: own.started + 1,
            ..own
        };
        assert!(!other.is_alive());
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(state_and_start(stat), Some(('S', 4711)));
        assert_eq!(state_and_start("nonsense"), None);
    }
}
