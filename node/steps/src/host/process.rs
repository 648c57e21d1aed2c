//! Runs a child in a process group of its own, follows it with one `poll`, and ends the whole group when it must.

use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::command::{Command, CommandError, Finished};
use crate::engine::Stop;

/// How much of each stream is kept.
const KEEP: usize = 1 << 20;
/// How long a group gets between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Where programs are looked for; the caller's own path and secrets do not leak in.
const PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin:/snap/bin";

/// Runs `command` to its end, its timeout, or the cancellation of the run.
pub(super) fn run(command: &Command, stop: &Stop) -> Result<Finished, CommandError> {
    let io = |source| CommandError::Io {
        program: command.program.clone(),
        source,
    };
    let mut child = spawn(command)?;
    feed(&mut child, command.stdin.0.clone());
    let ending = Follower::new(&mut child)
        .and_then(|mut f| Ok((f.follow(command.timeout, stop)?, f)))
        .map_err(io);
    match ending {
        Ok((Ending::Exited, follower)) => {
            let status = child.wait().map_err(io)?;
            Ok(follower.finished(status))
        }
        Ok((Ending::TimedOut, _)) => {
            end_group(&mut child);
            Err(CommandError::TimedOut {
                command: command.summary(),
                limit: command.timeout,
            })
        }
        Ok((Ending::Cancelled, _)) => {
            end_group(&mut child);
            Err(CommandError::Cancelled {
                command: command.summary(),
            })
        }
        Err(error) => {
            end_group(&mut child);
            Err(error)
        }
    }
}

fn spawn(command: &Command) -> Result<Child, CommandError> {
    let stdin = match command.stdin.0.is_empty() {
        true => Stdio::null(),
        false => Stdio::piped(),
    };
    let spawned = std::process::Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8")])
        .envs(command.environment.iter().map(|(k, v)| (k, v)))
        .current_dir("/")
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    spawned.map_err(|source| match is_installed(&command.program) {
        false => CommandError::Missing {
            program: command.program.clone(),
        },
        true => CommandError::Io {
            program: command.program.clone(),
            source,
        },
    })
}

/// A program that is not found may also be a missing /dev/null or interpreter.
fn is_installed(program: &str) -> bool {
    match program.contains('/') {
        true => Path::new(program).exists(),
        false => PATH.split(':').any(|d| Path::new(d).join(program).exists()),
    }
}

/// Writes a child's input from a thread of its own, which ends with the input or with the child.
fn feed(child: &mut Child, input: Vec<u8>) {
    if let Some(mut stdin) = child.stdin.take() {
        std::thread::spawn(move || {
            // A child that does not read all of it says so in its exit status.
            let _ = stdin.write_all(&input);
        });
    }
}

enum Ending {
    Exited,
    TimedOut,
    Cancelled,
}

struct Follower {
    process: OwnedFd,
    streams: [Stream; 2],
}

struct Stream {
    pipe: Option<Box<dyn ReadFd>>,
    kept: Vec<u8>,
}

trait ReadFd: Read + AsFd {}
impl<T: Read + AsFd> ReadFd for T {}

impl Follower {
    fn new(child: &mut Child) -> io::Result<Follower> {
        let pid = Pid::from_child(child);
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        Ok(Follower {
            process: pidfd_open(pid, PidfdFlags::empty())?,
            streams: [Stream::new(stdout)?, Stream::new(stderr)?],
        })
    }

    /// Collects output until the process itself has ended. Its own children may keep the pipes open for ever (daemons do),
    /// so the end of the streams is not waited for.
    fn follow(&mut self, timeout: Duration, stop: &Stop) -> io::Result<Ending> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Ending::TimedOut);
            }
            let exited = self.wait(left, stop)?;
            for stream in &mut self.streams {
                stream.drain()?;
            }
            if exited {
                return Ok(Ending::Exited);
            }
            if stop.cancelled() {
                return Ok(Ending::Cancelled);
            }
        }
    }

    /// Waits for anything to happen; says whether the process ended.
    fn wait(&self, left: Option<Duration>, stop: &Stop) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.cancelled_fd(), PollFlags::IN),
        ];
        let open = self.streams.iter().filter_map(|s| s.pipe.as_ref());
        fds.extend(open.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)));
        let limit = left.and_then(|l| Timespec::try_from(l).ok());
        match poll(&mut fds, limit.as_ref()) {
            Err(e) if e != rustix::io::Errno::INTR => return Err(e.into()),
            _ => {}
        }
        Ok(fds[0].revents().contains(PollFlags::IN))
    }

    fn finished(self, status: ExitStatus) -> Finished {
        let [stdout, stderr] = self.streams.map(|s| s.kept);
        let killed = || status.signal().map_or(-1, |s| 128 + s);
        Finished {
            status: status.code().unwrap_or_else(killed),
            stdout,
            stderr,
        }
    }
}

impl Stream {
    fn new(pipe: impl Read + AsFd + 'static) -> io::Result<Stream> {
        let flags = fcntl_getfl(&pipe)?;
        fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok(Stream {
            pipe: Some(Box::new(pipe)),
            kept: Vec::new(),
        })
    }

    /// Reads what is there; keeps the beginning and drops the rest.
    fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    let room = KEEP.saturating_sub(self.kept.len()).min(n);
                    self.kept.extend_from_slice(&buffer[..room]);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Waits for a child that has a group and streams of its own; `None` if it had to end because the run was cancelled.
pub fn wait_or_end(child: &mut Child, stop: &Stop) -> io::Result<Option<ExitStatus>> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let mut fds = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.cancelled_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(e) if e != rustix::io::Errno::INTR => return Err(e.into()),
            _ if fds[0].revents().contains(PollFlags::IN) => return child.wait().map(Some),
            _ if stop.cancelled() => {
                end_group(child);
                return Ok(None);
            }
            _ => {}
        }
    }
}

/// Asks the group to end, waits a little, then insists. A group that is gone needs nothing.
fn end_group(child: &mut Child) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    if let Ok(process) = pidfd_open(group, PidfdFlags::empty()) {
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        let grace = Timespec::try_from(GRACE).ok();
        let _ = poll(&mut fds, grace.as_ref());
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}
