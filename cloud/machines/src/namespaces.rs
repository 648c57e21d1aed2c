//! The driver that makes machines of namespaces.

mod cgroups;
mod console;
mod devices;
pub(crate) mod disks;
pub(crate) mod enter;
mod host_link;
pub(crate) mod init;
mod lay;
pub(crate) mod loops;
mod network;
mod patience;
mod peers;
mod record;
mod settings;
pub(crate) mod supervisor;
mod ways;

pub(crate) use cgroups::{Hierarchy, of_this_host};
pub use host_link::HOST_LINK;
pub use network::{BRIDGE, METADATA, Network, PLATFORM, hardware_address};
pub use ways::{Way, Ways};

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ipnet::Ipv4Net;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::spec::check_name;
use crate::{Disk, Driver, Error, Missing, PowerOff, Spec, State, preflight};
use patience::wait_until;
use record::Home;

/// How long a killed machine may take to be gone.
const DYING: Duration = Duration::from_secs(20);
/// How long disks may take to be plugged in and out.
const PLUGGING: Duration = Duration::from_secs(60);

/// The program that [`crate::launcher::run`] runs in, and the arguments that lead there.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Launcher {
    /// A program and what comes before the launcher's own arguments.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Launcher {
        let arguments = arguments.iter().map(OsString::from).collect();
        Launcher {
            program: program.into(),
            arguments,
        }
    }

    /// The program that runs now.
    pub fn this_program(arguments: &[&str]) -> Launcher {
        Launcher::new("/proc/self/exe", arguments)
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(&self.program);
        // What lists of processes show, which would otherwise be `/proc/self/exe`.
        command.arg0("kyanite-machine");
        command.args(&self.arguments).arg(word);
        command
    }
}

/// Machines of namespaces, kept in one directory.
#[derive(Debug, Clone)]
pub struct Namespaces {
    directory: PathBuf,
    launcher: Launcher,
}

/// A machine in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: State,
    /// Its address, if it has a network.
    pub address: Option<std::net::Ipv4Addr>,
    /// The number of its first process on this host.
    pub pid: Option<u32>,
}

/// What a sweep took away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Machines whose supervisor was gone; their disks are kept.
    pub machines: Vec<String>,
    /// Networks that no machine is attached to.
    pub networks: Vec<String>,
}

impl Namespaces {
    /// Machines below this directory, which is made private.
    pub fn new(directory: &Path, launcher: Launcher) -> Result<Namespaces, Error> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(Error::file("make", directory))?;
        let directory = fs::canonicalize(directory).map_err(Error::file("find", directory))?;
        Ok(Namespaces {
            directory,
            launcher,
        })
    }

    /// Everything that this host lacks for machines; empty when it can run them.
    pub fn missing(&self) -> Vec<Missing> {
        preflight::missing(&preflight::Facts::gather(&self.directory))
    }

    /// Makes a network; one of the same name is kept as it is.
    pub fn create_network(&self, name: &str, subnet: Ipv4Net) -> Result<Network, Error> {
        check_name(name)?;
        let _lock = self.lock()?;
        Network::create(self.networks().join(name), subnet)
    }

    /// Takes a network away.
    pub fn remove_network(&self, name: &str) -> Result<(), Error> {
        let _lock = self.lock()?;
        self.network(name)?.remove()
    }

    /// Starts a machine, and makes its network if that is not there: nobody sweeps the one before the other is.
    pub fn boot_with_network(&self, spec: &Spec, subnet: Ipv4Net) -> Result<(), Error> {
        let home = {
            let _lock = self.lock()?;
            if let Some(attachment) = &spec.attachment {
                check_name(&attachment.network)?;
                Network::create(self.networks().join(&attachment.network), subnet)?;
            }
            self.prepare(spec)?
        };
        self.start(&home, &spec.name)
    }

    /// Takes every network away that no running machine is attached to; whoever boots a machine makes it anew.
    pub fn close_networks(&self) -> Result<(), Error> {
        let _lock = self.lock()?;
        let running = self.list()?.into_iter().filter(|m| m.state != State::Off);
        let mut used = Vec::new();
        for machine in running {
            used.extend(self.home(&machine.name)?.plan()?.attachment);
        }
        for name in self.names("networks") {
            if used.iter().all(|attachment| attachment.network != name) {
                Network::at(self.networks().join(&name)).remove()?;
            }
        }
        Ok(())
    }

    /// A network that was made before.
    pub fn network(&self, name: &str) -> Result<Network, Error> {
        check_name(name)?;
        let dir = self.networks().join(name);
        match dir.is_dir() {
            true => Network::open(dir),
            false => Err(Error::NoNetwork(name.to_owned())),
        }
    }

    /// All machines, by name.
    pub fn list(&self) -> Result<Vec<Machine>, Error> {
        let names = self.names("machines").into_iter();
        // One without a plan comes or goes just now.
        let is_there = |name: &String| self.machines().join(name).join("plan.json").exists();
        let all = names.filter_map(|name| match self.machine(&name) {
            Err(_) if !is_there(&name) => None,
            found => Some(found),
        });
        all.collect()
    }

    fn machine(&self, name: &str) -> Result<Machine, Error> {
        let home = self.home(name)?;
        let state = state_of(&home)?;
        let init = home.record()?.init.filter(|_| state != State::Off);
        Ok(Machine {
            name: name.to_owned(),
            state,
            address: home.plan()?.attachment.map(|a| a.address),
            pid: init.map(|init| init.pid),
        })
    }

    /// Stops everything in a machine where it is, or lets it go on.
    pub fn freeze(&self, name: &str, frozen: bool) -> Result<(), Error> {
        cgroups::freeze(&cgroups::of_this_host()?, &self.group(name)?, frozen)
    }

    /// Takes a machine off its network, as if its cable were pulled, or puts it back; one without a network stays so.
    pub fn cut(&self, name: &str, cut: bool) -> Result<(), Error> {
        let group = self.group(name)?;
        match self.plan(name)?.attachment {
            Some(attachment) => self
                .network(&attachment.network)?
                .set_port(&port(&group), !cut),
            None => Ok(()),
        }
    }

    // The control group of a machine that runs.
    fn group(&self, name: &str) -> Result<String, Error> {
        let home = self.home(name)?;
        let group = home.record()?.group;
        let is_off = state_of(&home)? == State::Off;
        group
            .filter(|_| !is_off)
            .ok_or_else(|| Error::Off(name.to_owned()))
    }

    /// Gives a machine these data disks and no others: now if it runs, and whenever it starts. A disk that goes is not
    /// used by the machine any more when this returns.
    pub fn set_disks(&self, name: &str, disks: &[Disk]) -> Result<(), Error> {
        let home = self.home(name)?;
        let count = {
            let _lock = self.lock()?;
            home.write_disks(disks)?
        };
        let done = wait_until(PLUGGING, || {
            Ok(home.plugged()?.count >= count || state_of(&home)? != State::Running)
        })?;
        let trouble = match (done, home.plugged()?) {
            (false, _) => Some("its supervisor does not answer".to_owned()),
            (true, plugged) => plugged.trouble.filter(|_| plugged.count == count),
        };
        match trouble.filter(|_| state_of(&home).is_ok_and(|state| state == State::Running)) {
            None => Ok(()),
            Some(cause) => Err(Error::Disks {
                name: name.to_owned(),
                cause,
            }),
        }
    }

    /// The data disks that a machine has, or gets when it starts.
    pub fn disks(&self, name: &str) -> Result<Vec<Disk>, Error> {
        Ok(self.home(name)?.disks()?.disks)
    }

    /// What the machine was last booted as.
    pub fn plan(&self, name: &str) -> Result<Spec, Error> {
        self.home(name)?.plan()
    }

    /// A command that runs this program in a machine, with the standard streams of the command.
    pub fn command<S: Into<OsString>>(
        &self,
        name: &str,
        program: impl IntoIterator<Item = S>,
    ) -> Result<Command, Error> {
        let home = self.home(name)?;
        if state_of(&home)? == State::Off {
            return Err(Error::Off(name.to_owned()));
        }
        let mut command = self.launcher.command("enter");
        command
            .arg(home.path())
            .args(program.into_iter().map(Into::into));
        Ok(command)
    }

    /// The file that has everything the machine wrote to its console.
    pub fn console_log(&self, name: &str) -> Result<PathBuf, Error> {
        Ok(self.home(name)?.file("console.log"))
    }

    /// A command that prints the machine's journal, whether it runs or not.
    pub fn journal(&self, name: &str) -> Result<Command, Error> {
        let mut command = Command::new("journalctl");
        command
            .arg("--directory")
            .arg(self.home(name)?.file("upper/var/log/journal"))
            .args(["--merge", "--no-pager"]);
        Ok(command)
    }

    /// Ends what a killed supervisor left running, and takes away networks that nobody uses.
    pub fn sweep(&self) -> Result<Swept, Error> {
        let _lock = self.lock()?;
        let mut swept = Swept::default();
        let mut used = Vec::new();
        for name in self.names("machines") {
            let home = Home::at(self.machines().join(&name));
            if home.plan().is_err() {
                // Killed before it was written down: nothing was started from it.
                remove_directory(home.path())?;
                continue;
            }
            used.extend(home.plan()?.attachment.map(|a| a.network));
            if sweep_machine(&home)? {
                swept.machines.push(name);
            }
        }
        for name in self.names("networks") {
            if !used.contains(&name) {
                Network::at(self.networks().join(&name)).remove()?;
                swept.networks.push(name);
            }
        }
        Ok(swept)
    }

    // Whoever changes which machines and networks there are has this meanwhile, in any process.
    fn lock(&self) -> Result<fs::File, Error> {
        let path = self.directory.join("lock");
        let file = fs::OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(Error::file("open", &path))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(Error::file("lock", &path))?;
        Ok(file)
    }

    // Writes down what a machine is to be, which does not run.
    fn prepare(&self, spec: &Spec) -> Result<Home, Error> {
        check_name(&spec.name)?;
        // Said now, rather than by a machine that does not start.
        crate::custom_data::CustomData::read(&spec.custom_data)?;
        let mut spec = spec.clone();
        for bind in &mut spec.binds {
            let found = fs::canonicalize(&bind.source);
            bind.source = found.map_err(Error::file("show in a machine", &bind.source))?;
        }
        let home = Home::at(self.machines().join(&spec.name));
        fs::create_dir_all(home.path()).map_err(Error::file("make", home.path()))?;
        if state_of(&home)? != State::Off {
            return Err(Error::Running(spec.name.clone()));
        }
        sweep_machine(&home)?;
        // Kept by themselves: they change while the machine runs.
        if let Some(disks) = spec.disks.take() {
            home.write_disks(&disks)?;
        }
        home.write_plan(&spec)?;
        Ok(home)
    }

    fn machines(&self) -> PathBuf {
        self.directory.join("machines")
    }

    fn networks(&self) -> PathBuf {
        self.directory.join("networks")
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory.join(kind))
            .into_iter()
            .flatten();
        let names = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn home(&self, name: &str) -> Result<Home, Error> {
        check_name(name)?;
        let path = self.machines().join(name);
        match path.is_dir() {
            true => Ok(Home::at(path)),
            false => Err(Error::NotFound(name.to_owned())),
        }
    }

    fn start(&self, home: &Home, name: &str) -> Result<(), Error> {
        let started = self
            .launcher
            .command("start")
            .arg(home.path())
            .stdin(Stdio::null())
            .output()
            .map_err(Error::kernel("run the launcher"))?;
        let cause = String::from_utf8_lossy(&started.stderr).trim().to_owned();
        match started.status.success() {
            true => Ok(()),
            false => Err(Error::Boot {
                name: name.to_owned(),
                cause,
            }),
        }
    }
}

impl Driver for Namespaces {
    fn boot(&self, spec: &Spec) -> Result<(), Error> {
        let home = {
            let _lock = self.lock()?;
            self.prepare(spec)?
        };
        self.start(&home, &spec.name)
    }

    fn power_off(&self, name: &str, how: PowerOff) -> Result<(), Error> {
        let home = self.home(name)?;
        if let PowerOff::Button(grace) = how
            && off_within(&home, Signal::POWER, grace)?
        {
            return Ok(());
        }
        // Not everywhere can what is frozen be killed.
        if let Some(group) = home.record()?.group {
            let _ = cgroups::freeze(&cgroups::of_this_host()?, &group, false);
        }
        match off_within(&home, Signal::KILL, DYING)? {
            true => Ok(()),
            false => Err(Error::Remains(format!("the machine `{name}` does not die"))),
        }
    }

    fn state(&self, name: &str) -> Result<State, Error> {
        state_of(&self.home(name)?)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        self.power_off(name, PowerOff::Plug)?;
        let _lock = self.lock()?;
        remove_directory(self.home(name)?.path())
    }
}

/// The port of a machine on its network's bridge. Names of links have at most 15 characters: the random end of the
/// group's name tells ports apart.
fn port(group: &str) -> String {
    format!("m{}", &group[group.len() - 8..])
}

fn remove_directory(path: &Path) -> Result<(), Error> {
    fs::remove_dir_all(path).map_err(Error::file("remove", path))
}

fn state_of(home: &Home) -> Result<State, Error> {
    let watched = home.is_watched()?;
    let runs = home.record()?.init.is_some_and(|init| init.is_alive());
    Ok(match (watched, runs) {
        (true, _) => State::Running,
        (false, true) => State::Orphaned,
        (false, false) => State::Off,
    })
}

// Signals the machine's first process, and each that comes after it (it may just start or reboot), until the
// machine is off: when process 1 ends the kernel ends all others, and the supervisor ends last.
fn off_within(home: &Home, signal: Signal, patience: Duration) -> Result<bool, Error> {
    let mut signalled = None;
    let is_off = wait_until(patience, || {
        let init = home.record()?.init;
        if init != signalled {
            init.map_or(Ok(()), |init| send(init, signal))?;
            signalled = init;
        }
        Ok(state_of(home)? == State::Off)
    })?;
    if is_off {
        sweep_machine(home)?;
    }
    Ok(is_off)
}

fn send(init: record::Process, signal: Signal) -> Result<(), Error> {
    let pid = i32::try_from(init.pid).ok().and_then(Pid::from_raw);
    match pid
        .filter(|_| init.is_alive())
        .map(|pid| kill_process(pid, signal))
    {
        None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(Error::kernel("signal the machine")(error)),
    }
}

// Whether there was something to take away.
fn sweep_machine(home: &Home) -> Result<bool, Error> {
    let Some(_lock) = home.lock()? else {
        return Ok(false);
    };
    let Some(group) = home.record()?.group else {
        return Ok(false);
    };
    cgroups::remove(&cgroups::of_this_host()?, &group)?;
    home.write_record(&record::Record::default())?;
    Ok(true)
}
