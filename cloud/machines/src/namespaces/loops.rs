//! Loop devices of the host: a file of it as a block device.
//!
//! One that is attached here goes by itself: it is marked to be detached when nobody has it open any more, and whoever
//! has attached it holds it open. However a holder ends, the kernel takes the device away. The device of a file is
//! found by the file, in the kernel's own tables, so that all who have a disk see one and the same.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::FlockOperation;

use crate::Error;

/// How often a device is looked for again that went away just when it was found.
const TRIES: usize = 20;

/// A device that is held open.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Its number.
    pub(crate) number: u64,
    _held: fs::File,
}

impl Loop {
    /// The device of a file, attached if need be.
    pub(crate) fn of(file: &Path) -> Result<Loop, Error> {
        if !Path::new("/dev/loop-control").exists() {
            let hint = "this host has no loop devices (load the kernel's `loop` module; in a container: start it with \
                --privileged)";
            return Err(Error::Start(hint.to_owned()));
        }
        // Two who attach a file at once would attach it twice.
        let locked = fs::File::open(file).map_err(Error::file("open the disk", file))?;
        rustix::fs::flock(&locked, FlockOperation::LockExclusive)
            .map_err(Error::file("lock the disk", file))?;
        for _ in 0..TRIES {
            let device = match devices_of(file).pop() {
                Some(device) => device,
                None => PathBuf::from(losetup(&[
                    "--find".as_ref(),
                    "--show".as_ref(),
                    file.as_os_str(),
                ])?),
            };
            if let Some(held) = hold(&device, file)? {
                return Ok(held);
            }
        }
        let cause = format!("the disk `{}` finds no loop device", file.display());
        Err(Error::Remains(cause))
    }
}

// None when it was detached in between.
fn hold(device: &Path, file: &Path) -> Result<Option<Loop>, Error> {
    let opened = fs::OpenOptions::new().read(true).write(true).open(device);
    let held = match opened {
        Ok(held) => held,
        Err(error) if matches!(error.raw_os_error(), Some(ENXIO)) => return Ok(None),
        Err(error) => return Err(Error::file("open", device)(error)),
    };
    if !devices_of(file).iter().any(|known| known == device) {
        return Ok(None);
    }
    // Detaching what is open only marks it.
    losetup(&["--detach".as_ref(), device.as_os_str()])?;
    let number = held
        .metadata()
        .map_err(Error::file("look at", device))?
        .rdev();
    Ok(Some(Loop {
        number,
        _held: held,
    }))
}

/// What the kernel says of a device without a file.
const ENXIO: i32 = 6;

/// Tells the devices of a file that it has another size.
pub(crate) fn tell_size(file: &Path) -> Result<(), Error> {
    for device in devices_of(file) {
        losetup(&["--set-capacity".as_ref(), device.as_os_str()])?;
    }
    Ok(())
}

/// Has what was written to the devices of a file written to the file.
pub(crate) fn flush(file: &Path) -> Result<(), Error> {
    for device in devices_of(file) {
        let flushed = fs::File::open(&device).and_then(|open| open.sync_all());
        flushed.map_err(Error::file("flush", &device))?;
    }
    Ok(())
}

// By the kernel's own table.
fn devices_of(file: &Path) -> Vec<PathBuf> {
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let its = devices.filter(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|path| Path::new(path.trim_end_matches('\n')) == file)
    });
    its.map(|device| Path::new("/dev").join(device.file_name()))
        .collect()
}

// The program rather than the system call, which no safe interface offers.
fn losetup(arguments: &[&std::ffi::OsStr]) -> Result<String, Error> {
    let mut command = Command::new("losetup");
    command.args(arguments).stdin(Stdio::null());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let hint = "there is no `losetup`, which attaches disks (install util-linux)";
            return Err(Error::Start(hint.to_owned()));
        }
        Err(error) => return Err(Error::kernel("run losetup")(error)),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(Error::Start(text(&output.stderr))),
    }
}
