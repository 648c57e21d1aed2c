//! The launcher alone, for programs that do not want to be it themselves.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    machines::launcher::run(&machines::Launcher::this_program(&[]), &arguments)
}
