//! Mounts of the kubelet itself: memory file systems and bind mounts, and their end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, move_mount, open_tree, unmount,
};

/// Whether something is mounted exactly here.
pub(super) fn is_mount_point(path: &Path) -> io::Result<bool> {
    let found = statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::BASIC_STATS,
    )?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Mounts memory, of at most this size, that is not swapped where the kernel can promise that.
pub(super) fn tmpfs(target: &Path, size: Option<u64>) -> io::Result<()> {
    let size = size.map(|bytes| format!("size={bytes}"));
    let options = |swap: &str| {
        let parts = size.iter().map(String::as_str).chain([swap]);
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        std::ffi::CString::new(parts.join(",")).expect("options hold no zero byte")
    };
    let try_with = |swap: &str| {
        let data = options(swap);
        mount(
            "tmpfs",
            target,
            "tmpfs",
            MountFlags::empty(),
            Some(data.as_c_str()),
        )
    };
    // `noswap` is Linux 6.3's.
    match try_with("noswap") {
        Err(Errno::INVAL) => Ok(try_with("")?),
        other => Ok(other?),
    }
}

/// Mounts huge pages, of the node's usual size unless another is asked for.
pub(super) fn hugetlbfs(target: &Path, page: Option<u64>) -> io::Result<()> {
    let options = page.map(|bytes| format!("pagesize={bytes}"));
    let options = options.and_then(|text| std::ffi::CString::new(text).ok());
    let data = options.as_deref();
    Ok(mount(
        "nodev",
        target,
        "hugetlbfs",
        MountFlags::empty(),
        data,
    )?)
}

/// Mounts what is held open at another place, so that nobody can exchange it meanwhile.
pub(super) fn bind(source: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(source, c"", clone)?;
    let from_fd = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), c"", CWD, target, from_fd)?)
}

/// Ends a mount; one that is gone already is no error.
pub(super) fn end(target: &Path) -> io::Result<()> {
    match unmount(target, UnmountFlags::NOFOLLOW) {
        // Nothing there, or nothing mounted there.
        Ok(()) | Err(Errno::NOENT | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// All mounts at or under a path, in the order in which they were made.
pub(super) fn under(path: &Path) -> io::Result<Vec<PathBuf>> {
    let path = path.canonicalize()?;
    let table = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
    let places = table.lines().filter_map(place);
    Ok(places.filter(|place| place.starts_with(&path)).collect())
}

// The fifth field, with octal escapes for white space.
fn place(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, after @ ..] = rest {
        let octal = (*first == b'\\')
            .then(|| std::str::from_utf8(after.get(..3)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = match octal {
            Some(_) => &after[3..],
            None => after,
        };
    }
    Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_mounts_are_read_with_their_escapes() {
        let line = "36 35 98:0 /m /mnt/with\\040space\\134 rw,noatime - ext3 /dev/root rw";
        assert_eq!(place(line), Some(PathBuf::from("/mnt/with space\\")));
        assert_eq!(place("short"), None);
    }
}
