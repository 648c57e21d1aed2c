//! Volumes become directories; all of it blocks, and all of it may be done again.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::gather::Material;
use super::layout::{Plugin, PodDirectory};
use super::ownership::{self, Group};
use super::{Volume, atomic, host_path, mounting, removal};

/// The mode of volumes: containers of any user write there.
const FOR_ALL: u32 = 0o777;

/// Why a volume could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error(transparent)]
    HostPath(#[from] host_path::Mismatch),
    #[error("no CSI drivers can be used here")]
    NoDrivers,
    #[error("{doing} {}: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn doing<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Failed + use<'a> {
    move |source| Failed::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// The owner of a pod's volumes, and when it is applied.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ownership {
    /// fsGroup.
    pub(super) group: Option<u32>,
    /// fsGroupChangePolicy is OnRootMismatch.
    pub(super) only_on_mismatch: bool,
}

/// Makes one volume, or brings it up to date.
pub(super) fn volume(
    pod: &PodDirectory,
    name: &str,
    material: &Material,
    ownership: Ownership,
) -> Result<Volume, Failed> {
    match material {
        Material::Disk => empty(pod, name, ownership, |_| Ok(())),
        Material::Memory { size } => empty(pod, name, ownership, |at| in_memory(at, *size)),
        Material::HugePages { page } => empty(pod, name, ownership, |at| of_huge_pages(at, *page)),
        Material::Files { plugin, files } => {
            let at = pod.volume(*plugin, name);
            directory(&at).map_err(doing("making", &at))?;
            if plugin.is_in_memory() {
                in_memory(&at, None).map_err(doing("mounting memory at", &at))?;
            }
            let stamp = atomic::stamp(Timestamp::now(), rand::random());
            let give = || give(&at, ownership, true);
            atomic::write(&at, files, &stamp, give).map_err(doing("writing files into", &at))?;
            Ok(ready(at, true))
        }
        Material::Host { path, kind } => {
            host_path::check(path, kind)?;
            Ok(ready(path.into(), false))
        }
        Material::Local {
            name,
            path,
            read_only,
        } => local(pod, name, path, *read_only, ownership),
        Material::Published {
            path,
            read_only,
            give,
            ..
        } => {
            if *give && !read_only {
                give_once(path, ownership)?;
            }
            Ok(ready(path.clone(), *read_only))
        }
        // Drivers are asked before this.
        Material::Csi(_) => Err(Failed::NoDrivers),
        Material::Image { reference } => Ok(Volume {
            host_path: PathBuf::new(),
            read_only: true,
            image: Some(reference.clone()),
        }),
    }
}

fn ready(host_path: PathBuf, read_only: bool) -> Volume {
    Volume {
        host_path,
        read_only,
        image: None,
    }
}

fn directory(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .mode(0o750)
            .recursive(true)
            .create(parent)?;
    }
    DirBuilder::new().mode(0o750).recursive(true).create(path)?;
    let permissions = fs::metadata(path)?.permissions();
    if permissions.mode() & FOR_ALL != FOR_ALL {
        fs::set_permissions(path, Permissions::from_mode(FOR_ALL))?;
    }
    Ok(())
}

// What is in it is the pod's: it is made once, unless its memory went with a reboot.
fn empty(
    pod: &PodDirectory,
    name: &str,
    ownership: Ownership,
    mount: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<Volume, Failed> {
    let at = pod.volume(Plugin::EmptyDir, name);
    let marker = pod.ready_marker(name);
    let known = marker.exists() && at.is_dir();
    if !known {
        directory(&at).map_err(doing("making", &at))?;
    }
    let before = is_mounted(&at).map_err(doing("looking at", &at))?;
    mount(&at).map_err(doing("mounting", &at))?;
    let after = is_mounted(&at).map_err(doing("looking at", &at))?;
    if !known || before != after {
        give(&at, ownership, false).map_err(doing("giving to fsGroup", &at))?;
        mark(&marker).map_err(doing("marking", &marker))?;
    }
    Ok(ready(at, false))
}

fn is_mounted(path: &Path) -> io::Result<bool> {
    mounting::is_mount_point(path)
}

fn mark(marker: &Path) -> io::Result<()> {
    if let Some(parent) = marker.parent() {
        DirBuilder::new()
            .mode(0o750)
            .recursive(true)
            .create(parent)?;
    }
    fs::write(marker, "")
}

fn in_memory(at: &Path, size: Option<u64>) -> io::Result<()> {
    if is_mounted(at)? {
        return Ok(());
    }
    mounting::tmpfs(at, size)?;
    fs::set_permissions(at, Permissions::from_mode(FOR_ALL))
}

fn of_huge_pages(at: &Path, page: Option<u64>) -> io::Result<()> {
    if is_mounted(at)? {
        return Ok(());
    }
    mounting::hugetlbfs(at, page)?;
    fs::set_permissions(at, Permissions::from_mode(FOR_ALL))
}

fn give(at: &Path, ownership: Ownership, read_only: bool) -> io::Result<()> {
    let Some(id) = ownership.group else {
        return Ok(());
    };
    ownership::give(at, Group { id, read_only })
}

fn local(
    pod: &PodDirectory,
    name: &str,
    path: &Path,
    read_only: bool,
    ownership: Ownership,
) -> Result<Volume, Failed> {
    let at = pod.volume(Plugin::Local, name);
    DirBuilder::new()
        .mode(0o750)
        .recursive(true)
        .create(&at)
        .map_err(doing("making", &at))?;
    if !is_mounted(&at).map_err(doing("looking at", &at))? {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let source = openat(CWD, path, flags, Mode::empty());
        let source = source
            .map_err(io::Error::from)
            .map_err(doing("opening", path))?;
        mounting::bind(source.as_fd(), &at).map_err(doing("mounting", &at))?;
        if !read_only {
            give_once(&at, ownership)?;
        }
    }
    Ok(ready(at, read_only))
}

// The volume outlives pods: it may belong to the group already.
fn give_once(at: &Path, ownership: Ownership) -> Result<(), Failed> {
    let Some(id) = ownership.group else {
        return Ok(());
    };
    let group = Group {
        id,
        read_only: false,
    };
    let is_given = ownership::is_given(at, group).map_err(doing("looking at", at))?;
    match ownership.only_on_mismatch && is_given {
        true => Ok(()),
        false => ownership::give(at, group).map_err(doing("giving to fsGroup", at)),
    }
}

/// Takes all volumes of a pod down: what is mounted last goes first, and nothing is removed through a mount.
pub(super) fn take_down(pod: &PodDirectory) -> Result<(), Failed> {
    if !pod.path().exists() {
        return Ok(());
    }
    unmount_under(pod.path())?;
    for place in [pod.sub_paths(), pod.volumes(), pod.plugins()] {
        removal::remove_tree(&place).map_err(doing("removing", &place))?;
    }
    Ok(())
}

/// Takes the parts of volumes down that were mounted for containers.
pub(super) fn take_parts_down(pod: &PodDirectory) -> Result<(), Failed> {
    let parts = pod.sub_paths();
    if !parts.exists() {
        return Ok(());
    }
    unmount_under(&parts)?;
    removal::remove_tree(&parts).map_err(doing("removing", &parts))
}

// Last mounted first.
fn unmount_under(place: &Path) -> Result<(), Failed> {
    let mounts = mounting::under(place).map_err(doing("reading the mounts of", place))?;
    for place in mounts.iter().rev() {
        mounting::end(place).map_err(doing("unmounting", place))?;
    }
    Ok(())
}
