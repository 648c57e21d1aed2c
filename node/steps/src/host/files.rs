//! The files of a machine, wherever its root is. Every change passes one gate, where tests put their faults.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The last part of the path may not be a link.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Owner {
    /// `root:root`.
    pub const ROOT: Owner = Owner { uid: 0, gid: 0 };
}

/// What is at a path; links are not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-user-id and friends.
    pub mode: u32,
    /// Whose it is.
    pub owner: Owner,
    /// Length of a file.
    pub size: u64,
}

/// What a path can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Link(PathBuf),
    /// A device, socket or pipe.
    Other,
}

/// One change of the disk, as the gate sees it before it happens.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Makes a new file and writes to it.
    Create(&'a Path),
    /// Adds to the end of a file.
    Append(&'a Path),
    /// Writes to a file in place: kernel settings.
    Set(&'a Path),
    /// Gives a file its final name.
    Rename(&'a Path),
    /// Makes a directory.
    MakeDirectory(&'a Path),
    /// Makes a symbolic link.
    MakeLink(&'a Path),
    /// Removes a file, link or empty directory.
    Remove(&'a Path),
    /// Sets mode and owner.
    SetAttributes(&'a Path),
}

impl Operation<'_> {
    /// What it is about.
    pub fn path(&self) -> &Path {
        match self {
            Operation::Create(path)
            | Operation::Append(path)
            | Operation::Set(path)
            | Operation::Rename(path)
            | Operation::MakeDirectory(path)
            | Operation::MakeLink(path)
            | Operation::Remove(path)
            | Operation::SetAttributes(path) => path,
        }
    }
}

/// May refuse a change, or end the process before it.
type Gate = Box<dyn Fn(&Operation<'_>) -> io::Result<()> + Send + Sync>;

/// Files under a root. All paths are absolute, as the machine itself would say them.
pub struct Files {
    root: PathBuf,
    /// Only root can give files away; elsewhere (a test of an ordinary user) all owners count as right.
    gives_away: bool,
    gate: Option<Gate>,
}

impl Files {
    /// The files under `root`.
    pub fn under(root: impl Into<PathBuf>) -> Files {
        Files {
            root: root.into(),
            gives_away: rustix::process::geteuid().is_root(),
            gate: None,
        }
    }

    /// The same, with a gate that every change passes first.
    pub(crate) fn gated(
        root: impl Into<PathBuf>,
        gate: impl Fn(&Operation<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Files {
        Files {
            gate: Some(Box::new(gate)),
            ..Files::under(root)
        }
    }

    /// Where a path of the machine is on this one.
    pub fn locate(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn pass(&self, operation: &Operation<'_>) -> io::Result<()> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate(operation))
    }

    /// What is at `path`, if anything.
    pub fn entry(&self, path: impl AsRef<Path>) -> io::Result<Option<Entry>> {
        let place = self.locate(path.as_ref());
        let metadata = match fs::symlink_metadata(&place) {
            Ok(metadata) => metadata,
            Err(e) if absent(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let kind = match metadata.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_dir() => Kind::Directory,
            t if t.is_symlink() => Kind::Link(fs::read_link(&place)?),
            _ => Kind::Other,
        };
        Ok(Some(Entry {
            kind,
            mode: metadata.mode() & 0o7777,
            owner: Owner {
                uid: metadata.uid(),
                gid: metadata.gid(),
            },
            size: metadata.len(),
        }))
    }

    /// Whether there is anything at `path`.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.entry(path).is_ok_and(|e| e.is_some())
    }

    /// The whole content of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        fs::read(self.locate(path.as_ref()))
    }

    /// The whole content of a file as text, or nothing if there is no such file.
    pub fn text(&self, path: impl AsRef<Path>) -> io::Result<Option<String>> {
        match self.read(path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(e) if absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<fs::File> {
        fs::File::open(self.locate(path.as_ref()))
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.locate(path.as_ref()))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether an owner is the one that was asked for, as far as this process could make it so.
    pub(crate) fn same_owner(&self, found: Owner, asked: Owner) -> bool {
        !self.gives_away || found == asked
    }

    /// Makes a new, private file for writing; whatever had its name is gone.
    pub fn create(&self, path: &Path) -> io::Result<fs::File> {
        self.pass(&Operation::Create(path))?;
        self.create_new(path)
    }

    /// The draft that an earlier run left, to go on with, or a new one.
    pub fn resume(&self, path: &Path) -> io::Result<fs::File> {
        self.pass(&Operation::Create(path))?;
        let kept = fs::OpenOptions::new()
            .append(true)
            .custom_flags(NO_FOLLOW)
            .open(self.locate(path));
        match kept {
            Ok(file) if file.metadata()?.is_file() => Ok(file),
            _ => self.create_new(path),
        }
    }

    fn create_new(&self, path: &Path) -> io::Result<fs::File> {
        let place = self.locate(path);
        match fs::remove_file(&place) {
            Err(e) if !absent(&e) => return Err(e),
            _ => {}
        }
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(place)
    }

    /// Makes a new file with this content, mode and owner, safe on disk when this returns.
    pub fn write_new(&self, path: &Path, bytes: &[u8], mode: u32, owner: Owner) -> io::Result<()> {
        let mut file = self.create(path)?;
        file.write_all(bytes)?;
        self.finish(&file, mode, owner)?;
        file.sync_all()
    }

    /// Gives an open file its mode and owner.
    pub(crate) fn finish(&self, file: &fs::File, mode: u32, owner: Owner) -> io::Result<()> {
        if self.gives_away {
            std::os::unix::fs::fchown(file, Some(owner.uid), Some(owner.gid))?;
        }
        // After the owner: a change of owner takes set-user-id away.
        file.set_permissions(fs::Permissions::from_mode(mode))
    }

    /// Replaces a file as a whole, or makes it: readers see the old or the new content, never a part.
    pub fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let draft = draft_of(path);
        self.write_new(&draft, bytes, mode, Owner::ROOT)?;
        self.rename(&draft, path)?;
        self.sync_parent(path)
    }

    /// Adds to the end of a file, which is made (private) if need be. With `sync` it is safe on disk when this returns.
    /// A link is not followed: root would write wherever somebody has put one.
    pub fn append(&self, path: &Path, bytes: &[u8], mode: u32, sync: bool) -> io::Result<()> {
        self.pass(&Operation::Append(path))?;
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(mode)
            .custom_flags(NO_FOLLOW)
            .open(self.locate(path))?;
        file.write_all(bytes)?;
        if sync { file.sync_data() } else { Ok(()) }
    }

    /// Writes a line to an existing file in place: for kernel settings only.
    pub fn set(&self, path: &Path, value: &str) -> io::Result<()> {
        self.pass(&Operation::Set(path))?;
        fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.locate(path))?
            .write_all(format!("{value}\n").as_bytes())
    }

    /// Gives a file its final name, in place of what had it.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.pass(&Operation::Rename(to))?;
        fs::rename(self.locate(from), self.locate(to))
    }

    /// Makes a directory whose parent exists.
    pub fn make_directory(&self, path: &Path, mode: u32, owner: Owner) -> io::Result<()> {
        self.pass(&Operation::MakeDirectory(path))?;
        fs::create_dir(self.locate(path))?;
        self.attributes(path, mode, owner)
    }

    /// Makes a directory and those above it as far as they are missing, unjournaled and safe on disk: for logs and state.
    pub fn ensure_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        if matches!(fs::metadata(self.locate(path)), Ok(m) if m.is_dir()) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.ensure_directory(parent, 0o755)?;
        }
        match self.make_directory(path, mode, Owner::ROOT) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.and_then(|()| self.sync_parent(path)),
        }
    }

    /// Makes a symbolic link where nothing is.
    pub fn make_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.pass(&Operation::MakeLink(path))?;
        std::os::unix::fs::symlink(target, self.locate(path))
    }

    /// Sets mode and owner of a file or directory, safe on disk when this returns.
    pub fn set_attributes(&self, path: &Path, mode: u32, owner: Owner) -> io::Result<()> {
        self.pass(&Operation::SetAttributes(path))?;
        self.attributes(path, mode, owner)?;
        self.open(path)?.sync_all()
    }

    fn attributes(&self, path: &Path, mode: u32, owner: Owner) -> io::Result<()> {
        let place = self.locate(path);
        if self.gives_away {
            std::os::unix::fs::chown(&place, Some(owner.uid), Some(owner.gid))?;
        }
        fs::set_permissions(place, fs::Permissions::from_mode(mode))
    }

    /// Removes a file or link, or a directory that is empty. What is not there is removed already.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let Some(entry) = self.entry(path)? else {
            return Ok(());
        };
        self.pass(&Operation::Remove(path))?;
        match entry.kind {
            Kind::Directory => fs::remove_dir(self.locate(path)),
            _ => fs::remove_file(self.locate(path)),
        }
    }

    /// Makes the name of `path` safe on disk.
    pub(crate) fn sync_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.open(parent)?.sync_all()
    }

    /// Whether two files have the same content.
    pub(crate) fn same_content(&self, one: &Path, other: &Path) -> io::Result<bool> {
        let (mut one, mut other) = (self.open(one)?, self.open(other)?);
        if one.metadata()?.len() != other.metadata()?.len() {
            return Ok(false);
        }
        let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            let n = one.read(&mut left)?;
            if n == 0 {
                return Ok(true);
            }
            match other.read_exact(&mut right[..n]) {
                Ok(()) if left[..n] == right[..n] => {}
                Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => return Err(e),
                _ => return Ok(false),
            }
        }
    }
}

/// The name under which a file is written before it gets its own; the same for every attempt, so that nothing piles up.
pub(crate) fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.kyanite-draft"))
}

/// Where a download is kept until it is whole.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.kyanite-part"))
}

/// Whether an error means that there is nothing at the path.
pub(crate) fn absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
