//! The writing end of the log: appends frames, starts segments, and survives a full disk.
//!
//! After a failed write or sync nobody knows what the file holds (the kernel may have dropped the
//! pages and reported the failure once), so the segment is given up: it is cut back to the last
//! frame known to be on disk, and the next attempt starts a new segment. The new segment repeats
//! the sequence number of the failed frame, which tells recovery to ignore that frame should it
//! have reached the disk after all.
//!
//! A segment that is begun is noted in the manifest before it gets its first frame, so that it is missed when it is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::{Disk, DiskFile};
use super::frame::Builder;
use super::manifest::{self, Manifest};
use super::segment::{self, Header};
use crate::Revision;

/// A segment on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    pub(crate) first_sequence: u64,
    pub(crate) first_revision: Revision,
    /// Its length, reserved space included.
    pub(crate) bytes: u64,
}

/// The files that make up the store, oldest segment first; the last segment is being written.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) segments: Vec<SegmentFile>,
    pub(crate) snapshot_bytes: u64,
}

impl Files {
    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.snapshot_bytes + self.segments.iter().map(|s| s.bytes).sum::<u64>()
    }

    /// How many segments from the front hold nothing but changes up to a revision. Never the last.
    pub(crate) fn covered_by(&self, revision: Revision) -> usize {
        let nexts = self.segments.iter().skip(1);
        nexts
            .take_while(|next| next.first_revision <= revision + 1)
            .count()
    }
}

/// The files, shared with the checkpoint thread and with whoever asks for the size.
pub(crate) type SharedFiles = Arc<Mutex<Files>>;

/// How the log lays out its files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// A segment is followed by a new one when the next frame would take it past this.
    pub(crate) segment_bytes: u64,
    /// Space is reserved in steps of this size.
    pub(crate) reserve_bytes: u64,
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn DiskFile>,
    pub(crate) nonce: u32,
    /// Where the next frame goes; everything before is on disk.
    pub(crate) offset: u64,
    /// The file's length.
    pub(crate) reserved: u64,
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    layout: Layout,
    files: SharedFiles,
    next_sequence: u64,
    /// `None` before the first write and after a failure.
    active: Option<Active>,
}

/// A failed step and the file it concerned.
#[derive(Debug)]
pub(crate) struct Failure {
    doing: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { doing, path, error } = self;
        let dir = path.parent().unwrap_or(path);
        write!(f, "{doing} {} failed: {error}; ", path.display())?;
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                write!(f, "free space in {}", dir.display())?;
            }
            _ => write!(f, "check the disk that holds {}", dir.display())?,
        }
        write!(f, ", writes then resume by themselves")
    }
}

/// Says what was being done to which file when an operation failed.
fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| Failure { doing, path, error }
}

impl Log {
    /// A log that continues behind what recovery found.
    pub(crate) fn new(
        dir: &Path,
        disk: Arc<dyn Disk>,
        layout: Layout,
        files: SharedFiles,
        next_sequence: u64,
        active: Option<Active>,
    ) -> Self {
        Self {
            dir: dir.to_owned(),
            disk,
            layout,
            files,
            next_sequence,
            active,
        }
    }

    /// Writes a frame and waits until it is on disk. After an error nothing of it is in the log.
    pub(crate) fn append(&mut self, frame: &mut Builder) -> Result<usize, Failure> {
        self.make_room(frame)?;
        let active = self.active.as_mut().expect("make_room leaves a segment");
        match active.write(frame, self.next_sequence) {
            Ok(written) => {
                self.next_sequence += 1;
                Ok(written)
            }
            Err(failure) => {
                self.give_up();
                Err(failure)
            }
        }
    }

    /// Starts a segment if there is none, so that a log that failed becomes writable again.
    pub(crate) fn probe(&mut self, next_revision: Revision) -> Result<(), Failure> {
        match self.active {
            Some(_) => Ok(()),
            None => self.start_segment(next_revision, 0),
        }
    }

    /// Ends the log in order: the reserved space is given back, and the manifest says how far it got.
    pub(crate) fn close(&mut self, revision: Revision) {
        self.end_segment();
        self.note(revision);
    }

    /// Notes how far the log has got. A manifest that cannot be written now stays as it is: what it says remains true.
    pub(crate) fn note(&self, revision: Revision) {
        let manifest = self.manifest(revision);
        if let Err(error) = manifest.write(&self.dir, self.disk.as_ref()) {
            tracing::warn!(%error, "could not note how far the log has got");
        }
    }

    /// The manifest for the segments there are.
    fn manifest(&self, revision: Revision) -> Manifest {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let last = files.segments.last();
        Manifest {
            segment: last.map_or(0, |segment| segment.first_sequence),
            revision,
        }
    }

    fn end_segment(&mut self) {
        if let Some(active) = self.active.take() {
            self.seal(&active);
        }
    }

    fn make_room(&mut self, frame: &Builder) -> Result<(), Failure> {
        let len = frame.finished_len() as u64;
        if let Some(active) = &self.active {
            let full = active.offset + len > self.layout.segment_bytes;
            if full && active.offset > segment::HEADER as u64 {
                self.end_segment();
            }
        }
        let Some(active) = &mut self.active else {
            return self.start_segment(frame.first_revision(), len);
        };
        let needed = active.offset + len;
        if needed <= active.reserved {
            return Ok(());
        }
        let reserved = reserve(active.file.as_ref(), needed, self.layout.reserve_bytes)
            .map_err(failed("extending", &active.path));
        match reserved {
            Ok(reserved) => {
                active.reserved = reserved;
                self.note_length(reserved);
                Ok(())
            }
            Err(failure) => {
                self.give_up();
                Err(failure)
            }
        }
    }

    fn start_segment(&mut self, first_revision: Revision, room: u64) -> Result<(), Failure> {
        let header = Header::new(self.next_sequence, first_revision);
        let path = segment::path(&self.dir, header.first_sequence);
        self.clear_failed(&path, first_revision)?;
        let active = self.create_segment(&path, &header, room).inspect_err(|_| {
            // What is left of the attempt would only be in the way of the next one.
            let _ = std::fs::remove_file(&path);
        })?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.segments.push(SegmentFile {
            path,
            first_sequence: header.first_sequence,
            first_revision,
            bytes: active.reserved,
        });
        drop(files);
        self.write_manifest(first_revision)?;
        self.active = Some(active);
        Ok(())
    }

    /// Removes a segment that failed before its first frame: the new one has the same name. The manifest may name it, so
    /// that is taken back first.
    fn clear_failed(&self, path: &Path, first_revision: Revision) -> Result<(), Failure> {
        if !path.exists() {
            return Ok(());
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.segments.retain(|segment| segment.path != path);
        drop(files);
        self.write_manifest(first_revision)?;
        std::fs::remove_file(path).map_err(failed("removing", path))
    }

    fn write_manifest(&self, next_revision: Revision) -> Result<(), Failure> {
        let manifest = self.manifest(next_revision.saturating_sub(1));
        let written = manifest.write(&self.dir, self.disk.as_ref());
        written.map_err(failed("writing", &manifest::path(&self.dir)))
    }

    fn create_segment(&self, path: &Path, header: &Header, room: u64) -> Result<Active, Failure> {
        let file = self.disk.create(path).map_err(failed("creating", path))?;
        let needed = segment::HEADER as u64 + room;
        let reserved = reserve(file.as_ref(), needed, self.layout.reserve_bytes)
            .map_err(failed("extending", path))?;
        file.write_at(&header.encode(), 0)
            .map_err(failed("writing", path))?;
        file.sync().map_err(failed("syncing", path))?;
        self.disk
            .sync_dir(&self.dir)
            .map_err(failed("syncing the directory of", path))?;
        Ok(Active {
            path: path.to_owned(),
            file,
            nonce: header.nonce,
            offset: segment::HEADER as u64,
            reserved,
        })
    }

    /// Leaves the active segment behind after a failure, without the failed frame if possible.
    fn give_up(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        self.seal(&active);
        if let Err(error) = active.file.sync() {
            tracing::warn!(path = %active.path.display(), %error, "could not sync a segment that is given up");
        }
    }

    fn seal(&self, active: &Active) {
        match active.file.truncate(active.offset) {
            Ok(()) => self.note_length(active.offset),
            Err(error) => {
                tracing::warn!(path = %active.path.display(), %error, "could not cut a segment to its length");
            }
        }
    }

    /// Notes the length of the segment being written.
    fn note_length(&self, bytes: u64) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(segment) = files.segments.last_mut() {
            segment.bytes = bytes;
        }
    }
}

impl Active {
    fn write(&mut self, frame: &mut Builder, sequence: u64) -> Result<usize, Failure> {
        let bytes = frame.finish(sequence, self.nonce);
        self.file
            .write_at(bytes, self.offset)
            .map_err(failed("writing", &self.path))?;
        self.file.sync().map_err(failed("syncing", &self.path))?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }
}

/// Reserves space for `needed` bytes and some more; on a nearly full disk, for just these.
fn reserve(file: &dyn DiskFile, needed: u64, step: u64) -> io::Result<u64> {
    let generous = needed.next_multiple_of(step.max(1));
    match file.allocate(generous) {
        Ok(()) => Ok(generous),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            file.allocate(needed).map(|()| needed)
        }
        Err(error) => Err(error),
    }
}
