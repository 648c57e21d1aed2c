//! Checkpoints: replacing old segments by a snapshot, beside the running writer.
//!
//! The snapshot holds the state at the compaction revision, never a later one, so that the segments
//! behind it still hold the whole history that watches may ask for after a restart.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::recovery::{self, snapshot_path};
use super::{Shared, read};
use crate::{Error, Revision, image};

/// More segments than this are replaced even if they are small.
const MANY_SEGMENTS: usize = 64;

/// Starts checkpoints, one at a time.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    running: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// A checkpointer for a store.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            running: None,
        }
    }

    /// Starts a checkpoint if the segments that one would replace have grown past the live data.
    pub(crate) fn consider(&mut self, compacted: Revision) {
        if self.running.as_ref().is_some_and(|run| !run.is_finished())
            || !self.worthwhile(compacted)
        {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let spawned = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || checkpoint(&shared));
        match spawned {
            Ok(handle) => self.running = Some(handle),
            Err(error) => tracing::warn!(%error, "could not start a checkpoint"),
        }
    }

    fn worthwhile(&self, compacted: Revision) -> bool {
        let live = self.shared.read().sizes().live_bytes as u64;
        let files = self.shared.files();
        let covered = &files.segments[..files.covered_by(compacted)];
        let bytes: u64 = covered.iter().map(|segment| segment.bytes).sum();
        bytes > live.max(self.shared.options.checkpoint_bytes) || covered.len() > MANY_SEGMENTS
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Some(run) = self.running.take()
            && run.join().is_err()
        {
            tracing::error!("a checkpoint panicked");
        }
    }
}

fn checkpoint(shared: &Shared) {
    match write_snapshot(shared) {
        Ok(revision) => {
            let dropped = drop_covered(shared, revision);
            tracing::info!(revision, segments = dropped, "checkpoint written");
        }
        Err(error) => tracing::warn!(%error, "could not write a checkpoint; trying again later"),
    }
}

fn write_snapshot(shared: &Shared) -> io::Result<Revision> {
    let (revision, versions) = read::snapshot(shared, |index| index.compacted());
    let bytes = image::write(&snapshot_path(&shared.dir, revision), revision, &versions)?;
    shared.files().snapshot_bytes = bytes;
    Ok(revision)
}

/// Removes what the snapshot replaces: oldest first, so that a crash leaves no gap.
fn drop_covered(shared: &Shared, revision: Revision) -> usize {
    let mut files = shared.files();
    let covered = files.covered_by(revision);
    let segments: Vec<PathBuf> = files.segments.drain(..covered).map(|s| s.path).collect();
    drop(files);
    let removed = segments.len();
    for path in segments
        .into_iter()
        .chain(older_snapshots(shared, revision))
    {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "could not remove a file that is no longer needed");
        }
    }
    removed
}

fn older_snapshots(shared: &Shared, revision: Revision) -> Vec<PathBuf> {
    let listed: Result<_, Error> = recovery::list(&shared.dir);
    let snapshots = listed.map(|listing| listing.snapshots).unwrap_or_default();
    let older = snapshots.into_iter().filter(|&(of, _)| of < revision);
    older.map(|(_, path)| path).collect()
}
