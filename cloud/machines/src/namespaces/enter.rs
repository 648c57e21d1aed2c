//! Runs a program in a machine that runs: what `nsenter` does, and into the machine's control groups too.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::cgroups;
use super::record::{Home, Process};
use crate::Error;

/// What programs in a machine find.
const ENVIRONMENT: [(&str, &str); 3] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
];

/// Runs it and gives back its exit code; 128 and the signal when a signal ended it, as shells do.
pub(crate) fn enter(home: PathBuf, program: &[OsString]) -> Result<u8, Error> {
    let home = Home::at(home);
    let name = home.plan()?.name;
    let Some((first, arguments)) = program.split_first() else {
        return Err(Error::Start("no program to run was named".to_owned()));
    };
    let record = home.record()?;
    let (Some(init), Some(group)) = (record.init.filter(|i| i.is_alive()), record.group) else {
        return Err(Error::Off(name));
    };
    cgroups::join(&cgroups::of_this_host()?, &group)?;
    let all = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::CONTROL_GROUP
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::NETWORK;
    move_into(init, all)?;
    let mut command = Command::new(first);
    command
        .args(arguments)
        .current_dir("/")
        .env_clear()
        .envs(ENVIRONMENT);
    let status = command.status().map_err(Error::kernel(format!(
        "run `{}` in the machine `{name}`",
        first.to_string_lossy()
    )))?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Moves into namespaces of a process. Only children are in its pid namespace.
pub(super) fn move_into(init: Process, which: ThreadNameSpaceType) -> Result<(), Error> {
    let pid = i32::try_from(init.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::Start("process 1 has no number".to_owned()))?;
    let process = pidfd_open(pid, PidfdFlags::empty())
        .map_err(Error::kernel("find the machine's first process"))?;
    move_into_thread_name_spaces(process.as_fd(), which)
        .map_err(Error::kernel("enter the machine's namespaces"))
}
