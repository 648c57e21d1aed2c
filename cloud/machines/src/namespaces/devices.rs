//! A small `/dev` of the machine's own: no disks of the host, no hardware; the machine's own disks where Azure's udev
//! rules have them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::MountFlags;

use super::disks::Plug;
use super::init::{bind, fresh, of_host};
use crate::Error;

/// Devices that every machine has, as far as the host has them: name and permissions.
const DEVICES: [(&str, u32); 9] = [
    ("null", 0o666),
    ("zero", 0o666),
    ("full", 0o666),
    ("random", 0o666),
    ("urandom", 0o666),
    ("tty", 0o666),
    // The kubelet does not start without it.
    ("kmsg", 0o600),
    ("fuse", 0o666),
    ("net/tun", 0o666),
];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Where links lead to data disks by their LUN, and how those of a directory begin: those of Azure's older udev rules,
/// and those of the newer.
const BY_LUN: [(&str, &str); 2] = [("disk/azure/scsi1", "lun"), ("disk/azure/data/by-lun", "")];

/// Makes it, with this terminal of the host as the console.
pub(super) fn make(console: &Path, disks: &[Plug]) -> Result<(), Error> {
    let dev = Path::new("/dev");
    with_exact_permissions(|| fill(dev, console))?;
    show_disks(dev, disks)
}

// Nothing here is subject to a mask.
fn with_exact_permissions(work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    rustix::process::umask(Mode::empty());
    let done = work();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    done
}

/// Has these disks in `/dev` and no others.
pub(super) fn show_disks(dev: &Path, disks: &[Plug]) -> Result<(), Error> {
    let shown: BTreeSet<String> = disks.iter().map(|disk| disk_name(disk.lun)).collect();
    for (directory, _) in BY_LUN {
        let directory = dev.join(directory);
        fs::create_dir_all(&directory).map_err(Error::file("make the directory", &directory))?;
        for link in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = fs::read_link(link.path()).unwrap_or_default();
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            if !shown.contains(name.as_ref()) {
                remove(&link.path())?;
                remove(&dev.join(name.as_ref()))?;
            }
        }
    }
    with_exact_permissions(|| disks.iter().try_for_each(|disk| show_disk(dev, *disk)))
}

fn show_disk(dev: &Path, disk: Plug) -> Result<(), Error> {
    let name = disk_name(disk.lun);
    let node = dev.join(&name);
    if !fs::metadata(&node).is_ok_and(|found| found.rdev() == disk.number) {
        remove(&node)?;
        let mode = Mode::from_raw_mode(0o660);
        mknodat(CWD, &node, FileType::BlockDevice, mode, disk.number)
            .map_err(Error::file("make the device", &node))?;
    }
    for (directory, prefix) in BY_LUN {
        let link = dev.join(directory).join(format!("{prefix}{}", disk.lun));
        let up = "../".repeat(directory.matches('/').count() + 1);
        remove(&link)?;
        symlink(format!("{up}{name}"), &link).map_err(Error::file("link", &link))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

// As on Azure the first two are the system's and the temporary disk: LUN 0 is `sdc`, LUN 24 `sdaa`.
fn disk_name(lun: u32) -> String {
    let mut number = lun + 2;
    let mut letters = Vec::new();
    loop {
        letters.push(char::from(b'a' + (number % 26) as u8));
        match number / 26 {
            0 => break,
            more => number = more - 1,
        }
    }
    format!("sd{}", letters.into_iter().rev().collect::<String>())
}

fn fill(dev: &Path, console: &Path) -> Result<(), Error> {
    fresh(
        dev,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::STRICTATIME,
        "mode=0755",
    )?;
    for name in ["net", "pts", "shm", "mqueue"] {
        let path = dev.join(name);
        fs::create_dir(&path).map_err(Error::file("make the directory", &path))?;
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o755))
            .map_err(Error::file("change", &path))?;
    }
    for (name, mode) in DEVICES {
        device(dev, name, mode)?;
    }
    for (name, to) in LINKS {
        symlink(to, dev.join(name)).map_err(Error::file("link", &dev.join(name)))?;
    }
    let no_programs = MountFlags::NOSUID | MountFlags::NOEXEC;
    fresh(
        &dev.join("pts"),
        "devpts",
        no_programs,
        "newinstance,ptmxmode=0666,mode=0620,gid=5",
    )?;
    fresh(
        &dev.join("shm"),
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        "mode=1777",
    )?;
    fresh(
        &dev.join("mqueue"),
        "mqueue",
        no_programs | MountFlags::NODEV,
        "",
    )?;
    let own = dev.join("console");
    fs::write(&own, "").map_err(Error::file("make", &own))?;
    bind(console, &own)
}

fn device(dev: &Path, name: &str, mode: u32) -> Result<(), Error> {
    let Ok(host) = fs::metadata(of_host(&dev.join(name))) else {
        return Ok(());
    };
    if !host.file_type().is_char_device() {
        return Ok(());
    }
    let path = dev.join(name);
    mknodat(
        CWD,
        &path,
        FileType::CharacterDevice,
        Mode::from_raw_mode(mode),
        host.rdev(),
    )
    .map_err(Error::file("make the device", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_as_the_kernel_names_them() {
        for (lun, name) in [
            (0, "sdc"),
            (23, "sdz"),
            (24, "sdaa"),
            (49, "sdaz"),
            (50, "sdba"),
        ] {
            assert_eq!(disk_name(lun), name);
        }
    }
}
