//! How far the log reaches at least: the one file that notices when the end of the log is gone.
//!
//! Segments follow each other without a gap, so one that is lost in the middle is missed by its neighbour. Nothing
//! follows the last one. The manifest names it, and a revision that was reached:
//!
//! ```text
//! magic 8 bytes | first sequence of the last segment u64 (0: none) | revision u64 | crc u32
//! ```
//!
//! It is written when a segment is begun (after the segment's header, before its first frame) and when the store is
//! closed, and it replaces its predecessor whole. Both numbers are lower bounds: the log may have gone on since, it may not
//! have become shorter. A directory without a manifest is an older one, and gets it when it is opened.

use std::io;
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::frame;
use crate::{Error, Result, Revision, image};

const MAGIC: &[u8; 8] = b"KyanMan\x01";
const LENGTH: usize = 28;

/// What the log holds at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The first sequence number of a segment that was begun; 0 if none was.
    pub(crate) segment: u64,
    /// A revision that was reached.
    pub(crate) revision: Revision,
}

/// Where the manifest lies.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("manifest")
}

impl Manifest {
    /// Reads a directory's manifest; `None` if it has none.
    pub(crate) fn read(dir: &Path) -> Result<Option<Self>> {
        let path = path(dir);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(image::unreadable(&path, &error)),
        };
        let damaged = || Error::Corrupt {
            file: path.display().to_string(),
            cause: "the manifest has a wrong checksum (offset 0)".to_owned(),
        };
        Self::decode(&bytes).map(Some).ok_or_else(damaged)
    }

    /// Puts the manifest in the place of its predecessor; it is on disk when this returns. After an error either of them is.
    pub(crate) fn write(&self, dir: &Path, disk: &dyn Disk) -> io::Result<()> {
        let (path, temporary) = (path(dir), dir.join("manifest.tmp"));
        match std::fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(&temporary)?;
        file.write_at(&self.encode(), 0)?;
        file.sync()?;
        std::fs::rename(&temporary, &path)?;
        disk.sync_dir(dir)
    }

    fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[0..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.revision.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.len() == LENGTH
            && &bytes[..8] == MAGIC
            && frame::u32_at(bytes, 24) == crc32fast::hash(&bytes[..24]);
        whole.then(|| Self {
            segment: frame::u64_at(bytes, 8),
            revision: frame::u64_at(bytes, 16),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::disk::RealDisk;
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_refused_when_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), None);
        let manifest = Manifest {
            segment: 7,
            revision: 1 << 40,
        };
        manifest.write(dir.path(), &RealDisk).unwrap();
        manifest.write(dir.path(), &RealDisk).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), Some(manifest));
        let sound = std::fs::read(path(dir.path())).unwrap();
        for at in 0..sound.len() {
            let mut changed = sound.clone();
            changed[at] ^= 4;
            std::fs::write(path(dir.path()), changed).unwrap();
            let refused = Manifest::read(dir.path()).unwrap_err();
            assert!(refused.to_string().contains("manifest"), "{refused}");
        }
    }
}
