//! The supervisor of one machine: makes what it is made of, starts it, starts it again when it reboots, and
//! takes everything away when it is off. A small process with one thread, which is what changing the
//! namespaces of a process asks for.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, setsid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Launcher;
use super::cgroups::{self, Hierarchy};
use super::console::Console;
use super::disks::Disks;
use super::network::{self, Network};
use super::patience::wait_until;
use super::record::{Home, Process, Record};
use crate::{Error, Spec};

/// Starts the supervisor of the machine in `home` and waits until the machine has started or why not.
///
/// In a process of its own, so that the supervisor's parent ends and somebody buries it.
pub(crate) fn start(launcher: &Launcher, home: &Path) -> Result<(), Error> {
    let log = home.join("supervisor.log");
    let opened = fs::OpenOptions::new().create(true).append(true).open(&log);
    let mut supervisor = launcher
        .command("supervise")
        .arg(home)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(opened.map_err(Error::file("open", &log))?)
        .spawn()
        .map_err(Error::kernel("start the supervisor"))?;
    let reason = match said(&mut supervisor)? {
        word if word == STARTED => return Ok(()),
        nothing if nothing.is_empty() => {
            format!("its supervisor died, see `{}`", log.display())
        }
        reason => reason,
    };
    // It takes away what it had made.
    let _ = supervisor.wait();
    Err(Error::Start(reason))
}

/// How long the lock may be taken by somebody who only looks, or takes away what an earlier supervisor left.
const SHORT: Duration = Duration::from_secs(5);

/// What a supervisor says of a machine that has started; anything else is the reason why not.
const STARTED: &str = "started\n";

// A child's standard output, to its end.
fn said(child: &mut Child) -> Result<String, Error> {
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        let read = output.read_to_string(&mut text);
        read.map_err(Error::kernel("hear how the machine starts"))?;
    }
    Ok(text)
}

/// The supervisor's whole life.
pub(crate) fn supervise(launcher: &Launcher, home: PathBuf) -> Result<(), Error> {
    setsid().map_err(Error::kernel("leave the terminal"))?;
    let home = Home::at(home);
    let spec = home.plan()?;
    let mut lock = None;
    let locked = wait_until(SHORT, || {
        lock = home.lock()?;
        Ok(lock.is_some())
    })?;
    if !locked {
        return say(Err(Error::Running(spec.name)));
    }
    let hierarchies = cgroups::of_this_host()?;
    let group = new_group(&spec.name);
    home.write_record(&Record {
        group: Some(group.clone()),
        ..Record::default()
    })?;
    let run = run(launcher, &home, &spec, &hierarchies, &group);
    cgroups::remove(&hierarchies, &group)?;
    home.write_record(&Record::default())?;
    run
}

fn run(
    launcher: &Launcher,
    home: &Home,
    spec: &Spec,
    hierarchies: &[Hierarchy],
    group: &str,
) -> Result<(), Error> {
    let started = cgroups::make(hierarchies, group)
        .and_then(|()| connect(home, spec, group))
        .and_then(|()| Disks::open(home))
        .and_then(|disks| Ok((power_on(launcher, home, group, &disks)?, disks)));
    let (said, mut running, mut disks) = match started {
        Ok((running, disks)) => (say(Ok(())), running, disks),
        Err(error) => return say(Err(error)),
    };
    said?;
    let mut follow = |disks: &mut Disks| disks.follow(launcher, home);
    while running.reboots(&mut disks, &mut follow)? {
        running = power_on(launcher, home, group, &disks)?;
    }
    Ok(())
}

/// A machine that runs.
struct Running {
    init: Child,
    console: Console,
}

impl Running {
    // Waits for its end; true when that was a restart.
    fn reboots(
        mut self,
        disks: &mut Disks,
        follow: impl FnMut(&mut Disks) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let ended = pidfd_open(Pid::from_child(&self.init), PidfdFlags::empty())
            .map_err(Error::kernel("watch the machine's first process"))?;
        self.console.copy_until_end(&ended, disks, follow)?;
        let status = self.init.wait();
        let status = status.map_err(Error::kernel("wait for the machine"))?;
        // How the kernel ends process 1 of a namespace that called reboot(2): a hang-up stands for a restart.
        Ok(status.signal() == Some(Signal::HUP.as_raw()))
    }
}

// Tells `start`, and by closing our standard output also that this was all. Nobody may be left to hear it.
fn say(outcome: Result<(), Error>) -> Result<(), Error> {
    let text = match &outcome {
        Ok(()) => STARTED.to_owned(),
        Err(error) => error.to_string(),
    };
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
    let null = fs::OpenOptions::new().write(true).open("/dev/null");
    let null = null.map_err(Error::kernel("open /dev/null"))?;
    rustix::stdio::dup2_stdout(&null).map_err(Error::kernel("close the standard output"))?;
    outcome
}

// A group of each start's own: what an earlier one left behind cannot be mistaken for it.
fn new_group(name: &str) -> String {
    format!("{name}-{:08x}", rand::random::<u32>())
}

fn connect(home: &Home, spec: &Spec, group: &str) -> Result<(), Error> {
    let Some(attachment) = &spec.attachment else {
        return network::only_loopback();
    };
    let networks = home.path().join("../../networks");
    let dir = networks.join(&attachment.network);
    if !dir.is_dir() {
        return Err(Error::NoNetwork(attachment.network.clone()));
    }
    Network::open(dir)?.attach(attachment, &super::port(group))
}

// Returns once the machine's first process has become systemd.
fn power_on(
    launcher: &Launcher,
    home: &Home,
    group: &str,
    disks: &Disks,
) -> Result<Running, Error> {
    let console = Console::open(&home.file("console.log"))?;
    let mut record = Record {
        group: Some(group.to_owned()),
        init: None,
        disks: disks.plugs(),
    };
    home.write_record(&record)?;
    new_pid_namespace()?;
    let mut init = launcher
        .command("init")
        .arg(home.path())
        .arg(&console.machine_end)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(Error::kernel("start the machine's first process"))?;
    let reason = match (said(&mut init)?, init.try_wait()) {
        (nothing, Ok(None)) if nothing.is_empty() => {
            // Recorded only now: nobody may enter it while it still has the host's root.
            record.init = Process::of(init.id());
            home.write_record(&record)?;
            return Ok(Running { init, console });
        }
        (nothing, _) if nothing.is_empty() => "its first process died at once".to_owned(),
        (reason, _) => reason,
    };
    let _ = init.wait();
    Err(Error::Start(reason))
}

/// Children of this process are the host's again, not the machine's.
pub(super) fn own_pid_namespace() -> Result<(), Error> {
    let own =
        fs::File::open("/proc/self/ns/pid").map_err(Error::kernel("find the pid namespace"))?;
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))
        .map_err(Error::kernel("return to the pid namespace"))
}

// Children of this process get the new namespace. A second one can only be made from the process's own.
fn new_pid_namespace() -> Result<(), Error> {
    own_pid_namespace()?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(Error::kernel("make a pid namespace"))
}
