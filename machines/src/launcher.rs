//! The launcher program: the parts of a machine's start that need a process with one thread.
//!
//! Any program can be it: it hands over its arguments before it has started a thread. [`crate::Launcher`] says
//! which program and how it is called.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::namespaces::{Launcher, enter, init, supervisor};

/// Does what these arguments say: `start`, `supervise`, `init` or `enter`, and the machine's directory.
pub fn run(launcher: &Launcher, arguments: &[OsString]) -> ExitCode {
    let words: Vec<&str> = arguments
        .iter()
        .filter_map(|a| a.to_str())
        .take(1)
        .collect();
    let done = match (words.as_slice(), &arguments[1.min(arguments.len())..]) {
        (["start"], [home]) => supervisor::start(launcher, Path::new(home)).map(|()| 0),
        (["supervise"], [home]) => {
            let ended = supervisor::supervise(launcher, PathBuf::from(home));
            ended.map(|()| 0).map_err(|e| e.to_string())
        }
        (["init"], [home, console]) => {
            let ended = init::init(PathBuf::from(home), Path::new(console));
            ended.map(|()| 0).map_err(|e| e.to_string())
        }
        (["enter"], [home, program @ ..]) => {
            enter::enter(PathBuf::from(home), program).map_err(|e| e.to_string())
        }
        _ => Err("this program is started by Kyanite, not by people".to_owned()),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::FAILURE
        }
    }
}
