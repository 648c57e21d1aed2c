//! How full a file system is.

use std::path::Path;

/// A file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes that anybody may still write.
    pub available: u64,
    /// Bytes that are taken.
    pub used: u64,
    /// Files that there may be.
    pub inodes: u64,
    /// Files that there may still be.
    pub inodes_free: u64,
}

impl Space {
    /// The file system that holds a path.
    pub fn of(path: &Path) -> Option<Space> {
        let found = rustix::fs::statvfs(path).ok()?;
        Some(Space {
            capacity: found.f_blocks * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
            used: (found.f_blocks - found.f_bfree) * found.f_frsize,
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        })
    }
}
