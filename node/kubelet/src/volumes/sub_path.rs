//! subPath: a part of a volume for a container, although the pod may put links into the volume while we look.
//!
//! The kernel resolves the path beneath the volume's directory (`openat2`), so no link leads out of it; what it found is
//! held open and mounted from there, so nothing can be exchanged between the check and the mount.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2,
};
use rustix::io::Errno;

use super::mounting;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
const HELD: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// How often a path is looked at again that was renamed under our eyes.
const TRIES: usize = 32;

/// Why a part of a volume cannot be given to a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// An absolute path.
    #[error("error SubPath `{0}` must not be an absolute path")]
    Absolute(String),
    /// A path with `..`.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    Backsteps(String),
    /// The directory could not be made.
    #[error(
        "failed to create subPath directory for volumeMount \"{volume}\" of container \"{container}\""
    )]
    Create {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// It leads out of the volume, or could not be mounted.
    #[error("failed to prepare subPath for volumeMount \"{volume}\" of container \"{container}\"")]
    Prepare {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Refuses what can never be a part of a volume.
pub(super) fn check(path: &str) -> Result<(), Refused> {
    if path.starts_with('/') {
        return Err(Refused::Absolute(path.into()));
    }
    match path.split('/').any(|part| part == "..") {
        true => Err(Refused::Backsteps(path.into())),
        false => Ok(()),
    }
}

/// What is to be mounted where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// The volume's name and its directory.
    pub volume: (&'a str, &'a Path),
    /// The part, relative to that.
    pub path: &'a str,
    /// Which container wants it.
    pub container: &'a str,
    /// Where the container will find it mounted.
    pub target: &'a Path,
}

/// Mounts a part of a volume; makes a directory of it if there is nothing.
pub(super) fn prepare(part: Part<'_>) -> Result<PathBuf, Refused> {
    check(part.path)?;
    let (volume, container) = (part.volume.0.to_owned(), part.container.to_owned());
    let held = match open(part.volume.1, part.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(part.volume.1, part.path)
            .map_err(|source| Refused::Create {
                volume: volume.clone(),
                container: container.clone(),
                source,
            }),
        held => held.map_err(|source| Refused::Prepare {
            volume: volume.clone(),
            container: container.clone(),
            source,
        }),
    }?;
    mount(&held, part.target).map_err(|source| Refused::Prepare {
        volume,
        container,
        source,
    })?;
    Ok(part.target.to_owned())
}

fn root(volume: &Path) -> io::Result<OwnedFd> {
    Ok(openat(
        CWD,
        volume,
        HELD | OFlags::DIRECTORY,
        Mode::empty(),
    )?)
}

fn open(volume: &Path, path: &str) -> io::Result<OwnedFd> {
    beneath(&root(volume)?, Path::new(path), HELD)
}

fn beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut tries = TRIES;
    loop {
        match openat2(root, path, flags, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN) if tries > 0 => tries -= 1,
            found => return Ok(found?),
        }
    }
}

// Every directory that is missing gets the volume's own mode, as upstream's `SafeMakeDir` is told.
fn make(volume: &Path, path: &str) -> io::Result<OwnedFd> {
    let root = root(volume)?;
    let mode = Mode::from_raw_mode(fstat(&root)?.st_mode & 0o7777);
    let mut so_far = PathBuf::new();
    let mut at = beneath(&root, Path::new("."), HELD)?;
    for component in Path::new(path).components() {
        let Component::Normal(name) = component else {
            continue;
        };
        so_far.push(name);
        at = match beneath(&root, &so_far, HELD) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&at, name, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                let made = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let made = openat(&at, name, made | OFlags::NOFOLLOW, Mode::empty())?;
                fchmod(&made, mode)?;
                made
            }
            found => found?,
        };
    }
    Ok(at)
}

fn mount(held: &OwnedFd, target: &Path) -> io::Result<()> {
    let source = fstat(held)?;
    if target.exists() && mounting::is_mount_point(target)? {
        let mounted = rustix::fs::stat(target)?;
        if (mounted.st_dev, mounted.st_ino) == (source.st_dev, source.st_ino) {
            return Ok(());
        }
        mounting::end(target)?;
    }
    place_for(FileType::from_raw_mode(source.st_mode).is_dir(), target)?;
    mounting::bind(held.as_fd(), target)
}

// A directory is mounted over a directory, anything else over a file.
fn place_for(directory: bool, target: &Path) -> io::Result<()> {
    if fs::symlink_metadata(target).is_ok_and(|found| found.is_dir() != directory) {
        super::removal::remove_tree(target)?;
    }
    let parent = match directory {
        true => target,
        false => target.parent().unwrap_or(target),
    };
    DirBuilder::new()
        .mode(0o750)
        .recursive(true)
        .create(parent)?;
    match directory {
        true => Ok(()),
        false => fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(target)
            .map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn paths_are_refused_in_upstreams_words() {
        let told = |path| check(path).unwrap_err().to_string();
        assert_eq!(
            told("/tmp"),
            "error SubPath `/tmp` must not be an absolute path"
        );
        assert_eq!(
            told("a/../b"),
            "unable to provision SubPath `a/../b`: must not contain '..'"
        );
        assert!(check("a..b/c").is_ok());
    }

    #[test]
    fn links_lead_around_in_a_volume_but_never_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        fs::create_dir_all(volume.join("real/deep")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        symlink("real", volume.join("inner")).unwrap();
        symlink("../outside", volume.join("up")).unwrap();
        symlink(dir.path().join("outside"), volume.join("absolute")).unwrap();
        symlink("/proc/self/root", volume.join("magic")).unwrap();
        assert!(open(&volume, "inner/deep").is_ok());
        for path in ["up", "absolute", "magic/etc"] {
            assert!(open(&volume, path).is_err(), "{path}");
            assert!(make(&volume, &format!("{path}/new")).is_err(), "{path}");
        }
        assert!(!dir.path().join("outside/new").exists());
    }

    #[test]
    fn missing_directories_get_the_volumes_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2777)).unwrap();
        make(dir.path(), "a/./b").unwrap();
        for path in ["a", "a/b"] {
            let mode = fs::metadata(dir.path().join(path)).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o777, "{path}");
        }
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(make(dir.path(), "file/x").is_err());
    }
}
