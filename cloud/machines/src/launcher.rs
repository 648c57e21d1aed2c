//! The launcher program: the parts of a machine's start that need a process with one thread.
//!
//! Any program can be it: it hands over its arguments before it has started a thread. [`crate::Launcher`] says
//! which program and how it is called.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::Error;
use crate::namespaces::{Launcher, disks, enter, init, supervisor};

/// Does what these arguments say: `start`, `supervise`, `init`, `plug` or `enter`, and the machine's directory; or
/// `unmount`, with a process and a device.
pub fn run(launcher: &Launcher, arguments: &[OsString]) -> ExitCode {
    let word = arguments.first().and_then(|word| word.to_str());
    let done = match (word, arguments.get(1..).unwrap_or_default()) {
        (Some("start"), [home]) => supervisor::start(launcher, Path::new(home)).map(|()| 0),
        (Some("supervise"), [home]) => supervisor::supervise(launcher, home.into()).map(|()| 0),
        (Some("init"), [home, console]) => init::init(home.into(), Path::new(console)).map(|()| 0),
        (Some("plug"), [home]) => disks::plug(home.into()).map(|()| 0),
        (Some("unmount"), [pid, device]) => {
            disks::unmount(&pid.to_string_lossy(), &device.to_string_lossy()).map(|()| 0)
        }
        (Some("enter"), [home, program @ ..]) => enter::enter(home.into(), program),
        _ => Err(Error::Start(
            "this program is started by Kyanite, not by people".to_owned(),
        )),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::FAILURE
        }
    }
}
