//! Removing a tree that a pod has made: it may be deeper than any stack, hold anything, and must not lead elsewhere.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Opens directories only, and never through a link.
const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes a directory and all in it; nothing is not an error, a mount point is one.
///
/// Directories inside directories are first moved up to the top, so that depth costs neither stack nor file
/// descriptors. Only names are ever removed, relative to directories that are held open.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match openat(CWD, path, DIRECTORY, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return std::fs::remove_file(path),
        Err(error) => return Err(error.into()),
    };
    let mut moved = 0_u64;
    while let Some(name) = next_directory(&top)? {
        let inner = openat(&top, &name, DIRECTORY, Mode::empty())?;
        lift(&inner, &top, &mut moved)?;
        unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(io::Error::from)
}

// Removes what is no directory, and gives the first that is and is not empty.
fn next_directory(top: &OwnedFd) -> io::Result<Option<CString>> {
    for (name, is_directory) in entries(top)? {
        if !removed(top, &name, is_directory)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn removed(parent: &OwnedFd, name: &CStr, is_directory: bool) -> io::Result<bool> {
    let flags = match is_directory {
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    match unlinkat(parent, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

// Empties a directory: files go, directories with something in them move to the top.
fn lift(inner: &OwnedFd, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    for (name, is_directory) in entries(inner)? {
        while !removed(inner, &name, is_directory)? {
            *moved += 1;
            let free = format!("..removed.{moved}");
            match renameat(inner, &name, top, &free) {
                Ok(()) => break,
                // Somebody chose that very name.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

fn entries(directory: &OwnedFd) -> io::Result<Vec<(CString, bool)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode).is_dir()
            }
            known => known.is_dir(),
        };
        found.push((name.to_owned(), is_directory));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::fs;

    #[test]
    fn trees_of_all_shapes_go_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
        fs::create_dir_all(tree.join("a/b/c/..removed.1")).unwrap();
        fs::create_dir_all(tree.join("..removed.2/x")).unwrap();
        fs::create_dir_all(tree.join("empty")).unwrap();
        fs::write(tree.join("a/file"), "").unwrap();
        fs::write(tree.join("a/b/c/..removed.1/file"), "").unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "").unwrap();
        std::os::unix::fs::symlink(&other, tree.join("a/b/link")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(other.join("kept").exists());
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn a_tree_deeper_than_any_path_goes() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at = openat(CWD, &tree, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
            at = openat(&at, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
