//! What every run owes to those who wait, whoever does the work: nothing stale while it runs, a result when it ends.

use std::path::Path;

use ::steps::engine::{Engine, Event, Failure, Stop, Undone, Watcher};
use ::steps::host::Host;

use super::lock::{self, Lock};
use super::log::{Level, Log};
use super::paths;
use super::provision::Ended;

/// The right to be the only run, or how the one without it ends.
pub(super) fn lock_or_refuse(host: &dyn Host, log: &Log<'_>) -> Result<Lock, Ended> {
    take_lock(host).map_err(|failure| {
        log.line(Level::Error, &failure.cause, &[("remedy", &failure.remedy)]);
        Ended {
            exit: 1,
            failure: Some(failure),
        }
    })
}

fn take_lock(host: &dyn Host) -> Result<Lock, Failure> {
    let taken = lock::take(host.files());
    let taken = taken.map_err(|e| Failure::file("lock", Path::new(paths::LOCK), &e))?;
    taken.ok_or_else(|| {
        Failure::new(
            "another run of the node controller is under way",
            "follow it with `aks-node-controller status --follow`",
        )
    })
}

/// From here on nobody takes the last run's result for this one's: first the sentinel goes, then what it stands for.
pub(super) fn forget_last_result(host: &dyn Host, log: &Log<'_>) {
    let stale = [
        paths::COMPLETE,
        paths::VOLATILE_COMPLETE,
        paths::VOLATILE_RESULT,
        paths::RESULT,
    ];
    for path in stale {
        if let Err(e) = host.files().remove(Path::new(path)) {
            let attributes = [("path", path), ("error", &e.to_string())];
            log.line(
                Level::Warn,
                "the last result cannot be removed",
                &attributes,
            );
        }
    }
}

/// Writes the result, then the sentinel; to memory if the disk does not take them.
pub(super) fn leave(
    host: &dyn Host,
    log: &Log<'_>,
    json: &str,
    marker: &str,
) -> Result<(), Failure> {
    let place = |result: &str, marker: &str| {
        let files = host.files();
        let (result, marker) = (Path::new(result), Path::new(marker));
        for path in [result, marker] {
            files.ensure_directory(path.parent().unwrap_or(Path::new("/")), 0o755)?;
        }
        files.replace(result, format!("{json}\n").as_bytes(), 0o600)?;
        files.replace(marker, b"", 0o600)
    };
    let Err(error) = place(paths::RESULT, marker) else {
        return Ok(());
    };
    let attributes = [("path", paths::RESULT), ("error", &error.to_string())];
    log.line(Level::Error, "the result cannot be written", &attributes);
    place(paths::VOLATILE_RESULT, paths::VOLATILE_COMPLETE)
        .map_err(|_| Failure::file("write", Path::new(paths::RESULT), &error))
}

/// Takes back what runs have changed, and their results with it. Logs and events stay.
pub fn undo(host: &dyn Host, stop: &Stop) -> Result<Undone, Failure> {
    let _lock = take_lock(host)?;
    let engine = Engine {
        host,
        state: paths::STATE.into(),
        stop: stop.clone(),
        watcher: &Deaf,
        workers: 1,
        deadline: std::time::Duration::from_secs(900),
    };
    // A machine that is on its way back is no node, whatever the last result said.
    remove_all(host, &[paths::COMPLETE, paths::RESULT, paths::PROGRESS])?;
    let undone = engine.undo();
    if undone.failures.is_empty() {
        remove_all(host, &[paths::STATE])?;
    }
    Ok(undone)
}

fn remove_all(host: &dyn Host, paths: &[&str]) -> Result<(), Failure> {
    let remove = |path: &&str| {
        let path = Path::new(path);
        host.files()
            .remove(path)
            .map_err(|e| Failure::file("remove", path, &e))
    };
    paths.iter().try_for_each(remove)
}

/// Nobody listens to an undo: it says what it did when it is done.
struct Deaf;

impl Watcher for Deaf {
    fn event(&self, _: &Event<'_>) {}
}
