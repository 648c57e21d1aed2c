//! One run at a time.

use std::fs;
use std::path::Path;

use ::steps::engine::Failure;
use ::steps::host::Host;
use rustix::fs::{FlockOperation, flock};

use crate::paths;

/// Held for as long as a run is under way; the system lets go of it when the process ends, however it ends.
pub(super) struct Lock(#[expect(dead_code, reason = "holds the lock by being open")] fs::File);

impl Lock {
    pub(super) fn take(host: &dyn Host) -> Result<Lock, Failure> {
        let path = Path::new(paths::LOCK);
        let failed = |e: std::io::Error| Failure::file("lock", path, &e);
        let files = host.files();
        files
            .ensure_directory(Path::new(paths::VOLATILE), 0o755)
            .map_err(failed)?;
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(files.locate(path))
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Failure::permanent(
                "another run of aks-flex-node is under way on this machine",
                "wait for it to end: `aks-flex-node status` says how the node is",
            )),
            Err(error) => Err(failed(error.into())),
        }
    }
}
