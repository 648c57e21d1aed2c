//! Reading the directory back: the newest snapshot, then the log behind it.
//!
//! A write that was cut off by a crash can only be the last one, because each commit waits for its
//! sync before the next one starts. Bytes that are no frame are therefore cut off at the end of the
//! log and refused as damage anywhere else. What the manifest promises must be there in any case.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::frame::{self, Frame, Record};
use super::index::{Change, Index, Version};
use super::log::{Files, SegmentFile};
use super::manifest::{self, Manifest};
use super::segment::{self, End, Header};
use crate::image;
use crate::{Error, Result, Revision};

/// What a directory holds.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) index: Index,
    pub(crate) files: Files,
    pub(crate) next_sequence: u64,
    /// The segment to continue with, if there is any.
    pub(crate) tail: Option<Tail>,
    /// A cut-off write at the end of the log, described.
    pub(crate) torn: Option<String>,
    /// Files that a crash left half made; they hold nothing.
    pub(crate) leftovers: Vec<PathBuf>,
    /// What the manifest says must be there.
    promised: Manifest,
}

/// The last segment.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) path: PathBuf,
    pub(crate) nonce: u32,
    /// Behind its last whole frame.
    pub(crate) offset: u64,
    /// The file's length.
    pub(crate) length: u64,
}

/// Where the snapshot of a revision lies.
pub(crate) fn snapshot_path(dir: &Path, revision: Revision) -> PathBuf {
    dir.join(format!("snapshot-{revision:016x}.img"))
}

/// The revision in a snapshot's file name; `None` for other files.
pub(crate) fn snapshot_revision(name: &str) -> Option<Revision> {
    let digits = name.strip_prefix("snapshot-")?.strip_suffix(".img")?;
    Revision::from_str_radix(digits, 16).ok()
}

/// The store's files in a directory, by kind and in order.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) snapshots: Vec<(Revision, PathBuf)>,
    pub(crate) segments: Vec<(u64, PathBuf)>,
    pub(crate) leftovers: Vec<PathBuf>,
}

/// Lists the store's files.
pub(crate) fn list(dir: &Path) -> Result<Listing> {
    let mut listing = Listing::default();
    let entries = std::fs::read_dir(dir).map_err(|error| image::unreadable(dir, &error))?;
    for entry in entries {
        let path = entry
            .map_err(|error| image::unreadable(dir, &error))?
            .path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if let Some(revision) = snapshot_revision(name) {
            listing.snapshots.push((revision, path));
        } else if let Some(sequence) = segment::sequence_of(name) {
            listing.segments.push((sequence, path));
        } else if name.starts_with("snapshot-") && name.ends_with(".tmp") {
            listing.leftovers.push(path);
        }
    }
    listing.snapshots.sort();
    listing.segments.sort();
    Ok(listing)
}

/// Reads a directory without changing it.
pub(crate) fn recover(dir: &Path) -> Result<Recovered> {
    // First: a store that is in use may go on meanwhile, and then what was promised is still there.
    let promised = Manifest::read(dir)?.unwrap_or_default();
    let mut listing = list(dir)?;
    let mut recovered = Recovered::empty();
    recovered.promised = promised;
    if let Some((revision, path)) = listing.snapshots.pop() {
        recovered.load_snapshot(revision, &path)?;
    }
    recovered.leftovers = listing.leftovers;
    recovered
        .leftovers
        .extend(listing.snapshots.into_iter().map(|(_, path)| path));
    let ends = listing
        .segments
        .iter()
        .skip(1)
        .map(|&(sequence, _)| Some(sequence))
        .chain([None]);
    for ((sequence, path), next) in listing.segments.iter().zip(ends) {
        recovered.load_segment(path, *sequence, next)?;
    }
    recovered.check_promise(dir)?;
    Ok(recovered)
}

impl Recovered {
    fn empty() -> Self {
        Self {
            index: Index::empty(),
            files: Files::default(),
            next_sequence: 1,
            tail: None,
            torn: None,
            leftovers: Vec::new(),
            promised: Manifest::default(),
        }
    }

    fn load_snapshot(&mut self, revision: Revision, path: &Path) -> Result<()> {
        let image = image::read(path)?;
        if image.revision != revision {
            return Err(corrupt(path, "its content is of another revision", 8));
        }
        self.files.snapshot_bytes = image.bytes;
        self.index = Index::from_snapshot(revision, image.versions);
        Ok(())
    }

    /// Replays a segment. `next` is where the following segment starts; frames from there on were
    /// given up by the writer.
    fn load_segment(&mut self, path: &Path, sequence: u64, next: Option<u64>) -> Result<()> {
        let bytes = std::fs::read(path).map_err(|error| image::unreadable(path, &error))?;
        let Some(header) = Header::decode(&bytes) else {
            return self.load_headless(path, sequence, &bytes, next);
        };
        self.check_joint(path, &header, sequence)?;
        let until = next.unwrap_or(u64::MAX);
        let mut count = 0;
        let (offset, end) = segment::scan(&bytes, &header, until, |offset, frame| {
            count += 1;
            self.replay(path, offset, frame)
        })?;
        self.next_sequence = sequence + count;
        self.files.segments.push(SegmentFile {
            path: path.to_owned(),
            first_sequence: sequence,
            first_revision: header.first_revision,
            bytes: bytes.len() as u64,
        });
        self.tail = Some(Tail {
            path: path.to_owned(),
            nonce: header.nonce,
            offset: offset as u64,
            length: bytes.len() as u64,
        });
        match end {
            End::Damaged { reason, next } => {
                let reason = format!("{reason}, yet a whole record follows at offset {next}");
                Err(corrupt(path, &reason, offset))
            }
            _ if next.is_some_and(|next| next != self.next_sequence) => {
                let missing = "the records from here to the next segment are missing";
                Err(corrupt(path, missing, offset))
            }
            End::Torn(reason) if next.is_none() => {
                self.torn = Some(format!("{reason} at offset {offset}"));
                Ok(())
            }
            End::Torn(_) | End::Blank => Ok(()),
        }
    }

    /// A segment without a header was never begun, if it is the last one, empty, and nobody has promised it.
    fn load_headless(
        &mut self,
        path: &Path,
        sequence: u64,
        bytes: &[u8],
        next: Option<u64>,
    ) -> Result<()> {
        let empty = bytes.len() < segment::HEADER || frame::is_zero(bytes);
        if !empty {
            return Err(corrupt(path, "its header has a wrong checksum", 0));
        }
        if next.is_some() || sequence <= self.promised.segment {
            let lost = "it is empty, although the log went on in it: its records are lost";
            return Err(corrupt(path, lost, 0));
        }
        self.leftovers.push(path.to_owned());
        Ok(())
    }

    /// Whether everything the manifest promises was found.
    fn check_promise(&self, dir: &Path) -> Result<()> {
        let Manifest { segment, revision } = self.promised;
        let last = self.files.segments.last();
        if segment > last.map_or(0, |last| last.first_sequence) {
            let missing =
                "it is missing, although the log went on in it: put it back, or restore a backup";
            return Err(corrupt(&segment::path(dir, segment), missing, 0));
        }
        let found = self.index.revision();
        if revision > found {
            let lost = format!(
                "revisions {} to {revision} are missing behind it: they were on disk when the manifest was written",
                found + 1
            );
            let (path, offset) = match &self.tail {
                Some(tail) => (tail.path.clone(), tail.offset),
                None => (manifest::path(dir), 16),
            };
            return Err(corrupt(&path, &lost, offset as usize));
        }
        Ok(())
    }

    /// Whether a segment continues what was read so far.
    fn check_joint(&self, path: &Path, header: &Header, sequence: u64) -> Result<()> {
        if header.first_sequence != sequence {
            return Err(corrupt(path, "its header belongs to another segment", 8));
        }
        let first = self.files.segments.is_empty();
        if first && header.first_revision > self.index.revision() + 1 {
            let gap = format!(
                "the segment or snapshot before it is missing: it starts at revision {}, what comes before ends at {}",
                header.first_revision,
                self.index.revision()
            );
            return Err(corrupt(path, &gap, 16));
        }
        Ok(())
    }

    fn replay(&mut self, path: &Path, offset: usize, frame: Frame<'_>) -> Result<()> {
        let mut revision = frame.first_revision;
        if revision > self.index.revision() + 1 {
            return Err(corrupt(path, "revisions are missing before it", offset));
        }
        for record in frame.records() {
            let record = record.map_err(|reason| corrupt(path, reason, offset))?;
            if let Record::Compact { revision } = record {
                self.compact(revision);
                continue;
            }
            if revision > self.index.revision() {
                self.index.apply(change(&self.index, record, revision));
            }
            revision += 1;
        }
        Ok(())
    }

    fn compact(&mut self, revision: Revision) {
        if self.index.check_compactable(revision).is_ok() {
            self.index.compact(revision);
            while self.index.forget(usize::MAX).is_some() {}
        }
    }
}

/// The step a put or delete of the log makes.
fn change(index: &Index, record: Record<'_>, revision: Revision) -> Change {
    let (key, value, deadline) = match record {
        Record::Put {
            key,
            value,
            deadline,
        } => (key, Some(Bytes::copy_from_slice(value)), deadline),
        Record::Delete { key } => (key, None, 0),
        Record::Compact { .. } => unreachable!("compactions are handled by the caller"),
    };
    let previous = index.get(key).cloned();
    let version = Arc::new(Version {
        key: previous
            .as_ref()
            .map_or_else(|| Arc::from(key), |previous| Arc::clone(&previous.key)),
        value,
        created: previous.as_ref().map_or(revision, |p| p.created),
        modified: revision,
        deadline,
    });
    Change { version, previous }
}

fn corrupt(path: &Path, reason: &str, offset: usize) -> Error {
    Error::Corrupt {
        file: path.display().to_string(),
        cause: format!("{reason} (offset {offset})"),
    }
}
