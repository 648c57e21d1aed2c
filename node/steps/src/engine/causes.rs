//! Errors of the host as failures: what failed, why, and what to do about it.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use super::step::Failure;
use crate::host::{Command, CommandError, Finished, NetworkError};

/// What to do about errors of the file system, by their number.
const FILE_REMEDIES: &[(Errno, &str)] = &[
    (
        Errno::ROFS,
        "the file system is mounted read-only: look for disk errors in `dmesg`, repair, then `mount -o remount,rw /` and run again",
    ),
    (
        Errno::NOSPC,
        "the disk is full: see `df -h` and `df -i`, free some space or take a larger OS disk, and run again",
    ),
    (
        Errno::DQUOT,
        "the disk quota is used up: free some space or raise the quota, and run again",
    ),
    (Errno::ACCESS, "run as root"),
    (
        Errno::PERM,
        "run as root, and look for the immutable attribute with `lsattr`",
    ),
    (
        Errno::IO,
        "the disk reports errors: look in `dmesg` and replace the disk or the machine",
    ),
    (
        Errno::NOTEMPTY,
        "the directory holds files that nobody asked to remove: move them away and run again",
    ),
    (
        Errno::ISDIR,
        "a directory is where a file belongs: move it away and run again",
    ),
    (
        Errno::NOTDIR,
        "a file is where a directory belongs: move it away and run again",
    ),
    (
        Errno::NOENT,
        "something that should be on this machine is missing: compare it with the image it was made from",
    ),
];

/// Errors that do not pass by waiting.
const LASTING: [Errno; 6] = [
    Errno::ROFS,
    Errno::ACCESS,
    Errno::PERM,
    Errno::NOTEMPTY,
    Errno::ISDIR,
    Errno::NOTDIR,
];

impl Failure {
    /// A file operation that failed: `doing` is a verb such as `write`.
    pub fn file(doing: &str, path: &Path, error: &io::Error) -> Failure {
        let errno = Errno::from_io_error(error);
        let remedy = FILE_REMEDIES.iter().find(|(e, _)| Some(*e) == errno);
        Failure {
            permanent: errno.is_some_and(|e| LASTING.contains(&e)),
            ..Failure::new(
                format!("cannot {doing} {}: {error}", path.display()),
                remedy.map_or("", |(_, remedy)| remedy),
            )
        }
    }

    /// A command that ran and was not content.
    pub fn command(command: &Command, finished: &Finished) -> Failure {
        let line = command.summary();
        Failure::new(
            format!(
                "`{line}` exited with {}: {}",
                finished.status,
                finished.last_words()
            ),
            format!("run `{line}` by hand to see all of its output"),
        )
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        let cause = error.to_string();
        match error {
            CommandError::Missing { program } if program == "systemctl" => Failure::permanent(
                cause,
                "this machine does not run systemd: node provisioning needs Ubuntu or Debian with systemd as init",
            ),
            CommandError::Missing { program } => Failure::permanent(
                cause,
                format!("install the package that has `{program}`, or use an image with it"),
            ),
            CommandError::Io { .. } => Failure::new(
                cause,
                "look for lack of memory or processes in `dmesg` and `ulimit -a`, and whether /dev/null is there",
            ),
            CommandError::TimedOut { command, .. } => Failure::new(
                cause,
                format!("run `{command}` by hand to see where it hangs"),
            ),
            CommandError::Cancelled { .. } => {
                Failure::permanent(cause, "run again: it goes on where it stopped")
            }
        }
    }
}

impl From<NetworkError> for Failure {
    fn from(error: NetworkError) -> Failure {
        let remedy = match &error {
            NetworkError::UnknownName { name } => format!(
                "check the spelling of `{name}` and that the machine's virtual network is linked to the DNS zone that has it"
            ),
            NetworkError::NoResolver { .. } => "check the DNS servers in `resolvectl status` and that UDP and TCP port 53 to them are open".to_owned(),
            NetworkError::Unreachable { server, .. } | NetworkError::TimedOut { server, .. } => format!(
                "check routes, network security groups and firewalls between this machine and `{server}`, and that something listens there"
            ),
            NetworkError::Certificate { .. } => "check that the CA in the configuration is the one that signed the server's certificate, and that no proxy intercepts TLS".to_owned(),
            NetworkError::CertificateTime { .. } => "check this machine's clock with `timedatectl` and `chronyc tracking`, then the validity of the server's certificate".to_owned(),
            NetworkError::Protocol { server, .. } => {
                format!("check what `{server}` really is, and whether a proxy answers in its place")
            }
        };
        Failure::new(error.to_string(), remedy)
    }
}
