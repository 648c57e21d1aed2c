//! A small `/dev` of the machine's own: no disks of the host, no hardware.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::MountFlags;

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

/// Makes it, with this terminal of the host as the console.
pub(super) fn make(console: &Path) -> Result<(), Error> {
    // Permissions are exact: nothing here is subject to a mask.
    rustix::process::umask(Mode::empty());
    let made = fill(Path::new("/dev"), console);
    rustix::process::umask(Mode::from_raw_mode(0o022));
    made
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
