//! fsGroup: the files of a volume belong to a group that every container of the pod is in (`SetVolumeOwnership`).

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fstat, openat,
};

/// Who gets the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// The group.
    pub id: u32,
    /// Whether pods may only read.
    pub read_only: bool,
}

const TO_LOOK_AT: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const EXECUTE: u32 = 0o110;
const SET_GID: u32 = 0o2000;
/// Deeper than any path that a program could name.
const DEEPEST: usize = 1_000;

/// Gives a directory and all in it to a group.
pub(super) fn give(path: &Path, group: Group) -> io::Result<()> {
    let top = openat(CWD, path, TO_LOOK_AT, Mode::empty())?;
    give_one(top.as_fd(), group)?;
    descend(&top, group, DEEPEST)
}

/// Whether the top already looks as [`give`] leaves it; `OnRootMismatch` then spares the walk.
pub(super) fn is_given(path: &Path, group: Group) -> io::Result<bool> {
    let stat = rustix::fs::stat(path)?;
    let wanted = wanted_mode(&stat, group);
    Ok(stat.st_gid == group.id && stat.st_mode & 0o7777 & wanted == wanted)
}

fn wanted_mode(stat: &Stat, group: Group) -> u32 {
    let access = match group.read_only {
        true => 0o440,
        false => 0o660,
    };
    match FileType::from_raw_mode(stat.st_mode).is_dir() {
        true => access | EXECUTE | SET_GID,
        false => access,
    }
}

fn descend(parent: &OwnedFd, group: Group, depth: usize) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other(format!(
            "directories are nested deeper than {DEEPEST}"
        )));
    }
    let directory = openat(
        parent,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        if entry.file_name() == c"." || entry.file_name() == c".." {
            continue;
        }
        // Held, so that what is changed is what was looked at.
        let held = match openat(&directory, entry.file_name(), TO_LOOK_AT, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => continue,
            held => held?,
        };
        if give_one(held.as_fd(), group)? {
            descend(&held, group, depth - 1)?;
        }
    }
    Ok(())
}

// Says whether it is a directory.
fn give_one(held: BorrowedFd<'_>, group: Group) -> io::Result<bool> {
    let stat = fstat(held)?;
    chownat(
        held,
        c"",
        None,
        Some(Gid::from_raw(group.id)),
        AtFlags::EMPTY_PATH,
    )?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind.is_symlink() {
        return Ok(false);
    }
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777 | wanted_mode(&stat, group));
    chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode)?;
    Ok(kind.is_dir())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    #[test]
    fn a_group_gets_a_tree_and_links_do_not_lead_out_of_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: giving files to a group needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "").unwrap();
        fs::set_permissions(tree.join("a/b/file"), Permissions::from_mode(0o400)).unwrap();
        fs::write(&outside, "").unwrap();
        fs::set_permissions(&outside, Permissions::from_mode(0o600)).unwrap();
        symlink(&outside, tree.join("a/link")).unwrap();
        let group = Group {
            id: 1234,
            read_only: true,
        };
        assert!(!is_given(&tree, group).unwrap());
        give(&tree, group).unwrap();
        assert!(is_given(&tree, group).unwrap());
        let of = |path: &str| fs::metadata(tree.join(path)).unwrap();
        assert_eq!(
            (of("a/b/file").gid(), of("a/b/file").mode() & 0o7777),
            (1234, 0o440)
        );
        assert_eq!((of("a/b").gid(), of("a/b").mode() & 0o7777), (1234, 0o2755));
        let other = fs::metadata(&outside).unwrap();
        assert_eq!((other.gid(), other.mode() & 0o777), (0, 0o600));
        let writable = Group {
            id: 1234,
            read_only: false,
        };
        assert!(!is_given(&tree, writable).unwrap());
        give(&tree, writable).unwrap();
        assert_eq!(of("a/b/file").mode() & 0o7777, 0o660);
    }
}
