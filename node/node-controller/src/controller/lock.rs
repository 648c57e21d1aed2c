//! One run at a time, and a way to ask whether one is under way.

use std::fs;
use std::io;
use std::path::Path;

use ::steps::host::Files;
use rustix::fs::{FlockOperation, flock};

use super::paths;

/// Held for as long as a run is under way; the system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "holds the lock by being open")] fs::File);

/// Takes the lock; `None` if another run has it.
pub(super) fn take(files: &Files) -> io::Result<Option<Lock>> {
    files.ensure_directory(Path::new(paths::VOLATILE), 0o755)?;
    let file = open(files)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether a run is under way.
pub(super) fn held(files: &Files) -> bool {
    let Ok(file) = fs::File::open(files.locate(Path::new(paths::LOCK))) else {
        return false;
    };
    // Shared, so that two who ask do not take each other for a run.
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

fn open(files: &Files) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(files.locate(Path::new(paths::LOCK)))
}
