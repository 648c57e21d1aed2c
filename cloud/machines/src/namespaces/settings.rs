//! Kernel settings that are not kept per namespace: a machine that changes them would change the host and
//! every other machine. It gets copies of its own, in which it reads what it wrote.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::init::{bind, fresh, make_directory};
use crate::Error;

/// Where the copies are made, before they are moved in place.
const SCRATCH: &str = "/run/kyanite-settings";

/// Directories of `/proc/sys` that are copied.
const COPIED: [&str; 3] = ["fs", "kernel", "vm"];

/// What is kept per namespace, or answers anew at each reading, and so stays as it is.
const REAL: [&str; 17] = [
    "fs/mqueue",
    "kernel/auto_msgmni",
    "kernel/cap_last_cap",
    "kernel/domainname",
    "kernel/hostname",
    "kernel/msg_next_id",
    "kernel/msgmax",
    "kernel/msgmnb",
    "kernel/msgmni",
    "kernel/ns_last_pid",
    "kernel/random/entropy_avail",
    "kernel/random/uuid",
    "kernel/sem",
    "kernel/shm_rmid_forced",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/shmmni",
];

/// Not looked into: a file system of its own, and what only the host needs.
const LEFT_OUT: [&str; 2] = ["fs/binfmt_misc", "kernel/sched_domain"];

/// Covers the settings that a machine sees; its own id of this start is among them.
pub(super) fn shadow() -> Result<(), Error> {
    let (settings, scratch) = (Path::new("/proc/sys"), Path::new(SCRATCH));
    fresh(
        scratch,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        "mode=0755",
    )?;
    for directory in COPIED {
        copy(settings, scratch, Path::new(directory));
    }
    let boot_id = scratch.join("kernel/random/boot_id");
    fs::write(&boot_id, format!("{}\n", new_boot_id())).map_err(Error::file("write", &boot_id))?;
    for name in REAL {
        let (real, place) = (settings.join(name), scratch.join(name));
        if place.exists() {
            bind(&real, &place)?;
        }
    }
    for directory in COPIED {
        bind(&scratch.join(directory), &settings.join(directory))?;
    }
    Ok(())
}

// What cannot be read (some settings can only be written) is simply not there.
fn copy(from: &Path, to: &Path, name: &Path) {
    let left_out = LEFT_OUT.iter().any(|left_out| name == Path::new(left_out));
    let source = from.join(name);
    let Ok(entries) = fs::read_dir(&source) else {
        return;
    };
    if left_out || make_directory(&to.join(name)).is_err() {
        return;
    }
    for entry in entries.flatten() {
        let name: PathBuf = name.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            copy(from, to, &name);
        } else if let Ok(value) = fs::read(entry.path()) {
            let mode = entry
                .metadata()
                .map_or(0o644, |m| m.permissions().mode() & 0o777);
            let copied = to.join(&name);
            let _ = fs::write(&copied, value);
            let _ = fs::set_permissions(&copied, fs::Permissions::from_mode(mode));
        }
    }
}

// A random UUID, as the kernel's own.
fn new_boot_id() -> String {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}
