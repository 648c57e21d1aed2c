//! The file format of snapshots and backups: all live keys at one revision.
//!
//! ```text
//! magic 8 bytes | revision u64 | header crc u32
//! per key: body length u32 | body crc u32 | body
//!   body: created u64 | modified u64 | deadline u64 | key length u32 | key | value
//! end mark u32 | number of keys u64 | crc of the whole file up to here u32
//! ```
//!
//! Numbers are little-endian. A file appears under its name only when it is complete and on disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::embedded::index::Version;
use crate::{Error, Result, Revision};

const MAGIC: &[u8; 8] = b"KyanImg\x01";
const END: u32 = u32::MAX;
/// The fixed part of a body.
const BODY_HEAD: usize = 28;
/// More than any write can hold; a length beyond it is damage, not a reason to ask for memory.
const BODY_LIMIT: usize = 256 << 20;

/// The content of an image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) revision: Revision,
    pub(crate) versions: Vec<Version>,
    /// The file's length.
    pub(crate) bytes: u64,
}

/// Writes an image and makes it durable. Returns its length.
pub(crate) fn write(path: &Path, revision: Revision, versions: &[Arc<Version>]) -> io::Result<u64> {
    let temporary = temporary(path);
    let written = write_new(&temporary, revision, versions).and_then(|bytes| {
        std::fs::rename(&temporary, path)?;
        sync_parent(path)?;
        Ok(bytes)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// The name an image has until it is complete.
fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

fn write_new(path: &Path, revision: Revision, versions: &[Arc<Version>]) -> io::Result<u64> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    let mut out = Summed::new(BufWriter::with_capacity(1 << 20, file));
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&revision.to_le_bytes());
    let head_crc = crc32fast::hash(&head);
    out.put(&head)?;
    out.put(&head_crc.to_le_bytes())?;
    let mut count = 0u64;
    for version in versions {
        count += u64::from(put_version(&mut out, version)?);
    }
    out.put(&END.to_le_bytes())?;
    out.put(&count.to_le_bytes())?;
    let crc = out.crc.clone().finalize();
    out.put(&crc.to_le_bytes())?;
    let bytes = out.bytes;
    let file = out.inner.into_inner().map_err(|error| error.into_error())?;
    file.sync_all()?;
    Ok(bytes)
}

/// Writes one key; a deletion is no part of an image and is left out.
fn put_version(out: &mut Summed<impl Write>, version: &Version) -> io::Result<bool> {
    let Some(value) = &version.value else {
        return Ok(false);
    };
    let mut head = Vec::with_capacity(BODY_HEAD + version.key.len());
    for number in [version.created, version.modified, version.deadline] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    head.extend_from_slice(&length(version.key.len())?);
    head.extend_from_slice(version.key.as_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(value);
    out.put(&length(head.len() + value.len())?)?;
    out.put(&crc.finalize().to_le_bytes())?;
    out.put(&head)?;
    out.put(value)?;
    Ok(true)
}

fn length(len: usize) -> io::Result<[u8; 4]> {
    u32::try_from(len)
        .map(u32::to_le_bytes)
        .map_err(|_| io::Error::other("a value is larger than four gigabytes"))
}

/// Reads an image, checking everything.
pub(crate) fn read(path: &Path) -> Result<Image> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let mut input = Input {
        path,
        summed: Summed::new(BufReader::with_capacity(1 << 20, file)),
    };
    let revision = input.head()?;
    let mut versions = Vec::new();
    loop {
        let len = input.u32()?;
        if len == END {
            break;
        }
        versions.push(input.version(len as usize)?);
    }
    input.trailer(versions.len() as u64)?;
    Ok(Image {
        revision,
        versions,
        bytes: input.summed.bytes,
    })
}

/// The error for a file that cannot be opened or read at all.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::file("reading", path, error)
}

/// A reader or writer that sums up what passes through.
struct Summed<T> {
    inner: T,
    crc: crc32fast::Hasher,
    bytes: u64,
}

impl<T> Summed<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            crc: crc32fast::Hasher::new(),
            bytes: 0,
        }
    }

    fn sum(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl<W: Write> Summed<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum(bytes);
        self.inner.write_all(bytes)
    }
}

/// An image being read.
struct Input<'a, R> {
    path: &'a Path,
    summed: Summed<R>,
}

impl<R: Read> Input<'_, R> {
    fn damaged(&self, reason: &str) -> Error {
        Error::Corrupt {
            file: self.path.display().to_string(),
            cause: format!("{reason} before offset {}", self.summed.bytes),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.summed.inner.read_exact(bytes) {
            Ok(()) => {
                self.summed.sum(bytes);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Error::Corrupt {
                file: self.path.display().to_string(),
                cause: format!(
                    "the file is cut short: {} bytes expected at offset {}",
                    bytes.len(),
                    self.summed.bytes
                ),
            }),
            Err(error) => Err(unreadable(self.path, &error)),
        }
    }

    fn u32(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn head(&mut self) -> Result<Revision> {
        let mut head = [0; 16];
        self.fill(&mut head)?;
        if &head[..8] != MAGIC {
            return Err(self.damaged("this is no snapshot or backup of the store: wrong magic"));
        }
        if self.u32()? != crc32fast::hash(&head) {
            return Err(self.damaged("the header has a wrong checksum"));
        }
        Ok(number_at(&head, 8))
    }

    fn version(&mut self, len: usize) -> Result<Version> {
        if !(BODY_HEAD..=BODY_LIMIT).contains(&len) {
            return Err(self.damaged("an entry has an impossible length"));
        }
        let crc = self.u32()?;
        let mut body = vec![0; len];
        self.fill(&mut body)?;
        if crc32fast::hash(&body) != crc {
            return Err(self.damaged("an entry has a wrong checksum"));
        }
        parse_body(&body).ok_or_else(|| self.damaged("an entry cannot be read"))
    }

    fn trailer(&mut self, counted: u64) -> Result<()> {
        let mut count = [0; 8];
        self.fill(&mut count)?;
        let expected = self.summed.crc.clone().finalize();
        if self.u32()? != expected {
            return Err(self.damaged("the file as a whole has a wrong checksum"));
        }
        if u64::from_le_bytes(count) != counted {
            return Err(self.damaged("the number of entries is wrong"));
        }
        match self.summed.inner.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("the file goes on after its end")),
            Err(error) => Err(unreadable(self.path, &error)),
        }
    }
}

fn parse_body(body: &[u8]) -> Option<Version> {
    let key_len = u32::from_le_bytes(body.get(24..BODY_HEAD)?.try_into().ok()?) as usize;
    let (key, value) = body[BODY_HEAD..].split_at_checked(key_len)?;
    Some(Version {
        key: Arc::from(std::str::from_utf8(key).ok()?),
        value: Some(Bytes::copy_from_slice(value)),
        created: number_at(body, 0),
        modified: number_at(body, 8),
        deadline: number_at(body, 16),
    })
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
