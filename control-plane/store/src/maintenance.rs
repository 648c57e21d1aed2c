//! Restoring and checking the embedded engine's files, without a running store.
//!
//! Backups are made by the running store: [`Embedded::backup`](crate::Embedded::backup).

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use crate::embedded::Backup;
use crate::embedded::disk::RealDisk;
use crate::embedded::manifest::{self, Manifest};
use crate::embedded::recovery::{self, Recovered};
use crate::image::{self, Image};
use crate::{Error, Result, Revision};

/// What a check found in a sound data directory or backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read; 0 if nothing was ever compacted.
    pub compacted: Revision,
    /// Keys that exist at the newest revision.
    pub keys: usize,
    /// Bytes of their keys and values.
    pub live_bytes: usize,
    /// How many segments the log has; 0 for a backup.
    pub segments: usize,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// A write at the end of the log that was cut off, as a crash leaves it. Opening the store
    /// removes it; it was never acknowledged. A store in use may show one for a moment.
    pub torn_tail: Option<String>,
}

/// Makes a data directory of a backup: the same keys, values and revisions, no history. The whole
/// backup is checked before anything is written.
///
/// # Errors
/// If the directory holds anything, or the backup is damaged ([`Error::Corrupt`]).
pub fn restore(backup: impl AsRef<Path>, dir: impl AsRef<Path>) -> Result<Backup> {
    let dir = dir.as_ref();
    let Image {
        revision, versions, ..
    } = image::read(backup.as_ref())?;
    refuse_full(dir)?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::file("creating", dir, &error))?;
    let versions: Vec<_> = versions.into_iter().map(Arc::new).collect();
    let path = recovery::snapshot_path(dir, revision);
    let bytes = image::write(&path, revision, &versions)
        .map_err(|error| Error::file("writing", &path, &error))?;
    let manifest = Manifest {
        segment: 0,
        revision,
    };
    manifest
        .write(dir, &RealDisk)
        .map_err(|error| Error::file("writing", &manifest::path(dir), &error))?;
    Ok(Backup {
        revision,
        keys: versions.len(),
        bytes,
    })
}

fn refuse_full(dir: &Path) -> Result<()> {
    let full = match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
        Err(error) => return Err(Error::file("reading", dir, &error)),
    };
    if full {
        let error = std::io::Error::other(
            "the directory is not empty; restore into a new one, or move the old data away",
        );
        return Err(Error::file("restoring into", dir, &error));
    }
    Ok(())
}

/// Reads a data directory or a backup file completely, without changing it.
///
/// # Errors
/// [`Error::Corrupt`] with file and offset if anything is damaged.
pub fn check(path: impl AsRef<Path>) -> Result<Report> {
    let path = path.as_ref();
    let about = std::fs::metadata(path).map_err(|error| image::unreadable(path, &error))?;
    if about.is_dir() {
        recovery::recover(path).map(|recovered| Report::of_directory(&recovered))
    } else {
        image::read(path).map(|image| Report::of_image(&image))
    }
}

impl Report {
    fn of_directory(recovered: &Recovered) -> Self {
        let sizes = recovered.index.sizes();
        Self {
            revision: recovered.index.revision(),
            compacted: recovered.index.compacted(),
            keys: sizes.live_keys,
            live_bytes: sizes.live_bytes,
            segments: recovered.files.segments.len(),
            disk_bytes: recovered.files.bytes(),
            torn_tail: recovered.torn.clone(),
        }
    }

    fn of_image(image: &Image) -> Self {
        Self {
            revision: image.revision,
            compacted: image.revision,
            keys: image.versions.len(),
            live_bytes: image.versions.iter().map(|v| v.bytes()).sum(),
            segments: 0,
            disk_bytes: image.bytes,
            torn_tail: None,
        }
    }
}
