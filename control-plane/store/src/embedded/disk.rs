//! The few file operations the log makes, behind a trait so that tests can make them fail.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Where segments are created and opened.
pub(crate) trait Disk: Send + Sync + Debug {
    /// Creates a file that must not exist yet.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Makes the creation, renaming and removal of files in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// One open segment.
pub(crate) trait DiskFile: Send + Debug {
    /// Reserves space up to `len`; the file has at least that length afterwards, filled with zeros.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Writes all bytes at an offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns when everything written is on the disk.
    fn sync(&self) -> io::Result<()>;
    /// Sets the length.
    fn truncate(&self, len: u64) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().write(true).open(path)?))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, len) {
            // Some file systems cannot reserve; a longer file serves as well, only slower.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.set_len(len),
            other => other.map_err(io::Error::from),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}
